//! Whose cordon it is when people cordon and uncordon by hand in between: ours goes, theirs stays (goals R4).

use std::time::Duration;

use serde_json::json;
use topics::{CordonOwner, DrainStatus};

use crate::device::{Device, US, status};

async fn complete() -> Device {
    let mut device = Device::idle().await;
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    assert!(device.cordoned() && device.owner().is_some());
    device
}

/// The boot after the operation: nothing is asked for, and everything of ours has been tidied up.
async fn rebooted(device: &mut Device) {
    device.kill().await;
    device.reboot();
    device.start().await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1));
    assert_eq!(device.owner(), None);
}

#[tokio::test(start_paused = true)]
async fn r4_a_cordon_by_hand_in_place_of_ours_is_kept_through_the_boot() {
    // Between two looks at the node: only the server knows that it was another hand.
    let mut device = complete().await;
    device.uncordon_by_hand();
    device.cordon_by_hand();
    rebooted(&mut device).await;
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn p8_an_uncordon_and_a_cordon_between_two_looks_void_the_drain() {
    let mut device = complete().await;
    device.uncordon_by_hand();
    device.sim.add_bare_pod("tools", "late", "n1");
    device.cordon_by_hand();
    device.until(DrainStatus::Complete, US, 2).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
    // It is theirs from now on, and stays as it is.
    assert!(device.cordoned());
    assert_eq!(device.owner(), None);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 2);
    device.withdraw(US).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1));
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn r4_an_uncordon_by_hand_takes_our_mark_with_it() {
    // Nobody waits any more, and the node cannot be reached to give the cordon back; a person does it.
    let mut device = complete().await;
    device.offline(true);
    device.withdraw(US).await;
    device.uncordon_by_hand();
    device.offline(false);
    device.pass(Duration::from_mins(1)).await;
    assert_eq!((device.cordoned(), device.owner()), (false, None));
    // A server that remembers nothing of who wrote what: the mark alone decides, and it is gone.
    device.cordon_by_hand();
    device.forget_writers();
    rebooted(&mut device).await;
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn a_node_uncordoned_in_mid_drain_is_cordoned_anew_and_given_back_in_the_end() {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    device.uncordon_by_hand();
    device.pass(Duration::from_secs(5)).await;
    assert!(device.cordoned() && device.owner().is_some());
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    rebooted(&mut device).await;
    assert!(!device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn a_tie_breaker_that_was_drained_stays_complete() {
    let mut device = Device::idle().await;
    device.sim.edit("nodes", "", "n1", |node| {
        node["metadata"]["labels"]["tie-breaker-node"] = "true".into();
    });
    device.ask(US, 1).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(9, 2));
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
}

#[tokio::test(start_paused = true)]
async fn t5_without_a_drain_a_cordon_by_hand_is_shown_with_its_end_and_one_of_ours_goes_within_a_minute() {
    let mut device = Device::idle().await;
    device.pass(Duration::from_mins(10)).await;
    let asked = device.sim.faults().requests().len();
    device.cordon_by_hand();
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.progress().cordon, CordonOwner::Foreign);
    device.uncordon_by_hand();
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.progress().cordon, CordonOwner::None);
    let asked = device.sim.faults().requests().len() - asked;
    assert!(asked < 10, "{asked} requests: it is followed by the watch that is there");
    // As etcd has it again after a restore, or as somebody writes it at a node in service.
    let mark = json!({
        "bootId": "x", "requestedBy": 2, "requestedAt": "t", "fence": 4_294_967_295_u32, "leaseUid": "nope",
    });
    for cordoned in [true, false] {
        device.sim.edit("nodes", "", "n1", |node| {
            node["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark.to_string().into();
            node["metadata"]["managedFields"] = json!([]);
            node["spec"]["unschedulable"] = cordoned.into();
        });
        device.pass(Duration::from_mins(1)).await;
        assert!(!device.cordoned() && device.owner().is_none(), "{cordoned}");
    }
}
