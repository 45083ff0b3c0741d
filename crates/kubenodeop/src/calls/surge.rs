//! Reading the Deployment of a pod, asking it for a second copy elsewhere, and giving that up.
//!
//! Not here: whether one is wanted (`plan::surge`), when it is asked for (`engine`). Source: goals D20. A patch carries the
//! version that was read, so that nothing of others is written over.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::api::{GetParams, Patch};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls::pods::{pod_ref, selector};
use crate::calls::unhealthy_pods::{hindrance, text};
use crate::plan::surge::{
    DeploymentFacts, FROM_ANNOTATION, PodCase, SURGE_ANNOTATION, Share, SurgeRule, Verdict, bounds, judge,
};
use kubeapi::Cluster;
use kubeapi::Error;
use kubeapi::found;
use kubeapi::names::{NodeName, PodRef};
use kubeapi::nodes::signed;
use kubeapi::slim::{Meta, Pod};
use kubeapi::watch::Scope;

/// What a Deployment puts on its pods: the end of the name of their replica set.
const HASH_LABEL: &str = "pod-template-hash";

/// A pod for which a second copy may be wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurgeOrder {
    /// The pod.
    pub pod: PodRef,
    /// Its replica set.
    pub replica_set: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Claims that it mounts, within its namespace.
    pub claims: Vec<String>,
    /// So long was waited for: what was asked for is given up.
    pub over: Option<Duration>,
}

