//! A second copy elsewhere before the only Ready pods of a Deployment leave a node: whether it has one made, asking for
//! it, and giving it up.
//!
//! It is asked to roll out its own template again, as `kubectl rollout restart` does: its controller then makes the new
//! pod, waits until that is Ready, and ends the old one. Nothing has to be scaled back afterwards, not even after
//! a crash, and no number of replicas is touched. A patch carries the version that was read, so that nothing of others is
//! written over. Not here: when (`engine`). Source: the Kubernetes page "Deployments" on `maxSurge` and `maxUnavailable`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::api::{GetParams, Patch};
use kube::core::Request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use step::{LiteMap, named};

use crate::calls::pods::facts;
use crate::calls::{budgets, unhealthy_pods};
use crate::plan::PodFacts;
use crate::plan::placement::tolerates_cordon;
use kubeapi::names::{NodeName, PodUid};
use kubeapi::nodes::{self, signed};
use kubeapi::objects::{self, items, text};
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found};

/// What is done when the template becomes what it was before.
const GIVE_UP: &str = "give up the second copy";
/// The time that reading the nodes may take.
const READ: Duration = Duration::from_secs(30);
/// What a Deployment puts on its pods: the end of the name of their replica set.
const HASH_LABEL: &str = "pod-template-hash";
/// On a Deployment, what its owner wants: `yes` or `no`.
const SURGE_ANNOTATION: &str = "pillar-rs/drain-surge";
/// On a Deployment that was asked for a second copy in a drain, until that drain is over: a [`SurgeRecord`]. Without it
/// nothing is given up, and with it nothing is asked for again.
const RECORD_ANNOTATION: &str = "pillar-rs/drain-surge-record";
/// On the template of a Deployment: the node, and the replica set of the pods to be replaced, as `n1/web-5f7d`. With it
/// the template is another one, which is rolled out; it stays when that is done.
const FROM_ANNOTATION: &str = "pillar-rs/drain-surge-from";

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

/// What becomes of the second copy of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurgeAnswer {
    /// None is needed, or there is one: the pod is evicted like any other.
    NotNeeded,
    /// There is none, for this reason.
    Without(String),
    /// One of this Deployment, as `shop/web`, is on its way; its controller ends the pod then.
    UnderWay(String),
}

/// Who has asked a Deployment for a second copy, and what giving it up restores.
#[derive(Debug, Serialize, Deserialize)]
struct SurgeRecord {
    node: String,
    /// The replica set of the pod there.
    replica_set: String,
    /// What [`FROM_ANNOTATION`] was before.
    before: Option<String>,
}

impl SurgeRecord {
    /// What [`FROM_ANNOTATION`] is meanwhile.
    fn from(&self) -> String {
        format!("{}/{}", self.node, self.replica_set)
    }
}

/// The replica set of a pod and its Deployment, within their namespace.
pub(crate) fn deployment_of(pod: &PodFacts) -> Option<(&str, &str)> {
    let replica_set = pod.workload.strip_prefix("ReplicaSet/")?;
    let deployment = replica_set.strip_suffix(pod.labels.get(HASH_LABEL)?)?.strip_suffix('-')?;
    Some((replica_set, deployment))
}

/// What a second copy of a Deployment depends on.
#[derive(Debug, Default)]
struct DeploymentFacts {
    /// As `shop/web`.
    named: String,
    namespace: String,
    name: String,
    version: String,
    /// Which pods may be its own.
    selector: Option<LabelSelector>,
    /// What [`SURGE_ANNOTATION`] says, or empty.
    word: String,
    replicas: u64,
    /// Why no rollout of it makes a second copy elsewhere first, see [`unfit`].
    unfit: Option<String>,
    /// What [`FROM_ANNOTATION`] says.
    from: Option<String>,
    record: Option<SurgeRecord>,
    /// A rollout is under way by what its controller says.
    rolling: bool,
}

impl DeploymentFacts {
    /// As the object says.
    fn of(object: &Value) -> Self {
        let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let number = |it: &Value| it.as_u64().unwrap_or(0);
        let [all, new] = ["replicas", "updatedReplicas"].map(|it| number(&status[it]));
        let (named, replicas) = (objects::named(object), spec["replicas"].as_u64().unwrap_or(1));
        // Its controller has seen what is wanted.
        let is_seen = number(&status["observedGeneration"]) >= number(&meta["generation"]);
        Self {
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            version: text(&meta["resourceVersion"]),
            selector: objects::typed(&spec["selector"]).ok(),
            word: text(&meta["annotations"][SURGE_ANNOTATION]),
            replicas,
            unfit: unfit(&named, spec, replicas),
            from: spec["template"]["metadata"]["annotations"][FROM_ANNOTATION].as_str().map(str::to_owned),
            record: serde_json::from_str(&text(&meta["annotations"][RECORD_ANNOTATION])).ok(),
            rolling: !is_seen || all > new,
            named,
        }
    }

