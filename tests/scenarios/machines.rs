//! Virtual machines on our node: moved or shut down before the pods, over kills and failed attempts. Each way in which one
//! leaves and comes back is in `moves`.

use scenarios::{Agent, World};
use serde_json::{Value, json};
use topics::{DrainPhase, DrainStatus};

const NODE: &str = "edge-node-1";
const GUESTS: &str = "kubevirt/virtualmachineinstances";
const MACHINES: &str = "kubevirt/virtualmachines";
const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";

fn runs(guest: &Value) -> bool {
    guest["status"]["phase"] == "Running"
}

/// One that migrates with `outcome`, and one that is shut down.
pub(crate) async fn add_machines(world: &World, outcome: &str) {
    let sim = world.cluster.sim();
    sim.add_kubevirt("v1.7.3");
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    sim.until("nodes", |all| all.iter().all(schedulable)).await;
    for name in ["db", "own"] {
        sim.add_machine_on("shop", name, "Always", NODE, &json!({ "evictionStrategy": "LiveMigrate" }));
    }
    sim.edit(MACHINES, "shop", "own", |it| {
        it["metadata"]["annotations"]["pillar-rs/drain-policy"] = "shutdown".into();
    });
    sim.script_migrations("shop", "db", outcome);
    sim.until(GUESTS, |all| all.len() == 2 && all.iter().all(runs)).await;
    sim.until(GUESTS, |all| all.iter().all(|it| !it["status"]["conditions"].is_null())).await;
}

#[tokio::test(start_paused = true)]
async fn d12_a_zedkube_that_is_killed_at_each_step_leads_to_the_same_end_and_one_migration() {
    let mut world = World::new().await;
    // One migration hangs until the test changes that.
    add_machines(&world, "hang").await;
    world.begin().await;
    // zedkube is killed at each new value about machines.
    let mut killed = 0;
    let mut said = Vec::new();
    loop {
        let seen = world
            .progress("something new about machines, or the end of them", |it| {
                (it.phase == DrainPhase::Draining && !it.machines.is_empty())
                    || matches!(it.phase, DrainPhase::Proving | DrainPhase::Complete)
                    || (!it.machines.is_empty() && !said.contains(&it.machines))
            })
            .await;
        if seen.phase != DrainPhase::MovingMachines {
            break;
        }
        if seen.machines.iter().any(|it| it.reason.contains("phase Running")) {
            world.cluster.sim().script_migrations("shop", "db", "succeed");
        }
        said.push(seen.machines);
        world.kill(Agent::Zedkube).await;
        world.start(Agent::Zedkube);
        killed += 1;
    }
    assert!(killed > 1, "{killed}");
    world.recorded_count(1).await;
    let sim = world.cluster.sim();
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
    assert_eq!(sim.get(MACHINES, "shop", "own").unwrap()["spec"]["runStrategy"], "Halted");
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    world.kill_all().await;
}

#[tokio::test(start_paused = true)]
async fn d16_an_attempt_that_a_machine_made_fail_is_followed_by_the_next_once_its_policy_is_another_one() {
    let mut world = World::new().await;
    // An hour: without a change nothing would happen here.
    world.limits["zedkube"]["drain_retry_ms"] = 3_600_000.into();
    world.limits["zedkube"]["machines_policy"] = "fail".into();
    add_machines(&world, "hang").await;
    let sim = world.cluster.sim().clone();
    let annotate = |word: &'static str| {
        for kind in [MACHINES, GUESTS] {
            sim.edit(kind, "shop", "db", |it| {
                it["metadata"]["annotations"]["pillar-rs/drain-policy"] = word.into();
            });
        }
    };
    sim.edit(GUESTS, "shop", "db", |it| {
        it["metadata"]["annotations"]["kubesim/not-migratable"] = "DisksNotLiveMigratable: not shared".into();
    });
    sim.until(GUESTS, |all| {
        all.iter().any(|it| it["status"]["conditions"].to_string().contains("not shared"))
    })
    .await;
    world.begin().await;
    world.status(DrainStatus::DrainRetrying).await;
    annotate("shutdown");
    world.recorded_count(1).await;
    assert_eq!(sim.get(MACHINES, "shop", "db").unwrap()["spec"]["runStrategy"], "Halted");
    world.kill_all().await;
}
