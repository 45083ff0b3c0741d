//! The device config in force: read, merged over the last good one, and published in parts.
//!
//! Not here: parsing (`device_config`), its commands (`core`).

use std::collections::BTreeMap;

use agent::outlet::Tries;
use agent::wire::GLOBAL;
use agent::{Clock, Error, Outbox, Outlet, Troubles, report};
use pubsub::{FileRule, FileState, TopicRoot, store};
use step::Mono;
use topics::{
    BaseOsConfig, ClusterDecision, ConfigGetStatus, ConfigItemValueMap, ConfigMembership, DeviceOp,
    EdgeNodeClusterConfig, EdgeNodeInfo, TriState, Trouble,
};
use tracing::{error, info, warn};

use crate::core::{DesiredDevice, Event};
use crate::device_config::{self, DeviceConfig};
use crate::{CONFIG, config_items, saved};

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
            defaults: config_items::defaults()
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
        match store::read(&topic_root.path(saved::LAST_CONFIG), CONFIG_BYTES) {
            Ok(Some(bytes)) => match device_config::parse(&bytes) {
                Ok(last) => config.merge(last),
                Err(fault) => {
                    warn!(path = saved::LAST_CONFIG, %fault, "the copy of the last good config is of no use");
                }
            },
            Ok(None) => {}
            Err(cause) if cause.is_shortage() => return Err(Error::pubsub(saved::LAST_CONFIG)(cause)),
            Err(cause) => {
                warn!(error = %report::chain(&cause), "cannot read the copy of the last good config");
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
        let (map, told) = config_items::apply(
            &self.defaults,
            self.last_items(),
            self.force.items.as_deref().unwrap_or_default(),
        );
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
        let kept = store::replace(&self.topic_root.path(saved::LAST_CONFIG), bytes);
        if self.copied.ended("copy of the device config", kept.map_err(Error::pubsub(saved::LAST_CONFIG))) {
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
        let mut commands = BTreeMap::new();
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
}
