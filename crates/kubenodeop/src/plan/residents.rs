//! What the pods that are there leave of a node for one more: room, and which of them it may not be near to, or has to.
//! And whether the other nodes have room for all that leave, by sums: one that fits is no promise, as the scheduler fits
//! each pod by itself.
//!
//! Not here: what nodes are by themselves (`placement`). A term that asks for the labels of
//! namespaces, or for the revision of a workload, is left out. Sources: the Kubernetes pages "Assigning Pods to Nodes",
//! "Resource Management for Pods and Containers". Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use checks::{Finding, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use kubeapi::names::NodeName;
use kubeapi::slim::{Pod, PodSpec, PodTerm, PodTerms};
use step::{Inserted as _, LiteMap};

use crate::calls::budgets::selector;
use crate::calls::pods;
use crate::plan::PodClass;
use crate::plan::placement::{PeerNode, SchedulingNeeds, needs};
use topics::number;

/// A pod that has a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resident {
    pub node: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The scheduler removes pods of a lower one for it.
    pub priority: i32,
    /// CPU that it requests, in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory that it requests.
    pub memory_bytes: u64,
    /// Pods that it must not be near to.
    pub apart: Vec<Neighbours>,
    /// Pods that it must be near to.
    pub beside: Vec<Neighbours>,
    /// Ports of the node that it takes, with their protocol.
    pub ports: Vec<(i32, String)>,
    /// How evenly pods like it must be spread.
    pub spread: Vec<Spread>,
}

/// How evenly some pods of a namespace must be spread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    pub selector: Selector,
    /// Over the values that nodes have of this label.
    pub topology: String,
    /// So many more than where there are fewest at most.
    pub most: usize,
}

/// Some pods, and what near means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Which pods; `None` for none.
    pub selector: Option<Selector>,
    /// Their namespaces; empty for that of the pod that asks.
    pub namespaces: Vec<String>,
    pub anywhere: bool,
    /// Near is each node with the same value of this label.
    pub topology: String,
}

impl Neighbours {
    /// Whether `pod` is one of those that a pod of `namespace` means.
    fn means(&self, namespace: &str, pod: &Resident) -> bool {
        let there = if self.namespaces.is_empty() {
            pod.namespace == namespace
        } else {
            self.namespaces.contains(&pod.namespace)
        };
        (self.anywhere || there) && self.selector.as_ref().is_some_and(|it| it.matches(&pod.labels))
    }
}

/// All pods of a cluster that have a node, and the labels of its nodes.
#[derive(Debug, Clone, Default)]
pub struct Residents {
    pub pods: Vec<Resident>,
    pub nodes: LiteMap<String, BTreeMap<String, String>>,
}

