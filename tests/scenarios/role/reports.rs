//! What reports for a person ask: a plan of a drain, and whether a cluster is well.

use agent::Clock;
use checks::{cluster, verify};
use kubeapi::NodeName;
use kubeapi::watch::Scope;
use kubenodeop::Rules;
use scenarios::World;
use serde_json::Value;
use topics::{VerifyLayer, VerifyResult};

use super::{PREFLIGHT_ROLE, granted_and_used};

#[tokio::test]
async fn s1_the_plan_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    crate::machines::add_machines(&world, "succeed").await;
    crate::storage::install(world.cluster.sim(), "");
    let node = NodeName::parse("edge-node-1").unwrap();
    let plan = kubenodeop::plan::survey::plan(
        &world.cluster.handle(),
        &node,
        Rules::default().machines,
        kubenodeop::SurgeRule::Never,
    )
    .await
    .unwrap();
    assert!(plan.notes.iter().any(|it| it.contains("volume shop/data (pvc-1)")), "{:?}", plan.notes);
    let sources = cluster::Source::ALL.into();
    cluster::drain(&world.cluster.handle(), node.as_str(), &sources, || Clock::new().wall().to_timestamp())
        .await;
    granted_and_used(&["pillar-rs-drain-plan", PREFLIGHT_ROLE], &world.cluster.asked_by_agents());
}

#[tokio::test]
async fn s1_verify_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    crate::machines::add_machines(&world, "succeed").await;
    crate::storage::install(world.cluster.sim(), "");
    let handle = world.cluster.handle();
    let layers = verify::look(&handle, || Clock::new().wall().to_timestamp()).await;
    let unknown = layers.iter().filter(|it| it.result == VerifyResult::Unknown);
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&VerifyLayer>::new());
    // What a probe of a service asks.
    let slices = Scope::all("end points", "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices".to_owned());
    slices.list_installed::<Value>(&handle).await.unwrap();
    let services = Scope::all("services", "/api/v1/namespaces/a/services".to_owned());
    services.list_all::<Value>(&handle).await.unwrap();
    granted_and_used(&["pillar-rs-verify"], &world.cluster.asked_by_agents());
}
