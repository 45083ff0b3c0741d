//! Reading all that a forecast needs, at one moment and without a write.
//!
//! Not here: what follows from it (`forecast`). Every list is read from the store and not from a cache; all are
//! asked for at the same time, and the plan states the version of each.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kubeapi::slim::NodeObject;

use crate::calls::surge::foreseen;
use crate::calls::unhealthy_pods::hindrance;
use crate::engine::AttemptRules;
use crate::machines::kubevirt::MachineReader;
use crate::plan::budget::BudgetFacts;
use crate::plan::forecast::{Plan, Survey, Surveyed, forecast};
use crate::plan::held::UnhealthyPod;
use crate::plan::placement::{PeerNode, SchedulingNeeds, needs, peer};
use crate::plan::residents::{Residents, resident, room_of};
use crate::plan::tier::is_machine;
use crate::{calls::budgets, calls::pods, calls::volumes, node, storage};
use kubeapi::names::NodeName;
use kubeapi::reply::ApiAnswer;
use kubeapi::slim::{Known, PersistentVolume, Pod, PodDisruptionBudget, VolumeAttachment};
use kubeapi::watch::{List, WatchScope};
use kubeapi::{ApiClient, Error, found};
use step::{Inserted as _, LiteMap, SmallSort as _};

/// What a drain of `node` by these rules would do and what it would meet. Only reads.
/// Errors: those of [`ApiClient`]; [`Error::Refused`] with 404 when there is no such node.
pub async fn plan(cluster: &ApiClient, node: &NodeName, rules: &AttemptRules) -> Result<Plan, Error> {
    Ok(forecast(&Box::pin(survey(cluster, node, rules)).await?))
}

pub(super) async fn survey(
    cluster: &ApiClient,
    name: &NodeName,
    rules: &AttemptRules,
) -> Result<Survey, Error> {
    let (nodes, all_pods, guards, sets, namespaces, bound, attached, storage) = tokio::try_join!(
        all::<NodeObject>(cluster, WatchScope::all("nodes", NodeObject::url_path(None))),
        all::<Pod>(cluster, WatchScope::all("pods", Pod::url_path(None))),
        all::<PodDisruptionBudget>(
            cluster,
            WatchScope::all("disruption budgets", PodDisruptionBudget::url_path(None))
        ),
        all::<Known>(cluster, WatchScope::all("DaemonSets", DaemonSet::url_path(&(), None))),
        all::<Known>(cluster, WatchScope::all("namespaces", Namespace::url_path(&(), None))),
        all::<PersistentVolume>(cluster, volumes::volume_scope()),
        all::<VolumeAttachment>(cluster, volumes::scope()),
        Box::pin(storage::look(cluster, name)),
    )?;
    let versions = [
        ("nodes", nodes.version.clone()),
        ("pods", all_pods.version.clone()),
        ("poddisruptionbudgets", guards.version.clone()),
        ("daemonsets", sets.version.clone()),
        ("namespaces", namespaces.version.clone()),
        ("persistentvolumes", bound.version.clone()),
        ("volumeattachments", attached.version.clone()),
    ];
    let own = nodes.items.iter().find(|it| it.metadata.name.as_deref() == Some(name.as_str()));
    let own = own.ok_or_else(|| no_such(name))?;
    let peers: Vec<PeerNode> =
        nodes.items.iter().filter(|it| it.metadata.name != own.metadata.name).map(peer).collect();

    let closed = |node: &str| {
        let peer = peers.iter().find(|it| it.name == node);
        peer.is_none_or(|it| SchedulingNeeds::default().why_not(it, false).is_some())
    };
    let copies = foreseen(cluster, name, rules.surge, &all_pods.items, closed).await;
    let alive: LiteMap<(String, String), Option<String>> = sets
        .items
        .into_iter()
        .map(|Known { metadata: set }| {
            ((set.namespace.unwrap_or_default(), set.name.unwrap_or_default()), set.uid)
        })
        .into_lite();
    let is_here =
        |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(name.as_str());
    let surveyed = |pod: &Pod| {
        let facts = pods::looked_up(pod, &alive);
        Surveyed {
            needs: needs(pod, &facts.claims, &bound.items),
            resident: resident(pod),
            priority_class: pod
                .spec
                .as_ref()
                .and_then(|it| it.priority_class_name.clone())
                .unwrap_or_default(),
            facts,
        }
    };
    let here: Vec<Surveyed> = all_pods.items.iter().filter(is_here).map(surveyed).collect();
    // Without a launcher that has not ended, or without KubeVirt, there are none.
    let machines = if here.iter().any(|it| is_machine(&it.facts.labels) && !it.facts.finished) {
        let mut reader = MachineReader::new(name.clone(), rules.machines).with_pods(&all_pods.items);
        found(reader.look(cluster).await)?
    } else {
        None
    };
    let labels =
        |it: &NodeObject| Some((it.metadata.name.clone()?, it.metadata.labels.clone().unwrap_or_default()));
    let facts: Vec<BudgetFacts> = guards.items.iter().map(budgets::facts).collect();
    let by_volume = volumes::bound(&bound.items);
    Ok(Survey {
        node: node::facts(own)?,
        pods: here,
        hindrances: hindrances(&facts, &all_pods.items),
        budgets: facts,
        given_up_after: rules.drain.map_or(rules.attempt, |it| it.min(rules.attempt)),
        machines,
        copies: copies.map_err(|error| format!("{}; {}", error.line(), error.next_step())),
        findings: room_of(name, &all_pods.items, &peers),
        residents: Residents {
            pods: all_pods.items.iter().filter_map(resident).collect(),
            nodes: nodes.items.iter().filter_map(labels).into_lite(),
        },
        peers,
        ending: ending(namespaces.items),
        attached: attached.items.iter().filter_map(|it| volumes::facts(it, name, &by_volume)).collect(),
        storage,
        versions: versions.into_iter().map(|(of, version)| (of.to_owned(), version)).into_map(),
    })
}

