//! What one node does for all in a whole-site operation: the next phase, or what it waits for.
//!
//! Any number of nodes may do it at once: each write names the version that it was decided on, and each act on an
//! application is done once. Time alone moves only the way up, where a node may never come.
//!
//! In a restart the nodes reboot one after another, each drained in a turn of its own and verified before the next one
//! starts. A step `draining` of the boot that the node is in is its order to go; all else is what any reboot is: a
//! drain, a turn, the last look, the checks after boot. What fails first stops the restart. A node that loses power on
//! its way has gone through a boot: it is not ordered to go once more. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::machines::{self, room};
use kubeapi::names::listed;
use step::SmallSort as _;

use super::record::{
    CANCEL, MachineAction, MachineWork, Machines, Move, NODE_LIMIT, NodeStep, PhaseReadings, SiteKind,
    SiteMember, SitePhase, SiteRecord, in_turn, pass_step, put,
};
use crate::turn::pulses::Pulse;
use crate::turn::record::Class;
use crate::turn::rule::TurnNode;

/// The cluster is well once it has been so for as long.
pub const WELL: Duration = Duration::from_secs(5);
/// How long copies of volumes that are made again keep the next node up; then the restart stops.
pub const REBUILD_LIMIT: Duration = Duration::from_hours(2);
/// How long another server leaves something to the one that works for all, and then does it.
pub(super) const STAND_IN: Duration = Duration::from_mins(3);

fn node_of<'a>(member: &SiteMember, nodes: &'a [TurnNode]) -> Option<&'a TurnNode> {
    nodes.iter().find(|it| it.name == member.node && it.uid == member.uid)
}

fn is_alive(member: &SiteMember, nodes: &[TurnNode]) -> bool {
    node_of(member, nodes).is_some_and(|it| it.ready && it.pulse != Pulse::Still)
}

/// Whether this node is off, or was since it said something last.
pub fn is_gone(site: &SiteRecord, member: &SiteMember, nodes: &[TurnNode]) -> bool {
    let Some(node) = node_of(member, nodes) else { return true };
    let ack = site.ack(&member.node);
    let other_boot = ack
        .is_some_and(|it| !node.boot_id.is_empty() && !it.boot_id.is_empty() && it.boot_id != node.boot_id);
    !is_alive(member, nodes) || other_boot || site.is_back(&member.node)
}

/// Whether this node works for all: the first by name of the servers that are there and do not go, or of all nodes where
/// there is no server. In a restart a node that goes does where there is no other one: its limit has to end. There each
/// other server does what is due, too, once that was left undone for long, by `lasted`: the first may have a kubelet
/// that answers and no zedkube.
pub fn works_for_all(node: &str, site: &SiteRecord, nodes: &[TurnNode], lasted: Duration) -> bool {
    let servers = site.nodes.iter().any(SiteMember::is_server);
    let may = |it: &&SiteMember, going: bool| {
        let step = site.step(&it.node);
        (!servers || it.is_server())
            && step.is_some_and(|it| going || *it != NodeStep::Going)
            && is_alive(it, nodes)
    };
    let restart = site.kind == SiteKind::Restart;
    let last = restart && !site.nodes.iter().any(|it| may(&it, false));
    let all = || site.nodes.iter().filter(|it| may(it, last)).map(|it| it.node.as_str());
    all().min() == Some(node) || restart && lasted >= STAND_IN && all().any(|it| it == node)
}

/// What is counted while it lasts: the phase, and of a restart the node that goes, its step, and whether it is there.
pub fn stage(site: &SiteRecord, nodes: &[TurnNode]) -> String {
    let goes = in_turn(site).map_or_else(String::new, |(it, ack)| {
        format!("{} {} {} {}", it.node, ack.step.text(), ack.boot_id, is_alive(it, nodes))
    });
    format!("{} {} {goes}", site.phase.text(), site.since)
}

/// Of a restart: whether the cluster is to be looked at now.
pub fn is_verifying(site: &SiteRecord) -> bool {
    site.phase == SitePhase::Checking || in_turn(site).is_some_and(|(_, ack)| ack.step == NodeStep::Verifying)
}

