//! Who may enter, whom that waits for, and whose turn may be taken over: functions of one reading.
//!
//! Not here: when to read, and how long a fact has been seen (`core`). No age, no wall clock and no sign of
//! life ends a turn. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;

use kubeapi::nodes::CordonAnnotation;
use step::{Fault, SmallSort as _, planted};

use super::pulses::Pulse;
use super::record::{
    Class, DeclaredNode, EarlierGrant, FENCE_MOST, Fence, ForcedRelease, Holder, Op, TurnRecord, Waiter,
};

/// Annotation of a Node: an operator says that it is away and does not count. Not honoured for an etcd member.
pub const IGNORE_ANNOTATION: &str = "pillar-rs/outage-ignore";

/// The command that shows who holds a turn, who waits, and what a person can do about it.
pub const LOCK_STATUS: &str = "zedbox lock status";

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Me {
    pub node: String,
    pub uid: String,
    pub boot_id: String,
    /// It is a control-plane node or an etcd member.
    pub server: bool,
}

impl Me {
    /// One that waits, as another node sees it.
    pub fn of(waiter: &Waiter) -> Self {
        let server = !matches!(waiter.class, Class::Worker);
        Self { node: waiter.node.clone(), uid: waiter.node_uid.clone(), boot_id: String::new(), server }
    }

    /// Whether this is our Node object.
    pub fn is(&self, name: &str, uid: &str) -> bool {
        self.node == name && self.uid == uid
    }
}

/// What our cordon on a Node says about the turn it was made in; one of a version without turns says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CordonMark {
    pub fence: Fence,
    pub lease_uid: String,
    /// The boot in which the cordon was made.
    pub boot_id: String,
}

impl CordonMark {
    /// What `cordon` says; `None` where it was made in no turn that a Lease of ours can have granted.
    pub fn of(cordon: CordonAnnotation) -> Option<Self> {
        let CordonAnnotation { fence, lease_uid, boot_id, .. } = cordon;
        let is_ours = (1..=FENCE_MOST).contains(&fence) && !lease_uid.is_empty();
        is_ours.then_some(Self { fence, lease_uid, boot_id })
    }

