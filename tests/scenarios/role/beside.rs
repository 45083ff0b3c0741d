//! The roles of what a node does for services, networks and places of applications, and for Longhorn's properties.

use std::time::Duration;

use agent::Clock;
use clusterview::apps::AppRequirements;
use clusterview::{networks, places, services};
use kubeapi::connect::account;
use kubeapi::slim::longhorn::{DRAIN_POLICY, NODE_DOWN_POLICY};
use kubenodeop::storage::{SettingWrite, keep_setting, keep_snapshot_job};
use pubsub::store;
use scenarios::World;
use serde_json::{Value, json};
use tokio::sync::watch;
use topics::Affinity;

use super::{context, granted_and_used, own_node, place, role};

const NETWORKS: &str = "k8s/network-attachment-definitions";
const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";

#[tokio::test(start_paused = true)]
async fn s1_services_of_users_ask_for_what_their_own_roles_grant_and_nothing_else() {
    let world = World::new().await;
    let (_stopper, context, troubles) = context(&world);
    let ports = json!({ "Ports": [] }).to_string();
    store::replace(&world.topic_root.path("run/nim/DeviceNetworkStatus/global.json"), ports.as_bytes())
        .unwrap();
    let watched = async {
        let asked = || world.cluster.asked_by_agents();
        while asked().iter().filter(|(_, uri)| uri.contains("watch=")).count() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        it = services::run(&context, &troubles, world.cluster.handle()) => panic!("it has ended: {it:?}"),
        () = watched => {}
    }
    let asked = world.cluster.asked_by_agents();
    granted_and_used(&["pillar-rs-user-services", "pillar-rs-load-balancer"], &asked);
    for (_, uri) in asked.iter().filter(|(_, uri)| uri.contains("/configmaps")) {
        assert!(uri.contains("/namespaces/kube-system/configmaps?"), "{uri}");
        assert!(uri.contains("fieldSelector=metadata.name%3Dkubevip"), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1_networks_of_applications_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let sim = world.cluster.sim();
    let wanted = watch::Sender::default();
    let want = |ports: &[&str]| {
        let ports = ports.iter().map(|it| (*it).to_owned()).collect();
        wanted.send_replace(AppRequirements { ports: Some(ports), ..AppRequirements::default() });
    };
    want(&["eth1"]);
    let course = async {
        sim.until(NETWORKS, |all| all.len() == 1).await;
        sim.edit(NETWORKS, "eve-kube-app", "host-eth1", |it| it["spec"]["config"] = "{}".into());
        want(&["eth1", "eth2"]);
        sim.until(NETWORKS, |all| all.len() == 2 && all.iter().all(|it| it["spec"]["config"] != "{}")).await;
        want(&[]);
        sim.until(NETWORKS, <[_]>::is_empty).await;
    };
    tokio::select! {
        it = networks::run(world.cluster.handle(), Clock::new(), own_node(), wanted.subscribe()) => panic!("{it:?}"),
        () = course => {}
    }
    granted_and_used(&["pillar-rs-app-networks"], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_places_of_machines_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let sim = world.cluster.sim();
    sim.add_machine_set("eve-kube-app", "vm-1-0", 0);
    let places = [("vm-1-0".to_owned(), Affinity::Preferred)].into_iter().collect();
    let wanted = watch::Sender::new(AppRequirements { places: Some(places), ..AppRequirements::default() });
    let has_affinity = |it: &Value| !it["spec"]["template"]["spec"]["affinity"].is_null();
    tokio::select! {
        it = places::run(world.cluster.handle(), Clock::new(), own_node(), wanted.subscribe()) => panic!("{it:?}"),
        () = sim.until(SETS, |all| all.iter().all(has_affinity)) => {}
    }
    granted_and_used(&["pillar-rs-app-places"], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_a_new_token_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let ours = "kube-system/pillar-rs".parse().unwrap();
    drop(account::token(&world.cluster.handle(), &ours, 600).await);
    granted_and_used(&["pillar-rs-token"], &world.cluster.asked_by_agents());
    assert_eq!(
        role("pillar-rs-token").rules[0].resource_names.as_deref(),
        Some(&["pillar-rs".to_owned()][..])
    );
    assert_eq!(place("pillar-rs-token"), "kube-system");
}

#[tokio::test(start_paused = true)]
async fn s1_properties_of_longhorn_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    world.cluster.sim().add_longhorn("always-allow");
    world.cluster.sim().longhorn_setting(NODE_DOWN_POLICY, "delete-both-statefulset-and-deployment-pod");
    let cluster = world.cluster.handle();
    for (name, value) in [(DRAIN_POLICY, "block-for-eviction"), (NODE_DOWN_POLICY, "do-nothing")] {
        assert_eq!(keep_setting(&cluster, name, value).await.unwrap(), SettingWrite::Written);
    }
    for cron in ["0 0 * * *", "0 1 * * *", ""] {
        assert_eq!(keep_snapshot_job(&cluster, cron).await.unwrap(), SettingWrite::Written);
    }
    granted_and_used(&["pillar-rs-longhorn-properties"], &world.cluster.asked_by_agents());
}
