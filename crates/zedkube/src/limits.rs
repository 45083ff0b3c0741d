//! Waits and counts of zedkube. Source: lf-edge/eve pkg/pillar/cmd/zedkube; the defaults are the reference's.

use std::time::Duration;

use serde::Deserialize;

/// Waits in milliseconds, counts bare.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Pause between two questions whether the Kubernetes API is there.
    pub probe_pause_ms: u64,
    /// Tries to cordon before giving up.
    pub cordon_tries: u32,
    /// Pause between two tries to cordon.
    pub cordon_pause_ms: u64,
    /// Attempts to drain before giving up.
    pub drain_tries: u32,
    /// Pause between two attempts to drain.
    pub drain_pause_ms: u64,
    /// Evictions under way at the same time.
    pub evictions_at_once: u32,
    /// Least time between the two lists that prove the node empty.
    pub proof_gap_ms: u64,
    /// How often the node is looked at while a cordon of ours has to go.
    pub uncordon_poll_ms: u64,
    /// How often a drained node is looked at, as somebody may uncordon it.
    pub complete_poll_ms: u64,
    /// With two requests answered, when NodeDrainStatus names the second requester.
    pub answer_dwell_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            probe_pause_ms: 5_000,
            cordon_tries: 10,
            cordon_pause_ms: 5_000,
            drain_tries: 5,
            drain_pause_ms: 300_000,
            evictions_at_once: 32,
            proof_gap_ms: 1_000,
            uncordon_poll_ms: 15_000,
            complete_poll_ms: 30_000,
            answer_dwell_ms: 2_000,
        }
    }
}

macro_rules! as_durations {
    ($($name:ident: $field:ident),+ $(,)?) => {
        impl Limits { $(
            pub(crate) const fn $name(&self) -> Duration {
                Duration::from_millis(self.$field)
            }
        )+ }
    };
}

as_durations! {
    probe_pause: probe_pause_ms,
    cordon_pause: cordon_pause_ms,
    drain_pause: drain_pause_ms,
    proof_gap: proof_gap_ms,
    uncordon_poll: uncordon_poll_ms,
    complete_poll: complete_poll_ms,
    answer_dwell: answer_dwell_ms,
}
