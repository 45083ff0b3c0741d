//! Why a budget has no room, in names of pods.
//!
//! Not here: reading those pods (`unhealthy_pods`). Source: the disruption controller counts a pod as healthy when its
//! condition Ready is True and its deletion has not begun.
//! Pure: no clock, no I/O, no task.

use std::fmt;

/// What a look at the pods of a budget without room has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inspected {
    /// Pods that keep it from having room: at most 10, by name.
    pub hindrances: Vec<UnhealthyPod>,
    /// So many pods are Ready, which is more than the budget counts as healthy; Kubernetes was made to count again.
    pub ready: Option<i32>,
}

/// One pod that a budget selects and does not count as healthy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnhealthyPod {
    /// The pod, as `shop/web-1`.
    pub pod: String,
    /// Its node, or empty.
    pub node: String,
    /// Since when, as `14:03 UTC`, with the date when that is longer ago than a day; empty when the object does
    /// not say.
    pub since: String,
    pub why: UnhealthyReason,
}

/// What is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnhealthyReason {
    /// It runs, or is about to, and is not Ready.
    NotReady,
    /// No node takes it; the scheduler's own sentence, or empty.
    Unplaced(String),
    Ending,
}

/// For a person: `pod shop/web-1 on node n2 is not Ready since 14:03 UTC`.
impl fmt::Display for UnhealthyPod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, node, since, why } = self;
        write!(out, "pod {pod}")?;
        if !node.is_empty() {
            write!(out, " on node {node}")?;
        }
        out.write_str(match why {
            UnhealthyReason::NotReady => " is not Ready",
            UnhealthyReason::Unplaced(_) => " has no node",
            UnhealthyReason::Ending => " is ending",
        })?;
        if !since.is_empty() {
            write!(out, " since {since}")?;
        }
        match why {
            UnhealthyReason::Unplaced(sentence) if !sentence.is_empty() => write!(out, " ({sentence})"),
            UnhealthyReason::NotReady | UnhealthyReason::Unplaced(_) | UnhealthyReason::Ending => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_a_hindrance_is_one_clause_with_names_and_times() {
        let given = |node: &str, since: &str, why| UnhealthyPod {
            pod: "shop/web-1".to_owned(),
            node: node.to_owned(),
            since: since.to_owned(),
            why,
        };
        let sentence = "0/2 nodes are available".to_owned();
        let table = [
            (
                given("n2", "14:03 UTC", UnhealthyReason::NotReady),
                "pod shop/web-1 on node n2 is not Ready since 14:03 UTC",
            ),
            (given("n2", "", UnhealthyReason::NotReady), "pod shop/web-1 on node n2 is not Ready"),
            (
                given("", "14:03 UTC", UnhealthyReason::Unplaced(sentence)),
                "pod shop/web-1 has no node since 14:03 UTC (0/2 nodes are available)",
            ),
            (given("", "", UnhealthyReason::Unplaced(String::new())), "pod shop/web-1 has no node"),
            (
                given("n2", "2025-11-20 14:03 UTC", UnhealthyReason::Ending),
                "pod shop/web-1 on node n2 is ending since 2025-11-20 14:03 UTC",
            ),
        ];
        for (hindrance, expected) in table {
            assert_eq!(hindrance.to_string(), expected);
        }
    }
}
