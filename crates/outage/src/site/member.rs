//! What one node does for itself in a whole-site operation: a function of its own disk record, of what it reads in the
//! Lease, and of what it sees of itself. Asked again with the same facts it gives the same answer, so that it can be
//! cut off anywhere and begin again.
//!
//! The record goes to disk before anything follows from it; only then is it said in the Lease. Once the node has the
//! order of going on its disk, it needs the API no more. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use super::record::{NodeStep, SiteKind, SiteMember, SitePhase, SiteRecord};

/// How long a server that may go waits at most for those before it, and for an API that has fallen silent.
pub const GOING_LIMIT: Duration = Duration::from_secs(5 * 60);
/// How long a wall clock that is behind is waited for.
pub const CLOCK_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Its Node object, and its boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnIdentity {
    pub node: String,
    pub uid: String,
    pub boot_id: String,
}

/// What is on its own disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalSite {
    pub id: String,
    pub kind: SiteKind,
    pub step: NodeStep,
    /// The boot in which it came so far.
    pub boot_id: String,
    pub server: bool,
    /// The servers in the order in which they go.
    pub order: Vec<String>,
    /// All of them have that order.
    pub all_ready: bool,
    /// The Lease says that the site is up again: the node needs no cordon any more.
    pub released: bool,
}

