//! What one node does for itself in a whole-site operation: a function of its own disk record, of what it reads in the
//! Lease, and of what it sees of itself. Asked again with the same facts it gives the same answer, so that it can be
//! cut off anywhere and begin again.
//!
//! The record goes to disk before anything follows from it; only then is it said in the Lease. Once the node has the
//! order of going on its disk, it needs the API no more. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use topics::{DeviceOp, SiteOperation};

use super::record::{Ack, NodeStep, SiteKind, SiteMember, SitePhase, SiteRecord};

/// How long a server that may go waits at most for those before it, and for an API that has fallen silent.
pub const GOING_LIMIT: Duration = Duration::from_secs(5 * 60);
/// How long a wall clock that is behind is waited for.
pub const CLOCK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// What a node that is back waits for while its own cordon is there.
const CORDON: &str = "its cordon to be removed behind the checks after boot";

/// Its Node object, and its boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnIdentity {
    pub node: String,
    pub uid: String,
    pub boot_id: String,
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

impl SiteFacts {
    /// What a node that is back waits for by itself, or empty.
    fn unready(&self) -> &str {
        if !self.clock.is_empty() && self.up < CLOCK_LIMIT { &self.clock } else { &self.etcd }
    }
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
    /// The newest drain that was over before the order.
    pub drains_before: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Next {
    /// What is to be on disk, first of all, but for its time; `None` for nothing. Until that is released, no drain begins,
    /// and no cordon is removed. Its `go` is the order to go down: with its pods, or where it is released behind a drain of
    /// its own like any other.
    pub disk: Option<SiteOperation>,
    pub cordon: bool,
    /// What is to be said in the Lease, if that says otherwise.
    pub say: Option<Ack>,
}

/// What this node does now, by the operation that is in the Lease, or why it cannot be read or used.
pub fn next(
    own: &OwnIdentity,
    disk: Option<&SiteOperation>,
    site: Result<&SiteRecord, &str>,
    facts: &SiteFacts,
) -> Next {
    match (site, disk) {
        (Err(_), None) => Next::default(),
        (Err(why), Some(disk)) => {
            Next { say: None, ..MemberState { own, facts, disk: disk.clone() }.alone(why) }
        }
        (Ok(site), disk) => {
            let Some(member) = site.member(&own.node, &own.uid) else { return Next::default() };
            let known = disk.filter(|it| it.id == site.id).cloned();
            let mut disk = known.unwrap_or_else(|| seen(own, member, site));
            site.phase.text().clone_into(&mut disk.phase);
            disk.by = format!("{}: {}", site.by.who, site.by.why);
            let node = MemberState { own, facts, disk };
            if site.kind == SiteKind::Restart { node.in_restart(site) } else { node.in_phase(site) }
        }
    }
}

/// What is on the disk of a node that has seen the operation, and no more.
fn seen(own: &OwnIdentity, member: &SiteMember, site: &SiteRecord) -> SiteOperation {
    let reboots = matches!(site.kind, SiteKind::Reboot | SiteKind::Restart);
    SiteOperation {
        id: site.id.clone(),
        op: if reboots { DeviceOp::Reboot } else { DeviceOp::Shutdown },
        step: NodeStep::Seen.text().to_owned(),
        boot_id: own.boot_id.clone(),
        server: member.is_server(),
        ..SiteOperation::default()
    }
}

/// This node in an operation, with what is on its disk.
struct MemberState<'a> {
    own: &'a OwnIdentity,
    facts: &'a SiteFacts,
    disk: SiteOperation,
}

