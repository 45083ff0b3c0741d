//! Pods as the server has them, turned into facts.
//!
//! Not here: what is done with a pod (`plan`). Sources: kubectl's drain filters (a finished pod counts as
//! without `DaemonSet`, a pod of a vanished one leaves when forced).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::GetParams;
use kube::core::Request;

use crate::plan::placement::tolerates_cordon;
use crate::plan::tier::{HOLD_ANNOTATION, LONGEST_HOLD, PodHold, Signs, Tier, UNDISTURBED_ANNOTATION};
use crate::plan::{KEPT_APPS_SELECTOR, PodFacts, PodOwner};
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::found;
use kubeapi::names::{NodeName, PodRef, PodUid};
use kubeapi::slim::{Known, Pod, is_ready, ready_of_pod};
use kubeapi::watch::{List, WatchScope};
use step::{Inserted as _, LiteMap};

/// Kubernetes puts this on the kubelet's images of static pods.
pub(crate) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// What the API server gives a pod that asks for nothing.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// How long after a pod's start its first status may be written.
const FIRST_STATUS: SignedDuration = SignedDuration::from_secs(5);
/// `DaemonSet`s looked up at the same time.
const LOOKUPS: usize = 8;

/// The pods of `node` that a drain may have to do with, `DaemonSet`s looked up. Read from the store, not from a
/// cache.
pub async fn list(cluster: &ApiClient, node: &NodeName) -> Result<Vec<PodFacts>, Error> {
    list_beside(cluster, node, &AliveSets::default()).await.map(|it| it.items)
}

/// `DaemonSet`s that were there when they were looked up, by namespace and name with their UIDs: in one attempt each is
/// looked up once, as the pods of one that is deleted go with it.
#[derive(Debug, Default)]
pub(crate) struct AliveSets(Mutex<LiteMap<(String, String), Option<String>>>);

impl AliveSets {
    fn held(&self) -> MutexGuard<'_, LiteMap<(String, String), Option<String>>> {
        // Each entry is whole, even if a task panicked while it was written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, key: &(String, String), uid: &str) -> bool {
        self.held().get(key).is_some_and(|held| held.as_deref() == Some(uid))
    }
}

/// [`list`] with its version, where those `known` are not looked up again.
pub(crate) async fn list_beside(
    cluster: &ApiClient,
    node: &NodeName,
    known: &AliveSets,
) -> Result<List<PodFacts>, Error> {
    let scope = scope(node);
    let pods = scope.list_all::<Pod>(cluster).await?;
    let owners = pods.items.iter().filter_map(daemon_set).filter(|(key, uid)| !known.has(key, uid));
    let owners: BTreeSet<(String, String)> = owners.map(|(key, _)| key).into_set();
    let found: Vec<((String, String), Option<String>)> = stream::iter(owners)
        .map(|key| async move {
            let uid = daemon_set_uid(cluster, &key.0, &key.1).await?;
            Ok::<_, Error>((key, uid))
        })
        .buffer_unordered(LOOKUPS)
        .try_collect()
        .await?;
    let mut alive = known.held();
    found.into_iter().insert_into(&mut alive);
    Ok(List { items: pods.items.iter().map(|pod| looked_up(pod, &alive)).collect(), version: pods.version })
}

/// The pods of `node` as a thing to follow.
pub(crate) fn scope(node: &NodeName) -> WatchScope {
    WatchScope {
        what: format!("pods of node {node}"),
        path: Pod::url_path(None),
        fields: Some(format!("spec.nodeName={node}")),
        labels: Some(KEPT_APPS_SELECTOR.to_owned()),
    }
}

