//! Whether another node can take a pod, by facts that do not change by the minute.
//!
//! Not here: load, spreading, anti-affinity, which the scheduler weighs again each time. Sources: the Kubernetes
//! pages "Assigning Pods to Nodes", "Taints and Tolerations", "Quantity".
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;

use crate::plan::budget::Holds;

/// The taint of a node whose `spec.unschedulable` is set, with the effect `NoSchedule` and no value.
pub(crate) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// What a pod asks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulingNeeds {
    /// `nodeSelector`: labels that must be there with this value.
    pub labels: BTreeMap<String, String>,
    /// Required affinity of the pod and of each of its volumes: of every one, some term must hold.
    pub affinities: Vec<Affinity>,
    /// Taints that it bears.
    pub tolerations: Vec<Tolerated>,
    /// CPU that it requests, in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory that it requests.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    /// What requires it: `its affinity`, `volume pv-1`.
    pub of: String,
    pub terms: Vec<SelectorTerm>,
}

/// Conditions that must all hold. None at all hold for no node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SelectorTerm {
    pub labels: Vec<TermCondition>,
    /// On the node's name, the only field that there is.
    pub names: Vec<TermCondition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermCondition {
    Like(String, Holds),
    /// A number, and the value must be above it.
    Above(String, i64),
    /// A number, and the value must be below it.
    Below(String, i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tolerated {
    /// The key; empty for all, where any value will do.
    pub key: String,
    /// The value; `None` for any.
    pub value: Option<String>,
    /// The effect; empty for all.
    pub effect: String,
}

impl Tolerated {
    /// What a toleration bears; `None` for one that bears no taint.
    pub(crate) fn of(toleration: &Toleration) -> Option<Self> {
        let key = toleration.key.clone().unwrap_or_default();
        let value = match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => None,
            "" | "Equal" if !key.is_empty() => Some(toleration.value.clone().unwrap_or_default()),
            _ => return None,
        };
        Some(Self { key, value, effect: toleration.effect.clone().unwrap_or_default() })
    }
}

/// Whether it bears the taint that the cluster puts on a cordoned node.
pub(crate) fn tolerates_cordon(toleration: &Toleration) -> bool {
    let cordon =
        Taint { key: CORDON_TAINT.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    Tolerated::of(toleration).is_some_and(|it| it.bears(&cordon))
}

/// A taint that keeps pods away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    /// The value, or empty.
    pub value: String,
    /// `NoSchedule`, `NoExecute` or another word.
    pub effect: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl SchedulingNeeds {
    /// Whether the pod asks for certain nodes at all.
    pub fn is_choosy(&self) -> bool {
        !self.labels.is_empty() || !self.affinities.is_empty()
    }

    /// Why this node is none of those that it asks for, whatever the node's state.
    pub fn not_meant(&self, peer: &PeerNode) -> Option<String> {
        let missing = self.labels.iter().find(|(key, value)| peer.labels.get(*key) != Some(value));
        if let Some((key, value)) = missing {
            return Some(format!("has no label {key}={value}"));
        }
        let broken = self.affinities.iter().find(|it| !it.terms.iter().any(|term| term.holds(peer)));
        broken.map(|affinity| format!("does not fit {}", affinity.of))
    }

    /// Why this node cannot take the pod now.
    pub fn why_not(&self, peer: &PeerNode, tolerates_cordon: bool) -> Option<String> {
        let taint = || {
            let hard =
                peer.taints.iter().filter(|it| matches!(it.effect.as_str(), "NoSchedule" | "NoExecute"));
            hard.into_iter().find(|taint| !self.tolerations.iter().any(|it| it.bears(taint)))
        };
        if let Some(why) = self.not_meant(peer) {
            Some(why)
        } else if !peer.ready {
            Some("is not Ready".to_owned())
        } else if peer.unschedulable && !tolerates_cordon {
            Some("is cordoned".to_owned())
        } else if let Some(taint) = taint() {
            Some(format!("has taint {}:{}", taint.key, taint.effect))
        } else if let Some(room) = peer.cpu_milli.filter(|room| *room < self.cpu_milli) {
            Some(format!("has {room}m CPU in all, {}m are requested", self.cpu_milli))
        } else {
            let room = peer.memory_bytes.filter(|room| *room < self.memory_bytes);
            room.map(|room| format!("has {room} bytes of memory in all, {} are requested", self.memory_bytes))
        }
    }
}

impl SelectorTerm {
    fn holds(&self, peer: &PeerNode) -> bool {
        let some = !self.labels.is_empty() || !self.names.is_empty();
        some && self.labels.iter().all(|asked| asked.holds(|key| peer.labels.get(key)))
            && self.names.iter().all(|asked| asked.holds(|_| Some(&peer.name)))
    }
}

impl TermCondition {
    fn holds<'a>(&self, value: impl Fn(&str) -> Option<&'a String>) -> bool {
        let number = |key: &str| value(key)?.parse::<i64>().ok();
        match self {
            Self::Like(key, holds) => holds.fits(value(key)),
            Self::Above(key, least) => number(key).is_some_and(|it| it > *least),
            Self::Below(key, most) => number(key).is_some_and(|it| it < *most),
        }
    }
}

impl Tolerated {
    /// Whether this taint is one of them.
    pub(crate) fn bears(&self, taint: &Taint) -> bool {
        (self.key.is_empty() || self.key == taint.key)
            && (self.effect.is_empty() || self.effect == taint.effect)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
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
    use super::*;

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

    fn affinity(terms: Vec<SelectorTerm>) -> SchedulingNeeds {
        SchedulingNeeds {
            affinities: vec![Affinity { of: "its affinity".to_owned(), terms }],
            ..SchedulingNeeds::default()
        }
    }

    fn on_label(asked: Vec<TermCondition>) -> SelectorTerm {
        SelectorTerm { labels: asked, names: vec![] }
    }

    #[test]
    fn a_pod_fits_where_selector_and_affinity_say_so() {
        let like = |holds| TermCondition::Like("zone".to_owned(), holds);
        let zone = |value: &str| vec![value.to_owned()];
        let by_name = |name: &str| SelectorTerm {
            labels: vec![],
            names: vec![TermCondition::Like("metadata.name".to_owned(), Holds::In(zone(name)))],
        };
        let selector =
            SchedulingNeeds { labels: peer(&[("disk", "ssd")]).labels, ..SchedulingNeeds::default() };
        let table = [
            (SchedulingNeeds::default(), true),
            (selector, false),
            (affinity(vec![on_label(vec![like(Holds::In(zone("a")))])]), true),
            (affinity(vec![on_label(vec![like(Holds::In(zone("b")))])]), false),
            (affinity(vec![on_label(vec![like(Holds::In(zone("b")))]), by_name("n2")]), true),
            (affinity(vec![by_name("n1")]), false),
            (affinity(vec![SelectorTerm::default()]), false),
            (affinity(vec![]), false),
            (affinity(vec![on_label(vec![like(Holds::NotIn(zone("a")))])]), false),
            (affinity(vec![on_label(vec![like(Holds::Exists)])]), true),
            (affinity(vec![on_label(vec![like(Holds::Absent)])]), false),
            (affinity(vec![on_label(vec![TermCondition::Above("cores".to_owned(), 4)])]), true),
            (affinity(vec![on_label(vec![TermCondition::Below("cores".to_owned(), 4)])]), false),
            (affinity(vec![on_label(vec![TermCondition::Above("zone".to_owned(), 4)])]), false),
        ];
        for (needs, fits) in table {
            let why = needs.why_not(&peer(&[("zone", "a"), ("cores", "8")]), false);
            assert_eq!(why.is_none(), fits, "{needs:?}: {why:?}");
            assert_eq!(why, needs.not_meant(&peer(&[("zone", "a"), ("cores", "8")])));
        }
    }

    #[test]
    fn a_pod_fits_where_the_node_takes_pods_bears_its_taints_and_is_large_enough() {
        let tainted = |effect: &str| {
            let taint = Taint { key: "k".to_owned(), value: "v".to_owned(), effect: effect.to_owned() };
            PeerNode { taints: vec![taint], ..peer(&[]) }
        };
        let tolerating = |key: &str, value: Option<&str>, effect: &str| {
            let value = value.map(str::to_owned);
            let one = Tolerated { key: key.to_owned(), value, effect: effect.to_owned() };
            SchedulingNeeds { tolerations: vec![one], ..SchedulingNeeds::default() }
        };
        let any = SchedulingNeeds::default;
        let table = [
            (any(), PeerNode { ready: false, ..peer(&[]) }, Some("is not Ready")),
            (any(), PeerNode { unschedulable: true, ..peer(&[]) }, Some("is cordoned")),
            (any(), tainted("NoSchedule"), Some("has taint k:NoSchedule")),
            (any(), tainted("NoExecute"), Some("has taint k:NoExecute")),
            (any(), tainted("PreferNoSchedule"), None),
            (tolerating("", None, ""), tainted("NoSchedule"), None),
            (tolerating("k", Some("v"), "NoSchedule"), tainted("NoSchedule"), None),
            (tolerating("k", Some("w"), ""), tainted("NoSchedule"), Some("has taint k:NoSchedule")),
            (tolerating("k", None, "NoExecute"), tainted("NoSchedule"), Some("has taint k:NoSchedule")),
            (tolerating("j", None, ""), tainted("NoSchedule"), Some("has taint k:NoSchedule")),
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
        let table = [
            ("0", Some(0)),
            ("2", Some(2000)),
            ("100m", Some(100)),
            ("1.5", Some(1500)),
            ("0.0001", Some(1)),
            ("250000000n", Some(250)),
            ("1u", Some(1)),
            ("1k", Some(1_000_000)),
            ("1M", Some(1_000_000_000)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1e3", Some(1_000_000)),
            ("1E-3", Some(1)),
            ("9Ei", Some(10_376_293_541_461_622_784_000_u128.try_into().unwrap_or(u64::MAX))),
            ("", None),
            ("-1", None),
            ("1x", None),
            ("1e99", None),
        ];
        for (text, expected) in table {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