impl MemberState<'_> {
    /// It came to this step in this boot.
    fn at(mut self, step: &NodeStep) -> Self {
        step.text().clone_into(&mut self.disk.step);
        self.disk.boot_id.clone_from(&self.own.boot_id);
        self
    }

    /// It stays as it is, says nothing, and waits for this, a sentence or empty.
    fn waits(self, waits: &str) -> Next {
        let disk = SiteOperation { go: false, waiting_for: waits.to_owned(), ..self.disk };
        Next { disk: Some(disk), ..Next::default() }
    }

    /// The same, and says how far it is.
    fn says(self, step: NodeStep, waits: &str) -> Next {
        let say = Some(self.ack(step, waits));
        Next { say, ..self.waits(waits) }
    }

    /// It goes down now.
    fn goes(self, step: NodeStep, waits: &str) -> Next {
        let mut next = self.says(step, waits);
        next.disk.iter_mut().for_each(|it| it.go = true);
        next
    }

    fn ack(&self, step: NodeStep, waits: &str) -> Ack {
        let OwnIdentity { node, uid, boot_id } = self.own.clone();
        Ack { node, uid, step, boot_id, leads: self.facts.leads, waits: waits.to_owned(), ..Ack::default() }
    }

    /// In a shutdown or reboot, from its beginning to its end.
    fn in_phase(mut self, site: &SiteRecord) -> Next {
        let is_later_boot = self.disk.boot_id != self.own.boot_id;
        let (server, cordoned) = (self.disk.server, self.facts.cordoned);
        match (NodeStep::from(self.disk.step.clone()), &site.phase) {
            (_, SitePhase::Uncordoning | SitePhase::Restoring) => {
                self.disk.released = true;
                let open = self.facts.open;
                if open { self.at(&NodeStep::Open).says(NodeStep::Open, "") } else { self.waits(CORDON) }
            }
            // Going is not said before it is on disk, and the disk is not asked again once it is.
            (NodeStep::Going, _) if !is_later_boot => self.going(),
            // It went, and this is a later boot. Power that is lost once a server has the order of going does the same as
            // going: whoever is up then waits for the others, and does not go once more.
            (NodeStep::Going | NodeStep::Ready, _) if is_later_boot => self.booted(),
            (NodeStep::Cordoned, SitePhase::ServersGoing) if is_later_boot && !server => self.booted(),
            (NodeStep::Booted, _) => self.booted(),
            (_, SitePhase::Announced) => self.says(NodeStep::Seen, ""),
            (_, SitePhase::WorkersGoing | SitePhase::ServersGoing) if !server && cordoned => self.going(),
            (_, SitePhase::ServersGoing) if cordoned => self.ordered(site),
            // It was gone past: it never went.
            (_, SitePhase::Starting) => self.at(&NodeStep::Booted).booted(),
            (
                step,
                SitePhase::Cordoning
                | SitePhase::Stopping
                | SitePhase::Detaching
                | SitePhase::WorkersGoing
                | SitePhase::ServersGoing,
            ) => self.cordoned(step),
            (_, SitePhase::Restarting | SitePhase::Stopped | SitePhase::Checking) => self.waits(""),
            (_, SitePhase::Stranger(word)) => {
                self.waits(&format!("an update of this node's software: it does not know the phase {word}"))
            }
        }
    }

    fn cordoned(self, step: NodeStep) -> Next {
        if !self.facts.cordoned {
            return Next { cordon: true, ..self.at(&step).says(NodeStep::Seen, "its cordon") };
        }
        let step = if step == NodeStep::Seen { NodeStep::Cordoned } else { step };
        self.at(&step).says(step, "")
    }

    /// A server once the servers go: it has their order on its disk.
    fn ordered(mut self, site: &SiteRecord) -> Next {
        self.disk.order.clone_from(&site.order);
        let has_order = |node: &str| {
            let step = site.step(node);
            matches!(step, Some(NodeStep::Ready | NodeStep::Going | NodeStep::Booted | NodeStep::Open))
        };
        let own = &self.own.node;
        let ready = |it: &String| it == own || self.facts.gone.contains(it) || has_order(it);
        // Said by itself before it counts on the others.
        let all_ready = has_order(own) && (site.is_passed() || site.order.iter().all(ready));
        self.disk.all_ready |= all_ready;
        self.in_order(None)
    }

    /// Whether it is this server's turn to go.
    fn in_order(self, silent: Option<&str>) -> Next {
        let (order, all_ready) = (&self.disk.order, self.disk.all_ready);
        let at = order.iter().position(|it| *it == self.own.node).unwrap_or(order.len());
        let (before, after) = (&order[..at], order.len().saturating_sub(at + 1));
        let are_gone = before.iter().all(|it| self.facts.gone.contains(it))
            || self.facts.peers.is_some_and(|it| it <= after);
        let late = self.facts.waited >= GOING_LIMIT;
        if all_ready && (are_gone || late) || silent.is_some() && late {
            return self.going();
        }
        let limit = GOING_LIMIT.as_secs() / 60;
        let waits = match (all_ready, silent) {
            (true, _) => format!("node {} to be off, at most {limit} min", before.join(", node ")),
            (false, None) => "all servers to have the order of going on their disks".to_owned(),
            (false, Some(why)) => format!("the Kubernetes API, at most {limit} min: {why}"),
        };
        self.at(&NodeStep::Ready).says(NodeStep::Ready, &waits)
    }

    fn going(self) -> Next {
        self.at(&NodeStep::Going).goes(NodeStep::Going, "this machine to go down")
    }

    /// It is back: its own checks come before it says so.
    fn booted(self) -> Next {
        match self.facts.unready() {
            "" => self.at(&NodeStep::Booted).says(NodeStep::Booted, "the other nodes"),
            waits => self.waits(waits),
        }
    }

    /// Nothing can be read in the Lease: what is on disk decides.
    fn alone(self, why: &str) -> Next {
        let waits = format!("the Kubernetes API: {why}");
        let is_later_boot = self.disk.boot_id != self.own.boot_id;
        let step = NodeStep::from(self.disk.step.clone());
        match (step, is_later_boot) {
            // A drain that has begun in a restart continues: it has its own rule for that.
            (NodeStep::Draining, false) => self.goes(NodeStep::Draining, &waits),
            (NodeStep::Draining, true) => self.at(&NodeStep::Booted).waits(&waits),
            _ if self.disk.released => self.waits(""),
            (NodeStep::Going, false) => self.going(),
            (NodeStep::Ready, false) => self.in_order(Some(why)),
            _ => self.waits(&waits),
        }
    }

    /// In a restart.
    fn in_restart(mut self, site: &SiteRecord) -> Next {
        // Nothing on disk, and no more in the Lease than whether it leads etcd.
        let only = |ack: Ack| Next { say: Some(ack), ..Next::default() };
        let Some(ack) = site.ack(&self.own.node) else { return only(self.ack(NodeStep::Seen, "")) };
        let leads = self.facts.leads;
        let is_this_boot = ack.boot_id == self.own.boot_id;
        // Nothing but its own drain holds it.
        self.disk.released = true;
        match &ack.step {
            // An order for no boot is none.
            NodeStep::Draining | NodeStep::Going if ack.boot_id.is_empty() => {
                only(self.ack(NodeStep::Seen, ""))
            }
            // Its order counts again once the cluster is well.
            NodeStep::Draining | NodeStep::Going if is_this_boot && site.phase != SitePhase::Restarting => {
                only(Ack { leads, waits: String::new(), ..ack.clone() })
            }
            NodeStep::Draining | NodeStep::Going if is_this_boot => {
                let reboot = &self.facts.reboot;
                if self.disk.step != NodeStep::Draining.text() {
                    self.disk.drains_before.clone_from(&reboot.drains_before);
                }
                let (step, waits) = match reboot {
                    it if !it.failed.is_empty() => (NodeStep::Failed, it.failed.as_str()),
                    it if it.commanded => (NodeStep::Going, "this machine to go down"),
                    it => (NodeStep::Draining, it.waits.as_str()),
                };
                self.at(&NodeStep::Draining).goes(step, waits)
            }
            NodeStep::Draining | NodeStep::Going | NodeStep::Booted => {
                let waits = match self.facts.unready() {
                    "" if self.facts.open => "",
                    "" => CORDON,
                    waits => waits,
                };
                let step = if waits.is_empty() { NodeStep::Open } else { NodeStep::Booted };
                self.at(&NodeStep::Booted).says(step, waits)
            }
            NodeStep::Seen => only(Ack { boot_id: self.own.boot_id.clone(), leads, ..ack.clone() }),
            // Its turn is over: what it says of that is about the boot of then.
            NodeStep::Cordoned
            | NodeStep::Ready
            | NodeStep::Open
            | NodeStep::Verifying
            | NodeStep::Done
            | NodeStep::Skipped
            | NodeStep::Failed
            | NodeStep::Stranger(_) => only(Ack { leads, ..ack.clone() }),
        }
    }
}
