//! What a person may do to a whole-site operation: begin it, end one wait of it, withdraw it.
//!
//! Not here: the calls (`crate::operator`), words for a terminal. Pure: no clock, no I/O, no task.

use super::calls::Finding;
use super::record::{Ack, OperatorStatement, SiteKind, SiteMember, SitePhase, SiteRecord};
use super::restart;
use crate::turn::record::{Class, TurnRecord};
use crate::turn::rule::{OperatorRefusal, TurnNode};

/// Annotation of the Lease: the last restart that has ended, as [`SiteRecord`]; no decision reads it.
pub const LAST: &str = "pillar-rs/site-last-restart";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRequest {
    /// Identity, new for each operation.
    pub id: String,
    pub kind: SiteKind,
    pub by: OperatorStatement,
    /// Virtual machines may go down with their nodes.
    pub leave_machines: bool,
    pub although_held: bool,
    /// What speaks against it, and is passed.
    pub findings: Vec<Finding>,
}

/// The operation of a record, if there is one.
/// Errors: [`OperatorRefusal::Site`]: it cannot be read.
pub fn current(record: &TurnRecord) -> Result<Option<SiteRecord>, OperatorRefusal> {
    record.mode.as_ref().map(SiteRecord::of).transpose().map_err(OperatorRefusal::Site)
}

fn with(record: &TurnRecord, site: &SiteRecord) -> Result<TurnRecord, OperatorRefusal> {
    let mode = site
        .mode()
        .map_err(|why| OperatorRefusal::Site(format!("the operation cannot be written: {why}")))?;
    Ok(TurnRecord { mode: Some(mode), ..record.clone() })
}

fn reason(said: &OperatorStatement) -> Result<(), OperatorRefusal> {
    if said.why.trim().is_empty() { Err(OperatorRefusal::NoReason) } else { Ok(()) }
}

/// The record with a new operation of these nodes.
/// Errors: [`OperatorRefusal`]: there is one, a node holds a turn, or there is no reason or no node.
pub fn begin(
    record: &TurnRecord,
    wish: &SiteRequest,
    nodes: &[TurnNode],
) -> Result<TurnRecord, OperatorRefusal> {
    with(record, &begun(record, wish, nodes)?)
}

/// The operation with which [`begin`] begins.
pub fn begun(
    record: &TurnRecord,
    wish: &SiteRequest,
    nodes: &[TurnNode],
) -> Result<SiteRecord, OperatorRefusal> {
    reason(&wish.by)?;
    if let Some(mode) = &record.mode {
        return Err(OperatorRefusal::Site(format!(
            "the whole-site operation {} ({}) is in progress; look at it: zedbox site status",
            mode.kind, mode.id
        )));
    }
    if let Some(holder) = record.holders.first().filter(|_| !wish.although_held) {
        return Err(OperatorRefusal::Site(format!(
            "node {} holds a turn ({}, phase {}): wait until it is back, or add --pass turn, which stops what it does",
            holder.node,
            holder.op.text(),
            holder.phase.text()
        )));
    }
    if let Some(it) = record.failovers.iter().find(|it| it.state.is_open()) {
        return Err(OperatorRefusal::Site(format!(
            "{} is declared dead: wait until it is back, or delete its Node; how far that is: zedbox failover status",
            it.words()
        )));
    }
    if nodes.is_empty() {
        return Err(OperatorRefusal::Site("the cluster has no nodes".to_owned()));
    }
    let member = |it: &TurnNode| SiteMember {
        node: it.name.clone(),
        uid: it.uid.clone(),
        class: match (it.tie_breaker, it.server || it.etcd) {
            (true, _) => Class::TieBreaker,
            (false, true) => Class::Follower,
            (false, false) => Class::Worker,
        },
    };
    let restarts = wish.kind == SiteKind::Restart;
    let mut site = SiteRecord {
        id: wish.id.clone(),
        kind: wish.kind.clone(),
        by: wish.by.clone(),
        leave_machines: wish.leave_machines,
        phase: if restarts { SitePhase::Restarting } else { SitePhase::Announced },
        nodes: nodes.iter().map(member).collect(),
        findings: wish.findings.clone(),
        since: wish.by.when.clone(),
        ..SiteRecord::default()
    };
    if restarts {
        (site.order, site.leader) = restart::plan(&site);
    }
    Ok(site)
}

/// The last restart of the site that has ended, if the record still has it.
pub fn last_restart(record: &TurnRecord) -> Option<SiteRecord> {
    serde_json::from_str(record.others.get(LAST)?).ok()
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

fn existing(record: &TurnRecord) -> Result<SiteRecord, OperatorRefusal> {
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
    reason(said)?;
    let mut site = existing(record)?;
    if site.cancelled.is_some() {
        return Ok(record.clone());
    }
    if !site.phase.may_cancel() {
        return Err(OperatorRefusal::Site(format!(
            "the whole-site {} {} is in phase {} and cannot be withdrawn any more; it ends by itself once all nodes are \
             back: zedbox site status",
            site.kind.text(),
            site.id,
            site.phase.text()
        )));
    }
    site.cancelled = Some(OperatorStatement { phase: site.phase.text().to_owned(), ..said.clone() });
    if site.kind == SiteKind::Restart {
        // A drain that was ordered by it ends like any that is withdrawn.
        return ended(record, &site);
    }
    site.since.clone_from(&said.when);
    (site.phase, site.waits, site.next) = (SitePhase::Uncordoning, String::new(), String::new());
    with(record, &site)
}

/// The record with the wait of the present phase ended.
/// Errors: [`OperatorRefusal`]: there is no operation, it is in another phase than the one named, or of a restart another node goes.
pub fn pass(
    record: &TurnRecord,
    phase: &SitePhase,
    node: Option<&str>,
    said: &OperatorStatement,
) -> Result<TurnRecord, OperatorRefusal> {
    reason(said)?;
    let mut site = existing(record)?;
    if site.phase != *phase {
        return Err(OperatorRefusal::Site(format!(
            "the whole-site operation is in phase {}, not {}; look again: zedbox site status",
            site.phase.text(),
            phase.text()
        )));
    }
    if site.kind == SiteKind::Restart {
        return with(record, &restart::resume(site, node, said)?);
    }
    if site.is_passed() {
        return Ok(record.clone());
    }
    site.passed.push(OperatorStatement { phase: phase.text().to_owned(), ..said.clone() });
    with(record, &site)
}

/// The record of a restart that leaves a node out.
/// Errors: [`OperatorRefusal`]: no restart is in progress, or not this node is to be skipped.
pub fn skip(
    record: &TurnRecord,
    node: &str,
    said: &OperatorStatement,
) -> Result<TurnRecord, OperatorRefusal> {
    reason(said)?;
    let site = existing(record)?;
    if site.kind != SiteKind::Restart {
        return Err(OperatorRefusal::Site(format!(
            "nodes are skipped in a restart, not in a {}",
            site.kind.text()
        )));
    }
    with(record, &restart::skip(site, node, said)?)
}
