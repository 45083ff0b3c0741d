//! Timers of the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::SimConfig;
use crate::store::{ObjectKey, ObjectName};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// The node of this name and UID becomes Ready.
    Node(String, String),
    /// The kubelet of the node of this name and UID renews its lease.
    Renewal(String, String),
    /// The node of this name and UID is not Ready any more.
    Silent(String, String),
    /// The node of this name and UID has been away for too long.
    Lost(String, String),
    /// The pod of this UID on this node is evicted for a taint.
    Evict(String, String),
    /// Pod GC looks at the node of this name and UID.
    Collect(String, String),
    /// The attachment of this name and UID is detached without an unmount.
    Unmount(String, String),
    /// The pod at this place with this UID starts.
    Start(ObjectName, String),
    /// The pod at this place with this UID has ended.
    Stop(ObjectName, String),
    /// The attachment of this name and UID is detached.
    Detach(String, String),
    /// The budget at this place no longer waits for a pod claimed at this time.
    Disrupted(ObjectName, String, String),
    /// The object at this key takes its step of this name.
    Step(ObjectKey, String),
}

pub(crate) struct Tick<'a> {
    pub(crate) config: SimConfig,
    pub(crate) timers: &'a mut SimTimers,
    pub(crate) now: Instant,
}

impl Tick<'_> {
    /// Whether the step of this object is due: `after` the first question.
    pub(crate) fn is_time(&mut self, key: &ObjectKey, step: &str, after: Duration) -> bool {
        self.timers.is_due(TimerKey::Step(key.clone(), step.to_owned()), self.now, after)
    }

    /// Has the object looked at after this time; each call starts it again.
    pub(crate) fn again(&mut self, key: &ObjectKey, step: &str, after: Duration) {
        if self.is_time(key, step, after) {
            self.is_time(key, step, after);
        }
    }
}

/// Future times, and those due in this round.
#[derive(Debug, Default)]
pub(crate) struct SimTimers {
    due: BTreeMap<TimerKey, Instant>,
    queue: BTreeSet<(Instant, TimerKey)>,
    ripe: BTreeSet<TimerKey>,
}

impl SimTimers {
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Begins a round: returns due timers, each in one round only.
    pub(crate) fn ripen(&mut self, now: Instant) -> Vec<TimerKey> {
        self.ripe.clear();
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, what)) = self.queue.pop_first() {
                self.due.remove(&what);
                self.ripe.insert(what);
            }
        }
        self.ripe.iter().cloned().collect()
    }

    /// Whether this is due; the first question starts the time.
    pub(crate) fn is_due(&mut self, what: TimerKey, now: Instant, after: Duration) -> bool {
        if self.ripe.remove(&what) || after.is_zero() {
            return true;
        }
        if !self.due.contains_key(&what) {
            self.due.insert(what.clone(), now + after);
            self.queue.insert((now + after, what));
        }
        false
    }

    pub(crate) fn cancel(&mut self, what: &TimerKey) {
        if let Some(at) = self.due.remove(what) {
            self.queue.remove(&(at, what.clone()));
        }
    }
}
