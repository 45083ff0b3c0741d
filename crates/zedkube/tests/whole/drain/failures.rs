//! Every way in which a drain fails, walked to its end: COMPLETE is never written, for nobody, at no moment. The
//! skips that the rules know, and what a force file orders, are not among them; withdrawals are in `withdrawn`.

use std::time::Duration;

use kubenodeop::LimitAction;
use kubesim::ScriptedFault;
use serde_json::json;
use topics::DrainStatus;
use zedkube::Limits;

use crate::device::{Device, US, status};

const ALWAYS: u32 = u32::MAX;
const NODE: &str = "/api/v1/nodes/n1";

fn limits() -> Limits {
    crate::device::limits()
}

async fn device(limits: Limits) -> Device {
    let mut device = Device::new().await;
    device.limits = limits;
    device.an_hour_an_attempt();
    device.start().await;
    device
}

/// A budget holds a pod, and these calls are refused for good.
fn refuse(device: &Device, method: &str, path: &str, code: u16) {
    device.block(true);
    device.sim.faults().script(method, path, ALWAYS, ScriptedFault::status(code, "Forbidden"));
}

/// Asks, waits for the failure and for long after it.
async fn fails(mut device: Device, how: DrainStatus) -> Device {
    device.ask(US, 1).await;
    ends(device, how).await
}

async fn ends(mut device: Device, how: DrainStatus) -> Device {
    device.until(how, US, 1).await;
    device.pass(Duration::from_mins(40)).await;
    assert_eq!(device.status(), status(how.number(), 2));
    assert!(!device.diary.ever_complete(), "{:#?}", device.diary.lines());
    let progress = device.progress();
    assert!(progress.answers.iter().all(|it| it.status == how), "{:?}", progress.answers);
    assert!(
        !progress.reason.is_empty() && progress.next_step.starts_with(|it: char| it != ';'),
        "{progress:?}"
    );
    device
}

