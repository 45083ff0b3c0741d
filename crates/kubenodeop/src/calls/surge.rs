//! Reading the Deployment of a pod, asking it for a second copy elsewhere, and giving that up.
//!
//! Not here: whether one is wanted (`plan::surge`), when it is asked for (`engine`). A patch carries the version that
//! was read, so that nothing of others is written over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::api::{GetParams, Patch};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls::budgets::selector;
use crate::calls::pods::{facts, pod_ref};
use crate::calls::unhealthy_pods::hindrance;
use crate::plan::placement::tolerates_cordon;
pub use crate::plan::surge::SurgeAnswer;
use crate::plan::surge::{
    DeploymentFacts, FROM_ANNOTATION, PodCase, RECORD_ANNOTATION, SURGE_ANNOTATION, SurgeRecord, SurgeRule,
    deployment_of, judge, unfit,
};
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::found;
use kubeapi::names::{NodeName, PodRef, PodUid};
use kubeapi::nodes::{self, signed};
use kubeapi::objects;
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;

/// The time that reading the nodes may take.
const READ: Duration = Duration::from_secs(30);

/// A pod for which a second copy may be wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurgeOrder {
    pub pod: PodRef,
    pub replica_set: String,
    /// Its Deployment, within its namespace.
    pub deployment: String,
    /// Claims that it mounts, within its namespace.
    pub claims: Vec<String>,
    /// Its Deployment was asked for one in this drain.
    pub asked: bool,
    /// So long was waited for: what was asked for is given up.
    pub over: Option<Duration>,
}

/// A Deployment, as its object says.
fn read(object: &Value) -> DeploymentFacts {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let template = &spec["template"];
    let number = |it: &Value| it.as_u64().unwrap_or(0);
    let [all, new, available] =
        ["replicas", "updatedReplicas", "availableReplicas"].map(|it| number(&status[it]));
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    // Its controller has seen what is wanted.
    let is_seen = number(&status["observedGeneration"]) >= number(&meta["generation"]);
    let tolerates = |it: &Value| Toleration::deserialize(it).is_ok_and(|it| tolerates_cordon(&it));
    let tolerates = objects::items(&template["spec"]["tolerations"]).iter().any(tolerates);
    let record = meta["annotations"][RECORD_ANNOTATION].as_str();
    let mut facts = DeploymentFacts {
        namespace: objects::text(&meta["namespace"]),
        name: objects::text(&meta["name"]),
        version: objects::text(&meta["resourceVersion"]),
        selector: LabelSelector::deserialize(&spec["selector"]).ok().map(|it| selector(&it)),
        word: objects::text(&meta["annotations"][SURGE_ANNOTATION]),
        replicas,
        unfit: None,
        from: template["metadata"]["annotations"][FROM_ANNOTATION].as_str().map(str::to_owned),
        record: record.and_then(|it| serde_json::from_str(it).ok()),
        rolling: !is_seen || all > new,
        complete: is_seen && new >= replicas && all <= new && available >= new,
    };
    facts.unfit = unfit(&facts.to_string(), spec, replicas, tolerates);
    facts
}

/// Its pods: those of its replica sets, not all that its selector finds.
async fn pods_of(cluster: &ApiClient, of: &DeploymentFacts) -> Result<Vec<Pod>, Error> {
    let Some(chosen) = &of.selector else { return Ok(Vec::new()) };
    let all = WatchScope::all(format!("pods of Deployment {of}"), Pod::url_path(Some(&of.namespace)));
    let scope = WatchScope { labels: Some(chosen.to_string()), ..all };
    let mut pods = scope.list_all::<Pod>(cluster).await?.items;
    pods.retain(|pod| owns(of, pod));
    Ok(pods)
}

