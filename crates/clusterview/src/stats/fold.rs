//! Facts of the cluster and of its replicated storage folded into the topic.
//!
//! Lists are sorted by name, so that equal content compares equal; an empty one is absent, as in the reference. Pure:
//! no clock, no I/O, no task.

use kubeapi::nodes::Node;
use step::{Inserted as _, LiteMap};
use topics::{
    GoTime, KubeClusterInfo, KubeNodeInfo, KubeNodeStatus, KubePodInfo, KubePodNameSpaceInfo, KubePodStatus,
    KubeStorageInfo, KubeVmiInfo, KubeVmiStatus, KubeVolumeInfo, KubeVolumeReplicaInfo, NodeAdmission,
    ServiceStatus, StorageHealthStatus, StorageVolumePvcStatus, StorageVolumeReplicaStatus,
    StorageVolumeRobustness, StorageVolumeState, go_json,
};

use super::time;
use crate::collections::{ClaimFact, ClusterFacts, DaemonSet, Detail, EngineFact, Replica, Vm};
use crate::listed;

/// Prefix of a virtual machine's pod; the machine is reported instead.
const LAUNCHER: &str = "virt-launcher-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatsView {
    /// This device has a cluster config.
    pub(super) member: bool,
    pub(super) longhorn: bool,
}

pub(super) fn fold(facts: &ClusterFacts, view: StatsView) -> KubeClusterInfo {
    let nodes = facts.nodes.iter().map(|((_, name), fact)| node(name, fact, view.member));
    let storage = if view.longhorn { fold_storage(facts) } else { KubeStorageInfo::default() };
    KubeClusterInfo {
        nodes: listed(nodes),
        app_pods: listed(app_pods(facts)),
        app_vmis: listed(facts.vms.iter().map(|((_, name), fact)| vm(name, fact))),
        storage,
        pod_ns_info: listed(namespaces(facts)),
    }
}

fn node(name: &str, fact: &Node, member: bool) -> KubeNodeInfo {
    KubeNodeInfo {
        name: name.to_owned(),
        status: match fact.ready.as_str() {
            "True" => KubeNodeStatus::Ready,
            "False" => KubeNodeStatus::NotReady,
            "Unknown" => KubeNodeStatus::NotReachable,
            _ => KubeNodeStatus::Unknown,
        },
        is_master: fact.control_plane,
        uses_etcd: fact.etcd,
        creation_time: time(fact.created),
        last_transition_time: time(fact.ready_since),
        kubelet_version: fact.kubelet.clone(),
        internal_ip: fact.internal_ip.clone(),
        external_ip: fact.external_ip.clone(),
        schedulable: !fact.unschedulable,
        // D-K20: the existence of a config counts, not the number of items of its topic.
        admission: match (member, fact.etcd) {
            (true, true) => NodeAdmission::Joined,
            (true, false) => NodeAdmission::Joining,
            (false, true) => NodeAdmission::Leaving,
            (false, false) => NodeAdmission::NotClustered,
        },
        node_id: fact.device.clone(),
    }
}

fn app_pods(facts: &ClusterFacts) -> impl Iterator<Item = KubePodInfo> {
    facts.pods.iter().filter(|((_, name), _)| !name.starts_with(LAUNCHER)).filter_map(|((_, name), pod)| {
        let Detail::App { restarts, restarted, created, ip, node } = &pod.detail else { return None };
        Some(KubePodInfo {
            name: name.clone(),
            status: phase(&pod.phase),
            restart_count: *restarts,
            restart_timestamp: time(*restarted),
            creation_timestamp: time(*created),
            pod_ip: ip.clone(),
            node_name: node.clone(),
        })
    })
}

fn phase(word: &str) -> KubePodStatus {
    match word {
        "Pending" => KubePodStatus::Pending,
        "Running" => KubePodStatus::Running,
        "Succeeded" => KubePodStatus::Succeeded,
        "Failed" => KubePodStatus::Failed,
        _ => KubePodStatus::Unknown,
    }
}

