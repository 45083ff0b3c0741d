//! Settings of the KubeVirt object, and virt-handler's report on its node.

use std::time::Duration;

use serde_json::{Value, json};

use super::{annotation, text};
use crate::store::{ObjectKey, ObjectStore, is_true, namespace, stamp};
use crate::timers::Tick;

pub(crate) const KUBEVIRTS: &str = "kubevirt/kubevirts";
const POLICIES: &str = "migrations/migrationpolicies";
/// Minor version without a KubeVirt object.
const NEWEST: u64 = 7;
/// A node without a heartbeat for this long takes no guests.
const SILENT: Duration = Duration::from_secs(300);
pub(super) const SCHEDULABLE: &str = "kubevirt.io/schedulable";

pub(super) struct KubevirtSettings {
    /// `7` of v1.7.3.
    pub(super) minor: u64,
    /// virt-api does not answer.
    pub(super) is_down: bool,
    configuration: Value,
}

impl KubevirtSettings {
    pub(super) fn read(store: &ObjectStore) -> Self {
        let held = store.list(KUBEVIRTS).next().cloned().unwrap_or_default();
        let minor = text(&held, "/status/observedKubeVirtVersion").split('.').nth(1);
        let api = store.get("apps/deployments", &namespace(&held), "virt-api");
        let ready = |it: &Value| it["status"]["readyReplicas"].as_u64().unwrap_or_default() > 0;
        Self {
            minor: minor.and_then(|it| it.parse().ok()).unwrap_or(NEWEST),
            is_down: annotation(&held, "kubesim/virt-api") == "down" || api.is_some_and(|it| !ready(it)),
            configuration: held["spec"]["configuration"].clone(),
        }
    }

    pub(super) fn migrations(&self, member: &str) -> &Value {
        &self.configuration["migrations"][member]
    }

    pub(super) fn number(&self, member: &str, default: u64) -> u64 {
        self.migrations(member).as_u64().unwrap_or(default)
    }

    /// A migration's limits: the defaults, overridden by the KubeVirt object and then by the first policy
    /// that selects the guest by its labels.
    pub(super) fn configuration_of(&self, store: &ObjectStore, guest: &Value) -> Value {
        let mut all = json!({
            "bandwidthPerMigration": "0", "completionTimeoutPerGiB": 150, "progressTimeout": 150,
            "allowAutoConverge": false, "allowPostCopy": false,
        });
        let selects = |it: &&Value| {
            let wanted = it["spec"]["selectors"]["virtualMachineInstanceSelector"].as_object();
            wanted.is_some_and(|all| {
                all.iter().all(|(key, value)| guest["metadata"]["labels"].get(key) == Some(value))
            })
        };
        let policy = store.list(POLICIES).find(selects).map(|it| it["spec"].clone()).unwrap_or_default();
        for said in [&self.configuration["migrations"], &policy] {
            for (member, value) in said.as_object().into_iter().flatten() {
                if !all[member].is_null() {
                    all[member] = value.clone();
                }
            }
        }
        all
    }

    pub(super) fn has_gate(&self, gate: &str) -> bool {
        let gates = self.configuration["developerConfiguration"]["featureGates"].as_array();
        gates.is_some_and(|all| all.iter().any(|it| it == gate))
    }

    pub(super) fn drain_taint(&self) -> &str {
        self.migrations("nodeDrainTaintKey").as_str().unwrap_or("kubevirt.io/drain")
    }

    pub(super) fn is_tainted(&self, store: &ObjectStore, node: &str) -> bool {
        let taints = store.get("nodes", "", node).and_then(|it| it["spec"]["taints"].as_array());
        taints.is_some_and(|all| {
            all.iter().any(|it| it["key"] == self.drain_taint() && it["effect"] == "NoSchedule")
        })
    }

    /// The default strategy of new guests.
    pub(super) fn strategy(&self) -> &str {
        self.configuration["evictionStrategy"].as_str().unwrap_or("None")
    }
}

/// The label for nodes that take guests: true with the first heartbeat, false after five minutes without one.
pub(super) fn handler(store: &mut ObjectStore, tick: &mut Tick<'_>, key: &ObjectKey, node: &Value) {
    let ready = is_true(node, "Ready");
    let silent = !ready && tick.is_time(key, "virt-handler", SILENT);
    let word = if ready { "true" } else { "false" };
    if node["metadata"]["labels"][SCHEDULABLE] != word && (ready || silent) {
        store.edit("nodes", "", &key.2, |it| {
            it["metadata"]["labels"][SCHEDULABLE] = word.into();
            if ready {
                it["metadata"]["annotations"]["kubevirt.io/heartbeat"] = stamp(0).into();
            }
        });
    }
}
