//! How often things are tried and how long they wait: the reference's counts and pauses, to the second.

use std::time::Duration;

use kubesim::ScriptedFault;
use topics::DrainStatus;

use crate::device::{Device, US, status};
use crate::diary::gaps;

#[tokio::test(start_paused = true)]
async fn ten_failures_end_in_failed_cordon_and_only_a_new_request_tries_again() {
    let mut device = Device::idle().await;
    device.cordon_failures(10);
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedCordon, US, 1).await;
    assert_eq!(gaps(&device.diary.times("nodedrain-step:drain-cordon-failure")), [5; 9]);
    assert_eq!(device.status(), status(6, 2));
    assert!(!device.cordoned());
    // The request stands, and nothing is tried for it by itself, nor when its file is written once more.
    device.pass(Duration::from_hours(1)).await;
    device.ask(US, 1).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.sim.faults().count("PATCH", "/nodes/n1"), 10);
    assert_eq!(device.status(), status(6, 2));
    // Nine failures are no end.
    device.cordon_failures(9);
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.sim.faults().count("PATCH", "/nodes/n1"), 20);
    assert_eq!(device.pods_to_leave(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn d_k12_each_failed_cordon_is_told_with_its_own_error_and_the_end_with_the_last_one() {
    let mut device = Device::idle().await;
    device.cordon_failures(9);
    let last = ScriptedFault::status(500, "InternalError");
    device.sim.faults().script("PATCH", "/api/v1/nodes/n1", 1, last);
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedCordon, US, 1).await;
    let lines = device.diary.lines();
    let mut failures = lines.iter().filter(|it| it.text.contains("nodedrain-step:drain-cordon-failure"));
    for nth in 1..=9 {
        let line = failures.next().unwrap();
        assert!(line.text.contains("scripted Busy"), "{nth}: {}", line.text);
    }
    let line = failures.next().unwrap();
    assert!(line.text.contains("scripted InternalError") && !line.text.contains("Busy"), "{}", line.text);
    let reason = device.progress().reason;
    assert!(reason.contains("scripted InternalError") && !reason.contains("Busy"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn d_k1_five_attempts_300_seconds_apart_and_then_failed_drain() {
    let mut device = Device::idle().await;
    device.refusals(5);
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedDrain, US, 1).await;
    let attempts = device.diary.times("nodedrain-step:drain-attempt");
    let failures = device.diary.times("nodedrain-step:drain-failure ");
    assert_eq!((attempts.len(), failures.len()), (5, 5));
    for (failed, next) in failures.iter().zip(&attempts[1..]) {
        assert_eq!(next.since(*failed), Duration::from_secs(300));
    }
    let mut expected = vec![status(1, 1), status(2, 1), status(3, 2), status(4, 2), status(5, 2)];
    for _ in 1..5 {
        expected.extend([status(7, 2), status(5, 2)]);
    }
    expected.push(status(8, 2));
    assert_eq!(device.diary.written(), expected);
    assert_eq!(device.sim.faults().count("POST", "/pods/shell/eviction"), 5);
    // D-K8: the node does not stay cordoned.
    device.rest().await;
    assert!(!device.cordoned());
    assert_eq!(device.status(), status(8, 2));
}

/// The bare pod is refused like this until the fault is taken away 20 s into the pause; when the next attempt starts
/// after that.
async fn mended(code: u16, message: &str) -> (Device, Duration) {
    let mut device = Device::idle().await;
    let fault =
        ScriptedFault::Status { code, reason: String::new(), message: message.to_owned(), retry_after: None };
    device.sim.faults().script("POST", "/pods/shell/eviction", u32::MAX, fault);
    device.ask(US, 1).await;
    device.until(DrainStatus::DrainRetrying, US, 1).await;
    device.pass(Duration::from_secs(20)).await;
    let failed = device.diary.times("nodedrain-step:drain-failure ")[0];
    device.sim.faults().clear();
    device.until(DrainStatus::Complete, US, 1).await;
    let next = device.diary.times("nodedrain-step:drain-attempt")[1];
    (device, next.since(failed))
}

const ROLE: &str =
    "pods \"shell\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\"";

#[tokio::test(start_paused = true)]
async fn d16_a_refusal_that_is_over_ends_the_pause_whoever_refused() {
    for (code, message) in [(401, "Unauthorized"), (403, ROLE), (405, "not allowed")] {
        let (device, pause) = mended(code, message).await;
        assert!(pause <= Duration::from_secs(20 + 2), "{code}: {pause:?}");
        assert_eq!(device.pods_to_leave(), [""; 0]);
        assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn each_refusal_is_told_with_its_own_next_step() {
    let table = [
        ("wrong-credentials", "unauthorized", "renew the kubeconfig", true),
        ("eviction-without-role", "refused", "zedbox role", true),
        ("webhook-403", "webhook", "validatingwebhookconfigurations", false),
        ("webhook-429", "webhook", "validatingwebhookconfigurations", false),
        ("webhook-404", "webhook", "validatingwebhookconfigurations", false),
        ("policy-forbidden", "admission", "validatingadmissionpolicies", false),
        ("policy-invalid", "admission", "validatingadmissionpolicies", false),
    ];
    for (answer, word, step, fails) in table {
        let mut device = Device::idle().await;
        let fault = ScriptedFault::recorded(answer).unwrap();
        device.sim.faults().script("POST", "/pods/shell/eviction", u32::MAX, fault);
        device.ask(US, 1).await;
        device.until(if fails { DrainStatus::DrainRetrying } else { DrainStatus::Cordoned }, US, 1).await;
        device.pass(Duration::from_secs(5)).await;
        device.rest().await;
        let progress = device.progress();
        assert_eq!(progress.blockers[0].code, word, "{answer}: {progress:?}");
        assert!(progress.next_step.contains(step), "{answer}: {}", progress.next_step);
        assert!(
            answer.starts_with("wrong") || !progress.next_step.contains("renew"),
            "{}",
            progress.next_step
        );
        assert_eq!(
            progress.next_step.contains("or as soon as that changes"),
            fails,
            "{}",
            progress.next_step
        );
        assert!(!progress.blockers[0].reason.contains("throttling"), "{answer}: {progress:?}");
        device.sim.faults().clear();
        device.until(DrainStatus::Complete, US, 1).await;
        assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), if fails { 2 } else { 1 }, "{answer}");
    }
}
