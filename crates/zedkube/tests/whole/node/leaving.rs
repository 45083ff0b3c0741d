//! The cluster is left: the walk out of it beside everything else that zedkube does (D-K10).

use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::json;
use topics::{DrainMarks, DrainPhase, DrainStatus, GoTime, LeavePhase, NodeLeave, go_json};

use crate::device::{Device, US, status};

const RECORD: &str = "persist/status/zedkube/NodeLeave/global.json";
pub(super) const OVER: &str = "leaving the cluster: over";
pub(super) const NODE: &str = "/api/v1/nodes/n1";
/// From the announcement into the middle of the first steps.
const ANNOUNCED: Duration = Duration::from_secs(90);

pub(super) fn record(device: &Device) -> NodeLeave {
    go_json::from_slice(device.text(RECORD).unwrap().as_bytes()).unwrap()
}

/// Waits until the leave is over.
async fn left(device: &mut Device) {
    device.until_line(OVER, 1).await;
    device.rest().await;
}

fn is_there(device: &Device) -> bool {
    device.sim.get("nodes", "", "n1").is_some()
}

fn given_back(device: &Device) -> usize {
    let seen = device.sim.faults().requests();
    let opens = |body: &[u8]| String::from_utf8_lossy(body).contains(r#""unschedulable":null"#);
    seen.iter().filter(|it| it.method == "PATCH" && it.uri.contains(NODE) && opens(&it.body)).count()
}

/// A replica of a volume lives on our node, and a budget holds a pod there.
fn with_replicas(device: &Device) {
    device.sim.apply(
        "longhorn/replicas",
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
            "metadata": { "namespace": "longhorn-system", "name": "r1" }, "spec": { "nodeID": "n1" },
        }),
    );
    device.block(true);
}

/// A device on its way out, in a drain that a budget holds up.
async fn draining_out() -> Device {
    let mut device = Device::idle().await;
    with_replicas(&device);
    device.change(|device| device.member(false)).await;
    device.pass(ANNOUNCED).await;
    assert_eq!(record(&device).phase, LeavePhase::Draining);
    device
}

#[tokio::test(start_paused = true)]
async fn a_member_leaves_when_its_config_says_so_and_is_told_of_no_cluster_afterwards() {
    let mut device = Device::idle().await;
    assert_eq!(record(&device).phase, LeavePhase::Member);
    device.change(|device| device.member(false)).await;
    left(&mut device).await;
    assert!(!is_there(&device));
    assert_eq!((record(&device).phase, record(&device).next_step.as_str()), (LeavePhase::Left, ""));
    assert_eq!(device.status(), status(1, 1));
    // Nothing is left to do for a start after that.
    device.kill().await;
    let asked = device.sim.faults().count("DELETE", NODE);
    device.start_for(Duration::from_secs(100)).await;
    assert_eq!(device.sim.faults().count("DELETE", NODE), asked);
}

#[tokio::test(start_paused = true)]
async fn d_k10_a_leave_that_lasts_blocks_nothing_and_what_is_asked_for_waits_for_its_end() {
    let mut device = draining_out().await;
    // Requests are heard, force files too, while the drain of the leave waits for a budget.
    device.ask(US, 1).await;
    assert_eq!(device.status(), status(3, 2), "heard, and waiting");
    let progress = device.progress();
    assert_eq!(progress.phase, DrainPhase::Leaving);
    assert!(progress.next_step.contains("NodeLeave"), "{progress:?}");
    let held = record(&device);
    assert!(held.reason.contains("pods gone") && held.blockers.len() == 1, "{held:?}");
    device.pass(Duration::from_secs(3600)).await;
    assert_eq!(device.status(), status(3, 2), "never early");
    assert!(is_there(&device) && device.cordoned());
    device.block(false);
    left(&mut device).await;
    assert!(!is_there(&device));
    assert_eq!(device.status(), status(1, 1), "in no cluster there is nothing to drain");
}

