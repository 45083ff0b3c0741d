//! Whether a Deployment has a second copy made elsewhere before its only Ready pods leave a node (goals D20).
//!
//! It is asked to roll out its own template again, as `kubectl rollout restart` does: its controller then makes the new
//! pod, waits until that is Ready, and ends the old one. Nothing has to be scaled back afterwards, not even after
//! a crash, and no number of replicas is touched. Not here: reading it, and when (`engine`). Source: the Kubernetes
//! page "Deployments" on `maxSurge` and `maxUnavailable`. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use step::named;

use crate::plan::budget::Selector;

/// What a Deployment puts on its pods: the end of the name of their replica set.
const HASH_LABEL: &str = "pod-template-hash";
/// On a Deployment, what its owner wants: [`YES`] or [`NO`].
pub const SURGE_ANNOTATION: &str = "pillar-rs/drain-surge";
/// On a Deployment, as long as a second copy that was asked for is on its way: a [`SurgeRecord`]. Without it nothing is
/// given up.
pub const RECORD_ANNOTATION: &str = "pillar-rs/drain-surge-record";
/// On the template of a Deployment: the node, and the replica set of the pods to be replaced, as `n1/web-5f7d`. With it
/// the template is another one, which is rolled out; it stays when that is done.
pub const FROM_ANNOTATION: &str = "pillar-rs/drain-surge-from";
/// A second copy is wanted.
pub const YES: &str = "yes";
pub const NO: &str = "no";

named! {
    /// Which Deployments have a second copy made.
    pub enum SurgeRule {
        /// None; nothing is read.
        Never = "never",
        /// Those with an annotation that says so.
        Annotated = "annotated",
        /// All but those with an annotation that says no.
        All = "all",
    }
}

/// Who has asked a Deployment for a second copy, and what giving it up restores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SurgeRecord {
    pub(crate) node: String,
    /// The replica set of the pod there.
    pub(crate) replica_set: String,
    /// What [`FROM_ANNOTATION`] was before.
    pub(crate) before: Option<String>,
}

impl SurgeRecord {
    /// What [`FROM_ANNOTATION`] is meanwhile.
    pub(crate) fn from(&self) -> String {
        format!("{}/{}", self.node, self.replica_set)
    }
}

/// The name of the Deployment of a pod with this replica set and these labels.
pub(crate) fn deployment_of<'a>(replica_set: &'a str, labels: &BTreeMap<String, String>) -> Option<&'a str> {
    replica_set.strip_suffix(labels.get(HASH_LABEL)?)?.strip_suffix('-')
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DeploymentFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// Which pods may be its own.
    pub(crate) selector: Option<Selector>,
    /// What [`SURGE_ANNOTATION`] says, or empty.
    pub(crate) word: String,
    pub(crate) replicas: u64,
    pub(crate) paused: bool,
    /// All old pods end before the first new one begins.
    pub(crate) recreate: bool,
    /// Pods that a rollout may do without, from a number or a share of `replicas`.
    pub(crate) unavailable: u64,
    /// Pods that it may make beyond `replicas`.
    pub(crate) surge: u64,
    /// Its new pod could come to a cordoned node.
    pub(crate) tolerates_cordon: bool,
    /// What [`FROM_ANNOTATION`] says.
    pub(crate) from: Option<String>,
    /// What [`RECORD_ANNOTATION`] says.
    pub(crate) record: Option<SurgeRecord>,
    /// A rollout is under way by what its controller says.
    pub(crate) rolling: bool,
    /// Its newest template is rolled out, as `kubectl rollout status` counts it.
    pub(crate) complete: bool,
}

impl DeploymentFacts {
    /// What `node` has asked of it.
    pub(crate) fn record_of(&self, node: &str) -> Option<&SurgeRecord> {
        self.record.as_ref().filter(|it| it.node == node)
    }
}

