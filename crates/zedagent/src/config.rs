//! The device config in force: read, merged over the last good one, and published in parts.
//!
//! Not here: parsing (`device_config`), its commands (`core`).
//!
//! The controller's config properties, checked against the table of known ones. The table is the reference's
//! publication with nothing set. Source: lf-edge/eve pkg/pillar/types/global.go.
//!
//! zedagent's files apart from topics: completed counters, and the last good config.

use agent::outlet::Tries;
use agent::settings::{NUMERIC, OWN};
use agent::wire::GLOBAL;
use agent::{Clock, Error, Outbox, Outlet, Troubles};
use pubsub::{FileRule, FileState, TopicRoot, store};
use step::{LiteMap, Mono};
use topics::{
    BaseOsConfig, ClusterDecision, ConfigGetStatus, ConfigItemType, ConfigItemValue, ConfigItemValueMap,
    ConfigMembership, DeviceOp, DeviceOpsCmd, EdgeNodeClusterConfig, EdgeNodeInfo, TriState, Trouble,
    by_length, cut_text, go_json,
};
use tracing::{error, info, warn};

use crate::CONFIG;
use crate::core::{DesiredDevice, Event};
use crate::device_config::{self, DeviceConfig, MOST_FAULTS};

/// Larger files are refused; the reference's are a few hundred kilobytes at most.
const CONFIG_BYTES: u64 = 16 << 20;

/// Its name among the troubles of this agent.
const FAULTY: &str = "device config";

/// The config in force, and its topics.
pub(crate) struct ConfigTopics {
    topic_root: TopicRoot,
    /// Its sections in force; `None` where no good one was ever seen.
    force: DeviceConfig,
    /// The config file's cluster decision, if it was read whole in this run; the copy does not count.
    decided: Option<ConfigMembership>,
    defaults: ConfigItemValueMap,
    items: Outlet<ConfigItemValueMap>,
    node: Outlet<EdgeNodeInfo>,
    cluster: Outlet<EdgeNodeClusterConfig>,
    decision: Outlet<ClusterDecision>,
    base_os: Outlet<BaseOsConfig>,
    troubles: Troubles,
    /// As published last.
    map: Option<ConfigItemValueMap>,
    /// The good config to copy.
    uncopied: Option<Vec<u8>>,
    copied: Tries,
}

impl ConfigTopics {
    /// Publishes the config's topics, and reads the last good config if there is one.
    pub(crate) fn open(topic_root: &TopicRoot, troubles: &Troubles) -> Result<Self, Error> {
        let mut config = Self {
            topic_root: topic_root.clone(),
            force: DeviceConfig::default(),
            decided: None,
            defaults: defaults()
                .map_err(|source| Error::Encode { what: "the table of config properties", source })?,
            items: Outlet::open(troubles)?,
            node: Outlet::open(troubles)?,
            cluster: Outlet::open(troubles)?,
            decision: Outlet::open(troubles)?,
            base_os: Outlet::open(troubles)?,
            troubles: troubles.clone(),
            map: None,
            uncopied: None,
            copied: Tries::new(troubles),
        };
        match store::read(&topic_root.path(LAST_CONFIG), CONFIG_BYTES) {
            Ok(Some(bytes)) => match device_config::parse(&bytes) {
                Ok(last) => config.merge(last),
                Err(fault) => {
                    warn!(path = LAST_CONFIG, %fault, "the copy of the last good config is of no use");
                }
            },
            Ok(None) => {}
            Err(cause) if cause.is_shortage() => return Err(Error::pubsub(LAST_CONFIG)(cause)),
            Err(cause) => {
                warn!(error = %step::chain(&cause), "cannot read the copy of the last good config");
            }
        }
        // The copy may be older than what was published in this boot, and must not take the node out of its
        // cluster.
        if let Some(published) = config.cluster.get(GLOBAL).filter(|it| it.valid) {
            config.force.cluster = Some(published.clone());
        }
        Ok(config)
    }

    /// Follows the config file. Dropping it leaves the last values published.
    pub(crate) async fn follow(mut self, clock: Clock, outbox: Outbox<Event>) {
        let rule = FileRule { limit_bytes: CONFIG_BYTES, order: true };
        let mut watch = self.topic_root.file(self.topic_root.path(CONFIG), rule);
        loop {
            let next_try = self.next_try();
            let event = tokio::select! {
                file = watch.next() => self.take(file),
                () = clock.sleep_until(next_try) => {
                    self.copy();
                    self.publish();
                    continue;
                }
            };
            if !outbox.send(event).await {
                return;
            }
        }
    }

