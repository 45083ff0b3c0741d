//! The election as a whole agent takes part in it: lease, KubeLeaderElectInfo, drain, restart and end.

use std::time::Duration;

use agent::{AgentContext, Clock, Stopper};
use kube::Client;
use kubesim::ScriptedFault;
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use topics::{DrainStatus, KubeLeaderElectInfo, go_json};

use zedkube::Limits;

use crate::device::{Device, US};

const LEASES: &str = "coordination/leases";
const LEASE: &str = "/leases/eve-kube-stats-leader";
const LEADS: &str = "leader election: this node leads lease";
const REPORT: &str = "run/zedkube/KubeClusterInfo/global.json";
const WITHDRAWN: &str = "its report of the cluster is withdrawn";
const GIVEN_BACK: &str = "leader election: lease released";

fn lease(device: &Device) -> Value {
    device.sim.get(LEASES, "eve-kube-app", "eve-kube-stats-leader").unwrap()["spec"].clone()
}

fn info(device: &Device) -> KubeLeaderElectInfo {
    let text = device.text("run/zedkube/KubeLeaderElectInfo/global.json").unwrap();
    go_json::from_slice(text.as_bytes()).unwrap()
}

async fn leading() -> Device {
    let mut device = Device::new().await;
    device.fetched(1);
    device.start().await;
    device.until_line(LEADS, 1).await;
    device.rest().await;
    assert!(info(&device).is_stats_leader);
    device
}

/// Where the first line that holds `text` stands.
fn place(device: &Device, text: &str) -> usize {
    let lines = device.diary.lines();
    let place = lines.iter().position(|line| line.text.contains(text));
    assert!(place.is_some(), "{text}: {lines:#?}");
    place.unwrap()
}

#[tokio::test(start_paused = true)]
async fn l1_a_node_elects_itself_and_keeps_the_lease_by_one_write_in_forty_five_seconds() {
    let mut device = leading().await;
    let first = lease(&device);
    assert_eq!(first["holderIdentity"], "n1");
    assert_eq!((&first["leaseDurationSeconds"], &first["leaseTransitions"]), (&json!(300), &json!(0)));
    assert_eq!(first["acquireTime"], first["renewTime"]);
    let (reads, writes) = (device.sim.faults().count("GET", LEASE), device.sim.faults().count("PUT", LEASE));
    let before = device.text("run/zedkube/KubeLeaderElectInfo/global.json");
    device.pass(Duration::from_secs(600)).await;
    assert_eq!(device.sim.faults().count("GET", LEASE), reads);
    assert_eq!(device.sim.faults().count("PUT", LEASE) - writes, 13);
    assert_eq!(lease(&device)["acquireTime"], first["acquireTime"]);
    // A time of its own makes no publication.
    assert_eq!(device.text("run/zedkube/KubeLeaderElectInfo/global.json"), before);
}

