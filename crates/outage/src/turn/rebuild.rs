//! A Lease that was deleted, or restored to an older state: who holds a turn by the nodes' cordon marks, and by what this
//! process has seen before.
//!
//! Marks are input: whoever may write a Node can write them. A mark is believed only where a Lease of ours can have
//! made it, is brought in once, and no number of it is taken over: its node gets the next one of the Lease. Pure: no
//! clock, no I/O, no task.

use std::collections::BTreeSet;

use step::{Fault, planted};

use super::record::{EarlierGrant, FENCE_MOST, Fence, Holder, Op, Phase, RecordSnapshot, TurnRecord};
use super::rule::{CordonMark, Me, TurnNode};

/// A restored Lease counts on from so much further, so that no number is given twice; it was copied no more grants ago.
const RESTORED: Fence = 1_000;
/// So many of each kind are remembered.
const REMEMBERED: usize = 256;

/// The Lease that this process has seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeenLease {
    uid: String,
    record: TurnRecord,
}

impl SeenLease {
    fn grant(&self, holder: &Holder) -> EarlierGrant {
        EarlierGrant { fence: holder.fence, lease_uid: self.uid.clone() }
    }
}

/// What this process remembers of the Lease; an older one does not make it forget.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct LeaseMemory {
    newest: Option<SeenLease>,
    /// Holders of Leases before that, which it has nothing of.
    lost: Vec<(EarlierGrant, Holder)>,
    /// Entries that continued an earlier grant: of which Lease, node object and grant. They are not brought in again.
    continued: BTreeSet<(String, String, EarlierGrant)>,
}

impl LeaseMemory {
    /// Takes the Lease as it was read, written or watched.
    pub(crate) fn see(&mut self, held: &RecordSnapshot) {
        if self.continued.len() >= REMEMBERED {
            self.continued.clear();
        }
        for it in &held.record.holders {
            let key = it.earlier.clone().map(|earlier| (held.uid.clone(), it.node_uid.clone(), earlier));
            self.continued.extend(key);
        }
        let is_of_this = |it: &&SeenLease| it.uid == held.uid;
        if self.newest.as_ref().filter(is_of_this).is_some_and(|it| it.record.fence > held.record.fence) {
            return;
        }
        let lost = self.missing(Some(held)).map(|(grant, it)| (grant, it.clone())).take(REMEMBERED).collect();
        (self.lost, self.newest) =
            (lost, Some(SeenLease { uid: held.uid.clone(), record: held.record.clone() }));
    }

    /// A Lease without holders, as far as the last one is known: what operators have said stays.
    pub(crate) fn blank(&self) -> TurnRecord {
        let known = self.newest.as_ref().map(|it| (it.record.limit, it.record.forced.clone()));
        known.map_or_else(TurnRecord::default, |(limit, forced)| TurnRecord {
            forced,
            limit,
            ..TurnRecord::default()
        })
    }

    /// Forgets those that are in service again, by the nodes as they were read.
    pub(crate) fn forget_back(&mut self, nodes: &[TurnNode]) {
        self.lost.retain(|(_, holder)| {
            let listed = nodes.iter().find(|it| it.name == holder.node && it.uid == holder.node_uid);
            !listed.is_some_and(|it| is_over(it, holder))
        });
    }

    /// The holders that were seen and that `held` knows nothing of: it is another Lease, or older.
    pub(crate) fn missing<'a>(
        &'a self,
        held: Option<&'a RecordSnapshot>,
    ) -> impl Iterator<Item = (EarlierGrant, &'a Holder)> {
        let newest = self.newest.as_ref().filter(|it| held.is_none_or(|held| it.is_ahead(held)));
        let newest = newest
            .into_iter()
            .flat_map(|seen| seen.record.holders.iter().map(move |it| (seen.grant(it), it)));
        let lost = self.lost.iter().map(|(grant, it)| (grant.clone(), it));
        newest.chain(lost).filter(move |(grant, it)| {
            !planted(Fault::OlderLease)
                && held.is_none_or(|held| !self.knows(held, &it.node, &it.node_uid, grant))
        })
    }

    /// Whether `held` has an entry of this node object, or had one for that grant, or an operator released it.
    fn knows(&self, held: &RecordSnapshot, node: &str, node_uid: &str, grant: &EarlierGrant) -> bool {
        let of_this = grant.lease_uid == held.uid;
        let key = (held.uid.clone(), node_uid.to_owned(), grant.clone());
        held.record.holder(node, node_uid).is_some()
            || self.continued.contains(&key)
            || held.record.is_released(node_uid, of_this.then_some(grant.fence), grant)
    }
}