    /// The turn that it was made in.
    pub fn grant(&self) -> EarlierGrant {
        EarlierGrant { fence: self.fence, lease_uid: self.lease_uid.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub struct TurnNode {
    pub name: String,
    pub uid: String,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// It carries no workloads and is cordoned for good.
    pub tie_breaker: bool,
    /// It has a role label of the control plane or of etcd.
    pub server: bool,
    pub etcd: bool,
    /// What its kubelet's lease shows on the reader's own clock.
    pub pulse: Pulse,
    pub being_deleted: bool,
    /// The value of its taint `node.kubernetes.io/out-of-service`.
    pub out_of_service: Option<String>,
    /// It has [`IGNORE_ANNOTATION`].
    pub ignored: bool,
    /// Its agent says that it neither has nor wants a turn.
    pub idle: bool,
    pub mark: Option<CordonMark>,
}

impl TurnNode {
    /// Whether `entry` is of this Node object.
    pub fn is_of(&self, entry: &DeclaredNode) -> bool {
        entry.node == self.name && entry.node_uid == self.uid
    }

    /// Whether it, which is of `entry`, reports the boot that is to be dead.
    pub fn is_in_dead_boot(&self, entry: &DeclaredNode) -> bool {
        entry.boot_id.is_empty() || self.boot_id.is_empty() || entry.boot_id == self.boot_id
    }

    pub fn is_tainted_by(&self, entry: &DeclaredNode) -> bool {
        self.is_of(entry) && self.out_of_service.as_ref() == Some(&entry.mark())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    pub node: String,
    /// It is a control-plane node or an etcd member.
    pub server: bool,
    pub fence: Option<Fence>,
    /// Nothing is wrong with it but that somebody has cordoned it.
    pub cordoned: bool,
    /// Why it counts, a sentence without a full stop.
    pub why: String,
}

step::named! {
    /// The rule that makes a node wait.
    pub enum TurnRule {
        /// Nothing has been read yet.
        Reading = "reading",
        Api = "api",
        /// The record is unusable or of a newer version.
        Record = "record",
        /// The preflight of this node's drain is not done, or has found what keeps it from starting.
        Preflight = "preflight",
        /// The last attempt failed; the next one comes after a pause.
        Retry = "retry",
        /// A whole-cluster operation is in progress, or waits for other nodes to be ordered what this one is.
        Mode = "mode",
        NotListed = "not-listed",
        /// As many nodes hold a turn as may.
        Holder = "holder",
        /// Another control-plane node is down.
        Server = "server",
        /// As many nodes are down as may.
        Down = "down",
        /// The same, and those nodes are up: somebody has cordoned them.
        Cordoned = "cordoned",
        /// Others are first in the queue.
        Order = "order",
        /// etcd needs this node for its quorum, or that is not known.
        Margin = "margin",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnRefusal {
    pub rule: TurnRule,
    pub nodes: Vec<String>,
    pub why: String,
    /// What an operator can type.
    pub next: String,
}

impl TurnRefusal {
    pub fn new(rule: TurnRule, nodes: Vec<String>, why: impl Into<String>, next: &str) -> Self {
        Self { rule, nodes, why: why.into(), next: next.to_owned() }
    }
}

/// Why a turn may be taken over; there is no other reason but an operator's release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TakeoverProof {
    /// No node of that name and UID is in the list.
    Gone,
    /// It is healthy, not cordoned by us, and its agent says that it is in no turn.
    Idle,
}

/// The nodes other than `me` that are down or count as such (the set D); all of them for a reader that is no node.
pub fn down(me: Option<&Me>, record: &TurnRecord, nodes: &[TurnNode]) -> Vec<Down> {
    let is_me = |name: &str, uid: &str| me.is_some_and(|me| name == me.node && uid == me.uid);
    let held = record.holders.iter().filter(|it| !is_me(&it.node, &it.node_uid)).map(|it| Down {
        node: it.node.clone(),
        server: it.server || nodes.iter().any(|node| node.name == it.node && node.server),
        fence: Some(it.fence),
        cordoned: false,
        why: format!(
            "node {} holds a turn ({}, phase {}, fence {})",
            it.node,
            it.op.text(),
            it.phase.text(),
            it.fence
        ),
    });
    let seen = nodes.iter().filter(|it| me.is_none_or(|me| it.name != me.node)).filter_map(|it| {
        let counted = !it.ignored || it.etcd;
        let why = away(it).filter(|_| counted && !record.holders.iter().any(|held| held.node == it.name))?;
        let (node, cordoned) = (it.name.clone(), why == CORDONED && it.mark.is_none());
        let why = format!("node {} {why}", it.name);
        Some(Down { node, server: it.server || it.etcd, fence: None, cordoned, why })
    });
    held.chain(seen).collect()
}

/// Why a node that is up counts as down.
const CORDONED: &str = "is cordoned";

/// Why a node that holds nothing counts as down.
fn away(node: &TurnNode) -> Option<&'static str> {
    // The tie-breaker is cordoned for good; only our mark makes an outage of that.
    let cordoned = node.unschedulable && (!node.tie_breaker || node.mark.is_some());
    [
        (node.being_deleted, "is being deleted"),
        (node.out_of_service.is_some(), "has the taint node.kubernetes.io/out-of-service"),
        (!node.ready, "is not Ready"),
        (node.pulse == Pulse::Still, "has shown no sign of life for 40 s"),
        (cordoned, CORDONED),
    ]
    .into_iter()
    .find_map(|(is, why)| is.then_some(why))
}

/// The nodes beside `me` that look healthy and of which nobody knows yet whether they are: no kubelet's lease says anything at
/// the first reading, and a machine that is off looks Ready for 40 s.
pub fn unseen(me: &Me, record: &TurnRecord, nodes: &[TurnNode]) -> Vec<String> {
    let counted = |it: &&TurnNode| it.name != me.node && (!it.ignored || it.etcd) && away(it).is_none();
    let holds = |it: &TurnNode| record.holder(&it.name, &it.uid).is_some();
    let unseen = nodes.iter().filter(counted).filter(|it| it.pulse == Pulse::Unknown && !holds(it));
    unseen.map(|it| it.name.clone()).collect()
}

/// Why a turn that no Lease has any more does not become ours again: others hold one by now.
pub fn taken(me: &Me, record: &TurnRecord) -> Option<String> {
    let others = down(Some(me), record, &[]);
    let full = u32::try_from(others.len()).unwrap_or(u32::MAX) >= record.limit;
    let other = others.iter().find(|it| full || me.server && it.server)?;
    Some(format!("the Lease does not have our turn any more, and {}", other.why))
}

/// The place of a waiter among the classes: lower goes first. For a k3s update servers go first, as a kubelet must not
/// be newer than the API server; else workers do. Of servers the etcd leader goes last.
pub fn rank(waiter: &Waiter) -> u8 {
    match &waiter.class {
        Class::Worker if waiter.op == Op::K3sUpdate => 5,
        Class::Worker => 1,
        Class::TieBreaker => 2,
        Class::Follower => 3,
        Class::Leader | Class::Stranger(_) => 4,
    }
}

/// The queue in the order of turns.
pub fn order(record: &TurnRecord) -> Vec<&Waiter> {
    let mut ordered: Vec<&Waiter> = record.queue.iter().collect();
    ordered.order_by_key(|it| rank(it));
    ordered
}

/// Those before `mine`, in order. A node that is not in the queue is last of its class.
pub fn ahead<'a>(record: &'a TurnRecord, mine: &Waiter) -> Vec<&'a Waiter> {
    let queue = &record.queue;
    let queued = queue.iter().position(|it| it.node == mine.node);
    let before = |(at, it): (usize, &Waiter)| {
        it.node != mine.node && (rank(it), at) < (rank(mine), queued.unwrap_or(usize::MAX))
    };
    let mut first: Vec<(usize, &Waiter)> = queue.iter().enumerate().filter(|it| before(*it)).collect();
    first.order_by_key(|(at, it)| (rank(it), *at));
    first.into_iter().map(|(_, it)| it).collect()
}

/// Whether this node is the only one of the cluster: nothing is to be protected from its absence.
pub fn is_alone(me: &Me, nodes: &[TurnNode]) -> bool {
    matches!(nodes, [one] if one.name == me.node && one.uid == me.uid)
}

/// Whether `me` may enter: the whole rule but for the record's version, which the write must name. `mine` is its place
/// in the queue, or the one it would take; `passed` are waiters that left an open grant for too long.
/// Errors: [`TurnRefusal`]: the first rule that does not hold.
pub fn may_enter(
    me: &Me,
    mine: &Waiter,
    record: &TurnRecord,
    nodes: &[TurnNode],
    passed: &BTreeSet<String>,
    margin: &Result<(), String>,
) -> Result<(), TurnRefusal> {
    let down = may_be_down(me, record, nodes)?;
    if is_alone(me, nodes) {
        return Ok(());
    }
    let absent = |it: &Waiter| !nodes.iter().any(|node| node.name == it.node && node.uid == it.node_uid);
    let may_skip = |it: &Waiter| {
        passed.contains(&it.node) || absent(it) || down.iter().any(|other| other.node == it.node)
    };
    if let Some(first) = ahead(record, mine).into_iter().find(|it| !may_skip(it)) {
        return Err(TurnRefusal {
            rule: TurnRule::Order,
            nodes: vec![first.node.clone()],
            why: format!("node {} ({}) is before this node in the queue", first.node, first.class.text()),
            next: LOCK_STATUS.to_owned(),
        });
    }
    let unseen = unseen(me, record, nodes);
    if !unseen.is_empty() {
        let why = format!(
            "waits until the kubelet of {} renews its lease, or has not done so for 40 s",
            kubeapi::names::listed(&unseen, ", ")
        );
        return Err(TurnRefusal {
            rule: TurnRule::Reading,
            nodes: unseen,
            why,
            next: "kubectl -n kube-node-lease get leases".to_owned(),
        });
    }
    margin.clone().map_err(|why| TurnRefusal {
        rule: TurnRule::Margin,
        nodes: Vec::new(),
        why: format!("the cluster cannot spare this node: {why}"),
        // What this node has read itself is on no page of another one.
        next: "make all members of etcd healthy: kubectl describe nodes -l node-role.kubernetes.io/etcd"
            .to_owned(),
    })
}

/// Whether the number of nodes that are down allows one more, `me`; those that are down and do not prevent it.
fn may_be_down(me: &Me, record: &TurnRecord, nodes: &[TurnNode]) -> Result<Vec<Down>, TurnRefusal> {
    let refuse = |rule, down: &[&Down], why: String, next: String| {
        Err(TurnRefusal { rule, nodes: down.iter().map(|it| it.node.clone()).collect(), why, next })
    };
    if !nodes.iter().any(|it| it.name == me.node && it.uid == me.uid) {
        let why = format!("the cluster has no node {} with UID {}", me.node, me.uid);
        return refuse(TurnRule::NotListed, &[], why, format!("kubectl get node {} -o yaml", me.node));
    }
    if let Some(mode) = record.mode.as_ref().filter(|it| !it.keeps_turns()) {
        let why = format!("the whole-cluster operation {} ({}) is in progress", mode.kind, mode.id);
        return refuse(TurnRule::Mode, &[], why, LOCK_STATUS.to_owned());
    }
    if is_alone(me, nodes) {
        return Ok(Vec::new());
    }
    let down = down(Some(me), record, nodes);
    let servers: Vec<&Down> = down.iter().filter(|it| me.server && it.server).collect();
    let full = u32::try_from(down.len()).unwrap_or(u32::MAX) >= record.limit;
    let (in_the_way, limit) = match (servers.is_empty(), full) {
        (true, false) => return Ok(down),
        (false, _) => (servers, "only one control-plane node may be down".to_owned()),
        (true, true) => (down.iter().collect(), format!("{} may be down at once", record.limit)),
    };
    let whys: Vec<String> = in_the_way.iter().map(|it| it.why.clone()).collect();
    let why = format!("{}; {limit}", kubeapi::names::listed(&whys, "; "));
    if in_the_way.iter().any(|it| it.fence.is_some()) {
        // How to end a turn that stays is said there, with the condition on which it is safe.
        return refuse(TurnRule::Holder, &in_the_way, why, LOCK_STATUS.to_owned());
    }
    let rule =
        if me.server && in_the_way.iter().all(|it| it.server) { TurnRule::Server } else { TurnRule::Down };
    // Whoever is really away is named first: an uncordon alone would not help.
    if let Some(away) = in_the_way.iter().find(|it| !it.cordoned) {
        return refuse(rule, &in_the_way, why, format!("kubectl describe node {}", away.node));
    }
    let names: Vec<&str> = in_the_way.iter().map(|it| it.node.as_str()).collect();
    let next = format!("kubectl uncordon {}", names.join(" "));
    refuse(TurnRule::Cordoned, &in_the_way, why, next)
}

/// Whether `waiter` could enter as far as another node can see: everything but its own margin.
pub fn is_open_for(waiter: &Waiter, record: &TurnRecord, nodes: &[TurnNode]) -> bool {
    may_be_down(&Me::of(waiter), record, nodes).is_ok()
}

/// Why the turn of `holder` may be taken over, as far as one reading can show it. It must show it again a minute later.
pub fn proof(holder: &Holder, nodes: &[TurnNode]) -> Option<TakeoverProof> {
    let Some(node) = nodes.iter().find(|it| it.name == holder.node && it.uid == holder.node_uid) else {
        return Some(TakeoverProof::Gone);
    };
    if planted(Fault::TurnExpiry) {
        return Some(TakeoverProof::Idle);
    }
    let healthy = node.ready && node.pulse != Pulse::Still && node.mark.is_none();
    // Healthy alone is not enough: so is a node that has just got its turn, or is behind its gate after a boot.
    (healthy && node.idle).then_some(TakeoverProof::Idle)
}

/// Why a word of an operator is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorRefusal {
    #[error(
        "node {node} does not hold a turn with fence {fence}; current holders: {current}; look again: zedbox lock status"
    )]
    Stale { node: String, fence: Fence, current: String },
    #[error("a release needs a reason: add --reason '...'")]
    NoReason,
    #[error("the limit is at least 1: zedbox lock limit 1")]
    Limit,
    /// A whole-site operation says no, in words.
    #[error("{0}")]
    Site(String),
    /// So does what is known of declared nodes.
    #[error("{0}")]
    Failover(String),
    #[error(
        "node {0} is a member of etcd and always counts; delete the node if it is gone for good: kubectl delete node {0}"
    )]
    Member(String),
}

