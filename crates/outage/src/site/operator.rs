//! What a person may do to a whole-site operation: begin it, end one wait of it, leave a node out, withdraw it.
//!
//! Not here: the calls (`crate::operator`), words for a terminal. Pure: no clock, no I/O, no task.

use super::calls::{TURN, turn_held};
use super::coordinate::plan;
use super::record::{
    Ack, CANCEL, NodeStep, OperatorStatement, SiteKind, SiteMember, SitePhase, SiteRecord, in_turn, put,
};
use crate::turn::record::{Class, Mode, TurnRecord};
use crate::turn::rule::{OperatorRefusal, TurnNode};

/// Annotation of the Lease: the last restart that has ended, as [`SiteRecord`]; no decision reads it.
pub const LAST: &str = "pillar-rs/site-last-restart";

/// The operation of a record, if there is one.
/// Errors: [`OperatorRefusal::Site`]: it cannot be read.
pub fn current(record: &TurnRecord) -> Result<Option<SiteRecord>, OperatorRefusal> {
    record.mode.as_ref().map(SiteRecord::of).transpose().map_err(OperatorRefusal::Site)
}

fn with(record: &TurnRecord, site: &SiteRecord) -> Result<TurnRecord, OperatorRefusal> {
    Ok(TurnRecord { mode: Some(site.mode().map_err(OperatorRefusal::Site)?), ..record.clone() })
}

/// What a person can type who has read something else.
const LOOK: &str = "look again: zedbox site status";

fn refused<T>(why: impl Into<String>) -> Result<T, OperatorRefusal> {
    Err(OperatorRefusal::Site(why.into()))
}

fn reason(said: &OperatorStatement) -> Result<(), OperatorRefusal> {
    if said.why.trim().is_empty() { Err(OperatorRefusal::NoReason) } else { Ok(()) }
}

/// Errors: [`OperatorRefusal::Site`]: an operation is in progress.
pub fn none_in_progress(record: &TurnRecord) -> Result<(), OperatorRefusal> {
    let Some(mode) = &record.mode else { return Ok(()) };
    refused(format!(
        "the whole-site operation {} ({}) is in progress; look at it: zedbox site status",
        mode.kind, mode.id
    ))
}

/// The record with a new operation of these nodes: `wish` says which, for whom, and which findings are passed.
/// Errors: [`OperatorRefusal`]: there is one, a node holds a turn, or there is no reason or no node.
pub fn begin(
    record: &TurnRecord,
    wish: &SiteRecord,
    nodes: &[TurnNode],
) -> Result<TurnRecord, OperatorRefusal> {
    reason(&wish.by)?;
    none_in_progress(record)?;
    let restarts = wish.kind == SiteKind::Restart;
    // A restart waits for turns.
    let may_be_held = restarts || wish.findings.iter().any(|it| it.code == TURN);
    if let Some(holder) = record.holders.first().filter(|_| !may_be_held) {
        let held = turn_held(holder);
        return refused(format!("{}: {}", held.text, held.next));
    }
    if let Some(it) = record.failovers.iter().find(|it| it.state.is_open()) {
        return refused(format!(
            "{} is declared dead: wait until it is back, or delete its Node; how far that is: zedbox failover status",
            it.words()
        ));
    }
    if nodes.is_empty() {
        return refused("the cluster has no nodes");
    }
    let member = |it: &TurnNode| SiteMember {
        node: it.name.clone(),
        uid: it.uid.clone(),
        class: Class::of(None, it.tie_breaker, it.server || it.etcd),
    };
    let mut site = SiteRecord {
        phase: if restarts { SitePhase::Restarting } else { SitePhase::Announced },
        nodes: nodes.iter().map(member).collect(),
        since: wish.by.when.clone(),
        ..wish.clone()
    };
    if restarts {
        site.order = plan(&site);
    }
    with(record, &site)
}

/// The last restart of the site that has ended, if the record still has it.
pub fn last_restart(record: &TurnRecord) -> Option<SiteRecord> {
    let mode: Mode = serde_json::from_str(record.others.get(LAST)?).ok()?;
    SiteRecord::of(&mode).ok()
}