    fn next_try(&self) -> Option<Mono> {
        let tries = [
            self.items.next_try(),
            self.node.next_try(),
            self.cluster.next_try(),
            self.decision.next_try(),
            self.base_os.next_try(),
            self.copied.next_try(),
        ];
        tries.into_iter().flatten().min()
    }

    /// Takes the present config file.
    fn take(&mut self, file: FileState) -> Event {
        let good = match file {
            FileState::Present(bytes) => self.take_text(&bytes),
            FileState::Absent => {
                warn!(path = CONFIG, "there is no device config; put one there");
                self.report_faults(&[]);
                false
            }
            FileState::Bad(finding) => {
                error!(
                    path = CONFIG,
                    reason = finding.reason,
                    "the device config cannot be used, the last good one stays"
                );
                self.report_faults(&[(String::new(), finding.reason)]);
                false
            }
        };
        if !good && self.force.cluster.is_none() && self.force.node.is_none() {
            return Event::NoConfig;
        }
        let (map, told) =
            apply(&self.defaults, self.last_items(), self.force.items.as_deref().unwrap_or_default());
        for line in told {
            error!(path = CONFIG, "config property {line}");
        }
        let wanted = self.wanted(&map, good);
        self.map = Some(map);
        self.publish();
        Event::Config(wanted)
    }

    /// Shows invalid members, empty for the whole, with what was found.
    fn report_faults(&self, faults: &[(String, String)]) {
        let mut still = Vec::new();
        for (member, found) in faults {
            let (what, stays) = match member.as_str() {
                "" => (FAULTY.to_owned(), "the last good device config stays in force"),
                member => (
                    format!("{FAULTY}, member {member}"),
                    "the last good content of that section stays in force",
                ),
            };
            self.troubles.report(&Trouble {
                what: what.clone(),
                path: self.topic_root.path(CONFIG).display().to_string(),
                error: format!("{found}; {stays}"),
                next_step: "correct it in the controller, or in the file; it is read again at once"
                    .to_owned(),
                ..Trouble::default()
            });
            still.push(what);
        }
        self.troubles.only(FAULTY, &still);
    }

    /// Copies the config that was last read whole.
    fn copy(&mut self) {
        let Some(bytes) = &self.uncopied else { return };
        let kept = store::replace(&self.topic_root.path(LAST_CONFIG), bytes);
        if self.copied.ended("copy of the device config", kept.map_err(Error::pubsub(LAST_CONFIG))) {
            self.uncopied = None;
        }
    }

    fn last_items(&self) -> &ConfigItemValueMap {
        self.items.get(GLOBAL).unwrap_or(&self.defaults)
    }

    /// Whether the text is a config at all; invalid sections keep their last good content.
    fn take_text(&mut self, bytes: &[u8]) -> bool {
        let config = match device_config::parse(bytes) {
            Ok(config) => config,
            Err(fault) => {
                error!(path = CONFIG, "{fault}; the last good device config stays in force");
                self.report_faults(&[(String::new(), fault.to_string())]);
                return false;
            }
        };
        for fault in &config.faults {
            error!(path = CONFIG, "{fault}; the last good content of that section stays in force");
        }
        let told: Vec<_> = config
            .faults
            .iter()
            .map(|it| (it.member.clone(), format!("line {}: {}", it.line, it.text)))
            .collect();
        self.report_faults(&told);
        if told.is_empty() {
            self.uncopied = Some(bytes.to_owned());
            self.copy();
        }
        if let Some(cluster) = &config.cluster {
            let membership =
                if cluster.valid { ConfigMembership::Member } else { ConfigMembership::NoCluster };
            self.decided = Some(membership);
        }
        self.merge(config);
        info!(path = CONFIG, "device config read");
        true
    }

    fn merge(&mut self, config: DeviceConfig) {
        let last = std::mem::take(&mut self.force);
        self.force = DeviceConfig {
            node: config.node.or(last.node),
            reboot: config.reboot.or(last.reboot),
            shutdown: config.shutdown.or(last.shutdown),
            items: config.items.or(last.items),
            maintenance: config.maintenance.or(last.maintenance),
            base_os: config.base_os.or(last.base_os),
            cluster: config.cluster.or(last.cluster),
            faults: Vec::new(),
        };
    }

