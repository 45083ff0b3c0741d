//! What drains of our node have asked of virtual machines and of volumes: taken back once the node is schedulable again,
//! and beside it. It holds nothing up.
//!
//! Not here: the calls (`left_behind`). Pure: no clock, no I/O, no task.

use crate::core::facts::{DrainLogEvent, Effect};

/// How far that is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Leftovers {
    wanted: bool,
    /// What is in the way, and what a person can do.
    trouble: (String, String),
}

impl Leftovers {
    /// It is to be done, or no longer.
    pub(super) fn settle(&mut self, wanted: bool, out: &mut Vec<Effect>) {
        if wanted != self.wanted {
            *self = Self { wanted, ..Self::default() };
            out.push(Effect::Leftovers(wanted));
        }
    }

    /// Hears what is in the way.
    pub(crate) fn hear(&mut self, trouble: (String, String), out: &mut Vec<Effect>) {
        if self.wanted && self.trouble != trouble {
            out.push(Effect::Say(DrainLogEvent::Leftovers(trouble.0.clone())));
            self.trouble = trouble;
        }
    }

    /// What is in the way, and what a person can do; `None` when all is well.
    pub(crate) fn trouble(&self) -> Option<(&str, &str)> {
        let (why, next) = &self.trouble;
        (!why.is_empty()).then_some((why, next))
    }
}
