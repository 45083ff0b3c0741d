//! Whether a Deployment has a second copy made elsewhere before its only Ready pods leave a node.
//!
//! It is asked to roll out its own template again, as `kubectl rollout restart` does: its controller then makes the new
//! pod, waits until that is Ready, and ends the old one. Nothing has to be scaled back afterwards, not even after
//! a crash, and no number of replicas is touched. Not here: reading it, and when (`engine`). Source: the Kubernetes
//! page "Deployments" on `maxSurge` and `maxUnavailable`. Pure: no clock, no I/O, no task.

use std::fmt;

use kube::core::Selector;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use step::named;

use crate::plan::PodFacts;

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

/// The replica set of a pod and its Deployment, within their namespace.
pub(crate) fn deployment_of(pod: &PodFacts) -> Option<(&str, &str)> {
    let replica_set = pod.workload.strip_prefix("ReplicaSet/")?;
    let deployment = replica_set.strip_suffix(pod.labels.get(HASH_LABEL)?)?.strip_suffix('-')?;
    Some((replica_set, deployment))
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
    /// Why no rollout of it makes a second copy elsewhere first, see [`unfit`].
    pub(crate) unfit: Option<String>,
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodCase<'a> {
    pub(crate) node: &'a str,
    /// A second copy of its Deployment was asked for in this drain.
    pub(crate) asked: bool,
    pub(crate) ready: bool,
    /// Claims that it mounts, within its namespace.
    pub(crate) claims: &'a [String],
    /// A pod of the Deployment is Ready on another node, which is not cordoned.
    pub(crate) elsewhere: bool,
}

/// What becomes of the second copy of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurgeAnswer {
    /// None is needed, or there is one: the pod is evicted like any other.
    NotNeeded,
    /// There is none, for this reason.
    Without(String),
    /// One is on its way; the controller of the Deployment ends the pod then.
    UnderWay {
        /// As `shop/web`.
        deployment: String,
        /// This node has asked for it; else the Deployment rolls out by itself.
        ours: bool,
    },
}

/// What follows for a pod of a Deployment. One that is to be under way as ours and of which the Deployment has no record
/// is to be asked for.
pub(crate) fn judge(rule: SurgeRule, of: &DeploymentFacts, pod: PodCase<'_>) -> SurgeAnswer {
    let wanted = match rule {
        SurgeRule::Never => false,
        SurgeRule::Annotated => of.word == YES,
        SurgeRule::All => of.word != NO,
    };
    if !wanted || of.replicas == 0 || !pod.ready || pod.elsewhere {
        return SurgeAnswer::NotNeeded;
    }
    let under_way = |ours| SurgeAnswer::UnderWay { deployment: of.to_string(), ours };
    SurgeAnswer::Without(match (of.record_of(pod.node), &of.unfit, pod.claims) {
        (Some(record), ..) if of.from.as_ref() != Some(&record.from()) => {
            format!("somebody has withdrawn the one that Deployment {of} was asked for")
        }
        (Some(_), ..) if of.rolling => return under_way(true),
        (Some(_), ..) => format!("the new pod of Deployment {of} is on this node, too"),
        // Once is enough, whatever came of it.
        (None, ..) if pod.asked => format!("Deployment {of} was asked for one in this drain already"),
        (None, ..) if of.rolling => return under_way(false),
        // A claim can be bound to one node, and nothing here says that it is shared.
        (None, _, [claim, ..]) => {
            format!("its pods mount a volume (claim {claim}), which may be for one node only")
        }
        (None, Some(why), []) => why.clone(),
        (None, None, []) => return under_way(true),
    })
}

/// Why no rollout of the Deployment `named` makes a second copy on another node before it ends the first; `spec` is its
/// own, as JSON, and `tolerates_cordon` says that its new pod could come to a cordoned node.
pub(crate) fn unfit(named: &str, spec: &Value, replicas: u64, tolerates_cordon: bool) -> Option<String> {
    let (strategy, rollout) = (&spec["strategy"], &spec["strategy"]["rollingUpdate"]);
    let (unavailable, surge) = bounds(&rollout["maxUnavailable"], &rollout["maxSurge"], replicas);
    if tolerates_cordon {
        Some(format!("the pods of Deployment {named} tolerate a cordon"))
    } else if spec["paused"] == true {
        Some(format!("Deployment {named} is paused"))
    } else if strategy["type"] == "Recreate" {
        // All old pods end before the first new one begins.
        Some(format!("Deployment {named} has the strategy Recreate"))
    } else if surge == 0 || unavailable >= replicas {
        Some(format!(
            "a rollout of Deployment {named} may leave it without a Ready pod: maxUnavailable is {unavailable} and maxSurge \
             {surge}; replicas: {replicas}"
        ))
    } else {
        None
    }
}

/// Pods that a rollout may do without and may make in addition, as its controller counts them: shares are rounded down and
/// up, a quarter each by default, and one of the two is at least one.
fn bounds(unavailable: &Value, surge: &Value, replicas: u64) -> (u64, u64) {
    let (unavailable, surge) = (share(unavailable, replicas, false), share(surge, replicas, true));
    if surge == 0 { (unavailable.max(1), 0) } else { (unavailable, surge) }
}

