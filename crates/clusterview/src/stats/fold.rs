//! Facts of the cluster folded into the topic.
//!
//! Lists are sorted by name, so that equal content compares equal; an empty one is absent, as in the
//! reference. Source: spec/agents.md 4.11. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubeapi::nodes::Node;
use topics::{
    KubeClusterInfo, KubeNodeInfo, KubeNodeStatus, KubePodInfo, KubePodNameSpaceInfo, KubePodStatus,
    KubeVmiInfo, KubeVmiStatus, NodeAdmission, go_json,
};

use super::{listed, storage, time};
use crate::collections::{ClusterFacts, Detail, Vm};

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
    let storage = if view.longhorn { storage::fold(facts) } else { topics::KubeStorageInfo::default() };
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
    let mut counted: BTreeMap<&str, KubePodNameSpaceInfo> = BTreeMap::new();
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

#[cfg(test)]
mod tests {
    use topics::KubePodInfo;

    use super::*;

    fn key(namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    fn only_node(fact: Node, member: bool) -> KubeNodeInfo {
        let facts = ClusterFacts { nodes: [(key("", "n1"), fact)].into(), ..ClusterFacts::default() };
        fold(&facts, StatsView { member, longhorn: true }).nodes.unwrap().remove(0)
    }

    #[test]
    fn a_nodes_condition_is_its_status() {
        for (word, number) in [("", 0), ("True", 1), ("False", 2), ("Unknown", 3), ("Maybe", 0)] {
            let fact = Node { ready: word.to_owned(), ..Node::default() };
            assert_eq!(only_node(fact, true).status.number(), number, "{word}");
        }
    }

    #[test]
    fn d_k20_admission_follows_the_config_and_the_etcd_label() {
        for (member, etcd, number) in [(false, false, 1), (false, true, 2), (true, false, 3), (true, true, 4)]
        {
            let fact = Node { etcd, ..Node::default() };
            assert_eq!(only_node(fact, member).admission.number(), number, "{member} {etcd}");
        }
    }

    #[test]
    fn every_phase_of_a_machine_has_its_number_and_a_strange_one_is_not_known() {
        let words =
            ["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "WaitingForSync"];
        for (word, number) in words.into_iter().zip(0..) {
            let fact = Vm { phase: word.to_owned(), ..Vm::default() };
            assert_eq!(vm("a", &fact).status.number(), number, "{word}");
        }
    }

    #[test]
    fn launchers_and_other_namespaces_are_counted_and_not_listed() {
        let pod = |phase: &str, app: bool| crate::collections::PodFact {
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
            pods: [
                (key("eve-kube-app", "web-b"), pod("Running", true)),
                (key("eve-kube-app", "virt-launcher-web-a"), pod("Running", true)),
                (key("eve-kube-app", "web-a"), pod("Failed", true)),
                (key("shop", "x"), pod("Succeeded", false)),
                (key("shop", "y"), pod("Pending", false)),
                (key("shop", "z"), pod("Unknown", false)),
            ]
            .into(),
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
}
