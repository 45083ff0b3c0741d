//! The controller withdraws a reboot, in each state of it.

use scenarios::{ALL_STATES, At, PENDING, World, side_by_side};
use topics::{DrainStatus, ZedAgentStatus};

#[tokio::test(start_paused = true)]
async fn d19_a_reboot_that_is_taken_back_in_any_state_gives_the_node_back() {
    // From then on the device is going down, as in the reference.
    let is_late =
        |at: &At| matches!(at, At::Commanded | At::DeviceReboot | At::Status(DrainStatus::Complete));
    let worlds = ALL_STATES.into_iter().filter(|at| !is_late(at));
    side_by_side(worlds.map(async |at| {
        let mut world = World::new().await;
        world.prepare(at).await;
        world.begin().await;
        world.arrive(at).await;
        world.ask_reboot(6);
        world.until_file(PENDING, "nothing pending", |text| text.is_none()).await;
        world.status(DrainStatus::NotRequested).await;
        world.cluster.sim().faults().clear();
        world.cluster.until_schedulable().await;
        // The disruption is allowed too late: the drain is withdrawn.
        let evicted = world.cluster.evictions();
        world.release().await;
        assert_eq!(world.recorded(), [], "{at:?}");
        let status: ZedAgentStatus = world.read("run/zedagent/ZedAgentStatus/zedagent.json").unwrap();
        assert!(!status.reboot_cmd, "{at:?}");
        // A second one runs to its end, so the first has left nothing behind.
        world.ask_reboot(8);
        world.recorded_count(1).await;
        assert!(world.cluster.evictions() >= evicted, "{at:?}");
        assert_eq!(world.cluster.pods_to_leave().await, [""; 0], "{at:?}");
        assert_eq!(world.cluster.evicted_twice(), [""; 0], "{at:?}");
        world.kill_all().await;
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_file_somebody_removes_is_back_and_the_reboot_ends_normally() {
    let file = "run/zedagent/NodeDrainRequest/global.json";
    let at = At::Status(DrainStatus::Cordoned);
    let mut world = World::new().await;
    world.prepare(at).await;
    world.begin().await;
    world.arrive(at).await;
    let asked = world.text(file).unwrap();
    for removed in [file, "run/zedagent/NodeDrainRequest", "run/zedagent"] {
        let path = world.topic_root.path(removed);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        world.until_file(file, "the same request", |text| text == Some(&asked)).await;
    }
    assert!(world.cluster.cordoned().await);
    world.release().await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.uncordoned(), 0, "the request was taken for withdrawn");
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    world.kill_all().await;
}