#[tokio::test(start_paused = true)]
async fn nobody_stands_without_config() {
    let mut device = Device::new().await;
    device.start().await;
    assert_eq!(
        info(&device),
        KubeLeaderElectInfo { latest_change: info(&device).latest_change, ..Default::default() }
    );
    for status in [0, 2, 3] {
        device.change(|device| device.fetched(status)).await;
        device.pass(Duration::from_secs(100)).await;
    }
    // Kubelets have leases of their own, in another namespace.
    assert!(device.sim.list(LEASES).iter().all(|it| it["metadata"]["namespace"] != "eve-kube-app"));
    device.change(|device| device.fetched(4)).await;
    device.until_line(LEADS, 1).await;
    // Lost again, and back.
    device.change(|device| device.fetched(3)).await;
    device.until_line(GIVEN_BACK, 1).await;
    device.rest().await;
    assert!(!info(&device).in_leader_election);
    device.change(|device| device.fetched(1)).await;
    device.until_line(LEADS, 2).await;
    assert_eq!(lease(&device)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn l5_the_lease_is_given_back_before_complete_and_not_taken_until_the_cordon_is_gone() {
    let mut device = leading().await;
    device.block(true);
    device.ask(US, 1).await;
    device.until(DrainStatus::Cordoned, US, 1).await;
    device.pass(Duration::from_secs(120)).await;
    assert!(info(&device).is_stats_leader, "a drain that lasts is no reason to report nothing");
    assert!(device.text(REPORT).is_some());
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    assert!(place(&device, WITHDRAWN) < place(&device, " to {Complete 2}"));
    assert_eq!(device.text(REPORT), None, "L2: nobody but the leader reports");
    assert!(place(&device, GIVEN_BACK) < place(&device, " to {Complete 2}"));
    assert_eq!(lease(&device)["holderIdentity"], "");
    assert!(!info(&device).is_stats_leader && !info(&device).in_leader_election);
    // Drained, it does not stand again; neither after a restart.
    device.pass(Duration::from_secs(1_000)).await;
    device.restart().await;
    device.pass(Duration::from_secs(1_000)).await;
    assert_eq!(lease(&device)["holderIdentity"], "");
    assert!(device.cordoned());
    device.withdraw(US).await;
    device.until_line(LEADS, 2).await;
    assert!(!device.cordoned(), "it stood before the cordon was given back");
}

#[tokio::test(start_paused = true)]
async fn l5_a_lease_that_cannot_be_given_back_holds_complete_up_for_five_seconds_only() {
    let mut device = leading().await;
    device.sim.faults().script("PUT", LEASE, u32::MAX, ScriptedFault::Cut);
    device.drained(1).await;
    let late = "the lease could not be released in time";
    assert_eq!(device.diary.count(late), 1, "{:#?}", device.diary.lines());
    assert!(place(&device, late) < place(&device, " to {Complete 2}"));
    assert!(!info(&device).is_stats_leader, "whoever cannot give it back leads no longer all the same");
    // It is tried on, and given back.
    device.sim.faults().clear();
    device.until_line(GIVEN_BACK, 1).await;
    assert_eq!(lease(&device)["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_told_to_leave_gives_the_lease_back_first() {
    let mut device = leading().await;
    device.leave().await;
    assert_eq!(lease(&device)["holderIdentity"], "");
    assert_eq!(lease(&device)["leaseDurationSeconds"], 1);
    assert!(!info(&device).is_stats_leader);
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_takes_its_lease_up_again_and_says_first_that_it_does_not_lead() {
    let mut device = leading().await;
    device.kill().await;
    assert!(info(&device).is_stats_leader, "nothing was tidied up");
    device.sim.faults().script("GET", LEASE, 1, ScriptedFault::Cut);
    device.start().await;
    assert!(!info(&device).is_stats_leader);
    device.until_line(LEADS, 2).await;
    assert_eq!(lease(&device)["leaseTransitions"], 0, "it is the same holder");
    assert_eq!(device.diary.count(GIVEN_BACK), 0);
}

#[tokio::test(start_paused = true)]
async fn l2_d_k17_a_leader_whose_cluster_is_cut_off_says_so_and_stands_again_when_it_is_back() {
    let mut device = leading().await;
    for method in ["GET", "PUT"] {
        device.sim.faults().script(method, LEASE, u32::MAX, ScriptedFault::Cut);
    }
    device.pass(Duration::from_secs(181)).await;
    assert!(!info(&device).is_stats_leader);
    assert!(info(&device).election_running);
    device.pass(Duration::from_secs(130)).await;
    assert!(!info(&device).election_running && info(&device).in_leader_election);
    assert_eq!(info(&device).leader_identity, "");
    device.sim.faults().clear();
    device.until_line(LEADS, 2).await;
}

/// zedkube of the other node, on files of its own.
struct Other {
    topic_root: TopicRoot,
    stopper: Stopper,
    task: JoinSet<()>,
    _root: TempDir,
}

impl Other {
    fn beside(device: &Device) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let write = |path: &str, value: Value| {
            store::replace(&topic_root.path(path), value.to_string().as_bytes()).unwrap();
        };
        write(
            "run/zedagent/EdgeNodeClusterConfig/global.json",
            json!({ "Initialized": true, "Valid": true }),
        );
        let info = json!({ "DeviceName": "N2", "DeviceID": "22222222-2222-4222-8222-222222222222" });
        write("run/zedagent/EdgeNodeInfo/global.json", info);
        write("run/zedagent/ZedAgentStatus/zedagent.json", json!({ "ConfigGetStatus": 1 }));
        let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let cluster = kubeapi::ApiClient::from_client(Client::new(device.sim.service(), "default"));
        let mut task = JoinSet::new();
        task.spawn(async move { zedkube::run(context, Limits::default(), cluster).await.unwrap() });
        Self { topic_root, stopper, task, _root: root }
    }

    fn reports(&self) -> bool {
        self.topic_root.path(REPORT).exists()
    }
}

#[tokio::test(start_paused = true)]
async fn l5_the_cluster_is_without_a_report_for_less_than_thirty_seconds_when_its_leader_drains() {
    const LOOK: Duration = Duration::from_millis(250);
    let mut device = leading().await;
    let mut other = Other::beside(&device);
    // At any time of its own rhythm: it looks at the lease each 15 to 18 s.
    for quiet_secs in [60, 35, 41] {
        device.pass(Duration::from_secs(quiet_secs)).await;
        assert!(device.text(REPORT).is_some() && !other.reports(), "one report, the leader's");
        device.ask(US, quiet_secs).await;
        let (mut drained_for, mut silent_for) = (Duration::ZERO, Duration::ZERO);
        while !other.reports() {
            let ours = device.text(REPORT).is_some();
            assert!(drained_for < Duration::from_secs(600), "the drain does not get to its end");
            assert!(silent_for < Duration::from_secs(30), "nobody has reported for {silent_for:?}");
            device.pass(LOOK).await;
            *(if ours { &mut drained_for } else { &mut silent_for }) += LOOK;
        }
        assert_eq!(device.text(REPORT), None, "L2: two nodes report");
        // Back to the start: the other one ends, and the drained one gets its cordon back and stands again.
        other.stopper.stop();
        while other.task.join_next().await.is_some() {}
        let led = device.diary.count(LEADS);
        device.withdraw(US).await;
        device.until_line(LEADS, led + 1).await;
        other = Other::beside(&device);
    }
}

#[tokio::test(start_paused = true)]
async fn k4_the_time_of_the_latest_change_follows_a_clock_that_is_set() {
    let mut device = leading().await;
    let (before, booted_at) = (info(&device), device.clock.booted_at());
    for off_by in [300_000_000, -300_000_000] {
        device.clock.jump_to_off_by(off_by);
        device.pass(Duration::from_secs(2)).await;
        let right = before.latest_change.moved(booted_at, device.clock.booted_at());
        let now = info(&device);
        assert!(now.latest_change.apart(right) <= Duration::from_secs(2), "{now:?} where {right:?} is right");
        assert_eq!(KubeLeaderElectInfo { latest_change: before.latest_change, ..now }, before);
    }
}
