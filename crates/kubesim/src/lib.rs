//! An embedded Kubernetes API for the demo and the tests: a development tool, not a cluster.
//!
//! It speaks what the agents and `kubectl get/cordon/drain` use: nodes, pods, budgets, evictions with real budget
//! arithmetic, patches, leases, watches with resource versions, optimistic concurrency, graceful deletion, and small
//! controllers for scheduling, workloads, budgets and kubelets. `README.md` lists what differs from a real server.

mod answers;
mod api;
mod controllers;
mod etcd;
mod failure;
mod faults;
mod store;

use api::{kinds, logs, openapi, path, request, server, strict, table};
use controllers::{budgets, kubelets, machines, scale, timers, volumes, workloads};
use store::{merge_keys, patch, selectors, strategic, watch, writes};

pub use etcd::{ETCD_VERSIONS, Etcd, EtcdFault};
pub use faults::{ApiRequest, Faults, ScriptedFault};
pub use server::{SimBody, SimServer, SimService};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use store::ObjectStore;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long things take in this cluster.
#[derive(Debug, Clone, Copy)]
pub struct SimConfig {
    /// From being asked to end to being gone.
    pub stop_time: Duration,
    /// From being scheduled to being Ready; a node's from power on to Ready.
    pub start_time: Duration,
    /// From the last pod on a node that uses a volume being gone to the volume being detached.
    pub detach_time: Duration,
    /// From one phase of a migration to the next, and from the mark of an eviction to its migration.
    pub phase_time: Duration,
    /// What a rebuild of a replica takes.
    pub rebuild_time: Duration,
    /// From one renewal of its lease by a kubelet to the next.
    pub renew_every: Duration,
    /// From a node's power off to its being not Ready: 40 to 50 s of a real node controller.
    pub not_ready_after: Duration,
    /// From a node's power off to the taints of a node that cannot be reached.
    pub unreachable_after: Duration,
    /// Those taints stay when the node is Ready again, as they do after some outages.
    pub stale_taints: bool,
    /// Changes that a watch can go back to.
    pub history: usize,
    /// From one bookmark of a watch to the next.
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
            stale_taints: false,
            history: 10_000,
            bookmark_every: Duration::from_secs(60),
        }
    }
}

/// A cluster. Copies are the same one; its tasks end with the last of them.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<SimShared>,
    _tasks: Arc<Mutex<JoinSet<()>>>,
}

/// All objects of a cluster at one moment.
#[derive(Clone)]
pub struct EtcdSnapshot(ObjectStore);

/// What the API and the controllers share.
pub(crate) struct SimShared {
    pub(crate) config: SimConfig,
    /// What refuses objects that the API's types do not allow.
    pub(crate) check: Option<strict::StrictCheck>,
    store: Mutex<ObjectStore>,
    pub(crate) changed: Notify,
    pub(crate) faults: Faults,
    /// Whether anything can be written.
    pub(crate) quorum: AtomicBool,
    /// How often etcd was restored.
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

    /// Changes objects; budgets are brought up to date before anybody else can look.
    pub(crate) fn write<R>(&self, change: impl FnOnce(&mut ObjectStore) -> R) -> R {
        let (result, changed) = {
            let mut store = self.store();
            let before = store.version();
            let result = change(&mut store);
            budgets::update(&mut store, before);
            (result, store.version() != before)
        };
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    /// As `write`, but for a rehearsal: then on a copy that is thrown away.
    pub(crate) fn attempt<R>(&self, dry: bool, change: impl FnOnce(&mut ObjectStore) -> R) -> R {
        if dry {
            let mut copy = self.store().clone();
            return change(&mut copy);
        }
        self.write(change)
    }
}

impl Sim {
    /// A cluster without nodes. Must be called inside a tokio runtime.
    pub fn new(config: SimConfig) -> Self {
        Self::with(config, Some(strict::check))
    }

    /// The same, but objects are taken as they come. The types of the API, which would be more than a megabyte of
    /// the program, are left out where nothing else asks for them.
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
            quorum: AtomicBool::new(true),
            restores: AtomicU64::new(0),
            logs: logs::Logs::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(controllers::run(Arc::downgrade(&shared)));
        Self { shared, _tasks: Arc::new(Mutex::new(tasks)) }
    }

    /// The API without a network in between, for `kube::Client::new`.
    pub fn service(&self) -> SimService {
        self.service_of("")
    }

    /// The same for what runs on this node, which [`Sim::cut_off`] can part from it.
    pub fn service_of(&self, node: &str) -> SimService {
        SimService::new(Arc::clone(&self.shared), node)
    }

    /// The API over HTTP on a free port of the loopback address.
    pub async fn serve(&self) -> std::io::Result<SimServer> {
        self.serve_to("").await
    }

    /// The same for what runs on this node, see [`Sim::service_of`].
    pub async fn serve_to(&self, node: &str) -> std::io::Result<SimServer> {
        SimServer::start(self.service_of(node)).await
    }

    /// The API over TLS, with a certificate that counts between these two.
    #[cfg(feature = "tls")]
    pub async fn serve_tls(
        &self,
        dates: std::ops::Range<std::time::SystemTime>,
    ) -> std::io::Result<SimServer> {
        SimServer::start_tls(self.service(), api::tls::Tls::new(dates)).await
    }

    /// Answers that the API gives in place of its own, and what it was asked.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The servers lose their quorum, or have it again. Without one the API answers with what it knew last and refuses each
    /// write, as an API server that is parted from the others does, and neither kubelets nor controllers write anything.
    pub fn quorum(&self, there: bool) {
        self.shared.quorum.store(there, Ordering::Relaxed);
        self.shared.changed.notify_waiters();
    }

    /// One object; `resource` as `pods` or `policy/poddisruptionbudgets`, `namespace` empty where there is none.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.store().get(resource, namespace, name).cloned()
    }

    /// All objects of a resource.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.shared.store().list(resource).cloned().collect()
    }

    /// Changes an object in place, as another client would; false when there is none.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        self.shared.write(|store| store.edit(resource, namespace, name, change))
    }

    /// Puts an object there, new or changed.
    pub fn apply(&self, resource: &str, object: Value) {
        self.shared.write(|store| store.put(resource, object));
    }

    /// Removes an object at once; false when there is none.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.shared.write(|store| store.remove(resource, namespace, name).is_some())
    }

    /// All objects as they are, as a snapshot of etcd.
    pub fn snapshot(&self) -> EtcdSnapshot {
        EtcdSnapshot(self.shared.store().clone())
    }

    /// Etcd is restored, and the API server starts again with it: objects, their versions and that of the store are as they
    /// were. Open watches are cut, and those from a later version hear nothing before the store has reached it. Machines have
    /// power, and reach the API, as before.
    pub fn restore(&self, snapshot: &EtcdSnapshot) {
        self.shared.restores.fetch_add(1, Ordering::Relaxed);
        self.shared.write(|store| {
            let nodes: Vec<Value> = store.list("nodes").cloned().collect();
            *store = snapshot.0.clone();
            for node in nodes {
                store.edit("nodes", "", &store::name(&node), |it| {
                    let switches = ["kubesim/power", "kubesim/network"];
                    for (switch, is) in switches.map(|it| (it, &node["metadata"]["annotations"][it])) {
                        if is.is_string() {
                            it["metadata"]["annotations"][switch] = is.clone();
                        }
                    }
                });
            }
        });
    }

    /// Forgets all changes so far: watches that continue from an older version get 410.
    pub fn expire_watches(&self) {
        self.shared.write(ObjectStore::expire);
    }

    /// Waits until the objects of a resource are as wanted. It waits for ever when they never are.
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
