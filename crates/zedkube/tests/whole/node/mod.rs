//! The node beside a drain: after a boot, and on its way out of the cluster.
//!
//! Which words take a node out of its cluster: files that vanish never, a decision of our zedagent after a minute, a
//! zedagent of the reference after ten.
//!
//! zedkube on images of each kind, with a device config that names a cluster and without.
//!
//! Probes of the site after a boot: what `/etc/zedbox/probes.toml` names is tried, and named while it fails (row 1-05).
//!
//! A boot with our cordon of the one before it on the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::runtime::mock::{RuntimeReply, pod, serve};
use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainPhase, DrainStatus, LeavePhase, Requester};

use crate::device::{DECISION, Device, STATUS, status};

mod leaving;

use leaving::{NODE, OVER, record};

const CLUSTER: &str = "run/zedagent/EdgeNodeClusterConfig";
const PLACE: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";
const LONG: Duration = Duration::from_mins(40);

/// The node is left alone for long: no write goes to it.
async fn untouched(device: &mut Device, case: &str) {
    device.pass(LONG).await;
    let seen = device.sim.faults().requests();
    let written = seen.iter().filter(|it| it.method != "GET" && it.uri.contains(NODE)).count();
    assert_eq!((device.sim.get("nodes", "", "n1").is_some(), written), (true, 0), "{case}");
}

/// The same, and it still serves whoever asks.
async fn stays(device: &mut Device, case: &str) {
    untouched(device, case).await;
    assert_eq!(device.status(), status(2, 1), "{case}");
    assert_eq!(device.diary.times(OVER), [], "{case}");
}

