//! The items of an application in the reference's order, and what is shown of each topic.

use pubsub::TopicRoot;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::print::filled;
use super::shelf::{TopicKey, TopicReader};
use super::{AppFacts, AppItem, TriState};

const NAMELESS: &str = "unknown";
/// Limit of volumes and of networks of one application.
const MOST: usize = 64;

// Agent and topic | name | activated | state | on its designated node | content; see `filled`.
const NODE: &str = "zedagent EdgeNodeInfo | {DeviceName} | | | \
    | Enterprise: {EnterpriseName}, Project: {ProjectName}";
const CLUSTER: &str = "zedkube EdgeNodeClusterStatus | {ClusterInterface} | \
    | Cluster IP {ClusterIPIsReady:ready}Ready | \
    | ClusterIP {ClusterIPPrefix:prefix}, JoinIP {JoinServerIP:ip}, Bootstrap {BootstrapNode:yes}";
const ELECTION: &str = "zedkube KubeLeaderElectInfo | {LeaderIdentity} | {InLeaderElection:yes} \
    | Is Stats Leader {IsStatsLeader:yes} | | Last time updated at {LatestChange:time}";
const APP: &str =
    "zedagent AppInstanceConfig | {DisplayName} | {Activate:yes} | | {IsDesignatedNodeID:yes} |";
const VOLUME: &str = "zedagent VolumeConfig | {DisplayName} | | | \
    | ContentID: {ContentID:uuid}, replicated {IsReplicated:yes}";
const NETWORK: &str = "zedrouter NetworkInstanceStatus | {DisplayName} | {Activated:yes} | | \
    | ip assignments {IPAssignments:assignments}";
const KUBE: &str = "zedkube ENClusterAppStatus | | | | {IsDNidNode:yes} \
    | Scheduled on this node {ScheduledOnThisNode:yes}, AppKubeStatus {AppKubeStatus:kube}";
const APP_NETWORK: &str = "zedmanager AppNetworkConfig | {DisplayName} | {Activate:yes} | | \
    | App-Intf {AppNetAdapterList/Name}, App-Mac {AppNetAdapterList/AppMacAddr:mac}, \
    App-IPs {AppNetAdapterList/AppIPAddr:ip}";
const APP_NETWORK_STATUS: &str = "zedrouter AppNetworkStatus | {DisplayName} | {Activated:yes} | | \
    | App-Num {AppNum:int}, assigned IPs {AppNetAdapterList/AssignedAddresses/IPv4Addrs:addresses}";
const VOLUME_STATUS: &str = "volumemgr VolumeStatus | ReferenceName: {ReferenceName} | | {State:state} | \
    | Replicated {IsReplicated:yes}, total {TotalSize:int}, current {CurrentSize:int}";
const CONTENT: &str = "volumemgr ContentTreeStatus | {DisplayName} | | {State:state} | \
    | RelativeURL {RelativeURL}, total {TotalSize:int}, current {CurrentSize:int}";
/// A second time and shorter, as the reference has it.
const APP_NETWORK_AGAIN: &str = "zedmanager AppNetworkConfig | {DisplayName} | {Activate:yes} | | |";
const APP_STATUS: &str = "zedmanager AppInstanceStatus | {DomainName} | {Activated:yes} | {State:state} \
    | {IsDesignatedNodeID:yes} |";
const DOMAIN: &str = "zedmanager DomainConfig | {DisplayName} | {Activate:yes} | | {IsDNidNode:yes} \
    | AppNum {AppNum:int}, KubeImage {KubeImageName}";
const DOMAIN_STATUS: &str = "domainmgr DomainStatus | {DisplayName} | {Activated:yes} | {State:state} \
    | {IsDNidNode:yes} | AppNum {AppNum:int}, NodeName {NodeName}";
const DOMAIN_METRIC: &str = "domainmgr DomainMetric | | {Activated:yes} | | \
    | Alloc Mem {AllocatedMB:uint}, Percent {UsedMemoryPercent:percent}, Last updated {LastHeard:time}";
