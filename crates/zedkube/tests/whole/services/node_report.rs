//! What the Node shows of a whole drain, and that the drain neither waits for it nor asks more because of it.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::Value;
use topics::DrainStatus;
use zedkube::Limits;

use crate::device::{Device, US, limits};

/// A device at rest whose Node shows its drain, or does not.
async fn device(node_report: bool) -> Device {
    let mut device = Device::new().await;
    device.limits = Limits { node_report, ..limits() };
    device.start().await;
    device
}

fn shown(device: &Device) -> (String, String) {
    let node = device.sim.get("nodes", "", "n1").unwrap();
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ours = all.into_iter().find(|it| it["type"] == "pillar-rs/Drained").unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    (text(&ours["status"]), text(&ours["reason"]))
}

fn reasons(device: &Device) -> Vec<String> {
    let mut all: Vec<String> =
        device.sim.list("events").iter().map(|it| it["reason"].as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn o3_a_whole_drain_is_shown_over_restarts_and_the_boot_and_each_thing_once() {
    let mut device = device(true).await;
    device.pass(Duration::from_secs(10)).await;
    assert_eq!(shown(&device), pair("False", "InService"));
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(20)).await;
    assert_eq!(shown(&device), pair("False", "Blocked"));
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainStarted"]);
    // The next run says nothing again.
    device.kill().await;
    device.start().await;
    device.pass(Duration::from_secs(60)).await;
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainStarted"]);
    assert!(device.sim.list("events").iter().all(|it| it["count"] == 1));
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    device.pass(Duration::from_secs(10)).await;
    assert_eq!(shown(&device), pair("True", "Drained"));
    device.kill().await;
    device.reboot();
    device.start().await;
    device.pass(Duration::from_mins(10)).await;
    assert!(!device.cordoned());
    assert_eq!(shown(&device), pair("False", "InService"));
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainComplete", "DrainStarted", "Uncordoned"]);
}

#[tokio::test(start_paused = true)]
async fn o7_a_drain_that_stays_blocked_is_warned_of_once_in_log_event_and_condition() {
    let mut device = device(true).await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_mins(9)).await;
    assert_eq!(device.diary.count("is stalled"), 0);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.diary.count("the drain of this node is stalled: no progress for 10 min"), 1);
    assert_eq!(shown(&device), pair("False", "Stalled"));
    let events = device.sim.list("events");
    let stalled: Vec<_> = events.iter().filter(|it| it["reason"] == "DrainStalled").collect();
    assert!(stalled.len() == 1 && stalled[0]["count"] == 1, "{stalled:?}");
    let text = stalled[0]["message"].as_str().unwrap();
    assert!(text.contains("shop/web") && text.contains("; "), "what, and what to do: {text}");
}

/// How long a drain takes and what it asks, but for what the Node shows, when that is answered so.
async fn course(node_report: bool, fault: Option<ScriptedFault>) -> (Duration, Vec<String>) {
    let mut device = device(node_report).await;
    for path in ["/nodes/n1/status", "/namespaces/default/events"] {
        for method in ["POST", "PATCH"] {
            if let Some(fault) = &fault {
                device.sim.faults().script(method, path, u32::MAX, fault.clone());
            }
        }
    }
    device.pass(Duration::from_secs(60)).await;
    let before = device.sim.faults().requests().len();
    let began = device.now();
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    let took = device.now().since(began);
    let seen = device.sim.faults().requests();
    let beside =
        |uri: &str| uri.contains("/status?") || uri.contains("/events") || uri == "/api/v1/nodes/n1?";
    let writes = seen[before..].iter().filter(|it| it.method != "GET" && !beside(&it.uri));
    let mut writes: Vec<String> = writes.map(|it| format!("{} {}", it.method, it.uri)).collect();
    // A cordon is written again where another write of the Node was faster: it is one.
    writes.dedup_by(|one, other| one == other && one.starts_with("PATCH /api/v1/nodes/n1?"));
    (took, writes)
}

#[tokio::test(start_paused = true)]
async fn o3_the_drain_takes_no_longer_and_writes_no_more_whatever_becomes_of_it() {
    let without = course(false, None).await;
    for fault in [
        None,
        Some(ScriptedFault::Hang),
        Some(ScriptedFault::status(403, "Forbidden")),
        Some(ScriptedFault::status(429, "TooManyRequests")),
    ] {
        let with = course(true, fault.clone()).await;
        assert_eq!(with.1.len(), without.1.len(), "writes of the drain: {fault:?}: {:#?}", with.1);
        let more = with.0.saturating_sub(without.0);
        assert!(more < Duration::from_millis(50), "{fault:?}: {:?} and {:?}", with.0, without.0);
    }
}