/// The record without its operation; of a restart it is kept how it ended.
fn ended(record: &TurnRecord, site: &SiteRecord) -> Result<TurnRecord, OperatorRefusal> {
    let mut record = TurnRecord { mode: None, ..record.clone() };
    if site.kind == SiteKind::Restart {
        let text = serde_json::to_string(site);
        let text =
            text.map_err(|why| OperatorRefusal::Site(format!("the restart cannot be written: {why}")))?;
        record.others.insert(LAST.to_owned(), text);
    }
    Ok(record)
}

/// The operation that is in progress, for what a person says of it.
fn existing(record: &TurnRecord, said: &OperatorStatement) -> Result<SiteRecord, OperatorRefusal> {
    reason(said)?;
    current(record)?.ok_or_else(|| OperatorRefusal::Site("no whole-site operation is in progress".to_owned()))
}

/// The record with what a node says of itself by what it has read, `from`; as it was where the operation is another one,
/// or something else is written there of the node meanwhile.
/// Errors: [`OperatorRefusal::Site`]: it cannot be read or written.
pub fn hear(record: &TurnRecord, from: &SiteRecord, ack: &Ack) -> Result<TurnRecord, OperatorRefusal> {
    let as_read = |it: &SiteRecord| it.id == from.id && it.ack(&ack.node) == from.ack(&ack.node);
    let Some(mut site) = current(record)?.filter(as_read) else { return Ok(record.clone()) };
    site.hear(ack.clone());
    with(record, &site)
}

/// The record with `to` in place of `from`, `None` for the end of the operation; as it was where it is not `from` any
/// more.
/// Errors: [`OperatorRefusal::Site`]: it cannot be read or written.
pub fn advance(
    record: &TurnRecord,
    from: &SiteRecord,
    to: Option<&SiteRecord>,
) -> Result<TurnRecord, OperatorRefusal> {
    match (current(record)?, to) {
        (Some(held), Some(to)) if held == *from => with(record, to),
        (Some(held), None) if held == *from => ended(record, &held),
        (Some(_) | None, _) => Ok(record.clone()),
    }
}

/// The record with its operation withdrawn: the cordons go, and the applications come back.
/// Errors: [`OperatorRefusal`]: there is none, or the servers go already.
pub fn cancel(record: &TurnRecord, said: &OperatorStatement) -> Result<TurnRecord, OperatorRefusal> {
    let mut site = existing(record, said)?;
    if site.cancelled.is_some() {
        return Ok(record.clone());
    }
    if !site.phase.may_cancel() {
        return refused(format!(
            "the whole-site {} {} is in phase {} and cannot be withdrawn any more; it ends by itself once all nodes are \
             back: zedbox site status",
            site.kind.text(),
            site.id,
            site.phase.text()
        ));
    }
    site.cancelled = Some(OperatorStatement { phase: site.phase.text().to_owned(), ..said.clone() });
    if site.kind == SiteKind::Restart {
        // A drain that was ordered by it ends like any that is withdrawn.
        return ended(record, &site);
    }
    with(record, &SiteRecord { since: said.when.clone(), ..site.into_phase(SitePhase::Uncordoning) })
}

/// The record with the wait of the present phase ended.
/// Errors: [`OperatorRefusal`]: there is no operation, it is in another phase than the one named, or of a restart another node goes.
pub fn pass(
    record: &TurnRecord,
    phase: &SitePhase,
    node: Option<&str>,
    said: &OperatorStatement,
) -> Result<TurnRecord, OperatorRefusal> {
    let mut site = existing(record, said)?;
    if site.phase != *phase {
        return refused(format!(
            "the whole-site operation is in phase {}, not {}; look again: zedbox site status",
            site.phase.text(),
            phase.text()
        ));
    }
    if site.kind == SiteKind::Restart {
        site = resume(site, node, said)?;
    } else if site.is_passed() {
        return Ok(record.clone());
    }
    site.passed.push(OperatorStatement { phase: phase.text().to_owned(), ..said.clone() });
    with(record, &site)
}