    /// What `node` has asked of it.
    fn record_of(&self, node: &NodeName) -> Option<&SurgeRecord> {
        self.record.as_ref().filter(|it| it.node == node.as_str())
    }
}

/// What follows for a pod of a Deployment on `node`, with `claims`, that is Ready there, and no other one elsewhere. One
/// that is to be under way, and neither has a record of ours nor rolls out by itself, is to be asked for.
fn judge(rule: SurgeRule, of: &DeploymentFacts, node: &NodeName, claims: &[String]) -> SurgeAnswer {
    let wanted = match rule {
        SurgeRule::Never => false,
        SurgeRule::Annotated => of.word == "yes",
        SurgeRule::All => of.word != "no",
    };
    if !wanted || of.replicas == 0 {
        return SurgeAnswer::NotNeeded;
    }
    let named = &of.named;
    SurgeAnswer::Without(match (of.record_of(node), &of.unfit, claims) {
        // Once in a drain is enough, whatever came of it.
        (Some(record), ..) if of.from.as_ref() != Some(&record.from()) => {
            format!("the one that Deployment {named} was asked for in this drain is withdrawn")
        }
        _ if of.rolling => return SurgeAnswer::UnderWay(named.clone()),
        (Some(_), ..) => format!("the new pod of Deployment {named} is on this node, too"),
        // A claim can be bound to one node, and nothing here says that it is shared.
        (None, _, [claim, ..]) => {
            format!("its pods mount a volume (claim {claim}), which may be for one node only")
        }
        (None, Some(why), []) => why.clone(),
        (None, None, []) => return SurgeAnswer::UnderWay(named.clone()),
    })
}

/// Why no rollout of the Deployment `named` makes a second copy on another node before it ends the first; `spec` is its
/// own, as JSON.
fn unfit(named: &str, spec: &Value, replicas: u64) -> Option<String> {
    let strategy = &spec["strategy"];
    let (unavailable, surge) = bounds(&strategy["rollingUpdate"], replicas);
    let tolerates = |it: &Value| objects::typed(it).is_ok_and(|it| tolerates_cordon(&it));
    let tolerates = items(&spec["template"]["spec"]["tolerations"]).iter().any(tolerates);
    let reasons = [
        // Its new pod could come to a cordoned node.
        (tolerates, format!("the pods of Deployment {named} tolerate a cordon")),
        (spec["paused"] == true, format!("Deployment {named} is paused")),
        // All old pods end before the first new one begins.
        (strategy["type"] == "Recreate", format!("Deployment {named} has the strategy Recreate")),
        (
            surge == 0 || unavailable >= replicas,
            format!(
                "a rollout of Deployment {named} may leave it without a Ready pod: maxUnavailable is {unavailable} and \
                 maxSurge {surge}; replicas: {replicas}"
            ),
        ),
    ];
    reasons.into_iter().find_map(|(holds, why)| holds.then_some(why))
}

/// Pods that a rollout may do without and may make in addition, as its controller counts them: shares are rounded down and
/// up, a quarter each by default, and one of the two is at least one.
fn bounds(rollout: &Value, replicas: u64) -> (u64, u64) {
    let (unavailable, surge) = (&rollout["maxUnavailable"], &rollout["maxSurge"]);
    let percent = |it: &Value| it.as_str()?.strip_suffix('%')?.parse().ok();
    let parts = |it: &Value| percent(it).unwrap_or(25_u64).saturating_mul(replicas);
    let surge = surge.as_u64().unwrap_or_else(|| parts(surge).div_ceil(100));
    let unavailable = unavailable.as_u64().unwrap_or_else(|| parts(unavailable) / 100);
    (if surge == 0 { unavailable.max(1) } else { unavailable }, surge)
}

/// Its pods: those of its replica sets, not all that its selector finds.
async fn pods_of(cluster: &ApiClient, of: &DeploymentFacts) -> Result<Vec<(PodFacts, Pod)>, Error> {
    let Some(chosen) = &of.selector else { return Ok(Vec::new()) };
    let what = format!("pods of Deployment {}", of.named);
    let labels = Some(budgets::selector(chosen).to_string());
    let scope = WatchScope { labels, ..WatchScope::all(what, Pod::url_path(Some(&of.namespace))) };
    let all = scope.list_all::<Pod>(cluster).await?.items.into_iter().map(|pod| (facts(&pod), pod));
    Ok(all.filter(|(facts, _)| owns(of, facts)).collect())
}

