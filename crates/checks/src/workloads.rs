//! Workloads and pods that are not up.
//!
//! Source: spec/cluster-lock.md 8. Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::listed as names;
use kubeapi::objects::{condition, items, named, text, time};
use serde_json::Value;

use crate::{Finding, Severity};

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
        (ready < wanted).then(|| format!("{} ({ready} of {wanted} pods ready)", named(it)))
    };
    let all: Vec<(String, &Value)> = all.iter().filter_map(|it| Some((of(it)?, it))).collect();
    let Some((_, first)) = all.first() else { return Vec::new() };
    let (namespace, name) = (text(&first["metadata"]["namespace"]), text(&first["metadata"]["name"]));
    let word = kind.replace(' ', "");
    let next = format!("kubectl -n {namespace} describe {} {name}", word.trim_end_matches('s'));
    let shown: Vec<String> = all.into_iter().map(|(text, _)| text).collect();
    vec![Finding::new(
        "workloads",
        format!("{kind} with pods that are not ready: {}", names(&shown, ", ")),
        next,
    )]
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
        Some(format!("{} ({reason})", named(it)))
    };
    let unplaced = |it: &Value| {
        let placed = condition(&it["status"], "PodScheduled");
        let waits = it["status"]["phase"] == "Pending" && placed["status"] == "False";
        (waits && old(&placed["lastTransitionTime"]))
            .then(|| format!("{} ({})", named(it), text(&placed["message"])))
    };
    let leftover = |it: &Value| {
        let unknown = it["status"]["phase"] == "Unknown";
        (unknown || old(&it["metadata"]["deletionTimestamp"])).then(|| named(it))
    };
    let of = |what: &str, rule: &dyn Fn(&Value) -> Option<String>, next: &dyn Fn(&Value) -> String| {
        let some: Vec<(String, &Value)> = all.iter().filter_map(|it| Some((rule(it)?, it))).collect();
        let (_, first) = some.first()?;
        let next = next(first);
        let shown: Vec<String> = some.into_iter().map(|(text, _)| text).collect();
        Some(Finding::new("pods", format!("{what}: {}", names(&shown, ", ")), next).with(Severity::Warns))
    };
    let kubectl = |verb: &str, it: &Value| {
        let meta = &it["metadata"];
        format!("kubectl -n {} {verb} {}", text(&meta["namespace"]), text(&meta["name"]))
    };
    let rows = [
        of("pods that do not start", &crashing, &|it| kubectl("logs", it)),
        of("pods that cannot be scheduled", &unplaced, &|it| kubectl("describe pod", it)),
        of("pods that are Unknown, or have been Terminating for more than 5 min", &leftover, &|it| {
            format!(
                "kubectl get node {}: zedkube of that node removes what an earlier boot left",
                text(&it["spec"]["nodeName"])
            )
        }),
    ];
    rows.into_iter().flatten().collect()
}
