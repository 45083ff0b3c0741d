//! KubeVirt's budgets up to 1.5: one for each guest that a drain moves, for two pods during a migration.

use std::sync::Arc;

use serde_json::{Value, json};

use super::settings::KubevirtSettings;
use super::{BUDGETS, MIGRATIONS, active, is_ending, is_final, is_over, owned_by, tail, text};
use crate::store::{ObjectStore, is_true, name, namespace, uid};

const LABEL: &str = "kubevirt.io/migrationName";

pub(super) fn keep(store: &mut ObjectStore, settings: &KubevirtSettings, guest: &Value) {
    let held = store.owned(BUDGETS, &uid(guest));
    let guarded = match text(guest, "/spec/evictionStrategy") {
        "LiveMigrate" | "External" => true,
        "LiveMigrateIfPossible" => is_true(guest, "LiveMigratable"),
        _ => false,
    };
    if settings.minor > 5 || !guarded || is_ending(guest) || is_over(guest) {
        for budget in held {
            store.remove(BUDGETS, &namespace(&budget), &name(&budget));
        }
        return;
    }
    let Some(budget) = held.first() else {
        let selector = json!({ "matchLabels": { "kubevirt.io/created-by": uid(guest) } });
        store.put(
            BUDGETS,
            json!({
                "metadata": {
                    "name": format!("kubevirt-disruption-budget-{}", tail()), "namespace": namespace(guest),
                    "generateName": "kubevirt-disruption-budget-",
                    "ownerReferences": owned_by(guest, "VirtualMachineInstance"),
                },
                "spec": { "minAvailable": 1, "selector": selector }, "status": {},
            }),
        );
        return;
    };
    let Some(job) = budget["metadata"]["labels"][LABEL].as_str() else { return };
    let over = store.get(MIGRATIONS, &namespace(guest), job).is_none_or(is_final);
    if over && active(store, guest).len() < 2 {
        store.edit(BUDGETS, &namespace(budget), &name(budget), |it| {
            it["spec"]["minAvailable"] = 1.into();
            it["metadata"]["labels"] = json!({});
        });
    }
}

/// Sets the guest's budget for both pods of its migration; returns whether that is done or not needed.
pub(super) fn is_ready(
    store: &mut ObjectStore,
    settings: &KubevirtSettings,
    guest: &Value,
    job: &Value,
) -> bool {
    let moved = match text(guest, "/spec/evictionStrategy") {
        "LiveMigrate" => true,
        "LiveMigrateIfPossible" => is_true(guest, "LiveMigratable"),
        _ => false,
    };
    if settings.minor > 5 || !moved {
        return true;
    }
    let held: Option<Arc<Value>> = store.owned(BUDGETS, &uid(guest)).into_iter().next();
    let Some(budget) = held else { return false };
    if budget["metadata"]["labels"][LABEL] != name(job) {
        store.edit(BUDGETS, &namespace(&budget), &name(&budget), |it| {
            it["spec"]["minAvailable"] = 2.into();
            it["metadata"]["labels"][LABEL] = name(job).into();
        });
        return false;
    }
    budget["status"]["desiredHealthy"] == 2
}
