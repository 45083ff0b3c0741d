//! Real processes, one an agent, that share nothing but files: killed with SIGKILL and started again in each state
//! of a reboot, the end is the undisturbed one.

use std::path::Path;

use scenarios::{ALL_STATES, Agent, At, World, side_by_side};
use topics::{DrainStatus, NodeDrainProgress, NodeDrainRequest};

async fn killed(agent: Agent, at: At) {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.prepare(at).await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(if at == At::Idle { 6 } else { 7 });
    world.arrive(at).await;
    world.kill(agent).await;
    if agent == Agent::Zedkube && at == At::Status(DrainStatus::Cordoned) {
        assert!(world.cluster.cordoned().await, "a killed zedkube gave the cordon away");
    }
    world.release().await;
    world.ask_reboot(7);
    world.start(agent);
    world.recorded_count(1).await;
    // Never early: the drain of its own request is done when the device is asked.
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0], "{agent:?} killed at {at:?}");
    assert!(world.cluster.cordoned().await, "{agent:?} killed at {at:?}");
    let request: NodeDrainRequest = world.read("run/zedagent/NodeDrainRequest/global.json").unwrap();
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    assert_eq!(progress.answer(request.id()).unwrap().status, DrainStatus::Complete);
    assert_eq!(world.cluster.evicted_twice(), [""; 0], "{agent:?} killed at {at:?}");
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    assert_eq!(world.recorded().len(), 1, "{agent:?} killed at {at:?}");
    world.kill_all().await;
}

macro_rules! killed {
    ($($name:ident: $agent:ident),+ $(,)?) => { $(
        #[tokio::test]
        async fn $name() {
            side_by_side(ALL_STATES.map(|at| killed(Agent::$agent, at))).await;
        }
    )+ };
}

killed! {
    zedagent_killed_in_each_state_ends_right: Zedagent,
    baseosmgr_killed_in_each_state_ends_right: Baseosmgr,
    nodeagent_killed_in_each_state_ends_right: Nodeagent,
    zedkube_killed_in_each_state_ends_right: Zedkube,
}
