//! What keeps a node from being declared dead by a person, and which of it a word passes. Source: the Kubernetes page "Node
//! Shutdowns" for the taint; Longhorn's for `auto-salvage` and `node-down-pod-deletion-policy`.
//!
//! Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::listed;
use kubeapi::nodes::OUT_OF_SERVICE;
use topics::number;

use super::record::{DAY, lately};
use super::silence::SilentNode;
use crate::turn::pulses::Pulse;
use crate::turn::record::{Op, Phase, TurnRecord};
use crate::turn::rule::{TurnNode, down};

/// A node is failed over once in so long, and the cluster so often in a day.
const AGAIN: SignedDuration = SignedDuration::from_hours(1);
const MOST_A_DAY: usize = 3;
/// Kubernetes has the taint by default from this minor version on.
const WITH_TAINT: u32 = 26;

step::named! {
    /// What keeps a node from being declared dead.
    pub enum FailoverRule {
        /// It is not in the cluster, or shows life.
        Alive = "alive",
        /// Other nodes are away too.
        Others = "others-away",
        /// What was seen of it was seen through an API that failed meanwhile.
        Api = "api",
        /// An operation of the cluster or of the node is under way.
        Operation = "operation",
        /// A volume on it has no good copy elsewhere, and a failed one.
        Copies = "lone-copies",
        /// It was failed over a short while ago.
        Again = "again",
        /// The cluster does not know the taint.
        Version = "version",
        /// Its label says no.
        Label = "label",
        /// Somebody else acts on silent nodes, unfenced.
        Actors = "others-act",
    }
}

impl FailoverRule {
    /// The word of the command that passes it; `None` where nothing does.
    pub const fn pass(self) -> Option<&'static str> {
        match self {
            Self::Others => Some("--although-others-away"),
            Self::Copies => Some("--although-lone-copies"),
            Self::Actors => Some("--although-others-act"),
            Self::Alive | Self::Api | Self::Operation | Self::Again | Self::Version | Self::Label => None,
        }
    }
}

/// A rule that holds, why, and what a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailoverHold {
    pub rule: FailoverRule,
    pub why: String,
    pub next: String,
}

/// All that is judged by.
#[derive(Debug, Clone, Default)]
pub struct FailoverFacts {
    pub record: TurnRecord,
    /// Of one moment, with the leases of their kubelets as they were seen for 40 s.
    pub nodes: Vec<TurnNode>,
    /// The node with the nodes that it answers; `None` while its kubelet is not seen to be silent.
    pub silent: Option<SilentNode>,
    /// Why a call to the API failed while its silence was looked at, or empty.
    pub api_trouble: String,
    /// Minor version of Kubernetes 1; `None` where it cannot be read.
    pub minor: Option<u32>,
    /// Label `pillar-rs/no-failover=true`.
    pub is_excluded: bool,
    /// Volumes in use there without a good copy elsewhere, which have a failed one.
    pub lone: Vec<String>,
    /// Who else acts on silent nodes, as `Longhorn's node-down-pod-deletion-policy is …`.
    pub actors: Vec<String>,
    /// By the API server's clock.
    pub now: Timestamp,
}

/// What keeps `name` from being declared dead, in the order of the rules; nothing when it may be.
pub fn holds(name: &str, facts: &FailoverFacts) -> Vec<FailoverHold> {
    let hold = |rule, why: String, next: &str| FailoverHold { rule, why, next: next.to_owned() };
    let Some(node) = facts.nodes.iter().find(|it| it.name == name) else {
        let why = format!("the cluster has no node {name}");
        return vec![hold(FailoverRule::Alive, why, "check the name: `kubectl get nodes`")];
    };
    let mut found: Vec<FailoverHold> = alive(node, facts).into_iter().collect();
    found.extend(others(node, facts));
    if !facts.api_trouble.is_empty() {
        let why = format!("the API failed while {name} was watched: {}", facts.api_trouble);
        found.push(hold(FailoverRule::Api, why, "type the command again once the API answers"));
    }
    found.extend(operation(node, &facts.record));
    if !facts.lone.is_empty() {
        let why = format!(
            "volumes in use on {name} have no healthy copy elsewhere and a failed one, with old data that Longhorn may bring back: {}",
            listed(&facts.lone, ", ")
        );
        found.push(hold(FailoverRule::Copies, why, "bring the node back, or its disk to another machine"));
    }
    found.extend(again(node, facts));
    if let Some(minor) = facts.minor.filter(|it| *it < WITH_TAINT) {
        let why =
            format!("Kubernetes 1.{minor} does not know the taint out-of-service (1.{WITH_TAINT} does)");
        found.push(hold(FailoverRule::Version, why, "force-delete its pods by hand once it is off"));
    }
    if facts.is_excluded {
        let next = format!("`kubectl label node {name} pillar-rs/no-failover-` allows it");
        let why = format!("node {name} has the label pillar-rs/no-failover=true");
        found.push(hold(FailoverRule::Label, why, &next));
    }
    if !facts.actors.is_empty() {
        let why = format!(
            "others act on silent nodes without knowing that they are off: {}",
            listed(&facts.actors, "; ")
        );
        found.push(hold(
            FailoverRule::Actors,
            why,
            "switch that off, or look what it has done: `kubectl get pods -A -o wide`",
        ));
    }
    found
}

