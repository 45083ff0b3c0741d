//! An API server that is away when a drain begins: each way of being away ends in the documented skip, with its cause
//! after a time by chance; an overloaded one never does. Lost in mid-drain it is a failure: see `failures`. TLS
//! trouble counts as away too: kubenodeop tries it against servers with wrong certificates.
//!
//! Whose cordon it is when people cordon and uncordon by hand in between: ours goes, theirs stays.
//!
//! A node whose drain cannot start does not take the turn of the cluster, and says what keeps it.

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::{CordonOwner, DrainPhase, DrainPreflight, DrainStatus, PASS_FILE, go_json};

use crate::device::{Device, US, status};

/// A worker at rest, all of whose calls meet this.
async fn under(fault: &ScriptedFault) -> Device {
    let mut device = Device::new().await;
    device.worker();
    device.start().await;
    device.all_calls(fault);
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
        device.drained(1).await;
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
    device.other_is_down();
    device.pass(Duration::from_secs(60)).await;
    device.all_calls(&ScriptedFault::Cut);
    device.ask(US, 1).await;
    for _ in 0..2 {
        device.pass(Duration::from_mins(40)).await;
        assert!(!device.diary.ever_complete(), "{:#?}", device.diary.lines());
        let progress = device.progress();
        assert!(progress.reason.contains("held by server n2"), "{}", progress.reason);
        device.restart().await;
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
        device.all_calls(&ScriptedFault::Cut);
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

async fn complete() -> Device {
    let mut device = Device::idle().await;
    device.drained(1).await;
    assert!(device.cordoned() && device.owner().is_some());
    device
}

/// The boot after the operation: nothing is asked for, and everything of ours has been tidied up.
async fn rebooted(device: &mut Device) {
    device.kill().await;
    device.reboot();
    device.start().await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1));
    assert_eq!(device.owner(), None);
}

