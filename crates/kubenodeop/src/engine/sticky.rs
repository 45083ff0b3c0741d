//! Workloads whose pods come back to this node: counted, and called sticky at the limit.
//!
//! Not here: what becomes of their pods (`pod_table`). Source: goals D10.
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use step::Inserted as _;

use crate::plan::PodFacts;

/// The controller, as `shop/ReplicaSet/web`.
type WorkloadKey = String;

/// Returns to this node that make a workload sticky.
pub const STICKY_RETURNS: u32 = 3;
/// As many counts are kept for the next attempt.
const KEPT: usize = 64;

/// How often pods of each workload have come back after one of them was sent away.
#[derive(Debug)]
pub(super) struct Returns {
    /// Workloads of which this attempt has sent a pod away.
    sent: BTreeSet<WorkloadKey>,
    counts: BTreeMap<WorkloadKey, u32>,
}

impl Returns {
    /// `counts` are those of earlier attempts.
    pub(super) fn new(counts: BTreeMap<WorkloadKey, u32>) -> Self {
        Self { sent: BTreeSet::new(), counts }
    }

    /// The server has accepted to end this pod.
    pub(super) fn sent(&mut self, facts: &PodFacts) {
        self.sent.extend(workload(facts));
    }

    /// A pod that was not known before is here. Whether this is the return that makes its workload sticky.
    pub(super) fn came(&mut self, facts: &PodFacts) -> bool {
        let Some(workload) = workload(facts).filter(|it| self.sent.contains(it)) else { return false };
        let count = self.counts.entry(workload).or_default();
        *count = count.saturating_add(1);
        *count == STICKY_RETURNS
    }

    /// Whether the pod's workload is sticky.
    pub(super) fn is_sticky(&self, facts: &PodFacts) -> bool {
        !self.counts.is_empty() && self.count(facts) >= STICKY_RETURNS
    }

    /// How often pods of this one's workload have come back.
    pub(super) fn count(&self, facts: &PodFacts) -> u32 {
        workload(facts).and_then(|it| self.counts.get(&it).copied()).unwrap_or(0)
    }

    /// The counts for the next attempt; the highest, when there are too many.
    pub(super) fn marks(&self) -> BTreeMap<WorkloadKey, u32> {
        if self.counts.len() <= KEPT {
            return self.counts.clone();
        }
        let mut all: Vec<(&WorkloadKey, &u32)> = self.counts.iter().collect();
        all.sort_by_key(|(workload, count)| (std::cmp::Reverse(**count), *workload));
        all.into_iter().take(KEPT).map(|(workload, count)| (workload.clone(), *count)).into_map()
    }
}

/// A pod without a controller has none: nobody brings it back.
fn workload(facts: &PodFacts) -> Option<WorkloadKey> {
    let named = !facts.workload.is_empty();
    named.then(|| format!("{}/{}", facts.pod.namespace, facts.workload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::class::tests::pod;

    fn of(name: &str, workload: &str) -> PodFacts {
        PodFacts { workload: workload.to_owned(), ..pod(name) }
    }

    #[test]
    fn d10_the_third_return_makes_a_workload_sticky_and_only_returns_count() {
        let mut returns = Returns::new(BTreeMap::new());
        let web = of("web", "ReplicaSet/web");
        assert!(!returns.came(&web), "nothing was sent away yet");
        returns.sent(&web);
        assert!(!returns.came(&of("db", "StatefulSet/db")), "another workload");
        let mut other = web.clone();
        other.pod.namespace = "tools".to_owned();
        assert!(!returns.came(&other), "another namespace");
        let told: Vec<bool> = (0..4).map(|_| returns.came(&web)).collect();
        assert_eq!(told, [false, false, true, false]);
        assert!(returns.is_sticky(&web) && !returns.is_sticky(&other));
    }

    #[test]
    fn a_pod_without_a_controller_never_comes_back() {
        let mut returns = Returns::new(BTreeMap::new());
        let bare = of("bare", "");
        returns.sent(&bare);
        assert!(!returns.came(&bare) && !returns.is_sticky(&bare));
    }

    #[test]
    fn d10_counts_go_on_in_the_next_attempt_and_at_most_64_do() {
        let web = of("web", "ReplicaSet/web");
        let mut earlier: BTreeMap<WorkloadKey, u32> =
            (0..100).map(|number| (format!("shop/Job/{number}"), 1)).collect();
        earlier.insert("shop/ReplicaSet/web".to_owned(), 2);
        let mut returns = Returns::new(earlier);
        returns.sent(&web);
        assert!(returns.came(&web));
        let marks = returns.marks();
        assert_eq!(marks.len(), 64);
        assert_eq!(marks.get("shop/ReplicaSet/web"), Some(&3));
    }
}
