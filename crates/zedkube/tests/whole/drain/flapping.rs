//! A reboot that is requested and withdrawn again and again, as a counter that flaps in the device config does.

use std::time::Duration;

use topics::DrainStatus;

use crate::device::{Device, US, request_file, status};

const SECS: usize = 60;
/// Each half of a flap; the least time between two changes is what the counter needs.
const HALF: Duration = Duration::from_millis(100);
const MOST: usize = 5;

/// How many requests the API server gets in [`SECS`] of the paused clock.
async fn flap(device: &mut Device) -> usize {
    let before = device.sim.faults().requests().len();
    let begin = device.now();
    let mut number = 0;
    while device.now().since(begin) < Duration::from_secs(SECS as u64) {
        // Each is a request of its own.
        number += 1;
        device.change(|device| device.request(US, number)).await;
        device.pass(HALF).await;
        device.change(|device| device.remove(request_file(US))).await;
        device.pass(HALF).await;
    }
    device.sim.faults().requests().len() - before
}

/// It is withdrawn for good: the node is as it was.
async fn rests(mut device: Device) {
    device.pass(Duration::from_hours(1)).await;
    assert_eq!((device.status(), device.cordoned()), (status(2, 1), false));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_flaps_costs_the_api_server_five_calls_a_second_at_most() {
    let mut device = Device::idle().await;
    let asked = flap(&mut device).await;
    assert!(asked <= MOST * SECS, "{asked} requests in {SECS} s");
    assert!(device.diary.count("nodedrain-step:drain-complete") > 2, "nothing was drained");
    rests(device).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_flaps_while_pods_are_blocked_is_one_attempt_for_the_api_server() {
    let mut device = Device::idle().await;
    device.block(true);
    let asked = flap(&mut device).await;
    assert!(asked <= MOST * SECS, "{asked} requests in {SECS} s");
    assert_eq!(device.status(), status(DrainStatus::Cordoned.number(), 2));
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
    rests(device).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_flaps_while_the_api_is_away_is_one_probe_after_the_other() {
    let mut device = Device::idle().await;
    device.offline(true);
    let asked = flap(&mut device).await;
    assert!(asked <= MOST * SECS, "{asked} requests in {SECS} s");
    device.offline(false);
    rests(device).await;
}
