//! The items of an application in the reference's order: one reader for each topic.

use pubsub::TopicRoot;
use serde::de::DeserializeOwned;
use topics::{ENClusterAppStatus, EdgeNodeInfo, KubeLeaderElectInfo};
use uuid::Uuid;

use super::print;
use super::shapes::{
    AppConfig, AppNetworkConfig, AppNetworkStatus, AppStatus, ClusterStatus, ContentStatus, DiskMetric,
    DomainConfig, DomainMetric, DomainStatus, NetworkStatus, VolumeConfig, VolumeStatus,
};
use super::shelf::{Key, Shelf};
use super::{Facts, Item};

/// Name of a node that does not know its own.
const NAMELESS: &str = "unknown";
/// As many volumes and networks of one application are told.
const MOST: usize = 64;

/// Name of this node and all items.
pub(super) fn all(topic_root: &TopicRoot, app: Option<Uuid>) -> (String, Vec<Item>) {
    let mut told = Collected { shelf: Shelf::new(topic_root), items: Vec::new() };
    let Some(hostname) = told.node() else { return (NAMELESS.to_owned(), told.items) };
    if let Some(app) = app {
        // It ends where the reference ends: without its config or one that it needs nothing else makes sense.
        told.application(app).unwrap_or_default();
    }
    (hostname, told.items)
}

struct Collected<'a> {
    shelf: Shelf<'a>,
    items: Vec<Item>,
}

