//! The device config in force: read, merged over the last good one, and published in parts.
//!
//! Not here: what the text means (`device_config`), what its commands lead to (`core`).

use std::collections::BTreeMap;

use agent::{Error, publication, report};
use pubsub::{Bus, FileState, Publication, store};
use topics::{
    BaseOsConfig, ConfigGetStatus, ConfigItemValueMap, DeviceOp, DeviceOpsCmd, EdgeNodeClusterConfig,
    EdgeNodeInfo, Topic, TriState,
};
use tracing::{error, info, warn};

use crate::core::{Event, Wanted};
use crate::device_config::{self, DeviceConfig};
use crate::{CONFIG, NAME, config_items, saved};

/// Key of topics that have one value.
const GLOBAL: &str = "global";
/// No config is longer; the reference's are a few hundred kilobytes at most.
pub(crate) const CONFIG_BYTES: u64 = 16 << 20;

/// What is in force; `None` where no good section was ever seen.
#[expect(clippy::option_option, reason = "not known, known to be absent, and known differ")]
#[derive(Debug, Clone, Default)]
struct InForce {
    node: Option<EdgeNodeInfo>,
    reboot: Option<Option<DeviceOpsCmd>>,
    shutdown: Option<Option<DeviceOpsCmd>>,
    items: Option<Vec<(String, String)>>,
    maintenance: Option<bool>,
    base_os: Option<Option<BaseOsConfig>>,
    cluster: Option<EdgeNodeClusterConfig>,
}

/// The config in force and the topics that it becomes.
pub(crate) struct Config {
    bus: Bus,
    force: InForce,
    defaults: ConfigItemValueMap,
    items: Publication<ConfigItemValueMap>,
    node: Publication<EdgeNodeInfo>,
    cluster: Publication<EdgeNodeClusterConfig>,
    base_os: Publication<BaseOsConfig>,
}

impl Config {
    /// Becomes the publisher of the config's topics, and reads the last good config if there is one.
    pub(crate) fn open(bus: &Bus) -> Result<Self, Error> {
        let mut config = Self {
            bus: bus.clone(),
            force: InForce::default(),
            defaults: config_items::defaults()
                .map_err(|source| Error::Encode { what: "the table of config properties", source })?,
            items: publication(bus, NAME)?,
            node: publication(bus, NAME)?,
            cluster: publication(bus, NAME)?,
            base_os: publication(bus, NAME)?,
        };
        match store::read(&bus.path(saved::LAST_CONFIG), CONFIG_BYTES) {
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
        Ok(config)
    }

    /// Takes the config file as it is now.
    pub(crate) fn take(&mut self, file: FileState) -> Event {
        let good = match file {
            FileState::Present(bytes) => self.take_text(&bytes),
            FileState::Absent => {
                warn!(path = CONFIG, "there is no device config; put one there");
                false
            }
            FileState::Bad(finding) => {
                error!(
                    path = CONFIG,
                    reason = finding.reason,
                    "the device config cannot be used, the last good one stays"
                );
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
        self.publish(&map);
        Event::Config(wanted)
    }

    fn last_items(&self) -> &ConfigItemValueMap {
        self.items.get(GLOBAL).unwrap_or(&self.defaults)
    }

    /// Whether the text is a config at all; sections that make no sense keep their last good content.
    fn take_text(&mut self, bytes: &[u8]) -> bool {
        let config = match device_config::parse(bytes) {
            Ok(config) => config,
            Err(fault) => {
                error!(path = CONFIG, "{fault}; the last good device config stays in force");
                return false;
            }
        };
        for fault in &config.faults {
            error!(path = CONFIG, "{fault}; the last good content of that section stays in force");
        }
        if config.faults.is_empty()
            && let Err(cause) = store::replace(&self.bus.path(saved::LAST_CONFIG), bytes)
        {
            error!(error = %report::chain(&cause), "cannot keep a copy of this good config");
        }
        self.merge(config);
        info!(path = CONFIG, "device config read");
        true
    }

    fn merge(&mut self, config: DeviceConfig) {
        let last = std::mem::take(&mut self.force);
        self.force = InForce {
            node: config.node.or(last.node),
            reboot: config.reboot.or(last.reboot),
            shutdown: config.shutdown.or(last.shutdown),
            items: config.items.or(last.items),
            maintenance: config.maintenance.or(last.maintenance),
            base_os: config.base_os.or(last.base_os),
            cluster: config.cluster.or(last.cluster),
        };
    }

    fn wanted(&self, map: &ConfigItemValueMap, good: bool) -> Wanted {
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
        Wanted {
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

    fn publish(&mut self, map: &ConfigItemValueMap) {
        put(&mut self.items, GLOBAL, map);
        if let Some(node) = &self.force.node {
            put(&mut self.node, GLOBAL, node);
        }
        if let Some(cluster) = &self.force.cluster {
            put(&mut self.cluster, GLOBAL, cluster);
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
            if let Err(cause) = self.base_os.unpublish(&old) {
                error!(key = old, error = %report::chain(&cause), "cannot take a BaseOsConfig back");
            }
        }
        if let (Some(key), Some(config)) = (key, base_os) {
            put(&mut self.base_os, &key, config);
        }
    }
}

/// Publishes; a failure is told, and tried again with the next config.
fn put<T: Topic>(publication: &mut Publication<T>, key: &str, value: &T) {
    if let Err(cause) = publication.publish(key, value) {
        error!(topic = T::NAME, key, error = %report::chain(&cause), "cannot publish");
    }
}
