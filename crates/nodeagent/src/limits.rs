//! Waits of this agent, with the reference's values; tests shorten some.
//!
//! Not here: limits that the controller sets (`core::Waits`).

use std::time::Duration;

/// For the disks, before the device is asked.
pub(crate) const LAST_SYNC: Duration = Duration::from_mins(2);
/// Settling time beside a zedagent with nothing to report: for a second try to store the reason.
pub(crate) const OWN_SETTLING: Duration = Duration::from_secs(2);
/// For zedkube's answer whether the machine may go down now.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_mins(1);
/// Silence after which the machine goes down all the same: of a worker, or for a restart on its own account.
/// A server waits for a person.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_mins(5);
/// How long a restart for an image in test waits for its turn, for each node before it and itself.
pub(crate) const OWN_TURN: Duration = Duration::from_mins(30);
/// The same without a controller.
pub(crate) const NO_CONTROLLER_TURN: Duration = Duration::from_hours(24);
/// Time for zedkube to record a restart that waits no longer.
pub(crate) const EMERGENCY: Duration = Duration::from_secs(3);
/// How long the first status waits for baseosmgr and zedkube, so that it does not deny a running image test
/// or drain.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(30);

agent::limits! {
    #[derive(Copy)]
    pub struct Limits;
    waits {}
    others {
        /// Whether whoever takes the machine down past these agents is held while pods run, as far as the device can.
        hold_plain_reboots: bool = true;
    }
    fixed_waits {
        /// Between a command and the stored reason, and again between halted applications and the operation.
        min_reboot_delay, min_reboot_delay_ms = 30_000;
        /// How long applications may take to halt.
        domain_halt_limit, domain_halt_limit_ms = 300_000;
        /// How long one hook before a reboot may take.
        hook_limit, hook_limit_ms = 300_000;
        /// How long all of them may take, those that are tried again included; then the operation continues.
        hooks_limit, hooks_limit_ms = 1_800_000;
        /// How long a machine may stay up after it was told to go down; then the agent leaves.
        hard_exit, hard_exit_ms = 120_000;
        /// The pause before a device that refused is asked again.
        refused_retry, refused_retry_ms = 30_000;
    }
    fixed {
        /// How often it is said which applications still run; that one halts is acted upon at once.
        domain_halt_step_ms: u64 = 5_000;
        /// How often the remaining time of an image test is published.
        test_tick_ms: u64 = 10_000;
    }
}

impl Limits {
    /// Never zero: it paces a loop.
    pub(crate) fn domain_halt_step(&self) -> Duration {
        Duration::from_millis(self.domain_halt_step_ms.max(1))
    }

    /// Never zero: it paces a loop.
    pub(crate) fn test_tick(&self) -> Duration {
        Duration::from_millis(self.test_tick_ms.max(1))
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
