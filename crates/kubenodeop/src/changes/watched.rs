//! What an attempt that failed last knew of the objects that held it up, and which change of them is worth
//! another attempt.
//!
//! Not here: watching them (`changed`). A change is told only where it can help: room or another shape of a budget, a
//! pod that goes or looks different, a node that is Ready or schedulable again, a volume that is detached. What comes
//! and goes by itself (heartbeats, versions, the count of healthy pods while no room follows) wakes nobody, else a pod
//! that flaps would use up all attempts in a minute. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use crate::calls::remove::RemovalCall;
use crate::changes::machines::WatchedMachines;
use crate::node::cordon::NodeFacts;
use crate::plan::PodFacts;
use crate::plan::budget::{BudgetFacts, GuardedPod};
use crate::storage::{Cause, StorageView, VolumeState};
use kubeapi::names::PodUid;
use kubeapi::reply::RefusedBy;
use step::{Inserted as _, LiteMap};

/// What is known of the things that held an attempt up. Empty parts are not watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchedBlockers {
    /// Pods as they were.
    pub pods: LiteMap<PodUid, PodFacts>,
    /// By namespace, all budgets there, as far as they were followed.
    pub budgets: LiteMap<String, Vec<BudgetFacts>>,
    pub node: Option<NodeMark>,
    /// The volumes that are still attached: the name of the attachment, and the volume for a person.
    pub volumes: BTreeMap<String, String>,
    /// Volumes whose last healthy copy was here: the name in Longhorn, and why there was no other.
    pub last_copies: LiteMap<String, Cause>,
    /// The state of the storage could not be read.
    pub storage_unknown: bool,
    pub machines: Option<WatchedMachines>,
    /// Calls that the server refused for good.
    pub refused: Vec<PermanentRefusal>,
}

/// A call that the server refused for good, and who refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermanentRefusal {
    pub call: RefusedCall,
    pub by: RefusedBy,
}

/// A call that can be refused for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedCall {
    /// The lists that prove the node empty.
    Look,
    /// The lists of its virtual machines.
    Machines,
    /// The patch that cordons the node.
    Cordon,
    /// That by which this pod is asked to leave.
    Leave(RemovalCall, GuardedPod),
}

/// As much of the node as can make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMark {
    /// No pod is placed there; `None` where that does not matter.
    pub unschedulable: Option<bool>,
    /// Its kubelet is well.
    pub ready: bool,
}

impl From<&NodeFacts> for NodeMark {
    fn from(facts: &NodeFacts) -> Self {
        Self { unschedulable: Some(facts.unschedulable), ready: facts.ready }
    }
}