pub fn next(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let step = |it: &SiteMember| site.step(&it.node);
    let pass = pass_step(site);
    let zedkube_on = |first: &str| {
        format!(
            "`zedbox status` on node {first} shows whether zedkube runs there; without them: {pass}; or withdraw: {CANCEL}"
        )
    };
    match &site.phase {
        SitePhase::Announced => {
            let late = names(site, |it| step(it).is_none());
            let what = "nodes to write the operation to their disks";
            after(site, &late, what, SitePhase::Cordoning, zedkube_on)
        }
        SitePhase::Cordoning => {
            let late = names(site, |it| matches!(step(it), None | Some(NodeStep::Seen)));
            after(site, &late, "nodes to be cordoned", SitePhase::Stopping, zedkube_on)
        }
        SitePhase::Stopping => stopping(site, found),
        SitePhase::Detaching => {
            let next = |_: &str| format!("kubectl get volumeattachments; or leave them attached: {pass}");
            after(site, &found.blocking, "volumes to be detached", SitePhase::WorkersGoing, next)
        }
        SitePhase::WorkersGoing => {
            let up = names(site, |it| !it.is_server() && !is_gone(site, it, nodes));
            let what = format!("workers to {}", down(&site.kind));
            after(site, &up, &what, SitePhase::ServersGoing, |first| {
                format!("look at node {first}: zedbox status; without them: {pass}")
            })
        }
        SitePhase::ServersGoing => servers(site, nodes),
        SitePhase::Starting => starting(site, nodes, found),
        SitePhase::Uncordoning => uncordoning(site, nodes, found),
        SitePhase::Restoring => restoring(site, found),
        SitePhase::Restarting => restarting(site, nodes, found),
        SitePhase::Checking => checking(site, found),
        SitePhase::Stopped => Move::Wait(site.waits.clone(), site.next.clone()),
        SitePhase::Stranger(word) => Move::Wait(
            format!("a node with newer software: this version does not know the phase {word}"),
            "update the software of this node".to_owned(),
        ),
    }
}

fn to(site: &SiteRecord, phase: SitePhase) -> Move {
    let mut site = site.clone().into_phase(phase);
    if site.phase == SitePhase::ServersGoing {
        site.order = plan(&site);
        site.order.retain(|name| site.nodes.iter().any(|it| it.node == *name && it.is_server()));
    }
    Move::To(Box::new(site))
}

/// Waits for `what` until none of `late` is left or an operator has ended that; then it is `then`. `next` of the first one:
/// what a person can type.
fn after(
    site: &SiteRecord,
    late: &[String],
    what: &str,
    then: SitePhase,
    next: impl FnOnce(&str) -> String,
) -> Move {
    match late.first() {
        Some(first) if !site.is_passed() => {
            Move::Wait(format!("{what}: {}", listed(late, ", ")), next(first))
        }
        Some(_) | None => to(site, then),
    }
}

/// The nodes of the site of which this holds.
fn names(site: &SiteRecord, holds: impl Fn(&SiteMember) -> bool) -> Vec<String> {
    site.nodes.iter().filter(|it| holds(it)).map(|it| it.node.clone()).collect()
}

