//! Any start order of the four agents, also with the command already waiting.

use topics::DrainStatus;

use scenarios::{Agent, World, side_by_side};

fn orders() -> Vec<[Agent; 4]> {
    let mut all = Vec::new();
    for first in Agent::ALL {
        for second in Agent::ALL {
            for third in Agent::ALL {
                for last in Agent::ALL {
                    let order = [first, second, third, last];
                    let mut sorted = order;
                    sorted.sort_unstable();
                    if sorted == Agent::ALL {
                        all.push(order);
                    }
                }
            }
        }
    }
    assert_eq!(all.len(), 24);
    all
}

#[tokio::test(start_paused = true)]
async fn every_start_order_drains_before_it_reboots() {
    side_by_side(orders().into_iter().map(async |order| {
        let mut world = World::new().await;
        world.ask_reboot(7);
        for agent in order {
            world.start(agent);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        world.recorded_count(1).await;
        assert_eq!(world.cluster.pods_to_leave().await, [""; 0], "{order:?}");
        let status = world.status(DrainStatus::Complete).await;
        assert_eq!(status.requested_by.number(), 2, "{order:?}");
        world.kill_all().await;
    }))
    .await;
}