fn vm(name: &str, fact: &Vm) -> KubeVmiInfo {
    KubeVmiInfo {
        name: name.to_owned(),
        status: match fact.phase.as_str() {
            "" => KubeVmiStatus::Unset,
            "Pending" => KubeVmiStatus::Pending,
            "Scheduling" => KubeVmiStatus::Scheduling,
            "Scheduled" => KubeVmiStatus::Scheduled,
            "Running" => KubeVmiStatus::Running,
            "Succeeded" => KubeVmiStatus::Succeeded,
            "Failed" => KubeVmiStatus::Failed,
            _ => KubeVmiStatus::Unknown,
        },
        creation_time: time(fact.created),
        last_transition_time: time(fact.ready_since),
        is_ready: fact.ready,
        node_name: fact.node.clone(),
    }
}

fn namespaces(facts: &ClusterFacts) -> impl Iterator<Item = KubePodNameSpaceInfo> {
    let mut counted: LiteMap<&str, KubePodNameSpaceInfo> = LiteMap::new();
    for ((namespace, _), pod) in &facts.pods {
        let counts = counted.entry(namespace).or_default();
        counts.pod_count += 1;
        match phase(&pod.phase) {
            KubePodStatus::Pending => counts.pod_pending_count += 1,
            KubePodStatus::Running => counts.pod_running_count += 1,
            KubePodStatus::Succeeded => counts.pod_succeeded_count += 1,
            KubePodStatus::Failed => counts.pod_failed_count += 1,
            KubePodStatus::Unknown | KubePodStatus::Stranger(_) => {}
        }
    }
    counted.into_iter().map(|(name, counts)| KubePodNameSpaceInfo { name: name.to_owned(), ..counts })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) member: &'static str,
    pub(super) kept: usize,
    pub(super) of: usize,
}

/// Returns what was cut.
pub(super) fn fit(info: &mut KubeClusterInfo) -> Result<Vec<Cut>, go_json::Error> {
    let before = lengths(info);
    info.fit()?;
    let cuts =
        before.into_iter().zip(lengths(info)).map(|((member, of), (_, kept))| Cut { member, kept, of });
    Ok(cuts.filter(|it| it.kept < it.of).collect())
}

fn lengths(info: &KubeClusterInfo) -> [(&'static str, usize); 5] {
    let KubeClusterInfo { nodes, app_pods, app_vmis, storage, pod_ns_info } = info;
    [
        ("Nodes", nodes.as_ref().map_or(0, Vec::len)),
        ("PodNsInfo", pod_ns_info.as_ref().map_or(0, Vec::len)),
        ("AppPods", app_pods.as_ref().map_or(0, Vec::len)),
        ("AppVMIs", app_vmis.as_ref().map_or(0, Vec::len)),
        ("Storage.Volumes", storage.volumes.as_ref().map_or(0, Vec::len)),
    ]
}

/// Suffix of applications' claims, behind the volume's ID.
const CLAIM_SUFFIX: &str = "-pvc-0";

pub(super) fn fold_storage(facts: &ClusterFacts) -> KubeStorageInfo {
    let index = Index::of(facts);
    let volumes = facts.claims.iter().map(|((_, name), claim)| index.volume(name, claim));
    KubeStorageInfo { health: health(facts), transition_time: transition(facts), volumes: listed(volumes) }
}

/// The lowest of all DaemonSets; a disk that takes no replica lowers it. Unknown without DaemonSets.
fn health(facts: &ClusterFacts) -> ServiceStatus {
    let of = |set: &DaemonSet| {
        if set.ready == set.desired {
            ServiceStatus::Healthy
        } else if set.ready == 0 {
            ServiceStatus::Failed
        } else {
            ServiceStatus::Degraded
        }
    };
    let Some(lowest) = facts.daemon_sets.values().map(of).min() else { return ServiceStatus::Unset };
    if facts.storage_nodes.values().any(|node| node.disk_unschedulable) {
        lowest.min(ServiceStatus::Degraded)
    } else {
        lowest
    }
}

/// When a pod of the last DaemonSet last became Ready.
fn transition(facts: &ClusterFacts) -> GoTime {
    let Some(set) = facts.daemon_sets.values().next_back() else { return GoTime::ZERO };
    let ready = facts.pods.values().filter_map(|pod| match &pod.detail {
        Detail::Storage { app, ready_since } if *app == set.app => *ready_since,
        Detail::Storage { .. } | Detail::App { .. } | Detail::Counted => None,
    });
    time(ready.max())
}

struct Index<'a> {
    volumes: LiteMap<&'a str, &'a crate::collections::Volume>,
    replicas: LiteMap<&'a str, Vec<(&'a str, &'a Replica)>>,
    engines: LiteMap<&'a str, &'a EngineFact>,
    snapshot_bytes: LiteMap<&'a str, u64>,
}

