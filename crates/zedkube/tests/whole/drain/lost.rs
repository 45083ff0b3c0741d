//! An API server that goes silent in the middle of a drain: the drain waits for it, and its rest is never skipped.

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::{DrainPhase, DrainStatus, Requester};

use crate::device::{Device, status};

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_drain_whose_api_stays_silent_is_never_skipped_also_after_a_kill() {
    let faults = [ScriptedFault::Cut, ScriptedFault::Hang, ScriptedFault::status(503, "Down")];
    for (silent, fault) in [true, true, false].into_iter().zip(faults) {
        let mut device = Device::new().await;
        device.worker();
        device.start().await;
        device.ask_blocked(Requester::DeviceOp).await;
        device.pass(Duration::from_secs(60)).await;
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
            device.sim.faults().script(method, "/", u32::MAX, fault.clone());
        }
        device.sim.expire_watches();
        device.pass(Duration::from_mins(10)).await;
        let progress = device.progress();
        assert_eq!(!progress.api_silent_since.is_zero(), silent, "{progress:?}");
        device.kill().await;
        device.start().await;
        device.pass(Duration::from_mins(20)).await;
        assert!(!device.diary.ever_complete() && device.progress().phase != DrainPhase::Skipped);
        assert_eq!(device.status(), status(DrainStatus::Cordoned.number(), 2));
    }
}