const DISK: &str = "volumemgr AppDiskMetric | Disk Path: {DiskPath} | | Disk Type: {DiskType} | \
    | Provisioned bytes: {ProvisionedBytes:uint}, used bytes: {UsedBytes:uint}, Dirty: {Dirty:yes}";

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
    fn add(&mut self, row: &str, key: TopicKey) -> Option<Map<String, Value>> {
        let (of, shown) = row.split_once('|')?;
        let (agent, topic) = of.trim().split_once(' ')?;
        let name = format!("{agent}-{topic}");
        let uuid = key.to_string();
        let read = self.shelf.read(agent, topic, key);
        match read.and_then(|topic| Ok((facts(shown, &topic)?, topic))) {
            Ok((facts, topic)) => {
                let key = match key {
                    TopicKey::Global => name,
                    TopicKey::Of(_) => format!("{name}-{}", uuid.get(..5).unwrap_or(&uuid)),
                };
                self.items.push(AppItem { key, value: AppFacts { uuid, exist: true, ..facts } });
                Some(topic)
            }
            Err(why) => {
                let errors = format!("{name}: Not found for: {uuid}, {why}");
                self.items
                    .push(AppItem { key: name, value: AppFacts { uuid, errors, ..AppFacts::default() } });
                None
            }
        }
    }

    fn add_each(&mut self, row: &str, of: &[Map<String, Value>], member: &str) {
        for it in of {
            self.add(row, TopicKey::Of(uuid(it, member)));
        }
    }

    /// Returns the node's name, if known.
    fn node(&mut self) -> Option<String> {
        let info = self.add(NODE, TopicKey::Global)?;
        // The only value with a UUID of its own.
        if let Some(item) = self.items.last_mut() {
            item.value.uuid = uuid(&info, "DeviceID").to_string();
        }
        self.add(CLUSTER, TopicKey::Global);
        self.add(ELECTION, TopicKey::Global);
        if let Some(content) = self.shelf.install_log() {
            let name = "k3s-install.log".to_owned();
            let value = AppFacts { name: name.clone(), exist: true, content, ..AppFacts::default() };
            self.items.push(AppItem { key: name, value });
        }
        Some(info.get("DeviceName").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Ends early, with `None`, where one of its configs or networks is missing.
    fn application(&mut self, app: Uuid) -> Option<()> {
        let of_app = TopicKey::Of(app);
        let nth = self.items.len();
        let config = self.add(APP, of_app)?;
        let mut volumes = Vec::new();
        for volume in uuids(&config, "VolumeRefConfigList", "VolumeID") {
            volumes.push(self.add(VOLUME, TopicKey::Of(volume))?);
        }
        let networks = uuids(&config, "AppNetAdapterList", "Network");
        if let Some(item) = self.items.get_mut(nth) {
            item.value.content =
                format!("Volume Counts {}, Network Counts {}", volumes.len(), networks.len());
        }
        for network in networks {
            self.add(NETWORK, TopicKey::Of(network))?;
        }
        for row in [KUBE, APP_NETWORK, APP_NETWORK_STATUS] {
            self.add(row, of_app);
        }
        self.add_each(VOLUME_STATUS, &volumes, "VolumeID");
        self.add_each(CONTENT, &volumes, "ContentID");
        self.add(APP_NETWORK_AGAIN, of_app);
        self.add(APP_STATUS, of_app);
        self.add(DOMAIN, of_app)?;
        self.add(DOMAIN_STATUS, of_app);
        self.add(DOMAIN_METRIC, of_app);
        self.add_each(DISK, &volumes, "VolumeID");
        Some(())
    }
}

fn facts(row: &str, topic: &Map<String, Value>) -> Result<AppFacts, String> {
    let mut columns = row.split('|').map(|it| filled(it.trim(), topic));
    let mut next = || columns.next().unwrap_or_else(|| Ok(String::new()));
    let yes = |text: String| match text.as_str() {
        "" => TriState::None,
        "true" => TriState::Enabled,
        _ => TriState::Disabled,
    };
    Ok(AppFacts {
        name: next()?,
        activated: yes(next()?),
        state: next()?,
        dnid_node: yes(next()?),
        content: next()?,
        ..AppFacts::default()
    })
}

/// Nil where there is none.
fn uuid(topic: &Map<String, Value>, member: &str) -> Uuid {
    topic.get(member).and_then(|it| it.as_str()?.parse().ok()).unwrap_or_default()
}

fn uuids(topic: &Map<String, Value>, list: &str, member: &str) -> Vec<Uuid> {
    let items = topic.get(list).and_then(Value::as_array).into_iter().flatten().take(MOST);
    items.filter_map(Value::as_object).map(|it| uuid(it, member)).collect()
}
