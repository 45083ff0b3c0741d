//! What the embedded cluster has and a real API server lacks: nodes without a machine, kubelets for them,
//! and, without a controller manager, a disruption controller.
//!
//! All of it has names of its own, and is removed at the end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams};
use kube::core::WatchEvent;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::{BUDGET, OWNER, Place};
use crate::roles;
use crate::server::ApiServer;

const LEASES: &str = "kube-node-lease";
/// How long an API server may answer with errors: etcd has no leader, or it restarts.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long an object may take to be as wanted.
const LONGEST: Duration = Duration::from_mins(20);

type Off = Arc<Mutex<BTreeSet<String>>>;
/// Between a kubelet's looks at pods.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) struct Real {
    server: ApiServer,
    nodes: Vec<String>,
    agents: Client,
    off: Off,
    _kubelets: JoinSet<()>,
}

impl Real {
    /// These nodes, with the UUIDs of their devices; an application of three pods behind a budget and a bare
    /// pod on the first two.
    pub(crate) async fn build(server: ApiServer, place: &Place, nodes: &[(String, &str)]) -> Self {
        let client = &server.client;
        let namespace = json!({ "metadata": { "name": place.namespace } });
        create::<Namespace>(&Api::all(client.clone()), namespace).await;
        roles::grant(client, &place.namespace).await;
        let other = &nodes[1].0;
        let mut kubelets = JoinSet::new();
        let off = Off::default();
        for (node, uuid) in nodes {
            let object = json!({ "metadata": { "name": node, "labels": { "node-uuid": uuid } } });
            create::<Node>(&Api::all(client.clone()), object).await;
            ready(client, node, true).await;
            kubelets.spawn(kubelet(client.clone(), node.clone()));
            kubelets.spawn(renew(client.clone(), node.clone(), off.clone()));
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
        for (name, app, node) in [
            ("web-0", BUDGET, &place.node),
            ("web-1", BUDGET, other),
            ("web-2", BUDGET, other),
            ("debug-shell", "debug", &place.node),
        ] {
            create(&pods, pod(name, app, node)).await;
        }
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &place.namespace);
        let budget = json!({
            "metadata": { "name": BUDGET },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": BUDGET } } },
        });
        create(&budgets, budget).await;
        if !server.has_controllers {
            kubelets.spawn(keep_budget(client.clone(), place.namespace.clone()));
        }
        let agents = server.unretried(Some(roles::user(&place.namespace)));
        let nodes = nodes.iter().map(|(node, _)| node.clone()).collect();
        let real = Self { _kubelets: kubelets, agents, off, server, nodes };
        let counts = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| status.current_healthy == Some(3))
        };
        until(&budgets, BUDGET, counts).await;
        real
    }

    pub(crate) fn client(&self) -> &Client {
        &self.server.client
    }

    /// The administrator's, of a server started for this.
    pub(crate) fn kubeconfig(&self) -> Option<String> {
        self.server.kubeconfig()
    }

    /// The client for agents: a user with the least role.
    pub(crate) const fn agents(&self) -> &Client {
        &self.agents
    }

    pub(crate) const fn server(&self) -> &ApiServer {
        &self.server
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Switches `node` off or on: Ready and its lease follow.
    pub(crate) async fn power(&self, node: &str, on: bool) {
        {
            let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
            if on {
                off.remove(node)
            } else {
                off.insert(node.to_owned())
            };
        }
        ready(self.client(), node, on).await;
    }

    pub(crate) async fn tear_down(&self, place: &Place) {
        let now = DeleteParams::default().grace_period(0);
        let nodes: Api<Node> = Api::all(self.client().clone());
        let leases: Api<Lease> = Api::namespaced(self.client().clone(), LEASES);
        for node in &self.nodes {
            nodes.delete(node, &now).await.unwrap();
            drop(leases.delete(node, &now).await);
        }
        // A turn of a node that is gone would keep the next scenario waiting for a minute.
        let turns: Api<Lease> = Api::namespaced(self.client().clone(), kubeapi::names::APP_NAMESPACE);
        drop(turns.delete(outage::turn::record::LEASE, &now).await);
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), &place.namespace);
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            // The kubelet may have been faster.
            drop(pods.delete(&pod.name_any(), &now).await);
        }
        let namespaces: Api<Namespace> = Api::all(self.client().clone());
        namespaces.delete(&place.namespace, &now).await.unwrap();
        roles::take_back(self.client(), &place.namespace).await;
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": app } },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10" }],
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}

