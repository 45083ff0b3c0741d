//! The vault of the applications: how long it may stay closed.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

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
