//! Each agent killed and started again in each state of a reboot: the end is the undisturbed one (goals R1, R7).

use topics::{DrainStatus, NodeAgentStatus};

use crate::world::{Agent, World};

/// Where the agent is killed.
#[derive(Debug, Clone, Copy)]
enum At {
    Idle,
    Status(DrainStatus),
    /// The device operation is on its way.
    DeviceReboot,
}

const STATES: [At; 4] =
    [At::Idle, At::Status(DrainStatus::Cordoned), At::Status(DrainStatus::Complete), At::DeviceReboot];

async fn killed(agent: Agent, at: At) {
    let mut world = World::new().await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    match at {
        At::Idle => {
            world.kill(agent).await;
            world.ask_reboot(7);
            world.start(agent);
        }
        At::Status(status) => {
            if status == DrainStatus::Cordoned {
                world.cluster.block();
            }
            world.ask_reboot(7);
            world.status(status).await;
            world.kill(agent).await;
            if agent == Agent::Zedkube && status == DrainStatus::Cordoned {
                assert!(world.cluster.cordoned(), "a killed zedkube gave the cordon away");
            }
            world.cluster.unblock();
            world.start(agent);
        }
        At::DeviceReboot => {
            world.ask_reboot(7);
            world
                .until::<NodeAgentStatus>("nodeagent", "DeviceReboot", |it| {
                    it.is_some_and(|it| it.device_reboot)
                })
                .await;
            world.kill(agent).await;
            world.start(agent);
        }
    }
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave(), [""; 0], "{agent:?} killed at {at:?}");
    assert_eq!(world.cluster.evicted_twice(), [""; 0], "{agent:?} killed at {at:?}");
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    world.kill_all().await;
}

macro_rules! killed {
    ($($name:ident: $agent:ident),+ $(,)?) => { $(
        #[tokio::test]
        async fn $name() {
            for at in STATES {
                killed(Agent::$agent, at).await;
            }
        }
    )+ };
}

killed! {
    zedagent_killed_in_each_state_ends_right: Zedagent,
    baseosmgr_killed_in_each_state_ends_right: Baseosmgr,
    nodeagent_killed_in_each_state_ends_right: Nodeagent,
    zedkube_killed_in_each_state_ends_right: Zedkube,
}
