//! Runs the controllers: which objects they look at after which change, and when.
//!
//! Each round looks at the objects that have changed, at those that depend on them and at those whose time has
//! come, and does what is missing there. The parts are in `kubelets`, `node_failure`, `scheduler`, `workloads`, `rollouts`, `machines`,
//! `scale`, `evictions`, `volumes`, `budgets`, `virtual_ips` and `longhorn`; `timers` keeps what is due when.
//!
//! Not here: how objects are written (`store`).

pub(crate) mod budgets;
pub(crate) mod evictions;
pub(crate) mod kubelets;
mod longhorn;
pub(crate) mod machines;
pub(crate) mod node_failure;
pub(crate) mod rollouts;
pub(crate) mod scale;
pub(crate) mod scheduler;
pub(crate) mod timers;
mod virtual_ips;
pub(crate) mod volumes;
pub(crate) mod workloads;

use std::collections::BTreeSet;
use std::sync::Weak;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::store::{Changed, ObjectKey, ObjectName, ObjectStore, all, place};
use crate::timers::{SimTimers, Tick, TimerKey};
use crate::{SimConfig, SimShared};

pub(crate) async fn run(shared: Weak<SimShared>) {
    let mut controllers = Controllers::default();
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let config = shared.config;
            if !shared.has_quorum() {
                tokio::select! {
                    () = &mut changed => {}
                    () = sleep_until(soon()) => {}
                }
                continue;
            }
            shared.write(|store| controllers.round(store, config));
            if shared.store().version() != controllers.seen {
                continue;
            }
            let next = controllers.timers.next();
            tokio::select! {
                () = &mut changed => continue,
                // Wakes now and then: the cluster may be dropped while nothing happens.
                () = sleep_until(soon()) => {}
                () = wait(next) => {}
            }
            next
        };
        if next.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "kubelets of the simulation keep time by tokio's clock")]
fn soon() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

