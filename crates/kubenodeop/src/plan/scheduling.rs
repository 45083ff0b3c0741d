//! What pods ask of nodes and what nodes offer, as the server has them, turned into facts.
//!
//! Not here: whether one fits the other (`placement`). Sources: as there.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubeapi::slim::NodeObject;
use kubeapi::slim::{Container, PersistentVolume, Pod, PodSpec, PodTerm, PodTerms, Resources};

use checks::Finding;
use kubeapi::names::NodeName;

use crate::calls::budgets::selector;
use crate::calls::pods;
use crate::node::is_ready;
use crate::plan::PodClass;
use crate::plan::placement::{CORDON_TAINT, PeerNode, SchedulingNeeds, thousandths};
use crate::plan::residents::{Neighbours, Resident, Spread, Sum, room, unranked};

/// What `pod` asks of a node, with what the volumes of its `claims` ask.
pub(crate) fn needs(pod: &Pod, claims: &[String], volumes: &[PersistentVolume]) -> SchedulingNeeds {
    let Some(spec) = pod.spec.as_ref() else { return SchedulingNeeds::default() };
    let required = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let required = required.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let own = required.map(|it| ("its affinity".to_owned(), it.clone()));
    let mounted = volumes.iter().filter(|volume| {
        let claim = volume.spec.as_ref().and_then(|it| it.claim_ref.as_ref());
        claim.is_some_and(|claim| {
            claim.namespace == pod.metadata.namespace
                && claim.name.as_ref().is_some_and(|it| claims.contains(it))
        })
    });
    let theirs = mounted.filter_map(|volume| {
        let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        Some((format!("volume {name}"), required.clone()))
    });
    SchedulingNeeds {
        labels: spec.node_selector.clone().unwrap_or_default(),
        affinities: own.into_iter().chain(theirs).collect(),
        tolerations: spec.tolerations.clone().unwrap_or_default(),
        cpu_milli: requested(spec, "cpu"),
        memory_bytes: requested(spec, "memory").div_ceil(1000),
    }
}

/// What the scheduler counts for a pod, in thousandths: what it asks for as a whole, or else the most that its containers
/// ask for at one time, and what its runtime needs besides. Init containers run one after another, each beside the
/// sidecars before it (`restartPolicy: Always`), which stay. Source: kubernetes
/// `staging/src/k8s.io/component-helpers/resource/helpers.go` (`PodRequests`).
fn requested(spec: &PodSpec, resource: &str) -> u64 {
    let amount = |of: Option<&BTreeMap<String, Quantity>>| thousandths(&of?.get(resource)?.0);
    let asks = |it: Option<&Resources>| amount(it.and_then(|it| it.requests.as_ref()));
    let of = |it: &Container| asks(it.resources.as_ref()).unwrap_or(0);
    let (mut sidecars, mut starting) = (0_u64, 0_u64);
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.saturating_add(of(init));
            starting = starting.max(sidecars);
        } else {
            starting = starting.max(sidecars.saturating_add(of(init)));
        }
    }
    let running = spec.containers.iter().map(of).fold(sidecars, u64::saturating_add);
    let pod = asks(spec.resources.as_ref()).unwrap_or_else(|| running.max(starting));
    pod.saturating_add(amount(spec.overhead.as_ref()).unwrap_or(0))
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

