//! kube-vip: the lease of a virtual IP is renewed by the node that holds it, and taken over by another one
//! when that node is away. Neither happens while the annotation `kubesim/kube-vip` is `off`.

use std::time::Duration;

use serde_json::Value;

use crate::kubelets::{LEASES, renewed};
use crate::node_state::has_power;
use crate::store::{ObjectKey, ObjectStore, is_true, name};
use crate::timers::{Tick, TimerKey};

const EVERY: Duration = Duration::from_secs(2);
/// Absence of a holder before the take-over.
const LASTS: Duration = Duration::from_secs(15);

pub(crate) fn is_one(lease: &Value) -> bool {
    lease["metadata"]["name"].as_str().is_some_and(|it| it.starts_with("plndr-"))
}

pub(crate) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>, key: &ObjectKey) {
    let (_, namespace, lease) = key;
    let Some(held) = store.get(LEASES, namespace, lease).cloned() else { return };
    let serves = |node: &Value| has_power(node) && is_true(node, "Ready");
    let holder = held["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let is_served = store.get("nodes", "", &holder).is_some_and(serves);
    let (step, after) = if is_served { ("renew", EVERY) } else { ("lost", LASTS) };
    if is_served {
        tick.timers.cancel(&TimerKey::Step(key.clone(), "lost".to_owned()));
    }
    let is_time = tick.is_time(key, step, after);
    // Also needed when an absent node comes back.
    tick.again(key, "renew", EVERY);
    if !is_time || held["metadata"]["annotations"]["kubesim/kube-vip"] == "off" {
        return;
    }
    let next = if is_served { Some(holder) } else { store.list("nodes").find(|it| serves(it)).map(name) };
    let Some(holder) = next else { return };
    store.edit(LEASES, namespace, lease, |it| {
        it["spec"]["holderIdentity"] = holder.clone().into();
        it["spec"]["renewTime"] = renewed().into();
    });
}