/// What `2` or `25%` is of `whole`; a quarter for anything else.
fn share(of: &Value, whole: u64, up: bool) -> u64 {
    of.as_u64().unwrap_or_else(|| {
        let percent = of.as_str().and_then(|it| it.strip_suffix('%')?.parse().ok()).unwrap_or(25_u64);
        let parts = percent.saturating_mul(whole);
        if up { parts.div_ceil(100) } else { parts / 100 }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> DeploymentFacts {
        DeploymentFacts {
            namespace: "shop".into(),
            name: "web".into(),
            replicas: 1,
            ..DeploymentFacts::default()
        }
    }

    fn pod() -> PodCase<'static> {
        PodCase { node: "n1", asked: false, ready: true, claims: &[], elsewhere: false }
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
        let claims = ["data".to_owned()];
        let cases = [
            // The rule and the owner's word.
            (never, word(YES), pod(), "NotNeeded"),
            (annotated, deployment(), pod(), "NotNeeded"),
            (annotated, word(YES), pod(), "ours: true"),
            (annotated, word("true"), pod(), "NotNeeded"),
            (all, deployment(), pod(), "ours: true"),
            (all, word(NO), pod(), "NotNeeded"),
            // Whether anything would be lost without it.
            (all, with(&|it| it.replicas = 0), pod(), "NotNeeded"),
            (all, deployment(), PodCase { ready: false, ..pod() }, "NotNeeded"),
            (all, deployment(), PodCase { elsewhere: true, ..pod() }, "NotNeeded"),
            // Whether it was asked, or something is under way.
            (all, record("n1", "n1/web-5f7d", true), pod(), "ours: true"),
            (all, record("n2", "n2/web-5f7d", true), pod(), "ours: false"),
            (all, record("n2", "n2/web-5f7d", false), pod(), "ours: true"),
            (all, with(&|it| it.from = Some("n1/web-5f7d".into())), pod(), "ours: true"),
            // Once in a drain.
            (all, record("n1", "n1/web-5f7d", false), pod(), "is on this node, too"),
            (all, record("n1", "", true), pod(), "somebody has withdrawn"),
            (all, deployment(), asked(), "in this drain already"),
            (all, record("n1", "n1/web-5f7d", true), asked(), "ours: true"),
            (all, with(&|it| it.rolling = true), pod(), "ours: false"),
            // What speaks against it, by name.
            (all, deployment(), PodCase { claims: &claims, ..pod() }, "claim data"),
            (all, with(&|it| it.unfit = Some("it is paused".into())), pod(), "it is paused"),
        ];
        for (rule, facts, pod, expected) in cases {
            let verdict = format!("{:?}", judge(rule, &facts, pod));
            assert!(verdict.contains(expected), "{rule:?} {facts:?} {pod:?}: {verdict}, not {expected}");
        }
    }

    #[test]
    fn d20_the_bounds_of_a_rollout_are_those_that_its_controller_takes() {
        for (unavailable, surge, replicas, expected) in [
            (Value::Null, Value::Null, 1, (0, 1)),
            (Value::Null, Value::Null, 4, (1, 1)),
            (Value::Null, Value::Null, 10, (2, 3)),
            (json!(1), json!(1), 1, (1, 1)),
            (json!(0), json!(1), 1, (0, 1)),
            (json!("25%"), json!(0), 1, (1, 0)),
            (json!("0%"), json!("0%"), 3, (1, 0)),
            (json!("50%"), json!("150%"), 3, (1, 5)),
            (json!("nonsense"), json!("?"), 1, (0, 1)),
        ] {
            let found = bounds(&unavailable, &surge, replicas);
            assert_eq!(found, expected, "{unavailable} {surge} of {replicas}");
        }
    }

    #[test]
    fn d20_what_keeps_a_rollout_from_making_a_second_copy_first_is_named() {
        let by = |unavailable: u64, surge: u64| json!({ "strategy": { "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } } });
        for (spec, replicas, tolerates, expected) in [
            (json!({}), 1, false, ""),
            // More than one replica, all of them here.
            (by(0, 1), 3, false, ""),
            (by(2, 1), 3, false, ""),
            (json!({}), 1, true, "shop/web tolerate a cordon"),
            (json!({ "paused": true }), 1, false, "shop/web is paused"),
            (json!({ "strategy": { "type": "Recreate" } }), 1, false, "strategy Recreate"),
            (by(1, 1), 1, false, "maxUnavailable is 1 and maxSurge 1; replicas: 1"),
            (by(1, 0), 3, false, "maxSurge 0; replicas: 3"),
        ] {
            let why = unfit("shop/web", &spec, replicas, tolerates);
            assert_eq!(why.is_some(), !expected.is_empty(), "{spec}: {why:?}");
            assert!(why.unwrap_or_default().contains(expected), "{spec}");
        }
    }
}
