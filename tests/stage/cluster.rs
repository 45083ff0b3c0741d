//! The cluster of a scenario: our node among others, and on it a budget-guarded application, a DaemonSet's pod and
//! a bare pod. Everything is done through the API, as another client would.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchParams};
use kube::{Client, ResourceExt as _};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::noted::Noted;
use crate::real::{self, Real};
use crate::server::ApiServer;
use crate::server::etcd::RealEtcd;

const NODE: &str = "edge-node-1";
pub const UUID: &str = "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11";
const NODES: [(&str, &str); 5] = [
    (NODE, UUID),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
    ("edge-node-4", "51b7c0de-77aa-4c2e-9d1b-3b6c0a0d0d44"),
    ("edge-node-5", "c3a9e1f0-12bb-4f5d-8e2c-6f7d0b0e0e55"),
];
/// Default number of nodes.
pub(crate) const THREE: usize = 3;
pub(crate) const OWNER: &str = "pillar-rs/cordon-owner";
const SHOP: &str = "shop";
/// The budget, and its pods' label `app`.
pub(crate) const BUDGET: &str = "web";

/// Names of our node and of the namespace of the guarded application.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) uuid: &'static str,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let name = format!("pillar-scenario-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        Self { node: name.clone(), uuid: UUID, namespace: name }
    }

    /// Up to five nodes of a real cluster, this one first.
    pub(crate) fn nodes(&self, count: usize) -> Vec<(String, &'static str)> {
        let name =
            |nth: usize| if nth == 0 { self.node.clone() } else { format!("{}-{}", self.node, nth + 1) };
        NODES[..count].iter().enumerate().map(|(nth, (_, uuid))| (name(nth), *uuid)).collect()
    }
}

#[derive(Clone)]
enum Backend {
    Embedded(Sim),
    Real(Arc<Real>),
}

#[derive(Clone)]
pub struct Cluster {
    backend: Backend,
    place: Place,
    pub(crate) client: Client,
    pub(crate) noted: Noted,
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    /// The embedded one: three nodes, a Deployment of three behind a budget, a StatefulSet, a DaemonSet, a bare pod.
    pub async fn embedded() -> Self {
        Self::with(&Self::brisk(Duration::from_millis(100), THREE).await, NODES[0])
    }

    /// A simulated cluster that loses no time, with so many of [`NODES`].
    async fn brisk(renew_every: Duration, count: usize) -> Sim {
        let config = SimConfig {
            stop_time: Duration::from_millis(30),
            start_time: Duration::from_millis(20),
            phase_time: Duration::from_millis(20),
            rebuild_time: Duration::from_millis(200),
            renew_every,
            ..SimConfig::default()
        };
        Self::of_config(config, count).await
    }

    async fn of_config(config: SimConfig, count: usize) -> Sim {
        let sim = Sim::new(config);
        for (name, uuid) in &NODES[..count] {
            sim.add_node(name, uuid);
        }
        sim.add_deployment(SHOP, "web", 3);
        sim.add_budget(SHOP, BUDGET, "web", &json!({ "minAvailable": 1 }));
        sim.add_stateful_set(SHOP, "db", 2);
        sim.add_daemon_set("kube-system", "log-agent");
        running(&sim, 5 + count).await;
        // Last, so that the workloads above are spread over all nodes.
        sim.add_bare_pod("tools", "debug-shell", NODE);
        running(&sim, 6 + count).await;
        sim
    }

