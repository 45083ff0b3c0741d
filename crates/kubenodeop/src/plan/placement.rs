//! What pods ask of nodes and what nodes offer, as the server has them; whether another node can take a pod, by facts that do
//! not change by the minute.
//!
//! Not here: load, spreading, anti-affinity, which the scheduler weighs again each time. Sources: the Kubernetes
//! pages "Assigning Pods to Nodes", "Taints and Tolerations", "Quantity".
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubeapi::slim::{Container, NodeObject, PersistentVolume, Pod, PodSpec, Resources, ready_of_node};

/// The taint of a node whose `spec.unschedulable` is set, with the effect `NoSchedule` and no value.
pub(crate) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// What a pod asks of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchedulingNeeds {
    /// `nodeSelector`: labels that must be there with this value.
    pub labels: BTreeMap<String, String>,
    /// Required affinity of the pod and of each of its volumes, by what requires it: `its affinity`, `volume pv-1`.
    pub affinities: Vec<(String, NodeSelector)>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// CPU that it requests, in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory that it requests.
    pub memory_bytes: u64,
}

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

/// Whether it bears the taint that the cluster puts on a cordoned node.
pub(crate) fn tolerates_cordon(toleration: &Toleration) -> bool {
    let (key, effect) = (CORDON_TAINT.to_owned(), "NoSchedule".to_owned());
    bears(toleration, &Taint { key, effect, ..Taint::default() })
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerNode {
    pub name: String,
    /// Its kubelet is well.
    pub ready: bool,
    pub unschedulable: bool,
    /// Its taints, that of a cordon left out.
    pub taints: Vec<Taint>,
    pub labels: BTreeMap<String, String>,
    /// CPU for pods, in thousandths of a core; `None` when it does not say.
    pub cpu_milli: Option<u64>,
    /// Memory for pods; `None` when it does not say.
    pub memory_bytes: Option<u64>,
    /// So many pods may be there; `None` when it does not say.
    pub pods: Option<u64>,
}

pub(crate) fn peer(node: &NodeObject) -> PeerNode {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let offered = |resource: &str| thousandths(&status?.allocatable.as_ref()?.get(resource)?.0);
    let taints = spec.and_then(|it| it.taints.as_deref()).unwrap_or_default();
    PeerNode {
        name: node.metadata.name.clone().unwrap_or_default(),
        ready: ready_of_node(node).is_some_and(|it| it.status == "True"),
        unschedulable: spec.and_then(|it| it.unschedulable).unwrap_or(false),
        // The flag says the same, sooner.
        taints: taints.iter().filter(|taint| taint.key != CORDON_TAINT).cloned().collect(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        cpu_milli: offered("cpu"),
        memory_bytes: offered("memory").map(|thousandths| thousandths / 1000),
        pods: offered("pods").map(|thousandths| thousandths / 1000),
    }
}

impl SchedulingNeeds {
    /// Whether the pod asks for certain nodes at all.
    pub fn is_choosy(&self) -> bool {
        !self.labels.is_empty() || !self.affinities.is_empty()
    }

    /// Whether it asks for certain nodes, and none of `peers` is one of them.
    pub fn is_pinned(&self, peers: &[PeerNode]) -> bool {
        self.is_choosy() && peers.iter().all(|it| self.not_meant(it).is_some())
    }

    /// Why this node is none of those that it asks for, whatever the node's state.
    fn not_meant(&self, peer: &PeerNode) -> Option<String> {
        let missing = self.labels.iter().find(|(key, value)| peer.labels.get(*key) != Some(value));
        if let Some((key, value)) = missing {
            return Some(format!("has no label {key}={value}"));
        }
        let fits = |it: &NodeSelector| it.node_selector_terms.iter().any(|term| is_met(term, peer));
        let (of, _) = self.affinities.iter().find(|(_, it)| !fits(it))?;
        Some(format!("does not fit {of}"))
    }

    /// Why this node cannot take the pod now.
    pub fn why_not(&self, peer: &PeerNode, tolerates_cordon: bool) -> Option<String> {
        let keeps_away = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !self.tolerations.iter().any(|it| bears(it, taint))
        };
        if let Some(why) = self.not_meant(peer) {
            Some(why)
        } else if !peer.ready {
            Some("is not Ready".to_owned())
        } else if peer.unschedulable && !tolerates_cordon {
            Some("is cordoned".to_owned())
        } else if let Some(taint) = peer.taints.iter().find(keeps_away) {
            Some(format!("has taint {}:{}", taint.key, taint.effect))
        } else if let Some(room) = peer.cpu_milli.filter(|room| *room < self.cpu_milli) {
            Some(format!("has {room}m CPU in all, {}m are requested", self.cpu_milli))
        } else {
            let room = peer.memory_bytes.filter(|room| *room < self.memory_bytes);
            room.map(|room| format!("has {room} bytes of memory in all, {} are requested", self.memory_bytes))
        }
    }
}

/// Whether all that `term` asks holds; one that asks nothing holds for no node. The only field that there is, is the name.
fn is_met(term: &NodeSelectorTerm, peer: &PeerNode) -> bool {
    let labels = term.match_expressions.iter().flatten().map(|it| (it, peer.labels.get(&it.key)));
    let names = term.match_fields.iter().flatten().map(|it| (it, Some(&peer.name)));
    let mut asked = labels.chain(names).peekable();
    asked.peek().is_some() && asked.all(|(it, value)| holds(it, value))
}

fn holds(asked: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = asked.values.as_deref().unwrap_or_default();
    let is_one = value.is_some_and(|it| values.contains(it));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match asked.operator.as_str() {
        "In" => is_one,
        "NotIn" => !is_one,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(is, least)| is > least),
        "Lt" => numbers().is_some_and(|(is, most)| is < most),
        // An operator that we do not know.
        _ => true,
    }
}

