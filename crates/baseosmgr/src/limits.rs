//! Waits of this agent, with their defaults; a limits file may change them and tests shorten them.

use std::time::Duration;

use serde::Deserialize;

/// Waits in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How long an image waits on a clustered node for any word of zedkube before it is switched without a
    /// drain, which is then said and recorded as a skip.
    pub unknown_wait_ms: u64,
    /// How long a request of ours may stand while zedkube is at work on nothing, before it counts as failed.
    pub unanswered_wait_ms: u64,
    /// The first pause after a failure: of a drain, of a write, of a partition record.
    pub again_first_ms: u64,
    /// Pauses double up to this one.
    pub again_longest_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unknown_wait_ms: 300_000,
            unanswered_wait_ms: 300_000,
            again_first_ms: 30_000,
            again_longest_ms: 1_800_000,
        }
    }
}

impl Limits {
    pub(crate) const fn unknown_wait(&self) -> Duration {
        Duration::from_millis(self.unknown_wait_ms)
    }

    pub(crate) const fn unanswered_wait(&self) -> Duration {
        Duration::from_millis(self.unanswered_wait_ms)
    }

    /// The pause after the failure number `failures`, which counts from one.
    pub(crate) fn again(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(32);
        let grown = self.again_first_ms.saturating_mul(1 << doublings);
        Duration::from_millis(grown.min(self.again_longest_ms.max(self.again_first_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_thirty_seconds_to_thirty_minutes() {
        let limits = Limits::default();
        let secs: Vec<u64> = [1, 2, 3, 6, 7, 8, u32::MAX].map(|nth| limits.again(nth).as_secs()).into();
        assert_eq!(secs, [30, 60, 120, 960, 1800, 1800, 1800]);
    }

    #[test]
    fn an_unknown_member_of_a_limits_file_is_refused() {
        let refused = serde_json::from_str::<Limits>(r#"{"unknown_wait":1}"#).unwrap_err().to_string();
        assert!(refused.contains("unknown_wait"), "{refused}");
        let given: Limits = serde_json::from_str(r#"{"unknown_wait_ms":1}"#).unwrap();
        assert_eq!(given, Limits { unknown_wait_ms: 1, ..Limits::default() });
    }
}