impl WatchedBlockers {
    #[must_use]
    pub fn with_pods<'a>(mut self, pods: impl IntoIterator<Item = &'a PodFacts>) -> Self {
        pods.into_iter().map(|facts| (facts.pod.uid.clone(), facts.clone())).insert_into(&mut self.pods);
        self
    }

    /// The same for after the last attempt: we remove our cordon ourselves, and calls that are refused for good are not
    /// tried until a drain is asked for again.
    #[must_use]
    pub fn after_all_attempts(mut self) -> Self {
        self.refused.clear();
        self.node = self.node.filter(|it| !it.ready).map(|it| NodeMark { unschedulable: None, ..it });
        self
    }

    /// All pods of the node are these: has one of ours gone or changed?
    pub fn pods_now(&self, now: &[PodFacts]) -> Option<String> {
        let gone = self.pods.iter().find(|(uid, _)| now.iter().all(|it| it.pod.uid != **uid));
        gone.and_then(|(uid, _)| self.pod_gone(uid))
            .or_else(|| now.iter().find_map(|facts| self.pod_now(facts)))
    }

    pub fn pod_now(&self, facts: &PodFacts) -> Option<String> {
        let known = self.pods.get(&facts.pod.uid)?;
        let what = if facts.terminating && !known.terminating {
            "is ending now"
        } else if facts.finished && !known.finished {
            "has run to its end"
        } else if facts.labels != known.labels {
            "has other labels"
        } else {
            return None;
        };
        Some(format!("pod {} {what}", known.pod))
    }

    pub fn pod_gone(&self, uid: &PodUid) -> Option<String> {
        self.pods.get(uid).map(|known| format!("pod {} is gone", known.pod))
    }

    /// The budgets of `namespace` are these.
    pub fn budgets_now(&self, namespace: &str, now: &[BudgetFacts]) -> Option<String> {
        let known = self.budgets.get(namespace)?;
        let gone = known.iter().find(|it| now.iter().all(|other| other.name != it.name));
        if let Some(gone) = gone {
            return Some(format!("budget {namespace}/{} is gone", gone.name));
        }
        now.iter().find_map(|now| {
            let Some(known) = known.iter().find(|it| it.name == now.name) else {
                return Some(format!("budget {namespace}/{} is new", now.name));
            };
            let what = if now.allowed > known.allowed {
                format!("now allows {}", now.allowed)
            } else if now.selector != known.selector {
                "guards other pods now".to_owned()
            } else if now.desired != known.desired {
                format!("now needs {} healthy", now.desired)
            } else if now.expected != known.expected {
                format!("now counts pods: {}", now.expected)
            } else {
                return None;
            };
            Some(format!("budget {namespace}/{} {what}", now.name))
        })
    }

    pub fn node_now(&self, now: &NodeFacts) -> Option<String> {
        let known = self.node?;
        if now.ready && !known.ready {
            Some(format!("node {} is Ready again", now.name))
        } else if known.unschedulable.is_some_and(|it| it != now.unschedulable) {
            let what = if now.unschedulable { "is unschedulable again" } else { "is schedulable again" };
            Some(format!("node {} {what}", now.name))
        } else {
            None
        }
    }

    pub fn storage_now(&self, now: &StorageView) -> Option<String> {
        if self.storage_unknown {
            return Some("the state of the storage can be read again".to_owned());
        }
        let found = |volume: &str| now.findings.iter().find(|it| it.volume == volume);
        self.last_copies.iter().find_map(|(volume, known)| match found(volume).map(|it| (&it.state, it)) {
            Some((_, it)) if !it.passed.is_empty() => Some(format!("a person lets volume {volume} pass")),
            Some((VolumeState::LastCopy(Cause::AllCordoned), _)) => None,
            Some((VolumeState::LastCopy(_), _)) if *known == Cause::AllCordoned => {
                Some(format!("another node can take a copy of volume {volume}"))
            }
            Some((VolumeState::LastCopy(cause), _)) => {
                // What was under way, or about to begin, comes and goes by itself.
                let stuck = known.code().is_some() && *known != Cause::Enough;
                let other = std::mem::discriminant(known) != std::mem::discriminant(cause);
                (stuck && other)
                    .then(|| format!("volume {volume} is held up by something else, or by nothing"))
            }
            Some(_) | None if matches!(known, Cause::Parity { .. }) => {
                Some(format!("the shards of volume {volume} on this node can be spared"))
            }
            Some((VolumeState::Safe | VolumeState::Faulted | VolumeState::Unknown, _)) | None => {
                Some(format!("the last healthy copy of volume {volume} is no longer here alone"))
            }
        })
    }

    /// All attachments of the cluster bear these names.
    pub fn volumes_now(&self, names: &[&str]) -> Option<String> {
        self.volumes.keys().find(|name| !names.contains(&name.as_str())).and_then(|it| self.volume_gone(it))
    }

    pub fn volume_gone(&self, name: &str) -> Option<String> {
        self.volumes.get(name).map(|volume| format!("volume {volume} is detached"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::cordon::tests::node;
    use crate::plan::PodOwner;
    use crate::plan::budget::tests::budget as numbered;
    use crate::plan::tier::Tier;
    use crate::plan::tier::tests::pod;

    fn budget(allowed: i32) -> BudgetFacts {
        numbered("web", [allowed, 2, 2, 3])
    }

    #[test]
    fn d16_a_pod_that_goes_or_looks_different_is_worth_an_attempt_and_flux_is_not() {
        let watched = WatchedBlockers::default().with_pods(&[pod("a")]);
        let other = |change: fn(&mut PodFacts)| {
            let mut changed = pod("a");
            change(&mut changed);
            watched.pods_now(&[pod("b"), changed])
        };
        let table = [
            (other(|_| ()), None),
            (other(|it| it.owner = PodOwner::VanishedDaemonSet), None),
            (other(|it| it.tier = Tier::System), None),
            (other(|it| it.terminating = true), Some("pod shop/a is ending now")),
            (other(|it| it.finished = true), Some("pod shop/a has run to its end")),
            (other(|it| it.labels.clear()), Some("pod shop/a has other labels")),
            (watched.pods_now(&[pod("b")]), Some("pod shop/a is gone")),
            (watched.pod_now(&pod("b")), None),
            (watched.pod_gone(&pod("b").pod.uid), None),
        ];
        for (number, (said, expected)) in table.into_iter().enumerate() {
            assert_eq!(said.as_deref(), expected, "row {number}");
        }
        let ending = PodFacts { terminating: true, ..pod("a") };
        assert_eq!(WatchedBlockers::default().with_pods([&ending]).pod_now(&ending), None, "known already");
    }

    #[test]
    fn d16_a_budget_wakes_by_room_or_shape_and_not_by_a_flapping_count() {
        let watched = WatchedBlockers {
            budgets: [("shop".to_owned(), vec![budget(0)])].into_iter().collect(),
            ..WatchedBlockers::default()
        };
        let named = BudgetFacts { name: "api".to_owned(), ..budget(0) };
        let table: [(Vec<BudgetFacts>, Option<&str>); 9] = [
            (vec![budget(0)], None),
            (vec![BudgetFacts { healthy: 1, ..budget(0) }], None),
            (vec![budget(-1)], None),
            (vec![budget(1)], Some("budget shop/web now allows 1")),
            (
                vec![BudgetFacts { selector: None, ..budget(0) }],
                Some("budget shop/web guards other pods now"),
            ),
            (vec![BudgetFacts { desired: 1, ..budget(0) }], Some("budget shop/web now needs 1 healthy")),
            (vec![BudgetFacts { expected: 4, ..budget(0) }], Some("budget shop/web now counts pods: 4")),
            (vec![], Some("budget shop/web is gone")),
            (vec![budget(0), named], Some("budget shop/api is new")),
        ];
        for (now, expected) in table {
            assert_eq!(watched.budgets_now("shop", &now).as_deref(), expected, "{now:?}");
        }
        assert_eq!(watched.budgets_now("other", &[]), None, "not followed");
    }

    #[test]
    fn d16_a_node_wakes_when_it_is_well_or_its_flag_is_another() {
        let node =
            |unschedulable, ready| NodeFacts { ready, unschedulable, ..node(topics::CordonOwner::None) };
        let table = [
            ((true, true), (true, true), None),
            ((true, true), (true, false), None),
            ((true, false), (true, true), Some("node n1 is Ready again")),
            ((true, true), (false, true), Some("node n1 is schedulable again")),
            ((false, true), (true, true), Some("node n1 is unschedulable again")),
        ];
        for (known, now, expected) in table {
            let known = Some(NodeMark::from(&node(known.0, known.1)));
            let watched = WatchedBlockers { node: known, ..WatchedBlockers::default() };
            assert_eq!(watched.node_now(&node(now.0, now.1)).as_deref(), expected, "{now:?}");
        }
        assert_eq!(WatchedBlockers::default().node_now(&node(false, true)), None);
    }

    #[test]
    fn d16_a_volume_wakes_when_its_attachment_is_gone() {
        let volumes = [("va-1".to_owned(), "shop/data (pv pv-1)".to_owned())];
        let watched = WatchedBlockers { volumes: volumes.into(), ..WatchedBlockers::default() };
        assert_eq!(watched.volumes_now(&["va-0", "va-1"]), None);
        assert_eq!(watched.volumes_now(&["va-0"]).unwrap(), "volume shop/data (pv pv-1) is detached");
        assert_eq!(watched.volume_gone("va-0"), None);
    }
}
