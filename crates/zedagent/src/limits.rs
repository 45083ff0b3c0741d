//! Waits of zedagent.

use std::time::Duration;

use serde::Deserialize;

/// Waits in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// On a clustered node, how long zedkube may take to say something before an operation goes without it.
    pub unknown_wait_ms: u64,
    /// After a failed drain, the first pause before it is asked for again.
    pub ask_again_first_ms: u64,
    /// That pause doubles up to this.
    pub ask_again_most_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unknown_wait_ms: 300_000, ask_again_first_ms: 30_000, ask_again_most_ms: 1_800_000 }
    }
}

impl Limits {
    pub(crate) const fn unknown_wait(&self) -> Duration {
        Duration::from_millis(self.unknown_wait_ms)
    }

    /// The pause after the failure number `failures`, from 1.
    pub(crate) fn ask_again(&self, failures: u32) -> Duration {
        let factor = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        Duration::from_millis(self.ask_again_first_ms.saturating_mul(factor).min(self.ask_again_most_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_pause_doubles_from_30_s_to_30_min() {
        let limits = Limits::default();
        let secs: Vec<u64> =
            [1, 2, 3, 6, 7, 8, 99].iter().map(|it| limits.ask_again(*it).as_secs()).collect();
        assert_eq!(secs, [30, 60, 120, 960, 1800, 1800, 1800]);
    }
}