pub(crate) fn peer(node: &NodeObject) -> PeerNode {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let offered = |resource: &str| thousandths(&status?.allocatable.as_ref()?.get(resource)?.0);
    let taints = spec.and_then(|it| it.taints.as_deref()).unwrap_or_default();
    PeerNode {
        name: node.metadata.name.clone().unwrap_or_default(),
        ready: is_ready(node),
        unschedulable: spec.and_then(|it| it.unschedulable).unwrap_or(false),
        // The flag says the same, sooner.
        taints: taints.iter().filter(|taint| taint.key != CORDON_TAINT).cloned().collect(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        cpu_milli: offered("cpu"),
        memory_bytes: offered("memory").map(|thousandths| thousandths / 1000),
        pods: offered("pods").map(|thousandths| thousandths / 1000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_a_pod_asks_for_follows_its_object_and_its_volumes() {
        let container = |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let pod: Pod = parsed(json!({
            "metadata": {"namespace": "shop", "name": "a"},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]},
                }},
                "tolerations": [{"operator": "Exists"}],
                "initContainers": [container("2", "1Ki"), container("1", "1Ki")],
                "containers": [container("500m", "1Mi"), container("250m", "1Mi"), {"name": "d"}],
            },
        }));
        let volume = |name: &str, namespace: &str, claim: &str| -> PersistentVolume {
            parsed(json!({
                "metadata": {"name": name},
                "spec": {
                    "claimRef": {"namespace": namespace, "name": claim},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
                },
            }))
        };
        let volumes = [
            volume("pv-1", "shop", "data"),
            volume("pv-2", "shop", "other"),
            volume("pv-3", "tools", "data"),
        ];
        let found = needs(&pod, &["data".to_owned()], &volumes);
        assert_eq!((found.cpu_milli, found.memory_bytes), (2000, 2 << 20));
        assert_eq!(found.labels.get("disk").map(String::as_str), Some("ssd"));
        assert_eq!(found.tolerations.len(), 1);
        let of: Vec<(&str, usize)> =
            found.affinities.iter().map(|(of, it)| (of.as_str(), it.node_selector_terms.len())).collect();
        assert_eq!(of, [("its affinity", 1), ("volume pv-1", 0)]);
        assert_eq!(needs(&Pod::default(), &[], &[]), SchedulingNeeds::default());
    }

    #[test]
    fn k8_requests_are_summed_as_the_scheduler_sums_them() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| {
            let mut it = container(cpu);
            it["restartPolicy"] = json!("Always");
            it
        };
        let table = [
            ("containers", json!({"containers": [container("1"), container("800m")]}), 1800),
            (
                "a sidecar",
                json!({"initContainers": [sidecar("900m")], "containers": [container("900m")]}),
                1800,
            ),
            (
                "an init container beside the sidecar before it",
                json!({"initContainers": [sidecar("500m"), container("2"), sidecar("1")],
                    "containers": [container("100m")]}),
                2500,
            ),
            (
                "overhead of its runtime",
                json!({"overhead": {"cpu": "2500m"}, "containers": [container("100m")]}),
                2600,
            ),
            (
                "of the pod as a whole",
                json!({"resources": {"requests": {"cpu": "2500m"}}, "containers": [container("100m")]}),
                2500,
            ),
            (
                "of another resource as a whole",
                json!({"resources": {"requests": {"memory": "1Gi"}},
                "containers": [container("100m")]}),
                100,
            ),
        ];
        for (row, spec, expected) in table {
            let mut pod: Pod = parsed(json!({"metadata": {"name": "a"}, "spec": spec}));
            assert_eq!(needs(&pod, &[], &[]).cpu_milli, expected, "{row}");
            // The same of one that is there already.
            pod.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
            assert_eq!(resident(&pod).unwrap().cpu_milli, expected, "{row}");
        }
    }

    #[test]
    fn what_a_node_offers_follows_its_object() {
        let node: NodeObject = parsed(json!({
            "metadata": {"name": "n2", "labels": {"zone": "a"}},
            "spec": {"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "k", "value": "v", "effect": "NoExecute"},
            ]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "3920m", "memory": "16Gi"},
            },
        }));
        let found = peer(&node);
        assert!(found.ready && found.unschedulable);
        assert_eq!(found.taints.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["k"]);
        assert_eq!((found.cpu_milli, found.memory_bytes), (Some(3920), Some(16 << 30)));
        assert_eq!(found.labels.len(), 1);
        let bare = peer(&NodeObject::default());
        assert!(!bare.ready && bare.cpu_milli.is_none());
    }
}
