//! An embedded Kubernetes API for the demo and the tests: a development tool, not a cluster.
//!
//! It has what the agents and `kubectl get/cordon/drain` use: nodes, pods, budgets, evictions with real
//! budget arithmetic, patches, leases, watches with resource versions, optimistic concurrency, graceful
//! deletion, and small controllers for scheduling, workloads, budgets and kubelets. `README.md` lists what
//! differs from a real server.

mod answers;
mod api;
mod controllers;
mod etcd;
mod failure;
mod faults;
mod store;

use api::{kinds, logs, openapi, path, request, server, strict, table};
use controllers::{
    budgets, evictions, kubelets, machines, node_failure, scale, scheduler, timers, volumes, workloads,
};
use store::{merge_keys, node_state, patch, seed, selectors, strategic, watch, writes};

pub use etcd::{ETCD_VERSIONS, Etcd, EtcdFault};
pub use faults::{ApiRequest, Faults, ScriptedFault};
pub use seed::OneWay;
pub use server::{SimBody, SimServer, SimService};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use store::ObjectStore;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Durations in this cluster.
#[derive(Debug, Clone, Copy)]
pub struct SimConfig {
    /// From deletion of a pod to its end.
    pub stop_time: Duration,
    /// From scheduling of a pod to Ready; of a node from power on to Ready.
    pub start_time: Duration,
    /// From the end of a volume's last pod on a node to its detachment.
    pub detach_time: Duration,
    /// Between phases of a migration, and from the eviction mark to the migration.
    pub phase_time: Duration,
    /// Of a replica.
    pub rebuild_time: Duration,
    /// Between renewals of a kubelet's lease.
    pub renew_every: Duration,
    /// From a node's power off to not Ready: 40 to 50 s with a real node controller.
    pub not_ready_after: Duration,
    /// From a node's power off to the taints of an unreachable node.
    pub unreachable_after: Duration,
    /// `tolerationSeconds` of pods without their own for an unreachable node: 300 s with a real admission. Zero:
    /// nothing is evicted for that.
    pub unreachable_toleration: Duration,
    /// From a pod's eviction for the taint out-of-service to its removal by pod GC: at most 20 s with a real one.
    pub pod_gc_every: Duration,
    /// From the end of a volume's last pod on a node that cannot unmount it to its detachment.
    pub force_detach_after: Duration,
    /// The taints stay when the node is Ready again, as after some outages.
    pub stale_taints: bool,
    /// Changes kept for watches.
    pub history: usize,
    /// Between bookmarks of a watch.
    pub bookmark_every: Duration,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            stop_time: Duration::from_millis(300),
            start_time: Duration::from_millis(200),
            detach_time: Duration::from_millis(200),
            phase_time: Duration::from_millis(200),
            rebuild_time: Duration::from_secs(2),
            renew_every: Duration::from_secs(10),
            not_ready_after: Duration::ZERO,
            unreachable_after: Duration::from_secs(40),
            unreachable_toleration: Duration::ZERO,
            pod_gc_every: Duration::from_secs(1),
            force_detach_after: Duration::from_secs(360),
            stale_taints: false,
            history: 10_000,
            bookmark_every: Duration::from_secs(60),
        }
    }
}

/// Copies are the same cluster; its tasks end with the last of them.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<SimShared>,
    _tasks: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Clone)]
pub struct EtcdSnapshot(ObjectStore);

type Onlooker = Box<dyn FnMut(&SimMoment<'_>) + Send>;

/// The cluster at one moment, with what is really so on its nodes.
pub struct SimMoment<'a>(&'a ObjectStore);

impl SimMoment<'_> {
    /// As [`Sim::list`].
    pub fn list(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.0.list(resource)
    }

    /// Pods with a running container on this node, also those that the API no longer has.
    pub fn executing(&self, node: &Value) -> Vec<&Value> {
        self.0.executing(node)
    }
}

pub(crate) struct SimShared {
    pub(crate) config: SimConfig,
    /// Validates objects against the API's types.
    pub(crate) check: Option<strict::StrictCheck>,
    store: Mutex<ObjectStore>,
    pub(crate) changed: Notify,
    pub(crate) faults: Faults,
    onlooker: Mutex<Option<Onlooker>>,
    pub(crate) quorum: AtomicBool,
    /// Number of restores of etcd.
    pub(crate) restores: AtomicU64,
    pub(crate) logs: logs::Logs,
}

impl SimShared {
    pub(crate) fn store(&self) -> MutexGuard<'_, ObjectStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.quorum.load(Ordering::Relaxed)
    }

    /// Changes objects, and updates budgets before other readers see them.
    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut ObjectStore) -> R) -> R {
        let (result, changed) = {
            let mut store = self.store();
            let before = store.version();
            let result = change(&mut store);
            budgets::update(&mut store, before);
            let changed = store.version() != before;
            let mut onlooker = self.onlooker.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(look) = onlooker.as_mut().filter(|_| changed) {
                look(&SimMoment(&store));
            }
            (result, changed)
        };
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    /// As `write`; for a dry run on a copy.
    pub(crate) fn attempt<R>(&self, dry: bool, change: impl FnOnce(&mut ObjectStore) -> R) -> R {
        if dry {
            let mut copy = self.store().clone();
            return change(&mut copy);
        }
        self.write(change)
    }
}