impl<'a> Index<'a> {
    fn of(facts: &'a ClusterFacts) -> Self {
        let mut replicas: LiteMap<&str, Vec<(&str, &Replica)>> = LiteMap::new();
        for ((_, name), replica) in facts.replicas.iter().filter(|(_, replica)| replica.placed) {
            replicas.entry(&replica.volume).or_default().push((name, replica));
        }
        let mut snapshot_bytes: LiteMap<&str, u64> = LiteMap::new();
        for snapshot in facts.snapshots.values() {
            let sum = snapshot_bytes.entry(&snapshot.volume).or_default();
            *sum = sum.saturating_add(snapshot.bytes);
        }
        Self {
            volumes: facts.volumes.iter().map(|((_, name), volume)| (name.as_str(), volume)).into_lite(),
            replicas,
            engines: facts.engines.iter().map(|((_, name), engine)| (name.as_str(), engine)).into_lite(),
            snapshot_bytes,
        }
    }

    /// A claim with Longhorn's view of its volume, if any.
    fn volume(&self, name: &str, claim: &ClaimFact) -> KubeVolumeInfo {
        let volume = self.volumes.get(claim.volume.as_str());
        let snapshots = self.snapshot_bytes.get(claim.volume.as_str()).copied().unwrap_or_default();
        let replicas: Vec<KubeVolumeReplicaInfo> = self
            .replicas
            .get(claim.volume.as_str())
            .into_iter()
            .flatten()
            .map(|(name, replica)| self.replica(name, replica))
            .collect();
        let robustness = robustness(volume.map_or("", |it| &it.robustness));
        KubeVolumeInfo {
            name: name.to_owned(),
            state: state(volume.map_or("", |it| &it.state)),
            robustness,
            created_at: time(claim.created),
            provisioned_bytes: claim.requested_bytes,
            allocated_bytes: volume.map_or(0, |it| it.actual_bytes.saturating_add(snapshots)),
            pvc_status: if claim.phase == "Bound" {
                StorageVolumePvcStatus::Bound
            } else {
                StorageVolumePvcStatus::Unknown
            },
            robustness_substate: substate(robustness, &replicas),
            replicas: listed(replicas),
            volume_id: name.strip_suffix(CLAIM_SUFFIX).unwrap_or(name).to_owned(),
        }
    }

    fn replica(&self, name: &str, replica: &Replica) -> KubeVolumeReplicaInfo {
        let (status, percent) = match replica.state.as_str() {
            "running" => self.running(name, replica),
            "error" => (StorageVolumeReplicaStatus::Failed, 0),
            "stopped" => (StorageVolumeReplicaStatus::Offline, 0),
            "starting" => (StorageVolumeReplicaStatus::Starting, 0),
            "stopping" => (StorageVolumeReplicaStatus::Stopping, 0),
            _ => (StorageVolumeReplicaStatus::Unknown, 0),
        };
        KubeVolumeReplicaInfo {
            name: name.to_owned(),
            owner_node: replica.owner.clone(),
            rebuild_progress_percentage: percent,
            status,
        }
    }