    fn wanted(&self, map: &ConfigItemValueMap, good: bool) -> DesiredDevice {
        let mut commands = LiteMap::new();
        let mut unclear = Vec::new();
        for (op, command) in
            [(DeviceOp::Reboot, &self.force.reboot), (DeviceOp::Shutdown, &self.force.shutdown)]
        {
            match command {
                Some(Some(command)) => {
                    commands.insert(op, command.clone());
                }
                Some(None) => {}
                None => unclear.push(op),
            }
        }
        let item = |key: &str| map.global_settings.as_ref().and_then(|all| all.get(key));
        DesiredDevice {
            commands,
            unclear,
            // Not knowing is no reason to go ahead without a drain.
            clustered: self.force.cluster.as_ref().is_none_or(|cluster| cluster.valid),
            maintenance: self.force.maintenance.unwrap_or_default()
                || item("maintenance.mode").is_some_and(|it| it.tri_state_value == TriState::Enabled),
            force_fallback_counter: item("force.fallback.counter").map_or(0, |it| it.int_value),
            config_get_status: if good { ConfigGetStatus::Success } else { ConfigGetStatus::ReadSaved },
        }
    }

    /// Publishes the sections in force; failed writes are repeated.
    fn publish(&mut self) {
        if let Some(map) = &self.map {
            self.items.put(GLOBAL, map);
        }
        if let Some(node) = &self.force.node {
            self.node.put(GLOBAL, node);
        }
        if let Some(cluster) = &self.force.cluster {
            if let Some(membership) = self.decided {
                self.decision.put(GLOBAL, &ClusterDecision { membership });
            }
            self.cluster.put(GLOBAL, cluster);
        }
        let Some(base_os) = &self.force.base_os else { return };
        let key = base_os.as_ref().map(|it| it.content_tree_uuid.clone());
        let old: Vec<String> = self
            .base_os
            .iter()
            .map(|(key, _)| key.to_owned())
            .filter(|old| Some(old) != key.as_ref())
            .collect();
        for old in old {
            self.base_os.take(&old);
        }
        if let (Some(key), Some(config)) = (key, base_os) {
            self.base_os.put(&key, config);
        }
    }
}

/// As the reference writes them.
const DEFAULTS: &str = include_str!("config_items_defaults.json");
/// As `agent.<agent>.<setting>`.
const AGENT_SETTINGS: [&str; 2] = ["debug.loglevel", "debug.remote.loglevel"];

/// Shown of an unknown property's name.
const NAME_BYTES: usize = 60;

pub(crate) fn defaults() -> Result<ConfigItemValueMap, topics::Error> {
    go_json::from_slice(DEFAULTS.as_bytes())
}

/// `defaults` with the controller's values. An invalid value leaves the one in `last`, and is reported with
/// its name, length and the kept value; so is an unknown name. The value itself is never shown: it may be a
/// secret given to the wrong property.
pub(crate) fn apply(
    defaults: &ConfigItemValueMap,
    last: &ConfigItemValueMap,
    items: &[(String, String)],
) -> (ConfigItemValueMap, Vec<String>) {
    let mut map = defaults.clone();
    let mut told = Vec::new();
    for (key, text) in items {
        if let Some((agent, setting)) = agent_setting(key) {
            let value = ConfigItemValue::text(setting, text);
            let all = map.agent_settings.get_or_insert_default();
            all.entry(agent.to_owned()).or_default().insert(setting.to_owned(), value);
            continue;
        }
        let all = map.global_settings.get_or_insert_default();
        if OWN.contains(&key.as_str()) {
            all.insert(key.clone(), ConfigItemValue::text(key, text));
            continue;
        }
        let Some(slot) = all.get_mut(key) else {
            told.push(format!("{}: no such property, ignored", cut_text(key, NAME_BYTES)));
            continue;
        };
        match read(key, text, slot) {
            Ok(value) => *slot = value,
            Err(expected) => {
                let kept = last.global_settings.as_ref().and_then(|all| all.get(key));
                if let Some(kept) = kept {
                    slot.clone_from(kept);
                }
                told.push(format!(
                    "{key}: found {}, expected {expected}; {} stays in force",
                    by_length(text),
                    shown(slot)
                ));
            }
        }
    }
    if told.len() > MOST_FAULTS {
        let more = told.len() - MOST_FAULTS;
        told.truncate(MOST_FAULTS);
        told.push(format!("{more} more are not listed; fix these first"));
    }
    (map, told)
}

fn agent_setting(key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix("agent.")?;
    let (agent, setting) = rest.split_once('.')?;
    AGENT_SETTINGS.contains(&setting).then_some((agent, setting))
}