#[tokio::test(start_paused = true)]
async fn a_drain_under_way_makes_way_for_the_leave_and_its_cordon_stays() {
    let mut device = Device::idle().await;
    with_replicas(&device);
    device.ask(US, 1).await;
    device.until(DrainStatus::Cordoned, US, 1).await;
    device.change(|device| device.member(false)).await;
    device.pass(Duration::from_secs(120)).await;
    assert_eq!(device.status(), status(3, 2));
    assert!(device.cordoned());
    assert_eq!(given_back(&device), 0, "not for a moment");
    assert_eq!(record(&device).phase, LeavePhase::Draining);
    device.block(false);
    left(&mut device).await;
    assert_eq!((is_there(&device), device.status()), (false, status(1, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_leave_goes_on_after_a_crash_and_after_a_restart_of_the_machine() {
    for reboot in [false, true] {
        let mut device = draining_out().await;
        device.kill().await;
        if reboot {
            device.reboot();
        }
        device.start_for(Duration::from_secs(30)).await;
        assert_eq!(record(&device).phase, LeavePhase::Draining, "reboot {reboot}");
        assert!(device.cordoned(), "reboot {reboot}");
        assert_eq!(given_back(&device), 0, "reboot {reboot}: not for a moment");
        device.block(false);
        left(&mut device).await;
        assert!(!is_there(&device), "reboot {reboot}");
    }
}

const PLACE: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";

/// The config of a member, and a port that has the cluster's address.
fn with_address(device: &Device) {
    let prefix = json!({ "IP": "192.0.2.7", "Mask": "////AA==" });
    let config = json!({
        "Initialized": true, "Valid": true, "ClusterName": "c", "ClusterInterface": "lan",
        "ClusterIPPrefix": prefix, "JoinServerIP": "192.0.2.8",
        "CipherGzipRegistrationManifestYaml": { "CipherBlockID": "a manifest" },
    });
    device.write("run/zedagent/EdgeNodeClusterConfig/global.json", &config.to_string());
    let port = json!({ "IfName": "eth0", "Logicallabel": "lan", "ClusterIPAddr": "192.0.2.7" });
    std::fs::create_dir_all(device.topic_root.path("run/nim/DeviceNetworkStatus")).unwrap();
    device.write("run/nim/DeviceNetworkStatus/global.json", &json!({ "Ports": [port] }).to_string());
}

#[tokio::test(start_paused = true)]
async fn after_a_power_cut_the_cluster_that_is_being_left_is_reached_as_before() {
    let mut device = Device::new().await;
    with_address(&device);
    with_replicas(&device);
    device.start_for(Duration::from_secs(10)).await;
    let said = device.text(PLACE).unwrap();
    assert!(said.contains(r#""ClusterIPIsReady":true"#), "{said}");
    for cut in ["before the config is heard", "in the drain"] {
        device.kill().await;
        device.reboot();
        assert_eq!(device.text(PLACE), None, "{cut}");
        device.member(false);
        device.start().await;
        device.pass(ANNOUNCED).await;
        assert_eq!(record(&device).phase, LeavePhase::Draining, "{cut}");
        assert_eq!(device.text(PLACE).as_ref(), Some(&said), "{cut}");
    }
    let kept = device.text(RECORD).unwrap();
    assert!(kept.contains("192.0.2.8") && !kept.contains("a manifest"), "{kept}");
    device.block(false);
    left(&mut device).await;
    assert_eq!((device.text(PLACE), record(&device).config), (None, None));
}

#[tokio::test(start_paused = true)]
async fn d15_the_drains_time_goes_on_through_restarts_and_the_leave_ends() {
    let mut device = Device::new().await;
    device.an_hour_an_attempt();
    device.start().await;
    with_replicas(&device);
    // The first crash comes before the drain has told anything.
    device.kill_at("stage=Draining", 1);
    device.member(false);
    device.killed().await;
    device.start().await;
    for _ in 0..3 {
        device.pass(Duration::from_mins(15)).await;
        device.restart().await;
    }
    left(&mut device).await;
    let (began, over) = (device.diary.times("stage=Draining")[0], device.diary.times(OVER)[0]);
    let took = over.since(began);
    assert!(took.abs_diff(Duration::from_hours(1)) < Duration::from_secs(10), "{took:?}");
    let left = record(&device);
    assert_eq!((left.phase, &left.marks), (LeavePhase::Left, &DrainMarks::default()));
    assert!(left.passed_over[0].contains("not done within 3600 s"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn the_drains_limit_is_that_of_the_config_also_when_it_comes_later() {
    let mut device = draining_out().await;
    device.pass(Duration::from_mins(30)).await;
    device.change(Device::an_hour_an_attempt).await;
    device.until_line(OVER, 1).await;
    let took = device.diary.times(OVER)[0].since(device.diary.times("stage=Draining")[0]);
    assert!(took.abs_diff(Duration::from_hours(1)) < Duration::from_secs(10), "{took:?}");
    device.rest().await;
    assert!(!is_there(&device));
}

#[tokio::test(start_paused = true)]
async fn a_config_that_changed_while_the_machine_was_off_is_an_order_to_leave_too() {
    let mut device = Device::idle().await;
    device.kill().await;
    device.reboot();
    device.member(false);
    device.start().await;
    device.until_line(OVER, 1).await;
    assert!(!is_there(&device));
    // But a device that never was in a cluster leaves none.
    let mut device = Device::new().await;
    device.member(false);
    device.start_for(Duration::from_secs(1000)).await;
    assert!(is_there(&device));
    assert_eq!(device.text(RECORD), None);
}

#[tokio::test(start_paused = true)]
async fn a_leave_that_is_called_off_gives_the_cordon_back_and_serves_who_waits() {
    let mut device = draining_out().await;
    device.change(|device| device.member(true)).await;
    device.pass(Duration::from_secs(30)).await;
    assert_eq!(record(&device).phase, LeavePhase::Member);
    assert!(is_there(&device) && !device.cordoned());
    assert_eq!(given_back(&device), 1);
    device.block(false);
    device.drained(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_out_of_reach_is_given_up_in_time_and_the_record_says_what_to_do() {
    let mut device = Device::idle().await;
    device.sim.faults().script("GET", "/api/v1/nodes", u32::MAX, ScriptedFault::Hang);
    device.change(|device| device.member(false)).await;
    device.pass(ANNOUNCED).await;
    device.ask(US, 1).await;
    assert_eq!(device.status(), status(3, 2));
    left(&mut device).await;
    let record = record(&device);
    assert_eq!(record.phase, LeavePhase::NotReached);
    assert!(record.next_step.contains("kubectl delete node n1"), "{record:?}");
    assert_eq!(device.status(), status(1, 1), "never stuck");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leaves_gives_its_lease_back() {
    let mut device = Device::new().await;
    with_replicas(&device);
    device.fetched(1);
    device.start().await;
    device.until_line("leader election: this node leads lease", 1).await;
    device.change(|device| device.member(false)).await;
    device.until_line("leader election: lease released", 1).await;
    assert!(is_there(&device));
}

/// Config of a member whose control plane is this list.
fn masters(device: &Device, list: &[&str]) {
    let config = json!({ "Initialized": true, "Valid": true, "MasterNodeIDs": list });
    device.write("run/zedagent/EdgeNodeClusterConfig/global.json", &config.to_string());
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_deletes_a_replaced_control_plane_node() {
    let own = "11111111-1111-4111-8111-111111111111";
    let other = "22222222-2222-4222-8222-222222222222";
    let mut device = Device::new().await;
    masters(&device, &[own]);
    device.start_for(Duration::from_secs(2000)).await;
    assert!(device.sim.get("nodes", "", "n2").is_some(), "it does not lead");
    masters(&device, &[own, other]);
    device.fetched(1);
    device.until_line("leader election: this node leads lease", 1).await;
    device.pass(Duration::from_secs(2000)).await;
    assert!(device.sim.get("nodes", "", "n2").is_some(), "it is on the list");
    device.change(|device| masters(device, &[])).await;
    device.pass(Duration::from_secs(2000)).await;
    assert!(device.sim.get("nodes", "", "n2").is_some(), "the list is not known");
    // One that fails is tried again ten minutes later.
    device.sim.faults().script("DELETE", "/api/v1/nodes/n2", 1, ScriptedFault::status(500, "InternalError"));
    device.change(|device| masters(device, &[own])).await;
    device.pass(Duration::from_secs(590)).await;
    assert!(device.sim.get("nodes", "", "n2").is_some());
    device.until_line("no longer in the config's list was deleted", 1).await;
    assert!(device.sim.get("nodes", "", "n2").is_none() && is_there(&device));
}

#[tokio::test(start_paused = true)]
async fn k4_the_times_of_a_leave_follow_a_clock_that_is_set_and_nothing_is_decided() {
    let mut device = draining_out().await;
    let (before, booted_at) = (record(&device), device.clock.booted_at());
    let near = |shown: GoTime, right: GoTime| shown.apart(right) <= Duration::from_secs(2);
    for off_by in [300_000_000, -300_000_000] {
        device.clock.jump_to_off_by(off_by);
        device.pass(Duration::from_secs(2)).await;
        let (now, booted) = (record(&device), device.clock.booted_at());
        assert!(near(now.started_at, before.started_at.moved(booted_at, booted)), "{now:?}");
        assert_eq!((now.phase, now.blockers.len()), (LeavePhase::Draining, 1), "{now:?}");
        assert!(near(now.blockers[0].since, before.blockers[0].since.moved(booted_at, booted)), "{now:?}");
        assert!(is_there(&device));
    }
    device.block(false);
    device.until_line(OVER, 1).await;
    let (ended, booted) = (record(&device).ended_at, device.clock.booted_at());
    device.clock.jump_to_off_by(0);
    device.pass(Duration::from_secs(2)).await;
    assert!(near(record(&device).ended_at, ended.moved(booted, device.clock.booted_at())));
}
