//! Virtual machines that cannot migrate, and those that do not run.
//!
//! Not here: their policies (`kubenodeop::machines`). Source: spec/vm-storage.md A1.
//! Pure: no clock, no I/O, no task.

use kubeapi::machines::DRAIN;
use kubeapi::objects::{condition, named, text};
use serde_json::Value;

use crate::finding::kubectl;
use crate::{Finding, IllObject, Severity};

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
    let what = "virtual machines that cannot migrate, and follow their policies";
    let next = |_: &String| format!("zedbox drain plan --node {node} shows what becomes of each");
    Finding::listing(("machines", Severity::Warns), what, &all, next)
}

/// Machines that are not up; code `machines`. `kind` is what kubectl shows of the first.
pub fn not_up(kind: &str, all: &[IllObject]) -> Vec<Finding> {
    Finding::listing(("machines", Severity::Blocks), "virtual machines are not up", all, |first| {
        let show = kubectl(&format!("describe {kind}"), first);
        format!("`{show}` says what it waits for; `zedbox machines restore` starts what a drain stopped")
    })
}

/// Machines that should run and do not, and those that a drain has stopped and that were not started again;
/// code `machines`.
pub fn not_running(machines: &[Value]) -> Vec<Finding> {
    let by_drain = |it: &Value| !it["metadata"]["annotations"][DRAIN.annotation].is_null();
    let down = |it: &Value| {
        let wanted = it["spec"]["running"] == true || it["spec"]["runStrategy"] == "Always";
        let is = text(&it["status"]["printableStatus"]);
        let up = matches!(is.as_str(), "Running" | "Migrating");
        (wanted && !up).then(|| IllObject::new(named(it), if is.is_empty() { "no status yet" } else { &is }))
    };
    let some: Vec<IllObject> = machines.iter().filter_map(down).collect();
    let stopped: Vec<String> = machines.iter().filter(|it| by_drain(it)).map(named).collect();
    let (what, restore) = ("virtual machines that a drain has stopped", "zedbox machines restore");
    let stopped = Finding::listing(("machines", Severity::Warns), what, &stopped, |_| restore.to_owned());
    [not_up("vm", &some), stopped].concat()
}
