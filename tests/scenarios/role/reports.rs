//! Requests of reports for a person: a plan of a drain, verification of a cluster, and Events of the node.

use std::io::Write as _;
use std::process::Command;

use agent::Clock;
use checks::{cluster, verify};
use kubeapi::nodes;
use kubeapi::watch::WatchScope;
use kubenodeop::AttemptRules;
use scenarios::{UUID, World};
use serde_json::Value;
use topics::{VerifyLayer, VerifyResult};

use super::{PREFLIGHT_ROLE, REPORT_ROLES, granted, granted_and_used, needed, our_node, place};

/// There are some, and all are granted.
pub(super) fn are_events_of_the_node(asked: &[(String, String)]) {
    let granted = granted(&[REPORT_ROLES[1]]);
    let start = format!("/api/v1/namespaces/{}/events", place(REPORT_ROLES[1]));
    assert!(!asked.is_empty());
    for it in asked {
        assert!(needed(it).is_some_and(|it| granted.contains(&it)) && it.1.starts_with(&start), "{it:?}");
    }
}

/// Writes a condition and an Event, twice.
async fn show(world: &World, shown: Option<&nodes::DrainCondition>) {
    let (handle, node) = (world.cluster.handle(), our_node());
    let mut found = nodes::read(&handle, &node, UUID).await.unwrap();
    let now = Clock::new().wall().to_timestamp();
    nodes::write(&handle, &node, &mut found, (None, shown), now).await.unwrap();
    let mut event = nodes::NodeEvent {
        name: "edge-node-1.1".to_owned(),
        node,
        uid: found.uid,
        warning: true,
        reason: "DrainBlocked",
        message: "pod shop/web-0 does not leave".to_owned(),
        first: now,
        last: now,
        count: 1,
    };
    assert!(nodes::create(&handle, &event).await.unwrap());
    event.count = 2;
    assert!(!nodes::create(&handle, &event).await.unwrap(), "it is there already");
    assert!(nodes::count(&handle, &event).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn s1_what_the_node_shows_asks_for_what_its_own_roles_grant_and_nothing_else() {
    let world = World::new().await;
    show(&world, None).await;
    let asked = world.cluster.asked_by_agents();
    let (events, rest): (Vec<_>, Vec<_>) = asked.into_iter().partition(|it| it.1.contains("/events"));
    are_events_of_the_node(&events);
    granted_and_used(&[REPORT_ROLES[1]], &events);
    granted_and_used(&[REPORT_ROLES[0]], &rest);
}

#[tokio::test(start_paused = true)]
async fn o3_kubectl_describe_node_shows_the_events_the_condition_and_the_annotation() {
    let world = World::new().await;
    let shown = nodes::DrainCondition {
        status: "False",
        reason: "Blocked",
        message: "BLOCKED: reboot waits; add a replica".to_owned(),
        state: "BLOCKED: reboot waits".to_owned(),
        lifecycle: (["True", "False", "True", "False"], nodes::LifecycleReason::Blocked),
    };
    show(&world, Some(&shown)).await;
    let server = world.cluster.sim().serve().await.unwrap();
    world.put("kubeconfig", &server.kubeconfig());
    let (kubeconfig, home) = (world.topic_root.path("kubeconfig"), world.topic_root.path(""));
    let run = move || {
        let mut kubectl = Command::new("kubectl");
        kubectl.env("HOME", home).env("KUBECONFIG", kubeconfig);
        kubectl.args(["--request-timeout=20s", "describe", "node", "edge-node-1"]).output()
    };
    let output = match tokio::task::spawn_blocking(run).await.unwrap() {
        Ok(output) => output,
        Err(error) => return writeln!(std::io::stderr(), "skipped: kubectl cannot be run: {error}").unwrap(),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let has = |words: &[&str]| text.lines().any(|line| words.iter().all(|it| line.contains(it)));
    assert!(
        has(&["pillar-rs/Drained", "False", "Blocked", "BLOCKED: reboot waits; add a replica"]),
        "{text}"
    );
    assert!(has(&["DrainInProgress", "True", "DrainBlocked"]), "{text}");
    assert!(has(&["Ready", "True"]), "{text}");
    assert!(has(&["pillar-rs/drain-state: BLOCKED: reboot waits"]), "{text}");
    let event = ["Warning", "DrainBlocked", "(x2 over ", "pillar-rs", "pod shop/web-0 does not leave"];
    assert!(has(&event), "{text}");
}

#[tokio::test(start_paused = true)]
async fn s1_the_plan_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    crate::machines::add_machines(&world, "succeed").await;
    crate::storage::install(world.cluster.sim(), "");
    crate::storage::shards(world.cluster.sim());
    let node = our_node();
    let rules = AttemptRules::default();
    let plan = kubenodeop::plan::survey::plan(&world.cluster.handle(), &node, &rules).await.unwrap();
    assert!(plan.notes.iter().any(|it| it.contains("volume shop/data (pvc-1)")), "{:?}", plan.notes);
    let sources = cluster::ClusterSource::ALL.into();
    cluster::drain(&world.cluster.handle(), node.as_str(), &sources, || Clock::new().wall().to_timestamp())
        .await;
    granted_and_used(&["pillar-rs-drain-plan", PREFLIGHT_ROLE], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_verify_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    crate::machines::add_machines(&world, "succeed").await;
    crate::storage::install(world.cluster.sim(), "");
    let handle = world.cluster.handle();
    let layers = verify::look(&handle, || Clock::new().wall().to_timestamp()).await;
    let unknown = layers.iter().filter(|it| it.result == VerifyResult::Unknown);
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&VerifyLayer>::new());
    assert_eq!(verify::rotation(&handle).await, Ok(None));
    // A service probe's requests.
    let slices =
        WatchScope::all("end points", "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices".to_owned());
    slices.list_installed::<Value>(&handle).await.unwrap();
    let services = WatchScope::all("services", "/api/v1/namespaces/a/services".to_owned());
    services.list_all::<Value>(&handle).await.unwrap();
    granted_and_used(&["pillar-rs-verify"], &world.cluster.asked_by_agents());
}