impl Sim {
    /// Without nodes. Needs a tokio runtime.
    pub fn new(config: SimConfig) -> Self {
        Self::with(config, Some(strict::check))
    }

    /// With the nodes `n1` to `n…`, the devices of which are `uuid-1` to `uuid-…`.
    pub fn of_nodes(count: u32) -> Self {
        let sim = Self::new(SimConfig::default());
        sim.add_nodes(count);
        sim
    }

    pub fn add_nodes(&self, count: u32) {
        (1..=count).for_each(|nth| self.add_node(&format!("n{nth}"), &format!("uuid-{nth}")));
    }

    /// The same without validation: the API's types, more than a megabyte of the program, are linked only
    /// where used otherwise.
    pub fn unchecked(config: SimConfig) -> Self {
        Self::with(config, None)
    }

    fn with(config: SimConfig, check: Option<strict::StrictCheck>) -> Self {
        let shared = Arc::new(SimShared {
            config,
            check,
            store: Mutex::new(ObjectStore::new(config.history)),
            changed: Notify::new(),
            faults: Faults::default(),
            onlooker: Mutex::default(),
            quorum: AtomicBool::new(true),
            restores: AtomicU64::new(0),
            logs: logs::Logs::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(controllers::run(Arc::downgrade(&shared)));
        Self { shared, _tasks: Arc::new(Mutex::new(tasks)) }
    }

    /// In process, for `kube::Client::new`.
    pub fn service(&self) -> SimService {
        self.service_of("")
    }

    /// The same for clients on this node, which [`Sim::cut_off`] can part from it.
    pub fn service_of(&self, node: &str) -> SimService {
        SimService::new(Arc::clone(&self.shared), node)
    }

    /// Over HTTP on a free port of the loopback address.
    pub async fn serve(&self) -> std::io::Result<SimServer> {
        self.serve_to("").await
    }

    /// The same for clients on this node, see [`Sim::service_of`].
    pub async fn serve_to(&self, node: &str) -> std::io::Result<SimServer> {
        SimServer::start(self.service_of(node)).await
    }

    /// Over TLS, with a certificate valid between these times.
    #[cfg(feature = "tls")]
    pub async fn serve_tls(
        &self,
        dates: std::ops::Range<std::time::SystemTime>,
    ) -> std::io::Result<SimServer> {
        SimServer::start_tls(self.service(), api::tls::Tls::new(dates)).await
    }

    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Calls `look` after each change from now on. It must not use this cluster but by what it is given.
    pub fn onlooker(&self, look: impl FnMut(&SimMoment<'_>) + Send + 'static) {
        *self.shared.onlooker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
    }

    /// Takes the quorum away, or restores it. Without one the API answers with its last state and refuses
    /// each write, and neither kubelets nor controllers write anything.
    pub fn quorum(&self, there: bool) {
        self.shared.quorum.store(there, Ordering::Relaxed);
        self.shared.changed.notify_waiters();
    }

    /// `resource` as `pods` or `policy/poddisruptionbudgets`, `namespace` empty where there is none.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.store().get(resource, namespace, name).cloned()
    }

    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.shared.store().list(resource).cloned().collect()
    }

    /// Changes an object as another client would; false when there is none.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        self.shared.write(|store| store.edit(resource, namespace, name, change))
    }

    /// Creates or replaces an object.
    pub fn apply(&self, resource: &str, object: Value) {
        self.shared.write(|store| store.put(resource, object));
    }

    /// False when there is none.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.shared.write(|store| store.remove(resource, namespace, name).is_some())
    }

    /// Like a snapshot of etcd.
    pub fn snapshot(&self) -> EtcdSnapshot {
        EtcdSnapshot(self.shared.store().clone())
    }

    /// Etcd is restored, and the API server restarts: objects and versions are as they were. Open watches are
    /// cut, and those from a later version are silent until the store has reached it. Power and connections
    /// of machines do not change.
    pub fn restore(&self, snapshot: &EtcdSnapshot) {
        self.shared.restores.fetch_add(1, Ordering::Relaxed);
        self.shared.write(|store| {
            let nodes: Vec<Value> = store.list("nodes").cloned().collect();
            let (strays, ended) = (std::mem::take(&mut store.strays), std::mem::take(&mut store.ended));
            *store = snapshot.0.clone();
            (store.strays, store.ended) = (strays, ended);
            for node in nodes {
                store.edit("nodes", "", &store::name(&node), |it| {
                    let switches = ["kubesim/power", "kubesim/boot", "kubesim/network"];
                    for (switch, is) in switches.map(|it| (it, &node["metadata"]["annotations"][it])) {
                        if is.is_string() {
                            it["metadata"]["annotations"][switch] = is.clone();
                        }
                    }
                });
            }
        });
    }

    /// Forgets all changes: watches that continue from an older version get 410.
    pub fn expire_watches(&self) {
        self.shared.write(ObjectStore::expire);
    }

    /// Waits, without a limit, until the objects of a resource are as wanted.
    pub async fn until(&self, resource: &str, wanted: impl Fn(&[Value]) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(&self.list(resource)) {
                return;
            }
            changed.await;
        }
    }
}
