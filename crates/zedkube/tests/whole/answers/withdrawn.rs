//! A request that is withdrawn, in every state: NOTREQUESTED, our cordon gone, a foreign one kept, and no
//! eviction after that (goals D19).

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::DrainStatus;

use crate::device::{Device, US, request_file, status};

const ALL_TRIES: u32 = 10;

/// Brings a device to a status that stays, with the request standing.
async fn device_at(state: DrainStatus, foreign: bool) -> Device {
    let mut device = Device::idle().await;
    if foreign {
        device.cordon_by_hand();
    }
    let faults = device.sim.faults();
    match state {
        // Looks of others at the node meet it too.
        DrainStatus::Starting | DrainStatus::FailedCordon => {
            let times = if state == DrainStatus::Starting { ALL_TRIES - 1 } else { u32::MAX };
            for method in ["GET", "PATCH"] {
                let failed = ScriptedFault::status(500, "InternalError");
                faults.script(method, "/api/v1/nodes/n1", times, failed);
            }
        }
        DrainStatus::Cordoned => device.block(true),
        // One more than the attempt meets: in the pause a dry run asks whether the refusal is over.
        DrainStatus::DrainRetrying => device.refusals(2),
        DrainStatus::FailedDrain => device.refusals(5),
        DrainStatus::Unknown
        | DrainStatus::NotSupported
        | DrainStatus::NotRequested
        | DrainStatus::Requested
        | DrainStatus::Complete
        | DrainStatus::Stranger(_) => {}
    }
    if state == DrainStatus::NotRequested {
        return device;
    }
    if state == DrainStatus::Requested {
        // It lasts one turn; a kill makes it stay.
        device.kill_at(" to {Requested 2}", 1);
        device.ask(US, 1).await;
        device.killed().await;
        return device;
    }
    device.ask(US, 1).await;
    device.until(state, US, 1).await;
    if state == DrainStatus::FailedCordon {
        device.sim.faults().clear();
    }
    device.rest().await;
    device
}

async fn withdrawn(state: DrainStatus, foreign: bool) {
    let told = format!("{state:?}, foreign {foreign}");
    let mut device = device_at(state, foreign).await;
    let number = state.number();
    assert_eq!(device.status(), status(number, if number == 2 { 1 } else { 2 }), "{told}");
    if state == DrainStatus::Requested {
        device.remove(request_file(US));
        device.start().await;
    } else if state != DrainStatus::NotRequested {
        device.withdraw(US).await;
        // New evictions stop within this time (D19).
        device.pass(Duration::from_secs(5)).await;
    }
    assert_eq!(device.diary.ever_complete(), state == DrainStatus::Complete, "{told}");
    let evictions = device.sim.faults().count("POST", "/eviction");
    device.block(false);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1), "{told}");
    assert_eq!((device.cordoned(), device.owner()), (foreign, None), "{told}");
    assert_eq!(device.sim.faults().count("POST", "/eviction"), evictions, "{told}");
    assert_eq!(device.diary.ever_complete(), state == DrainStatus::Complete, "{told}");
    // The next request finds everything as the first one did.
    device.sim.faults().clear();
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, if state == DrainStatus::Complete { 2 } else { 1 }).await;
    assert_eq!(device.pods_to_leave(), [""; 0], "{told}");
}

macro_rules! withdrawn {
    ($($name:ident: $state:ident),+ $(,)?) => { $(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            for foreign in [false, true] {
                withdrawn(DrainStatus::$state, foreign).await;
            }
        }
    )+ };
}

withdrawn! {
    d_k6_nothing_to_take_back_changes_nothing: NotRequested,
    d_k6_taken_back_when_requested: Requested,
    d_k6_taken_back_when_starting: Starting,
    d_k6_taken_back_when_cordoned: Cordoned,
    d_k6_taken_back_when_retrying: DrainRetrying,
    d_k6_taken_back_after_a_failed_cordon: FailedCordon,
    d_k6_taken_back_after_a_failed_drain: FailedDrain,
    d_k6_taken_back_when_complete: Complete,
}