/// Whether a pod with this toleration bears the taint. An empty key means all, where any value will do, and an empty effect
/// all.
fn bears(toleration: &Toleration, taint: &Taint) -> bool {
    let (key, effect) = (toleration.key.as_deref().unwrap_or_default(), toleration.effect.as_deref());
    let is_value = match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" if !key.is_empty() => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    };
    is_value
        && (key.is_empty() || key == taint.key)
        && effect.is_none_or(|it| it.is_empty() || it == taint.effect)
}

/// The first of `peers` that will do, or why each will not.
pub(crate) fn place(
    peers: &[PeerNode],
    why_not: impl Fn(&PeerNode) -> Option<String>,
) -> Result<&PeerNode, String> {
    let mut whys = Vec::new();
    for peer in peers {
        let Some(why) = why_not(peer) else { return Ok(peer) };
        whys.push(format!("node {} {why}", peer.name));
    }
    Err(if whys.is_empty() { "there is no other node".to_owned() } else { kubeapi::listed(&whys, ", ") })
}

/// A quantity in thousandths of its unit, rounded up: `100m` is 100, `1Ki` is 1 024 000. `None` for what is none.
pub fn thousandths(text: &str) -> Option<u64> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 9)?;
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    let ten = |power: u32| 10_u128.checked_pow(power);
    let (up, down) = match suffix {
        "n" => (1000, ten(9)?),
        "u" => (1000, ten(6)?),
        "m" => (1, 1),
        "" => (1000, 1),
        "k" => (ten(6)?, 1),
        "M" => (ten(9)?, 1),
        "G" => (ten(12)?, 1),
        "T" => (ten(15)?, 1),
        "P" => (ten(18)?, 1),
        "E" => (ten(21)?, 1),
        "Ki" => (1000 << 10, 1),
        "Mi" => (1000 << 20, 1),
        "Gi" => (1000 << 30, 1),
        "Ti" => (1000 << 40, 1),
        "Pi" => (1000 << 50, 1),
        "Ei" => (1000 << 60, 1),
        power => {
            let power: i32 = power.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = ten(power.unsigned_abs())?;
            if power < 0 { (1000, size) } else { (size.checked_mul(1000)?, 1) }
        }
    };
    let value = number.checked_mul(up)?.div_ceil(down.checked_mul(ten(places)?)?);
    Some(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::residents;

    fn peer(labels: &[(&str, &str)]) -> PeerNode {
        PeerNode {
            name: "n2".to_owned(),
            ready: true,
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            cpu_milli: Some(4000),
            memory_bytes: Some(8 << 30),
            ..PeerNode::default()
        }
    }

    #[test]
    fn a_pod_fits_where_selector_and_affinity_say_so() {
        let on = |operator: &str, key: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
        let zone =
            |operator: &str, value: &str| json!({ "matchExpressions": [on(operator, "zone", &[value])] });
        let cores = |operator: &str| json!({ "matchExpressions": [on(operator, "cores", &["4"])] });
        let name = |name: &str| json!({ "matchFields": [on("In", "metadata.name", &[name])] });
        let table = [
            (vec![zone("In", "a")], true),
            (vec![zone("In", "b")], false),
            (vec![zone("In", "b"), name("n2")], true),
            (vec![name("n1")], false),
            (vec![json!({})], false),
            (vec![], false),
            (vec![zone("NotIn", "a")], false),
            (vec![zone("NotIn", "b")], true),
            (vec![zone("Exists", "")], true),
            (vec![zone("DoesNotExist", "")], false),
            (vec![cores("Gt")], true),
            (vec![cores("Lt")], false),
            (vec![json!({ "matchExpressions": [on("Gt", "zone", &["4"])] })], false),
            (vec![json!({ "matchExpressions": [on("Gt", "cores", &["many"])] })], false),
            (vec![zone("Near", "b")], true),
        ];
        let peer = peer(&[("zone", "a"), ("cores", "8")]);
        let fits = |needs: &SchedulingNeeds, fits: bool| {
            let why = needs.why_not(&peer, false);
            assert_eq!(why.is_none(), fits, "{needs:?}: {why:?}");
            assert_eq!(needs.is_pinned(std::slice::from_ref(&peer)), !fits, "{needs:?}");
        };
        for (terms, expected) in table {
            let affinity = serde_json::from_value(json!({ "nodeSelectorTerms": terms })).unwrap();
            let affinities = vec![("its affinity".to_owned(), affinity)];
            fits(&SchedulingNeeds { affinities, ..SchedulingNeeds::default() }, expected);
        }
        let labels = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
        fits(&SchedulingNeeds { labels, ..SchedulingNeeds::default() }, false);
        fits(&SchedulingNeeds::default(), true);
    }

    #[test]
    fn a_pod_fits_where_the_node_takes_pods_bears_its_taints_and_is_large_enough() {
        let tainted = |effect: &str| {
            let (key, value, effect) = ("k".to_owned(), Some("v".to_owned()), effect.to_owned());
            PeerNode { taints: vec![Taint { key, value, effect, ..Taint::default() }], ..peer(&[]) }
        };
        let tolerating = |toleration: Value| {
            let tolerations = vec![serde_json::from_value(toleration).unwrap()];
            SchedulingNeeds { tolerations, ..SchedulingNeeds::default() }
        };
        let hard = || tainted("NoSchedule");
        let kept = Some("has taint k:NoSchedule");
        let any = SchedulingNeeds::default;
        let table = [
            (any(), PeerNode { ready: false, ..peer(&[]) }, Some("is not Ready")),
            (any(), PeerNode { unschedulable: true, ..peer(&[]) }, Some("is cordoned")),
            (any(), hard(), kept),
            (any(), tainted("NoExecute"), Some("has taint k:NoExecute")),
            (any(), tainted("PreferNoSchedule"), None),
            (tolerating(json!({ "operator": "Exists" })), hard(), None),
            (tolerating(json!({ "key": "k", "value": "v", "effect": "NoSchedule" })), hard(), None),
            (
                tolerating(json!({ "key": "k", "operator": "Equal", "value": "v", "effect": "" })),
                hard(),
                None,
            ),
            (tolerating(json!({ "key": "k", "value": "w" })), hard(), kept),
            (tolerating(json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" })), hard(), kept),
            (tolerating(json!({ "key": "j", "operator": "Exists" })), hard(), kept),
            (tolerating(json!({ "value": "v" })), hard(), kept),
            (tolerating(json!({ "key": "k", "operator": "Gt", "value": "v" })), hard(), kept),
            (SchedulingNeeds { cpu_milli: 4000, ..any() }, peer(&[]), None),
            (
                SchedulingNeeds { cpu_milli: 4001, ..any() },
                peer(&[]),
                Some("has 4000m CPU in all, 4001m are requested"),
            ),
            (
                SchedulingNeeds { memory_bytes: (8 << 30) + 1, ..any() },
                peer(&[]),
                Some("has 8589934592 bytes of memory in all, 8589934593 are requested"),
            ),
            (SchedulingNeeds { cpu_milli: 9000, ..any() }, PeerNode { cpu_milli: None, ..peer(&[]) }, None),
        ];
        for (needs, peer, expected) in table {
            assert_eq!(needs.why_not(&peer, false).as_deref(), expected, "{needs:?} {peer:?}");
        }
        assert_eq!(any().why_not(&PeerNode { unschedulable: true, ..peer(&[]) }, true), None);
    }

    #[test]
    fn quantities_are_read_as_the_api_writes_them() {
        let table = "0=0 2=2000 100m=100 1.5=1500 0.0001=1 250000000n=250 1u=1 1k=1000000 1M=1000000000 1Ki=1024000 \
            1.5Gi=1610612736000 1e3=1000000 1E-3=1 9Ei=18446744073709551615 -1= 1x= 1e99= =";
        for (text, expected) in table.split_whitespace().filter_map(|it| it.split_once('=')) {
            assert_eq!(thousandths(text), expected.parse().ok(), "{text}");
        }
    }

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
        // A sidecar counts for those after it, the overhead is of the runtime; of another resource as a whole says nothing.
        for row in [
            "run=1 run=800m | 1800",
            "sidecar=900m run=900m | 1800",
            "sidecar=500m init=2 sidecar=1 run=100m | 2500",
            "overhead=2500m run=100m | 2600",
            "cpu=2500m run=100m | 2500",
            "memory=1Gi run=100m | 100",
        ] {
            let (parts, expected) = row.split_once(" | ").unwrap();
            let mut spec = json!({"containers": [], "initContainers": []});
            for (part, amount) in parts.split(' ').filter_map(|it| it.split_once('=')) {
                let mut container = json!({"name": "c", "resources": {"requests": {"cpu": amount}}});
                let list = if part == "run" { "containers" } else { "initContainers" };
                match part {
                    "overhead" => spec["overhead"]["cpu"] = amount.into(),
                    "cpu" | "memory" => spec["resources"]["requests"][part] = amount.into(),
                    part => {
                        container["restartPolicy"] = json!((part == "sidecar").then_some("Always"));
                        spec[list].as_array_mut().unwrap().push(container);
                    }
                }
            }
            let mut pod: Pod = parsed(json!({"metadata": {"name": "a"}, "spec": spec}));
            assert_eq!(needs(&pod, &[], &[]).cpu_milli.to_string(), expected, "{row}");
            // The same of one that is there already.
            pod.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
            assert_eq!(residents::resident(&pod).unwrap().cpu_milli.to_string(), expected, "{row}");
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
        let found = super::peer(&node);
        assert!(found.ready && found.unschedulable);
        assert_eq!(found.taints.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["k"]);
        assert_eq!((found.cpu_milli, found.memory_bytes), (Some(3920), Some(16 << 30)));
        assert_eq!(found.labels.len(), 1);
        let bare = super::peer(&NodeObject::default());
        assert!(!bare.ready && bare.cpu_milli.is_none());
    }
}
