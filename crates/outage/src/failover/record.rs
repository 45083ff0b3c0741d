//! What becomes of the nodes that a person has declared dead, as the Lease of turns says it.
//!
//! No decision but those of how often a node fails reads a time out of it. Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};

use crate::turn::record::{DeclaredNode, FENCE_MOST, FailoverState, TurnRecord};
use crate::turn::rule::{OperatorRefusal, TurnNode};

/// How many that have ended are remembered.
const KEPT: usize = 8;
/// In so long a node may come back twice by itself.
pub(super) const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Those that are to be taken for dead.
pub fn open(record: &TurnRecord) -> Vec<DeclaredNode> {
    record.failovers.iter().filter(|it| it.state.is_open()).cloned().collect()
}

/// The same, and one that was withdrawn while somebody who was slow has written its taint.
pub fn standing(record: &TurnRecord, nodes: &[TurnNode]) -> Vec<DeclaredNode> {
    let late = |it: &DeclaredNode| {
        it.state == FailoverState::Withdrawn && nodes.iter().any(|node| node.is_tainted_by(it))
    };
    record.failovers.iter().filter(|it| it.state.is_open() || late(it)).cloned().collect()
}

/// Those that were carried out less than `limit` before `now`, oldest first.
pub(super) fn lately(
    record: &TurnRecord,
    now: Timestamp,
    limit: SignedDuration,
) -> impl DoubleEndedIterator<Item = &DeclaredNode> {
    let within = move |it: &&DeclaredNode| {
        it.when.parse::<Timestamp>().is_ok_and(|at| now.duration_since(at).abs() < limit)
    };
    record.failovers.iter().filter(|it| it.state != FailoverState::Withdrawn).filter(within)
}

fn with(record: &TurnRecord, mut entries: Vec<DeclaredNode>) -> TurnRecord {
    let ended = entries.iter().filter(|it| !it.state.is_open()).count();
    let mut over = ended.saturating_sub(KEPT);
    entries.retain(|it| {
        let goes = over > 0 && !it.state.is_open();
        over -= usize::from(goes);
        !goes
    });
    // What has moved in earlier ones is no longer asked for, and the Lease has its limit.
    let last = entries.iter().rposition(|it| !it.state.is_open());
    let earlier = entries.iter_mut().take(last.unwrap_or_default()).filter(|it| !it.state.is_open());
    earlier.for_each(|it| it.work.clear());
    TurnRecord { failovers: entries, ..record.clone() }
}

/// Errors: [`OperatorRefusal::Failover`]: `node` is declared dead.
pub fn not_open(record: &TurnRecord, node: &str) -> Result<(), OperatorRefusal> {
    let Some(is) = record.failovers.iter().find(|it| it.state.is_open() && it.node == node) else {
        return Ok(());
    };
    Err(OperatorRefusal::Failover(format!(
        "{} is declared dead already; how far that is: `zedbox failover status`",
        is.words()
    )))
}

/// The record in which `entry` is declared, with the next number.
/// Errors: [`OperatorRefusal`]: no reason, or an entry of this node is open.
pub fn declare(record: &TurnRecord, entry: &DeclaredNode) -> Result<TurnRecord, OperatorRefusal> {
    if entry.why.trim().is_empty() {
        return Err(OperatorRefusal::NoReason);
    }
    not_open(record, &entry.node)?;
    let mut entries = record.failovers.clone();
    let ours = entries.iter().map(|it| it.number).filter(|it| *it < FENCE_MOST);
    let number = ours.max().unwrap_or_default() + 1;
    let before = entry.when.parse().map_or(0, |now| {
        lately(record, now, DAY)
            .filter(|it| (&it.node, &it.node_uid) == (&entry.node, &entry.node_uid))
            .count()
    });
    let times = u32::try_from(before + 1).unwrap_or(u32::MAX);
    entries.push(DeclaredNode { number, times, state: FailoverState::Declared, ..entry.clone() });
    Ok(with(record, entries))
}

/// The record with `edit` made to the entry of the number of `seen`, if it still has the state that was decided upon.
pub fn edited(record: &TurnRecord, seen: &DeclaredNode, edit: impl FnOnce(&mut DeclaredNode)) -> TurnRecord {
    let mut entries = record.failovers.clone();
    let is_it = |it: &&mut DeclaredNode| it.number == seen.number && it.state == seen.state;
    let Some(entry) = entries.iter_mut().find(is_it) else { return record.clone() };
    edit(entry);
    with(record, entries)
}
