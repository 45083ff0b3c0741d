//! Limits over restarts (goals D15), and pauses that a change ends (goals D16).

use std::time::Duration;

use topics::DrainStatus;
use zedkube::Limits;

use crate::device::{Device, US, status};

const ATTEMPT: &str = "nodedrain-step:drain-attempt";
const FAILURE: &str = "nodedrain-step:drain-failure ";

/// A drain that a budget holds, in its first attempt.
async fn held(limits: Limits) -> Device {
    let mut device = Device::new().await;
    device.limits = limits;
    device.an_hour_an_attempt();
    device.start().await;
    device.ask_blocked(US).await;
    device
}

async fn restart(device: &mut Device) {
    device.kill().await;
    device.pass(Duration::from_secs(20)).await;
    device.start().await;
}

#[tokio::test(start_paused = true)]
async fn d15_an_attempts_time_goes_on_through_restarts() {
    let mut device = held(Limits::default()).await;
    for _ in 0..3 {
        device.pass(Duration::from_mins(15)).await;
        restart(&mut device).await;
    }
    device.until_line(FAILURE, 1).await;
    let (began, failed) = (device.diary.times(ATTEMPT)[0], device.diary.times(FAILURE)[0]);
    let took = failed.since(began);
    assert!(took.abs_diff(Duration::from_hours(1)) < Duration::from_secs(2), "{took:?}");
    assert_eq!(device.progress().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn d16_a_budget_that_opens_in_a_pause_ends_it_within_two_seconds() {
    let mut device = held(Limits::default()).await;
    device.until(DrainStatus::DrainRetrying, US, 1).await;
    device.pass(Duration::from_secs(60)).await;
    assert_eq!(device.status(), status(7, 2));
    device.block(false);
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.diary.count(ATTEMPT), 2, "{:#?}", device.diary.lines());
    let why = "a blocker has changed";
    assert!(device.diary.lines().iter().any(|it| it.text.contains(why) && it.text.contains("shop/web")));
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn d16_a_pod_that_goes_in_a_pause_ends_it_within_two_seconds() {
    let mut device = Device::idle().await;
    device.refusals(u32::MAX);
    device.ask(US, 1).await;
    device.until(DrainStatus::DrainRetrying, US, 1).await;
    device.pass(Duration::from_secs(60)).await;
    assert!(device.sim.remove("pods", "tools", "shell"));
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.diary.count(ATTEMPT), 2, "{:#?}", device.diary.lines());
    device.until(DrainStatus::Complete, US, 1).await;
}

#[tokio::test(start_paused = true)]
async fn d16_without_a_change_the_reference_pause_holds() {
    let mut device = held(Limits::default()).await;
    device.until_line(ATTEMPT, 2).await;
    let pause = device.diary.times(ATTEMPT)[1].since(device.diary.times(FAILURE)[0]);
    assert_eq!(pause, Duration::from_secs(300));
}