    /// How the engine uses a running replica. One that the engine does not know yet is not called in use.
    fn running(&self, name: &str, replica: &Replica) -> (StorageVolumeReplicaStatus, u8) {
        let engine = self.engines.get(replica.engine.as_str());
        match engine.and_then(|engine| engine.modes.get(name)).map(String::as_str) {
            Some("RW") => (StorageVolumeReplicaStatus::Online, 100),
            Some("WO") => {
                let rebuilt = engine.and_then(|engine| {
                    let address = engine.addresses.get(name).unwrap_or(&replica.address);
                    engine.rebuilt.get(&format!("tcp://{address}")).copied()
                });
                (StorageVolumeReplicaStatus::Rebuilding, rebuilt.unwrap_or_default())
            }
            Some("ERR") => (StorageVolumeReplicaStatus::Failed, 0),
            Some(_) | None => (StorageVolumeReplicaStatus::Unknown, 0),
        }
    }
}

fn state(word: &str) -> StorageVolumeState {
    match word {
        "creating" => StorageVolumeState::Creating,
        "attached" => StorageVolumeState::Attached,
        "detached" => StorageVolumeState::Detached,
        "attaching" => StorageVolumeState::Attaching,
        "detaching" => StorageVolumeState::Detaching,
        "deleting" => StorageVolumeState::Deleting,
        _ => StorageVolumeState::Unknown,
    }
}

fn robustness(word: &str) -> StorageVolumeRobustness {
    match word {
        "healthy" => StorageVolumeRobustness::Healthy,
        "degraded" => StorageVolumeRobustness::Degraded,
        "faulted" => StorageVolumeRobustness::Faulted,
        _ => StorageVolumeRobustness::Unknown,
    }
}

