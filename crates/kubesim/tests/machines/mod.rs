//! Virtual machines as KubeVirt treats them; rows are those of the tables on virtual machines and storage.

mod ends;
mod eviction;
mod migration;

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use kubesim::Sim;
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(crate) const MACHINES: &str = "kubevirt/virtualmachines";
pub(crate) const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";
pub(crate) const KUBEVIRTS: &str = "kubevirt/kubevirts";
pub(crate) const BUDGETS: &str = "policy/poddisruptionbudgets";
pub(crate) const NEWEST: &str = "v1.7.3";

/// Three nodes that are Ready, and KubeVirt of a version.
pub(crate) async fn cluster(version: &str) -> Sim {
    let sim = Sim::of_nodes(3);
    sim.add_kubevirt(version);
    let ready = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    soon(&sim, "nodes", |nodes| nodes.iter().all(ready)).await;
    sim
}

/// The same with a guest `db` of a machine on n1 that runs, with an eviction strategy.
pub(crate) async fn with_guest(version: &str, strategy: &str) -> Sim {
    let sim = cluster(version).await;
    sim.add_machine_on("shop", "db", "Always", "n1", &json!({ "evictionStrategy": strategy }));
    running(&sim, "db").await;
    sim
}

pub(crate) async fn running(sim: &Sim, name: &str) {
    let runs = |it: &Value| it["metadata"]["name"] == name && it["status"]["phase"] == "Running";
    soon(sim, GUESTS, |all| all.iter().any(runs)).await;
    let ready = |it: &Value| it["status"]["activePods"].as_object().is_some_and(|all| !all.is_empty());
    soon(sim, GUESTS, |all| all.iter().any(ready)).await;
}

/// Fails with the present state.
pub(crate) async fn soon(sim: &Sim, resource: &str, wanted: impl Fn(&[Value]) -> bool) {
    tokio::select! {
        () = sim.until(resource, wanted) => {}
        () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("{:#?}", sim.list(resource)),
    }
}

pub(crate) async fn send(sim: &Sim, method: &str, uri: &str, body: &str) -> (u16, Value) {
    let kind = if method == "PATCH" { "application/json-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let response = sim.service().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

pub(crate) async fn evict(sim: &Sim, pod: &str) -> (u16, Value) {
    send(sim, "POST", &format!("/api/v1/namespaces/shop/pods/{pod}/eviction"), "{}").await
}

pub(crate) fn guest(sim: &Sim, name: &str) -> Value {
    sim.get(GUESTS, "shop", name).unwrap()
}

/// Names of the launchers of a guest that have not finished.
pub(crate) fn launchers(sim: &Sim, name: &str) -> Vec<String> {
    let pods = sim.list("pods");
    let of = |it: &&Value| {
        it["metadata"]["annotations"]["kubevirt.io/domain"] == name && it["status"]["phase"] != "Succeeded"
    };
    pods.iter().filter(of).map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn set(sim: &Sim, member: &str, value: Value) {
    sim.edit(KUBEVIRTS, "kubevirt", "kubevirt", |it| {
        it["spec"]["configuration"]["migrations"][member] = value;
    });
}

pub(crate) fn message(said: &Value) -> &str {
    said["message"].as_str().unwrap()
}
