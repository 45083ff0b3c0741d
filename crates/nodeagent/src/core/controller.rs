//! Since when the controller is unreachable.
//!
//! Counted from the start of this agent at the earliest: a restart of the agent makes a limit late, never
//! early. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::ConfigGetStatus;

/// From zedagent's view.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    status: ConfigGetStatus,
    /// `None` while it is reachable.
    lost: Option<Mono>,
    /// It gave a config in this run.
    had: bool,
}

/// What a config fetch shows about the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contact {
    /// It gave a config.
    Config,
    /// Reachable, without a config.
    Busy,
    /// Not reached, or unknown.
    Lost,
}

impl Controller {
    /// Unknown counts as unreachable.
    pub(super) const fn new(now: Mono) -> Self {
        Self { status: ConfigGetStatus::Never, lost: Some(now), had: false }
    }

    pub(super) fn hear(&mut self, now: Mono, status: ConfigGetStatus) {
        self.status = status;
        match self.contact() {
            Contact::Config => (self.lost, self.had) = (None, true),
            Contact::Busy => self.lost = None,
            Contact::Lost => {
                self.lost.get_or_insert(now);
            }
        }
    }

    /// A saved config is no sign of the controller (spec agents.md 2.5).
    pub(super) const fn contact(&self) -> Contact {
        match self.status {
            ConfigGetStatus::Success => Contact::Config,
            ConfigGetStatus::TemporaryFail => Contact::Busy,
            ConfigGetStatus::Never
            | ConfigGetStatus::Fail
            | ConfigGetStatus::ReadSaved
            | ConfigGetStatus::Stranger(_) => Contact::Lost,
        }
    }

    /// It gave a config at least once.
    pub(super) const fn had(&self) -> bool {
        self.had
    }

    /// When it will have been unreachable for `limit`.
    pub(super) fn lost_for(&self, limit: Duration) -> Option<Mono> {
        self.lost.map(|since| since + limit)
    }
}