impl SeenLease {
    fn is_ahead(&self, held: &RecordSnapshot) -> bool {
        let is_older = self.record.fence > held.record.fence && !planted(Fault::TurnFence);
        self.uid != held.uid || is_older
    }
}

/// Whether a Lease of ours can have made this mark, and `held` is another one, or of before.
fn is_behind(held: Option<&RecordSnapshot>, node: &TurnNode, mark: &CordonMark) -> bool {
    // A node in service has none of its boot: it is what somebody has left, or made up.
    let is_used = node.unschedulable || node.boot_id == mark.boot_id;
    is_used
        && mark.fence <= FENCE_MOST
        && held.is_none_or(|held| mark.lease_uid != held.uid || is_restored(held, mark))
}

fn is_restored(held: &RecordSnapshot, mark: &CordonMark) -> bool {
    let now = held.record.fence;
    mark.lease_uid == held.uid
        && mark.fence > now
        && mark.fence <= now.saturating_add(RESTORED)
        && !planted(Fault::TurnFence)
}

fn is_over(node: &TurnNode, holder: &Holder) -> bool {
    node.boot_id != holder.boot_id && node.ready && !node.unschedulable
}

/// The nodes whose marks are of a turn that the Lease knows nothing of: it was deleted, or restored.
pub(crate) fn marked<'a>(
    held: Option<&'a RecordSnapshot>,
    nodes: &'a [TurnNode],
    memory: &'a LeaseMemory,
) -> impl Iterator<Item = (&'a TurnNode, &'a CordonMark)> {
    nodes.iter().filter_map(|node| Some((node, node.mark.as_ref()?))).filter(move |(node, mark)| {
        is_behind(held, node, mark)
            && held.is_none_or(|held| !memory.knows(held, &node.name, &node.uid, &mark.grant()))
    })
}

/// The record of a Lease that was deleted or restored, rebuilt from the cordon marks of the nodes and from `memory`; `None`
/// when it lacks nothing. `me` looks after its own entry. A release by an operator is not undone.
pub(crate) fn rebuild(
    held: Option<&RecordSnapshot>,
    nodes: &[TurnNode],
    memory: &LeaseMemory,
    me: Option<&Me>,
) -> Option<TurnRecord> {
    let mut missing: Vec<Holder> =
        marked(held, nodes, memory).map(|(node, mark)| entry(node, mark)).collect();
    let is_me = |it: &Holder| me.is_some_and(|me| it.node == me.node && it.node_uid == me.uid);
    for (grant, holder) in memory.missing(held).filter(|(_, it)| !is_me(it)) {
        let listed = nodes.iter().find(|it| it.name == holder.node && it.uid == holder.node_uid);
        let is_there = missing.iter().any(|it| it.node_uid == holder.node_uid);
        if !is_there && !listed.is_some_and(|it| is_over(it, holder)) {
            missing.push(Holder { earlier: Some(grant), ..holder.clone() });
        }
    }
    let seen = memory.newest.as_ref();
    let newest = seen.filter(|it| held.is_some_and(|held| it.uid == held.uid)).map(|it| it.record.fence);
    let mut record = held.map_or_else(|| memory.blank(), |held| held.record.clone());
    let marks = || nodes.iter().filter_map(|it| it.mark.as_ref().map(|mark| (it, mark)));
    let restored = held.is_some_and(|held| {
        newest.is_some_and(|it| it > held.record.fence)
            || marks().any(|(node, mark)| is_behind(Some(held), node, mark) && is_restored(held, mark))
    });
    if held.is_some() && missing.is_empty() && !restored {
        return None;
    }
    if restored {
        record.fence = record.fence.max(newest.unwrap_or_default()).saturating_add(RESTORED);
    }
    for holder in missing {
        record.release(&holder.node, &holder.node_uid);
        record.grant(holder);
    }
    Some(record)
}

fn entry(node: &TurnNode, mark: &CordonMark) -> Holder {
    Holder {
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        boot_id: mark.boot_id.clone(),
        op: Op::Stranger("unknown".to_owned()),
        phase: Phase::Cordoned,
        server: node.server || node.etcd,
        earlier: Some(mark.grant()),
        ..Holder::default()
    }
}