impl Collected<'_> {
    /// Adds what `facts` makes of a topic, or why it cannot be read; then nothing comes back.
    fn add<T: DeserializeOwned>(
        &mut self,
        agent: &str,
        topic: &str,
        key: Key,
        facts: impl FnOnce(&T) -> Facts,
    ) -> Option<T> {
        let name = format!("{agent}-{topic}");
        let uuid = key.to_string();
        match self.shelf.read::<T>(agent, topic, key) {
            Ok(value) => {
                let facts = Facts { uuid: uuid.clone(), exist: true, ..facts(&value) };
                let key = match key {
                    Key::Global => name,
                    Key::Of(_) => format!("{name}-{}", uuid.get(..5).unwrap_or(&uuid)),
                };
                self.items.push(Item { key, value: facts });
                Some(value)
            }
            Err(why) => {
                let errors = format!("{name}: Not found for: {uuid}, {why}");
                self.items.push(Item { key: name, value: Facts { uuid, errors, ..Facts::default() } });
                None
            }
        }
    }

    /// The node itself. Its name, if it is known.
    fn node(&mut self) -> Option<String> {
        let info = self.add("zedagent", "EdgeNodeInfo", Key::Global, |info: &EdgeNodeInfo| Facts {
            name: info.device_name.clone(),
            content: format!("Enterprise: {}, Project: {}", info.enterprise_name, info.project_name),
            ..Facts::default()
        })?;
        // The only value that has a UUID of its own.
        if let Some(item) = self.items.last_mut() {
            item.value.uuid = info.device_id.to_string();
        }
        self.add("zedkube", "EdgeNodeClusterStatus", Key::Global, |status: &ClusterStatus| Facts {
            name: status.cluster_interface.clone(),
            state: format!("Cluster IP {}Ready", if status.cluster_ip_is_ready { "" } else { "Not " }),
            content: format!(
                "ClusterIP {}, JoinIP {}, Bootstrap {}",
                print::prefix(status.cluster_ip_prefix.as_ref()),
                print::ip(status.join_server_ip),
                status.bootstrap_node
            ),
            ..Facts::default()
        });
        self.add("zedkube", "KubeLeaderElectInfo", Key::Global, |leader: &KubeLeaderElectInfo| Facts {
            name: leader.leader_identity.clone(),
            activated: leader.in_leader_election.into(),
            state: format!("Is Stats Leader {}", leader.is_stats_leader),
            content: format!("Last time updated at {}", print::seconds(leader.latest_change)),
            ..Facts::default()
        });
        if let Some(content) = self.shelf.install_log() {
            let name = "k3s-install.log".to_owned();
            self.items.push(Item {
                key: name.clone(),
                value: Facts { name, exist: true, content, ..Facts::default() },
            });
        }
        Some(info.device_name)
    }

    /// The application. It ends early, with `None`, where one of its configs or networks is missing.
    fn application(&mut self, app: Uuid) -> Option<()> {
        let of_app = Key::Of(app);
        let nth = self.items.len();
        let config = self.add("zedagent", "AppInstanceConfig", of_app, |config: &AppConfig| Facts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            dnid_node: config.is_designated_node_id.into(),
            ..Facts::default()
        })?;
        let mut volumes = Vec::new();
        for volume in config.volume_ref_config_list.iter().flatten().take(MOST) {
            volumes.push(self.volume_config(volume.volume_id.0)?);
        }
        let networks: Vec<Uuid> =
            config.app_net_adapter_list.iter().flatten().take(MOST).map(|it| it.network.0).collect();
        if let Some(item) = self.items.get_mut(nth) {
            item.value.content =
                format!("Volume Counts {}, Network Counts {}", volumes.len(), networks.len());
        }
        for network in networks {
            self.network(network)?;
        }
        self.add("zedkube", "ENClusterAppStatus", of_app, |status: &ENClusterAppStatus| Facts {
            dnid_node: status.is_dnid_node.into(),
            content: format!(
                "Scheduled on this node {}, AppKubeStatus {}",
                status.scheduled_on_this_node,
                print::kube_status(status.app_kube_status)
            ),
            ..Facts::default()
        });
        self.app_network(of_app);
        for volume in &volumes {
            self.volume_status(volume.volume_id.0);
        }
        for volume in &volumes {
            self.content(volume.content_id.0);
        }
        self.domain(of_app)?;
        for volume in &volumes {
            self.disk(volume.volume_id.0);
        }
        Some(())
    }

    fn volume_config(&mut self, volume: Uuid) -> Option<VolumeConfig> {
        self.add("zedagent", "VolumeConfig", Key::Of(volume), |config: &VolumeConfig| Facts {
            name: config.display_name.clone(),
            content: format!("ContentID: {}, replicated {}", config.content_id, config.is_replicated),
            ..Facts::default()
        })
    }

    fn network(&mut self, network: Uuid) -> Option<NetworkStatus> {
        self.add("zedrouter", "NetworkInstanceStatus", Key::Of(network), |status: &NetworkStatus| Facts {
            name: status.display_name.clone(),
            activated: status.activated.into(),
            content: format!("ip assignments {}", print::assignments(status.ip_assignments.as_ref())),
            ..Facts::default()
        })
    }

    fn app_network(&mut self, of_app: Key) {
        self.add("zedmanager", "AppNetworkConfig", of_app, |config: &AppNetworkConfig| {
            let all = || config.app_net_adapter_list.iter().flatten();
            Facts {
                name: config.display_name.clone(),
                activated: config.activate.into(),
                content: format!(
                    "App-Intf {}, App-Mac {}, App-IPs {}",
                    print::list(all().map(|it| it.name.clone())),
                    print::list(all().map(|it| print::mac(it.app_mac_addr.as_ref()))),
                    print::list(all().map(|it| print::ip(it.app_ip_addr)))
                ),
                ..Facts::default()
            }
        });
        self.add("zedrouter", "AppNetworkStatus", of_app, |status: &AppNetworkStatus| {
            let all = status.app_net_adapter_list.iter().flatten();
            let addresses = all.map(|it| print::addresses(it.assigned_addresses.ipv4.as_ref()));
            Facts {
                name: status.display_name.clone(),
                activated: status.activated.into(),
                content: format!("App-Num {}, assigned IPs {}", status.app_num, print::list(addresses)),
                ..Facts::default()
            }
        });
    }

    fn volume_status(&mut self, volume: Uuid) {
        self.add("volumemgr", "VolumeStatus", Key::Of(volume), |status: &VolumeStatus| Facts {
            name: format!("ReferenceName: {}", status.reference_name),
            state: print::state(status.state),
            content: format!(
                "Replicated {}, total {}, current {}",
                status.is_replicated, status.total_size, status.current_size
            ),
            ..Facts::default()
        });
    }

    fn content(&mut self, content: Uuid) {
        self.add("volumemgr", "ContentTreeStatus", Key::Of(content), |status: &ContentStatus| Facts {
            name: status.display_name.clone(),
            state: print::state(status.state),
            content: format!(
                "RelativeURL {}, total {}, current {}",
                status.relative_url, status.total_size, status.current_size
            ),
            ..Facts::default()
        });
    }

    /// The application as it runs. It ends early, with `None`, where no domain is wanted.
    fn domain(&mut self, of_app: Key) -> Option<()> {
        // A second time and shorter, as the reference has it.
        self.add("zedmanager", "AppNetworkConfig", of_app, |config: &AppNetworkConfig| Facts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            ..Facts::default()
        });
        self.add("zedmanager", "AppInstanceStatus", of_app, |status: &AppStatus| Facts {
            name: status.domain_name.clone(),
            activated: status.activated.into(),
            state: print::state(status.state),
            dnid_node: status.is_designated_node_id.into(),
            ..Facts::default()
        });
        self.add("zedmanager", "DomainConfig", of_app, |config: &DomainConfig| Facts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            dnid_node: config.is_dnid_node.into(),
            content: format!("AppNum {}, KubeImage {}", config.app_num, config.kube_image_name),
            ..Facts::default()
        })?;
        self.add("domainmgr", "DomainStatus", of_app, |status: &DomainStatus| Facts {
            name: status.display_name.clone(),
            activated: status.activated.into(),
            state: print::state(status.state),
            dnid_node: status.is_dnid_node.into(),
            content: format!("AppNum {}, NodeName {}", status.app_num, status.node_name),
            ..Facts::default()
        });
        self.add("domainmgr", "DomainMetric", of_app, |metric: &DomainMetric| Facts {
            activated: metric.activated.into(),
            content: format!(
                "Alloc Mem {}, Percent {:.6}, Last updated {}",
                metric.allocated_mb,
                metric.used_memory_percent,
                print::seconds(metric.last_heard)
            ),
            ..Facts::default()
        });
        Some(())
    }

    fn disk(&mut self, volume: Uuid) {
        self.add("volumemgr", "AppDiskMetric", Key::Of(volume), |metric: &DiskMetric| Facts {
            name: format!("Disk Path: {}", metric.disk_path),
            state: format!("Disk Type: {}", metric.disk_type),
            content: format!(
                "Provisioned bytes: {}, used bytes: {}, Dirty: {}",
                metric.provisioned_bytes, metric.used_bytes, metric.dirty
            ),
            ..Facts::default()
        });
    }
}
