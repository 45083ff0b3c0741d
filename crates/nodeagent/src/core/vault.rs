//! The vault of the applications: how long it may stay closed; and since when the controller is unreachable, counted from
//! the start of this agent at the earliest: its restart makes a limit late, never early.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::ConfigGetStatus;

/// As vaultmgr reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Vault {
    /// No report: there may be no vault, so nothing follows.
    #[default]
    Silent,
    Opening,
    Open,
    /// Closed for now, for example until the controller attests the device; with the indexes of PCRs that
    /// changed.
    Shut(Vec<i64>),
}

#[derive(Debug, Clone, Default)]
pub(super) struct VaultWatch {
    said: Vault,
    state: VaultState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum VaultState {
    #[default]
    Fine,
    /// Closed, while the controller could help.
    Shut { since: Mono },
    /// Closed for too long. Only an open vault ends this.
    LockedUp,
}

impl VaultWatch {
    pub(super) fn hear(&mut self, said: Vault) {
        self.said = said;
    }

    /// The time counts only once the controller gave a config, as it may have to help.
    pub(super) fn update(&mut self, now: Mono, controller_had: bool) {
        self.state = match (&self.said, self.state) {
            (Vault::Open, _)
            | (Vault::Silent | Vault::Opening, VaultState::Fine | VaultState::Shut { .. }) => {
                VaultState::Fine
            }
            (Vault::Shut(_), VaultState::Fine) if controller_had => VaultState::Shut { since: now },
            (Vault::Silent | Vault::Opening | Vault::Shut(_), state) => state,
        };
    }

    /// When it will have been closed for `limit`.
    pub(super) fn shut_for(&self, limit: Duration) -> Option<Mono> {
        match self.state {
            VaultState::Shut { since } => Some(since + limit),
            VaultState::Fine | VaultState::LockedUp => None,
        }
    }

    /// PCRs that may be the cause.
    pub(super) fn mismatching(&self) -> &[i64] {
        match &self.said {
            Vault::Shut(indexes) => indexes,
            Vault::Silent | Vault::Opening | Vault::Open => &[],
        }
    }

    /// It was closed for too long and no fallback can help.
    pub(super) fn lock_up(&mut self) {
        self.state = VaultState::LockedUp;
    }

    pub(super) fn locked_up(&self) -> bool {
        self.state == VaultState::LockedUp
    }
}

/// From zedagent's view.
#[derive(Debug, Clone, Default)]
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

    /// A saved config is no sign of the controller.
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
