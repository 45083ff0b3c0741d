//! zedagent's files apart from topics: completed counters, and the last good config.

use std::collections::BTreeMap;

use agent::{Error, report};
use pubsub::{TopicRoot, store};
use topics::{DeviceOp, DeviceOpsCmd, go_json};
use tracing::error;

/// The last config that was read whole.
pub(crate) const LAST_CONFIG: &str = "persist/checkpoint/lastconfig.json";
const COUNTER_BYTES: u64 = 64 << 10;

const fn path(op: DeviceOp) -> &'static str {
    match op {
        DeviceOp::Reboot => "persist/status/rebootConfig",
        DeviceOp::Shutdown => "persist/status/shutdownConfig",
    }
}

/// Completed counters. An invalid one counts as none, and is reported.
pub(crate) fn counters(topic_root: &TopicRoot) -> Result<BTreeMap<DeviceOp, DeviceOpsCmd>, Error> {
    let mut counters = BTreeMap::new();
    for op in [DeviceOp::Reboot, DeviceOp::Shutdown] {
        let Some(bytes) =
            store::read(&topic_root.path(path(op)), COUNTER_BYTES).map_err(Error::pubsub(path(op)))?
        else {
            continue;
        };
        match go_json::from_slice(&bytes) {
            Ok(command) => {
                counters.insert(op, command);
            }
            Err(cause) => error!(
                path = path(op), error = %report::chain(&cause),
                "the counter of the last operation makes no sense; the next counter of the config is only recorded"
            ),
        }
    }
    Ok(counters)
}

pub(crate) fn keep_counter(
    topic_root: &TopicRoot,
    op: DeviceOp,
    command: &DeviceOpsCmd,
) -> Result<(), Error> {
    let bytes = go_json::to_vec(command).map_err(|source| Error::Encode { what: path(op), source })?;
    store::replace(&topic_root.path(path(op)), &bytes).map_err(Error::pubsub(path(op)))
}

pub(crate) fn drop_counter(topic_root: &TopicRoot, op: DeviceOp) -> Result<(), Error> {
    store::remove(&topic_root.path(path(op))).map(drop).map_err(Error::pubsub(path(op)))
}
