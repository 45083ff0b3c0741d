//! What is published in the benches, and the clock that both processes share.

use pubsub::{Codec, Name};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// About as long as a drain status with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Sample {
    pub(crate) number: u64,
    /// When publishing began, on the shared clock.
    pub(crate) at_nanos: u64,
    pub(crate) answer: bool,
    pub(crate) reason: String,
}

impl Sample {
    pub(crate) fn new(number: u64, answer: bool) -> Self {
        let reason =
            format!("node has {number} pods left: pod default/web-{number} waits for its budget web, 0 of 1");
        Self { number, at_nanos: now_nanos(), answer, reason }
    }
}

/// The monotonic clock, which is one for all processes.
pub(crate) fn now_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

pub(crate) fn encode(sample: &Sample) -> Vec<u8> {
    serde_json::to_vec(sample).unwrap()
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Sample> {
    serde_json::from_slice(bytes).ok()
}

pub(crate) fn codec() -> Codec<Sample> {
    Codec {
        encode: |sample| serde_json::to_vec(sample).map_err(Into::into),
        decode: |bytes| serde_json::from_slice(bytes).map_err(Into::into),
    }
}

pub(crate) fn name() -> Name {
    Name::volatile("bench", "Topic")
}

pub(crate) fn kept_name() -> Name {
    Name::persistent("bench", "Topic")
}
