//! Waits and counts of all agents from one JSON file. Invalid members are named; then nothing of the file is
//! used.

use std::path::Path;
use std::time::Duration;

use agent::settings::{DRAIN_TIMEOUT, Properties};
use agent::wire::{self, GLOBAL};
use anyhow::Context as _;
use pubsub::TopicRoot;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;
use topics::{ConfigItemValueMap, go_json};

/// One object per agent; missing members keep their defaults.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) zedagent: zedagent::Limits,
    pub(crate) baseosmgr: baseosmgr::Limits,
    pub(crate) nodeagent: nodeagent::Limits,
    pub(crate) zedkube: zedkube::Limits,
}

/// In a test's or the demo's environment: the limits file may shorten waits that are fixed on devices.
pub(crate) const SHORTENED: &str = "ZEDBOX_SHORT_WAITS";
const LIMIT_BYTES: u64 = 64 << 10;

impl Limits {
    /// From `file`, or the defaults without one.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else { return Ok(Self::default()) };
        let bytes = pubsub::store::read(file, LIMIT_BYTES)?
            .with_context(|| format!("read the limits: there is no file {}", file.display()))?;
        let shortened = cfg!(feature = "demo") && std::env::var_os(SHORTENED).is_some();
        let of_a_device = if shortened { Ok(()) } else { of_a_device(&bytes) };
        let read = of_a_device.and_then(|()| serde_json::from_slice(&bytes));
        read.with_context(|| format!("read the limits in {}", file.display()))
    }

    #[cfg(feature = "demo")]
    pub(crate) fn of(file: Value) -> anyhow::Result<Self> {
        serde_json::from_value(file).context("read the limits of the demo")
    }
}

/// Refuses waits that are fixed on devices.
fn of_a_device(file: &[u8]) -> Result<(), serde_json::Error> {
    let fixed = [
        ("zedagent", zedagent::Limits::FIXED),
        ("baseosmgr", baseosmgr::Limits::FIXED),
        ("nodeagent", nodeagent::Limits::FIXED),
        ("zedkube", zedkube::Limits::FIXED),
    ];
    let file: Value = serde_json::from_slice(file)?;
    let mut members = fixed.iter().flat_map(|(agent, members)| members.iter().map(move |it| (agent, it)));
    members.find(|(agent, member)| file[**agent].get(**member).is_some()).map_or(Ok(()), |(agent, member)| {
        let text = format!("{member} of {agent}, expected no such member: it is the same on each device");
        Err(serde_json::Error::custom(text))
    })
}

/// The limit of a drain attempt from this device's config; the default without one.
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
    fn the_file_has_at_most_26_members_and_each_is_told_of() {
        let agents: [&[&str]; 4] = [
            zedagent::Limits::MEMBERS,
            baseosmgr::Limits::MEMBERS,
            nodeagent::Limits::MEMBERS,
            zedkube::Limits::MEMBERS,
        ];
        let told = [
            include_str!("../../../docs/reference/limits.md"),
            include_str!("../../../docs/reference/settings.md"),
        ]
        .concat();
        for member in agents.concat() {
            assert!(told.contains(&format!("`{member}`")), "{member}");
        }
        assert!(agents.concat().len() <= 26, "{:?}", agents.concat());
    }

    #[test]
    fn a_wrong_member_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.json");
        pubsub::store::replace(&file, br#"{"zedkube":{"cordon_trials":3}}"#).unwrap();
        let refused = format!("{:#}", Limits::read(Some(&file)).unwrap_err());
        assert!(refused.contains("limits.json") && refused.contains("cordon_trials"), "{refused}");
        pubsub::store::replace(&file, br#"{"zedkube":{"cordon_tries":3}}"#).unwrap();
        let refused = format!("{:#}", Limits::read(Some(&file)).unwrap_err());
        assert!(refused.contains("cordon_tries of zedkube") && refused.contains("same on each"), "{refused}");
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
