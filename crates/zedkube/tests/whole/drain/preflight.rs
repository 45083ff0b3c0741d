//! A node whose drain cannot start does not take the turn of the cluster, and says what keeps it (goals U6, U12).

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainPhase, DrainPreflight, DrainStatus, PASS_FILE, go_json};

use crate::device::{Device, US, status};

async fn device() -> Device {
    let mut device = Device::new().await;
    device.limits.preflight = true;
    device.start().await;
    device
}

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

#[tokio::test(start_paused = true)]
async fn t14_what_an_admission_says_to_a_dry_run_is_a_warning_and_the_eviction_itself_is_asked_for() {
    for answer in
        ["webhook-403", "webhook-422", "webhook-without-words", "policy-forbidden", "policy-invalid"]
    {
        for turns in [true, false] {
            let mut device = Device::new().await;
            (device.limits.preflight, device.limits.take_turns) = (true, turns);
            device.start().await;
            // A dry run meets what the next call would; of those the third is admitted.
            let fault = ScriptedFault::recorded(answer).unwrap();
            device.sim.faults().script("POST", "/pods/shell/eviction", 2, fault.clone());
            device.sim.faults().script("PATCH", "/nodes/n1", 1, fault);
            device.ask(US, 1).await;
            device.until(DrainStatus::Complete, US, 1).await;
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
    let mut device = device().await;
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
        let mut device = Device::new().await;
        (device.limits.preflight, device.limits.take_turns) = (true, turns);
        device.start().await;
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
    let mut device = device().await;
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