/// A drain that a budget holds, in its first attempt.
async fn held(limits: Limits) -> Device {
    let mut device = device(limits).await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(30)).await;
    device
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_something_is_refused_or_a_time_is_over() {
    type Way = (&'static str, Limits, fn(&Device), DrainStatus);
    let pod = Limits { pod_limit_ms: 60_000, pod_limit_then: LimitAction::GiveUp, ..limits() };
    let (no_cordon, no_drain) = (DrainStatus::FailedCordon, DrainStatus::FailedDrain);
    let ways: [Way; 8] = [
        ("the cordon, ten times", limits(), |it| it.cordon_failures(10), no_cordon),
        ("the user, for good", limits(), |it| refuse(it, "PATCH", NODE, 401), no_cordon),
        ("the cordon, for good", limits(), |it| refuse(it, "PATCH", NODE, 403), no_cordon),
        ("pods", limits(), |it| refuse(it, "GET", "/api/v1/pods", 403), no_drain),
        ("budgets", limits(), |it| refuse(it, "GET", "/poddisruptionbudgets", 403), no_drain),
        ("evictions", limits(), |it| refuse(it, "POST", "/eviction", 403), no_drain),
        ("the time of an attempt", limits(), |it| it.block(true), no_drain),
        ("the limit of a pod", pod, |it| it.block(true), no_drain),
    ];
    for (way, limits, meets, how) in ways {
        let short = limits.pod_limit_ms > 0;
        let device = device(limits).await;
        meets(&device);
        let device = fails(device, how).await;
        let failures = device.diary.times("nodedrain-step:drain-failure ");
        let attempts = device.diary.times("nodedrain-step:drain-attempt");
        assert_eq!(attempts.len(), if how == no_drain { 5 } else { 0 }, "{way}");
        assert!(!short || failures[0].since(attempts[0]) < Duration::from_secs(65), "{way}: {failures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_a_pod_is_refused_for_good() {
    let device = device(limits()).await;
    device.refusals(ALWAYS);
    let device = fails(device, DrainStatus::FailedDrain).await;
    assert_eq!(device.pods_to_leave().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_the_api_goes_away_or_refuses_the_user_in_mid_drain() {
    let refused = ScriptedFault::status(401, "Unauthorized");
    for (fault, drain_tries) in [(refused, 5), (ScriptedFault::Cut, 2)] {
        let device = held(Limits { drain_tries, ..limits() }).await;
        device.all_calls(&fault);
        device.sim.expire_watches();
        ends(device, DrainStatus::FailedDrain).await;
    }
}

/// A device with a pod whose volume is never detached.
async fn with_volume(limits: Limits) -> Device {
    let device = device(limits).await;
    device.sim.add_claim("shop", "data", "pvc-1");
    device.sim.add_mounting_pod("shop", "db", "n1", "data");
    device.sim.until("storage/volumeattachments", |all| all.len() == 1).await;
    let held =
        device.sim.list("storage/volumeattachments")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    device.sim.edit("storage/volumeattachments", "", &held, |it| {
        it["metadata"]["finalizers"].as_array_mut().unwrap().push("test/held".into());
    });
    device
}

/// A device with a workload that is pinned to it and minds no cordon.
async fn with_sticky(limits: Limits) -> Device {
    let device = device(limits).await;
    device.sim.add_deployment("shop", "pinned", 1);
    for kind in ["apps/deployments", "apps/replicasets"] {
        for set in device.sim.list(kind) {
            let name = set["metadata"]["name"].as_str().unwrap().to_owned();
            if name.starts_with("pinned") {
                device.sim.edit(kind, "shop", &name, |it| {
                    it["spec"]["template"]["spec"]["tolerations"] =
                        json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]);
                    it["spec"]["template"]["spec"]["nodeSelector"] =
                        json!({ "kubernetes.io/hostname": "n1" });
                });
            }
        }
    }
    device
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_a_workload_that_comes_back_is_to_fail_the_drain() {
    let device = with_sticky(Limits { sticky_then: LimitAction::GiveUp, ..limits() }).await;
    let device = fails(device, DrainStatus::FailedDrain).await;
    let failure = device.progress().reason;
    assert!(failure.contains("pinned"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn never_complete_on_another_devices_node() {
    let other = |device: &Device| {
        device.sim.edit("nodes", "", "n1", |node| {
            node["metadata"]["labels"]["node-uuid"] = "33333333-3333-4333-8333-333333333333".into();
        });
    };
    let before = device(limits()).await;
    other(&before);
    fails(before, DrainStatus::FailedCordon).await;
    let amid = held(limits()).await;
    other(&amid);
    amid.block(false);
    ends(amid, DrainStatus::FailedDrain).await;
}

#[tokio::test(start_paused = true)]
async fn t10_no_cordon_and_no_complete_on_a_node_that_another_machine_reports_and_both_are_named() {
    let reported = |device: &Device, boot: &str, machine: &str| {
        device.sim.edit("nodes", "", "n1", |node| {
            node["status"]["nodeInfo"] = serde_json::json!({ "bootID": boot, "machineID": machine });
        });
    };
    let started = async |boot: &str, machine: &str| {
        let mut device = Device::new().await;
        std::fs::create_dir_all(device.topic_root.path("etc")).unwrap();
        device.write("etc/machine-id", "machine-1\n");
        reported(&device, boot, machine);
        device.an_hour_an_attempt();
        device.start().await;
        device
    };
    let mut before = started("b9", "machine-9").await;
    before.ask(US, 1).await;
    before.pass(Duration::from_mins(40)).await;
    assert!(!before.cordoned() && !before.diary.ever_complete());
    let said = before.text("run/zedkube/NodeDrainProgress/global.json").unwrap();
    for named in ["bootID b9, machineID machine-9", "bootID b1, machineID machine-1"] {
        assert!(said.contains(named), "{said}");
    }
    reported(&before, "b1", "machine-1");
    before.until(DrainStatus::Complete, US, 1).await;

    // What the kubelet of this machine said before the boot.
    let mut amid = started("b0", "machine-1").await;
    amid.ask_blocked(US).await;
    amid.pass(Duration::from_secs(30)).await;
    assert!(amid.cordoned());
    reported(&amid, "b9", "machine-9");
    amid.block(false);
    ends(amid, DrainStatus::FailedDrain).await;
}

#[tokio::test(start_paused = true)]
async fn never_complete_when_the_node_object_is_gone() {
    // Nothing is tried for a node that nobody can be asked about: it waits, and says for what.
    let mut before = device(limits()).await;
    assert!(before.sim.remove("nodes", "", "n1"));
    before.ask(US, 1).await;
    before.pass(Duration::from_mins(40)).await;
    assert!(!before.diary.ever_complete() && before.status() == status(4, 2), "{}", before.status());
    assert!(before.progress().reason.contains("node n1"), "{}", before.progress().reason);
    let amid = held(limits()).await;
    assert!(amid.sim.remove("nodes", "", "n1"));
    amid.block(false);
    ends(amid, DrainStatus::FailedDrain).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_rule_lets_pass_is_named_in_the_complete_progress_and_in_the_log() {
    let sticky = Limits { sticky_then: LimitAction::GetPast, ..limits() };
    for is_sticky in [true, false] {
        // One after the other: the log is that of the device made last.
        let (mut device, name) = if is_sticky {
            (with_sticky(sticky.clone()).await, "shop/pinned")
        } else {
            (with_volume(limits()).await, "shop/data")
        };
        device.drained(1).await;
        device.rest().await;
        let progress = device.progress();
        assert!(progress.left.iter().any(|it| it.contains(name)), "{name}: {:?}", progress.left);
        assert!(
            progress.reason.contains("; by policy: ") && progress.reason.contains(name),
            "{}",
            progress.reason
        );
        assert!(
            device
                .diary
                .lines()
                .iter()
                .any(|it| it.text.contains("left by policy") && it.text.contains(name))
        );
        // Nor does a restart forget it.
        device.restart().await;
        assert_eq!(device.progress().left, progress.left);
    }
}