    fn with(sim: &Sim, (node, uuid): (&str, &'static str)) -> Self {
        Self {
            client: Client::new(sim.service_of(node), "default"),
            place: Place { node: node.to_owned(), uuid, namespace: SHOP.to_owned() },
            backend: Backend::Embedded(sim.clone()),
            noted: Noted::default(),
            kubeconfig: None,
        }
    }

    /// The same cluster as each of its three nodes sees it.
    pub async fn embedded_of_three() -> Vec<Self> {
        Self::embedded_of(THREE, Duration::from_millis(100)).await
    }

    /// Up to five nodes with this interval of lease renewals, as each of them sees it.
    pub async fn embedded_of(count: usize, renew_every: Duration) -> Vec<Self> {
        Self::each_of(&Self::brisk(renew_every, count).await, count)
    }

    /// An embedded one of up to five nodes with realistic durations, as each of them sees it: for a paused clock.
    pub async fn some_with(config: SimConfig, count: usize) -> Vec<Self> {
        Self::each_of(&Self::of_config(config, count).await, count)
    }

    fn each_of(sim: &Sim, count: usize) -> Vec<Self> {
        NODES[..count].iter().map(|node| Self::with(sim, *node)).collect()
    }

    /// One on the real API server that the environment names: two nodes without a machine, three pods behind a
    /// budget, a bare pod. `None` when it names none, see [`crate::SKIPPED`].
    pub async fn of_environment() -> Option<Self> {
        Some(Self::on(ApiServer::of_environment().await?).await)
    }

    /// The same on the server of a kubeconfig with controllers for budgets.
    pub async fn of_kubeconfig(file: &Path) -> Self {
        Self::on(ApiServer::of_kubeconfig(file).await).await
    }

    /// Three servers, each with its member of this etcd, in which a kube-apiserver of `assets` keeps its objects: the
    /// cluster as each of them sees it.
    pub async fn of_servers(assets: &Path, program: &Path) -> (Vec<Self>, RealEtcd) {
        let (all, etcd) = Self::kept_in_etcd(assets, program, THREE).await;
        let api: Api<Node> = Api::all(all[0].client.clone());
        for name in all.iter().map(Self::device_name) {
            let labels = json!({ "node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/control-plane": "true" });
            let annotations = json!({ "etcd.k3s.cattle.io/node-name": etcd.member_name(name) });
            let patch = Patch::Merge(json!({ "metadata": { "labels": labels, "annotations": annotations } }));
            api.patch(name, &PatchParams::default(), &patch).await.unwrap();
            let address = json!({ "type": "InternalIP", "address": etcd.address(name) });
            let patch = Patch::Merge(json!({ "status": { "addresses": [address] } }));
            api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
        (all, etcd)
    }

    /// Three nodes, the first `members` of them with etcd, in which a kube-apiserver of `assets` keeps its objects.
    pub async fn kept_in_etcd(assets: &Path, program: &Path, members: usize) -> (Vec<Self>, RealEtcd) {
        let place = Place::new();
        let nodes = place.nodes(THREE);
        let names: Vec<&str> = nodes[..members].iter().map(|(name, _)| name.as_str()).collect();
        let etcd = RealEtcd::start(program, &names).await;
        let first = Self::at(ApiServer::keeping_in(assets, &etcd.clients()).await, place, THREE).await;
        ((0..THREE).map(|nth| first.as_node(nth)).collect(), etcd)
    }

    /// The API of a server started here is away during `meanwhile`.
    pub async fn without_api(&self, meanwhile: impl AsyncFnOnce()) {
        match &self.backend {
            Backend::Embedded(_) => panic!("this scenario needs a real API server"),
            Backend::Real(real) => real.server().away_during(meanwhile).await,
        }
    }

    /// The kubelet of a node without a machine reports this boot.
    pub async fn reports_boot(&self, boot_id: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "status": { "nodeInfo": { "bootID": boot_id } } }));
        nodes.patch_status(&self.place.node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Three nodes on a server of `assets`.
    pub(crate) async fn of_three(assets: &Path) -> (Self, Arc<Real>) {
        let cluster = Self::at(ApiServer::of_assets(assets).await, Place::new(), THREE).await;
        let Backend::Real(real) = &cluster.backend else { unreachable!("it was made of a server") };
        let real = real.clone();
        (cluster, real)
    }

    async fn on(server: ApiServer) -> Self {
        Self::at(server, Place::new(), 2).await
    }

    pub(crate) async fn at(server: ApiServer, place: Place, count: usize) -> Self {
        let real = Real::build(server, &place, &place.nodes(count)).await;
        Self {
            client: real.client().clone(),
            place,
            backend: Backend::Real(Arc::new(real)),
            noted: Noted::default(),
            kubeconfig: None,
        }
    }

    /// The same real cluster as that node sees it; the original tears it down.
    #[must_use]
    pub fn as_node(&self, nth: usize) -> Self {
        let (node, uuid) = self.place.nodes(nth + 1).remove(nth);
        Self { place: Place { node, uuid, ..self.place.clone() }, noted: Noted::default(), ..self.clone() }
    }

    /// Returns when two of these nodes have our cordon at once.
    pub async fn until_two_out(all: &[Self]) {
        let nodes: Vec<&str> = all.iter().map(|it| it.place.node.as_str()).collect();
        real::until_two_out(&all[0].client, &nodes).await;
    }

    pub async fn until_ours(&self) {
        let is_ours = |node: &Node| node.annotations().contains_key(OWNER);
        real::until(&Api::all(self.client.clone()), &self.place.node, is_ours).await;
    }

    pub async fn tear_down(&self) {
        match &self.backend {
            Backend::Embedded(_) => {}
            Backend::Real(real) => real.tear_down(&self.place).await,
        }
    }

    pub fn sim(&self) -> &Sim {
        match &self.backend {
            Backend::Embedded(sim) => sim,
            Backend::Real(_) => panic!("this scenario needs the embedded cluster"),
        }
    }

    /// Decides the name of our node.
    pub fn device_name(&self) -> &str {
        &self.place.node
    }

    pub fn namespace(&self) -> &str {
        &self.place.namespace
    }

    /// The administrator's kubeconfig of a server started here.
    pub fn admin(&self) -> Option<String> {
        match &self.backend {
            Backend::Embedded(_) => None,
            Backend::Real(real) => real.kubeconfig(),
        }
    }

    /// The same for agents with this kubeconfig only.
    #[must_use]
    pub fn entered_by(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig: Some(kubeconfig), ..self }
    }