fn alive(node: &TurnNode, facts: &FailoverFacts) -> Option<FailoverHold> {
    let name = &node.name;
    let heard = facts.silent.as_ref().map(SilentNode::heard_by).unwrap_or_default();
    let why = match (node.pulse, node.ready) {
        _ if !heard.is_empty() => format!("node {name} lives: it answers {}", listed(&heard, ", ")),
        (Pulse::Moving, _) => format!("node {name} lives: its kubelet renews its lease"),
        (Pulse::Unknown, _) => {
            format!("whether the kubelet of {name} renews its lease was not seen for 40 s")
        }
        (Pulse::Still, true) => {
            format!("node {name} is still Ready for Kubernetes, which takes up to 60 s to see that it is not")
        }
        (Pulse::Still, false) if node.boot_id.is_empty() => {
            format!(
                "the Node object of {name} does not say which boot it was in, so its way back could not be seen"
            )
        }
        (Pulse::Still, false) => return None,
    };
    let next = format!("wait a minute and type it again; where it lives: `zedbox status` on {name}");
    Some(FailoverHold { rule: FailoverRule::Alive, why, next })
}

/// One at a time, and only by a majority.
fn others(node: &TurnNode, facts: &FailoverFacts) -> Option<FailoverHold> {
    let others = facts.nodes.iter().filter(|it| it.name != node.name);
    let ready = others.filter(|it| it.ready && it.pulse != Pulse::Still).count();
    let away: Vec<String> = down(None, &facts.record, &facts.nodes)
        .into_iter()
        .filter(|it| it.node != node.name && !it.cordoned)
        .map(|it| it.why)
        .collect();
    let why = if away.is_empty() && ready * 2 > facts.nodes.len() {
        return None;
    } else if away.is_empty() {
        format!("{ready} of {} are Ready, which is no majority", number(facts.nodes.len(), "node"))
    } else {
        listed(&away, "; ")
    };
    let next = "repair those first: `kubectl get nodes`".to_owned();
    Some(FailoverHold { rule: FailoverRule::Others, why, next })
}

fn operation(node: &TurnNode, record: &TurnRecord) -> Option<FailoverHold> {
    let hold = |why: String, next: &str| {
        Some(FailoverHold { rule: FailoverRule::Operation, why, next: next.to_owned() })
    };
    if let Some(mode) = &record.mode {
        let why = format!("the whole-site operation {} ({}) is under way", mode.kind, mode.id);
        return hold(why, "wait for it, or withdraw it: `zedbox site status`");
    }
    if let Some(value) = &node.out_of_service {
        let why = format!("node {} has the taint out-of-service of somebody already ({value})", node.name);
        let next = format!(
            "see who moves its work; this removes it: `kubectl taint node {} {OUT_OF_SERVICE}-`",
            node.name
        );
        return hold(why, &next);
    }
    let turn = record.holder(&node.name, &node.uid)?;
    match turn.phase {
        _ if turn.op == Op::K3sUpdate => hold(
            format!("its k3s is being updated (phase {})", turn.phase.text()),
            "wait until it is back: `zedbox lock status`",
        ),
        Phase::Granted | Phase::Cordoned | Phase::Failed | Phase::Emergency => None,
        Phase::Drained | Phase::GoingDown | Phase::Booted | Phase::Gate | Phase::Stranger(_) => hold(
            format!(
                "it was drained for its turn (phase {}): nothing of applications is on it",
                turn.phase.text()
            ),
            "wait until it is back: `zedbox lock status`",
        ),
    }
}

fn again(node: &TurnNode, facts: &FailoverFacts) -> Option<FailoverHold> {
    let last = lately(&facts.record, facts.now, AGAIN).rfind(|it| node.is_of(it));
    let of_day = lately(&facts.record, facts.now, DAY).count();
    let (why, next) = match last {
        Some(it) => (
            format!("node {} was failed over less than an hour ago, {}", node.name, it.when),
            "find out why it fails again before its work moves once more; wait until the hour is over",
        ),
        None if of_day >= MOST_A_DAY => (
            format!("{} were failed over within 24 hours", number(of_day, "node")),
            "look what they have in common: power, switch, disks; wait until the day is over",
        ),
        None => return None,
    };
    Some(FailoverHold { rule: FailoverRule::Again, why, next: next.to_owned() })
}