#[expect(clippy::disallowed_methods, reason = "kubelets of the simulation keep time by tokio's clock")]
fn now() -> Instant {
    Instant::now()
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[derive(Default)]
struct Controllers {
    /// The last version looked at.
    seen: u64,
    timers: SimTimers,
    /// Pods without a node.
    unplaced: BTreeSet<ObjectName>,
    /// Pods that mount claims.
    mounting: BTreeSet<ObjectName>,
    /// Pods with volumes that are not attached yet.
    waiting: BTreeSet<ObjectName>,
}

#[derive(Default)]
struct RoundWork {
    nodes: BTreeSet<String>,
    workloads: BTreeSet<ObjectKey>,
    pods: BTreeSet<ObjectName>,
    budgets: BTreeSet<ObjectName>,
    virtual_ips: BTreeSet<ObjectKey>,
    volumes: bool,
    attachments: bool,
    longhorn: bool,
    evictions: bool,
}

impl Controllers {
    fn round(&mut self, store: &mut ObjectStore, config: SimConfig) {
        let mut work = RoundWork::default();
        match store.since(self.seen) {
            Some(changes) => changes.iter().for_each(|change| self.note(store, change, &mut work)),
            None => self.look_at_all(store, &mut work),
        }
        self.seen = store.version();
        let now = now();
        for what in self.timers.ripen(now) {
            match what {
                TimerKey::Node(node, _)
                | TimerKey::Renewal(node, _)
                | TimerKey::Silent(node, _)
                | TimerKey::Lost(node, _)
                | TimerKey::Evict(node, _)
                | TimerKey::Collect(node, _) => {
                    work.nodes.insert(node);
                }
                TimerKey::Start(pod, _) | TimerKey::Stop(pod, _) => drop(work.pods.insert(pod)),
                TimerKey::Detach(..) | TimerKey::Unmount(..) => work.volumes = true,
                TimerKey::Disrupted(budget, ..) => drop(work.budgets.insert(budget)),
                TimerKey::Step(key, _) if key.0.starts_with("longhorn/") => work.longhorn = true,
                TimerKey::Step(key, _) if key.0 == evictions::EVICTIONS => work.evictions = true,
                TimerKey::Step(key, _) if key.0 == kubelets::LEASES => drop(work.virtual_ips.insert(key)),
                TimerKey::Step(key, _) => drop(work.workloads.insert(key)),
            }
        }
        for node in &work.nodes {
            kubelets::node(store, config, &mut self.timers, now, node);
            node_failure::node(store, &mut Tick { config, timers: &mut self.timers, now }, node);
        }
        for workload in &work.workloads {
            reconcile(store, &mut Tick { config, timers: &mut self.timers, now }, workload);
        }
        if work.nodes.is_empty() {
            self.unplaced.retain(|pod| !work.pods.contains(pod) || !scheduler::place(store, pod));
        } else {
            self.unplaced.retain(|pod| !scheduler::place(store, pod));
        }
        if work.attachments {
            work.pods.append(&mut self.waiting);
        }
        for pod in work.pods {
            if kubelets::pod(store, config, &mut self.timers, now, &pod) {
                self.waiting.insert(pod);
            }
        }
        if work.volumes {
            volumes::round(store, config, &mut self.timers, now, &self.mounting);
        }
        if work.longhorn {
            longhorn::round(store, &mut Tick { config, timers: &mut self.timers, now });
        }
        if work.evictions {
            evictions::round(store, &mut Tick { config, timers: &mut self.timers, now });
        }
        for lease in &work.virtual_ips {
            virtual_ips::round(store, &mut Tick { config, timers: &mut self.timers, now }, lease);
        }
        for budget in &work.budgets {
            budgets::forget(store, &mut self.timers, now, budget);
        }
    }

    /// Adds what a change affects.
    fn note(&mut self, store: &ObjectStore, change: &Changed, work: &mut RoundWork) {
        let place = change.place();
        work.longhorn |= longhorn::concerns(change);
        work.evictions |= evictions::concerns(change);
        for object in change.forms() {
            work.workloads.extend(machines::wakes(store, &change.resource, object));
        }
        match change.resource.as_str() {
            "nodes" => {
                work.pods.extend(store.pods_on(&place.1).cloned());
                let sets = store.list("apps/daemonsets");
                work.workloads.extend(sets.map(|set| key("apps/daemonsets", set)));
                work.nodes.insert(place.1);
                work.volumes = true;
            }
            "pods" => {
                let newest = change.new.as_deref();
                let is_unplaced = newest.is_some_and(|pod| pod["spec"]["nodeName"].is_null());
                keep(&mut self.unplaced, &place, is_unplaced);
                let mounts = |pod: &Value| !volumes::claims(pod).is_empty();
                work.volumes |= change.forms().any(mounts);
                keep(&mut self.mounting, &place, newest.is_some_and(mounts));
                work.workloads.extend(change.forms().filter_map(workloads::owner));
                work.nodes.extend(newest.and_then(|pod| node_failure::concerned(store, pod)));
                work.pods.insert(place);
            }
            "apps/replicasets" | machines::GUESTS => {
                work.workloads.extend(change.forms().filter_map(workloads::owner));
                work.workloads.insert((change.resource.clone(), place.0, place.1));
            }
            "apps/deployments"
            | "apps/statefulsets"
            | "apps/daemonsets"
            | machines::MACHINES
            | machines::SETS => {
                work.workloads.insert((change.resource.clone(), place.0, place.1));
            }
            kubelets::LEASES if change.new.as_deref().is_some_and(virtual_ips::is_one) => {
                work.virtual_ips.insert((change.resource.clone(), place.0, place.1));
            }
            "policy/poddisruptionbudgets" => drop(work.budgets.insert(place)),
            "persistentvolumes" | "persistentvolumeclaims" | "storage/volumeattachments" => {
                work.volumes = true;
                work.attachments = true;
            }
            _ => {}
        }
    }

    /// Without known changes: everything may have changed.
    fn look_at_all(&mut self, store: &ObjectStore, work: &mut RoundWork) {
        self.unplaced.clear();
        self.mounting.clear();
        for resource in [
            "nodes",
            "pods",
            "apps/deployments",
            "apps/replicasets",
            "apps/statefulsets",
            "apps/daemonsets",
            machines::MACHINES,
            machines::SETS,
            machines::GUESTS,
            machines::MIGRATIONS,
            "policy/poddisruptionbudgets",
            "storage/volumeattachments",
            kubelets::LEASES,
        ] {
            for object in all(store, resource) {
                let resource = resource.to_owned();
                let change = Changed { version: 0, resource, old: None, new: Some(object) };
                self.note(store, &change, work);
            }
        }
    }
}

fn reconcile(store: &mut ObjectStore, tick: &mut Tick<'_>, key: &ObjectKey) {
    let (resource, namespace, name) = key;
    let Some(object) = store.found(resource, namespace, name).cloned() else { return };
    match resource.as_str() {
        "apps/deployments" => rollouts::deployment(store, &object),
        "apps/replicasets" => workloads::replica_set(store, &object),
        "apps/statefulsets" => workloads::stateful_set(store, &object),
        "apps/daemonsets" => workloads::daemon_set(store, &object),
        _ => machines::round(store, tick, key, &object),
    }
}

fn key(resource: &str, object: &Value) -> ObjectKey {
    let (namespace, name) = place(object);
    (resource.to_owned(), namespace, name)
}

fn keep(places: &mut BTreeSet<ObjectName>, place: &ObjectName, is_in: bool) {
    if is_in {
        places.insert(place.clone());
    } else {
        places.remove(place);
    }
}