/// The UID of a `DaemonSet`, `None` when there is none of this name.
async fn daemon_set_uid(cluster: &ApiClient, namespace: &str, name: &str) -> Result<Option<String>, Error> {
    let sets = Request::new(DaemonSet::url_path(&(), Some(namespace)));
    let what = format!("read DaemonSet {namespace}/{name}");
    let set = found(cluster.ask::<Known>(&what, sets.get(name, &GetParams::default())).await)?;
    Ok(set.and_then(|it| it.metadata.uid))
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// The API group of a controller; empty for Kubernetes' core.
fn group(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Namespace and name of the pod's `DaemonSet`, where it is one of Kubernetes, and the UID by which the pod knows it.
fn daemon_set(pod: &Pod) -> Option<((String, String), &str)> {
    let owner = controller(pod).filter(|it| it.kind == "DaemonSet" && group(it) == "apps")?;
    Some(((pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()), &owner.uid))
}

/// The facts about a pod. Its `DaemonSet` is looked for among those `alive`, by namespace and name with their UIDs.
pub(crate) fn looked_up(pod: &Pod, alive: &LiteMap<(String, String), Option<String>>) -> PodFacts {
    let mut facts = facts(pod);
    if let Some((key, uid)) = daemon_set(pod) {
        let there = alive.get(&key).is_some_and(|found| found.as_deref() == Some(uid));
        facts.owner = if there { PodOwner::DaemonSet } else { PodOwner::VanishedDaemonSet };
    }
    facts
}

/// The facts about a pod. Its `DaemonSet` is taken to be there: the next [`list`] looks.
pub(crate) fn facts(pod: &Pod) -> PodFacts {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let grace = meta
        .deletion_grace_period_seconds
        .or_else(|| spec.and_then(|spec| spec.termination_grace_period_seconds))
        .and_then(|secs| u64::try_from(secs).ok())
        .map_or(DEFAULT_GRACE, Duration::from_secs);
    let claims = claims(pod);
    let annotation = |name: &str| meta.annotations.as_ref()?.get(name);
    let mirror = annotation(MIRROR_ANNOTATION).is_some();
    let maker = controller(pod);
    let set = maker.filter(|it| it.kind == "DaemonSet");
    PodFacts {
        pod: pod_ref(pod),
        labels: meta.labels.clone().unwrap_or_default(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        pending: phase == Some("Pending"),
        ready: is_ready(pod),
        terminating: meta.deletion_timestamp.is_some(),
        never_ready: never_ready(pod),
        grace,
        owner: match maker {
            _ if mirror => PodOwner::Kubelet,
            None => PodOwner::Nobody,
            Some(_) if set.is_some() => PodOwner::DaemonSet,
            Some(_) => PodOwner::Other,
        },
        workload: maker.map(|it| format!("{}/{}", it.kind, it.name)).unwrap_or_default(),
        daemon_group: set.map(group).filter(|it| *it != "apps").unwrap_or_default().to_owned(),
        tier: tier(pod, !claims.is_empty()),
        priority: priority(pod),
        claims,
        tolerates_cordon: spec
            .and_then(|spec| spec.tolerations.as_ref())
            .is_some_and(|all| all.iter().any(tolerates_cordon)),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        hold: annotation(HOLD_ANNOTATION).and_then(|text| hold(text, Timestamp::now())),
        undisturbed: annotation(UNDISTURBED_ANNOTATION).is_some_and(|it| it == "true"),
        responders: spec
            .and_then(|spec| spec.eviction_responders.as_ref())
            .is_some_and(|all| !all.is_empty()),
    }
}

/// What the annotation says at this moment; `None` once its time is over.
fn hold(text: &str, now: Timestamp) -> Option<PodHold> {
    let ahead = match text.trim().parse::<Timestamp>() {
        Err(_) => Err("it is no time like 2026-03-14T09:00:00Z"),
        Ok(at) if at <= now => return None,
        Ok(at) => match Duration::try_from(at.duration_since(now)) {
            Ok(ahead) if ahead <= LONGEST_HOLD => Ok(ahead),
            _ => Err("it is more than 24 h ahead"),
        },
    };
    Some(PodHold { text: text.to_owned(), ahead })
}

/// Whether its condition Ready is not True and has not changed since the kubelet took the pod on.
fn never_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let Some(started) = &status.start_time else { return false };
    let ready = ready_of_pod(pod);
    let since = ready.and_then(|it| it.last_transition_time.as_ref());
    ready.is_none_or(|it| it.status != "True")
        && since.is_none_or(|it| it.0.duration_since(started.0) <= FIRST_STATUS)
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn tier(pod: &Pod, mounts_claims: bool) -> Tier {
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let host_paths: Vec<&str> =
        volumes.iter().filter_map(|volume| Some(volume.host_path.as_ref()?.path.as_str())).collect();
    let none = BTreeMap::new();
    Signs {
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        labels: pod.metadata.labels.as_ref().unwrap_or(&none),
        annotations: pod.metadata.annotations.as_ref().unwrap_or(&none),
        priority_class: spec.and_then(|spec| spec.priority_class_name.as_deref()).unwrap_or_default(),
        priority: priority(pod),
        host_paths: &host_paths,
        mounts_claims,
    }
    .tier()
}

/// The claims that the pod mounts; a generic ephemeral volume has one named after pod and volume.
fn claims(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
            (None, None) => None,
        })
        .collect()
}

/// Name and identity of a pod.
pub(crate) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: PodUid::new(pod.metadata.uid.clone().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::{KeepReason, PodClass};
    use kubeapi::mock::{self, MockReply};

    fn pod_object(name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "3",
                "labels": {"app": "web"},
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running"},
        })
    }

    fn owned(name: &str, kind: &str, uid: &str) -> Value {
        let mut pod = pod_object(name);
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "set", "uid": uid, "controller": true}]);
        pod
    }

    fn parsed(value: Value) -> PodFacts {
        facts(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn d8_a_pod_was_never_ready_when_its_condition_has_not_changed_since_its_start() {
        const START: &str = "2026-03-14T09:00:00Z";
        let of = |start: Option<&str>, status: &str, since: &str| {
            let mut object = pod_object("a");
            object["status"] = json!({
                "phase": "Running", "startTime": start,
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}],
            });
            facts(&serde_json::from_value(object).unwrap()).never_ready
        };
        let table = [
            (Some(START), "False", START, true),
            (Some(START), "False", "2026-03-14T09:00:05Z", true),
            (Some(START), "False", "2026-03-14T09:00:06Z", false),
            (Some(START), "True", START, false),
            (None, "False", START, false),
        ];
        for (start, status, since, never) in table {
            assert_eq!(of(start, status, since), never, "{start:?} {status} {since}");
        }
    }

    #[test]
    fn j6_a_hold_is_a_time_at_most_a_day_ahead() {
        let now: Timestamp = "2026-03-14T09:00:00Z".parse().unwrap();
        for (text, ahead) in [
            ("2026-03-14T09:00:01Z", Some(Ok(1))),
            (" 2026-03-14T11:00:00+01:00 ", Some(Ok(3600))),
            ("2026-03-15T09:00:00Z", Some(Ok(24 * 3600))),
            ("2026-03-15T09:00:01Z", Some(Err("it is more than 24 h ahead"))),
            ("2026-03-14T09:00:00Z", None),
            ("2020-01-01T00:00:00Z", None),
            ("tomorrow", Some(Err("it is no time like 2026-03-14T09:00:00Z"))),
            ("2026-03-14 10:00", Some(Err("it is no time like 2026-03-14T09:00:00Z"))),
            ("", Some(Err("it is no time like 2026-03-14T09:00:00Z"))),
        ] {
            assert_eq!(hold(text, now).map(|it| it.ahead.map(|it| it.as_secs())), ahead, "{text}");
        }
        let mut pod = pod_object("a");
        pod["metadata"]["annotations"] =
            json!({"pillar-rs/hold-until": "tomorrow", "karpenter.sh/do-not-disrupt": "true"});
        let facts = parsed(pod.clone());
        assert_eq!((facts.hold.unwrap().text.as_str(), facts.undisturbed), ("tomorrow", true));
        pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = json!("false");
        assert!(!parsed(pod).undisturbed);
    }

    #[test]
    fn the_facts_of_a_pod_follow_its_object() {
        let plain = parsed(pod_object("a"));
        assert_eq!((plain.pod.to_string().as_str(), plain.pod.uid.as_str()), ("shop/a", "uid-a"));
        assert_eq!((plain.owner, plain.grace), (PodOwner::Nobody, Duration::from_secs(30)));
        assert!(!plain.finished && !plain.terminating);

        assert_eq!(parsed(owned("a", "ReplicaSet", "r")).owner, PodOwner::Other);
        assert_eq!(parsed(owned("a", "DaemonSet", "d")).owner, PodOwner::DaemonSet);
        let mut helped = owned("a", "DaemonSet", "d");
        helped["metadata"]["ownerReferences"][0]["controller"] = json!(false);
        assert_eq!(parsed(helped).owner, PodOwner::Nobody, "an owner that is no controller");

        let mut mirror = owned("a", "Node", "n");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        assert_eq!(parsed(mirror).class(), PodClass::Keep(KeepReason::Mirror));

        for (phase, finished) in
            [("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true)]
        {
            let mut pod = pod_object("a");
            pod["status"]["phase"] = json!(phase);
            assert_eq!(parsed(pod).finished, finished, "{phase}");
        }

        let mut ending = pod_object("a");
        ending["spec"]["terminationGracePeriodSeconds"] = json!(90);
        assert_eq!(parsed(ending.clone()).grace, Duration::from_secs(90));
        ending["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        ending["metadata"]["deletionGracePeriodSeconds"] = json!(5);
        assert_eq!(
            (parsed(ending.clone()).terminating, parsed(ending).grace),
            (true, Duration::from_secs(5))
        );
    }

    #[test]
    fn d11_the_tier_follows_the_signs_of_the_object() {
        let with = |spec: Value| {
            let mut pod = pod_object("a");
            pod["spec"] = spec;
            parsed(pod)
        };
        let critical = with(json!({"priorityClassName": "system-cluster-critical", "priority": 7}));
        assert_eq!((critical.tier, critical.priority), (Tier::System, 7));
        assert_eq!(with(json!({"priority": 2_000_000_000})).tier, Tier::System);
        let network = json!({"volumes": [{"name": "cni", "hostPath": {"path": "/etc/cni/net.d"}}]});
        assert_eq!(with(network).tier, Tier::Network);
        let claim = json!({"name": "d", "persistentVolumeClaim": {"claimName": "data"}});
        let ephemeral = json!({"name": "scratch", "ephemeral": {}});
        let mounting = with(json!({"priority": 2_000_000_000, "volumes": [claim, ephemeral]}));
        assert_eq!(mounting.tier, Tier::Device);
        assert_eq!(mounting.claims, ["data", "a-scratch"]);
        let mut noted = pod_object("a");
        noted["metadata"]["annotations"] = json!({"pillar-rs/drain-tier": "storage"});
        assert_eq!(parsed(noted.clone()).tier, Tier::Storage);
        noted["metadata"]["labels"]["pillar-rs/drain-tier"] = json!("address");
        assert_eq!(parsed(noted).tier, Tier::Address);
    }

    #[test]
    fn d10_a_pod_tolerates_the_cordon_by_key_and_effect_or_by_any() {
        let taint = "node.kubernetes.io/unschedulable";
        let table = [
            (json!({"key": taint, "operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"key": taint, "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"key": taint}), true),
            (json!({"key": taint, "operator": "Equal", "value": "", "effect": "NoSchedule"}), true),
            (json!({"key": taint, "operator": "Equal", "value": "true"}), false),
            (json!({"key": taint, "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}), false),
            (json!({"key": taint, "operator": "Gt", "value": "1"}), false),
            (json!({}), false),
        ];
        for (toleration, expected) in table {
            let mut pod = pod_object("a");
            pod["spec"]["tolerations"] = json!([toleration]);
            assert_eq!(parsed(pod).tolerates_cordon, expected, "{toleration}");
        }
        assert!(!parsed(pod_object("a")).tolerates_cordon);
    }

    fn of_group(kind: &str, version: &str) -> PodFacts {
        let mut pod = owned("a", kind, "d");
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!(version);
        looked_up(&serde_json::from_value(pod).unwrap(), &LiteMap::new())
    }

    #[test]
    fn k4_a_daemon_set_of_another_api_group_is_kept_and_told_by_its_group() {
        let foreign = of_group("DaemonSet", "apps.kruise.io/v1alpha1");
        assert_eq!(foreign.class(), PodClass::Keep(KeepReason::DaemonSet));
        assert_eq!(foreign.daemon_group, "apps.kruise.io");
        let own = of_group("DaemonSet", "apps/v1");
        assert_eq!(
            (own.owner, own.daemon_group.as_str()),
            (PodOwner::VanishedDaemonSet, ""),
            "it was looked for"
        );
        assert_eq!(of_group("StatefulSet", "apps.kruise.io/v1beta1").class(), PodClass::Leave);
    }

    #[tokio::test(start_paused = true)]
    async fn d5_a_list_is_read_from_the_store_and_leaves_out_longhorns_own_parts() {
        let (cluster, calls) = mock::cluster(vec![mock::list("5", &[pod_object("a")])]);
        let found = list(&cluster, &NodeName::parse("n1").unwrap()).await.unwrap();
        assert_eq!(found.len(), 1);
        let expected = "GET /api/v1/pods?&fieldSelector=spec.nodeName%3Dn1&labelSelector=app%21%3Dcsi-attacher%2C\
                        app%21%3Dcsi-provisioner%2Capp%21%3Dlonghorn-admission-webhook%2C\
                        app%21%3Dlonghorn-conversion-webhook%2Capp%21%3Dlonghorn-driver-deployer&limit=250";
        assert_eq!(calls.lines(), [expected], "no resourceVersion");
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_set_is_looked_up_once_by_name_and_recognised_by_its_uid() {
        let set = |uid: &str| mock::object(&json!({"metadata": {"name": "set", "uid": uid}}));
        let table: [(MockReply, Result<PodOwner, bool>); 4] = [
            (set("d"), Ok(PodOwner::DaemonSet)),
            (set("younger"), Ok(PodOwner::VanishedDaemonSet)),
            (mock::status(404, "not found"), Ok(PodOwner::VanishedDaemonSet)),
            (mock::status(503, ""), Err(true)),
        ];
        for (answer, expected) in table {
            let pods = mock::list("5", &[owned("a", "DaemonSet", "d"), owned("b", "DaemonSet", "d")]);
            let (cluster, calls) = mock::cluster(vec![pods, answer]);
            let found = list(&cluster, &NodeName::parse("n1").unwrap()).await;
            assert_eq!(calls.lines()[1..], ["GET /apis/apps/v1/namespaces/shop/daemonsets/set"]);
            let found = found.map(|pods| pods[0].owner).map_err(|error| error.is_retryable());
            assert_eq!(found, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn u10_a_daemon_set_that_is_there_is_looked_up_once_in_an_attempt_and_one_that_is_not_each_time() {
        let pods = || mock::list("5", &[owned("a", "DaemonSet", "d"), owned("b", "DaemonSet", "d")]);
        for (uid, owner, lookups) in
            [("d", PodOwner::DaemonSet, 1), ("other", PodOwner::VanishedDaemonSet, 2)]
        {
            let set = || mock::object(&json!({"metadata": {"name": "set", "uid": uid}}));
            let mut answers = vec![pods(), set(), pods()];
            answers.extend((lookups > 1).then(set));
            let (cluster, calls) = mock::cluster(answers);
            let known = AliveSets::default();
            for _ in 0..2 {
                let found = list_beside(&cluster, &NodeName::parse("n1").unwrap(), &known).await.unwrap();
                assert_eq!(found.items[0].owner, owner, "{uid}");
            }
            assert_eq!(calls.lines().len(), 2 + lookups, "{uid}");
        }
    }
}