/// Machines first, and only then what their guests may need.
fn stopping(site: &SiteRecord, found: &PhaseReadings) -> Move {
    if !site.leave_machines && !site.is_passed() {
        let work = machines::stops(&site.id, "", &found.machines.all);
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

fn down(kind: &SiteKind) -> &'static str {
    if *kind == SiteKind::Reboot { "reboot" } else { "be off" }
}

/// The first node that is back asks this: whether all have gone.
fn servers(site: &SiteRecord, nodes: &[TurnNode]) -> Move {
    let servers = site.nodes.iter().any(SiteMember::is_server);
    let is_concerned = |it: &SiteMember| !servers || it.is_server();
    let up = names(site, |it| is_concerned(it) && !is_gone(site, it, nodes));
    let any_back = site.nodes.iter().any(|it| is_concerned(it) && site.is_back(&it.node));
    match up.first() {
        first if any_back && (first.is_none() || site.is_passed()) => to(site, SitePhase::Starting),
        None => Move::Wait("the site to be switched on".to_owned(), "nothing".to_owned()),
        Some(first) => Move::Wait(
            format!("servers to {}: {}", down(&site.kind), listed(&up, ", ")),
            format!("look at node {first}: zedbox site status; if it stays: {}", pass_step(site)),
        ),
    }
}

fn starting(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let missing = names(site, |it| !is_alive(it, nodes) || !site.is_back(&it.node));
    let (pass, limit) = (pass_step(site), NODE_LIMIT.as_secs() / 60);
    let obstacle = if !missing.is_empty() && found.lasted < NODE_LIMIT {
        let missing = listed(&missing, ", ");
        let waits = format!("nodes to come back: {missing}; after {limit} min it continues without them");
        Some((waits, format!("switch them on; or at once without them: {pass}")))
    } else if !found.blocking.is_empty() {
        let next = "kubectl -n kube-system get leases,pods -o wide shows kube-vip, kubectl -n longhorn-system get volumes \
                    the storage; or without:";
        Some((listed(&found.blocking, "; "), format!("{next} {pass}")))
    } else {
        None
    };
    match obstacle.filter(|_| !site.is_passed()) {
        Some((waits, next)) => Move::Wait(waits, next),
        None => to(&SiteRecord { missing, ..site.clone() }, SitePhase::Uncordoning),
    }
}

fn uncordoning(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let late = names(site, |it| {
        !site.missing.contains(&it.node)
            && site.step(&it.node) != Some(&NodeStep::Open)
            // A withdrawal finds nodes that are off, or that never took part.
            && (site.cancelled.is_none() || site.ack(&it.node).is_some() && is_alive(it, nodes))
    });
    if found.lasted >= NODE_LIMIT || site.is_passed() {
        let missing = [site.missing.clone(), late].concat();
        return to(&SiteRecord { missing, ..site.clone() }, SitePhase::Restoring);
    }
    after(site, &late, "nodes to be schedulable", SitePhase::Restoring, |first| {
        format!("zedbox status on node {first} shows what its checks after boot wait for")
    })
}

/// Applications first: guests may need them.
fn restoring(site: &SiteRecord, found: &PhaseReadings) -> Move {
    if !found.work.is_empty() {
        return Move::Scale(found.work.clone());
    }
    let work = machines::starts(|mark| mark.id == site.id, &found.machines.all);
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

/// All nodes in the order in which they go: first those that have gone, as they went; then workers, the tie-breaker,
/// servers, and last the one that leads etcd.
pub fn plan(site: &SiteRecord) -> Vec<String> {
    let leader = site.leader_now();
    let mut order: Vec<String> = site.order.iter().filter(|it| !is_waiting(site, it)).cloned().collect();
    let rank = |it: &SiteMember| match it.class {
        _ if it.node == leader => 3,
        Class::Worker => 0,
        Class::TieBreaker => 1,
        Class::Follower | Class::Leader | Class::Stranger(_) => 2,
    };
    let mut rest: Vec<&SiteMember> = site.nodes.iter().filter(|it| !order.contains(&it.node)).collect();
    rest.order_by_key(|it| (rank(it), it.node.clone()));
    order.extend(rest.into_iter().map(|it| it.node.clone()));
    order
}

/// Whether its turn in a restart has not come.
fn is_waiting(site: &SiteRecord, node: &str) -> bool {
    matches!(site.step(node), None | Some(NodeStep::Seen))
}

fn restarting(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let put = |member: &SiteMember, step| Move::To(Box::new(put(site.clone(), member, step, "")));
    let order = plan(site);
    if order != site.order {
        return Move::To(Box::new(SiteRecord { order, ..site.clone() }));
    }
    let is_over = |it: &SiteMember| matches!(site.step(&it.node), Some(NodeStep::Done | NodeStep::Skipped));
    if let Some(member) = site.nodes.iter().find(|it| !is_over(it) && node_of(it, nodes).is_none()) {
        return put(member, NodeStep::Skipped);
    }
    let Some((member, ack)) = in_turn(site) else { return first(site, nodes, found) };
    let (node, late, limit) = (&member.node, found.lasted >= NODE_LIMIT, NODE_LIMIT.as_secs() / 60);
    let look = format!("zedbox status on node {node}");
    let (waits, next) = match &ack.step {
        NodeStep::Failed => return stop(site, member, &ack.waits),
        step if !is_alive(member, nodes) && late => {
            let why = format!("it is not Ready for {limit} min, at step {}", step.text());
            return stop(site, member, &why);
        }
        _ if !is_alive(member, nodes) => (
            format!("node {node} to be Ready; after {limit} min the restart stops"),
            format!("look at its console; kubectl describe node {node}"),
        ),
        NodeStep::Draining => (format!("node {node} to be drained"), look),
        NodeStep::Going if late => {
            let why = format!("it was ordered to reboot {limit} min ago and is still there");
            return stop(site, member, &why);
        }
        NodeStep::Going => (format!("node {node} to reboot"), look),
        NodeStep::Booted => (format!("the checks after boot of node {node}"), look),
        NodeStep::Open if found.holders.contains(node) => {
            (format!("the turn of node {node} to end"), "zedbox lock status".to_owned())
        }
        NodeStep::Open => return put(member, NodeStep::Verifying),
        NodeStep::Verifying => match is_well(site, found, &format!("with node {node} back")) {
            Ok(None) => return put(member, NodeStep::Done),
            Ok(Some(waits)) => waits,
            Err(why) => return stop(site, member, &why),
        },
        NodeStep::Seen
        | NodeStep::Cordoned
        | NodeStep::Ready
        | NodeStep::Done
        | NodeStep::Skipped
        | NodeStep::Stranger(_) => (
            format!("node {node}, whose step {} this version does not know", ack.step.text()),
            "update the software of the nodes".to_owned(),
        ),
    };
    Move::Wait(waits, next)
}

/// The next node, if one is left.
fn first(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let named = |name: &String| site.nodes.iter().find(|it| it.node == *name);
    let left = site.order.iter().filter(|it| is_waiting(site, it)).filter_map(named);
    let waiting: Vec<&SiteMember> = left.collect();
    let Some(member) = waiting.first() else { return Move::End };
    let (node, limit) = (&member.node, NODE_LIMIT.as_secs() / 60);
    // Which of them leads etcd, each server says itself.
    let concerned = |it: &&&SiteMember| it.node == *node || member.is_server() && is_alive(it, nodes);
    // Its kubelet reports the boot that the node itself has said.
    let has_said = |it: &SiteMember| {
        let said = site.ack(&it.node).zip(node_of(it, nodes));
        said.is_some_and(|(ack, seen)| {
            !ack.boot_id.is_empty() && (seen.boot_id.is_empty() || seen.boot_id == ack.boot_id)
        })
    };
    let silent = waiting.iter().filter(concerned).find(|it| !has_said(it));
    let (waits, next) = match silent {
        _ if !is_alive(member, nodes) => ("is not Ready".to_owned(), format!("kubectl describe node {node}")),
        None => return Move::To(Box::new(put(site.clone(), member, NodeStep::Draining, ""))),
        Some(silent) => (
            format!("waits for zedkube on node {} to answer", silent.node),
            format!("zedbox status on node {}", silent.node),
        ),
    };
    if found.lasted >= NODE_LIMIT {
        return stop(site, member, &format!("for {limit} min it {waits}"));
    }
    Move::Wait(format!("the next node, {node}, {waits}; after {limit} min the restart stops"), next)
}

/// It has failed: nothing more starts. Of a node that has said nothing, nothing is written: its boot is not known.
fn stop(site: &SiteRecord, member: &SiteMember, why: &str) -> Move {
    let mut site = site.clone();
    if site.ack(&member.node).is_some() {
        site = put(site, member, NodeStep::Failed, why);
    }
    let skip = format!(
        "or continue without this node: zedbox site continue --skip {} --reason '...'; ",
        member.node
    );
    stopped(site, format!("node {}: {why}", member.node), &skip)
}

fn stopped(site: SiteRecord, waits: String, skip: &str) -> Move {
    let site = site.into_phase(SitePhase::Stopped);
    let next = format!("repair that, then {}; {skip}or end it: {CANCEL}", pass_step(&site));
    Move::To(Box::new(SiteRecord { waits, next, ..site }))
}

/// It has stopped: the cluster has to be well before anything starts again.
fn checking(site: &SiteRecord, found: &PhaseReadings) -> Move {
    match is_well(site, found, "before the restart continues") {
        Ok(Some((waits, next))) => Move::Wait(waits, next),
        Ok(None) => to(site, SitePhase::Restarting),
        Err(why) => stopped(site.clone(), why, ""),
    }
}

/// Whether the cluster is well, and has been so for long enough: what is waited for with `when`, and what a person can
/// type; `None` for nothing.
/// Errors: for too long it is not well: why.
fn is_well(site: &SiteRecord, found: &PhaseReadings, when: &str) -> Result<Option<(String, String)>, String> {
    let (bad, limit, what, look) = if !found.blocking.is_empty() {
        (&found.blocking, NODE_LIMIT, ["the cluster to be well", "the cluster is not well"], "zedbox verify")
    } else if !found.rebuilding.is_empty() {
        let what = ["copies of volumes to be made again", "copies of volumes are missing"];
        (&found.rebuilding, REBUILD_LIMIT, what, "kubectl -n longhorn-system get volumes")
    } else if found.well < WELL {
        let waits = format!("the cluster to stay well for {} s {when}", WELL.as_secs());
        return Ok(Some((waits, "zedbox verify".to_owned())));
    } else {
        return Ok(None);
    };
    let ([wanted, failed], bad) = (what, listed(bad, "; "));
    if found.lasted >= limit {
        return Err(format!("for {} min {failed}: {bad}", limit.as_secs() / 60));
    }
    let next = format!("{look}; or take it as well: {}", pass_step(site));
    Ok(Some((format!("{wanted} {when}: {bad}"), next)))
}
