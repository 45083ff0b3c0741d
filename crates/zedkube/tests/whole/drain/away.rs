//! An API server that is away when a drain begins: each way of being away ends in the documented skip, with its
//! cause after a time by chance; an overloaded one never does (goals U8). Lost in mid-drain it is a failure: see `failures`. TLS trouble
//! counts as away too: kubenodeop tries it against servers with wrong certificates.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainPhase, DrainStatus};

use crate::device::{Device, US, status};

const ALWAYS: u32 = u32::MAX;

/// A worker at rest, all of whose calls meet this.
async fn under(fault: &ScriptedFault) -> Device {
    let mut device = Device::new().await;
    device.worker();
    device.start().await;
    for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
        device.sim.faults().script(method, "/", ALWAYS, fault.clone());
    }
    device
}

#[tokio::test(start_paused = true)]
async fn u8_a_server_that_is_away_for_the_set_time_is_skipped_with_its_cause() {
    for (fault, cause) in [
        (ScriptedFault::Cut, "reach the API"),
        (ScriptedFault::status(500, "InternalError"), "500 InternalError"),
        (ScriptedFault::status(503, "ServiceUnavailable"), "503 ServiceUnavailable"),
        (ScriptedFault::Hang, "no answer within"),
    ] {
        let mut device = under(&fault).await;
        device.ask(US, 1).await;
        device.until(DrainStatus::Complete, US, 1).await;
        device.rest().await;
        let took = device.diary.times(" to {Complete ")[0].since(device.diary.times("drain-starting")[0]);
        // The set time, a time by chance up to ten minutes, and the last question.
        assert!(
            took >= Duration::from_secs(300) && took < Duration::from_secs(935),
            "{cause}: after {took:?}"
        );
        let progress = device.progress();
        assert_eq!((progress.phase, progress.answers.len()), (DrainPhase::Skipped, 1), "{cause}");
        for skip in [&progress.skip, &progress.answers[0].skip] {
            assert!(skip.starts_with("the Kubernetes API was not reachable for 300 s: "), "{skip}");
            assert!(skip.contains(cause), "{cause}: {skip}");
        }
        assert_eq!((device.cordoned(), device.sim.faults().evicted().len()), (false, 0), "{cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn u8_a_server_that_throttles_is_never_skipped() {
    let throttled = ScriptedFault::Status {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        message: "too many requests".to_owned(),
        retry_after: Some(1),
    };
    let mut device = under(&throttled).await;
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(40)).await;
    assert!(!device.diary.ever_complete(), "{:#?}", device.diary.lines());
    let progress = device.progress();
    assert_eq!((device.status(), progress.skip.as_str()), (status(4, 2), ""));
    assert!(progress.reason.contains("lease") && !progress.reason.contains("cordon"), "{}", progress.reason);
    assert_eq!(device.diary.count("drain-cordon-failure"), 0);
    device.sim.faults().clear();
    device.until(DrainStatus::Complete, US, 1).await;
}

#[tokio::test(start_paused = true)]
async fn u8_a_server_that_is_back_in_time_is_drained() {
    let mut device = under(&ScriptedFault::Cut).await;
    device.ask(US, 1).await;
    device.pass(Duration::from_secs(290)).await;
    assert_eq!(device.status(), status(4, 2));
    device.sim.faults().clear();
    device.until(DrainStatus::Complete, US, 1).await;
    device.rest().await;
    assert_eq!((device.progress().skip.as_str(), device.pods_to_leave().len()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn u8_a_worker_waits_for_the_only_server_whose_turn_it_has_seen_also_over_a_restart() {
    let mut device = Device::new().await;
    device.worker();
    device.start().await;
    let uid = device.sim.get("nodes", "", "n2").unwrap()["metadata"]["uid"].clone();
    let holders = json!([{ "node": "n2", "nodeUID": uid, "bootID": "b", "op": "reboot", "fence": 1,
        "phase": "going-down", "server": true }]);
    device.sim.apply(
        "coordination/leases",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "eve-kube-app", "name": "pillar-rs-outage", "annotations": {
                "pillar-rs/outage-holders": holders.to_string(), "pillar-rs/outage-version": "1",
            } },
            "spec": { "holderIdentity": "n2", "leaseTransitions": 1 },
        }),
    );
    device.pass(Duration::from_secs(60)).await;
    for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
        device.sim.faults().script(method, "/", ALWAYS, ScriptedFault::Cut);
    }
    device.ask(US, 1).await;
    for _ in 0..2 {
        device.pass(Duration::from_mins(40)).await;
        assert!(!device.diary.ever_complete(), "{:#?}", device.diary.lines());
        let progress = device.progress();
        assert!(progress.reason.contains("held by server n2"), "{}", progress.reason);
        device.kill().await;
        device.start().await;
    }
}

#[tokio::test(start_paused = true)]
async fn u3_a_server_that_cannot_ask_for_its_turn_waits_for_etcds_word_and_a_node_alone_is_skipped() {
    for alone in [false, true] {
        let mut device = Device::new().await;
        if alone {
            assert!(device.sim.remove("nodes", "", "n2"));
        }
        device.start().await;
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
            device.sim.faults().script(method, "/", ALWAYS, ScriptedFault::Cut);
        }
        device.ask(US, 1).await;
        device.pass(Duration::from_secs(310)).await;
        assert_eq!(device.diary.ever_complete(), alone, "{:#?}", device.diary.lines());
        device.pass(Duration::from_mins(40)).await;
        assert_eq!(device.diary.ever_complete(), alone);
        if !alone {
            let progress = device.progress();
            assert!(progress.reason.contains("no sign that etcd runs on node n1"), "{}", progress.reason);
            assert!(progress.next_step.contains("zedbox go --past drain"), "{}", progress.next_step);
        }
    }
}
