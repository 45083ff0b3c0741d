//! A restart of the site: its nodes reboot one after another, each drained in a turn of its own and verified before the next
//! one starts.
//!
//! The record says for each node how far it is; a step `draining` of the boot that the node is in is its order to go.
//! All else is what any reboot is: a drain, a turn, the last look, the checks after boot. What fails first stops the
//! restart. A node that loses power on its way has gone through a boot: it is not ordered to go once more. Pure: no
//! clock, no I/O, no task.

use std::time::Duration;

use kubeapi::names::listed;
use step::SmallSort as _;

use super::record::{Ack, NodeStep, OperatorStatement, SiteKind, SiteMember, SitePhase, SiteRecord};
use super::record::{
    CANCEL, Move, NODE_LIMIT, PhaseReadings, in_turn, is_alive, may_coordinate, node_of, pass_step,
};
use crate::turn::record::Class;
use crate::turn::rule::{OperatorRefusal, TurnNode};

/// The cluster is well once it has been so for as long.
pub const WELL: Duration = Duration::from_secs(5);
/// How long copies of volumes that are made again keep the next node up; then the restart stops.
pub const REBUILD_LIMIT: Duration = Duration::from_hours(2);
/// How long another server leaves something to the one that works for all, and then does it.
pub const STAND_IN: Duration = Duration::from_mins(3);

/// Whether this server does what is due, which another one may have left undone: by `lasted`, how long the node that goes has
/// been at its step. The one that works for all may have a kubelet that answers and no zedkube.
pub fn stands_in(node: &str, site: &SiteRecord, nodes: &[TurnNode], lasted: Duration) -> bool {
    site.kind == SiteKind::Restart && lasted >= STAND_IN && may_coordinate(node, site, nodes)
}

/// All nodes in the order in which they go, and who leads etcd, or empty: first those that have gone, as they went; then
/// workers, the tie-breaker, servers, and last the one that leads.
pub fn plan(site: &SiteRecord) -> (Vec<String>, String) {
    let (_, leader) = site.off_order();
    let waits = |node: &str| matches!(site.step(node), None | Some(NodeStep::Seen));
    let mut order: Vec<String> = site.order.iter().filter(|it| !waits(it)).cloned().collect();
    let rank = |it: &SiteMember| match it.class {
        _ if it.node == leader => 3,
        Class::Worker => 0,
        Class::TieBreaker => 1,
        Class::Follower | Class::Leader | Class::Stranger(_) => 2,
    };
    let mut rest: Vec<&SiteMember> = site.nodes.iter().filter(|it| !order.contains(&it.node)).collect();
    rest.order_by_key(|it| (rank(it), it.node.clone()));
    order.extend(rest.into_iter().map(|it| it.node.clone()));
    (order, leader)
}

/// What is counted while it lasts: the node that goes, its step, and whether it is there.
pub fn stage(site: &SiteRecord, nodes: &[TurnNode]) -> String {
    let goes = in_turn(site).map_or_else(String::new, |(it, ack)| {
        format!("{} {} {} {}", it.node, ack.step.text(), ack.boot_id, is_alive(it, nodes))
    });
    format!("{} {goes}", site.since)
}

/// Whether the cluster is to be looked at now.
pub fn is_verifying(site: &SiteRecord) -> bool {
    site.phase == SitePhase::Checking || in_turn(site).is_some_and(|(_, ack)| ack.step == NodeStep::Verifying)
}

/// The record with this node at `step`; the writer of the record adds since when.
fn mark(mut site: SiteRecord, member: &SiteMember, step: NodeStep, waits: &str) -> SiteRecord {
    let known = site.ack(&member.node);
    let (boot_id, leads) = known.map_or(("", false), |it| (&it.boot_id, it.leads));
    let waits = waits.to_owned();
    site.hear(Ack { leads, waits, ..Ack::of(&member.node, &member.uid, boot_id, step) });
    site
}

fn ack_of<'a>(site: &'a mut SiteRecord, member: &SiteMember) -> Option<&'a mut Ack> {
    site.seen.iter_mut().find(|it| it.node == member.node)
}

