//! Workloads, pods and virtual machines that are not up, machines that cannot migrate, and PodDisruptionBudgets that
//! allow no disruption and so will hold a drain up.
//!
//! Source: kubernetes.io, "Specifying a Disruption Budget for your Application". Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::machines::DRAIN;
use kubeapi::objects::{condition, items, named as shown, text, time};
use serde_json::Value;

use crate::finding::kubectl;
use crate::{Finding, IllObject, Severity};

/// A pod that terminates, or has no node, for longer is named.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

pub fn is_system(object: &Value) -> bool {
    is_system_namespace(&text(&object["metadata"]["namespace"]))
}

pub fn is_system_namespace(namespace: &str) -> bool {
    namespace.ends_with("-system") || ["kubevirt", "cdi"].contains(&namespace)
}

/// Workloads of one kind, as `deployments`, with fewer ready pods than wanted; code `workloads`.
pub fn short(kind: &str, all: &[Value]) -> Vec<Finding> {
    let (spec, status) = ("spec", "status");
    let (wanted, ready) = match kind {
        "daemon sets" => ((status, "desiredNumberScheduled", 0), "numberReady"),
        "deployments" => ((spec, "replicas", 1), "availableReplicas"),
        _ => ((spec, "replicas", 1), "readyReplicas"),
    };
    let of = |it: &Value| {
        let wanted = it[wanted.0][wanted.1].as_u64().unwrap_or(wanted.2);
        let ready = it[status][ready].as_u64().unwrap_or(0);
        (ready < wanted).then(|| IllObject::new(shown(it), &format!("pods ready: {ready} of {wanted}")))
    };
    let all: Vec<IllObject> = all.iter().filter_map(of).collect();
    let what = format!("{kind} with pods that are not ready");
    let word = kind.replace(' ', "");
    let next = |first: &IllObject| kubectl(&format!("describe {}", word.trim_end_matches('s')), first);
    Finding::listing(("workloads", Severity::Blocks), &what, &all, next)
}

/// Pods of one node; code `pods`. kubectl shows the first.
pub fn named(what: &str, all: &[IllObject], verb: &str) -> Vec<Finding> {
    Finding::listing(("pods", Severity::Blocks), what, all, |it| format!("look at `{}`", kubectl(verb, it)))
}

/// Pods that crash, have no node, or do not terminate; code `pods`. Their workloads show whether that
/// matters.
pub fn pods(all: &[Value], now: Timestamp) -> Vec<Finding> {
    let old = |value: &Value| time(value).is_some_and(|at| now.duration_since(at) > PATIENCE);
    let crashing = |it: &Value| {
        let kinds = ["containerStatuses", "initContainerStatuses"];
        let states = kinds.iter().flat_map(|kind| items(&it["status"][kind]));
        let reasons = states.map(|it| text(&it["state"]["waiting"]["reason"]));
        let reason = reasons.into_iter().find(|it| it == "CrashLoopBackOff" || it == "ImagePullBackOff")?;
        Some(IllObject::new(shown(it), &reason))
    };
    let unplaced = |it: &Value| {
        let placed = condition(&it["status"], "PodScheduled");
        let waits = it["status"]["phase"] == "Pending" && placed["status"] == "False";
        (waits && old(&placed["lastTransitionTime"]))
            .then(|| IllObject::new(shown(it), &text(&placed["message"])))
    };
    let leftover = |it: &Value| {
        let unknown = it["status"]["phase"] == "Unknown";
        (unknown || old(&it["metadata"]["deletionTimestamp"])).then(|| IllObject::alone(shown(it)))
    };
    let of = |what: &str, rule: &dyn Fn(&Value) -> Option<IllObject>, next: &dyn Fn(&IllObject) -> String| {
        let some: Vec<IllObject> = all.iter().filter_map(rule).collect();
        Finding::listing(("pods", Severity::Warns), what, &some, next)
    };
    let left = |_: &IllObject| {
        let first = all.iter().find(|it| leftover(it).is_some());
        let node = first.map(|it| text(&it["spec"]["nodeName"])).unwrap_or_default();
        format!("kubectl get node {node}: zedkube of that node removes what an earlier boot left")
    };
    let late = "pods that are Unknown, or have been Terminating for more than 5 min";
    let rows = [
        of("pods that do not start", &crashing, &|it| kubectl("logs", it)),
        of("pods that cannot be scheduled", &unplaced, &|it| kubectl("describe pod", it)),
        of(late, &leftover, &left),
    ];
    rows.concat()
}