#[tokio::test(start_paused = true)]
async fn files_that_vanish_under_run_never_take_the_node_out_of_its_cluster() {
    let gone = |device: &Device, path: &str| std::fs::remove_dir_all(device.topic_root.path(path)).unwrap();
    for (case, paths) in [
        ("the file", vec!["run/zedagent/EdgeNodeClusterConfig/global.json"]),
        ("the directory", vec![CLUSTER]),
        ("the directory and the decision", vec![CLUSTER, "run/zedagent/ClusterDecision"]),
        ("all that zedagent publishes", vec!["run/zedagent"]),
        ("all of /run", vec!["run"]),
    ] {
        let mut device = Device::idle().await;
        device
            .change(|device| {
                for path in &paths {
                    if device.topic_root.path(path).is_file() {
                        device.remove(path);
                    } else {
                        gone(device, path);
                    }
                }
            })
            .await;
        untouched(&mut device, case).await;
        assert_eq!(record(&device).phase, LeavePhase::Member, "{case}");
        // Nor after a restart of zedkube, with what is left.
        device.restart().await;
        device.pass(LONG).await;
        assert!(device.sim.get("nodes", "", "n1").is_some(), "{case}");
        assert_eq!(record(&device).phase, LeavePhase::Member, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_step_is_announced_a_minute_before_and_a_config_that_says_member_calls_it_off() {
    let mut device = Device::idle().await;
    device.change(|device| device.member(false)).await;
    device.pass(Duration::from_secs(58)).await;
    let announced = record(&device);
    assert_eq!(announced.phase, LeavePhase::Announced);
    let wait = announced.deadline.to_timestamp().duration_since(announced.started_at.to_timestamp());
    assert_eq!(wait.as_secs(), 60);
    assert!(announced.next_step.contains("cluster section"), "{announced:?}");
    assert_eq!(device.diary.times("leaving the cluster: announced").len(), 1);
    // Until then it is a member in every way.
    assert_eq!((device.status(), device.cordoned()), (status(2, 1), false));
    device.change(|device| device.member(true)).await;
    assert_eq!((record(&device).phase, record(&device).deadline.is_zero()), (LeavePhase::Member, true));
    stays(&mut device, "called off").await;
    // The next one is announced again, for a whole minute.
    device.change(|device| device.member(false)).await;
    device.pass(Duration::from_secs(59)).await;
    assert_eq!((record(&device).phase, device.cordoned()), (LeavePhase::Announced, false));
    device.until_line(OVER, 1).await;
    assert!(device.sim.get("nodes", "", "n1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_leave_is_announced_drains_for_who_asks_and_keeps_its_address() {
    let mut device = Device::idle().await;
    device.change(|device| device.member(true)).await;
    let address = device.text(PLACE);
    device.change(|device| device.member(false)).await;
    assert_eq!(device.text(PLACE), address, "what kube-init lives by is not taken back");
    device.ask(Requester::DeviceOp, 1).await;
    device.until(DrainStatus::Complete, Requester::DeviceOp, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_zedagent_of_the_reference_that_says_not_valid_is_believed_after_ten_good_minutes_only() {
    // It has no ClusterDecision.
    let reference = async |fetch: u8| {
        let mut device = Device::idle().await;
        device.change(|device| device.remove(DECISION)).await;
        device.change(|device| device.fetched(fetch)).await;
        device.change(|device| device.valid(false)).await;
        device
    };
    // A bad section that is fixed.
    let mut device = reference(1).await;
    device.pass(Duration::from_secs(595)).await;
    assert_eq!(record(&device).phase, LeavePhase::Announced);
    device.change(|device| device.valid(true)).await;
    stays(&mut device, "short").await;
    // No fetch comes through.
    for fetch in [0, 2, 3, 4] {
        let mut device = reference(fetch).await;
        assert_eq!(record(&device).phase, LeavePhase::Unconfirmed, "{fetch}");
        assert!(record(&device).reason.contains("ConfigGetStatus"), "{:?}", record(&device));
        stays(&mut device, "not fetched").await;
    }
    // They fail in the middle of it.
    let mut device = reference(1).await;
    device.pass(Duration::from_secs(300)).await;
    device.change(|device| device.fetched(3)).await;
    stays(&mut device, "fetched no longer").await;
    let mut device = reference(1).await;
    let began = device.diary.times("leaving the cluster: announced")[0];
    device.until_line("it leaves", 1).await;
    let waited = device.diary.times("it leaves")[0].since(began);
    assert!(waited.abs_diff(Duration::from_mins(10)) < Duration::from_secs(2), "{waited:?}");
    device.until_line(OVER, 1).await;
    assert!(device.sim.get("nodes", "", "n1").is_none());
}

#[tokio::test(start_paused = true)]
async fn e10_on_another_hypervisor_nothing_is_done_but_to_say_so() {
    for kind in ["kvm", "xen\n"] {
        let mut device = Device::new().await;
        device.member(false);
        device.write("run/eve-hv-type", kind);
        let before = device.sim.faults().requests().len();
        device.start().await;
        device.request(Requester::DeviceOp, 1);
        device.pass(Duration::from_hours(1)).await;
        assert_eq!(device.status(), status(1, 1), "{kind:?}");
        let golden = format!(
            "{}/../../tests/golden/NodeDrainStatus/1-notsupported-none.json",
            env!("CARGO_MANIFEST_DIR")
        );
        assert_eq!(device.text(STATUS), std::fs::read_to_string(golden).ok());
        assert_eq!(device.sim.faults().requests().len(), before, "no call");
        let folders =
            std::fs::read_dir(device.topic_root.path("run/zedkube")).unwrap().map(|it| it.unwrap().path());
        let values = folders.filter(|it| it.is_dir()).flat_map(|it| std::fs::read_dir(it).unwrap());
        let values: Vec<_> = values
            .map(|it| it.unwrap().path())
            .filter(|it| it.extension().is_some_and(|it| it == "json"))
            .collect();
        assert_eq!(values, [device.topic_root.path(STATUS)], "no other topic");
        assert!(
            device.topic_root.path("run/zedkube.touch").exists()
                && device.topic_root.path("run/zedkube.pid").exists()
        );
        device.leave().await;
    }
}

#[tokio::test(start_paused = true)]
async fn e10_no_word_of_the_image_decides_anything_against_a_config_that_names_a_cluster() {
    let kinds = ["k", "kubevirt\n", "", " \n", "ku", "acrn", "\0\0\0", "kvm", "xen\n"];
    for kind in kinds.into_iter().map(Some).chain([None]) {
        let mut device = Device::new().await;
        if let Some(kind) = kind {
            device.write("run/eve-hv-type", kind);
        }
        let config = r#"{"Initialized":true,"Valid":true,"ClusterName":"edge-cluster"}"#;
        device.write("run/zedagent/EdgeNodeClusterConfig/global.json", config);
        device.start().await;
        assert_eq!(device.status(), status(2, 1), "{kind:?}");
        device.request(Requester::DeviceOp, 1);
        device.until(DrainStatus::Complete, Requester::DeviceOp, 1).await;
        assert!(device.cordoned(), "{kind:?}");
        let differs = device.text("run/zedkube/AgentTrouble/global.json").unwrap_or_default();
        let named = |word: &str| differs.contains(word) && differs.contains("the cluster edge-cluster");
        assert_eq!(
            named("kvm") || named("xen"),
            matches!(kind, Some("kvm" | "xen\n")),
            "{kind:?}: {differs}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn e10_an_image_without_kubernetes_is_drained_from_the_moment_that_its_config_names_a_cluster() {
    let mut device = Device::new().await;
    device.member(false);
    device.write("run/eve-hv-type", "kvm");
    device.start().await;
    assert_eq!(device.status(), status(1, 1));
    device.change(|it| it.member(true)).await;
    assert_eq!(device.status(), status(2, 1));
    // An image for clusters on a single node has nothing to drain.
    let mut device = Device::new().await;
    device.member(false);
    device.write("run/eve-hv-type", "kubevirt");
    device.start().await;
    assert_eq!(device.status(), status(1, 1));
}

const FILE: &str = "etc/zedbox/probes.toml";

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_after_a_boot_keeps_no_cordon_and_has_failed_after_its_limit() {
    let mut device = booted().await;
    // Nobody listens there: the port is one of those that only root may have.
    device.write(FILE, "[[probe]]\nname = \"shop\"\nurl = \"http://127.0.0.1:1/healthz\"\n");
    device.start_for(Duration::from_mins(2)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("probes", false));
    assert!(warning.words.contains("probes fail: shop: http://127.0.0.1:1/healthz"), "{warning:?}");
    assert!(warning.next_step.contains("curl -v http://127.0.0.1:1/healthz"), "{warning:?}");
    device.pass(Duration::from_mins(5)).await;
    assert!(device.progress().gate.warnings[0].failed, "{:?}", device.progress());
    device.write(FILE, "");
    device.pass(Duration::from_mins(3)).await;
    assert!(device.progress().gate.warnings.is_empty(), "{:?}", device.progress());
}

/// Stands in each line about it.
const GATE: &str = "the gate after the boot";

/// Drained, and booted since; zedkube does not run yet.
async fn booted() -> Device {
    let mut device = Device::idle().await;
    device.drained(1).await;
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
    assert!(!progress.api_silent_since.is_zero(), "{progress:?}");
    assert!(progress.next_step.contains("systemctl status k3s"), "{progress:?}");
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
    device.start_for(Duration::from_secs(50)).await;
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
    // Volumes, as shards are no replicas.
    let known = ["/nodes", "/replicas", "/volumes"];
    assert!(
        lists.len() <= 3 && lists.iter().all(|it| known.iter().any(|end| it.ends_with(end))),
        "{lists:?}"
    );
    assert!(ours.len() <= 27, "{} {ours:#?}", ours.len());
}

#[tokio::test(start_paused = true)]
async fn r4_a_clock_in_the_past_keeps_our_cordon_for_five_minutes_and_is_warned_of_until_it_is_set() {
    let mut device = booted().await;
    device.clock.jump_to_off_by(-50 * 31_557_600);
    device.start_for(Duration::from_mins(4)).await;
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
    device.start_for(Duration::from_mins(14)).await;
    let progress = device.progress();
    assert!(!device.cordoned() && progress.gate.open, "{progress:?}");
    let [warning] = progress.gate.warnings.as_slice() else { panic!("{progress:?}") };
    assert_eq!((warning.layer.as_str(), warning.failed), ("system-pods", false));
    let words = "after the boot, system-pods: pods are not Ready: kube-system/dns (CrashLoopBackOff)";
    assert_eq!(device.diary.count(words), 0);
    device.pass(Duration::from_mins(20)).await;
    assert!(device.progress().gate.warnings[0].failed, "{:?}", device.progress());
    assert_eq!(device.diary.count(words), 1);
    device.drained(2).await;
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
    device.drained(1).await;
    device.kill().await;
    device.reboot();
    move_to(&device, "10.0.0.9");
    device.sim.add_bare_pod("longhorn-system", "longhorn-manager", "n1");
    device.pass(Duration::from_secs(10)).await;
    device.sim.crash_loop("longhorn-system", "longhorn-manager", true);
    device.start_for(Duration::from_mins(1)).await;
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
    device.start_for(Duration::from_mins(10)).await;
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