/// As `shop/web`.
impl fmt::Display for DeploymentFacts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// What is known of the pod that is to leave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodCase {
    pub(crate) node: String,
    /// A second copy of its Deployment was asked for in this drain.
    pub(crate) asked: bool,
    pub(crate) ready: bool,
    /// Claims that it mounts, within its namespace.
    pub(crate) claims: Vec<String>,
    /// Pods of the Deployment that are Ready on other nodes, which are not cordoned.
    pub(crate) elsewhere: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SurgeDecision {
    /// Nothing: it is evicted like any other.
    NotNeeded,
    /// It would be wanted, and cannot be, for this reason.
    Cannot(String),
    Ask,
    /// It was asked for, or the Deployment rolls out by itself.
    UnderWay,
}

/// What follows for a pod of a Deployment.
pub(crate) fn judge(rule: SurgeRule, of: &DeploymentFacts, pod: &PodCase) -> SurgeDecision {
    let wanted = match rule {
        SurgeRule::Never => false,
        SurgeRule::Annotated => of.word == YES,
        SurgeRule::All => of.word != NO,
    };
    if !wanted || of.replicas == 0 || !pod.ready || pod.elsewhere > 0 {
        return SurgeDecision::NotNeeded;
    }
    let ours = of.record_of(&pod.node);
    let is_current = ours.is_some_and(|it| of.from.as_ref() == Some(&it.from()));
    if ours.is_some() && !is_current {
        return SurgeDecision::Cannot(format!(
            "somebody has withdrawn the one that Deployment {of} was asked for"
        ));
    }
    if ours.is_some() && !of.rolling {
        return SurgeDecision::Cannot(format!("the new pod of Deployment {of} is on this node, too"));
    }
    // Once is enough, whatever came of it.
    if ours.is_none() && pod.asked {
        return SurgeDecision::Cannot(format!("Deployment {of} was asked for one in this drain already"));
    }
    if of.rolling {
        return SurgeDecision::UnderWay;
    }
    if of.tolerates_cordon {
        return SurgeDecision::Cannot(format!("the pods of Deployment {of} tolerate a cordon"));
    }
    // A claim can be bound to one node, and nothing here says that it is shared.
    if let Some(claim) = pod.claims.first() {
        return SurgeDecision::Cannot(format!(
            "its pods mount a volume (claim {claim}), which may be for one node only"
        ));
    }
    if of.paused {
        return SurgeDecision::Cannot(format!("Deployment {of} is paused"));
    }
    if of.recreate {
        return SurgeDecision::Cannot(format!("Deployment {of} has the strategy Recreate"));
    }
    if of.surge == 0 || of.unavailable >= of.replicas {
        let (unavailable, surge) = (of.unavailable, of.surge);
        return SurgeDecision::Cannot(format!(
            "a rollout of Deployment {of} may leave it without a Ready pod: maxUnavailable is {unavailable} and maxSurge \
             {surge}; replicas: {}",
            of.replicas
        ));
    }
    SurgeDecision::Ask
}

/// Pods that a rollout may do without and may make in addition, as its controller counts them: shares are rounded down and
/// up, a quarter each by default, and one of the two is at least one.
pub(crate) fn bounds(unavailable: &str, surge: &str, replicas: u64) -> (u64, u64) {
    let (unavailable, surge) = (share(unavailable, replicas, false), share(surge, replicas, true));
    if surge == 0 { (unavailable.max(1), 0) } else { (unavailable, surge) }
}

