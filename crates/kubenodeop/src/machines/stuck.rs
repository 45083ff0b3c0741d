//! Virtual machines that do not start: those that KubeVirt keeps in Pending or Scheduling, and what their launchers say.
//!
//! Nothing is deleted: what holds them is for a person. Source: KubeVirt's phases of instances.

use kubeapi::machines::calls::{GUESTS, LAUNCHERS, is_over, path};
use kubeapi::objects::{condition, items, text};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use serde_json::Value;

use super::facts;

/// One that does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstartedMachine {
    /// As `shop/till`.
    pub name: String,
    pub uid: String,
    pub phase: String,
    /// What holds it, by the scheduler, a container or KubeVirt.
    pub cause: String,
}

/// All of the cluster that are in Pending or Scheduling now; nothing without KubeVirt.
/// Errors: those of [`ApiClient`].
pub async fn unstarted(cluster: &ApiClient) -> Result<Vec<UnstartedMachine>, Error> {
    let guests = WatchScope::all("virtual machine instances", path(GUESTS));
    let guests = guests.list_installed::<Value>(cluster).await?.unwrap_or_default();
    let waits = |it: &&Value| {
        matches!(text(&it["status"]["phase"]).as_str(), "Pending" | "Scheduling") && !is_over(it)
    };
    let waiting: Vec<&Value> = guests.iter().filter(waits).collect();
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let pods = WatchScope {
        labels: Some(LAUNCHERS.to_owned()),
        ..WatchScope::all("launchers", "/api/v1/pods".to_owned())
    };
    let pods = pods.list_all::<Value>(cluster).await?.items;
    let of = |guest: &Value| {
        let uid = &guest["metadata"]["uid"];
        let is_its =
            |it: &&Value| items(&it["metadata"]["ownerReferences"]).iter().any(|owner| owner["uid"] == *uid);
        let launcher = pods.iter().filter(is_its).find_map(said);
        UnstartedMachine {
            name: facts::named(guest).to_string(),
            uid: text(uid),
            phase: text(&guest["status"]["phase"]),
            cause: launcher.or_else(|| facts::not_up(guest)).unwrap_or_default(),
        }
    };
    Ok(waiting.into_iter().map(of).collect())
}

/// What a launcher waits for: the scheduler's words, or those of a container.
fn said(pod: &Value) -> Option<String> {
    let (name, status) = (text(&pod["metadata"]["name"]), &pod["status"]);
    let placed = condition(status, "PodScheduled");
    if placed["status"] == "False" {
        return Some(format!("no node takes its pod {name}: {}", text(&placed["message"])));
    }
    let all = [&status["initContainerStatuses"], &status["containerStatuses"]];
    let found = all.into_iter().flat_map(items).map(|it| &it["state"]);
    let words = found.filter_map(|it| {
        let (waits, ended) = (&it["waiting"], &it["terminated"]);
        let failed = ended["exitCode"].as_i64().is_some_and(|it| it != 0);
        let state = if waits.is_object() { waits } else { ended };
        (waits.is_object() || failed).then(|| [text(&state["reason"]), text(&state["message"])])
    });
    let words = words.map(|it| it.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": "));
    let first = words.into_iter().find(|it| !it.is_empty())?;
    Some(format!("its pod {name} on {} does not start: {first}", text(&pod["spec"]["nodeName"])))
}
