//! The drain of the node: its phases, failures, limits and restarts.
//!
//! More blocked pods than one message can name.
//!
//! A reboot that is requested and withdrawn again and again, as a counter that flaps in the device config does.
//!
//! The Node object is deleted while the node is drained, or drained already.
//!
//! Limits over restarts, and pauses that a change ends.
//!
//! An API server that goes silent in the middle of a drain: the drain waits for it, and its rest is never skipped.
//!
//! zedkube, or its drain, is stopped while evictions are under way: budgets have counted them by then, and one that is
//! cut off holds the other pods up for two minutes.
//!
//! zedkube killed anywhere and started again: the end is that of an undisturbed run, and nothing is done twice (D-K7).
//!
//! How often things are tried and how long they wait: the reference's counts and pauses, to the second.

use std::time::Duration;

use kubenodeop::LimitAction;
use kubesim::ScriptedFault;
use serde_json::json;
use topics::{
    DrainHistory, DrainJournal, DrainPhase, DrainStatus, NodeDrainProgress, Requester, Topic, go_json,
};
use zedkube::Limits;

use crate::device::{DEVICE, Device, US, request_file, status};
use crate::diary::gaps;

mod away;
mod failures;

const PODS: usize = 1000;

fn read<T: Topic>(device: &Device, path: &str) -> T {
    go_json::from_slice(device.text(path).unwrap().as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn k1_a_thousand_blocked_pods_are_told_as_the_worst_by_name_and_the_rest_as_a_number() {
    let mut device = Device::new().await;
    device.limits = Limits {
        drain_tries: 1,
        progress_gap_ms: 10_000,
        pod_limit_ms: 20_000,
        pod_limit_then: LimitAction::GiveUp,
        ..crate::device::limits()
    };
    for nth in 0..PODS {
        let name = format!("worker-with-a-name-as-long-as-names-are-{nth:04}");
        let namespace = format!("production-{}", nth % 10);
        device.sim.add_bare_pod(&namespace, &name, "n1");
        device.sim.add_budget(&namespace, &name, &name, &json!({ "minAvailable": 1 }));
    }
    let ready = |pod: &serde_json::Value| pod["status"]["conditions"][0]["status"] == "True";
    device.sim.until("pods", |pods| pods.len() > PODS && pods.iter().all(ready)).await;
    device.start().await;
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedDrain, US, 1).await;
    device.rest().await;
    assert_eq!(device.status(), status(8, 2));
    let progress: NodeDrainProgress = read(&device, "run/zedkube/NodeDrainProgress/global.json");
    let named = progress.blockers.len();
    assert!(named >= 100, "{named} blockers are named");
    assert_eq!(named + usize::try_from(progress.blockers_omitted).unwrap(), PODS);
    assert!(progress.blockers.iter().all(|it| it.reason.contains("worker-with-a-name")));
    assert!(progress.next_step.contains("worker-with-a-name") && progress.reason.len() < 2000);
    // What must survive is there too, and short.
    let history: DrainHistory = read(&device, "persist/status/zedkube/DrainHistory/global.json");
    assert_eq!(history.drains[0].status, DrainStatus::FailedDrain);
    assert_eq!(history.drains[0].blockers.len() + history.drains[0].more_blockers as usize, PODS);
    let journal: DrainJournal = read(&device, "persist/status/zedkube/DrainJournal/global.json");
    assert_eq!(journal.status, DrainStatus::FailedDrain);
    // It is alive, and the node is given back.
    assert!(!device.cordoned());
    device.withdraw(US).await;
    // A request that is away for less than 2 s was not withdrawn.
    device.pass(Duration::from_secs(3)).await;
    assert_eq!(device.status(), status(2, 1));
    device.leave().await;
}

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

const PERSON: Requester = Requester::Operator;

/// A person's drain that a budget holds, and then no Node object.
async fn gone() -> Device {
    let mut device = Device::new().await;
    device.limits.take_turns = false;
    device.start().await;
    device.ask_blocked(PERSON).await;
    device.pass(Duration::from_secs(5)).await;
    assert!(device.sim.remove("nodes", "", "n1"));
    device
}

#[tokio::test(start_paused = true)]
async fn k10_a_node_object_that_is_gone_is_told_at_once_with_what_brings_it_back_and_a_withdrawal_ends() {
    let mut device = gone().await;
    device.pass(Duration::from_secs(2)).await;
    let progress = device.progress();
    assert!(progress.reason.contains("there is no Node object n1 any more"), "{}", progress.reason);
    assert!(progress.next_step.contains("systemctl restart k3s"), "{}", progress.next_step);
    device.withdraw(PERSON).await;
    device.pass(Duration::from_secs(5)).await;
    let progress = device.progress();
    assert_eq!(device.status(), status(2, 1), "{progress:?}");
    assert_eq!(progress.cordon, topics::CordonOwner::None, "no Node, no cordon of ours: {progress:?}");
    assert!(progress.reason.contains("systemctl restart k3s"), "{}", progress.reason);
}

#[tokio::test(start_paused = true)]
async fn k10_a_node_that_is_registered_again_is_cordoned_again_and_drained() {
    let mut device = gone().await;
    device.pass(Duration::from_secs(2)).await;
    device.sim.add_node("n1", DEVICE);
    device.pass(Duration::from_secs(3)).await;
    assert!(device.cordoned());
    device.block(false);
    device.until(DrainStatus::Complete, PERSON, 1).await;
}

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

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_drain_whose_api_stays_silent_is_never_skipped_also_after_a_kill() {
    let faults = [ScriptedFault::Cut, ScriptedFault::Hang, ScriptedFault::status(503, "Down")];
    for (silent, fault) in [true, true, false].into_iter().zip(faults) {
        let mut device = Device::new().await;
        device.worker();
        device.start().await;
        device.ask_blocked(Requester::DeviceOp).await;
        device.pass(Duration::from_secs(60)).await;
        device.all_calls(&fault);
        device.sim.expire_watches();
        device.pass(Duration::from_mins(10)).await;
        let progress = device.progress();
        assert_eq!(!progress.api_silent_since.is_zero(), silent, "{progress:?}");
        device.restart().await;
        device.pass(Duration::from_mins(20)).await;
        assert!(!device.diary.ever_complete() && device.progress().phase != DrainPhase::Skipped);
        assert_eq!(device.status(), status(DrainStatus::Cordoned.number(), 2));
    }
}

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

/// Stands in every line of the log.
const ANY: &str = " ";

#[derive(Debug, Clone, Copy)]
struct Trouble {
    cordon_failures: u32,
    refusals: u32,
}

const NONE: Trouble = Trouble { cordon_failures: 0, refusals: 0 };
const CONFLICT: Trouble = Trouble { cordon_failures: 1, refusals: 0 };
const RETRY: Trouble = Trouble { cordon_failures: 0, refusals: 1 };
const NO_CORDON: Trouble = Trouble { cordon_failures: 10, refusals: 0 };
const NO_DRAIN: Trouble = Trouble { cordon_failures: 0, refusals: 5 };

async fn device(trouble: Trouble) -> Device {
    let device = Device::idle().await;
    device.cordon_failures(trouble.cordon_failures);
    device.refusals(trouble.refusals);
    device
}

#[derive(Debug, PartialEq)]
struct End {
    status: String,
    cordoned: bool,
    pods_to_leave: usize,
    evicted_twice: bool,
}

async fn end(device: &mut Device, trouble: Trouble) -> End {
    // An attempt that fails is followed by a pause of five minutes.
    device.pass(Duration::from_mins(6) * (1 + trouble.refusals)).await;
    let mut evicted = device.sim.faults().evicted();
    let all = evicted.len();
    evicted.sort();
    evicted.dedup();
    End {
        status: device.status(),
        cordoned: device.cordoned(),
        pods_to_leave: device.pods_to_leave().len(),
        evicted_twice: evicted.len() != all,
    }
}

async fn killed_at(state: DrainStatus, trouble: Trouble) {
    let mut undisturbed = device(trouble).await;
    undisturbed.ask(US, 1).await;
    let expected = end(&mut undisturbed, trouble).await;
    assert!(!expected.evicted_twice);
    undisturbed.leave().await;

    let mut device = device(trouble).await;
    device.kill_at(&format!(" to {{{} 2}}", state.text()), 1);
    device.ask(US, 1).await;
    device.killed().await;
    assert_eq!(device.status(), status(state.number(), 2), "killed at {state:?}");
    let before = device.diary.written().len();
    device.start().await;
    assert_eq!(end(&mut device, trouble).await, expected, "killed at {state:?}");
    // In between nobody is told that nothing is asked for, or that the node is in no cluster.
    let since = device.diary.written().split_off(before);
    let idle = [status(1, 1), status(2, 1), status(1, 2), status(2, 2)];
    assert!(since.iter().all(|it| !idle.contains(it)), "killed at {state:?}: {since:?}");
    if [DrainStatus::FailedCordon, DrainStatus::FailedDrain, DrainStatus::Complete].contains(&state) {
        assert_eq!(since, [""; 0], "killed at {state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn d_k7_killed_at_any_status_it_comes_to_the_same_end_and_does_nothing_twice() {
    for (state, trouble) in [
        (DrainStatus::Requested, NONE),
        (DrainStatus::Starting, NONE),
        (DrainStatus::Cordoned, NONE),
        (DrainStatus::DrainRetrying, RETRY),
        (DrainStatus::FailedCordon, NO_CORDON),
        (DrainStatus::FailedDrain, NO_DRAIN),
        (DrainStatus::Complete, NONE),
    ] {
        killed_at(state, trouble).await;
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_line_of_its_log_it_comes_to_the_same_end() {
    for trouble in [NONE, CONFLICT, RETRY] {
        let mut undisturbed = device(trouble).await;
        let first = undisturbed.diary.count(ANY) + 1;
        undisturbed.ask(US, 1).await;
        let expected = end(&mut undisturbed, trouble).await;
        undisturbed.leave().await;
        let last = undisturbed.diary.count(ANY);
        assert!(last > first + 8, "{:#?}", undisturbed.diary.lines());
        for line in first..=last {
            let mut device = device(trouble).await;
            device.kill_at(ANY, line);
            device.ask(US, 1).await;
            device.killed().await;
            device.start().await;
            let lines = device.diary.lines();
            assert_eq!(
                end(&mut device, trouble).await,
                expected,
                "{trouble:?} killed at {}",
                lines[line - 1].text
            );
        }
    }
}

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