/// Repeats `ask` while it answers with errors.
async fn answered<T, F: Future<Output = kube::Result<T>>>(ask: impl Fn() -> F) -> T {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(cause) => assert!(clock.now() < end, "no answer within {} s: {cause}", PATIENCE.as_secs()),
        }
        clock.sleep_until(Some(clock.now() + Duration::from_millis(100))).await;
    }
}

async fn ready(client: &Client, node: &str, is: bool) {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = if is { "True" } else { "False" };
    let condition = json!({ "type": "Ready", "status": status, "reason": "Scenario", "message": "" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Returns when two of `nodes` have our cordon at once.
pub(crate) async fn until_two_out(client: &Client, nodes: &[&str]) {
    let api: Api<Node> = Api::all(client.clone());
    let everything = ListParams::default();
    let is_out = |node: &Node| node.annotations().contains_key(OWNER);
    loop {
        let all = answered(|| api.list(&everything)).await;
        let ours = |it: &Node| nodes.contains(&it.name_any().as_str()) && is_out(it);
        let mut out: BTreeSet<String> = all.iter().filter(|it| ours(it)).map(Node::name_any).collect();
        let version = all.metadata.resource_version.clone().unwrap_or_default();
        let Ok(changes) = api.watch(&WatchParams::default(), &version).await else { continue };
        let mut changes = changes.boxed();
        while out.len() < 2 {
            match changes.try_next().await {
                Ok(Some(WatchEvent::Added(node) | WatchEvent::Modified(node))) => {
                    if ours(&node) {
                        out.insert(node.name_any())
                    } else {
                        out.remove(&node.name_any())
                    };
                }
                Ok(Some(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => {}
                // A watch that ends begins with a list again.
                Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => break,
            }
        }
        if out.len() == 2 {
            return;
        }
    }
}

pub(crate) async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let looks = async {
        loop {
            let now = answered(|| api.get(name)).await;
            if wanted(&now) {
                return;
            }
            let version = now.resource_version().unwrap();
            let only = WatchParams::default().fields(&format!("metadata.name={name}"));
            if let Ok(changes) = api.watch(&only, &version).await {
                drop(changes.boxed().try_next().await);
            }
        }
    };
    let in_time = tokio::time::timeout(LONGEST, looks).await;
    in_time.unwrap_or_else(|_| panic!("{name} is not as wanted within {} s", LONGEST.as_secs()));
}

/// A kubelet without a machine: its pods run at once, and end when deleted.
async fn kubelet(client: Client, node: String) {
    let pods: Api<Pod> = Api::all(client.clone());
    let here = format!("spec.nodeName={node}");
    let on_it = ListParams::default().fields(&here);
    loop {
        let all = answered(|| pods.list(&on_it)).await;
        let mut waits = false;
        // KubeVirt's pods have their own players.
        for pod in all.items.iter().filter(|it| !it.labels().contains_key("kubevirt.io")) {
            let own: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            let running = pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running");
            // A pod that is gone or replaced is left to the next round.
            if pod.metadata.deletion_timestamp.is_some() {
                let uid = Preconditions { uid: pod.uid(), resource_version: None };
                let now = DeleteParams::default().grace_period(0).preconditions(uid);
                drop(own.delete(&pod.name_any(), &now).await);
            } else if !running && is_attached(&client, pod, &node).await {
                let status = runs(&client, pod, &node).await;
                drop(
                    own.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status))
                        .await,
                );
            } else {
                waits |= !running;
            }
        }
        let version = all.metadata.resource_version.unwrap_or_default();
        if let Ok(changes) = pods.watch(&WatchParams::default().fields(&here), &version).await {
            let limit = if waits { LOOK } else { Duration::MAX };
            drop(tokio::time::timeout(limit, changes.boxed().try_next()).await);
        }
    }
}

async fn is_attached(client: &Client, pod: &Pod, node: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    let claims: Vec<String> = volumes
        .filter_map(|it| it.persistent_volume_claim.as_ref())
        .map(|it| it.claim_name.clone())
        .collect();
    if claims.is_empty() {
        return true;
    }
    let all: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    let attachments = attachments.list(&ListParams::default()).await.unwrap();
    for claim in claims {
        let Some(claim) = all.get_opt(&claim).await.unwrap() else { return false };
        let bound = claim.spec.and_then(|it| it.volume_name);
        let holds = |it: &VolumeAttachment| {
            it.spec.node_name == node
                && it.spec.source.persistent_volume_name == bound
                && it.metadata.deletion_timestamp.is_none()
                && it.status.as_ref().is_some_and(|it| it.attached)
        };
        if !attachments.items.iter().any(holds) {
            return false;
        }
    }
    true
}

/// The status of a running pod, at the address of its node, if any.
async fn runs(client: &Client, pod: &Pod, node: &str) -> Value {
    let nodes: Api<Node> = Api::all(client.clone());
    let addresses = nodes.get(node).await.unwrap().status.and_then(|it| it.addresses).unwrap_or_default();
    let address = addresses.first().map(|it| it.address.clone());
    let containers = pod.spec.iter().flat_map(|it| &it.containers);
    let container =
        |name: &String| json!({ "name": name, "ready": true, "restartCount": 0, "image": "", "imageID": "" });
    json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        "podIP": address, "podIPs": address.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "containerStatuses": containers.map(|it| container(&it.name)).collect::<Vec<_>>(),
    } })
}