    /// The client for zedkube, without a network.
    pub fn handle(&self) -> kubeapi::ApiClient {
        if let Some(kubeconfig) = &self.kubeconfig {
            return kubeapi::ApiClient::from_kubeconfig(kubeconfig);
        }
        let client = match &self.backend {
            Backend::Embedded(_) => &self.client,
            Backend::Real(real) => real.agents(),
        };
        kubeapi::ApiClient::from_client(self.noted.on(client))
    }

    pub const fn device_uuid(&self) -> &'static str {
        self.place.uuid
    }

    /// Number of writes that made our node schedulable.
    pub fn uncordoned(&self) -> usize {
        let end = format!("/nodes/{}", self.place.node);
        let asked = self.sim().faults().requests();
        let wrote = asked.iter().filter(|it| it.method == "PATCH" || it.method == "PUT");
        let here = wrote.filter(|it| it.uri.split('?').next().is_some_and(|path| path.ends_with(&end)));
        let said = here.filter_map(|it| serde_json::from_slice::<Value>(&it.body).ok());
        said.filter(|body| body.pointer("/spec/unschedulable").is_some_and(|flag| flag != true)).count()
    }

    /// The owner in our cordon's mark, if it is there.
    pub fn owner(&self) -> Option<String> {
        let node = self.sim().get("nodes", "", &self.place.node).unwrap();
        node["metadata"]["annotations"][OWNER].as_str().map(str::to_owned)
    }

    async fn node(&self) -> Node {
        Api::all(self.client.clone()).get(&self.place.node).await.unwrap()
    }

    pub async fn cordoned(&self) -> bool {
        unschedulable(&self.node().await)
    }

    pub async fn cordon_by_hand(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        nodes.patch(&self.place.node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Switches our node off or on.
    pub async fn power(&self, on: bool) {
        match &self.backend {
            Backend::Embedded(sim) => sim.power(&self.place.node, on),
            Backend::Real(real) => real.power(&self.place.node, on).await,
        }
    }

    pub async fn until_schedulable(&self) {
        let schedulable = |node: &Node| !unschedulable(node);
        real::until(&Api::all(self.client.clone()), &self.place.node, schedulable).await;
    }

    pub async fn until_ready(&self) {
        let ready = |node: &Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.filter(|it| it.type_ == "Ready").any(|it| it.status == "True")
        };
        real::until(&Api::all(self.client.clone()), &self.place.node, ready).await;
    }

    /// Waits until our node has an Event with this reason, and this condition.
    pub async fn until_shown(&self, event: &str, reason: &str, status: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let ours = |node: &Node| {
            let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
            let mut ours = conditions.filter(|it| it.type_ == "pillar-rs/Drained");
            ours.next().map(|it| (it.status.clone(), it.reason.clone().unwrap_or_default()))
        };
        let wanted = Some((status.to_owned(), reason.to_owned()));
        let shown = async {
            real::until(&nodes, &self.place.node, |it| ours(it) == wanted).await;
            loop {
                let (reasons, version) = self.events().await;
                if reasons.iter().any(|it| it == event) {
                    return;
                }
                let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
                let mut changes = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
                drop(changes.next().await);
            }
        };
        if tokio::time::timeout(Duration::from_mins(1), shown).await.is_err() {
            let (found, events) = (ours(&nodes.get(&self.place.node).await.unwrap()), self.events().await.0);
            panic!("waited for {event} and {wanted:?}; there are {events:?} and {found:?}");
        }
    }

    /// Reasons of our Events, and the version of the list.
    pub async fn events(&self) -> (Vec<String>, String) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let about = format!("involvedObject.name={}", self.place.node);
        let all = api.list(&ListParams::default().fields(&about)).await.unwrap();
        let is_ours = |it: &Event| it.reporting_component.as_deref() == Some("pillar-rs");
        let ours = all.items.into_iter().filter(is_ours).filter_map(|it| it.reason);
        (ours.collect(), all.metadata.resource_version.unwrap_or_default())
    }

    pub async fn conditions(&self) -> Vec<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let status = nodes.get(&self.place.node).await.unwrap().status;
        status.into_iter().filter_map(|it| it.conditions).flatten().map(|it| it.type_).collect()
    }

    async fn want_available(&self, count: u32) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.place.namespace);
        let patch = Patch::Merge(json!({ "spec": { "minAvailable": count } }));
        budgets.patch(BUDGET, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn block(&self) {
        self.want_available(3).await;
    }

    pub async fn guard_nothing(&self) {
        self.want_available(0).await;
    }

    pub async fn unblock(&self) {
        self.want_available(1).await;
    }

    pub async fn pods_to_leave(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.place.node));
        let leaves = |pod: &Pod| pod.owner_references().iter().all(|owner| owner.kind != "DaemonSet");
        pods.list(&here).await.unwrap().items.into_iter().filter(leaves).map(|it| it.name_any()).collect()
    }

    fn evicted(&self) -> Vec<String> {
        match &self.backend {
            Backend::Embedded(sim) => sim.faults().evicted(),
            Backend::Real(_) => self.noted.notes().evicted.clone(),
        }
    }

    /// Method, path and query of all requests of agents that are tasks.
    pub fn asked_by_agents(&self) -> Vec<(String, String)> {
        self.noted.notes().asked.clone()
    }

    /// Number of writes of agents that are tasks, except leases.
    pub fn writes(&self) -> usize {
        self.noted.notes().writes
    }

    /// The `nth` of those writes is carried out and never answered. Notified once it is carried out.
    pub fn never_answer(&self, nth: usize) -> Arc<Notify> {
        let carried_out = Arc::new(Notify::new());
        self.noted.notes().unanswered = Some((nth, carried_out.clone()));
        carried_out
    }

    pub fn evictions(&self) -> usize {
        self.evicted().len()
    }

    /// UIDs of pods with more than one accepted eviction.
    pub fn evicted_twice(&self) -> Vec<String> {
        let mut all = self.evicted();
        all.sort();
        let mut twice: Vec<String> =
            all.windows(2).filter(|pair| pair[0] == pair[1]).map(|it| it[0].clone()).collect();
        twice.dedup();
        twice
    }
}

fn unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

async fn running(sim: &Sim, count: usize) {
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    sim.until("pods", |pods| pods.len() == count && pods.iter().all(ready)).await;
}