fn owns(of: &DeploymentFacts, pod: &PodFacts) -> bool {
    pod.pod.namespace == of.namespace && deployment_of(pod).is_some_and(|(_, name)| name == of.name)
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &PodFacts) -> bool {
    pod.ready && !pod.finished && !pod.terminating
}

/// Those of one Deployment that are Ready on `node`, where none is so on another one; what is on one that is `closed`, and so
/// is about to leave, too, does not count.
fn only_here<'a>(
    pods: impl Iterator<Item = (&'a PodFacts, &'a Pod)>,
    node: &NodeName,
    closed: impl Fn(&str) -> bool,
) -> Vec<&'a PodFacts> {
    let ready = pods.filter(|it| is_ready(it.0));
    let (here, away): (Vec<_>, Vec<_>) = ready.partition(|it| node_of(it.1) == node.as_str());
    let is_only = away.iter().all(|it| closed(node_of(it.1)));
    here.into_iter().filter(|_| is_only).map(|it| it.0).collect()
}

/// Asks for a second copy of the pod's Deployment where one is needed, and says how far that is; given up where so long as
/// `over` was waited for.
/// Errors: those of [`ApiClient`]; a version that is not the newest any more is a conflict.
pub async fn surge(
    cluster: &ApiClient,
    node: &NodeName,
    rule: SurgeRule,
    (pod, over): (&PodFacts, Option<Duration>),
) -> Result<SurgeAnswer, Error> {
    let Some((replica_set, name)) = deployment_of(pod) else { return Ok(SurgeAnswer::NotNeeded) };
    let namespace = &pod.pod.namespace;
    let read = Request::new(Deployment::url_path(&(), Some(namespace))).get(name, &GetParams::default());
    let object = cluster.ask::<Value>(&format!("read Deployment {namespace}/{name}"), read).await;
    let Some(of) = found(object)?.as_ref().map(DeploymentFacts::of) else {
        return Ok(SurgeAnswer::NotNeeded);
    };
    let pods = pods_of(cluster, &of).await?;
    let is_other = pods.iter().any(|(facts, it)| is_ready(facts) && node_of(it) != node.as_str());
    let members = if is_other { nodes::members(cluster, READ).await? } else { Vec::new() };
    let closed = |node: &str| members.iter().any(|it| it.name == node && it.facts.unschedulable);
    let only = only_here(pods.iter().map(|it| (&it.0, &it.1)), node, closed);
    if only.iter().all(|it| it.pod.uid != pod.pod.uid) {
        return Ok(SurgeAnswer::NotNeeded);
    }
    let answer = judge(rule, &of, node, &pod.claims);
    let SurgeAnswer::UnderWay(named) = &answer else { return Ok(answer) };
    match (over, of.record_of(node)) {
        (None, None) if !of.rolling => {
            let (node, replica_set) = (node.to_string(), replica_set.to_owned());
            let record = SurgeRecord { node, replica_set, before: of.from.clone() };
            let from = Some(record.from().into());
            write(cluster, "ask for a second copy", &of, Some(&record), from).await?;
        }
        (Some(_), Some(record)) => {
            write(cluster, GIVE_UP, &of, Some(record), Some(json!(record.before))).await?;
        }
        (None, _) | (Some(_), None) => {}
    }
    let Some(over) = over else { return Ok(answer) };
    let now = Timestamp::now();
    let mut away = pods.iter().filter(|(_, it)| node_of(it) != node.as_str());
    let why = away.find_map(|(_, it)| unhealthy_pods::hindrance(it, now));
    let (why, secs) = (why.map(|it| format!(": {it}")).unwrap_or_default(), over.as_secs());
    Ok(SurgeAnswer::Without(format!(
        "Deployment {named} had no Ready pod on another node within {secs} s{why}"
    )))
}