/// The restart continued: one that has stopped, where it was, once the cluster is well; one that waits for the cluster to be
/// well, without that.
/// Errors: [`OperatorRefusal::Site`]: it waits for something that no person can pass, or another node than `node` goes.
fn resume(
    mut site: SiteRecord,
    node: Option<&str>,
    said: &OperatorStatement,
) -> Result<SiteRecord, OperatorRefusal> {
    let known = in_turn(&site).map(|(member, ack)| (member.clone(), ack.clone()));
    let goes = known.as_ref().map_or("no node", |(member, _)| &member.node);
    let stopped = site.phase == SitePhase::Stopped;
    if let Some(node) = node.filter(|it| *it != goes && !(stopped && known.is_none())) {
        return refused(format!("node {goes} goes now, not {node}; {LOOK}"));
    }
    let mut then = if stopped { SitePhase::Checking } else { SitePhase::Restarting };
    if let Some((member, ack)) = known.filter(|_| site.phase != SitePhase::Checking) {
        if !stopped && node.is_none() {
            return refused(format!("name the node that is taken as well: add --node {}", member.node));
        }
        let step = match (&ack.step, ack.past.last()) {
            (NodeStep::Failed, Some((NodeStep::Verifying | NodeStep::Open, _))) => NodeStep::Open,
            (NodeStep::Failed, before) => before.map_or(NodeStep::Seen, |(step, _)| step.clone()),
            (NodeStep::Verifying, _) if !stopped => NodeStep::Done,
            // It has stopped again while the cluster was looked at.
            (step @ (NodeStep::Draining | NodeStep::Going), _) if stopped => step.clone(),
            (step, _) => {
                let (node, step) = (&member.node, step.text());
                return refused(format!(
                    "node {node} is at step {step}, which nobody can pass; {LOOK}; or end the restart: {CANCEL}"
                ));
            }
        };
        // Where it is back the cluster is looked at anyway.
        if matches!(step, NodeStep::Booted | NodeStep::Open) {
            then = SitePhase::Restarting;
        }
        site = put(site, &member, step, "");
    } else if !stopped && site.phase != SitePhase::Checking {
        return refused(format!("no node goes now, and there is nothing to pass; {LOOK}"));
    }
    if stopped {
        ask_again(&mut site);
    }
    site.stamp(&said.when);
    Ok(SiteRecord { since: said.when.clone(), ..site.into_phase(then) })
}

/// Time has passed: boots and who leads etcd are asked again.
fn ask_again(site: &mut SiteRecord) {
    site.seen.retain(|it| it.step != NodeStep::Seen);
}

/// The record of a restart that leaves a node out; one that has stopped for it continues.
/// Errors: [`OperatorRefusal`]: no restart is in progress, it is none that is to go, or another one is in its turn.
pub fn skip(
    record: &TurnRecord,
    node: &str,
    said: &OperatorStatement,
) -> Result<TurnRecord, OperatorRefusal> {
    let mut site = existing(record, said)?;
    if site.kind != SiteKind::Restart {
        return refused(format!("nodes are skipped in a restart, not in a {}", site.kind.text()));
    }
    let Some(member) = site.nodes.iter().find(|it| it.node == node).cloned() else {
        return refused(format!("node {node} is none of this restart; {LOOK}"));
    };
    if let Some(step @ (NodeStep::Done | NodeStep::Skipped)) = site.step(node) {
        let step = step.text();
        return refused(format!("node {node} is at step {step}, and nothing is left to skip; {LOOK}"));
    }
    let stopped = site.phase == SitePhase::Stopped;
    if let Some((goes, _)) = in_turn(&site).filter(|(it, _)| stopped && it.node != node) {
        return refused(format!("the restart has stopped for node {}, not {node}; {LOOK}", goes.node));
    }
    site = put(site, &member, NodeStep::Skipped, "");
    site.stamp(&said.when);
    if stopped {
        ask_again(&mut site);
        (site.phase, site.since) = (SitePhase::Checking, said.when.clone());
    }
    site.passed.push(OperatorStatement { phase: format!("node {node}"), ..said.clone() });
    with(record, &site)
}
