//! Which words take a node out of its cluster: files that vanish never, a decision of our zedagent after a minute, a
//! zedagent of the reference after ten.

use std::time::Duration;

use topics::{DrainStatus, LeavePhase, Requester};

use super::leaving::{NODE, OVER, record};
use crate::device::{DECISION, Device, status};

const CLUSTER: &str = "run/zedagent/EdgeNodeClusterConfig";
const PLACE: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";
const LONG: Duration = Duration::from_mins(40);

/// The node was left alone: no write went to it, and it still serves whoever asks.
async fn stays(device: &mut Device, case: &str) {
    device.pass(LONG).await;
    let seen = device.sim.faults().requests();
    let written = seen.iter().filter(|it| it.method != "GET" && it.uri.contains(NODE)).count();
    assert_eq!((device.sim.get("nodes", "", "n1").is_some(), written), (true, 0), "{case}");
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
        device.pass(LONG).await;
        let seen = device.sim.faults().requests();
        let written = seen.iter().filter(|it| it.method != "GET" && it.uri.contains(NODE)).count();
        assert_eq!((device.sim.get("nodes", "", "n1").is_some(), written), (true, 0), "{case}");
        assert_eq!(record(&device).phase, LeavePhase::Member, "{case}");
        // Nor after a restart of zedkube, with what is left.
        device.kill().await;
        device.start().await;
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
