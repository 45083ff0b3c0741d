//! Virtual machines that cannot migrate, and those that do not run.
//!
//! Not here: their policies (`kubenodeop::machines`). Source: spec/vm-storage.md A1.
//! Pure: no clock, no I/O, no task.

use kubeapi::machines::DRAIN;
use kubeapi::names::listed as names;
use kubeapi::objects::{condition, named, text};
use serde_json::Value;

use crate::{Finding, Severity};

/// Running machines of `node` whose condition LiveMigratable is not True; code `machines`.
pub fn not_migratable(guests: &[Value], node: &str) -> Vec<Finding> {
    let here = |it: &&Value| it["status"]["nodeName"] == node && it["status"]["phase"] == "Running";
    let what = |it: &Value| {
        let migratable = condition(&it["status"], "LiveMigratable");
        let why = match text(&migratable["reason"]) {
            reason if reason.is_empty() => "KubeVirt has not reported yet".to_owned(),
            reason => reason,
        };
        (migratable["status"] != "True").then(|| format!("{} ({why})", named(it)))
    };
    let all: Vec<String> = guests.iter().filter(here).filter_map(what).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text =
        format!("virtual machines that cannot migrate, and follow their policies: {}", names(&all, ", "));
    let next = format!("zedbox drain plan --node {node} shows what becomes of each");
    vec![Finding::new("machines", text, next).with(Severity::Warns)]
}

/// Machines that should run and do not, and those that a drain has stopped and that were not started again;
/// code `machines`.
pub fn not_running(machines: &[Value]) -> Vec<Finding> {
    let by_drain = |it: &Value| !it["metadata"]["annotations"][DRAIN.annotation].is_null();
    let down = |it: &Value| {
        let wanted = it["spec"]["running"] == true || it["spec"]["runStrategy"] == "Always";
        let is = text(&it["status"]["printableStatus"]);
        let up = matches!(is.as_str(), "Running" | "Migrating");
        (wanted && !up)
            .then(|| format!("{} ({})", named(it), if is.is_empty() { "no status yet" } else { &is }))
    };
    let some: Vec<String> = machines.iter().filter_map(down).collect();
    let stopped: Vec<String> = machines.iter().filter(|it| by_drain(it)).map(named).collect();
    let mut found = Vec::new();
    if let Some(first) = machines.iter().find(|it| down(it).is_some()) {
        let meta = &first["metadata"];
        let next = format!("kubectl -n {} describe vm {}", text(&meta["namespace"]), text(&meta["name"]));
        let text = format!("virtual machines that should run and do not: {}", names(&some, ", "));
        found.push(Finding::new("machines", text, next));
    }
    if !stopped.is_empty() {
        let text = format!("virtual machines that a drain has stopped: {}", names(&stopped, ", "));
        found.push(Finding::new("machines", text, "zedbox machines restore").with(Severity::Warns));
    }
    found
}
