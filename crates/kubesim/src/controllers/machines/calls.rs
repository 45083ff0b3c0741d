//! The calls of KubeVirt's subresources: `stop`, `start` and `migrate` of a machine, `evacuate/cancel` of a guest.

use std::sync::Arc;

use serde_json::{Value, json};

use super::owners::{own_guest, strategy};
use super::settings::KubevirtSettings;
use super::{GUESTS, MACHINES, MIGRATIONS, is_over, migrations, tail, text};
use crate::SimShared;
use crate::answers;
use crate::failure::Failure;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::store::{ObjectStore, name};

/// A PUT below `subresources.kubevirt.io`, aggregated to virt-api.
pub(crate) fn answer(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let body = if asked.body.is_empty() { Value::Null } else { asked.json()? };
    let dry = body["dryRun"].as_array().is_some_and(|all| !all.is_empty());
    let named = target.name.clone().unwrap_or_default();
    shared.attempt(dry, |store| {
        let settings = KubevirtSettings::read(store);
        if settings.is_down {
            let text =
                answers::answer("away/subresource", settings.minor).map(|it| text(it, "/text").to_owned());
            return Ok(SimResponse::Text(503, text.unwrap_or_default()));
        }
        let machine = target.plural == "virtualmachines";
        match target.sub.as_deref() {
            Some(what @ ("stop" | "start")) if machine => switch(store, target, &named, what),
            Some("migrate") if machine => migrate(store, target, &named),
            Some("evacuate/cancel") => cancel(store, target, &named, &body),
            _ => Err(Failure::no_such_path()),
        }
    })
}

fn switch(
    store: &mut ObjectStore,
    target: &ResourcePath,
    named: &str,
    asked: &str,
) -> Result<SimResponse, Failure> {
    let place = target.namespace.as_str();
    let held = store.get(MACHINES, place, named).cloned();
    let held = held.ok_or_else(|| Failure::not_found(target, named))?;
    let alive = own_guest(store, &held).is_some_and(|it| !is_over(&it));
    let older = held["metadata"]["annotations"]["kubesim/stop-halts"] == "true";
    let minor = KubevirtSettings::read(store).minor;
    let held_strategy = strategy(&held).to_owned();
    let refused = |row: &str| {
        let filled = [("machine", named), ("strategy", held_strategy.as_str())];
        answers::refusal(row, minor, &filled).map_or_else(|| Err(Failure::no_such_path()), Err)
    };
    let (word, running) = match (asked, held_strategy.as_str()) {
        ("stop", "Halted") if alive => return refused("stop/halted"),
        ("stop", "Always" | "Once") => (Some("Halted"), false),
        ("stop", _) if !alive => return refused("stop/manual-without-guest"),
        ("stop", "RerunOnFailure") if older => (Some("Halted"), false),
        ("start", _) if alive => return refused("start/running"),
        ("start", "Always" | "Once") => return refused("start/always"),
        ("start", "Halted") => (Some("Always"), true),
        (_, _) => (None, false),
    };
    store.edit(MACHINES, place, named, |it| match word {
        Some(_) if !it["spec"]["running"].is_null() => it["spec"]["running"] = running.into(),
        Some(word) => it["spec"]["runStrategy"] = word.into(),
        None => {
            let action = if asked == "stop" { "Stop" } else { "Start" };
            it["status"]["stateChangeRequests"] = json!([{ "action": action }]);
        }
    });
    Ok(SimResponse::Json(202, json!({})))
}

fn migrate(store: &mut ObjectStore, target: &ResourcePath, named: &str) -> Result<SimResponse, Failure> {
    let held = store.get(MACHINES, &target.namespace, named).cloned();
    let held = held.ok_or_else(|| Failure::not_found(target, named))?;
    if own_guest(store, &held).is_none_or(|it| is_over(&it)) {
        return Err(Failure::conflict(target, named, "VM is not running"));
    }
    let mut job = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": format!("kubevirt-migrate-vm-{}", tail()), "generateName": "kubevirt-migrate-vm-",
            "namespace": target.namespace,
        },
        "spec": { "vmiName": named },
    });
    migrations::admit(store, &mut job)?;
    store.put(MIGRATIONS, job);
    Ok(SimResponse::Json(202, json!({})))
}

/// Removes a guest's eviction mark, from 1.7 on.
fn cancel(
    store: &mut ObjectStore,
    target: &ResourcePath,
    named: &str,
    body: &Value,
) -> Result<SimResponse, Failure> {
    let settings = KubevirtSettings::read(store);
    if settings.minor < 7 {
        return Err(Failure::no_such_path());
    }
    let held = store.get(GUESTS, &target.namespace, named);
    let held = held.ok_or_else(|| Failure::not_found(target, named))?;
    let marked = text(held, "/status/evacuationNodeName").to_owned();
    let node = if marked.is_empty() { text(held, "/status/nodeName") } else { &marked };
    if settings.is_tainted(store, node) {
        answers::check(
            "cancel/tainted",
            settings.minor,
            &[("node", node), ("taint", settings.drain_taint())],
        )?;
    }
    if marked.is_empty() {
        return Ok(SimResponse::Json(200, json!({})));
    }
    if body["evacuationNodeName"].as_str().unwrap_or_default() != marked {
        answers::check("cancel/other-node", settings.minor, &[])?;
    }
    let place = (target.namespace.clone(), name(held));
    store.edit(GUESTS, &place.0, &place.1, |it| {
        drop(it["status"].as_object_mut().and_then(|all| all.remove("evacuationNodeName")));
    });
    Ok(SimResponse::Json(200, json!({})))
}