/// The pods of `node`, among `pods` of the whole cluster, of Deployments that a drain would ask for a second copy, with
/// the names of those; what is Ready on a node that is `closed` counts for nothing. Nothing is read where none is asked.
pub(crate) async fn foreseen(
    cluster: &ApiClient,
    node: &NodeName,
    rule: SurgeRule,
    pods: &[Pod],
    closed: impl Fn(&str) -> bool,
) -> Result<LiteMap<PodUid, String>, Error> {
    let mut found = LiteMap::new();
    if rule == SurgeRule::Never {
        return Ok(found);
    }
    let all: Vec<(PodFacts, &Pod)> = pods.iter().map(|it| (facts(it), it)).collect();
    for of in deployments(cluster).await? {
        let own = all.iter().filter(|it| owns(&of, &it.0)).map(|it| (&it.0, it.1));
        for pod in only_here(own, node, &closed) {
            if let SurgeAnswer::UnderWay(deployment) = judge(rule, &of, node, &pod.claims) {
                found.insert(pod.pod.uid.clone(), deployment);
            }
        }
    }
    Ok(found)
}

async fn deployments(cluster: &ApiClient) -> Result<Vec<DeploymentFacts>, Error> {
    let all = WatchScope::all("Deployments", Deployment::url_path(&(), None));
    Ok(all.list_all::<Value>(cluster).await?.items.iter().map(DeploymentFacts::of).collect())
}