impl Residents {
    /// Why `peer` cannot take one more pod like `pod`.
    pub fn why_not(&self, pod: &Resident, peer: &PeerNode) -> Option<String> {
        let there = || self.pods.iter().filter(|it| it.node == peer.name && it.priority >= pod.priority);
        let cpu = there().map(|it| it.cpu_milli).fold(0, u64::saturating_add);
        let memory = there().map(|it| it.memory_bytes).fold(0, u64::saturating_add);
        let lacks = |offered: Option<u64>, taken: u64, wanted: u64| {
            let free = offered?.saturating_sub(taken);
            (free < wanted).then_some(free)
        };
        if let Some(free) = lacks(peer.cpu_milli, cpu, pod.cpu_milli) {
            return Some(format!("has {free}m CPU free, {}m are requested", pod.cpu_milli));
        }
        if let Some(free) = lacks(peer.memory_bytes, memory, pod.memory_bytes) {
            return Some(format!("has {free} bytes of memory free, {} are requested", pod.memory_bytes));
        }
        if lacks(peer.pods, there().count() as u64, 1).is_some() {
            return Some(format!("has its {} already", number(peer.pods.unwrap_or_default(), "pod")));
        }
        let near = |topology: &str, other: &&Resident| {
            let other = self.nodes.get(&other.node).and_then(|it| it.get(topology));
            other.is_some() && other == peer.labels.get(topology)
        };
        let met = |term: &Neighbours| {
            let those = self.pods.iter().filter(|it| term.means(&pod.namespace, it));
            those.into_iter().find(|it| near(&term.topology, it))
        };
        if let Some(other) = pod.apart.iter().find_map(met) {
            return Some(format!(
                "runs pod {}/{}, with which it has anti-affinity",
                other.namespace, other.name
            ));
        }
        let keeps_away = |it: &&Resident| {
            it.apart.iter().any(|term| term.means(&it.namespace, pod) && near(&term.topology, it))
        };
        if let Some(other) = self.pods.iter().find(keeps_away) {
            return Some(format!(
                "runs pod {}/{}, which has anti-affinity with it",
                other.namespace, other.name
            ));
        }
        let taken = |port: &&(i32, String)| there().any(|it| it.ports.contains(port));
        if let Some((port, protocol)) = pod.ports.iter().find(taken) {
            return Some(format!("has its host port {port}/{protocol} taken"));
        }
        if let Some(spread) = pod.spread.iter().find(|it| self.is_uneven(pod, it, peer)) {
            let Spread { topology, most, .. } = spread;
            return Some(format!("would have more than {most} like it above the fewest, by {topology}"));
        }
        let missed = pod.beside.iter().find(|it| met(it).is_none())?;
        Some(format!("runs no pod that its required affinity asks for, by {}", missed.topology))
    }

    /// Whether a pod that has left its node may not be on `peer`, as too many like it would be there. Each node counts that
    /// has the label, cordoned or not, as the scheduler has it by default.
    fn is_uneven(&self, pod: &Resident, spread: &Spread, peer: &PeerNode) -> bool {
        let Some(own) = peer.labels.get(&spread.topology) else { return true };
        let domain = |node: &str| self.nodes.get(node).and_then(|it| it.get(&spread.topology));
        let mut counts: LiteMap<&String, usize> =
            self.nodes.values().filter_map(|it| Some((it.get(&spread.topology)?, 0))).into_lite();
        let alike = self.pods.iter().filter(|it| {
            it.namespace == pod.namespace && it.name != pod.name && spread.selector.matches(&it.labels)
        });
        for at in alike.filter_map(|it| domain(&it.node)) {
            *counts.entry(at).or_default() += 1;
        }
        let fewest = counts.values().min().copied().unwrap_or(0);
        let counts_itself = usize::from(spread.selector.matches(&pod.labels));
        counts.get(own).copied().unwrap_or(0) + counts_itself > fewest + spread.most
    }
}

/// A pod that has a node and has not finished.
pub(crate) fn resident(pod: &Pod) -> Option<Resident> {
    let over = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    let spec = pod.spec.as_ref().filter(|_| !matches!(over, Some("Succeeded" | "Failed")))?;
    let (meta, affinity) = (&pod.metadata, spec.affinity.as_ref());
    let asks = needs(pod, &[], &[]);
    Some(Resident {
        node: spec.node_name.clone()?,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        labels: meta.labels.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or_default(),
        cpu_milli: asks.cpu_milli,
        memory_bytes: asks.memory_bytes,
        apart: neighbours(affinity.and_then(|it| it.pod_anti_affinity.as_ref())),
        beside: neighbours(affinity.and_then(|it| it.pod_affinity.as_ref())),
        ports: ports(spec),
        spread: if asks.is_choosy() { Vec::new() } else { spread(spec) },
    })
}

/// Ports of the node that a pod takes.
fn ports(spec: &PodSpec) -> Vec<(i32, String)> {
    let all = spec.containers.iter().flat_map(|it| it.ports.iter().flatten());
    let taken = all.filter_map(|it| Some((it.host_port.filter(|port| *port > 0)?, it.protocol.clone())));
    taken.map(|(port, protocol)| (port, protocol.unwrap_or_else(|| "TCP".to_owned()))).collect()
}

