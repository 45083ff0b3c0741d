//! virt-api is away: a machine waits for it, our cordon does not.
//!
//! Its webhooks check each write of an instance, so neither our mark nor KubeVirt's can be removed meanwhile.
//! Its pod needs a node too.

use scenarios::within_still;

use super::*;

fn virt_api(sim: &Sim, word: &str) {
    sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
        it["metadata"]["annotations"]["kubesim/virt-api"] = word.into();
    });
}

/// While virt-api is away a machine waits, is named with its cause, and is migrated once after that.
async fn waits(version: &str) {
    let mut world = world(SimConfig::default(), version).await;
    let sim = world.cluster.sim().clone();
    sim.add_machine_on("shop", "db", "Always", NODE, &migratable());
    up(&sim, 1).await;
    let uid = sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["uid"].clone();
    virt_api(&sim, "down");
    world.begin().await;
    let seen = world
        .progress("the machine and virt-api", |it| {
            it.blockers.iter().any(|it| it.pod == "virtual machine shop/db" && it.code == "webhook")
        })
        .await;
    assert!(seen.next_step.contains("`kubectl get pods -A -l kubevirt.io=virt-api`"), "{}", seen.next_step);
    let guest = sim.get(GUESTS, "shop", "db").unwrap();
    assert_eq!((&guest["metadata"]["uid"], &guest["status"]["nodeName"]), (&uid, &json!(NODE)), "{version}");
    virt_api(&sim, "up");
    world.recorded_count(1).await;
    let guest = sim.get(GUESTS, "shop", "db").unwrap();
    assert_eq!(guest["metadata"]["uid"], uid, "{version}: it was shut down");
    assert_eq!(sim.list(MIGRATIONS).len(), 1, "{version}");
    world.kill_all().await;
}

#[test]
fn d12_while_virt_api_is_away_a_machine_waits_and_is_named_in_each_version() {
    for version in ["v1.1.1", "v1.3.1", "v1.5.2", "v1.7.3", "v1.9.0"] {
        within_still(Box::pin(waits(version)));
    }
}

/// A machine of our node with a hanging migration.
async fn migrating(version: &str, limits: &Value) -> World {
    let mut world = world(SimConfig::default(), version).await;
    for (name, value) in limits.as_object().unwrap() {
        world.limits["zedkube"][name] = value.clone();
    }
    let sim = world.cluster.sim().clone();
    sim.add_machine_on("shop", "db", "Always", NODE, &migratable());
    sim.script_migrations("shop", "db", "hang");
    up(&sim, 1).await;
    world.begin().await;
    until(&sim, GUESTS, |all| all[0]["status"]["evacuationNodeName"] == NODE).await;
    world.until_said("DRAINING: reboot waits, virtual machines leave first").await;
    world
}

/// The request is withdrawn once virt-api is back.
async fn taken_back(sim: &Sim) {
    until(sim, GUESTS, |all| {
        let mark = &all[0]["metadata"]["annotations"]["pillar-rs/drain-asked"];
        mark.is_null() && all[0]["status"]["evacuationNodeName"].as_str().unwrap_or_default().is_empty()
    })
    .await;
}

/// The drain fails, is cut off by a boot, or is withdrawn.
pub(super) async fn ends(world: &mut World, end: &str) {
    match end {
        "failed" => drop(world.status(DrainStatus::FailedDrain).await),
        "boot" => {
            world.kill_all().await;
            world.ask_reboot(6);
            world.reboot().await;
            world.start_all();
            let open = |it: &NodeDrainProgress| it.gate.open;
            world.progress("an open gate", open).await;
        }
        _ => world.ask_reboot(6),
    }
}

/// For every end of a drain while virt-api is away: our cordon goes at once and the machine's mark later.
async fn uncordons(version: &str, end: &str) {
    let what = format!("KubeVirt {version}, {end}");
    let limits = match end {
        "failed" => json!({ "drain_limit_ms": 60_000 }),
        _ => json!({}),
    };
    let mut world = migrating(version, &limits).await;
    let sim = world.cluster.sim().clone();
    virt_api(&sim, "down");
    ends(&mut world, end).await;
    uncordoned(&world, &what).await;
    let mark = &sim.get(GUESTS, "shop", "db").unwrap()["metadata"]["annotations"]["pillar-rs/drain-asked"];
    assert!(!mark.is_null(), "{what}: nobody could write it");
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    // Before 1.7 virt-api has no such call: the machine leaves, and KubeVirt's mark with it.
    let old = version == "v1.5.2";
    let step = if old { "`kubectl get vmim -A`" } else { "kubevirt.io=virt-api" };
    let seen = world.progress("what is in the way", |it| it.next_step.contains(step)).await;
    assert!(!seen.reason.contains("cannot be read"), "{what}: {}", seen.reason);
    virt_api(&sim, "up");
    if old {
        sim.script_migrations("shop", "db", "succeed");
    }
    taken_back(&sim).await;
    let guest = sim.get(GUESTS, "shop", "db").unwrap();
    assert_eq!(guest["status"]["nodeName"] == NODE, !old, "{what}");
    world.kill_all().await;
}

#[test]
fn d19_our_cordon_is_removed_while_virt_api_is_away_and_marks_are_taken_back_once_it_is_there() {
    for version in ["v1.5.2", "v1.7.3", "v1.9.0"] {
        for end in ["withdrawn", "failed", "boot"] {
            within_still(Box::pin(uncordons(version, end)));
        }
    }
}

/// Both peers die, so only our node can run virt-api: the uncordon alone brings it back.
async fn no_deadlock() {
    let mut world = migrating("v1.9.0", &json!({ "take_turns": false })).await;
    let sim = world.cluster.sim().clone();
    sim.add_deployment("kubevirt", "virt-api", 1);
    let ready = |all: &[Value]| {
        all.iter().any(|it| it["metadata"]["name"] == "virt-api" && it["status"]["readyReplicas"] == 1)
    };
    until(&sim, "apps/deployments", ready).await;
    for node in ["edge-node-2", "edge-node-3"] {
        sim.power(node, false);
    }
    let down = |it: &Value| it["status"]["conditions"][0]["status"] == "Unknown";
    until(&sim, "nodes", |all| all.iter().filter(|it| down(it)).count() == 2).await;
    // As with a dead node's taint.
    for pod in sim.list("pods").iter().filter(|it| it["metadata"]["namespace"] == "kubevirt") {
        sim.remove("pods", "kubevirt", pod["metadata"]["name"].as_str().unwrap());
    }
    let homeless = |it: &Value| {
        let scheduled = &it["status"]["conditions"];
        it["metadata"]["namespace"] == "kubevirt"
            && scheduled.to_string().contains("1 node(s) were unschedulable")
    };
    until(&sim, "pods", |all| all.iter().any(homeless)).await;
    world.ask_reboot(6);
    uncordoned(&world, "virt-api has no node").await;
    until(&sim, "apps/deployments", ready).await;
    taken_back(&sim).await;
    world.kill_all().await;
}

#[test]
fn d19_where_only_our_node_can_run_virt_api_a_withdrawn_drain_ends_by_itself() {
    within_still(Box::pin(no_deadlock()));
}