/// The record after an operator released the turn of `forced.node` with `forced.fence`.
/// Errors: [`OperatorRefusal::Stale`] when that node does not hold with that fence, [`OperatorRefusal::NoReason`].
pub fn release(record: &TurnRecord, mut forced: ForcedRelease) -> Result<TurnRecord, OperatorRefusal> {
    if forced.why.trim().is_empty() {
        return Err(OperatorRefusal::NoReason);
    }
    let named = |it: &Holder| it.node == forced.node && it.fence == forced.fence;
    let Some(holder) = record.holders.iter().find(|it| named(it)) else {
        let holders = record.holders.iter().map(|it| format!("{} (fence {})", it.node, it.fence));
        let current: Vec<String> = holders.collect();
        let current = if current.is_empty() { "none".to_owned() } else { current.join(", ") };
        return Err(OperatorRefusal::Stale { node: forced.node, fence: forced.fence, current });
    };
    forced.node_uid.clone_from(&holder.node_uid);
    forced.earlier.clone_from(&holder.earlier);
    let mut record = record.clone();
    record.holders.retain(|it| it.node != forced.node || it.fence != forced.fence);
    record.remember(forced);
    Ok(record)
}

/// The record with another limit. A lower one ends no turn: nobody enters until there is room.
/// Errors: [`OperatorRefusal::Limit`] for 0.
pub fn with_limit(record: &TurnRecord, limit: u32) -> Result<TurnRecord, OperatorRefusal> {
    if limit == 0 { Err(OperatorRefusal::Limit) } else { Ok(TurnRecord { limit, ..record.clone() }) }
}

/// Whether an operator may say that `node` is away and does not count.
/// Errors: [`OperatorRefusal::Member`].
pub fn may_ignore(node: &TurnNode) -> Result<(), OperatorRefusal> {
    if node.etcd { Err(OperatorRefusal::Member(node.name.clone())) } else { Ok(()) }
}
