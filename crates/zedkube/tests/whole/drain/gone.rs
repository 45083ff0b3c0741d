//! The Node object is deleted while the node is drained, or drained already.

use std::time::Duration;

use topics::{DrainStatus, Requester};

use crate::device::{DEVICE, Device, status};

const US: Requester = Requester::Operator;

/// A person's drain that a budget holds, and then no Node object.
async fn gone() -> Device {
    let mut device = Device::new().await;
    device.limits.take_turns = false;
    device.start().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(5)).await;
    assert!(device.sim.remove("nodes", "", "n1"));
    device
}

#[tokio::test(start_paused = true)]
async fn k10_a_node_object_that_is_gone_is_told_at_once_with_what_brings_it_back_and_a_withdrawal_ends() {
    let mut device = gone().await;
    device.pass(Duration::from_secs(2)).await;
    let progress = device.progress();
    assert!(progress.reason.contains("there is no Node object n1 any more"), "{}", progress.reason);
    assert!(progress.next_step.contains("systemctl restart k3s"), "{}", progress.next_step);
    device.withdraw(US).await;
    device.pass(Duration::from_secs(5)).await;
    let progress = device.progress();
    assert_eq!(device.status(), status(2, 1), "{progress:?}");
    assert_eq!(progress.cordon, topics::CordonOwner::None, "no Node, no cordon of ours: {progress:?}");
    assert!(progress.reason.contains("systemctl restart k3s"), "{}", progress.reason);
}

#[tokio::test(start_paused = true)]
async fn k10_a_node_that_is_registered_again_is_cordoned_again_and_drained() {
    let mut device = gone().await;
    device.pass(Duration::from_secs(2)).await;
    device.sim.add_node("n1", DEVICE);
    device.pass(Duration::from_secs(3)).await;
    assert!(device.cordoned());
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
}
