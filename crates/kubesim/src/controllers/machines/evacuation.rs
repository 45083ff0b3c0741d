//! KubeVirt's evacuation controller: a migration for each guest that is marked, or whose node has the drain taint.

use serde_json::{Value, json};

use super::settings::KubevirtSettings;
use super::{MIGRATIONS, active, is_ending, is_final, is_over, migrations, record_event, tail, text};
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
    // From 1.9 on the queue is in the migration controller.
    if settings.minor < 9 && !migrations::has_slot(store, settings, node, true) {
        tick.again(key, "evacuation without a slot", migrations::LOOK_AGAIN);
        return;
    }
    if !tick.is_time(key, &format!("{} evacuation", uid(guest)), tick.config.phase_time) {
        return;
    }
    let made = format!("kubevirt-evacuation-{}", tail());
    let priority = if settings.minor >= 7 { json!("system-critical") } else { Value::Null };
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
