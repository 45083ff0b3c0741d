//! Waits of nodeagent. Source: lf-edge/eve pkg/pillar/cmd/nodeagent.

use std::time::Duration;

use serde::Deserialize;

/// Waits in milliseconds; the defaults are the reference's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// From a command to the writing of its reason, and again from halted applications to the operation.
    pub min_reboot_delay_ms: u64,
    /// Applications get at most this long to halt.
    pub domain_halt_limit_ms: u64,
    /// The test of a new image is told at this pace.
    pub tick_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_reboot_delay_ms: 30_000, domain_halt_limit_ms: 300_000, tick_ms: 10_000 }
    }
}

impl Limits {
    pub(crate) const fn min_reboot_delay(&self) -> Duration {
        Duration::from_millis(self.min_reboot_delay_ms)
    }

    pub(crate) const fn domain_halt_limit(&self) -> Duration {
        Duration::from_millis(self.domain_halt_limit_ms)
    }

    pub(crate) const fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms)
    }
}