fn read(key: &str, text: &str, slot: &ConfigItemValue) -> Result<ConfigItemValue, String> {
    let mut value = slot.clone();
    match slot.item_type {
        ConfigItemType::Int => {
            let range = NUMERIC.iter().find(|it| it.name == key);
            let (min, max) = range.map_or((0, u32::MAX), |it| (it.min, it.max));
            let number = text.trim().parse().ok().filter(|number| (min..=max).contains(number));
            value.int_value = number.ok_or_else(|| format!("{min} to {max}"))?;
        }
        ConfigItemType::Bool => {
            value.bool_value = switch(text).ok_or_else(|| "true or false".to_owned())?;
        }
        ConfigItemType::String => text.clone_into(&mut value.str_value),
        ConfigItemType::TriState => {
            value.tri_state_value = match text.trim().to_ascii_lowercase().as_str() {
                "none" => TriState::None,
                "enabled" | "enable" | "on" | "true" => TriState::Enabled,
                "disabled" | "disable" | "off" | "false" => TriState::Disabled,
                _ => return Err("none, enabled or disabled".to_owned()),
            };
        }
        ConfigItemType::Invalid | ConfigItemType::Stranger(_) => return Err("nothing".to_owned()),
    }
    Ok(value)
}

fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "t" => Some(true),
        "false" | "0" | "f" => Some(false),
        _ => None,
    }
}

