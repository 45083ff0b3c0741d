//! The cluster as its clients see it.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};

fn ready(pods: &[Value], count: usize) -> bool {
    pods.len() == count && pods.iter().all(|pod| pod["status"]["conditions"][0]["status"] == "True")
}

/// Three nodes, on a paused clock.
fn cluster() -> (Sim, Client) {
    let sim = Sim::of_nodes(3);
    let client = Client::new(sim.service(), "default");
    (sim, client)
}

#[tokio::test(start_paused = true)]
async fn all_kinds_of_workload_run_side_by_side() {
    let (sim, _) = cluster();
    sim.add_deployment("shop", "web", 3);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 3 }));
    sim.add_stateful_set("shop", "db", 2);
    sim.add_daemon_set("kube-system", "agent");
    sim.until("pods", |pods| pods.len() >= 8 && ready(pods, pods.len())).await;
    sim.add_bare_pod("tools", "shell", "n1");
    sim.add_bare_pod("tools", "import", "n1");
    soon(&sim, "pods", |pods| ready(pods, 10)).await;
}

fn code(error: &kube::Error) -> u16 {
    let kube::Error::Api(status) = error else { panic!("{error}") };
    status.code
}

async fn evict(client: &Client, namespace: &str, pod: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    #[expect(clippy::disallowed_methods, reason = "what the reference's client sends")]
    pods.evict(pod, &EvictParams::default()).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_as_many_pods_go_as_it_can_spare() {
    let (sim, client) = cluster();
    sim.add_deployment("shop", "web", 3);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 2 }));
    sim.until("pods", |pods| ready(pods, 3)).await;
    let names: Vec<String> =
        sim.list("pods").iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    evict(&client, "shop", &names[0]).await.unwrap();
    let refused = evict(&client, "shop", &names[1]).await.unwrap_err();
    assert_eq!(code(&refused), 429);
    assert!(refused.to_string().contains("disruption budget"), "{refused}");
    // Its successor makes room again.
    sim.until("pods", |pods| {
        ready(pods, 3) && !pods.iter().any(|pod| pod["metadata"]["name"] == names[0].as_str())
    })
    .await;
    evict(&client, "shop", &names[1]).await.unwrap();
    // Two budgets for one pod are an error of the server.
    sim.add_budget("shop", "second", "web", &json!({ "maxUnavailable": "50%" }));
    assert_eq!(code(&evict(&client, "shop", &names[2]).await.unwrap_err()), 500);
    assert_eq!(code(&evict(&client, "shop", "nobody").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn a_write_on_an_old_version_is_a_conflict() {
    let (sim, client) = cluster();
    sim.until("nodes", |nodes| nodes.iter().all(|node| node["status"]["conditions"][0]["status"] == "True"))
        .await;
    let nodes: Api<Node> = Api::all(client);
    let old = nodes.get("n1").await.unwrap();
    let patch = |version: &str| {
        Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "spec": { "unschedulable": true } }))
    };
    let version = old.metadata.resource_version.clone().unwrap();
    nodes.patch("n1", &PatchParams::default(), &patch(&version)).await.unwrap();
    assert_eq!(code(&nodes.patch("n1", &PatchParams::default(), &patch(&version)).await.unwrap_err()), 409);
    assert_eq!(code(&nodes.replace("n1", &PostParams::default(), &old).await.unwrap_err()), 409);
    // The cordon brings its taint.
    sim.until("nodes", |nodes| nodes.iter().any(|node| node["spec"]["taints"][0]["effect"] == "NoSchedule"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_enters_and_leaves_its_scope_and_an_old_one_is_expired() {
    let (sim, client) = cluster();
    let pods: Api<Pod> = Api::all(client);
    let scope = ListParams::default().fields("spec.nodeName=n1");
    let version = pods.list(&scope).await.unwrap().metadata.resource_version.unwrap();
    sim.add_bare_pod("tools", "shell", "n1");
    sim.add_bare_pod("tools", "elsewhere", "n2");
    let params = WatchParams::default().fields("spec.nodeName=n1").timeout(5);
    let mut events = pods.watch(&params, &version).await.unwrap().boxed();
    let Some(Ok(WatchEvent::Added(pod))) = events.next().await else { panic!("no ADDED") };
    assert_eq!(pod.metadata.name.as_deref(), Some("shell"));
    assert!(sim.remove("pods", "tools", "shell"));
    loop {
        match events.next().await {
            Some(Ok(WatchEvent::Deleted(pod))) => {
                break assert_eq!(pod.metadata.name.as_deref(), Some("shell"));
            }
            Some(Ok(WatchEvent::Modified(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    sim.expire_watches();
    let mut events = pods.watch(&params, &version).await.unwrap().boxed();
    let Some(Ok(WatchEvent::Error(status))) = events.next().await else { panic!("not expired") };
    assert_eq!(status.code, 410);
}

#[tokio::test(start_paused = true)]
async fn scripted_faults_are_met_once_each() {
    let (sim, client) = cluster();
    let nodes: Api<Node> = Api::all(client);
    sim.faults().script("GET", "/nodes/n1", 1, ScriptedFault::status(409, "Conflict"));
    assert_eq!(code(&nodes.get("n1").await.unwrap_err()), 409);
    nodes.get("n1").await.unwrap();
    sim.faults().script("GET", "/nodes", 1, ScriptedFault::Cut);
    nodes.get("n1").await.unwrap_err();
    assert_eq!(sim.faults().count("GET", "/nodes/n1"), 3);
}

#[tokio::test]
async fn the_ordinary_client_reaches_it_over_http() {
    let (sim, _) = cluster();
    let server = sim.serve().await.unwrap();
    assert!(server.kubeconfig().contains(&server.url()));
    let client = Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
    let nodes: Api<Node> = Api::all(client);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

/// Fails with the present state.
async fn soon(sim: &Sim, resource: &str, wanted: impl Fn(&[Value]) -> bool) {
    tokio::select! {
        () = sim.until(resource, wanted) => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{:#?}", sim.list(resource)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_grows_and_shrinks_and_takes_its_pods_with_it() {
    let (sim, client) = cluster();
    sim.add_deployment("shop", "web", 2);
    sim.add_stateful_set("shop", "db", 3);
    soon(&sim, "pods", |pods| ready(pods, 5)).await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    let to = |count: u64| Patch::Merge(json!({ "spec": { "replicas": count } }));
    let scale = deployments.patch_scale("web", &PatchParams::default(), &to(4)).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(4));
    soon(&sim, "pods", |pods| ready(pods, 7)).await;
    soon(&sim, "apps/deployments", |all| all[0]["status"]["availableReplicas"] == 4).await;
    deployments.patch_scale("web", &PatchParams::default(), &to(1)).await.unwrap();
    let sets: Api<StatefulSet> = Api::namespaced(client, "shop");
    sets.patch("db", &PatchParams::default(), &to(1)).await.unwrap();
    soon(&sim, "pods", |pods| ready(pods, 2)).await;
    assert!(sim.get("pods", "shop", "db-0").is_some());
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    soon(&sim, "pods", |pods| ready(pods, 1)).await;
    assert!(sim.list("apps/replicasets").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_finalizer_stays_until_the_finalizer_goes() {
    let (sim, client) = cluster();
    sim.add_bare_pod("tools", "shell", "n1");
    sim.edit("pods", "tools", "shell", |pod| pod["metadata"]["finalizers"] = json!(["a/b"]));
    soon(&sim, "pods", |pods| ready(pods, 1)).await;
    evict(&client, "tools", "shell").await.unwrap();
    soon(&sim, "pods", |pods| pods[0]["metadata"]["deletionGracePeriodSeconds"] == 0).await;
    let pods: Api<Pod> = Api::namespaced(client, "tools");
    let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch("shell", &PatchParams::default(), &bare).await.unwrap();
    assert!(sim.get("pods", "tools", "shell").is_none());
}