#[tokio::test(start_paused = true)]
async fn r4_a_cordon_by_hand_in_place_of_ours_is_kept_through_the_boot() {
    // Between two looks at the node: only the server knows that it was another hand.
    let mut device = complete().await;
    device.uncordon_by_hand();
    device.cordon_by_hand();
    rebooted(&mut device).await;
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn p8_an_uncordon_and_a_cordon_between_two_looks_void_the_drain() {
    let mut device = complete().await;
    device.uncordon_by_hand();
    device.sim.add_bare_pod("tools", "late", "n1");
    device.cordon_by_hand();
    device.until(DrainStatus::Complete, US, 2).await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
    // It is theirs from now on, and stays as it is.
    assert!(device.cordoned());
    assert_eq!(device.owner(), None);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 2);
    device.withdraw(US).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(2, 1));
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn r4_an_uncordon_by_hand_takes_our_mark_with_it() {
    // Nobody waits any more, and the node cannot be reached to give the cordon back; a person does it.
    let mut device = complete().await;
    device.offline(true);
    device.withdraw(US).await;
    device.uncordon_by_hand();
    device.offline(false);
    device.pass(Duration::from_mins(1)).await;
    assert_eq!((device.cordoned(), device.owner()), (false, None));
    // A server that remembers nothing of who wrote what: the mark alone decides, and it is gone.
    device.cordon_by_hand();
    device.forget_writers();
    rebooted(&mut device).await;
    assert!(device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn a_node_uncordoned_in_mid_drain_is_cordoned_anew_and_given_back_in_the_end() {
    let mut device = Device::idle().await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    device.uncordon_by_hand();
    device.pass(Duration::from_secs(5)).await;
    assert!(device.cordoned() && device.owner().is_some());
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    rebooted(&mut device).await;
    assert!(!device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn a_tie_breaker_that_was_drained_stays_complete() {
    let mut device = Device::idle().await;
    device.sim.edit("nodes", "", "n1", |node| {
        node["metadata"]["labels"]["tie-breaker-node"] = "true".into();
    });
    device.ask(US, 1).await;
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.status(), status(9, 2));
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
}

#[tokio::test(start_paused = true)]
async fn t5_without_a_drain_a_cordon_by_hand_is_shown_with_its_end_and_one_of_ours_goes_within_a_minute() {
    let mut device = Device::idle().await;
    device.pass(Duration::from_mins(10)).await;
    let asked = device.sim.faults().requests().len();
    device.cordon_by_hand();
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.progress().cordon, CordonOwner::Foreign);
    device.uncordon_by_hand();
    device.pass(Duration::from_secs(2)).await;
    assert_eq!(device.progress().cordon, CordonOwner::None);
    let asked = device.sim.faults().requests().len() - asked;
    assert!(asked < 10, "{asked} requests: it is followed by the watch that is there");
    // As etcd has it again after a restore, or as somebody writes it at a node in service.
    let mark = json!({
        "bootId": "x", "requestedBy": 2, "requestedAt": "t", "fence": 4_294_967_295_u32, "leaseUid": "nope",
    });
    for cordoned in [true, false] {
        device.sim.edit("nodes", "", "n1", |node| {
            node["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark.to_string().into();
            node["metadata"]["managedFields"] = json!([]);
            node["spec"]["unschedulable"] = cordoned.into();
        });
        device.pass(Duration::from_mins(1)).await;
        assert!(!device.cordoned() && device.owner().is_none(), "{cordoned}");
    }
}

/// At rest; it looks before a drain.
async fn looking(turns: bool) -> Device {
    let mut device = Device::new().await;
    (device.limits.preflight, device.limits.take_turns) = (true, turns);
    device.start().await;
    device
}

fn named(device: &Device) -> String {
    device.turns().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_evicted_is_found_before_the_turn_and_the_drain_starts_once_it_may() {
    let mut device = looking(true).await;
    device.refusals(1);
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(3)).await;
    let progress = device.progress();
    assert_eq!((device.status(), progress.phase), (status(3, 2), DrainPhase::Checking));
    assert!(progress.reason.contains("pod tools/shell cannot be evicted"), "{}", progress.reason);
    assert!(progress.next_step.contains("zedbox role"), "{}", progress.next_step);
    assert_eq!((progress.blockers.len(), progress.blockers[0].code.as_str()), (1, "refused"));
    assert!(!device.cordoned() && !named(&device).contains("n1"), "{}", named(&device));
    assert_eq!(device.sim.faults().count("POST", "/eviction"), 0, "dry runs alone");
    device.sim.faults().clear();
    device.until(DrainStatus::Complete, US, 1).await;
    assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1);
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_the_preflight_is_never_clean_and_withdrawn_nothing_is_left() {
    let mut device = looking(true).await;
    device.refusals(1);
    device.ask(US, 1).await;
    device.until(DrainStatus::FailedDrain, US, 1).await;
    assert!(!device.diary.ever_complete() && !device.cordoned());
    device.withdraw(US).await;
    device.pass(Duration::from_mins(5)).await;
    assert_eq!(device.status(), status(2, 1));
    assert!(!named(&device).contains("n1"), "{}", named(&device));
}

#[tokio::test(start_paused = true)]
async fn t14_what_an_admission_says_to_a_dry_run_is_a_warning_and_the_eviction_itself_is_asked_for() {
    for answer in
        ["webhook-403", "webhook-422", "webhook-without-words", "policy-forbidden", "policy-invalid"]
    {
        for turns in [true, false] {
            let mut device = looking(turns).await;
            // A dry run meets what the next call would; of those the third is admitted.
            let fault = ScriptedFault::recorded(answer).unwrap();
            device.sim.faults().script("POST", "/pods/shell/eviction", 2, fault.clone());
            device.sim.faults().script("PATCH", "/nodes/n1", 1, fault);
            device.drained(1).await;
            assert_eq!(device.sim.faults().count("POST", "/pods/shell/eviction"), 3, "{answer}");
            assert_eq!(device.diary.count("nodedrain-step:drain-attempt"), 1, "{answer}");
            let found = report(&device).findings;
            let of_dry_runs: Vec<_> = found.iter().filter(|it| it.code == "evictions").collect();
            assert_eq!(of_dry_runs.len(), 2, "{answer}: {found:?}");
            assert!(
                of_dry_runs.iter().all(|it| it.severity == "warns" && !it.next_step.contains("zedbox role"))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t14_what_stops_a_drain_is_known_since_it_was_found_first() {
    let mut device = looking(true).await;
    device.refusals(1);
    device.ask(US, 1).await;
    device.pass(Duration::from_secs(5)).await;
    let since = device.progress().blockers[0].since;
    device.pass(Duration::from_mins(3)).await;
    assert_eq!(device.progress().blockers[0].since, since);
}

fn report(device: &Device) -> DrainPreflight {
    let text = device.text("run/zedkube/DrainPreflight/global.json").unwrap();
    go_json::from_slice(text.as_bytes()).unwrap()
}

fn backup(device: &Device, state: &str) {
    let meta = json!({ "name": "b1", "namespace": "longhorn-system" });
    device.sim.apply("longhorn/backups", json!({ "metadata": meta, "status": { "state": state } }));
}

#[tokio::test(start_paused = true)]
async fn u6_all_that_is_found_is_in_one_report_before_anything_is_changed_and_only_what_stops_is_asked_for_again()
 {
    for turns in [true, false] {
        let mut device = looking(turns).await;
        backup(&device, "InProgress");
        let meta = json!({ "name": "pvc-1", "namespace": "longhorn-system" });
        device
            .sim
            .apply("longhorn/volumes", json!({ "metadata": meta, "status": { "robustness": "degraded" } }));
        device.ask(US, 1).await;
        device.pass(Duration::from_mins(2)).await;
        let progress = device.progress();
        assert_eq!(progress.phase, DrainPhase::Checking, "{progress:?}");
        assert!(progress.reason.contains("[backups] backups in progress: "), "{}", progress.reason);
        assert!(progress.next_step.contains("zedbox go --past preflight:backups"), "{}", progress.next_step);
        assert!(turns || progress.reason.starts_with("its drain cannot start yet: "), "{}", progress.reason);
        assert!(!device.cordoned());
        let found = report(&device).findings;
        let has =
            |code: &str, severity: &str| found.iter().any(|it| it.code == code && it.severity == severity);
        assert!(
            has("backups", "blocks") && has("volumes", "warns") && found[0].code == "backups",
            "{found:?}"
        );
        let asked = |path: &str| {
            device.sim.faults().requests().iter().filter(|it| format!("{it:?}").contains(path)).count()
        };
        assert!(asked("/backups") >= 4, "{}", asked("/backups"));
        assert_eq!((asked("/etcdsnapshotfiles"), asked("/eviction")), (1, 2));
        // It ends, and the drain begins.
        backup(&device, "Completed");
        device.until(DrainStatus::Complete, US, 1).await;
        assert!(report(&device).findings.iter().all(|it| it.code != "backups"));
    }
}

#[tokio::test(start_paused = true)]
async fn u6_a_node_that_is_not_ready_or_held_in_maintenance_stops_a_drain_where_that_is_set() {
    let mut device = Device::new().await;
    device.limits.preflight = true;
    device.limits.preflight_stops = vec!["nodes".to_owned(), "cordons".to_owned()];
    device.start().await;
    device.sim.add_node("n9", "u9");
    device.sim.power("n9", false);
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert_eq!(progress.phase, DrainPhase::Checking, "{progress:?}");
    assert!(progress.reason.contains("[nodes] nodes that are not Ready: n9"), "{}", progress.reason);
    device.sim.power("n9", true);
    let status = json!({ "harvesterhci.io/maintain-status": "running" });
    device.sim.edit("nodes", "", "n9", |it| it["metadata"]["annotations"] = status);
    device.pass(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert!(
        progress.reason.contains("[cordons] ") && progress.reason.contains("maintenance: n9"),
        "{progress:?}"
    );
    assert!(!device.cordoned());
    device.sim.edit("nodes", "", "n9", |it| it["metadata"]["annotations"] = json!({}));
    device.until(DrainStatus::Complete, US, 1).await;
}

#[tokio::test(start_paused = true)]
async fn u6_a_finding_is_passed_by_name_with_a_reason_which_the_history_keeps_and_a_file_of_others_is_not_believed()
 {
    let mut device = looking(true).await;
    backup(&device, "InProgress");
    device.ask(US, 1).await;
    device.pass(Duration::from_mins(1)).await;
    for refused in
        [r#"{"Codes":["clock"],"Reason":"r","By":"field"}"#, r#"{"Codes":["backups"],"By":"field"}"#, "{"]
    {
        device.write(PASS_FILE, refused);
        device.pass(Duration::from_mins(1)).await;
        assert!(!device.cordoned(), "{refused}");
    }
    device.write(PASS_FILE, r#"{"Codes":["backups"],"Reason":"it hangs","By":"field"}"#);
    device.until(DrainStatus::Complete, US, 1).await;
    let found = report(&device).findings;
    assert_eq!(
        (found[0].code.as_str(), found[0].passed_by.as_str()),
        ("backups", "field: it hangs"),
        "{found:?}"
    );
    let history = device.text("persist/status/zedkube/DrainHistory/global.json").unwrap();
    assert!(history.contains("backups by field: it hangs"), "{history}");
}