/// Of a degraded volume: how many replicas are healthy, and whether another one is being filled.
fn substate(robustness: StorageVolumeRobustness, replicas: &[KubeVolumeReplicaInfo]) -> StorageHealthStatus {
    let count = |status| replicas.iter().filter(|it| it.status == status).count();
    match robustness {
        StorageVolumeRobustness::Healthy => StorageHealthStatus::Healthy,
        StorageVolumeRobustness::Faulted => StorageHealthStatus::Failed,
        StorageVolumeRobustness::Unknown | StorageVolumeRobustness::Stranger(_) => {
            StorageHealthStatus::Unknown
        }
        StorageVolumeRobustness::Degraded => {
            let filling = count(StorageVolumeReplicaStatus::Rebuilding) > 0;
            match (count(StorageVolumeReplicaStatus::Online), filling) {
                (2, true) => StorageHealthStatus::TwoAvailableReplicating,
                (2, false) => StorageHealthStatus::TwoAvailableNotReplicating,
                (1, true) => StorageHealthStatus::OneAvailableReplicating,
                (1, false) => StorageHealthStatus::OneAvailableNotReplicating,
                _ => StorageHealthStatus::Unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::{PodFact, Snapshot, StorageNode, Volume};
    use topics::KubePodInfo;

    fn key(namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    fn one<T>(key: (String, String), fact: T) -> LiteMap<(String, String), T> {
        LiteMap::from_iter([(key, fact)])
    }

    fn only_node(fact: Node, member: bool) -> KubeNodeInfo {
        let facts = ClusterFacts { nodes: one(key("", "n1"), fact), ..ClusterFacts::default() };
        fold(&facts, StatsView { member, longhorn: true }).nodes.unwrap().remove(0)
    }

    #[test]
    fn d_k20_admission_follows_the_config_and_the_etcd_label() {
        for (member, etcd, number) in [(false, false, 1), (false, true, 2), (true, false, 3), (true, true, 4)]
        {
            let fact = Node { etcd, ..Node::default() };
            assert_eq!(only_node(fact, member).admission.number(), number, "{member} {etcd}");
        }
    }

    /// Words, and the number of one.
    type Numbered<'a> = (&'a str, &'a dyn Fn(&str) -> i64);

    #[test]
    fn each_word_of_the_api_has_its_number_and_a_strange_one_is_not_known() {
        let machine =
            |word: &str| vm("a", &Vm { phase: word.to_owned(), ..Vm::default() }).status.number().into();
        let node = |word: &str| {
            only_node(Node { ready: word.to_owned(), ..Node::default() }, true).status.number().into()
        };
        let volume = |word: &str| state(word).number().into();
        let machines = " Pending Scheduling Scheduled Running Succeeded Failed WaitingForSync";
        let volumes = " creating attached detached attaching detaching deleting";
        let all: [Numbered<'_>; 3] =
            [(machines, &machine), (volumes, &volume), ("Maybe True False Unknown", &node)];
        for (words, number) in all {
            for (word, expected) in words.split(' ').zip(0..) {
                assert_eq!(number(word), expected, "{word:?} of {words:?}");
            }
        }
        assert_eq!(node(""), 0);
    }

    #[test]
    fn launchers_and_other_namespaces_are_counted_and_not_listed() {
        let pod = |phase: &str, app: bool| PodFact {
            phase: phase.to_owned(),
            detail: if app {
                Detail::App {
                    restarts: 0,
                    restarted: None,
                    created: None,
                    ip: String::new(),
                    node: String::new(),
                }
            } else {
                Detail::Counted
            },
        };
        let facts = ClusterFacts {
            pods: LiteMap::from_iter([
                (key("eve-kube-app", "web-b"), pod("Running", true)),
                (key("eve-kube-app", "virt-launcher-web-a"), pod("Running", true)),
                (key("eve-kube-app", "web-a"), pod("Failed", true)),
                (key("shop", "x"), pod("Succeeded", false)),
                (key("shop", "y"), pod("Pending", false)),
                (key("shop", "z"), pod("Unknown", false)),
            ]),
            ..ClusterFacts::default()
        };
        let info = fold(&facts, StatsView { member: true, longhorn: true });
        let names: Vec<String> = info.app_pods.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["web-a", "web-b"]);
        let counts: Vec<_> = info
            .pod_ns_info
            .unwrap()
            .into_iter()
            .map(|it| {
                let all = [it.pod_count, it.pod_running_count, it.pod_pending_count];
                (it.name, all, it.pod_failed_count, it.pod_succeeded_count)
            })
            .collect();
        assert_eq!(
            counts,
            [("eve-kube-app".to_owned(), [3, 2, 0], 1, 0), ("shop".to_owned(), [3, 0, 1], 0, 1),]
        );
    }

    #[test]
    fn nothing_at_all_is_the_zero_value() {
        for longhorn in [false, true] {
            let info = fold(&ClusterFacts::default(), StatsView { member: true, longhorn });
            assert_eq!(info, KubeClusterInfo::default());
        }
    }

    #[test]
    fn a_list_that_is_cut_is_told_with_its_numbers() {
        let pod = |at| KubePodInfo { name: format!("app-{at:06}"), ..KubePodInfo::default() };
        let mut info = KubeClusterInfo {
            nodes: Some(Vec::new()),
            app_pods: Some((0..20_000).map(pod).collect()),
            ..KubeClusterInfo::default()
        };
        let cuts = fit(&mut info).unwrap();
        let kept = info.app_pods.unwrap().len();
        assert_eq!(cuts, [Cut { member: "AppPods", kept, of: 20_000 }]);
    }

    /// Ready and wanted pods of a DaemonSet.
    type Sets = (u64, u64);
    /// State of a replica, and how its engine uses it.
    type Modes = (&'static str, &'static str);

    fn volume_key(name: &str) -> (String, String) {
        ("ns".to_owned(), name.to_owned())
    }

    fn set(app: &str, ready: u64, desired: u64) -> ((String, String), DaemonSet) {
        (volume_key(app), DaemonSet { app: app.to_owned(), desired, ready })
    }

    fn ready_pod(name: &str, app: &str, at: &str) -> ((String, String), PodFact) {
        let detail = Detail::Storage { app: app.to_owned(), ready_since: at.parse().ok() };
        (volume_key(name), PodFact { phase: "Running".to_owned(), detail })
    }

    #[test]
    fn health_is_the_lowest_of_all_sets_and_a_full_disk_lowers_it() {
        let table: [(&[Sets], bool, u8); 8] = [
            (&[], false, 0),
            (&[], true, 0),
            (&[(3, 3), (2, 2)], false, 3),
            (&[(0, 0)], false, 3),
            (&[(3, 3), (1, 2)], false, 2),
            (&[(0, 2), (1, 2)], false, 1),
            (&[(3, 3)], true, 2),
            (&[(0, 3)], true, 1),
        ];
        for (sets, full, number) in table {
            let sets = sets.iter().enumerate();
            let facts = ClusterFacts {
                daemon_sets: sets.map(|(at, (ready, of))| set(&format!("s{at}"), *ready, *of)).collect(),
                storage_nodes: one(volume_key("n"), StorageNode { disk_unschedulable: full }),
                ..ClusterFacts::default()
            };
            assert_eq!(fold_storage(&facts).health.number(), i8::try_from(number).unwrap(), "{facts:?}");
        }
    }

    #[test]
    fn the_time_is_when_a_pod_of_the_last_set_last_became_ready() {
        let facts = ClusterFacts {
            daemon_sets: LiteMap::from_iter([set("a", 1, 1), set("b", 2, 2)]),
            pods: LiteMap::from_iter([
                ready_pod("p1", "a", "2026-03-14T12:00:00Z"),
                ready_pod("p2", "b", "2026-03-14T09:00:00Z"),
                ready_pod("p3", "b", "2026-03-14T09:30:00Z"),
                ready_pod("p4", "b", "not ready"),
            ]),
            ..ClusterFacts::default()
        };
        assert_eq!(fold_storage(&facts).transition_time.rfc3339(), "2026-03-14T09:30:00Z");
        assert!(fold_storage(&ClusterFacts { pods: LiteMap::new(), ..facts }).transition_time.is_zero());
    }

    fn volume(robustness: &str, replicas: &[(&str, &str)]) -> ClusterFacts {
        let replica = |(at, (state, _)): (usize, &(&str, &str))| {
            let replica = Replica {
                volume: "v".to_owned(),
                engine: "e".to_owned(),
                state: (*state).to_owned(),
                owner: "n1".to_owned(),
                address: format!("10.42.0.{at}:10000"),
                placed: true,
            };
            (volume_key(&format!("r-{at}")), replica)
        };
        let modes = replicas.iter().enumerate().filter(|(_, (_, mode))| !mode.is_empty());
        let engine = EngineFact {
            modes: modes.map(|(at, (_, mode))| (format!("r-{at}"), (*mode).to_owned())).collect(),
            rebuilt: [("tcp://10.42.0.1:10000".to_owned(), 42)].into(),
            ..EngineFact::default()
        };
        ClusterFacts {
            claims: LiteMap::from_iter([(
                volume_key("0c1d-pvc-0"),
                ClaimFact { volume: "v".to_owned(), ..ClaimFact::default() },
            )]),
            volumes: one(volume_key("v"), Volume { robustness: robustness.to_owned(), ..Volume::default() }),
            replicas: replicas.iter().enumerate().map(replica).collect(),
            engines: one(volume_key("e"), engine),
            ..ClusterFacts::default()
        }
    }

    fn only(facts: &ClusterFacts) -> KubeVolumeInfo {
        fold_storage(facts).volumes.unwrap().remove(0)
    }

    #[test]
    fn a_replica_is_whole_at_rw_and_as_far_as_the_engine_says_at_wo() {
        let table = [
            (("running", "RW"), (2, 100)),
            (("running", "WO"), (1, 42)),
            (("running", "ERR"), (3, 0)),
            (("running", ""), (0, 0)),
            (("stopped", "RW"), (4, 0)),
            (("starting", ""), (5, 0)),
            (("stopping", ""), (6, 0)),
            (("error", ""), (3, 0)),
            (("unknown", ""), (0, 0)),
        ];
        for (fact, (status, percent)) in table {
            let replicas = only(&volume("degraded", &[("running", "RW"), fact])).replicas.unwrap();
            let seen = (replicas[1].status.number(), replicas[1].rebuild_progress_percentage);
            assert_eq!(seen, (status, percent), "{fact:?}");
        }
        // The engine's address of a replica goes before the replica's.
        let mut facts = volume("degraded", &[("running", "RW"), ("running", "WO")]);
        let engine = facts.engines.get_mut(&volume_key("e")).unwrap();
        engine.addresses.insert("r-1".to_owned(), "10.42.9.9:10000".to_owned());
        assert_eq!(only(&facts).replicas.unwrap()[1].rebuild_progress_percentage, 0);
    }

    #[test]
    fn a_replica_that_was_never_placed_is_left_out() {
        let mut facts = volume("healthy", &[("running", "RW"), ("stopped", "")]);
        facts.replicas.get_mut(&volume_key("r-1")).unwrap().placed = false;
        assert_eq!(only(&facts).replicas.unwrap().len(), 1);
    }

    #[test]
    fn the_state_in_detail_counts_whole_replicas_and_looks_for_one_being_filled() {
        let (whole, filled, broken) = (("running", "RW"), ("running", "WO"), ("running", "ERR"));
        let table: [(&str, &[Modes], u8); 11] = [
            ("healthy", &[whole, whole, whole], 1),
            ("healthy", &[whole, filled], 1),
            ("faulted", &[broken], 6),
            ("unknown", &[whole], 0),
            ("degraded", &[whole, whole, filled], 2),
            ("degraded", &[whole, whole, broken], 3),
            ("degraded", &[whole, whole], 3),
            ("degraded", &[whole, filled, filled], 4),
            ("degraded", &[whole, broken], 5),
            ("degraded", &[whole], 5),
            ("degraded", &[filled], 0),
        ];
        for (robustness, replicas, number) in table {
            let seen = only(&volume(robustness, replicas)).robustness_substate.number();
            assert_eq!(seen, number, "{robustness} {replicas:?}");
        }
    }

    #[test]
    fn allocated_is_the_volume_and_its_snapshots_and_a_claim_without_volume_is_listed() {
        let mut facts = volume("healthy", &[]);
        facts.volumes.get_mut(&volume_key("v")).unwrap().actual_bytes = 100;
        for (name, of, bytes) in [("s1", "v", 7), ("s2", "v", 5), ("s3", "other", 1000)] {
            facts.snapshots.insert(volume_key(name), Snapshot { volume: of.to_owned(), bytes });
        }
        let waiting = ClaimFact { phase: "Pending".to_owned(), requested_bytes: 9, ..ClaimFact::default() };
        facts.claims.insert(volume_key("zz"), waiting);
        facts.claims.get_mut(&volume_key("0c1d-pvc-0")).unwrap().phase = "Bound".to_owned();
        let volumes = fold_storage(&facts).volumes.unwrap();
        let seen: Vec<_> = volumes
            .iter()
            .map(|it| (it.name.as_str(), it.volume_id.as_str(), it.allocated_bytes, it.pvc_status.number()))
            .collect();
        assert_eq!(seen, [("0c1d-pvc-0", "0c1d", 112, 1), ("zz", "zz", 0, 0)]);
        assert_eq!(volumes[1].provisioned_bytes, 9);
    }
}