/// Ends what drains of `node` have asked for: the record of a Deployment is removed once its new pods are there. With
/// `undo` one that has not come to its end, after a drain that was withdrawn or cut off by a reboot, goes back to its
/// pods of before. Which ones do, as `shop/web`, and the first failure; then it is to be called again.
///
/// A Deployment without a record of this node is left alone. Without the right to read Deployments none was
/// asked.
pub async fn settle(cluster: &ApiClient, node: &NodeName, undo: bool) -> (Vec<String>, Result<(), Error>) {
    let all = match deployments(cluster).await {
        Ok(all) => all,
        Err(error) if error.is_refused() => return (Vec::new(), Ok(())),
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (mut given_up, mut done) = (Vec::new(), Ok(()));
    for of in &all {
        let Some(record) = of.record_of(node) else { continue };
        match settle_one(cluster, of, record, undo).await {
            Ok(true) => given_up.push(of.named.clone()),
            Ok(false) => {}
            // What is in the way of one does not keep the others from being done.
            Err(error) => done = done.and(Err(error)),
        }
    }
    (given_up, done)
}

/// Whether it goes back.
async fn settle_one(
    cluster: &ApiClient,
    of: &DeploymentFacts,
    record: &SurgeRecord,
    undo: bool,
) -> Result<bool, Error> {
    let mut is_over = of.from.as_ref() != Some(&record.from());
    if !is_over {
        let pods: Vec<PodFacts> = pods_of(cluster, of).await?.into_iter().map(|it| it.0).collect();
        let is_old = |it: &&PodFacts| deployment_of(it).is_some_and(|it| it.0 == record.replica_set);
        let (old, new): (Vec<&PodFacts>, Vec<&PodFacts>) = pods.iter().partition(is_old);
        let ready = new.into_iter().filter(|it| is_ready(it)).count();
        // All that are wanted, or some and none to go back to.
        is_over = u64::try_from(ready).unwrap_or(u64::MAX) >= of.replicas || (ready > 0 && old.is_empty());
    }
    if is_over {
        found(write(cluster, "remove the record of a second copy", of, None, None).await)?;
    } else if undo {
        found(write(cluster, GIVE_UP, of, None, Some(json!(record.before))).await)?;
    }
    Ok(!is_over && undo)
}

/// Writes of a Deployment its record, or removes it, and, where it is given, what [`FROM_ANNOTATION`] is to say.
async fn write(
    cluster: &ApiClient,
    what: &str,
    of: &DeploymentFacts,
    record: Option<&SurgeRecord>,
    from: Option<Value>,
) -> Result<(), Error> {
    let template = |from| json!({ "template": { "metadata": { "annotations": { FROM_ANNOTATION: from } } } });
    let record = record.map(|it| json!(it).to_string());
    let body = json!({
        "metadata": { "resourceVersion": of.version, "annotations": { RECORD_ANNOTATION: record } },
        "spec": from.map_or(json!({}), template),
    });
    let request = Request::new(Deployment::url_path(&(), Some(&of.namespace)));
    let request = request.patch(&of.name, &signed(), &Patch::Merge(body));
    cluster.order(&format!("{what} of Deployment {}", of.named), request).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> DeploymentFacts {
        DeploymentFacts { named: "shop/web".into(), replicas: 1, ..DeploymentFacts::default() }
    }

    #[test]
    fn d20_a_second_copy_is_asked_for_where_it_is_wanted_needed_and_can_be() {
        let with = |change: &dyn Fn(&mut DeploymentFacts)| {
            let mut facts = deployment();
            change(&mut facts);
            facts
        };
        let word = |word: &str| DeploymentFacts { word: word.into(), ..deployment() };
        let record = |node: &str, from: &str, rolling| DeploymentFacts {
            record: Some(SurgeRecord { node: node.into(), replica_set: "web-5f7d".into(), before: None }),
            from: Some(from.into()),
            rolling,
            ..deployment()
        };
        let (never, annotated, all) = (SurgeRule::Never, SurgeRule::Annotated, SurgeRule::All);
        let (bare, data) = (vec![], vec!["data".to_owned()]);
        let under_way = r#"UnderWay("shop/web")"#;
        let cases = [
            // The rule and the owner's word.
            (never, word("yes"), &bare, "NotNeeded"),
            (annotated, deployment(), &bare, "NotNeeded"),
            (annotated, word("yes"), &bare, under_way),
            (annotated, word("true"), &bare, "NotNeeded"),
            (all, deployment(), &bare, under_way),
            (all, word("no"), &bare, "NotNeeded"),
            (all, with(&|it| it.replicas = 0), &bare, "NotNeeded"),
            // Whether it was asked, or something is under way.
            (all, record("n1", "n1/web-5f7d", true), &bare, under_way),
            (all, record("n2", "n2/web-5f7d", true), &bare, under_way),
            (all, record("n2", "n2/web-5f7d", false), &bare, under_way),
            (all, with(&|it| it.from = Some("n1/web-5f7d".into())), &bare, under_way),
            (all, with(&|it| (it.rolling, it.unfit) = (true, Some("it is paused".into()))), &bare, under_way),
            // Once in a drain.
            (all, record("n1", "n1/web-5f7d", false), &bare, "is on this node, too"),
            (all, record("n1", "", true), &bare, "was asked for in this drain is withdrawn"),
            (all, record("n1", "", false), &bare, "was asked for in this drain is withdrawn"),
            // What speaks against it, by name.
            (all, deployment(), &data, "claim data"),
            (all, with(&|it| it.unfit = Some("it is paused".into())), &bare, "it is paused"),
        ];
        let node = NodeName::parse("n1").unwrap();
        for (rule, facts, claims, expected) in cases {
            let verdict = format!("{:?}", judge(rule, &facts, &node, claims));
            assert!(verdict.contains(expected), "{rule:?} {facts:?}: {verdict}, not {expected}");
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
            let rollout = json!({ "maxUnavailable": unavailable, "maxSurge": surge });
            let found = bounds(&rollout, replicas);
            assert_eq!(found, expected, "{rollout} of {replicas}");
        }
    }

    #[test]
    fn d20_what_keeps_a_rollout_from_making_a_second_copy_first_is_named() {
        let by = |unavailable: u64, surge: u64| json!({ "strategy": { "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } } });
        let tolerations = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]);
        for (spec, replicas, expected) in [
            (json!({}), 1, ""),
            // More than one replica, all of them here.
            (by(0, 1), 3, ""),
            (by(2, 1), 3, ""),
            (
                json!({ "template": { "spec": { "tolerations": tolerations } } }),
                1,
                "shop/web tolerate a cordon",
            ),
            (json!({ "paused": true }), 1, "shop/web is paused"),
            (json!({ "strategy": { "type": "Recreate" } }), 1, "strategy Recreate"),
            (by(1, 1), 1, "maxUnavailable is 1 and maxSurge 1; replicas: 1"),
            (by(1, 0), 3, "maxSurge 0; replicas: 3"),
        ] {
            let why = unfit("shop/web", &spec, replicas);
            assert_eq!(why.is_some(), !expected.is_empty(), "{spec}: {why:?}");
            assert!(why.unwrap_or_default().contains(expected), "{spec}");
        }
    }

    #[test]
    fn d20_a_rollout_is_under_way_until_its_controller_has_seen_it_and_no_old_pod_is_left() {
        let read = |generation: i64, seen: i64, [all, new]: [u64; 2]| {
            DeploymentFacts::of(&json!({
                "metadata": { "name": "web", "namespace": "shop", "generation": generation },
                "spec": { "replicas": 1 },
                "status": { "observedGeneration": seen, "replicas": all, "updatedReplicas": new },
            }))
        };
        for (read, rolling) in [
            (read(2, 2, [1, 1]), false),
            (read(2, 1, [1, 1]), true),
            (read(2, 2, [2, 1]), true),
            (read(2, 2, [1, 0]), true),
        ] {
            assert_eq!(read.rolling, rolling, "{read:?}");
        }
    }
}