/// It has failed: nothing more starts. Of a node that has said nothing, nothing is written: its boot is not known.
fn stop(site: &SiteRecord, member: &SiteMember, why: &str) -> Move {
    let mut site = site.clone();
    if site.ack(&member.node).is_some() {
        site = mark(site, member, NodeStep::Failed, why);
    }
    site.phase = SitePhase::Stopped;
    site.waits = format!("node {}: {why}", member.node);
    site.next = format!(
        "repair that, then {}; or continue without this node: zedbox site continue --skip {} --reason '...'; or end \
         it: {CANCEL}",
        pass_step(&site),
        member.node
    );
    Move::To(Box::new(site))
}

/// The record without a reboot of this node.
fn skipped(site: SiteRecord, member: &SiteMember, why: String) -> SiteRecord {
    let mut site = mark(site, member, NodeStep::Skipped, "");
    if let Some(ack) = ack_of(&mut site, member) {
        ack.verified = why;
    }
    SiteRecord { waits: String::new(), next: String::new(), ..site }
}

/// Whether its kubelet reports the boot that the node itself has said.
fn has_said_its_boot(site: &SiteRecord, member: &SiteMember, nodes: &[TurnNode]) -> bool {
    let (Some(ack), Some(node)) = (site.ack(&member.node), node_of(member, nodes)) else { return false };
    !ack.boot_id.is_empty() && (node.boot_id.is_empty() || node.boot_id == ack.boot_id)
}

fn to(site: &SiteRecord, member: &SiteMember, step: NodeStep) -> Move {
    let site = SiteRecord { waits: String::new(), next: String::new(), ..site.clone() };
    Move::To(Box::new(mark(site, member, step, "")))
}

pub(super) fn next(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let (order, leader) = plan(site);
    if (&order, &leader) != (&site.order, &site.leader) {
        return Move::To(Box::new(SiteRecord { order, leader, ..site.clone() }));
    }
    let left = |it: &&SiteMember| {
        !matches!(site.step(&it.node), Some(NodeStep::Done | NodeStep::Skipped))
            && node_of(it, nodes).is_none()
    };
    if let Some(member) = site.nodes.iter().find(left) {
        let why = "it was deleted from the cluster".to_owned();
        return Move::To(Box::new(skipped(site.clone(), member, why)));
    }
    let Some((member, ack)) = in_turn(site) else { return first(site, nodes, found) };
    let (node, late) = (&member.node, found.lasted >= NODE_LIMIT);
    let limit = NODE_LIMIT.as_secs() / 60;
    let there = is_alive(member, nodes);
    let wait = |what: String, next: String| Move::Wait(what, next);
    let look = || format!("zedbox status on node {node}");
    match &ack.step {
        NodeStep::Failed => stop(site, member, &ack.waits),
        _ if !there && late => {
            stop(site, member, &format!("it is not Ready for {limit} min, at step {}", ack.step.text()))
        }
        _ if !there => wait(
            format!("node {node} to be Ready; after {limit} min the restart stops"),
            format!("look at its console; kubectl describe node {node}"),
        ),
        NodeStep::Draining => wait(format!("node {node} to be drained"), look()),
        NodeStep::Going if late => {
            stop(site, member, &format!("it was ordered to reboot {limit} min ago and is still there"))
        }
        NodeStep::Going => wait(format!("node {node} to reboot"), look()),
        NodeStep::Booted => wait(format!("the checks after boot of node {node}"), look()),
        NodeStep::Open if found.holders.contains(node) => {
            wait(format!("the turn of node {node} to end"), "zedbox lock status".to_owned())
        }
        NodeStep::Verifying => match look_at(site, found, &format!("with node {node} back")) {
            RestartCheck::Waits(waits) => waits,
            RestartCheck::Late(why) => stop(site, member, &why),
            RestartCheck::Well => {
                let mut site = SiteRecord { waits: String::new(), next: String::new(), ..site.clone() };
                if let Some(ack) = ack_of(&mut site, member) {
                    ack.verified.clone_from(&found.verified);
                }
                Move::To(Box::new(mark(site, member, NodeStep::Done, "")))
            }
        },
        NodeStep::Open => to(site, member, NodeStep::Verifying),
        NodeStep::Seen
        | NodeStep::Cordoned
        | NodeStep::Ready
        | NodeStep::Done
        | NodeStep::Skipped
        | NodeStep::Stranger(_) => wait(
            format!("node {node}, whose step {} this version does not know", ack.step.text()),
            "update the software of the nodes".to_owned(),
        ),
    }
}