/// Renews the lease of a node without a machine, more often than a kubelet.
async fn renew(client: Client, node: String, off: Off) {
    let leases: Api<Lease> = Api::namespaced(client, LEASES);
    let mut often = tokio::time::interval(Duration::from_millis(200));
    loop {
        often.tick().await;
        if off.lock().unwrap_or_else(PoisonError::into_inner).contains(&node) {
            continue;
        }
        let renewed = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": node },
            "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed },
        });
        // The next one comes soon. The embedded cluster cannot create by a patch.
        if leases.patch(&node, &PatchParams::default(), &Patch::Merge(&lease)).await.is_err()
            && let Ok(lease) = serde_json::from_value(lease)
        {
            drop(leases.create(&PostParams::default(), &lease).await);
        }
    }
}

/// The disruption controller: counts healthy pods of the budget, and allowed disruptions.
async fn keep_budget(client: Client, namespace: String) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, &namespace);
    let guarded = format!("app={BUDGET}");
    let its = ListParams::default().labels(&guarded);
    loop {
        let all = answered(|| pods.list(&its)).await;
        if let Some(budget) = answered(|| budgets.get_opt(BUDGET)).await {
            let spec = serde_json::to_value(&budget.spec).unwrap();
            let desired = spec["minAvailable"].as_i64().unwrap();
            let healthy = all.items.iter().filter(|pod| is_healthy(pod)).count();
            let healthy = i64::try_from(healthy).unwrap();
            let status = json!({ "status": {
                "observedGeneration": budget.metadata.generation, "expectedPods": all.items.len(),
                "currentHealthy": healthy, "desiredHealthy": desired,
                "disruptionsAllowed": (healthy - desired).max(0),
            } });
            // It may be gone by now.
            drop(budgets.patch_status(BUDGET, &PatchParams::default(), &Patch::Merge(status)).await);
        }
        let version = all.metadata.resource_version.unwrap_or_default();
        let labelled = WatchParams::default().labels(&guarded);
        let (Ok(pod_changes), Ok(budget_changes)) =
            (pods.watch(&labelled, &version).await, budgets.watch(&WatchParams::default(), "0").await)
        else {
            continue;
        };
        let (mut pod_changes, mut budget_changes) = (pod_changes.boxed(), budget_changes.boxed());
        let mut held = budget_changes.try_next().await.ok().flatten();
        loop {
            tokio::select! {
                _ = pod_changes.try_next() => break,
                changed = budget_changes.try_next() => {
                    let changed = changed.ok().flatten();
                    // Our own status is no reason to write it again.
                    if generation(changed.as_ref()) != generation(held.as_ref()) {
                        break;
                    }
                    held = changed;
                }
            }
        }
    }
}

fn generation(event: Option<&WatchEvent<PodDisruptionBudget>>) -> Option<i64> {
    use WatchEvent::{Added, Bookmark, Deleted, Error, Modified};
    match event? {
        Added(budget) | Modified(budget) | Deleted(budget) => budget.metadata.generation,
        Bookmark(_) | Error(_) => None,
    }
}

fn is_healthy(pod: &Pod) -> bool {
    let ready = |status: &k8s_openapi::api::core::v1::PodStatus| {
        status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    pod.metadata.deletion_timestamp.is_none() && pod.status.as_ref().is_some_and(ready)
}
