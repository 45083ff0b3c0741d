//! KubeVirt's evacuation controller: a migration for each guest that is marked, or on a node with the drain
//! taint.

use serde_json::{Value, json};

use super::settings::KubevirtSettings;
use super::{MIGRATIONS, active, is_ending, is_final, is_over, migrations, record_event, tail, text};
use crate::answers;
use crate::store::{ObjectKey, ObjectStore, is_true, name, namespace, uid};
use crate::timers::Tick;

/// Makes the migration of a guest that has to leave its node.
pub(super) fn round(
    store: &mut ObjectStore,
    tick: &mut Tick<'_>,
    settings: &KubevirtSettings,
    key: &ObjectKey,
    guest: &Value,
) {
    let node = text(guest, "/status/nodeName");
    let marked = !node.is_empty() && text(guest, "/status/evacuationNodeName") == node;
    if is_over(guest) || is_ending(guest) || !(marked || settings.is_tainted(store, node)) {
        return;
    }
    let moves = matches!(text(guest, "/spec/evictionStrategy"), "LiveMigrate" | "LiveMigrateIfPossible");
    let busy = migrations::of(store, guest).any(|it| !is_final(&it));
    if !moves || !is_true(guest, "LiveMigratable") || busy || active(store, guest).len() > 1 {
        return;
    }
    if !tick.is_time(key, &format!("{} evacuation", uid(guest)), tick.config.phase_time) {
        return;
    }
    let made = format!("kubevirt-evacuation-{}", tail());
    let gate = || settings.has_gate("MigrationPriorityQueue");
    // With the gate like later versions without it.
    let minor = if settings.minor >= 7 && gate() { u64::MAX } else { settings.minor };
    let priority = answers::answer("evacuation/priority", minor).map(|it| it["priority"].clone());
    store.put(
        MIGRATIONS,
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {
                "name": made, "generateName": "kubevirt-evacuation-", "namespace": namespace(guest),
                "annotations": { migrations::MADE_FOR: node }, "labels": { migrations::LABEL: name(guest) },
                "finalizers": [migrations::FINALIZER],
            },
            "spec": { "vmiName": name(guest), "priority": priority }, "status": {},
        }),
    );
    record_event(
        store,
        super::CONTROLLER,
        guest,
        "Normal",
        "SuccessfulCreate",
        &format!("Created Migration {made}"),
    );
}
