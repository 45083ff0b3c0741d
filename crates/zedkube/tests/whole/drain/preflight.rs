//! A node whose drain cannot start does not take the turn of the cluster, and says what keeps it (goals U6, U12).

use std::time::Duration;

use topics::{DrainPhase, DrainStatus, Requester};

use crate::device::{Device, status};

const US: Requester = Requester::DeviceOp;

async fn device() -> Device {
    let mut device = Device::new().await;
    device.limits.preflight = true;
    device.start().await;
    device
}

/// Everybody who is named in the Lease of turns.
fn named(device: &Device) -> String {
    let lease = device.sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage");
    lease.map(|it| it["metadata"]["annotations"].to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_evicted_is_found_before_the_turn_and_the_drain_starts_once_it_may() {
    let mut device = device().await;
    device.refusals(1);
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(3)).await;
    let progress = device.progress();
    assert_eq!((device.status(), progress.phase), (status(3, 2), DrainPhase::Checking));
    assert!(progress.reason.contains("pod tools/shell cannot be evicted"), "{}", progress.reason);
    assert!(progress.next_step.contains("docs/reference/role.yaml"), "{}", progress.next_step);
    assert_eq!((progress.blockers.len(), progress.blockers[0].code.as_str()), (1, "refused"));
    assert!(!device.cordoned() && !named(&device).contains("n1"), "{}", named(&device));
    assert_eq!(device.sim.faults().count("POST", "/eviction"), 0, "dry runs alone");
    device.sim.faults().clear();
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_the_preflight_is_never_clean_and_withdrawn_nothing_is_left() {
    let mut device = device().await;
    device.refusals(1);
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedDrain, US, 1).await;
    assert!(!device.diary.ever_complete() && !device.cordoned());
    device.withdraw(US).await;
    device.pass(Duration::from_mins(5)).await;
    assert_eq!(device.status(), status(2, 1));
    assert!(!named(&device).contains("n1"), "{}", named(&device));
}
