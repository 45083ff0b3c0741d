//! Whether the other nodes have room for the pods that leave, by sums of what is requested and by counts of pods.
//!
//! A sum that fits is no promise: the scheduler fits each pod by itself. Not here: whether one pod fits one node
//! (`placement`). Source: the Kubernetes page "Resource Management for Pods and Containers".
//! Pure: no clock, no I/O, no task.

use checks::{Finding, Severity};
use kubeapi::names::listed;

use crate::plan::placement::{PeerNode, SchedulingNeeds};
use crate::plan::residents::Resident;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    pub pods: u64,
    /// CPU, in thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Sum {
    pub fn of<'a>(pods: impl Iterator<Item = &'a Resident>) -> Self {
        pods.fold(Self::default(), |sum, it| Self {
            pods: sum.pods + 1,
            cpu_milli: sum.cpu_milli.saturating_add(it.cpu_milli),
            memory_bytes: sum.memory_bytes.saturating_add(it.memory_bytes),
        })
    }
}

/// What `leaving` lacks on the nodes that take pods, beside the `residents` that are there; code `room`. A node that does
/// not say how much it has is taken to have enough.
#[must_use]
pub fn room(leaving: Sum, peers: &[PeerNode], residents: &[Resident]) -> Vec<Finding> {
    if leaving.pods == 0 {
        return Vec::new();
    }
    let found = |text: String, next: &str| vec![Finding::new("room", text, next).with(Severity::Warns)];
    let open: Vec<&PeerNode> =
        peers.iter().filter(|it| SchedulingNeeds::default().why_not(it, false).is_none()).collect();
    if open.is_empty() {
        let text = format!("no other node takes pods: {} pods have nowhere to go", leaving.pods);
        return found(
            text,
            "zedbox drain plan shows why each node takes none; what leaves stays Pending meanwhile",
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
        .map(|free| format!("{} pods, room for {free}", leaving.pods));
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

/// Pods that leave and have no priority class; code `room`, a hint.
#[must_use]
pub fn unranked<'a>(pods: impl Iterator<Item = &'a Resident>) -> Option<Finding> {
    let names: Vec<String> = pods.map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    (!names.is_empty()).then(|| {
        let text = format!(
            "pods without a priority class, which come up in any order where the other nodes lack room: {}",
            listed(&names, ", ")
        );
        let next = "set priorityClassName in the workloads that matter most: kubectl get priorityclasses";
        Finding::new("room", text, next).with(Severity::Hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> PeerNode {
        PeerNode {
            name: name.to_owned(),
            ready: true,
            cpu_milli: Some(1000),
            memory_bytes: Some(1 << 30),
            pods: Some(3),
            ..PeerNode::default()
        }
    }

    fn on(node: &str, cpu_milli: u64, memory_mib: u64) -> Resident {
        Resident { node: node.to_owned(), cpu_milli, memory_bytes: memory_mib << 20, ..Resident::default() }
    }

    #[test]
    fn u6_pods_without_a_priority_class_are_a_hint() {
        assert_eq!(unranked([].iter()), None);
        let pod =
            |name: &str| Resident { namespace: "shop".into(), name: name.into(), ..Resident::default() };
        let found = unranked([pod("web"), pod("db")].iter()).unwrap();
        assert_eq!((found.code.as_str(), found.severity), ("room", Severity::Hint));
        assert!(found.text.ends_with("lack room: shop/web, shop/db"), "{found:?}");
    }

    #[test]
    fn u6_room_on_the_other_nodes_is_judged_by_sums_of_requests_and_by_counts_of_pods() {
        let leaving = |pods, cpu_milli, mib: u64| Sum { pods, cpu_milli, memory_bytes: mib << 20 };
        let cordoned = PeerNode { unschedulable: true, ..peer("n3") };
        let silent = PeerNode { cpu_milli: None, memory_bytes: None, pods: None, ..peer("n2") };
        let table = [
            (leaving(2, 1500, 1024), vec![peer("n2"), peer("n3")], ""),
            (leaving(0, 0, 0), vec![], ""),
            (leaving(2, 1801, 1024), vec![peer("n2"), peer("n3")], "CPU 1801m requested, 1800m free"),
            (leaving(2, 1, 1949), vec![peer("n2"), peer("n3")], "memory 1949 MiB requested, 1948 MiB free"),
            (leaving(6, 1, 1), vec![peer("n2"), peer("n3")], "6 pods, room for 5"),
            (
                leaving(2, 900, 950),
                vec![peer("n2"), cordoned.clone()],
                "CPU 900m requested, 800m free; memory 950 MiB requested, 924 MiB free",
            ),
            (leaving(1, 1, 1), vec![cordoned], "no other node takes pods: 1 pods"),
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