/// What a look at the cluster says.
enum RestartCheck {
    Well,
    Waits(Move),
    /// For too long it is not well: why.
    Late(String),
}

/// Whether the cluster is well, and has been so for long enough; `when` is said of what is waited for.
fn look_at(site: &SiteRecord, found: &PhaseReadings, when: &str) -> RestartCheck {
    let wait = |what: String, next: String| RestartCheck::Waits(Move::Wait(what, next));
    let (limit, hours) = (NODE_LIMIT.as_secs() / 60, REBUILD_LIMIT.as_secs() / 3600);
    let (blocking, rebuilding) = (listed(&found.blocking, "; "), listed(&found.rebuilding, "; "));
    match (found.blocking.is_empty(), found.rebuilding.is_empty()) {
        (true, true) if found.well >= WELL => RestartCheck::Well,
        (true, true) => wait(
            format!("the cluster to stay well for {} s {when}", WELL.as_secs()),
            "zedbox verify".to_owned(),
        ),
        (true, false) if found.lasted >= REBUILD_LIMIT => {
            RestartCheck::Late(format!("for {hours} h copies of volumes are missing: {rebuilding}"))
        }
        (true, false) => wait(
            format!("copies of volumes to be made again {when}: {rebuilding}"),
            format!("kubectl -n longhorn-system get volumes; or take it as well: {}", pass_step(site)),
        ),
        (false, _) if found.lasted >= NODE_LIMIT => {
            RestartCheck::Late(format!("for {limit} min the cluster is not well: {blocking}"))
        }
        (false, _) => wait(
            format!("the cluster to be well {when}: {blocking}"),
            format!("zedbox verify; or take it as well: {}", pass_step(site)),
        ),
    }
}

/// It has stopped: the cluster has to be well before anything starts again.
pub(super) fn checking(site: &SiteRecord, found: &PhaseReadings) -> Move {
    let mut site = site.clone();
    match look_at(&site, found, "before the restart continues") {
        RestartCheck::Waits(waits) => return waits,
        RestartCheck::Well => {
            (site.phase, site.waits, site.next) = (SitePhase::Restarting, String::new(), String::new());
        }
        RestartCheck::Late(why) => {
            (site.phase, site.waits) = (SitePhase::Stopped, why);
            site.next = format!("repair that, then {}; or end it: {CANCEL}", pass_step(&site));
        }
    }
    Move::To(Box::new(site))
}

