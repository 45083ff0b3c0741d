//! What one node does for all in a whole-site operation: the next phase, or what it waits for.
//!
//! Any number of nodes may do it at once: each write names the version that it was decided on, and each act on an
//! application is done once. Time alone moves only the way up, where a node may never come. Pure: no clock, no
//! I/O, no task.

use kubeapi::machines::room;
use kubeapi::names::listed;

use super::record::{
    self, MachineAction, MachineWork, Machines, NodeStep, SiteKind, SiteMember, SitePhase, SiteRecord,
};
use super::record::{CANCEL, Move, NODE_LIMIT, PhaseReadings, is_alive, may_coordinate, node_of, pass_step};
use super::restart;
use crate::turn::rule::TurnNode;

/// Whether this node is off, or was since it said something last.
pub fn is_gone(site: &SiteRecord, member: &SiteMember, nodes: &[TurnNode]) -> bool {
    let Some(node) = node_of(member, nodes) else { return true };
    let ack = site.ack(&member.node);
    let other_boot = ack
        .is_some_and(|it| !node.boot_id.is_empty() && !it.boot_id.is_empty() && it.boot_id != node.boot_id);
    !is_alive(member, nodes) || other_boot || site.is_back(&member.node)
}

/// Whether this node works for all: the first by name of the servers that are there and do not go, or of all nodes
/// where there is no server.
pub fn is_coordinator(node: &str, site: &SiteRecord, nodes: &[TurnNode]) -> bool {
    site.nodes.iter().map(|it| it.node.as_str()).filter(|it| may_coordinate(it, site, nodes)).min()
        == Some(node)
}

pub fn next(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    match &site.phase {
        SitePhase::Announced => all_said(site, &NodeStep::Seen, SitePhase::Cordoning),
        SitePhase::Cordoning => all_said(site, &NodeStep::Cordoned, SitePhase::Stopping),
        SitePhase::Stopping => stopping(site, found),
        SitePhase::Detaching if found.blocking.is_empty() || site.is_passed() => {
            to(site, SitePhase::WorkersGoing)
        }
        SitePhase::Detaching => Move::Wait(
            format!("volumes to be detached: {}", listed(&found.blocking, ", ")),
            format!("kubectl get volumeattachments; or leave them attached: {}", pass_step(site)),
        ),
        SitePhase::WorkersGoing => workers(site, nodes),
        SitePhase::ServersGoing => servers(site, nodes),
        SitePhase::Starting => starting(site, nodes, found),
        SitePhase::Uncordoning => uncordoning(site, nodes, found),
        SitePhase::Restoring => restoring(site, found),
        SitePhase::Restarting => restart::next(site, nodes, found),
        SitePhase::Checking => restart::checking(site, found),
        SitePhase::Stopped => Move::Wait(site.waits.clone(), site.next.clone()),
        SitePhase::Stranger(word) => Move::Wait(
            format!("a node with newer software: this version does not know the phase {word}"),
            "update the software of this node".to_owned(),
        ),
    }
}

/// Machines first, and only then what their guests may need.
fn stopping(site: &SiteRecord, found: &PhaseReadings) -> Move {
    if !site.leave_machines && !site.is_passed() {
        let work = kubeapi::machines::stops(&site.id, "", &found.machines.all);
        if let Some(machines) = record::noted(&site.machines, &work) {
            return Move::To(Box::new(SiteRecord { machines, ..site.clone() }));
        }
        if !work.is_empty() {
            return Move::Machines(work);
        }
        if !found.machines.guests.is_empty() {
            return guests(site, &found.machines);
        }
    }
    if found.work.is_empty() { to(site, SitePhase::Detaching) } else { Move::Scale(found.work.clone()) }
}

fn guests(site: &SiteRecord, machines: &Machines) -> Move {
    let waits = format!("virtual machines to be off: {}", listed(&machines.guests, ", "));
    let (waits, own) = match machines.loose.first() {
        None => (waits, "kubectl get vmi -A shows how far they are".to_owned()),
        Some(first) => {
            let (namespace, name) = first.split_once('/').unwrap_or_default();
            let loose = listed(&machines.loose, ", ");
            (
                format!("{waits}; of these nothing stops and starts {loose}, which no VirtualMachine owns"),
                format!("kubectl -n {namespace} delete vmi {name}, for each; nothing brings it back"),
            )
        }
    };
    Move::Wait(waits, format!("{own}; or let them go down with their nodes: {}", pass_step(site)))
}

/// Applications first: guests may need them.
fn restoring(site: &SiteRecord, found: &PhaseReadings) -> Move {
    if !found.work.is_empty() {
        return Move::Scale(found.work.clone());
    }
    let work = record::starts(&site.id, &site.machines, &found.machines.all);
    if work.is_empty() || site.is_passed() {
        return Move::End;
    }
    let ready = work.iter().filter(|it| it.turn != MachineAction::Later);
    let ready: Vec<MachineWork> = ready.take(room(found.machines.starting)).cloned().collect();
    if !ready.is_empty() {
        return Move::Machines(ready);
    }
    let names: Vec<String> = work.iter().map(|it| it.machine.path()).collect();
    Move::Wait(
        format!("virtual machines to be off before they are started: {}", listed(&names, ", ")),
        format!("kubectl get vmi -A shows how far they are; or leave them off: {}", pass_step(site)),
    )
}