fn shown(value: &ConfigItemValue) -> String {
    match value.item_type {
        ConfigItemType::Int => value.int_value.to_string(),
        ConfigItemType::Bool => value.bool_value.to_string(),
        ConfigItemType::String => format!("`{}`", value.str_value),
        ConfigItemType::TriState => format!("{:?}", value.tri_state_value).to_lowercase(),
        ConfigItemType::Invalid | ConfigItemType::Stranger(_) => "nothing".to_owned(),
    }
}

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
pub(crate) fn counters(topic_root: &TopicRoot) -> Result<LiteMap<DeviceOp, DeviceOpsCmd>, Error> {
    let mut counters = LiteMap::new();
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
                path = path(op), error = %step::chain(&cause),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NAME;
    use agent::wire;
    use std::path::Path;

    const CLUSTER: &str = r#"{"id":{"uuid":"2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"},"deviceName":"n",
        "cluster":{"clusterName":"c","clusterIpPrefix":"10.0.0.1/24"}}"#;
    const NONE: &str = r#"{"id":{"uuid":"2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"},"deviceName":"n"}"#;
    const BROKEN: &str = r#"{"id":{"uuid":"2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"},"cluster":{}}"#;

    /// One run of zedagent, which reads these files one after another.
    fn run(root: &Path, files: &[Option<&str>]) {
        let topic_root = TopicRoot::open(root).unwrap();
        let mut config =
            ConfigTopics::open(&topic_root, &Troubles::open(&topic_root, Clock::new(), NAME)).unwrap();
        for file in files {
            let state = file.map_or(FileState::Absent, |text| FileState::Present(text.as_bytes().to_vec()));
            config.take(state);
        }
    }

    fn published(root: &Path) -> (Option<bool>, Option<ConfigMembership>) {
        let topic_root = TopicRoot::open(root).unwrap();
        (
            wire::peek::<EdgeNodeClusterConfig>(&topic_root, NAME, GLOBAL).unwrap().map(|it| it.valid),
            wire::peek::<ClusterDecision>(&topic_root, NAME, GLOBAL).unwrap().map(|it| it.membership),
        )
    }

    #[tokio::test]
    async fn what_is_left_of_a_config_takes_no_node_out_of_its_cluster() {
        let member = (Some(true), Some(ConfigMembership::Member));
        let items = r#"{"configItems":[]}"#;
        for left in [None, Some(""), Some("{}"), Some("null"), Some(items), Some(BROKEN), Some("{\"id\":")] {
            let root = tempfile::tempdir().unwrap();
            run(root.path(), &[Some(CLUSTER), left]);
            assert_eq!(published(root.path()), member, "{left:?}");
            // Nor does a new run without any files.
            run(root.path(), &[left]);
            std::fs::remove_dir_all(root.path().join("persist")).unwrap();
            run(root.path(), &[left]);
            assert_eq!(published(root.path()), member, "{left:?}");
        }
        let root = tempfile::tempdir().unwrap();
        run(root.path(), &[Some(CLUSTER), Some(NONE)]);
        assert_eq!(published(root.path()), (Some(false), Some(ConfigMembership::NoCluster)));
    }

    #[tokio::test]
    async fn the_copy_of_an_older_config_takes_no_node_out_of_its_cluster() {
        // A config with a fault elsewhere is in force and is not copied.
        let faulty = CLUSTER.replace("\"deviceName\":\"n\"", "\"configItems\":{}");
        let root = tempfile::tempdir().unwrap();
        run(root.path(), &[Some(NONE), Some(&faulty)]);
        run(root.path(), &[Some("broken")]);
        assert_eq!(published(root.path()), (Some(true), Some(ConfigMembership::Member)));
        // In another boot the copy is all there is; it decides nothing.
        std::fs::remove_dir_all(root.path().join("run")).unwrap();
        run(root.path(), &[Some("broken")]);
        assert_eq!(published(root.path()), (Some(false), None));
    }

    fn set(items: &[(&str, &str)]) -> (ConfigItemValueMap, Vec<String>) {
        let items: Vec<_> =
            items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let defaults = defaults().unwrap();
        apply(&defaults, &defaults, &items)
    }

    #[test]
    fn every_property_that_an_agent_reads_is_in_the_table_with_its_default() {
        let all = defaults().unwrap().global_settings.unwrap();
        for property in NUMERIC {
            let item = &all[property.name];
            assert_eq!(
                (item.item_type, item.int_value),
                (ConfigItemType::Int, property.default),
                "{}",
                property.name
            );
        }
    }

    #[test]
    fn a_property_of_our_own_is_published_as_it_was_set_and_only_then() {
        let none = defaults().unwrap().global_settings.unwrap();
        for name in OWN {
            let (map, told) = set(&[(name, "do-nothing")]);
            assert_eq!(map.global_settings.unwrap()[name], ConfigItemValue::text(name, "do-nothing"));
            assert_eq!((told.len(), none.contains_key(name)), (0, false), "{name}");
        }
    }

    #[test]
    fn the_drain_overrides_of_the_reference_come_out_as_it_publishes_them() {
        let golden: ConfigItemValueMap = go_json::from_slice(
            include_str!("../../../tests/golden/ConfigItemValueMap/drain-overrides.json").as_bytes(),
        )
        .unwrap();
        let defaults = defaults().unwrap().global_settings.unwrap();
        let mut items: Vec<(String, String)> = Vec::new();
        for (key, value) in golden.global_settings.as_ref().unwrap() {
            if defaults.get(key) != Some(value) {
                let text = match value.item_type {
                    ConfigItemType::Int => value.int_value.to_string(),
                    ConfigItemType::TriState => format!("{:?}", value.tri_state_value),
                    ConfigItemType::Bool => value.bool_value.to_string(),
                    ConfigItemType::Invalid | ConfigItemType::String | ConfigItemType::Stranger(_) => {
                        value.str_value.clone()
                    }
                };
                items.push((key.clone(), text));
            }
        }
        assert!(items.len() > 1);
        items.push(("agent.zedkube.debug.loglevel".into(), "debug".into()));
        let defaults = super::defaults().unwrap();
        assert_eq!(apply(&defaults, &defaults, &items), (golden, vec![]));
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_told_and_the_old_value_stays() {
        let (_, told) =
            set(&[("no.such.key", "x"), ("timer.config.interval", "4"), ("maintenance.mode", "maybe")]);
        assert_eq!(
            told,
            [
                "no.such.key: no such property, ignored",
                "timer.config.interval: found a text of 1 character, expected 5 to 86400; 60 stays in force",
                "maintenance.mode: found a text of 5 characters, expected none, enabled or disabled; none stays in \
                 force",
            ]
        );
    }

    #[test]
    fn s2_no_value_of_a_property_is_shown_and_what_is_told_is_bounded() {
        let (_, told) = set(&[("timer.config.interval", "s3cret"), ("maintenance.mode", "s3cret")]);
        assert_eq!(told.len(), 2);
        assert!(
            told.iter().all(|it| it.contains("a text of 6 characters") && !it.contains("s3cret")),
            "{told:?}"
        );
        let long = "k".repeat(200_000);
        let many: Vec<(&str, &str)> = std::iter::repeat_n((long.as_str(), ""), 1000).collect();
        let (_, told) = set(&many);
        assert_eq!(
            (told.len(), told.last().unwrap().as_str()),
            (101, "900 more are not listed; fix these first")
        );
        assert!(told.iter().all(|it| it.len() < 120), "{}", told[0].len());
    }
}