impl LocalSite {
    fn of(site: &SiteRecord, own: &OwnIdentity, member: &SiteMember, step: NodeStep) -> Self {
        Self {
            id: site.id.clone(),
            kind: site.kind.clone(),
            step,
            boot_id: own.boot_id.clone(),
            server: member.is_server(),
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseReading {
    /// Nothing: no answer, or one that cannot be used; why.
    Silent(String),
    Over,
    Site(Box<SiteRecord>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteFacts {
    /// It is cordoned, by whomever.
    pub cordoned: bool,
    /// It carries no cordon of ours.
    pub open: bool,
    pub leads: bool,
    /// Why the wall clock is not to be trusted, or empty.
    pub clock: String,
    /// Why its own etcd is not ready, or empty.
    pub etcd: String,
    /// How many members of etcd are connected to its own; `None` where that is not known.
    pub peers: Option<usize>,
    /// Nodes that are seen to be off, or to have been.
    pub gone: BTreeSet<String>,
    /// How long it has waited since it could go, or since the API fell silent, in this run.
    pub waited: Duration,
    /// How long this run has lasted.
    pub up: Duration,
    /// Of a restart: how the reboot of the machine is.
    pub reboot: Reboot,
}

/// How the reboot that was ordered of this machine is, in this boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reboot {
    /// It is commanded: only a boot ends it any more.
    pub commanded: bool,
    /// Why its drain has failed, or empty.
    pub failed: String,
    /// What it waits for, or empty.
    pub waits: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Next {
    /// What is to be on disk, first of all; `None` for nothing. Until that is released, no drain begins, and no cordon is removed.
    pub local: Option<LocalSite>,
    pub cordon: bool,
    /// It goes down now: with its pods, or where it is released behind a drain of its own like any other.
    pub go: bool,
    /// What is to be said in the Lease, if that says otherwise: how far it is.
    pub say: Option<NodeStep>,
    /// What it waits for, a sentence or empty.
    pub waits: String,
}

impl Next {
    fn kept(local: LocalSite, say: Option<NodeStep>, waits: impl Into<String>) -> Self {
        Self { local: Some(local), say, waits: waits.into(), ..Self::default() }
    }
}

/// What this node does now.
pub fn next(own: &OwnIdentity, local: Option<&LocalSite>, word: &LeaseReading, facts: &SiteFacts) -> Next {
    match (word, local) {
        (LeaseReading::Over, _) | (LeaseReading::Silent(_), None) => Next::default(),
        (LeaseReading::Silent(why), Some(local)) => Next { say: None, ..alone(own, local, why, facts) },
        (LeaseReading::Site(site), local) => {
            let Some(member) = site.member(&own.node, &own.uid) else { return Next::default() };
            if site.kind == SiteKind::Restart {
                return of_restart(own, member, site, facts);
            }
            let known = local.filter(|it| it.id == site.id).cloned();
            let local = known.unwrap_or_else(|| LocalSite::of(site, own, member, NodeStep::Seen));
            with_site(own, local, site, facts)
        }
    }
}

/// It went, and this is a later boot. Power that is lost once a server has the order of going does the same as going:
/// whoever is up then waits for the others, and does not go once more.
fn is_back(own: &OwnIdentity, local: &LocalSite) -> bool {
    matches!(local.step, NodeStep::Ready | NodeStep::Going) && local.boot_id != own.boot_id
}

fn with_site(own: &OwnIdentity, mut local: LocalSite, site: &SiteRecord, facts: &SiteFacts) -> Next {
    if site.phase.is_up_again() {
        local.released = true;
        if facts.open {
            local.step = NodeStep::Open;
        }
        let say = facts.open.then_some(NodeStep::Open);
        let waits = if facts.open { "" } else { "its cordon to be removed behind the checks after boot" };
        return Next::kept(local, say, waits);
    }
    // Going is not said before it is on disk, and the disk is not asked again once it is.
    if local.step == NodeStep::Going && !is_back(own, &local) {
        return going(local);
    }
    if is_back(own, &local) || local.step == NodeStep::Booted {
        return booted(own, local, facts);
    }
    let late = site.phase == SitePhase::ServersGoing && local.step == NodeStep::Cordoned;
    if late && !local.server && local.boot_id != own.boot_id {
        return booted(own, local, facts);
    }
    match site.phase {
        SitePhase::Announced => Next::kept(local, Some(NodeStep::Seen), ""),
        SitePhase::WorkersGoing | SitePhase::ServersGoing if !local.server && facts.cordoned => {
            go(own, local)
        }
        SitePhase::ServersGoing if facts.cordoned => server(own, local, site, facts),
        SitePhase::Starting => {
            // It was gone past: it never went.
            local.step = NodeStep::Booted;
            local.boot_id.clone_from(&own.boot_id);
            booted(own, local, facts)
        }
        SitePhase::Cordoning
        | SitePhase::Stopping
        | SitePhase::Detaching
        | SitePhase::WorkersGoing
        | SitePhase::ServersGoing => cordoned(own, local, facts),
        SitePhase::Uncordoning
        | SitePhase::Restoring
        | SitePhase::Restarting
        | SitePhase::Stopped
        | SitePhase::Checking => Next::kept(local, None, ""),
        SitePhase::Stranger(ref word) => {
            let waits = format!("an update of this node's software: it does not know the phase {word}");
            Next::kept(local, None, waits)
        }
    }
}

fn cordoned(own: &OwnIdentity, mut local: LocalSite, facts: &SiteFacts) -> Next {
    local.boot_id.clone_from(&own.boot_id);
    if !facts.cordoned {
        return Next { cordon: true, ..Next::kept(local, Some(NodeStep::Seen), "its cordon") };
    }
    if local.step == NodeStep::Seen {
        local.step = NodeStep::Cordoned;
    }
    let step = local.step.clone();
    Next::kept(local, Some(step), "")
}

/// A server once the servers go.
fn server(own: &OwnIdentity, mut local: LocalSite, site: &SiteRecord, facts: &SiteFacts) -> Next {
    local.order.clone_from(&site.order);
    local.step = NodeStep::Ready;
    let has_order =
        |it: &NodeStep| matches!(it, NodeStep::Ready | NodeStep::Going | NodeStep::Booted | NodeStep::Open);
    let ready = |node: &String| {
        *node == own.node || facts.gone.contains(node) || site.step(node).is_some_and(has_order)
    };
    // Said by itself before it counts on the others.
    let said = site.step(&own.node).is_some_and(has_order);
    local.all_ready |= said && (site.is_passed() || local.order.iter().all(ready));
    in_order(own, local, None, facts)
}

/// Nothing can be read in the Lease: what is on disk decides.
fn alone(own: &OwnIdentity, local: &LocalSite, why: &str, facts: &SiteFacts) -> Next {
    if local.step == NodeStep::Draining {
        return alone_in_restart(own, local, why);
    }
    let local = local.clone();
    if local.released {
        return Next::kept(local, None, "");
    }
    if local.step == NodeStep::Going && !is_back(own, &local) {
        return going(local);
    }
    if local.step == NodeStep::Ready && !is_back(own, &local) {
        return in_order(own, local, Some(why), facts);
    }
    Next::kept(local, None, format!("the Kubernetes API: {why}"))
}

/// Whether it is this server's turn to go.
fn in_order(own: &OwnIdentity, mut local: LocalSite, silent: Option<&str>, facts: &SiteFacts) -> Next {
    local.boot_id.clone_from(&own.boot_id);
    let at = local.order.iter().position(|it| *it == own.node).unwrap_or(local.order.len());
    let before = &local.order[..at];
    let after = local.order.len().saturating_sub(at + 1);
    let are_gone =
        before.iter().all(|it| facts.gone.contains(it)) || facts.peers.is_some_and(|it| it <= after);
    let late = facts.waited >= GOING_LIMIT;
    if local.all_ready && (are_gone || late) || silent.is_some() && late {
        return go(own, local);
    }
    let limit = GOING_LIMIT.as_secs() / 60;
    let waits = match (local.all_ready, silent) {
        (true, _) => format!("node {} to be off, at most {limit} min", before.join(", node ")),
        (false, None) => "all servers to have the order of going on their disks".to_owned(),
        (false, Some(why)) => format!("the Kubernetes API, at most {limit} min: {why}"),
    };
    Next::kept(local, silent.is_none().then_some(NodeStep::Ready), waits)
}

fn go(own: &OwnIdentity, mut local: LocalSite) -> Next {
    local.step = NodeStep::Going;
    local.boot_id.clone_from(&own.boot_id);
    going(local)
}

fn going(local: LocalSite) -> Next {
    let waits = "this machine to go down";
    Next { go: true, ..Next::kept(local, Some(NodeStep::Going), waits) }
}

/// What this node does for itself in a restart.
fn of_restart(own: &OwnIdentity, member: &SiteMember, site: &SiteRecord, facts: &SiteFacts) -> Next {
    let says = |step: &NodeStep| Next { say: Some(step.clone()), ..Next::default() };
    let Some(ack) = site.ack(&own.node) else { return says(&NodeStep::Seen) };
    // Nothing but its own drain holds it.
    let at = |step| LocalSite { released: true, ..LocalSite::of(site, own, member, step) };
    match &ack.step {
        // An order for no boot is none.
        NodeStep::Draining | NodeStep::Going if ack.boot_id.is_empty() => says(&NodeStep::Seen),
        // Its order counts again once the cluster is well.
        step @ (NodeStep::Draining | NodeStep::Going)
            if ack.boot_id == own.boot_id && site.phase != SitePhase::Restarting =>
        {
            says(step)
        }
        NodeStep::Draining | NodeStep::Going if ack.boot_id == own.boot_id => {
            let (step, waits) = match &facts.reboot {
                it if !it.failed.is_empty() => (NodeStep::Failed, it.failed.clone()),
                it if it.commanded => (NodeStep::Going, "this machine to go down".to_owned()),
                it => (NodeStep::Draining, it.waits.clone()),
            };
            Next { go: true, ..Next::kept(at(NodeStep::Draining), Some(step), waits) }
        }
        NodeStep::Draining | NodeStep::Going | NodeStep::Booted => {
            let waits = match unready(facts) {
                "" if facts.open => "",
                "" => "its cordon to be removed behind the checks after boot",
                waits => waits,
            };
            let step = if waits.is_empty() { NodeStep::Open } else { NodeStep::Booted };
            Next::kept(at(NodeStep::Booted), Some(step), waits)
        }
        // Its turn is over or has not come: it says who leads, and nothing else.
        step @ (NodeStep::Seen
        | NodeStep::Cordoned
        | NodeStep::Ready
        | NodeStep::Open
        | NodeStep::Verifying
        | NodeStep::Done
        | NodeStep::Skipped
        | NodeStep::Failed
        | NodeStep::Stranger(_)) => Next { waits: ack.waits.clone(), ..says(step) },
    }
}

/// The same in a restart: a drain that has begun continues: it has its own rule for that.
fn alone_in_restart(own: &OwnIdentity, local: &LocalSite, why: &str) -> Next {
    let waits = format!("the Kubernetes API: {why}");
    if local.boot_id == own.boot_id {
        return Next { go: true, ..Next::kept(local.clone(), None, waits) };
    }
    let local = LocalSite { step: NodeStep::Booted, boot_id: own.boot_id.clone(), ..local.clone() };
    Next::kept(local, None, waits)
}

/// What a node that is back waits for by itself, or empty.
fn unready(facts: &SiteFacts) -> &str {
    if !facts.clock.is_empty() && facts.up < CLOCK_LIMIT { &facts.clock } else { &facts.etcd }
}

/// It is back: its own checks come before it says so.
fn booted(own: &OwnIdentity, mut local: LocalSite, facts: &SiteFacts) -> Next {
    let waits = unready(facts);
    if !waits.is_empty() {
        return Next::kept(local, None, waits);
    }
    local.step = NodeStep::Booted;
    local.boot_id.clone_from(&own.boot_id);
    Next::kept(local, Some(NodeStep::Booted), "the other nodes")
}
