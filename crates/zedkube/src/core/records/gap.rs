//! How often a value is written: at once after a quiet time, else once per gap, and then the newest.
//!
//! Not here: the value. Source: goals O1. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

/// Keeps writes of one file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Gap {
    last: Option<Mono>,
    /// When a value that is held back is due.
    due: Option<Mono>,
}

impl Gap {
    /// Whether a changed value is written now. If not, [`Gap::due`] says when to ask again.
    pub(super) fn opens(&mut self, now: Mono, gap: Duration) -> bool {
        match self.last.map(|last| last + gap) {
            Some(next) if now < next => {
                self.due = Some(next);
                false
            }
            Some(_) | None => true,
        }
    }

    /// It has been written, in turn or before its turn.
    pub(super) fn written(&mut self, now: Mono) {
        *self = Self { last: Some(now), due: None };
    }

    /// The value is again what was written last.
    pub(super) fn settled(&mut self) {
        self.due = None;
    }

    /// When a value that is held back must be written.
    pub(super) fn due(&self) -> Option<Mono> {
        self.due
    }
}
