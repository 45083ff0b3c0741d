//! Real processes: an agent that is short of descriptors takes nothing unreadable for absent.

use std::path::Path;

use scenarios::{Agent, At, World};
use topics::{DrainStatus, NodeDrainRequest};

const SHORT: &str = "Too many open files";

#[tokio::test]
async fn k3_a_zedkube_that_starts_in_mid_drain_without_descriptors_keeps_request_and_cordon_and_then_continues()
 {
    let at = At::Status(DrainStatus::Cordoned);
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.prepare(at).await;
    world.begin().await;
    world.arrive(at).await;
    let enough = world.descriptors(Agent::Zedkube);
    let request: NodeDrainRequest = world.read("run/zedagent/NodeDrainRequest/global.json").unwrap();
    // With fewer its runtime does not start. It may lack a publication, the queue of events, a directory, a
    // file, a connection.
    let mut short = 0;
    // Near its number at rest it may work for a while.
    for most in (12..enough * 3 / 4).step_by(3) {
        world.kill(Agent::Zedkube).await;
        let log = world.start_process(Agent::Zedkube, Some(most));
        world.until_logged(&log, &[SHORT]).await;
        assert!(world.cluster.cordoned().await, "with {most} descriptors");
        short += 1;
        world.unlimit(Agent::Zedkube);
        // It continues that request's drain by itself.
        world.until_logged(&log, &[SHORT, "nodedrain-step:drain-attempt"]).await;
        let said = world.text(&log).unwrap();
        assert!(
            !said.contains("withdrawn") && !said.contains("removed our own cordon"),
            "with {most} descriptors:\n{said}"
        );
    }
    assert!(short > 3, "{enough} descriptors are too few to be short of");
    assert_eq!(world.cluster.uncordoned(), 0);
    assert_eq!(world.read("run/zedagent/NodeDrainRequest/global.json"), Some(request));
    world.release().await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert!(world.cluster.cordoned().await);
    world.kill_all().await;
}
