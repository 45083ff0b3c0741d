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
use super::shelf::{TopicKey, TopicReader};
use super::{AppFacts, AppItem};

const NAMELESS: &str = "unknown";
/// Limit of volumes and of networks of one application.
const MOST: usize = 64;

/// Name of this node and all items.
pub(super) fn all(topic_root: &TopicRoot, app: Option<Uuid>) -> (String, Vec<AppItem>) {
    let mut told = Collected { shelf: TopicReader::new(topic_root), items: Vec::new() };
    let Some(hostname) = told.node() else { return (NAMELESS.to_owned(), told.items) };
    if let Some(app) = app {
        // It ends where the reference ends: without a needed config the rest is meaningless.
        told.application(app).unwrap_or_default();
    }
    (hostname, told.items)
}

struct Collected<'a> {
    shelf: TopicReader<'a>,
    items: Vec<AppItem>,
}

impl Collected<'_> {
    /// Adds the facts of a topic, or why it cannot be read; then returns `None`.
    fn add<T: DeserializeOwned>(
        &mut self,
        agent: &str,
        topic: &str,
        key: TopicKey,
        facts: impl FnOnce(&T) -> AppFacts,
    ) -> Option<T> {
        let name = format!("{agent}-{topic}");
        let uuid = key.to_string();
        match self.shelf.read::<T>(agent, topic, key) {
            Ok(value) => {
                let facts = AppFacts { uuid: uuid.clone(), exist: true, ..facts(&value) };
                let key = match key {
                    TopicKey::Global => name,
                    TopicKey::Of(_) => format!("{name}-{}", uuid.get(..5).unwrap_or(&uuid)),
                };
                self.items.push(AppItem { key, value: facts });
                Some(value)
            }
            Err(why) => {
                let errors = format!("{name}: Not found for: {uuid}, {why}");
                self.items
                    .push(AppItem { key: name, value: AppFacts { uuid, errors, ..AppFacts::default() } });
                None
            }
        }
    }

    /// Returns the node's name, if known.
    fn node(&mut self) -> Option<String> {
        let info =
            self.add("zedagent", "EdgeNodeInfo", TopicKey::Global, |info: &EdgeNodeInfo| AppFacts {
                name: info.device_name.clone(),
                content: format!("Enterprise: {}, Project: {}", info.enterprise_name, info.project_name),
                ..AppFacts::default()
            })?;
        // The only value with a UUID of its own.
        if let Some(item) = self.items.last_mut() {
            item.value.uuid = info.device_id.to_string();
        }
        self.add("zedkube", "EdgeNodeClusterStatus", TopicKey::Global, |status: &ClusterStatus| AppFacts {
            name: status.cluster_interface.clone(),
            state: format!("Cluster IP {}Ready", if status.cluster_ip_is_ready { "" } else { "Not " }),
            content: format!(
                "ClusterIP {}, JoinIP {}, Bootstrap {}",
                print::prefix(status.cluster_ip_prefix.as_ref()),
                print::ip(status.join_server_ip),
                status.bootstrap_node
            ),
            ..AppFacts::default()
        });
        self.add("zedkube", "KubeLeaderElectInfo", TopicKey::Global, |leader: &KubeLeaderElectInfo| {
            AppFacts {
                name: leader.leader_identity.clone(),
                activated: leader.in_leader_election.into(),
                state: format!("Is Stats Leader {}", leader.is_stats_leader),
                content: format!("Last time updated at {}", print::seconds(leader.latest_change)),
                ..AppFacts::default()
            }
        });
        if let Some(content) = self.shelf.install_log() {
            let name = "k3s-install.log".to_owned();
            self.items.push(AppItem {
                key: name.clone(),
                value: AppFacts { name, exist: true, content, ..AppFacts::default() },
            });
        }
        Some(info.device_name)
    }

    /// Ends early, with `None`, where one of its configs or networks is missing.
    fn application(&mut self, app: Uuid) -> Option<()> {
        let of_app = TopicKey::Of(app);
        let nth = self.items.len();
        let config = self.add("zedagent", "AppInstanceConfig", of_app, |config: &AppConfig| AppFacts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            dnid_node: config.is_designated_node_id.into(),
            ..AppFacts::default()
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
        self.add("zedkube", "ENClusterAppStatus", of_app, |status: &ENClusterAppStatus| AppFacts {
            dnid_node: status.is_dnid_node.into(),
            content: format!(
                "Scheduled on this node {}, AppKubeStatus {}",
                status.scheduled_on_this_node,
                print::kube_status(status.app_kube_status)
            ),
            ..AppFacts::default()
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
        self.add("zedagent", "VolumeConfig", TopicKey::Of(volume), |config: &VolumeConfig| AppFacts {
            name: config.display_name.clone(),
            content: format!("ContentID: {}, replicated {}", config.content_id, config.is_replicated),
            ..AppFacts::default()
        })
    }

    fn network(&mut self, network: Uuid) -> Option<NetworkStatus> {
        self.add("zedrouter", "NetworkInstanceStatus", TopicKey::Of(network), |status: &NetworkStatus| {
            AppFacts {
                name: status.display_name.clone(),
                activated: status.activated.into(),
                content: format!("ip assignments {}", print::assignments(status.ip_assignments.as_ref())),
                ..AppFacts::default()
            }
        })
    }

    fn app_network(&mut self, of_app: TopicKey) {
        self.add("zedmanager", "AppNetworkConfig", of_app, |config: &AppNetworkConfig| {
            let all = || config.app_net_adapter_list.iter().flatten();
            AppFacts {
                name: config.display_name.clone(),
                activated: config.activate.into(),
                content: format!(
                    "App-Intf {}, App-Mac {}, App-IPs {}",
                    print::list(all().map(|it| it.name.clone())),
                    print::list(all().map(|it| print::mac(it.app_mac_addr.as_ref()))),
                    print::list(all().map(|it| print::ip(it.app_ip_addr)))
                ),
                ..AppFacts::default()
            }
        });
        self.add("zedrouter", "AppNetworkStatus", of_app, |status: &AppNetworkStatus| {
            let all = status.app_net_adapter_list.iter().flatten();
            let addresses = all.map(|it| print::addresses(it.assigned_addresses.ipv4.as_ref()));
            AppFacts {
                name: status.display_name.clone(),
                activated: status.activated.into(),
                content: format!("App-Num {}, assigned IPs {}", status.app_num, print::list(addresses)),
                ..AppFacts::default()
            }
        });
    }

    fn volume_status(&mut self, volume: Uuid) {
        self.add("volumemgr", "VolumeStatus", TopicKey::Of(volume), |status: &VolumeStatus| AppFacts {
            name: format!("ReferenceName: {}", status.reference_name),
            state: print::state(status.state),
            content: format!(
                "Replicated {}, total {}, current {}",
                status.is_replicated, status.total_size, status.current_size
            ),
            ..AppFacts::default()
        });
    }

    fn content(&mut self, content: Uuid) {
        self.add("volumemgr", "ContentTreeStatus", TopicKey::Of(content), |status: &ContentStatus| {
            AppFacts {
                name: status.display_name.clone(),
                state: print::state(status.state),
                content: format!(
                    "RelativeURL {}, total {}, current {}",
                    status.relative_url, status.total_size, status.current_size
                ),
                ..AppFacts::default()
            }
        });
    }

    /// The running application. Ends early, with `None`, where no domain is wanted.
    fn domain(&mut self, of_app: TopicKey) -> Option<()> {
        // A second time and shorter, as the reference has it.
        self.add("zedmanager", "AppNetworkConfig", of_app, |config: &AppNetworkConfig| AppFacts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            ..AppFacts::default()
        });
        self.add("zedmanager", "AppInstanceStatus", of_app, |status: &AppStatus| AppFacts {
            name: status.domain_name.clone(),
            activated: status.activated.into(),
            state: print::state(status.state),
            dnid_node: status.is_designated_node_id.into(),
            ..AppFacts::default()
        });
        self.add("zedmanager", "DomainConfig", of_app, |config: &DomainConfig| AppFacts {
            name: config.display_name.clone(),
            activated: config.activate.into(),
            dnid_node: config.is_dnid_node.into(),
            content: format!("AppNum {}, KubeImage {}", config.app_num, config.kube_image_name),
            ..AppFacts::default()
        })?;
        self.add("domainmgr", "DomainStatus", of_app, |status: &DomainStatus| AppFacts {
            name: status.display_name.clone(),
            activated: status.activated.into(),
            state: print::state(status.state),
            dnid_node: status.is_dnid_node.into(),
            content: format!("AppNum {}, NodeName {}", status.app_num, status.node_name),
            ..AppFacts::default()
        });
        self.add("domainmgr", "DomainMetric", of_app, |metric: &DomainMetric| AppFacts {
            activated: metric.activated.into(),
            content: format!(
                "Alloc Mem {}, Percent {:.6}, Last updated {}",
                metric.allocated_mb,
                metric.used_memory_percent,
                print::seconds(metric.last_heard)
            ),
            ..AppFacts::default()
        });
        Some(())
    }

    fn disk(&mut self, volume: Uuid) {
        self.add("volumemgr", "AppDiskMetric", TopicKey::Of(volume), |metric: &DiskMetric| AppFacts {
            name: format!("Disk Path: {}", metric.disk_path),
            state: format!("Disk Type: {}", metric.disk_type),
            content: format!(
                "Provisioned bytes: {}, used bytes: {}, Dirty: {}",
                metric.provisioned_bytes, metric.used_bytes, metric.dirty
            ),
            ..AppFacts::default()
        });
    }
}
