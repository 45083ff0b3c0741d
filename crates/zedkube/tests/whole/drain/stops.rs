//! zedkube, or its drain, is stopped while evictions are under way: budgets have counted them by then, and one that is cut
//! off holds the other pods up for two minutes (goals T13).

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::DrainStatus;

use crate::device::{Device, US, status};

/// A drain whose evictions take so long, with the first of them under way; how many.
async fn evicting(takes: Duration) -> (Device, usize) {
    let mut device = Device::idle().await;
    device.sim.faults().script("POST", "/eviction", u32::MAX, ScriptedFault::Delay(takes));
    device.ask(US, 1).await;
    let asked = |device: &Device| device.sim.faults().count("POST", "/eviction");
    while asked(&device) == 0 {
        device.pass(Duration::from_millis(20)).await;
    }
    assert_eq!(device.sim.faults().evicted().len(), 0);
    let asked = asked(&device);
    (device, asked)
}

#[tokio::test(start_paused = true)]
async fn t13_a_planned_stop_waits_for_evictions_under_way_and_the_drain_continues_after_the_start() {
    let (mut device, asked) = evicting(Duration::from_millis(700)).await;
    let stopped = device.now();
    device.leave().await;
    assert!(device.now().since(stopped) < Duration::from_secs(1));
    assert_eq!(device.sim.faults().evicted().len(), asked, "none was cut off");
    assert_eq!(device.sim.faults().count("POST", "/eviction"), asked, "and none was begun");
    device.sim.faults().clear();
    device.start().await;
    let started = device.now();
    device.until(DrainStatus::Complete, US, 1).await;
    assert!(device.now().since(started) < Duration::from_secs(5 + 10), "{:?}", device.now().since(started));
    let (mut evicted, all) = (device.sim.faults().evicted(), device.sim.faults().evicted().len());
    evicted.sort_unstable();
    evicted.dedup();
    assert_eq!(evicted.len(), all, "each once");
}

#[tokio::test(start_paused = true)]
async fn t13_a_stop_does_not_wait_for_ever_for_a_server_that_does_not_answer() {
    let (mut device, _) = evicting(Duration::from_mins(10)).await;
    let stopped = device.now();
    device.leave().await;
    assert_eq!(device.now().since(stopped).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn t13_a_withdrawal_begins_no_eviction_and_cuts_none_off() {
    let (mut device, asked) = evicting(Duration::from_secs(10)).await;
    device.withdraw(US).await;
    while device.status() != status(2, 1) {
        device.pass(Duration::from_millis(100)).await;
    }
    assert_eq!(device.sim.faults().evicted().len(), 0);
    device.pass(Duration::from_secs(15)).await;
    assert_eq!(device.sim.faults().evicted().len(), asked);
    assert_eq!(device.sim.faults().count("POST", "/eviction"), asked);
}
