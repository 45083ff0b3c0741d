//! Waits and counts of all agents from one JSON file. Bad members are named; nothing is taken half.

use std::path::Path;
use std::time::Duration;

use agent::settings::{DRAIN_TIMEOUT, Properties};
use agent::wire::{self, GLOBAL};
use anyhow::Context as _;
use pubsub::TopicRoot;
use serde::Deserialize;
use topics::{ConfigItemValueMap, go_json};

/// One object an agent; what is left out keeps its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) zedagent: zedagent::Limits,
    pub(crate) baseosmgr: baseosmgr::Limits,
    pub(crate) nodeagent: nodeagent::Limits,
    pub(crate) zedkube: zedkube::Limits,
}

/// No limits file is longer than this.
const LIMIT_BYTES: u64 = 64 << 10;

impl Limits {
    /// The limits in `file`, or the defaults when none is given.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else { return Ok(Self::default()) };
        let bytes = pubsub::store::read(file, LIMIT_BYTES)?
            .with_context(|| format!("read the limits: there is no file {}", file.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("read the limits in {}", file.display()))
    }

    /// The limits of this content of a limits file.
    #[cfg(feature = "demo")]
    pub(crate) fn of(file: serde_json::Value) -> anyhow::Result<Self> {
        serde_json::from_value(file).context("read the limits of the demo")
    }
}

/// How long an attempt to drain lasts by the config of this device; as long as without one where there is none.
pub(crate) fn attempt_limit(topic_root: &TopicRoot) -> anyhow::Result<Duration> {
    let file = wire::path::<ConfigItemValueMap>(topic_root, "zedagent", GLOBAL);
    let doing = || format!("read the properties of the controller in {}", file.display());
    let Some(bytes) = pubsub::store::read(&file, pubsub::FILE_LIMIT_BYTES).with_context(doing)? else {
        return Ok(Properties::default().time(DRAIN_TIMEOUT));
    };
    let map = go_json::from_slice(&bytes).with_context(doing)?;
    Ok(Properties::from_map(&map, &Properties::default()).0.time(DRAIN_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_member_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.json");
        pubsub::store::replace(&file, br#"{"zedkube":{"cordon_trials":3}}"#).unwrap();
        let refused = format!("{:#}", Limits::read(Some(&file)).unwrap_err());
        assert!(refused.contains("limits.json") && refused.contains("cordon_trials"), "{refused}");
        pubsub::store::replace(&file, br#"{"zedkube":{"pod_limit_then":"kill"}}"#).unwrap();
        let refused = format!("{:#}", Limits::read(Some(&file)).unwrap_err());
        for word in ["limits.json", "pod_limit_then", "kill", "wait, give-up, delete"] {
            assert!(refused.contains(word), "{refused}");
        }
        pubsub::store::replace(&file, br#"{"zedkube":{"server_addresses":["127.0.0.1","0.0.0.0"]}}"#)
            .unwrap();
        let refused = format!("{:#}", Limits::read(Some(&file)).unwrap_err());
        assert!(refused.contains("server_addresses: found 0.0.0.0"), "{refused}");
        pubsub::store::replace(&file, br#"{"zedkube":{"server_addresses":["127.0.0.1","::1"]}}"#).unwrap();
        assert_eq!(Limits::read(Some(&file)).unwrap().zedkube.server_addresses.len(), 2);
        assert!(Limits::read(None).is_ok());
    }
}
