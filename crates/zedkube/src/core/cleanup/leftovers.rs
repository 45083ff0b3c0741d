//! What drains of our node have asked of virtual machines and of volumes: migrations are taken back as soon as no drain needs
//! them, the rest once the node is schedulable again. The removal of our cordon does not wait for any of it.
//!
//! Not here: the calls (`left_behind`). Pure: no clock, no I/O, no task.

use step::say;

use crate::core::facts::{Effect, UndoScope};

/// How far that is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Leftovers {
    wanted: UndoScope,
    /// What is in the way, and what a person can do.
    trouble: (String, String),
}

impl Leftovers {
    /// So much is to be done from now on.
    pub(super) fn settle(&mut self, wanted: UndoScope, out: &mut Vec<Effect>) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        if wanted == UndoScope::Nothing {
            self.trouble = (String::new(), String::new());
        }
        out.push(Effect::Leftovers(wanted));
    }

    /// Takes over what is in the way.
    pub(crate) fn hear(&mut self, trouble: (String, String), out: &mut Vec<Effect>) {
        if self.wanted != UndoScope::Nothing && self.trouble != trouble {
            if trouble.0.is_empty() {
                say!(out, info, "virtual machines and volumes are as before the last drain");
            } else {
                say!(
                    out,
                    warn,
                    "virtual machines and volumes are not all as before the last drain yet: {}",
                    trouble.0
                );
            }
            self.trouble = trouble;
        }
    }

    /// What is in the way, and what a person can do; `None` when all is well.
    pub(crate) fn trouble(&self) -> Option<(&str, &str)> {
        let (why, next) = &self.trouble;
        (!why.is_empty()).then_some((why, next))
    }
}