/// Finding, which budgets, what is said of each, and the next step.
type BudgetRule<'a> = (&'a str, &'a dyn Fn(&Value) -> bool, &'a dyn Fn(&Value) -> String, &'a str);

/// Budgets that allow no disruption although all pods run, and those with too few running pods; code
/// `budgets`. Those kept by a controller, such as KubeVirt's and Longhorn's, allow none by design: a drain
/// handles them.
pub fn budgets(all: &[Value]) -> Vec<Finding> {
    let count = |it: &Value, name: &str| it["status"][name].as_u64().unwrap_or(0);
    let is_kept = |it: &Value| is_system(it) || !items(&it["metadata"]["ownerReferences"]).is_empty();
    let closed: Vec<&Value> = all
        .iter()
        .filter(|it| count(it, "disruptionsAllowed") == 0 && count(it, "expectedPods") > 0)
        .collect();
    let lacks = |it: &Value| count(it, "currentHealthy") < count(it, "desiredHealthy");
    let whole = |it: &Value| count(it, "currentHealthy") >= count(it, "expectedPods");
    let rows: [BudgetRule<'_>; 2] = [
        (
            "PodDisruptionBudgets that allow no disruption although all pods run; a drain waits for them until its time limit",
            &|it| whole(it) && !lacks(it) && !is_kept(it),
            &|it| format!("needs {} of {}", count(it, "desiredHealthy"), count(it, "expectedPods")),
            "require one pod less (minAvailable, maxUnavailable), or add a replica where another node has room",
        ),
        (
            "PodDisruptionBudgets that allow no disruption because too few pods are Ready",
            &lacks,
            &|it| format!("{} Ready, needs {}", count(it, "currentHealthy"), count(it, "desiredHealthy")),
            "repair its pods first: layers applications and system name them",
        ),
    ];
    let of = |(what, holds, with, next): BudgetRule<'_>| {
        let one = |it: &Value| IllObject::new(shown(it), &with(it));
        let some: Vec<IllObject> = closed.iter().copied().filter(|it| holds(it)).map(one).collect();
        let next = |first: &IllObject| format!("{}; {next}", kubectl("describe pdb", first));
        Finding::listing(("budgets", Severity::Warns), what, &some, next)
    };
    rows.into_iter().flat_map(of).collect()
}

/// Running machines of `node` whose condition LiveMigratable is not True; code `machines`.
pub fn not_migratable(guests: &[Value], node: &str) -> Vec<Finding> {
    let here = |it: &&Value| it["status"]["nodeName"] == node && it["status"]["phase"] == "Running";
    let what = |it: &Value| {
        let migratable = condition(&it["status"], "LiveMigratable");
        let why = match text(&migratable["reason"]) {
            reason if reason.is_empty() => "KubeVirt has not reported yet".to_owned(),
            reason => reason,
        };
        (migratable["status"] != "True").then(|| format!("{} ({why})", shown(it)))
    };
    let all: Vec<String> = guests.iter().filter(here).filter_map(what).collect();
    let what = "virtual machines that cannot migrate, and follow their policies";
    let next = |_: &String| format!("zedbox plan --node {node} shows what becomes of each");
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
        (wanted && !up).then(|| IllObject::new(shown(it), if is.is_empty() { "no status yet" } else { &is }))
    };
    let some: Vec<IllObject> = machines.iter().filter_map(down).collect();
    let stopped: Vec<String> = machines.iter().filter(|it| by_drain(it)).map(shown).collect();
    let (what, restore) = ("virtual machines that a drain has stopped", "zedbox machines restore");
    let stopped = Finding::listing(("machines", Severity::Warns), what, &stopped, |_| restore.to_owned());
    [not_up("vm", &some), stopped].concat()
}