/// What `2` or `25%` is of `whole`; a quarter for anything else.
fn share(text: &str, whole: u64, up: bool) -> u64 {
    text.parse().unwrap_or_else(|_| {
        let percent = text.strip_suffix('%').and_then(|it| it.parse().ok()).unwrap_or(25_u64);
        let parts = percent.saturating_mul(whole);
        if up { parts.div_ceil(100) } else { parts / 100 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> DeploymentFacts {
        DeploymentFacts {
            namespace: "shop".into(),
            name: "web".into(),
            replicas: 1,
            surge: 1,
            ..DeploymentFacts::default()
        }
    }

    fn pod() -> PodCase {
        PodCase { node: "n1".into(), ready: true, ..PodCase::default() }
    }

    #[test]
    fn d20_a_second_copy_is_asked_for_where_it_is_wanted_needed_and_can_be() {
        let with = |change: &dyn Fn(&mut DeploymentFacts)| {
            let mut facts = deployment();
            change(&mut facts);
            facts
        };
        let word = |word: &str| DeploymentFacts { word: word.into(), ..deployment() };
        let asked = || PodCase { asked: true, ..pod() };
        let record = |node: &str, from: &str, rolling| DeploymentFacts {
            record: Some(SurgeRecord { node: node.into(), replica_set: "web-5f7d".into(), before: None }),
            from: Some(from.into()),
            rolling,
            ..deployment()
        };
        let (never, annotated, all) = (SurgeRule::Never, SurgeRule::Annotated, SurgeRule::All);
        let cases = [
            // The rule and the owner's word.
            (never, word(YES), pod(), "NotNeeded"),
            (annotated, deployment(), pod(), "NotNeeded"),
            (annotated, word(YES), pod(), "Ask"),
            (annotated, word("true"), pod(), "NotNeeded"),
            (all, deployment(), pod(), "Ask"),
            (all, word(NO), pod(), "NotNeeded"),
            // Whether anything would be lost without it.
            (all, with(&|it| it.replicas = 0), pod(), "NotNeeded"),
            (all, deployment(), PodCase { ready: false, ..pod() }, "NotNeeded"),
            (all, deployment(), PodCase { elsewhere: 1, ..pod() }, "NotNeeded"),
            // More than one replica, all of them here.
            (all, with(&|it| (it.replicas, it.surge) = (3, 1)), pod(), "Ask"),
            (all, with(&|it| (it.replicas, it.unavailable) = (3, 2)), pod(), "Ask"),
            // Whether it was asked, or something is under way.
            (all, record("n1", "n1/web-5f7d", true), pod(), "UnderWay"),
            (all, record("n2", "n2/web-5f7d", true), pod(), "UnderWay"),
            (all, record("n2", "n2/web-5f7d", false), pod(), "Ask"),
            (all, with(&|it| it.from = Some("n1/web-5f7d".into())), pod(), "Ask"),
            // Once in a drain.
            (all, record("n1", "n1/web-5f7d", false), pod(), "is on this node, too"),
            (all, record("n1", "", true), pod(), "somebody has withdrawn"),
            (all, deployment(), asked(), "in this drain already"),
            (all, record("n1", "n1/web-5f7d", true), asked(), "UnderWay"),
            (all, with(&|it| it.rolling = true), pod(), "UnderWay"),
            // What speaks against it, by name.
            (all, deployment(), PodCase { claims: vec!["data".into()], ..pod() }, "claim data"),
            (all, with(&|it| it.paused = true), pod(), "shop/web is paused"),
            (all, with(&|it| it.tolerates_cordon = true), pod(), "tolerate a cordon"),
            (all, with(&|it| it.recreate = true), pod(), "strategy Recreate"),
            (all, with(&|it| it.unavailable = 1), pod(), "maxUnavailable is 1 and maxSurge 1; replicas: 1"),
            (
                all,
                with(&|it| (it.replicas, it.surge, it.unavailable) = (3, 0, 1)),
                pod(),
                "maxSurge 0; replicas: 3",
            ),
        ];
        for (rule, facts, pod, expected) in cases {
            let verdict = format!("{:?}", judge(rule, &facts, &pod));
            assert!(verdict.contains(expected), "{rule:?} {facts:?} {pod:?}: {verdict}, not {expected}");
        }
    }

    #[test]
    fn d20_the_bounds_of_a_rollout_are_those_that_its_controller_takes() {
        for (unavailable, surge, replicas, expected) in [
            ("", "", 1, (0, 1)),
            ("", "", 4, (1, 1)),
            ("", "", 10, (2, 3)),
            ("1", "1", 1, (1, 1)),
            ("0", "1", 1, (0, 1)),
            ("25%", "0", 1, (1, 0)),
            ("0%", "0%", 3, (1, 0)),
            ("50%", "150%", 3, (1, 5)),
            ("nonsense", "?", 1, (0, 1)),
        ] {
            let found = bounds(unavailable, surge, replicas);
            assert_eq!(found, expected, "{unavailable} {surge} of {replicas}");
        }
    }
}