fn owns(of: &DeploymentFacts, pod: &Pod) -> bool {
    let pod = facts(pod);
    pod.pod.namespace == of.namespace && deployment_of(&pod).is_some_and(|(_, name)| name == of.name)
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    hindrance(pod, Timestamp::now()).is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Asks for a second copy of the pod's Deployment where one is needed, and says how far that is; after the time given up.
/// Errors: those of [`ApiClient`]; a version that is not the newest any more is a conflict.
pub async fn surge(
    cluster: &ApiClient,
    node: &NodeName,
    rule: SurgeRule,
    order: &SurgeOrder,
) -> Result<SurgeAnswer, Error> {
    let SurgeOrder { pod, replica_set, deployment, claims, asked, over } = order;
    let request = Request::new(Deployment::url_path(&(), Some(&pod.namespace)));
    let what = format!("read Deployment {}/{deployment}", pod.namespace);
    let object = found(cluster.ask::<Value>(&what, request.get(deployment, &GetParams::default())).await)?;
    let Some(read) = object.as_ref().map(read) else { return Ok(SurgeAnswer::NotNeeded) };
    let pods = pods_of(cluster, &read).await?;
    let is_away = |pod: &&Pod| node_of(pod) != node.as_str();
    let mut away: BTreeSet<&str> =
        pods.iter().filter(is_away).filter(|it| is_ready(it)).map(node_of).collect();
    if !away.is_empty() {
        // What is about to leave, too, does not count.
        let members = nodes::members(cluster, READ).await?;
        away.retain(|node| !members.iter().any(|it| it.name == *node && it.facts.unschedulable));
    }
    let case = PodCase {
        node: node.as_str(),
        asked: *asked,
        ready: pods.iter().filter(|it| is_ready(it)).any(|it| pod_ref(it).uid == pod.uid),
        claims,
        elsewhere: !away.is_empty(),
    };
    let answer = judge(rule, &read, case);
    let SurgeAnswer::UnderWay { ours, .. } = answer else { return Ok(answer) };
    let record = read.record_of(node.as_str());
    let Some(over) = over else {
        if ours && record.is_none() {
            let (node, replica_set) = (node.to_string(), replica_set.clone());
            let record = SurgeRecord { node, replica_set, before: read.from.clone() };
            let from = Some(record.from().into());
            write(cluster, "ask for a second copy", &read, Some(&record), from).await?;
        }
        return Ok(answer);
    };
    if let Some(record) = record {
        give_up(cluster, &read, record).await?;
    }
    let now = Timestamp::now();
    let new = pods.iter().filter(is_away).find_map(|it| hindrance(it, now));
    let why = new.map(|it| format!(": {it}")).unwrap_or_default();
    let secs = over.as_secs();
    Ok(SurgeAnswer::Without(format!(
        "Deployment {read} had no Ready pod on another node within {secs} s{why}"
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
) -> Result<BTreeMap<PodUid, String>, Error> {
    let mut found = BTreeMap::new();
    if rule == SurgeRule::Never {
        return Ok(found);
    }
    for read in deployments().list_all::<Value>(cluster).await?.items.iter().map(read) {
        let (here, away): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().filter(|it| owns(&read, it)).partition(|it| node_of(it) == node.as_str());
        let elsewhere = away.into_iter().any(|it| is_ready(it) && !closed(node_of(it)));
        for pod in here {
            let (ready, claims) = (is_ready(pod), &facts(pod).claims);
            let case = PodCase { node: node.as_str(), asked: false, ready, claims, elsewhere };
            if let SurgeAnswer::UnderWay { deployment, .. } = judge(rule, &read, case) {
                found.insert(pod_ref(pod).uid, deployment);
            }
        }
    }
    Ok(found)
}

fn deployments() -> WatchScope {
    WatchScope::all("Deployments", Deployment::url_path(&(), None))
}

/// Ends what drains of `node` have asked for: the record of a Deployment is removed once its new pods are there. With
/// `undo` one that has not come to its end, after a drain that was withdrawn or cut off by a reboot, goes back to its
/// pods of before. Which ones do, as `shop/web`, and the first failure; then it is to be called again.
///
/// A Deployment without a record of this node is left alone. Without the right to read Deployments none was
/// asked.
pub async fn settle(cluster: &ApiClient, node: &NodeName, undo: bool) -> (Vec<String>, Result<(), Error>) {
    let all = match deployments().list_all::<Value>(cluster).await {
        Ok(all) => all.items,
        Err(error) if error.is_refused() => return (Vec::new(), Ok(())),
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (mut given_up, mut done) = (Vec::new(), Ok(()));
    for read in all.iter().map(read) {
        let Some(record) = read.record_of(node.as_str()) else { continue };
        match settle_one(cluster, &read, record, undo).await {
            Ok(true) => given_up.push(read.to_string()),
            Ok(false) => {}
            // What is in the way of one does not keep the others from being done.
            Err(error) => done = done.and(Err(error)),
        }
    }
    (given_up, done)
}

async fn settle_one(
    cluster: &ApiClient,
    read: &DeploymentFacts,
    record: &SurgeRecord,
    undo: bool,
) -> Result<bool, Error> {
    let mut is_over = read.from.as_ref() != Some(&record.from()) || read.complete;
    if !is_over {
        let pods = pods_of(cluster, read).await?;
        let (old, new): (Vec<&Pod>, Vec<&Pod>) = pods
            .iter()
            .partition(|it| deployment_of(&facts(it)).is_some_and(|of| of.0 == record.replica_set));
        let ready = new.into_iter().filter(|it| is_ready(it)).count();
        // All that are wanted, or some and none to go back to.
        is_over = u64::try_from(ready).unwrap_or(u64::MAX) >= read.replicas || (ready > 0 && old.is_empty());
    }
    if is_over {
        found(write(cluster, "remove the record of a second copy", read, None, None).await)?;
    } else if undo {
        found(give_up(cluster, read, record).await)?;
    }
    Ok(!is_over && undo)
}

/// Its template as it was before, without the record.
async fn give_up(cluster: &ApiClient, read: &DeploymentFacts, record: &SurgeRecord) -> Result<(), Error> {
    write(cluster, "give up the second copy", read, None, Some(json!(record.before))).await
}

/// Writes of a Deployment its record, or removes it, and, where it is given, what [`FROM_ANNOTATION`] is to say.
async fn write(
    cluster: &ApiClient,
    what: &str,
    read: &DeploymentFacts,
    record: Option<&SurgeRecord>,
    from: Option<Value>,
) -> Result<(), Error> {
    let template = |from| json!({ "template": { "metadata": { "annotations": { FROM_ANNOTATION: from } } } });
    let record = record.map(|it| json!(it).to_string());
    let body = json!({
        "metadata": { "resourceVersion": read.version, "annotations": { RECORD_ANNOTATION: record } },
        "spec": from.map_or(json!({}), template),
    });
    let request = Request::new(Deployment::url_path(&(), Some(&read.namespace)));
    let what = format!("{what} of Deployment {read}");
    cluster.order(&what, request.patch(&read.name, &signed(), &Patch::Merge(body))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d20_a_rollout_is_complete_only_once_its_controller_has_seen_it() {
        let read = |generation: i64, seen: i64, [all, new, available]: [u64; 3]| {
            read(&json!({
                "metadata": { "name": "web", "namespace": "shop", "generation": generation },
                "spec": { "replicas": 1, "template": { "spec": {
                    "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }],
                } } },
                "status": {
                    "observedGeneration": seen, "replicas": all, "updatedReplicas": new, "availableReplicas": available,
                },
            }))
        };
        for (read, complete, rolling) in [
            (read(2, 2, [1, 1, 1]), true, false),
            (read(2, 1, [1, 1, 1]), false, true),
            (read(2, 2, [2, 1, 2]), false, true),
            (read(2, 2, [1, 1, 0]), false, false),
            (read(2, 2, [1, 0, 1]), false, true),
        ] {
            assert_eq!((read.complete, read.rolling), (complete, rolling), "{read:?}");
            assert!(read.unfit.is_some_and(|it| it.contains("tolerate a cordon")));
        }
    }
}