/// What follows for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurgeAnswer {
    /// No second copy is needed, or there is one.
    NotNeeded,
    /// There is none, for this reason.
    Without(String),
    /// One is on its way, of this Deployment; its controller ends the pod then.
    UnderWay(String),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Read {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    replicas: Option<u64>,
    paused: bool,
    selector: Option<LabelSelector>,
    strategy: Strategy,
    template: Template,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    r#type: String,
    rolling_update: Option<Rolling>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rolling {
    max_unavailable: Value,
    max_surge: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Template {
    metadata: Option<Meta>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: Option<i64>,
    replicas: u64,
    updated_replicas: u64,
    available_replicas: u64,
}

impl Read {
    /// Its newest template is rolled out, as `kubectl rollout status` counts it.
    fn is_complete(&self, replicas: u64) -> bool {
        let Status { replicas: all, updated_replicas: new, available_replicas: available, .. } = self.status;
        new >= replicas && all <= new && available >= new
    }

    fn facts(&self, name: String) -> DeploymentFacts {
        let Spec { replicas, paused, strategy, template, .. } = &self.spec;
        let replicas = replicas.unwrap_or(1);
        let rolling = strategy.rolling_update.clone().unwrap_or_default();
        let share = |it: &Value| Share::parse(it.as_str().unwrap_or(&it.to_string()));
        let (unavailable, surge) =
            bounds(share(&rolling.max_unavailable), share(&rolling.max_surge), replicas);
        let annotation = |of: &Meta, key: &str| {
            of.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
        };
        let unseen = self.metadata.generation.zip(self.status.observed_generation);
        DeploymentFacts {
            name,
            word: annotation(&self.metadata, SURGE_ANNOTATION),
            replicas,
            paused: *paused,
            recreate: strategy.r#type == "Recreate",
            unavailable,
            surge,
            from: template.metadata.as_ref().map(|it| annotation(it, FROM_ANNOTATION)).unwrap_or_default(),
            rolling: unseen.is_some_and(|(wanted, seen)| seen < wanted)
                || self.status.replicas > self.status.updated_replicas,
        }
    }
}

/// Asks for a second copy of the pod's Deployment where one is needed, and says how far that is; after the time given up.
///
/// # Errors
/// Those of [`Cluster`]; a version that is not the newest any more is a conflict.
pub async fn surge(
    cluster: &Cluster,
    node: &NodeName,
    rule: SurgeRule,
    order: &SurgeOrder,
) -> Result<SurgeAnswer, Error> {
    let SurgeOrder { pod, replica_set, labels, claims, over } = order;
    let end = labels.get(HASH_LABEL).map(|hash| format!("-{hash}"));
    let Some(name) = end.and_then(|end| replica_set.strip_suffix(&end)) else {
        return Ok(SurgeAnswer::NotNeeded);
    };
    let named = format!("{}/{name}", pod.namespace);
    let request = Request::new(Deployment::url_path(&(), Some(&pod.namespace)));
    let what = format!("read Deployment {named}");
    let read = found(cluster.ask::<Read>(&what, request.get(name, &GetParams::default())).await)?;
    let Some((read, chosen)) = read.and_then(|it| Some((it.clone(), selector(it.spec.selector.as_ref()?))))
    else {
        return Ok(SurgeAnswer::NotNeeded);
    };
    let scope = Scope {
        what: format!("pods of Deployment {named}"),
        path: Pod::url_path(Some(&pod.namespace)),
        fields: None,
        labels: Some(text(&chosen)),
    };
    let pods = scope.list_all::<Pod>(cluster).await?.items;
    let (facts, from) = (read.facts(named.clone()), format!("{node}/{replica_set}"));
    let now = Timestamp::now();
    let is_here = |it: &&Pod| it.spec.as_ref().and_then(|it| it.node_name.as_deref()) == Some(node.as_str());
    let is_ready = |it: &&Pod| hindrance(it, now).is_none() && !is_finished(it);
    let case = PodCase {
        from: from.clone(),
        ready: pods.iter().filter(is_ready).any(|it| pod_ref(it).uid == pod.uid),
        claims: claims.clone(),
        elsewhere: pods.iter().filter(is_ready).filter(|it| !is_here(it)).count(),
    };
    match (judge(rule, &facts, &case), over) {
        (Verdict::NotNeeded, _) => Ok(SurgeAnswer::NotNeeded),
        (Verdict::Cannot(why), _) => Ok(SurgeAnswer::Without(why)),
        (Verdict::Ask, None) => {
            let what = format!("ask for a second copy of Deployment {named}");
            patch(cluster, &what, name, &pod.namespace, &read, Value::from(from)).await?;
            Ok(SurgeAnswer::UnderWay(named))
        }
        (Verdict::UnderWay, None) => Ok(SurgeAnswer::UnderWay(named)),
        (Verdict::Ask | Verdict::UnderWay, Some(over)) => {
            if facts.from == from {
                let what = format!("give up the second copy of Deployment {named}");
                patch(cluster, &what, name, &pod.namespace, &read, Value::Null).await?;
            }
            let new = pods.iter().filter(|it| !is_here(it)).find_map(|it| hindrance(it, now));
            let why = new.map(|it| format!(": {it}")).unwrap_or_default();
            let secs = over.as_secs();
            Ok(SurgeAnswer::Without(format!(
                "Deployment {named} had no Ready pod on another node within {secs} s{why}"
            )))
        }
    }
}

/// Gives up what drains of `node` have asked for and that has not come to its end: a drain that was withdrawn, or cut off by
/// a reboot. The Deployment goes back to its pods of before. Of which Deployments, as `shop/web`.
///
/// # Errors
/// Those of [`Cluster`]: then it is to be called again.
pub async fn give_back(cluster: &Cluster, node: &NodeName) -> Result<Vec<String>, Error> {
    let scope = Scope {
        what: "Deployments".to_owned(),
        path: Deployment::url_path(&(), None),
        fields: None,
        labels: None,
    };
    let (mut done, ours) = (Vec::new(), format!("{node}/"));
    for read in scope.list_all::<Read>(cluster).await?.items {
        let Meta { namespace: Some(namespace), name: Some(name), .. } = &read.metadata else { continue };
        let named = format!("{namespace}/{name}");
        let facts = read.facts(named.clone());
        if !facts.from.starts_with(&ours) || read.is_complete(facts.replicas) {
            continue;
        }
        let what = format!("give up the second copy of Deployment {named}");
        found(patch(cluster, &what, name, namespace, &read, Value::Null).await)?;
        done.push(named);
    }
    Ok(done)
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

async fn patch(
    cluster: &Cluster,
    what: &str,
    name: &str,
    namespace: &str,
    read: &Read,
    from: Value,
) -> Result<(), Error> {
    let body = json!({
        "metadata": { "resourceVersion": read.metadata.resource_version },
        "spec": { "template": { "metadata": { "annotations": { FROM_ANNOTATION: from } } } },
    });
    let request = Request::new(Deployment::url_path(&(), Some(namespace)));
    cluster.order(what, request.patch(name, &signed(), &Patch::Merge(body))).await
}
