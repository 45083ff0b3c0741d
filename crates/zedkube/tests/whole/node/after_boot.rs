//! A boot with our cordon of the one before it on the node (goals R4, R5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::runtime::mock::{RuntimeReply, pod, serve};
use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainPhase, DrainStatus};

use crate::device::{Device, US};

/// Stands in each line about it.
const GATE: &str = "the gate after the boot";

/// Drained, and booted since; zedkube does not run yet.
pub(super) async fn booted() -> Device {
    let mut device = Device::idle().await;
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.kill().await;
    device.reboot();
    assert!(device.cordoned());
    device
}

#[tokio::test(start_paused = true)]
async fn r4_an_api_that_is_away_for_hours_is_named_once_and_the_work_ends_soon_after_it_is_back() {
    let mut device = booted().await;
    for method in ["GET", "PATCH"] {
        device.sim.faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
    }
    let before = device.diary.count(GATE);
    device.start().await;
    device.pass(Duration::from_hours(2)).await;
    let progress = device.progress();
    assert!(device.cordoned() && progress.gate.failed, "{progress:?}");
    assert_eq!(progress.gate.layer, "kubernetes-service");
    assert!(progress.reason.contains("cannot be read"), "{progress:?}");
    let told = device.diary.count(GATE) - before;
    assert!((2..=4).contains(&told), "{told} lines of the gate: {:#?}", device.diary.lines());
    device.sim.faults().clear();
    device.pass(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    assert!(progress.repairs.is_empty(), "the reboot was carried out: {:?}", progress.repairs);
}

#[tokio::test(start_paused = true)]
async fn r4_a_storage_pod_that_crashes_keeps_our_cordon_and_says_so_for_as_long_as_it_does() {
    let mut device = booted().await;
    device.sim.add_bare_pod("longhorn-system", "longhorn-manager", "n1");
    device.pass(Duration::from_secs(10)).await;
    device.sim.crash_loop("longhorn-system", "longhorn-manager", true);
    device.start().await;
    for _ in 0..3 {
        device.pass(Duration::from_mins(20)).await;
        let progress = device.progress();
        assert!(device.cordoned());
        assert_eq!((progress.phase, progress.gate.layer.as_str()), (DrainPhase::AfterBoot, "storage-pods"));
        assert!(progress.reason.contains("longhorn-system/longhorn-manager"), "{progress:?}");
        assert!(progress.next_step.contains("logs"), "{progress:?}");
    }
    device.sim.crash_loop("longhorn-system", "longhorn-manager", false);
    device.pass(Duration::from_secs(30)).await;
    assert!(!device.cordoned());
}

#[tokio::test(start_paused = true)]
async fn r5_stale_taints_go_and_are_counted_logged_and_shown() {
    let mut device = booted().await;
    let keys = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
    let taint = |(key, effect): (&str, &str)| json!({ "key": key, "effect": effect });
    let both = |key| [(key, "NoSchedule"), (key, "NoExecute")];
    let taints: Vec<_> = keys.into_iter().flat_map(both).map(taint).collect();
    device.sim.edit("nodes", "", "n1", |node| node["spec"]["taints"] = taints.clone().into());
    device.start().await;
    device.pass(Duration::from_secs(50)).await;
    assert_eq!(device.progress().gate.stale_taints.len(), 4, "not before 60 s of renewals");
    device.pass(Duration::from_mins(2)).await;
    assert!(!device.cordoned());
    let progress = device.progress();
    let counted: Vec<_> = progress.repairs.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let expected = keys.map(|key| [format!("1 {key}:NoExecute"), format!("1 {key}:NoSchedule")]);
    let [away, ill] = expected;
    assert_eq!(counted, [ill, away].concat());
    assert_eq!(device.diary.count("stale taint removed"), 4);
    assert!(progress.gate.open && progress.gate.stale_taints.is_empty(), "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn r5_v2_taints_that_come_back_go_as_long_as_the_agent_runs() {
    let mut device = Device::idle().await;
    device.pass(Duration::from_hours(1)).await;
    let taint = |device: &Device| {
        let all = json!([
            { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
            { "key": "node-role.kubernetes.io/db", "effect": "NoSchedule" },
        ]);
        device.sim.edit("nodes", "", "n1", |node| node["spec"]["taints"] = all);
    };
    let stands = |device: &Device| device.sim.get("nodes", "", "n1").unwrap()["spec"]["taints"].clone();
    for times in 1..=3 {
        taint(&device);
        device.pass(Duration::from_secs(55)).await;
        assert_eq!(stands(&device).as_array().unwrap().len(), 2, "not before 60 s of renewals");
        device.pass(Duration::from_secs(100)).await;
        assert_eq!(stands(&device), json!([{ "key": "node-role.kubernetes.io/db", "effect": "NoSchedule" }]));
        let repairs = device.progress().repairs;
        assert_eq!(repairs, [("node.kubernetes.io/unreachable:NoExecute".to_owned(), times)].into());
        let warned = usize::from(times == 3);
        assert_eq!(device.diary.count("had to be removed 3 times or more within 24 h"), warned);
        assert_eq!(device.progress().gate.warnings.len(), warned);
        device.pass(Duration::from_hours(1)).await;
    }
    // At rest one node is watched, and what is to be known without an API is listed once in ten minutes.
    let before = device.sim.faults().requests().len();
    device.pass(Duration::from_mins(10)).await;
    let seen = device.sim.faults().requests().split_off(before);
    let ours: Vec<_> = seen.iter().filter(|it| !it.uri.contains("/leases/eve-kube-stats-leader")).collect();
    let lists = ours.iter().filter(|it| !it.uri.contains("watch=true"));
    let lists: Vec<&str> = lists.map(|it| it.uri.split('?').next().unwrap()).collect();
    assert!(lists.len() <= 2 && lists.iter().all(|it| it.ends_with("/nodes") || it.ends_with("/replicas")));
    assert!(ours.len() <= 27, "{} {ours:#?}", ours.len());
}

#[tokio::test(start_paused = true)]
async fn r4_a_clock_in_the_past_keeps_our_cordon_for_five_minutes_and_is_warned_of_until_it_is_set() {
    let mut device = booted().await;
    device.clock.jump_to_off_by(-50 * 31_557_600);
    device.start().await;
    device.pass(Duration::from_mins(4)).await;
    let progress = device.progress();
    assert!(device.cordoned() && progress.reason.contains("the wall clock is behind"), "{progress:?}");
    assert_eq!((progress.phase, progress.gate.layer.as_str()), (DrainPhase::AfterBoot, "clock"));
    device.pass(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("clock", true));
    assert!(
        progress.reason.starts_with("no drain requested; since the boot: the wall clock"),
        "{progress:?}"
    );
    assert!(progress.next_step.contains("timedatectl"), "{progress:?}");
    device.clock.jump_to_off_by(0);
    device.pass(Duration::from_secs(10)).await;
    let progress = device.progress();
    assert!(progress.gate.warnings.is_empty() && progress.reason == "no drain requested", "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn seed_2_23_1_10_basic_pods_have_fifteen_minutes_keep_no_cordon_and_stop_no_drain() {
    let mut device = booted().await;
    device.sim.add_bare_pod("kube-system", "dns", "n1");
    device.pass(Duration::from_secs(10)).await;
    device.sim.crash_loop("kube-system", "dns", true);
    device.start().await;
    device.pass(Duration::from_mins(14)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("system-pods", false));
    let words = "after the boot, system-pods: pods are not Ready: kube-system/dns (CrashLoopBackOff)";
    assert_eq!(device.diary.count(words), 0);
    device.pass(Duration::from_mins(20)).await;
    assert!(device.progress().gate.warnings[0].failed, "{:?}", device.progress());
    assert_eq!(device.diary.count(words), 1);
    device.ask(US, 2).await;
    device.until(DrainStatus::Complete, US, 2).await;
}

#[tokio::test(start_paused = true)]
async fn seed_0_06_an_address_that_changed_with_the_boot_is_reported_before_the_uncordon() {
    let mut device = Device::new().await;
    let move_to = |device: &Device, address: &str| {
        let all = json!([{ "type": "InternalIP", "address": address }]);
        device.sim.edit("nodes", "", "n1", |it| it["status"]["addresses"] = all);
    };
    move_to(&device, "10.0.0.1");
    device.start().await;
    device.ask(US, 1).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.kill().await;
    device.reboot();
    move_to(&device, "10.0.0.9");
    device.sim.add_bare_pod("longhorn-system", "longhorn-manager", "n1");
    device.pass(Duration::from_secs(10)).await;
    device.sim.crash_loop("longhorn-system", "longhorn-manager", true);
    device.start().await;
    device.pass(Duration::from_mins(1)).await;
    let progress = device.progress();
    assert!(device.cordoned(), "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    let words = "node n1 has the address 10.0.0.9; before this boot it had 10.0.0.1";
    assert_eq!((warning.layer.as_str(), warning.words.as_str()), ("network", words));
    assert_eq!(device.diary.count(words), 1);
    device.sim.crash_loop("longhorn-system", "longhorn-manager", false);
    device.pass(Duration::from_mins(1)).await;
    assert!(!device.cordoned(), "{:?}", device.progress());
}

#[tokio::test(start_paused = true)]
async fn r8_d9_pods_of_the_former_boot_go_once_the_node_is_ready_and_none_whose_container_lives() {
    let mut device = booted().await;
    let known = ["shell", "left", "lost", "lives"];
    for name in &known[1..] {
        device.sim.add_bare_pod("tools", name, "n1");
    }
    device.sim.add_bare_pod("tools", known[0], "n1");
    device.pass(Duration::from_secs(10)).await;
    for (name, terminating) in [("left", true), ("lost", false), ("lives", true)] {
        device.sim.leave_behind("tools", name, terminating);
    }
    let runs = Arc::new(AtomicBool::new(true));
    let uid =
        device.sim.get("pods", "tools", "lives").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (sim, lives) = (device.sim.clone(), Arc::clone(&runs));
    let list = move || {
        let mut all: Vec<_> = sim.live_pods("n1").iter().map(|uid| pod(uid, true)).collect();
        all.push(pod(&uid, lives.load(Ordering::Relaxed)));
        RuntimeReply::Pods(all)
    };
    let _runtime = serve(&device.topic_root.path(agent::runtime::SOCKETS[1]), list).unwrap();
    let there = |device: &Device| -> Vec<String> {
        let all = device.sim.list("pods");
        let is_there = |name: &str| all.iter().any(|it| it["metadata"]["name"] == name);
        known.iter().filter(|it| is_there(it)).map(|it| (*it).to_owned()).collect()
    };
    // While its kubelet is away the node is not Ready, and nothing of it is touched.
    device.sim.power("n1", false);
    device.pass(Duration::from_mins(1)).await;
    device.start().await;
    device.pass(Duration::from_mins(10)).await;
    assert_eq!(there(&device), known);
    device.sim.power("n1", true);
    device.pass(Duration::from_mins(5)).await;
    assert_eq!(there(&device), ["shell", "lives"], "{:?}", device.progress());
    let words = "pods of the former boot are still ending, and their containers run: tools/lives";
    assert_eq!(device.diary.count(words), 1);
    assert!(device.progress().reason.contains(words), "{:?}", device.progress());
    assert_eq!(device.diary.count("deleted a pod that the former boot has left"), 2);
    runs.store(false, Ordering::Relaxed);
    device.pass(Duration::from_mins(1)).await;
    assert_eq!(there(&device), ["shell"]);
    assert!(!device.progress().reason.contains("former boot"), "{:?}", device.progress());
}