/// Those of the constraints that must hold and can be judged without revisions of workloads and by all nodes alike.
fn spread(spec: &PodSpec) -> Vec<Spread> {
    let all = spec.topology_spread_constraints.iter().flatten();
    let hard = all.filter(|it| {
        it.when_unsatisfiable == "DoNotSchedule"
            && it.match_label_keys.is_none()
            && it.node_taints_policy.as_deref() != Some("Honor")
    });
    hard.filter_map(|it| {
        Some(Spread {
            selector: selector(it.label_selector.as_ref()?),
            topology: it.topology_key.clone(),
            most: usize::try_from(it.max_skew).ok()?,
        })
    })
    .collect()
}

/// Those of the required terms that can be judged without the labels of namespaces and revisions of workloads.
fn neighbours(terms: Option<&PodTerms>) -> Vec<Neighbours> {
    let terms = terms.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_deref());
    let is_empty = |it: &LabelSelector| it.match_labels.is_none() && it.match_expressions.is_none();
    let known = |it: &&PodTerm| {
        it.namespace_selector.as_ref().is_none_or(is_empty)
            && it.match_label_keys.is_none()
            && it.mismatch_label_keys.is_none()
    };
    let term = |it: &PodTerm| Neighbours {
        selector: it.label_selector.as_ref().map(selector),
        namespaces: it.namespaces.clone().unwrap_or_default(),
        anywhere: it.namespace_selector.is_some(),
        topology: it.topology_key.clone(),
    };
    terms.unwrap_or_default().iter().filter(known).map(term).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum {
    pods: u64,
    /// CPU, in thousandths of a core.
    cpu_milli: u64,
    memory_bytes: u64,
}

impl Sum {
    fn of<'a>(pods: impl Iterator<Item = &'a Resident>) -> Self {
        pods.fold(Self::default(), |sum, it| Self {
            pods: sum.pods + 1,
            cpu_milli: sum.cpu_milli.saturating_add(it.cpu_milli),
            memory_bytes: sum.memory_bytes.saturating_add(it.memory_bytes),
        })
    }
}

/// What `leaving` lacks on the nodes that take pods, beside the `residents` that are there; code `room`. A node that does
/// not say how much it has is taken to have enough.
fn room(leaving: Sum, peers: &[PeerNode], residents: &[Resident]) -> Vec<Finding> {
    if leaving.pods == 0 {
        return Vec::new();
    }
    let found = |text: String, next: &str| vec![Finding::new("room", text, next).with(Severity::Warns)];
    let open: Vec<&PeerNode> =
        peers.iter().filter(|it| SchedulingNeeds::default().why_not(it, false).is_none()).collect();
    if open.is_empty() {
        let text = format!("no other node takes pods: no place for {}", number(leaving.pods, "pod"));
        return found(
            text,
            "zedbox plan shows why each node takes none; what leaves stays Pending meanwhile",
        );
    }
    let free = |has: fn(&PeerNode) -> Option<u64>, takes: fn(Sum) -> u64| {
        let on = |peer: &PeerNode| Sum::of(residents.iter().filter(|it| it.node == peer.name));
        let left = |it: &&PeerNode| has(it).map(|all| all.saturating_sub(takes(on(it))));
        open.iter().map(left).try_fold(0_u64, |sum, it| Some(sum.saturating_add(it?)))
    };
    let lack = |free: Option<u64>, wanted: u64| free.filter(|it| *it < wanted);
    let cpu = lack(free(|it| it.cpu_milli, |it| it.cpu_milli), leaving.cpu_milli)
        .map(|free| format!("CPU {}m requested, {free}m free", leaving.cpu_milli));
    let memory = lack(free(|it| it.memory_bytes, |it| it.memory_bytes), leaving.memory_bytes)
        .map(|free| format!("memory {} MiB requested, {} MiB free", leaving.memory_bytes >> 20, free >> 20));
    let pods = lack(free(|it| it.pods, |it| it.pods), leaving.pods)
        .map(|free| format!("{}, room for {free}", number(leaving.pods, "pod")));
    let lacks: Vec<String> = [cpu, memory, pods].into_iter().flatten().collect();
    if lacks.is_empty() {
        return Vec::new();
    }
    let text = format!("the other nodes lack room for the pods that leave: {}", lacks.join("; "));
    found(
        text,
        "scale down what can rest, or add a node: kubectl describe nodes shows what is requested of each",
    )
}

