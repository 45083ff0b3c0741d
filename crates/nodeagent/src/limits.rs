//! Waits of this agent, with the reference's values; a limits file may change them and tests shorten them.
//!
//! Not here: limits that the controller sets (`core::Waits`). Source: spec agents.md 2.1.

use std::time::Duration;

use serde::Deserialize;

/// Waits in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Between a command and the stored reason, and again between halted applications and the operation.
    pub min_reboot_delay_ms: u64,
    /// How often it is said which applications still run; that one halts is acted upon at once.
    pub domain_halt_step_ms: u64,
    /// How long applications may take to halt.
    pub domain_halt_limit_ms: u64,
    /// How long the disks may take before the device is asked.
    pub last_sync_ms: u64,
    /// How long a machine may stay up after it was told to go down; then the agent leaves.
    pub hard_exit_ms: u64,
    /// The pause before a device that refused is asked again.
    pub refused_pause_ms: u64,
    /// How long zedkube may take to answer whether the machine may go down now.
    pub answer_limit_ms: u64,
    /// How long it may stay silent before the machine goes down all the same: of a worker, or for a restart on its own
    /// account. A server waits for a person.
    pub look_limit_ms: u64,
    /// How long a restart for an image in test waits for its turn, for each node before it and itself.
    pub own_turn_ms: u64,
    /// The same for one because there is no controller.
    pub no_controller_turn_ms: u64,
    /// How long a restart that waits no longer gives zedkube to write it down.
    pub emergency_ms: u64,
    /// How often the remaining time of an image test is published.
    pub test_tick_ms: u64,
    /// How long the first status waits for baseosmgr and zedkube, so that it does not deny an image test or a
    /// drain that is under way.
    pub first_word_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_reboot_delay_ms: 30_000,
            domain_halt_step_ms: 5_000,
            domain_halt_limit_ms: 300_000,
            last_sync_ms: 120_000,
            hard_exit_ms: 120_000,
            refused_pause_ms: 30_000,
            answer_limit_ms: 60_000,
            look_limit_ms: 300_000,
            own_turn_ms: 1_800_000,
            no_controller_turn_ms: 86_400_000,
            emergency_ms: 3_000,
            test_tick_ms: 10_000,
            first_word_ms: 30_000,
        }
    }
}

impl Limits {
    pub(crate) const fn min_reboot_delay(&self) -> Duration {
        Duration::from_millis(self.min_reboot_delay_ms)
    }

    /// Never zero: it paces a loop.
    pub(crate) fn domain_halt_step(&self) -> Duration {
        Duration::from_millis(self.domain_halt_step_ms.max(1))
    }

    pub(crate) const fn domain_halt_limit(&self) -> Duration {
        Duration::from_millis(self.domain_halt_limit_ms)
    }

    pub(crate) const fn last_sync(&self) -> Duration {
        Duration::from_millis(self.last_sync_ms)
    }

    pub(crate) const fn hard_exit(&self) -> Duration {
        Duration::from_millis(self.hard_exit_ms)
    }

    pub(crate) const fn refused_pause(&self) -> Duration {
        Duration::from_millis(self.refused_pause_ms)
    }

    pub(crate) const fn answer_limit(&self) -> Duration {
        Duration::from_millis(self.answer_limit_ms)
    }

    pub(crate) const fn look_limit(&self) -> Duration {
        Duration::from_millis(self.look_limit_ms)
    }

    pub(crate) const fn own_turn(&self) -> Duration {
        Duration::from_millis(self.own_turn_ms)
    }

    pub(crate) const fn no_controller_turn(&self) -> Duration {
        Duration::from_millis(self.no_controller_turn_ms)
    }

    pub(crate) const fn emergency(&self) -> Duration {
        Duration::from_millis(self.emergency_ms)
    }

    /// Never zero: it paces a loop.
    pub(crate) fn test_tick(&self) -> Duration {
        Duration::from_millis(self.test_tick_ms.max(1))
    }

    pub(crate) const fn first_word(&self) -> Duration {
        Duration::from_millis(self.first_word_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_are_those_of_the_reference_and_an_unknown_member_is_refused() {
        let limits = Limits::default();
        assert_eq!(limits.min_reboot_delay(), Duration::from_secs(30));
        assert_eq!(limits.domain_halt_step(), Duration::from_secs(5));
        assert_eq!(limits.domain_halt_limit(), Duration::from_mins(5));
        assert_eq!(limits.hard_exit(), Duration::from_mins(2));
        let given: Limits = serde_json::from_str(r#"{"hard_exit_ms":1}"#).unwrap();
        assert_eq!(given, Limits { hard_exit_ms: 1, ..limits });
        let refused = serde_json::from_str::<Limits>(r#"{"hard_exit":1}"#).unwrap_err().to_string();
        assert!(refused.contains("hard_exit"), "{refused}");
    }
}