/// What a person can type about machines that are refused a start or a stop.
pub fn refused_step(site: &SiteRecord) -> String {
    format!("it is tried again; `kubectl get vm,vmi -A` shows more; or continue without: {}", pass_step(site))
}

fn to(site: &SiteRecord, phase: SitePhase) -> Move {
    let mut site = site.clone();
    (site.phase, site.waits, site.next, site.since) = (phase, String::new(), String::new(), String::new());
    if site.phase == SitePhase::ServersGoing {
        (site.order, site.leader) = site.off_order();
    }
    Move::To(Box::new(site))
}

/// The nodes of the site of which this holds.
fn names(site: &SiteRecord, holds: impl Fn(&SiteMember) -> bool) -> Vec<String> {
    site.nodes.iter().filter(|it| holds(it)).map(|it| it.node.clone()).collect()
}

/// Waits until every node has said `step`, the first or the second of all, or a later one.
fn all_said(site: &SiteRecord, step: &NodeStep, then: SitePhase) -> Move {
    let first = *step == NodeStep::Seen;
    let before = |it: &NodeStep| *it == NodeStep::Seen && !first;
    let late = names(site, |it| site.step(&it.node).is_none_or(before));
    if late.is_empty() || site.is_passed() {
        return to(site, then);
    }
    let what = if first { "write the operation to their disks" } else { "be cordoned" };
    Move::Wait(
        format!("nodes to {what}: {}", listed(&late, ", ")),
        format!(
            "`zedbox status` on node {} shows whether zedkube runs there; without them: {}; or withdraw: \
             {CANCEL}",
            late[0],
            pass_step(site)
        ),
    )
}

fn down(kind: &SiteKind) -> &'static str {
    if *kind == SiteKind::Reboot { "reboot" } else { "be off" }
}

fn workers(site: &SiteRecord, nodes: &[TurnNode]) -> Move {
    let up = names(site, |it| !it.is_server() && !is_gone(site, it, nodes));
    if up.is_empty() || site.is_passed() {
        return to(site, SitePhase::ServersGoing);
    }
    Move::Wait(
        format!("workers to {}: {}", down(&site.kind), listed(&up, ", ")),
        format!("look at node {}: zedbox status; without them: {}", up[0], pass_step(site)),
    )
}

/// The first node that is back asks this: whether all have gone.
fn servers(site: &SiteRecord, nodes: &[TurnNode]) -> Move {
    let servers = site.nodes.iter().any(SiteMember::is_server);
    let is_concerned = |it: &SiteMember| !servers || it.is_server();
    let up = names(site, |it| is_concerned(it) && !is_gone(site, it, nodes));
    let any_back = site.nodes.iter().any(|it| is_concerned(it) && site.is_back(&it.node));
    if any_back && (up.is_empty() || site.is_passed()) {
        return to(site, SitePhase::Starting);
    }
    let waits = if up.is_empty() {
        "the site to be switched on".to_owned()
    } else {
        format!("servers to {}: {}", down(&site.kind), listed(&up, ", "))
    };
    let next = up.first().map_or_else(
        || "nothing".to_owned(),
        |it| format!("look at node {it}: zedbox site status; if it stays: {}", pass_step(site)),
    );
    Move::Wait(waits, next)
}

fn starting(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let missing = names(site, |it| !is_alive(it, nodes) || !site.is_back(&it.node));
    let go_without = found.lasted >= NODE_LIMIT || site.is_passed();
    if !missing.is_empty() && !go_without {
        return Move::Wait(
            format!(
                "nodes to come back: {}; after {} min it continues without them",
                listed(&missing, ", "),
                NODE_LIMIT.as_secs() / 60
            ),
            format!("switch them on; or at once without them: {}", pass_step(site)),
        );
    }
    if !found.address.is_empty() && !site.is_passed() {
        return Move::Wait(
            found.address.clone(),
            format!(
                "kubectl -n kube-system get leases,pods -o wide shows kube-vip; or without it: {}",
                pass_step(site)
            ),
        );
    }
    if !found.blocking.is_empty() && !site.is_passed() {
        return Move::Wait(
            format!("storage, faulted volumes: {}", listed(&found.blocking, ", ")),
            format!("kubectl -n longhorn-system get volumes; or start all the same: {}", pass_step(site)),
        );
    }
    to(&SiteRecord { missing, ..site.clone() }, SitePhase::Uncordoning)
}

fn uncordoning(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let late = names(site, |it| {
        !site.missing.contains(&it.node)
            && site.step(&it.node) != Some(&NodeStep::Open)
            // A withdrawal finds nodes that are off, or that never took part.
            && (site.cancelled.is_none() || site.ack(&it.node).is_some() && is_alive(it, nodes))
    });
    if late.is_empty() {
        return to(site, SitePhase::Restoring);
    }
    if found.lasted >= NODE_LIMIT || site.is_passed() {
        let mut site = site.clone();
        site.missing.extend(late);
        return to(&site, SitePhase::Restoring);
    }
    Move::Wait(
        format!("nodes to be schedulable: {}", listed(&late, ", ")),
        format!("zedbox status on node {} shows what its checks after boot wait for", late[0]),
    )
}