fn ending(namespaces: Vec<Known>) -> BTreeSet<String> {
    let ending = namespaces.into_iter().filter(|it| it.metadata.deletion_timestamp.is_some());
    ending.filter_map(|it| it.metadata.name).collect()
}

/// By budget without room, the pods that keep it so.
fn hindrances(budgets: &[BudgetFacts], pods: &[Pod]) -> LiteMap<(String, String), Vec<UnhealthyPod>> {
    let now = Timestamp::now();
    let bare = BTreeMap::new();
    let guards = |budget: &BudgetFacts, pod: &Pod| {
        pod.metadata.namespace.as_deref() == Some(budget.namespace.as_str())
            && budget.guards(pod.metadata.labels.as_ref().unwrap_or(&bare))
    };
    let full = budgets.iter().filter(|budget| !budget.has_room());
    full.map(|budget| {
        let selected = pods.iter().filter(|pod| guards(budget, pod));
        let mut found: Vec<UnhealthyPod> = selected.filter_map(|pod| hindrance(pod, now)).collect();
        found.order();
        ((budget.namespace.clone(), budget.name.clone()), found)
    })
    .into_lite()
}

async fn all<K: serde::de::DeserializeOwned + Send>(
    cluster: &ApiClient,
    scope: WatchScope,
) -> Result<List<K>, Error> {
    scope.list_all(cluster).await
}

