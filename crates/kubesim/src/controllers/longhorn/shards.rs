//! Shards of a volume with `dataLayout.type: sharded`: they fail with their node, are built again one after another once it
//! is back, and are moved off a cordoned node under `block-for-eviction` only. `kubesim/rebuild: hangs` holds them as they are.
//!
//! Source: longhorn-manager `controller/shard_group_controller.go` and `node_controller.go`, read at 5ddaa36 (1.12).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{GROUPS, NAMESPACE, SHARDS, VOLUMES, edit, is_cordoned, is_ready, is_served, key, text};
use crate::Sim;
use crate::store::{ObjectStore, all, name};
use crate::timers::Tick;

/// Whether it can be used; `None` where it has no shards.
pub(super) fn round(
    store: &mut ObjectStore,
    tick: &mut Tick<'_>,
    policy: &str,
    volume: &Value,
) -> Option<bool> {
    let named = &name(volume);
    let group = store.get(GROUPS, NAMESPACE, named)?.clone();
    let of_it = |store: &ObjectStore| {
        let mut shards = all(store, SHARDS);
        shards.retain(|it| it["spec"]["shardGroupName"] == named.as_str());
        shards
    };
    let reached = |store: &ObjectStore, node: &str| is_ready(store, node) && is_served(store, node);
    for shard in of_it(store) {
        if !reached(store, text(&shard, "/spec/nodeID")) {
            edit(store, SHARDS, &name(&shard), |it| it["status"]["state"] = "failed".into());
        }
    }
    let shards = of_it(store);
    let failed = |it: &&Arc<Value>| text(it, "/status/state") != "normal";
    let free = all(store, "nodes").iter().map(|it| name(it)).find(|node| {
        reached(store, node)
            && !is_cordoned(store, node)
            && shards.iter().all(|it| it["spec"]["nodeID"] != node.as_str())
    });
    let leaves =
        |it: &&Arc<Value>| policy == "block-for-eviction" && is_cordoned(store, text(it, "/spec/nodeID"));
    let work = match shards.iter().find(failed) {
        Some(shard) if reached(store, text(shard, "/spec/nodeID")) => Some((name(shard), None)),
        Some(shard) => free.map(|node| (name(shard), Some(node))),
        None => shards.iter().find(leaves).zip(free).map(|(shard, node)| (name(shard), Some(node))),
    };
    let hangs = text(volume, "/metadata/annotations/kubesim~1rebuild") == "hangs";
    if let Some((shard, node)) =
        work.filter(|_| !hangs && tick.is_time(&key(volume), "shard", tick.config.rebuild_time))
    {
        edit(store, SHARDS, &shard, |it| {
            it["status"]["state"] = "normal".into();
            if let Some(node) = node {
                it["spec"]["nodeID"] = node.into();
            }
        });
    }
    let failed = of_it(store).iter().filter(|it| failed(it)).count() as u64;
    let parity = group["spec"]["parityChunks"].as_u64().unwrap_or_default();
    let (state, robustness) = match failed {
        0 => ("healthy", "healthy"),
        some if some <= parity => ("degraded", "degraded"),
        _ => ("offline", "faulted"),
    };
    edit(store, GROUPS, named, |it| it["status"] = json!({ "state": state, "failedCount": failed }));
    edit(store, VOLUMES, named, |it| it["status"]["robustness"] = robustness.into());
    Some(failed <= parity)
}

impl Sim {
    /// A claim on a volume of which each of these nodes holds a shard; so many of them are parity.
    pub fn add_sharded_volume(
        &self,
        namespace: &str,
        claim: &str,
        volume: &str,
        nodes: &[&str],
        parity: usize,
    ) {
        self.add_longhorn_volume(namespace, claim, volume, &[]);
        let (meta, data) = (json!({ "name": volume, "namespace": NAMESPACE }), nodes.len() - parity);
        self.edit(VOLUMES, NAMESPACE, volume, |it| {
            it["spec"]["numberOfReplicas"] = 1.into();
            it["spec"]["dataLayout"] =
                json!({ "type": "sharded", "dataChunks": data, "parityChunks": parity });
            it["status"]["ownerID"] = nodes[0].into();
        });
        self.shared.write(|store| {
            for (slot, node) in nodes.iter().enumerate() {
                let named = format!("{volume}-{slot}");
                store.put(SHARDS, json!({
                    "apiVersion": "longhorn.io/v1beta2", "kind": "Shard",
                    "metadata": { "name": named, "namespace": NAMESPACE, "labels": { "longhornvolume": volume } },
                    "spec": { "shardGroupName": volume, "slotIndex": slot, "nodeID": node, "evictionRequested": false },
                    "status": { "state": "normal", "role": if slot < data { "data" } else { "parity" } },
                }));
            }
            store.put(GROUPS, json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "ShardGroup", "metadata": meta,
                "spec": { "volumeName": volume, "dataChunks": data, "parityChunks": parity, "nodeID": "" },
                "status": { "state": "healthy", "failedCount": 0 },
            }));
        });
    }
}