/// Whether the other nodes have room for the pods that leave `node` and come up again.
pub(crate) fn room_of(node: &NodeName, all: &[Pod], peers: &[PeerNode]) -> Vec<Finding> {
    let residents: Vec<Resident> = all.iter().filter_map(resident).collect();
    let leaves = |pod: &&Pod| {
        let facts = pods::facts(pod);
        facts.class() == PodClass::Leave && !facts.workload.is_empty()
    };
    let leaving: Vec<(&Pod, Resident)> =
        all.iter().filter(leaves).filter_map(|pod| Some((pod, resident(pod)?))).collect();
    let leaving: Vec<(&Pod, Resident)> =
        leaving.into_iter().filter(|(_, it)| it.node == node.as_str()).collect();
    let mut found = room(Sum::of(leaving.iter().map(|(_, it)| it)), peers, &residents);
    let is_ranked = |pod: &Pod| pod.spec.as_ref().is_some_and(|it| it.priority_class_name.is_some());
    found.extend(unranked(leaving.iter().filter(|(pod, _)| !is_ranked(pod)).map(|(_, it)| it)));
    found
}

/// Pods that leave and have no priority class; code `room`, a hint.
fn unranked<'a>(pods: impl Iterator<Item = &'a Resident>) -> Vec<Finding> {
    let names: Vec<String> = pods.map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    let what = "pods without a priority class, which come up in any order where the other nodes lack room";
    Finding::listing(("room", Severity::Hint), what, &names, |_| {
        "set priorityClassName in the workloads that matter most: kubectl get priorityclasses".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn pod(name: &str, node: &str, app: &str) -> Resident {
        Resident {
            node: node.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            labels: labels(&[("app", app)]),
            cpu_milli: 1000,
            memory_bytes: 2 << 30,
            ..Resident::default()
        }
    }

    fn app(app: &str, topology: &str) -> Neighbours {
        let selector = labels(&[("app", app)]).into_iter().collect();
        Neighbours { selector: Some(selector), topology: topology.to_owned(), ..Neighbours::default() }
    }

    /// n1 and n2 in zone a, n3 in zone b; a pod on n2 and one on n3.
    fn residents() -> Residents {
        let node = |name: &str, zone: &str| (name.to_owned(), labels(&[("host", name), ("zone", zone)]));
        Residents {
            pods: vec![pod("web", "n2", "web"), pod("log", "n3", "log")],
            nodes: [node("n1", "a"), node("n2", "a"), node("n3", "b")].into_iter().collect(),
        }
    }

    fn peer(name: &str, all: &Residents) -> PeerNode {
        PeerNode {
            name: name.to_owned(),
            ready: true,
            labels: all.nodes.get(name).unwrap().clone(),
            cpu_milli: Some(2000),
            memory_bytes: Some(4 << 30),
            pods: Some(2),
            ..PeerNode::default()
        }
    }

    #[test]
    fn room_is_what_the_requests_of_the_pods_there_leave() {
        let all = residents();
        let of = |pod: Resident, peer: PeerNode| all.why_not(&pod, &peer);
        let wanted = pod("db", "n1", "db");
        let n2 = || peer("n2", &all);
        assert_eq!(of(wanted.clone(), n2()), None);
        let cpu = Resident { cpu_milli: 1001, ..wanted.clone() };
        assert_eq!(of(cpu, n2()).unwrap(), "has 1000m CPU free, 1001m are requested");
        let memory = Resident { memory_bytes: (2 << 30) + 1, ..wanted.clone() };
        let said = of(memory, n2()).unwrap();
        assert_eq!(said, "has 2147483648 bytes of memory free, 2147483649 are requested");
        assert_eq!(of(wanted.clone(), PeerNode { pods: Some(1), ..n2() }).unwrap(), "has its 1 pod already");
        // The scheduler makes room for it.
        let first = Resident { priority: 1, cpu_milli: 1001, ..wanted.clone() };
        assert_eq!(of(first, n2()), None);
        // What it does not say is no limit.
        let silent = PeerNode { cpu_milli: None, memory_bytes: None, pods: None, ..n2() };
        assert_eq!(of(Resident { cpu_milli: 9999, ..wanted }, silent), None);
    }

    #[test]
    fn k8_ports_of_the_node_and_even_spread_keep_a_pod_away() {
        let all = residents();
        let http = |name: &str, node: &str| Resident {
            ports: vec![(80, "TCP".to_owned())],
            ..pod(name, node, "web")
        };
        let with =
            |more: Resident| Residents { pods: [all.pods.clone(), vec![more]].concat(), ..all.clone() };
        let wanted = Resident { cpu_milli: 1, memory_bytes: 1, ..http("db", "n1") };
        let wide =
            |all: &Residents| PeerNode { pods: None, cpu_milli: None, memory_bytes: None, ..peer("n2", all) };
        assert_eq!(with(http("x", "n3")).why_not(&wanted, &wide(&all)), None);
        let said = with(http("x", "n2")).why_not(&wanted, &wide(&all)).unwrap();
        assert_eq!(said, "has its host port 80/TCP taken");

        // One on each node, one more than the fewest: what leaves n1 finds no place, as n1 has none then.
        let even = |most| Spread {
            selector: labels(&[("app", "web")]).into_iter().collect(),
            topology: "host".to_owned(),
            most,
        };
        let one = |node: &str| pod(&format!("web-{node}"), node, "web");
        let three = Residents { pods: vec![one("n1"), one("n2"), one("n3")], ..all.clone() };
        let leaves = |most| Resident { spread: vec![even(most)], ..one("n1") };
        let said = three.why_not(&leaves(1), &wide(&all)).unwrap();
        assert_eq!(said, "would have more than 1 like it above the fewest, by host");
        assert_eq!(three.why_not(&leaves(2), &wide(&all)), None);
        let two = Residents { pods: vec![one("n1"), one("n3")], ..all.clone() };
        assert_eq!(two.why_not(&leaves(1), &wide(&all)), None, "n2 has none either");
        let unlabelled = PeerNode { labels: BTreeMap::new(), ..wide(&all) };
        assert!(three.why_not(&leaves(2), &unlabelled).is_some());
    }

    #[test]
    fn a_pod_keeps_to_its_own_terms_and_to_those_of_the_pods_there() {
        let mut all = residents();
        let of = |all: &Residents, apart: Vec<Neighbours>, beside: Vec<Neighbours>, name: &str| {
            let wanted = Resident { apart, beside, ..pod("db", "n1", "db") };
            all.why_not(&wanted, &peer(name, all))
        };
        let apart = of(&all, vec![app("web", "zone")], vec![], "n2").unwrap();
        assert_eq!(apart, "runs pod shop/web, with which it has anti-affinity");
        assert_eq!(of(&all, vec![app("web", "zone")], vec![], "n3"), None);
        assert_eq!(of(&all, vec![], vec![app("log", "host")], "n3"), None);
        let beside = of(&all, vec![], vec![app("log", "host")], "n2").unwrap();
        assert_eq!(beside, "runs no pod that its required affinity asks for, by host");
        // Another namespace is meant only where the term says so.
        all.pods[0].namespace = "tools".to_owned();
        assert_eq!(of(&all, vec![app("web", "host")], vec![], "n2"), None);
        let tools = Neighbours { namespaces: vec!["tools".to_owned()], ..app("web", "host") };
        assert!(of(&all, vec![tools], vec![], "n2").is_some());
        assert!(of(&all, vec![Neighbours { anywhere: true, ..app("web", "host") }], vec![], "n2").is_some());
        // A pod that is there keeps it away.
        all.pods[0].namespace = "shop".to_owned();
        all.pods[0].apart = vec![app("db", "host")];
        assert_eq!(
            of(&all, vec![], vec![], "n2").unwrap(),
            "runs pod shop/web, which has anti-affinity with it"
        );
        // A node without the label is near nobody; no selector means no pod.
        assert_eq!(of(&all, vec![app("log", "rack")], vec![], "n3"), None);
        assert_eq!(of(&all, vec![Neighbours { selector: None, ..app("log", "host") }], vec![], "n3"), None);
    }

    fn empty(name: &str) -> PeerNode {
        let (cpu_milli, memory_bytes, pods) = (Some(1000), Some(1 << 30), Some(3));
        PeerNode { cpu_milli, memory_bytes, pods, ..peer(name, &residents()) }
    }

    fn on(node: &str, cpu_milli: u64, memory_mib: u64) -> Resident {
        Resident { node: node.to_owned(), cpu_milli, memory_bytes: memory_mib << 20, ..Resident::default() }
    }

    #[test]
    fn u6_pods_without_a_priority_class_are_a_hint() {
        assert_eq!(unranked([].iter()), []);
        let pod =
            |name: &str| Resident { namespace: "shop".into(), name: name.into(), ..Resident::default() };
        let found = unranked([pod("web"), pod("db")].iter()).remove(0);
        assert_eq!((found.code.as_str(), found.severity), ("room", Severity::Hint));
        assert!(found.text.ends_with("lack room: shop/web, shop/db"), "{found:?}");
    }

    #[test]
    fn u6_room_on_the_other_nodes_is_judged_by_sums_of_requests_and_by_counts_of_pods() {
        let leaving = |pods, cpu_milli, mib: u64| Sum { pods, cpu_milli, memory_bytes: mib << 20 };
        let cordoned = PeerNode { unschedulable: true, ..empty("n3") };
        let silent = PeerNode { cpu_milli: None, memory_bytes: None, pods: None, ..empty("n2") };
        let table = [
            (leaving(2, 1500, 1024), vec![empty("n2"), empty("n3")], ""),
            (leaving(0, 0, 0), vec![], ""),
            (leaving(2, 1801, 1024), vec![empty("n2"), empty("n3")], "CPU 1801m requested, 1800m free"),
            (leaving(2, 1, 1949), vec![empty("n2"), empty("n3")], "memory 1949 MiB requested, 1948 MiB free"),
            (leaving(6, 1, 1), vec![empty("n2"), empty("n3")], "6 pods, room for 5"),
            (
                leaving(2, 900, 950),
                vec![empty("n2"), cordoned.clone()],
                "CPU 900m requested, 800m free; memory 950 MiB requested, 924 MiB free",
            ),
            (leaving(1, 1, 1), vec![cordoned], "no other node takes pods: no place for 1 pod"),
            (leaving(9, 9000, 9000), vec![silent], ""),
        ];
        // One is there; the one on the node itself takes no room elsewhere.
        let residents = [on("n2", 200, 100), on("n1", 900, 900)];
        for (leaving, peers, words) in table {
            let found = room(leaving, &peers, &residents);
            match words {
                "" => assert_eq!(found, [], "{leaving:?}"),
                words => {
                    assert!(found[0].text.contains(words), "{leaving:?}: {found:?}");
                    assert_eq!((found[0].code.as_str(), found[0].severity), ("room", Severity::Warns));
                }
            }
        }
    }
}