/// The next node, if one is left.
fn first(site: &SiteRecord, nodes: &[TurnNode], found: &PhaseReadings) -> Move {
    let waits = |it: &&SiteMember| matches!(site.step(&it.node), None | Some(NodeStep::Seen));
    let named = |name: &String| site.nodes.iter().find(|it| it.node == *name);
    let waiting: Vec<&SiteMember> = site.order.iter().filter_map(named).filter(waits).collect();
    let Some(member) = waiting.first() else { return Move::End };
    let (node, limit) = (&member.node, NODE_LIMIT.as_secs() / 60);
    // Which of them leads etcd, each server says itself.
    let concerned = |it: &&&SiteMember| it.node == *node || member.is_server() && is_alive(it, nodes);
    let silent = waiting.iter().filter(concerned).find(|it| !has_said_its_boot(site, it, nodes));
    let (waits, next) = match silent {
        _ if !is_alive(member, nodes) => ("is not Ready".to_owned(), format!("kubectl describe node {node}")),
        None => return to(site, member, NodeStep::Draining),
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

/// The record with the restart continued by a person: one that has stopped, where it was; one that waits for the cluster to be
/// well, without that.
/// Errors: [`OperatorRefusal::Site`]: it waits for something that no person can pass, or another node than `node` goes.
pub(super) fn resume(
    mut site: SiteRecord,
    node: Option<&str>,
    said: &OperatorStatement,
) -> Result<SiteRecord, OperatorRefusal> {
    let known = in_turn(&site).map(|(member, ack)| (member.clone(), ack.clone()));
    let (stopped, checking) = (site.phase == SitePhase::Stopped, site.phase == SitePhase::Checking);
    let goes = known.as_ref().map(|(member, _)| member.node.as_str());
    if let Some(named) = node.filter(|it| goes.is_some_and(|goes| goes != *it) || goes.is_none() && !stopped)
    {
        let goes = goes.map_or_else(|| "no node goes now".to_owned(), |it| format!("node {it} goes now"));
        return Err(OperatorRefusal::Site(format!("{goes}, not {named}; look again: zedbox site status")));
    }
    if known.is_none() && !stopped && !checking {
        let why = "no node goes now, and there is nothing to pass; look again: zedbox site status";
        return Err(OperatorRefusal::Site(why.to_owned()));
    }
    if !stopped && !checking && node.is_none() {
        let goes = goes.unwrap_or_default();
        return Err(OperatorRefusal::Site(format!("name the node that is taken as well: add --node {goes}")));
    }
    let mut to = if stopped { SitePhase::Checking } else { SitePhase::Restarting };
    if let Some((member, ack)) = known.filter(|_| !checking) {
        let step = match (ack.step, ack.past.last()) {
            (NodeStep::Failed, Some((NodeStep::Verifying | NodeStep::Open, _))) => NodeStep::Open,
            (NodeStep::Failed, before) => before.map_or(NodeStep::Seen, |(step, _)| step.clone()),
            (NodeStep::Verifying, _) if !stopped => NodeStep::Done,
            // It has stopped again while the cluster was looked at.
            (step @ (NodeStep::Draining | NodeStep::Going), _) if stopped => step,
            (step, _) => {
                return Err(OperatorRefusal::Site(format!(
                    "node {} is at step {}, which nobody can pass; look at it: zedbox site status; or end the restart: {CANCEL}",
                    member.node,
                    step.text()
                )));
            }
        };
        if step == NodeStep::Done
            && let Some(ack) = ack_of(&mut site, &member)
        {
            ack.verified = format!("taken as well by {}: {}", said.who, said.why);
        }
        // Where it is back the cluster is looked at anyway.
        if matches!(step, NodeStep::Booted | NodeStep::Open) {
            to = SitePhase::Restarting;
        }
        site = mark(site, &member, step, "");
        if let Some(ack) = ack_of(&mut site, &member) {
            ack.since.clone_from(&said.when);
        }
    }
    if stopped {
        // Time has passed: boots and who leads etcd are asked again.
        site.seen.retain(|it| it.step != NodeStep::Seen);
    }
    site.passed.push(OperatorStatement { phase: site.phase.text().to_owned(), ..said.clone() });
    (site.phase, site.waits, site.next) = (to, String::new(), String::new());
    site.since.clone_from(&said.when);
    Ok(site)
}

/// The record of a restart without this node, by a person's word; one that has stopped for it continues.
/// Errors: [`OperatorRefusal::Site`]: it is none that is to go, or another one is in its turn.
pub(super) fn skip(
    mut site: SiteRecord,
    node: &str,
    said: &OperatorStatement,
) -> Result<SiteRecord, OperatorRefusal> {
    let refused = |why: String| Err(OperatorRefusal::Site(format!("{why}; look again: zedbox site status")));
    let Some(member) = site.nodes.iter().find(|it| it.node == node).cloned() else {
        return refused(format!("node {node} is none of this restart"));
    };
    if let Some(step @ (NodeStep::Done | NodeStep::Skipped)) = site.step(node) {
        return refused(format!("node {node} is at step {}, and nothing is left to skip", step.text()));
    }
    let goes = in_turn(&site).map(|(it, _)| it.node.clone());
    let stopped = site.phase == SitePhase::Stopped;
    if stopped && goes.as_ref().is_some_and(|it| *it != node) {
        return refused(format!("the restart has stopped for node {}, not {node}", goes.unwrap_or_default()));
    }
    site = skipped(site, &member, format!("skipped by {}: {}", said.who, said.why));
    if let Some(ack) = ack_of(&mut site, &member) {
        ack.since.clone_from(&said.when);
    }
    if stopped {
        site.seen.retain(|it| it.step != NodeStep::Seen);
        site.phase = SitePhase::Checking;
        site.since.clone_from(&said.when);
    }
    site.passed.push(OperatorStatement { phase: format!("node {node}"), ..said.clone() });
    Ok(site)
}
