//! Blocks a plain `systemctl reboot` while pods run.
//!
//! A level: from zedkube's first status of a clustered node that is not drained, until it is drained, zedkube
//! reports otherwise or ends, or an operation of these agents asks the device. Not here: how a machine blocks
//! it (`agent::device`).

use std::sync::Arc;

use agent::Tasks;
use agent::device::Device;
use agent::wire::{self, GLOBAL, ZEDKUBE};
use pubsub::TopicRoot;
use topics::{DrainStatus, NodeDrainStatus};
use tracing::warn;

use crate::core::Event;

/// Follows the drain and sets the device's block by it.
pub(crate) fn follow(tasks: &mut Tasks<Event>, topic_root: &TopicRoot, device: &Arc<dyn Device>) {
    let mut statuses = wire::subscription::<NodeDrainStatus>(topic_root, ZEDKUBE);
    let device = Arc::clone(device);
    tasks.events("hold plain reboots", move |_| async move {
        let mut held = false;
        loop {
            statuses.next().await;
            let holds = statuses.get(GLOBAL).is_some_and(|it: &NodeDrainStatus| pods_run(it.status));
            if !step::update(&mut held, holds) {
                continue;
            }
            let device = Arc::clone(&device);
            if let Err(cause) = tokio::task::spawn_blocking(move || device.hold_others(holds)).await {
                warn!(error = %cause, "whoever types a plain `systemctl reboot` may not be held");
            }
        }
    });
}

/// Whether pods of a cluster run here, by zedkube's status.
fn pods_run(status: DrainStatus) -> bool {
    status == DrainStatus::NotRequested || status.is_under_way() || status.is_failure()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ScriptedDevice;
    use std::sync::mpsc;
    use topics::Requester;

    #[tokio::test]
    async fn x3_others_are_held_while_pods_run_and_not_once_the_node_is_drained_or_zedkube_has_left() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (recorder, heard) = mpsc::channel();
        let device: Arc<dyn Device> = Arc::new(ScriptedDevice(move |asked: &str| {
            recorder.send(asked == "hold others").unwrap();
            Ok(())
        }));
        let (outbox, _inbox) = agent::inbox();
        let mut tasks = Tasks::new(outbox);
        follow(&mut tasks, &topic_root, &device);
        let mut statuses = agent::publication::<NodeDrainStatus>(&topic_root, ZEDKUBE).unwrap();
        let mut says = |number: u8| {
            let status = NodeDrainStatus { status: number.into(), requested_by: Requester::DeviceOp };
            statuses.publish(GLOBAL, &status).unwrap();
        };
        let next = || async {
            loop {
                match heard.try_recv() {
                    Ok(holds) => return holds,
                    Err(mpsc::TryRecvError::Empty) => tokio::task::yield_now().await,
                    Err(mpsc::TryRecvError::Disconnected) => panic!("nobody follows"),
                }
            }
        };
        says(1);
        says(2);
        assert!(next().await);
        says(5);
        says(9);
        assert!(!next().await, "nothing between: it was held all the time");
        says(8);
        assert!(next().await);
        drop(statuses.unpublish(GLOBAL));
        assert!(!next().await);
    }
}
