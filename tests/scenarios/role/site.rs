//! The roles for a shutdown or reboot of the whole site: the agents', and that of the person who starts one.

use agent::Clock;
use kubeapi::machines::{starts, stops};
use kubeapi::watch::WatchScope;
use outage::site::calls;
use outage::site::calls::Address;
use outage::site::calls::{act, find, scale};
use outage::site::record::SitePhase;
use outage::turn::record::TurnRecord;
use outage::turn::rule::TurnNode;
use scenarios::World;
use serde_json::{Value, json};

use super::{granted, granted_and_used, needed};

#[tokio::test(start_paused = true)]
async fn s1_a_whole_site_asks_for_what_its_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let (sim, handle) = (world.cluster.sim(), world.cluster.handle());
    sim.add_claim("shop", "films", "pv-films");
    for (resource, name) in [("apps/deployments", "web"), ("apps/statefulsets", "db")] {
        sim.edit(resource, "shop", name, |it| {
            it["spec"]["template"]["spec"]["volumes"] =
                json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "films" } }]);
        });
    }
    for (name, strategy) in [("own", "Always"), ("hand", "RerunOnFailure")] {
        sim.add_machine("shop", name, strategy);
    }
    sim.add_machine_set("eve-kube-app", "app", 1);
    let runs = |it: &&Value| it["status"]["phase"] == "Running";
    let guests = "kubevirt/virtualmachineinstances";
    sim.until(guests, |all| all.iter().filter(runs).count() == 3).await;
    for phase in [SitePhase::Stopping, SitePhase::Detaching, SitePhase::Starting, SitePhase::Restoring] {
        let found = find(&handle, &phase, "op").await.unwrap();
        for it in found.work {
            scale(&handle, &it).await.unwrap();
        }
        let work = if phase == SitePhase::Stopping {
            stops("op", "", &found.machines.all)
        } else {
            sim.until(guests, <[Value]>::is_empty).await;
            let all = find(&handle, &SitePhase::Restoring, "op").await.unwrap().machines.all;
            if phase == SitePhase::Restoring { starts(|mark| mark.id == "op", &all) } else { Vec::new() }
        };
        for it in work {
            act(&handle, &it).await.unwrap();
        }
    }
    // Where there is kube-vip.
    let mut address = Address::default();
    let holder = TurnNode { name: "edge-node-1".to_owned(), ready: true, ..TurnNode::default() };
    for at in 0..2 {
        for name in ["plndr-cp-lock", "plndr-svcs-lock"] {
            sim.apply(
                "coordination/leases",
                json!({
                    "metadata": { "name": name, "namespace": "kube-system" },
                    "spec": { "holderIdentity": holder.name, "leaseTransitions": at },
                }),
            );
        }
        address.look(&handle, std::slice::from_ref(&holder)).await.unwrap();
    }
    // What a restart reads of it between two nodes.
    let sets = WatchScope::all("daemon sets", "/apis/apps/v1/daemonsets".to_owned());
    sets.list_all::<Value>(&handle).await.unwrap();
    granted_and_used(&["pillar-rs-site"], &world.cluster.asked_by_agents());
}

#[tokio::test(start_paused = true)]
async fn s1_the_look_at_the_cluster_between_two_nodes_of_a_restart_asks_for_nothing_that_agents_are_not_granted()
 {
    let world = World::new().await;
    checks::verify::look(&world.cluster.handle(), || Clock::new().wall().to_timestamp()).await;
    let asked = world.cluster.asked_by_agents();
    let (leases, others): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(|(_, uri)| uri.contains("/kube-system/leases"));
    granted_and_used(&["pillar-rs-site-restart"], &leases);
    let roles = ["pillar-rs-node-drain", "pillar-rs-node-lease", "pillar-rs-preflight", "pillar-rs-site"];
    let granted = granted(&roles);
    let missing: Vec<_> = others.iter().filter_map(needed).filter(|it| !granted.contains(it)).collect();
    assert!(missing.is_empty() && others.len() > 8, "asked for, but not granted: {missing:?}");
}

#[tokio::test(start_paused = true)]
async fn s1_the_checks_before_a_shutdown_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let record = TurnRecord::default();
    let wall = Clock::new().wall().to_timestamp();
    calls::look(&world.cluster.handle(), &record, wall).await;
    granted_and_used(&["pillar-rs-site-check"], &world.cluster.asked_by_agents());
}
