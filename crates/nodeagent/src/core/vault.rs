//! The vault of the applications: how long it may stay shut.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

/// What vaultmgr says about the vault of the applications.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Vault {
    /// Nothing: there may be none, so nothing follows from it.
    #[default]
    Silent,
    Opening,
    Open,
    /// It cannot be opened for now, for example until the controller attests the device; with the indexes of PCRs that
    /// are not as they were.
    Shut(Vec<i64>),
}

/// The watch over it.
#[derive(Debug, Clone, Default)]
pub(super) struct VaultWatch {
    said: Vault,
    state: VaultState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum VaultState {
    #[default]
    Fine,
    /// Shut, while the controller was there to help.
    Shut { since: Mono },
    /// Shut for too long. Only an open vault ends this.
    LockedUp,
}

impl VaultWatch {
    pub(super) fn hear(&mut self, said: Vault) {
        self.said = said;
    }

    /// Takes what is known now. The time counts only once the controller gave a config, as it may have to help.
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

    /// When it will have been shut for `limit`, unless it opens.
    pub(super) fn shut_for(&self, limit: Duration) -> Option<Mono> {
        match self.state {
            VaultState::Shut { since } => Some(since + limit),
            VaultState::Fine | VaultState::LockedUp => None,
        }
    }

    /// PCRs that may be why it is shut.
    pub(super) fn mismatching(&self) -> &[i64] {
        match &self.said {
            Vault::Shut(indexes) => indexes,
            Vault::Silent | Vault::Opening | Vault::Open => &[],
        }
    }

    /// It was shut for too long and no fallback can help.
    pub(super) fn lock_up(&mut self) {
        self.state = VaultState::LockedUp;
    }

    pub(super) fn locked_up(&self) -> bool {
        self.state == VaultState::LockedUp
    }
}