fn no_such(name: &NodeName) -> Error {
    let message = format!("nodes \"{name}\" not found");
    let answer = ApiAnswer { code: 404, reason: "NotFound".to_owned(), message, ..ApiAnswer::default() };
    Error::Refused { what: format!("read node {name}"), answer: Box::new(answer) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::{KEPT_APPS, PlannedPeer};
    use kubeapi::mock::{self, MockReply, RecordedCall, RecordedCalls};

    fn pod(name: &str, node: &str, app: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": app},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": "r",
                    "controller": true}]},
            "spec": {"nodeName": node, "priorityClassName": "high", "containers": [],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    /// What a small cluster answers to each list.
    fn answer(call: &RecordedCall) -> MockReply {
        let node = |name: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let mut sick = pod("web-1", "n2", "web");
        sick["status"]["conditions"][0] =
            json!({"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T14:03:00Z"});
        let mut agent = pod("agent", "n1", "agent");
        agent["metadata"]["ownerReferences"][0] = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "d", "controller": true});
        let volume = json!({"metadata": {"name": "pv-1"},
            "spec": {"claimRef": {"namespace": "shop", "name": "data"}}});
        let attachment = json!({"metadata": {"name": "va-1"}, "spec": {"attacher": "driver", "nodeName": "n1",
            "source": {"persistentVolumeName": "pv-1"}}});
        let budget = json!({"metadata": {"namespace": "shop", "name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}});
        let ending = json!({"metadata": {"name": "old", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
        let items = match call.line.rsplit('/').next().unwrap().split('?').next().unwrap() {
            "nodes" => vec![node("n1"), node("n2")],
            "pods" => vec![pod("web-0", "n1", "web"), sick, agent, pod("kept", "n1", KEPT_APPS[0])],
            "poddisruptionbudgets" => vec![budget],
            "daemonsets" => vec![json!({"metadata": {"namespace": "shop", "name": "other", "uid": "o"}})],
            "namespaces" => vec![ending],
            "persistentvolumes" => vec![volume],
            "volumeattachments" => vec![attachment],
            _ => return mock::status(404, "unknown"),
        };
        mock::list("9", &items)
    }

    fn lines(calls: &RecordedCalls) -> Vec<String> {
        let mut lines = calls.lines();
        lines.sort();
        lines
    }

    /// What a drain of this node would meet.
    async fn planned(cluster: &ApiClient, node: &str) -> Result<Plan, Error> {
        let node = NodeName::parse(node).unwrap();
        plan(cluster, &node, &AttemptRules::default()).await
    }

    #[tokio::test(start_paused = true)]
    async fn o5_a_plan_is_one_list_of_each_kind_from_the_store_and_nothing_else() {
        let (cluster, calls) = mock::server(answer);
        let plan = planned(&cluster, "n1").await.unwrap();
        assert_eq!(
            lines(&calls),
            [
                "GET /api/v1/namespaces?&limit=250",
                "GET /api/v1/nodes?&limit=250",
                "GET /api/v1/persistentvolumes?&limit=250",
                "GET /api/v1/pods?&limit=250",
                "GET /apis/apps/v1/daemonsets?&limit=250",
                "GET /apis/longhorn.io/v1beta2/namespaces/longhorn-system/replicas?&limit=250",
                "GET /apis/policy/v1/poddisruptionbudgets?&limit=250",
                "GET /apis/storage.k8s.io/v1/volumeattachments?&limit=250",
            ]
        );
        let classes: Vec<(&str, &str)> =
            plan.pods.iter().map(|it| (it.pod.name.as_str(), it.class.text())).collect();
        assert_eq!(classes, [("agent", "orphan"), ("web-0", "evict"), ("kept", "keep-excluded")]);
        assert_eq!(plan.blockers.len(), 1);
        assert_eq!(
            (plan.blockers[0].code.as_str(), plan.blockers[0].reason.as_str()),
            (
                "budget",
                "pod shop/web-0: PodDisruptionBudget shop/web allows no disruption: 1 of 2 pods healthy, 1 required; pod shop/web-1 on \
                 node n2 is not Ready since 2020-01-01 14:03 UTC"
            )
        );
        assert_eq!(plan.volumes, ["shop/data (pv pv-1)"]);
        assert_eq!(plan.peers, [PlannedPeer { node: "n2".to_owned(), closed: String::new() }]);
        assert_eq!((plan.versions.len(), plan.versions["pods"].as_str()), (7, "9"));
        assert_eq!(plan.pods[1].priority_class, "high");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_not_there_and_a_list_that_is_refused_are_named_with_the_next_step() {
        let (cluster, _) = mock::server(answer);
        let error = planned(&cluster, "n9").await.unwrap_err();
        assert_eq!(error.line(), "read node n9: the server answered 404 NotFound: nodes \"n9\" not found");
        assert_eq!(error.next_step(), "check the name with kubectl get nodes");

        let (cluster, _) = mock::server(|call| {
            if call.line.contains("persistentvolumes") {
                mock::status(403, "forbidden")
            } else {
                answer(call)
            }
        });
        let error = planned(&cluster, "n1").await.unwrap_err();
        assert_eq!(error.line(), "list persistent volumes: the server answered 403: forbidden");
        assert!(error.next_step().contains("role"), "{}", error.next_step());
    }
}
