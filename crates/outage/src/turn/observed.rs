//! What has been seen without a break, and since when on our own clock.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::{Inserted as _, Mono};

use super::record::{Fence, TurnRecord, Waiter};
use super::rule::{self, Me, TakeoverProof, TurnNode};

/// How long a fact must have been seen before anything follows from it (spec/cluster-lock.md 3.3, 3.5).
const SEEN_FOR: Duration = Duration::from_secs(60);

/// A fact about another node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum NodeObservation {
    /// The turn of this node object with this fence could be taken over.
    Proof(String, Fence, TakeoverProof),
    /// A waiter for whom a grant is open and who does not take it: UID and request.
    Open(String, u64),
    /// A waiter whose node object is gone: UID.
    Absent(String),
}

/// Facts and since when they are seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Observed {
    since: BTreeMap<NodeObservation, Mono>,
}

impl Observed {
    /// Takes one reading: facts that it does not show are forgotten.
    pub(super) fn take(&mut self, now: Mono, me: &Me, record: &TurnRecord, nodes: &[TurnNode]) {
        let others = record.holders.iter().filter(|it| it.node_uid != me.uid);
        let proofs = others.filter_map(|it| {
            Some(NodeObservation::Proof(it.node_uid.clone(), it.fence, rule::proof(it, nodes)?))
        });
        let absent = record.queue.iter().filter(|it| is_absent(it, nodes));
        let absent = absent.map(|it| NodeObservation::Absent(it.node_uid.clone()));
        let mut facts: BTreeSet<NodeObservation> = proofs.chain(absent).into_set();
        let down = rule::down(Some(me), record, nodes);
        for waiter in rule::order(record) {
            if waiter.node_uid == me.uid || !rule::is_open_for(waiter, record, nodes) {
                break;
            }
            if is_absent(waiter, nodes) || down.iter().any(|it| it.node == waiter.node) {
                continue;
            }
            let open = NodeObservation::Open(waiter.node_uid.clone(), waiter.counter);
            let late = self.is_ripe(now, &open);
            facts.insert(open);
            if !late {
                // The grant is open for this one first.
                break;
            }
        }
        self.since.retain(|fact, _| facts.contains(fact));
        for fact in facts {
            self.since.entry(fact).or_insert(now);
        }
    }

    fn is_ripe(&self, now: Mono, fact: &NodeObservation) -> bool {
        self.since.get(fact).is_some_and(|since| now.since(*since) >= SEEN_FOR)
    }

    /// The proof by which this turn may be taken over now.
    pub(super) fn proof(&self, now: Mono, uid: &str, fence: Fence) -> Option<TakeoverProof> {
        [TakeoverProof::Gone, TakeoverProof::Idle]
            .into_iter()
            .find(|proof| self.is_ripe(now, &NodeObservation::Proof(uid.to_owned(), fence, *proof)))
    }

    /// Whether the node of this waiter is gone for good.
    pub(super) fn is_gone(&self, now: Mono, waiter: &Waiter) -> bool {
        self.is_ripe(now, &NodeObservation::Absent(waiter.node_uid.clone()))
    }

    /// The waiters that left an open grant for too long, each after those before it.
    pub(super) fn passed(&self, now: Mono, record: &TurnRecord) -> BTreeSet<String> {
        let late = |it: &&Waiter| self.is_ripe(now, &NodeObservation::Open(it.node_uid.clone(), it.counter));
        record.queue.iter().filter(late).map(|it| it.node.clone()).collect()
    }

    /// When the next fact becomes ripe, after `now`.
    pub(super) fn next(&self, now: Mono) -> Option<Mono> {
        self.since.values().map(|since| *since + SEEN_FOR).filter(|at| *at > now).min()
    }
}

fn is_absent(waiter: &Waiter, nodes: &[TurnNode]) -> bool {
    !nodes.iter().any(|it| it.name == waiter.node && it.uid == waiter.node_uid)
}
