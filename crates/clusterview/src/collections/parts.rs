//! The parts of the statistics, one per collection of the API, and their states.
//!
//! Not here: reading them (`follow`). A failing part keeps its content for [`LAST_GOOD`], then it is empty:
//! older content would be taken for current. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::{Inserted as _, LiteMap, Mono};

/// How long the content of a part outlives its last good call.
pub const LAST_GOOD: Duration = Duration::from_secs(300);

step::named! {
    pub enum Collection {
        Nodes = "nodes",
        Pods = "pods",
        /// Virtual machine instances of applications.
        Vms = "virtualmachineinstances.kubevirt.io",
        Claims = "persistentvolumeclaims",
        DaemonSets = "daemonsets.apps",
        Volumes = "volumes.longhorn.io",
        /// Replicas of Longhorn's volumes.
        Replicas = "replicas.longhorn.io",
        /// Engines of Longhorn's volumes.
        Engines = "engines.longhorn.io",
        Snapshots = "snapshots.longhorn.io",
        /// Nodes as Longhorn reports them.
        StorageNodes = "nodes.longhorn.io",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CollectionState {
    #[default]
    Unheard,
    Well,
    /// The cluster does not know the resource: normal where it is not installed.
    Absent,
    Failing {
        since: Mono,
        error: String,
        next_step: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    known: LiteMap<Collection, CollectionState>,
    expired: BTreeSet<Collection>,
}

impl Parts {
    pub fn state(&self, part: Collection) -> &CollectionState {
        self.known.get(&part).unwrap_or(&CollectionState::Unheard)
    }

    /// Something was received of every part, good or bad.
    pub fn all_heard(&self) -> bool {
        Collection::ALL.iter().all(|part| *self.state(*part) != CollectionState::Unheard)
    }

    pub fn is_absent(&self, part: Collection) -> bool {
        *self.state(part) == CollectionState::Absent
    }

    pub fn followed(&self) -> usize {
        self.known.values().filter(|state| **state == CollectionState::Well).count()
    }

    /// Failing parts: since when, the failure and the next step.
    pub fn failing(&self) -> impl Iterator<Item = (Collection, Mono, &str, &str)> {
        self.known.iter().filter_map(|(part, state)| match state {
            CollectionState::Failing { since, error, next_step } => {
                Some((*part, *since, error.as_str(), next_step.as_str()))
            }
            CollectionState::Unheard | CollectionState::Well | CollectionState::Absent => None,
        })
    }

    /// The part is followed; whether that is new.
    pub(super) fn well(&mut self, part: Collection) -> bool {
        self.set(part, CollectionState::Well)
    }

    /// The resource is not there; whether that is new.
    pub(super) fn absent(&mut self, part: Collection) -> bool {
        self.set(part, CollectionState::Absent)
    }

    /// Returns whether that is new.
    pub(super) fn failed(&mut self, part: Collection, now: Mono, error: String, next_step: String) -> bool {
        let since = match self.state(part) {
            CollectionState::Failing { since, .. } => *since,
            CollectionState::Unheard | CollectionState::Well | CollectionState::Absent => now,
        };
        self.set(part, CollectionState::Failing { since, error, next_step })
    }

    fn set(&mut self, part: Collection, state: CollectionState) -> bool {
        if !matches!(state, CollectionState::Failing { .. }) {
            self.expired.remove(&part);
        }
        let new = *self.state(part) != state;
        self.known.insert(part, state);
        new
    }

    /// Parts with too old content.
    pub fn expired(&self) -> &BTreeSet<Collection> {
        &self.expired
    }

    /// Expires old content; returns whether any is new.
    pub fn expire(&mut self, now: Mono) -> bool {
        let old: BTreeSet<Collection> =
            self.failing().filter(|(_, since, ..)| now >= *since + LAST_GOOD).map(|it| it.0).into_set();
        step::update(&mut self.expired, old)
    }

    pub fn next_expiry(&self) -> Option<Mono> {
        let kept = self.failing().filter(|(part, ..)| !self.expired.contains(part));
        kept.map(|(_, since, ..)| since + LAST_GOOD).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::START + Duration::from_secs(secs)
    }

    fn fail(parts: &mut Parts, part: Collection, secs: u64) -> bool {
        parts.failed(part, at(secs), "cut".to_owned(), "look".to_owned())
    }

    #[test]
    fn l6_what_a_failing_part_had_is_kept_for_five_minutes_of_its_first_failure() {
        let mut parts = Parts::default();
        assert!(fail(&mut parts, Collection::Vms, 10));
        assert!(!fail(&mut parts, Collection::Vms, 200), "the same again is nothing new");
        assert!(fail(&mut parts, Collection::Pods, 100));
        assert_eq!(parts.next_expiry(), Some(at(310)));
        let expired = |parts: &Parts| parts.expired().iter().copied().collect::<Vec<_>>();
        assert!(!parts.expire(at(309)) && expired(&parts).is_empty());
        assert!(parts.expire(at(310)) && expired(&parts) == [Collection::Vms]);
        assert!(!parts.expire(at(311)), "once");
        assert_eq!(parts.next_expiry(), Some(at(400)));
        // It comes back, and fails again: its time starts again.
        assert!(parts.well(Collection::Vms) && expired(&parts).is_empty());
        assert!(fail(&mut parts, Collection::Vms, 320));
        assert!(parts.expire(at(619)) && expired(&parts) == [Collection::Pods]);
        assert!(parts.expire(at(620)) && expired(&parts) == [Collection::Pods, Collection::Vms]);
        assert_eq!(parts.next_expiry(), None);
    }

    #[test]
    fn everything_is_heard_when_each_part_is_well_absent_or_failing() {
        let mut parts = Parts::default();
        for &part in Collection::ALL {
            assert!(!parts.all_heard());
            if part == Collection::Vms {
                parts.absent(part);
            } else if part == Collection::Pods {
                fail(&mut parts, part, 1);
            } else {
                parts.well(part);
            }
        }
        assert!(parts.all_heard());
        assert_eq!((parts.followed(), parts.failing().count()), (8, 1));
        assert!(parts.is_absent(Collection::Vms) && !parts.is_absent(Collection::Pods));
    }
}
