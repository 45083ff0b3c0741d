//! What runs beside the drain: duties, the server, and what is written.
//!
//! Applications beside the drain: neither waits for the other.
//!
//! How often NodeDrainProgress is written, counted by the kernel.
//!
//! An update of k3s from the config to the kubelet: held back, drained for, handed over, and the turn given back (fault
//! D-V35).
//!
//! Side duties that fail: each restarts on its own, and the drain takes no notice.
//!
//! What the Node shows of a whole drain, and that the drain neither waits for it nor asks more because of it.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use kubesim::ScriptedFault;
use pubsub::{Codec, Name, Publication};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use serde_json::{Value, json};
use topics::{
    ConfigItemValue, ConfigItemValueMap, DrainPhase, DrainStatus, K3sStage, K3sUpdate, KubeConfig, Requester,
    go_json,
};
use zedkube::Limits;

use crate::device::{Device, US, limits, status};

mod leader;
mod server;

const APP: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
const POD: &str = "web-d4f3a-0-x7k2p";
const LOG: &str = "web-d4f3a-0-x7k2p/log";

fn configure(device: &Device) {
    let config = json!({
        "UUIDandVersion": { "UUID": APP }, "DisplayName": "Web", "IsDesignatedNodeID": true,
        "FixedResources": { "VirtualizationMode": 4 },
    });
    device.write(&format!("run/zedagent/AppInstanceConfig/{APP}.json"), &config.to_string());
}

#[tokio::test(start_paused = true)]
async fn logs_that_hang_and_pods_of_applications_that_are_not_told_hold_no_drain_up() {
    let mut device = Device::new().await;
    std::fs::create_dir_all(device.topic_root.path("run/zedagent/AppInstanceConfig")).unwrap();
    configure(&device);
    device.sim.apply(
        "pods",
        json!({
            "metadata": { "name": POD, "namespace": "eve-kube-app" },
            "spec": { "nodeName": "n2", "containers": [{ "name": "web", "image": "i" }] },
            "status": { "phase": "Running" },
        }),
    );
    device.sim.run_container("eve-kube-app", POD, "web", 0, &json!({ "running": {} }));
    device.sim.faults().script("GET", LOG, u32::MAX, ScriptedFault::Hang);
    device.start().await;
    device.until_line("application in the cluster", 1).await;
    let text = device.text(&format!("run/zedkube/ENClusterAppStatus/{APP}.json")).unwrap();
    assert!(text.contains(r#""IsDNidNode":true,"ScheduledOnThisNode":false,"AppKubeStatus":4"#), "{text}");
    device.pass(Duration::from_secs(5)).await;
    assert!(device.sim.faults().count("GET", LOG) > 0);
    device.sim.faults().script("GET", "/namespaces/eve-kube-app/pods", u32::MAX, ScriptedFault::Hang);
    device.drained(1).await;
    let said = device.diary.times("nodedrain-step:changing");
    // From the cordon: the turn before it waits for the other kubelet to be seen alive.
    let took = said[said.len() - 1].since(said[said.len() - 2]);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

const PODS: usize = 200;

/// Counts files that come to stand at their place in a directory: each write of a topic is a rename.
struct Renames(OwnedFd);

impl Renames {
    fn of(device: &Device, topic: &str) -> Self {
        let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
        // The kernel makes one of equal neighbours: what is written beside the place keeps them apart.
        let asked = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
        inotify::add_watch(&queue, device.topic_root.path(topic), asked).unwrap();
        Self(queue)
    }

    fn count(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = reader.next() {
            let placed = event.events().contains(ReadFlags::MOVED_TO);
            count +=
                usize::from(placed && event.file_name().is_some_and(|it| it.to_bytes() == b"global.json"));
        }
        count
    }
}

#[tokio::test(start_paused = true)]
async fn o1_two_hundred_pods_are_told_five_times_a_second_and_the_last_word_is_written() {
    let mut device = Device::idle().await;
    for pod in 0..PODS {
        device.sim.add_bare_pod("load", &format!("p{pod}"), "n1");
    }
    let running = PODS + 5;
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    device.sim.until("pods", |pods| pods.len() == running && pods.iter().all(ready)).await;
    device.rest().await;
    let progress = Renames::of(&device, "run/zedkube/NodeDrainProgress");
    let journal = Renames::of(&device, "persist/status/zedkube/DrainJournal");
    device.drained(1).await;
    device.pass(Duration::from_secs(1)).await;
    let said = device.diary.times("nodedrain-step:changing");
    let took = said[said.len() - 1].since(said[2]);
    let evicted = device.sim.faults().count("POST", "/eviction");
    assert!(evicted >= PODS, "{evicted} {:#?}", device.diary.lines());
    // At once: the five statuses of a drain. In turn: one per 200 ms. Twice as many things have changed.
    let (written, most) = (progress.count(), 5 + usize::try_from(took.as_millis() / 200).unwrap() + 1);
    assert!(written <= most, "{written} writes in {took:?}, at most {most}");
    assert!(written > 5, "{written}");
    // The journal knows of no pod.
    assert!(journal.count() <= 6);
    let last = device.progress();
    assert_eq!((last.phase, last.status), (DrainPhase::Complete, DrainStatus::Complete));
    assert_eq!((last.counts.total, last.counts.gone), (last.counts.total, last.counts.total));
    assert!(usize::try_from(last.counts.gone).unwrap() > PODS);
}

#[tokio::test(start_paused = true)]
async fn u10_an_idle_node_follows_the_lease_of_turns_by_one_watch_that_is_renewed_every_ten_minutes() {
    let mut device = Device::idle().await;
    device.pass(Duration::from_mins(1)).await;
    let lease = "fieldSelector=metadata.name%3Dpillar-rs-outage";
    let (before, lists) = (device.sim.faults().count("GET", lease), |device: &Device| {
        let seen = device.sim.faults().requests();
        seen.iter().filter(|it| it.uri.contains(lease) && !it.uri.contains("watch=true")).count()
    });
    assert_eq!(
        (lists(&device), before),
        (1, 2),
        "one list, one watch: {:#?}",
        device.sim.faults().requests()
    );
    device.pass(Duration::from_hours(1)).await;
    let after = device.sim.faults().count("GET", lease) - before;
    assert!((6..=7).contains(&after), "{after} requests an hour");
    assert_eq!(lists(&device), 1);
}

const CONFIG: &str = "persist/status/zedkube/KubeConfig/global.json";
const RECORD: &str = "persist/status/zedkube/K3sUpdate/global.json";
const FILE: &str = "persist/vault/k3s-user-override.yaml";
const REQUEST: &str = "run/zedkube/NodeDrainRequest/global.json";
const BEFORE: &str = "v1.32.1+k3s1";
const AFTER: &str = "v1.33.4+k3s1";
const K3S: Requester = Requester::K3sUpdate;

async fn wants(device: &mut Device, version: &str, file: &str) {
    let text = ConfigItemValue::text;
    let map = ConfigItemValueMap::of([text("k3s.version", version), text("k3s.config.override", file)]);
    let text = String::from_utf8(go_json::to_vec(&map).unwrap()).unwrap();
    device.change(|it| it.write("run/zedagent/ConfigItemValueMap/global.json", &text)).await;
}

fn published(device: &Device) -> KubeConfig {
    go_json::from_slice(device.text(CONFIG).unwrap().as_bytes()).unwrap()
}

fn stage(device: &Device) -> K3sStage {
    let record: K3sUpdate = go_json::from_slice(device.text(RECORD).unwrap().as_bytes()).unwrap();
    record.stage
}

/// The kube container has replaced k3s.
fn runs(device: &Device, version: &str) {
    device.sim.edit("nodes", "", "n1", |it| it["status"]["nodeInfo"]["kubeletVersion"] = version.into());
}

/// A node whose kube container was told a version by an earlier zedkube, and other things.
async fn node() -> Device {
    let mut device = Device::new().await;
    std::fs::create_dir_all(device.topic_root.path("persist/vault")).unwrap();
    std::fs::create_dir_all(device.topic_root.path("run/zedkube/NodeDrainRequest")).unwrap();
    let earlier = json!({ "K3sVersion": BEFORE, "VmiDescheduleEvents": { "OnBoot": true } }).to_string();
    device.write(CONFIG, &earlier);
    runs(&device, BEFORE);
    device.start().await;
    device
}

#[tokio::test(start_paused = true)]
async fn d_v35_another_k3s_waits_for_the_drain_and_the_turn_ends_with_the_kubelets_word() {
    let mut device = node().await;
    wants(&mut device, BEFORE, "").await;
    assert_eq!(device.text(RECORD), None, "what is equal is no update");
    wants(&mut device, AFTER, "").await;
    device.until(DrainStatus::Cordoned, K3S, 1).await;
    assert_eq!((published(&device).k3s_version.as_str(), stage(&device)), (BEFORE, K3sStage::Waiting));
    assert!(device.text(REQUEST).unwrap().contains("k3s v1.33.4+k3s1"));
    device.until(DrainStatus::Complete, K3S, 1).await;
    device.until_line("handed to the kube container", 1).await;
    device.rest().await;
    assert_eq!(device.pods_to_leave(), [""; 0]);
    let config = published(&device);
    assert_eq!((config.k3s_version.as_str(), config.vmi_deschedule_events.on_boot), (AFTER, true));
    assert_eq!((device.cordoned(), stage(&device)), (true, K3sStage::Applied));
    device.pass(Duration::from_mins(5)).await;
    assert!(
        device.cordoned() && device.progress().reason.contains("reports v1.32.1"),
        "{:?}",
        device.progress()
    );
    runs(&device, AFTER);
    device.pass(Duration::from_mins(5)).await;
    assert_eq!((device.cordoned(), stage(&device)), (false, K3sStage::Done));
    assert_eq!((device.status(), device.text(REQUEST)), (status(2, 1), None));
    assert_eq!(device.turns().unwrap(), "[]");
}

#[tokio::test(start_paused = true)]
async fn an_override_file_takes_a_turn_and_leaves_the_pods_where_they_are() {
    let mut device = node().await;
    let before = device.pods_to_leave();
    // Another node holds the turn.
    device.other_is_down();
    wants(&mut device, BEFORE, "ZGVidWc6IHRydWUK").await;
    device.pass(Duration::from_secs(50)).await;
    assert_eq!(device.text(FILE), None);
    assert!(device.progress().reason.contains("node n2 holds a turn"), "{}", device.progress().reason);
    device.sim.edit("coordination/leases", "eve-kube-app", "pillar-rs-outage", |it| {
        it["metadata"]["annotations"]["pillar-rs/outage-holders"] = "[]".into();
    });
    device.until(DrainStatus::Complete, K3S, 1).await;
    device.until_line("handed to the kube container", 1).await;
    device.rest().await;
    assert_eq!(device.text(FILE).as_deref(), Some("debug: true\n"));
    assert_eq!((device.cordoned(), device.pods_to_leave()), (false, before.clone()));
    let held = device.turns().unwrap();
    assert!(held.contains(r#""op":"k3s-update""#), "{held}");
    device.pass(Duration::from_mins(5)).await;
    assert_eq!(stage(&device), K3sStage::Done);
    assert_eq!(device.turns().unwrap(), "[]");
    assert_eq!(device.pods_to_leave(), before);
    wants(&mut device, BEFORE, "").await;
    device.until_line("handed to the kube container", 2).await;
    device.rest().await;
    assert_eq!(device.text(FILE), None);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_not_carried_out_keeps_its_turn_as_failed_also_over_a_boot() {
    let mut device = node().await;
    wants(&mut device, AFTER, "").await;
    device.until_line("this node keeps its turn", 1).await;
    device.rest().await;
    assert!(device.cordoned() && published(&device).k3s_version == AFTER);
    let progress = device.progress();
    assert!(progress.reason.contains("the update of k3s has failed"), "{}", progress.reason);
    assert!(progress.next_step.contains("set k3s.version back to"), "{}", progress.next_step);
    let holders = |device: &Device| device.turns().unwrap();
    assert!(holders(&device).contains(r#""phase":"failed""#), "{}", holders(&device));
    device.kill().await;
    device.reboot();
    assert!(std::fs::remove_file(device.topic_root.path(REQUEST)).is_ok());
    device.start().await;
    wants(&mut device, AFTER, "").await;
    device.pass(Duration::from_mins(20)).await;
    assert!(holders(&device).contains(r#""node":"n1""#), "{}", holders(&device));
    assert_eq!((device.text(REQUEST), device.cordoned()), (None, false));
    // Set back, nothing has to restart.
    wants(&mut device, BEFORE, "").await;
    device.pass(Duration::from_mins(5)).await;
    assert_eq!((published(&device).k3s_version.as_str(), stage(&device)), (BEFORE, K3sStage::Done));
    assert_eq!(holders(&device), "[]");
}

const ELECTION: &str = "run/zedkube/KubeLeaderElectInfo";
/// Topics of side duties, by directory.
const TOPICS: [&str; 9] = [
    ELECTION,
    "run/zedkube/KubeUserServices",
    "run/zedkube/KubeClusterInfo",
    "run/zedkube/KubeStatsState",
    "run/zedkube/ENClusterAppStatus",
    "run/zedkube/AppLogMarks",
    "run/zedkube/EdgeNodeClusterStatus",
    "persist/status/zedkube/NodeLeave",
    // What the kube container reads.
    "persist/status/zedkube/KubeConfig",
];

/// A member whose config is fetched: it would lead. nim runs, so ports are opened.
async fn device() -> Device {
    let device = Device::new().await;
    std::fs::create_dir_all(device.topic_root.path("run/nim/DeviceNetworkStatus")).unwrap();
    device.write("run/nim/DeviceNetworkStatus/global.json", &json!({ "Ports": [] }).to_string());
    device.fetched(1);
    device
}

/// How long a drain takes, from the request to COMPLETE.
async fn drain(device: &mut Device, nth: u64) -> Duration {
    let began = device.now();
    device.ask(US, nth).await;
    device.until(DrainStatus::Complete, US, 1).await;
    device.now().since(began)
}

async fn without_trouble() -> Duration {
    let mut device = device().await;
    device.start_for(Duration::from_mins(5)).await;
    drain(&mut device, 1).await
}

/// A file stands where the topic's directory was or is to be.
fn replaced(device: &Device, topic: &str) {
    let at = device.topic_root.path(topic);
    if at.exists() {
        std::fs::remove_dir_all(&at).unwrap();
    }
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    pubsub::store::replace(&at, b"in the way").unwrap();
}

fn held(device: &Device, topic: &str) -> Publication<Value> {
    let (folder, name) = topic.rsplit_once('/').unwrap();
    let name = if folder.starts_with("persist") {
        Name::persistent("zedkube", name)
    } else {
        Name::volatile("zedkube", name)
    };
    let codec = Codec {
        encode: |value: &Value| Ok(value.to_string().into_bytes()),
        decode: |bytes| Ok(serde_json::from_slice(bytes)?),
    };
    device.topic_root.publication(name, codec).unwrap()
}

#[tokio::test(start_paused = true)]
async fn k5_a_side_duty_whose_topic_cannot_be_had_from_the_start_on_neither_ends_nor_delays_a_drain() {
    let usual = without_trouble().await;
    for topic in TOPICS {
        for locked in [false, true] {
            let case = format!("{topic}, {}", if locked { "locked" } else { "replaced by a file" });
            let mut device = device().await;
            let lock = if locked {
                Some(held(&device, topic))
            } else {
                replaced(&device, topic);
                None
            };
            device.start_for(Duration::from_mins(5)).await;
            let took = drain(&mut device, 1).await;
            assert!(took <= usual + Duration::from_secs(1), "{case}: {took:?}, without {usual:?}");
            let said = ["is restarted", "what=\"NodeLeave global\"", "what=\"KubeConfig\""];
            let said: usize = said.iter().map(|it| device.diary.count(it)).sum();
            assert!((1..=2).contains(&said), "{case}: {said} lines\n{:#?}", device.diary.lines());
            drop(lock);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k5_a_side_duty_whose_directory_is_lost_on_the_way_neither_ends_nor_delays_a_drain() {
    let usual = without_trouble().await;
    for topic in TOPICS {
        let mut device = device().await;
        device.start_for(Duration::from_mins(5)).await;
        device.change(|device| replaced(device, topic)).await;
        let took = drain(&mut device, 1).await;
        // The hand-over of the lease may take its five seconds, where the election itself is struck.
        let more = if topic == ELECTION { 5 } else { 1 };
        assert!(took <= usual + Duration::from_secs(more), "{topic}: {took:?}, without {usual:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k5_an_election_that_could_not_begin_begins_once_its_topic_can_be_had() {
    let mut device = device().await;
    replaced(&device, ELECTION);
    device.start_for(Duration::from_mins(10)).await;
    assert_eq!(device.diary.count("election"), 1, "said once: {:#?}", device.diary.lines());
    std::fs::remove_file(device.topic_root.path(ELECTION)).unwrap();
    let began = device.now();
    device.until_line("leader election: this node leads lease", 1).await;
    assert!(device.now().since(began) < Duration::from_mins(2), "{:?}", device.now().since(began));
    // The drain's word from before the election could begin has not been lost.
    drain(&mut device, 1).await;
    assert_eq!(device.diary.count("leader election: lease released"), 1);
}

#[tokio::test(start_paused = true)]
async fn k5_a_status_server_whose_port_is_taken_or_whose_clients_are_slow_neither_ends_nor_delays_a_drain() {
    let usual = without_trouble().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [taken.local_addr().unwrap().port(), 0] {
        let mut device = device().await;
        device.limits.server_port = port;
        device.limits.server_addresses = vec![Ipv4Addr::LOCALHOST.into()];
        device.start_for(Duration::from_mins(5)).await;
        let listens = |it: &crate::diary::Line| it.text.contains("status server listens");
        let lines = device.diary.lines();
        let line = lines.iter().rev().find(|it| listens(it));
        assert_eq!(line.is_some(), port == 0, "{lines:#?}");
        // More of them than it has places for one address, and none asks for anything.
        let address = line.and_then(|it| it.text.split("127.0.0.1:").nth(1)).map(|rest| {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()))
        });
        let slow: Vec<TcpStream> = address
            .into_iter()
            .flat_map(|at| (0..24).map(move |_| TcpStream::connect(at).unwrap()))
            .collect();
        let took = drain(&mut device, 1).await;
        assert!(took <= usual + Duration::from_secs(1), "{port}: {took:?}, without {usual:?}");
        drop(slow);
    }
}

/// A device at rest whose Node shows its drain, or does not.
async fn reporting(node_report: bool) -> Device {
    let mut device = Device::new().await;
    device.limits = Limits { node_report, ..limits() };
    device.start().await;
    device
}

fn shown(device: &Device) -> (String, String) {
    let node = device.sim.get("nodes", "", "n1").unwrap();
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ours = all.into_iter().find(|it| it["type"] == "pillar-rs/Drained").unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    (text(&ours["status"]), text(&ours["reason"]))
}

fn reasons(device: &Device) -> Vec<String> {
    let mut all: Vec<String> =
        device.sim.list("events").iter().map(|it| it["reason"].as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn o3_a_whole_drain_is_shown_over_restarts_and_the_boot_and_each_thing_once() {
    let mut device = reporting(true).await;
    device.pass(Duration::from_secs(10)).await;
    assert_eq!(shown(&device), pair("False", "InService"));
    device.ask_blocked(US).await;
    device.pass(Duration::from_secs(20)).await;
    assert_eq!(shown(&device), pair("False", "Blocked"));
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainStarted"]);
    // The next run says nothing again.
    device.restart().await;
    device.pass(Duration::from_secs(60)).await;
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainStarted"]);
    assert!(device.sim.list("events").iter().all(|it| it["count"] == 1));
    device.block(false);
    device.until(DrainStatus::Complete, US, 1).await;
    device.pass(Duration::from_secs(10)).await;
    assert_eq!(shown(&device), pair("True", "Drained"));
    device.kill().await;
    device.reboot();
    device.start_for(Duration::from_mins(10)).await;
    assert!(!device.cordoned());
    assert_eq!(shown(&device), pair("False", "InService"));
    assert_eq!(reasons(&device), ["DrainBlocked", "DrainComplete", "DrainStarted", "Uncordoned"]);
}

#[tokio::test(start_paused = true)]
async fn o7_a_drain_that_stays_blocked_is_warned_of_once_in_log_event_and_condition() {
    let mut device = reporting(true).await;
    device.ask_blocked(US).await;
    device.pass(Duration::from_mins(9)).await;
    assert_eq!(device.diary.count("is stalled"), 0);
    device.pass(Duration::from_hours(1)).await;
    assert_eq!(device.diary.count("the drain of this node is stalled: no progress for 10 min"), 1);
    assert_eq!(shown(&device), pair("False", "Stalled"));
    let events = device.sim.list("events");
    let stalled: Vec<_> = events.iter().filter(|it| it["reason"] == "DrainStalled").collect();
    assert!(stalled.len() == 1 && stalled[0]["count"] == 1, "{stalled:?}");
    let text = stalled[0]["message"].as_str().unwrap();
    assert!(text.contains("shop/web") && text.contains("; "), "what, and what to do: {text}");
}

/// How long a drain takes and what it asks, but for what the Node shows, when that is answered so.
async fn course(node_report: bool, fault: Option<ScriptedFault>) -> (Duration, Vec<String>) {
    let mut device = reporting(node_report).await;
    for path in ["/nodes/n1/status", "/namespaces/default/events"] {
        for method in ["POST", "PATCH"] {
            if let Some(fault) = &fault {
                device.sim.faults().script(method, path, u32::MAX, fault.clone());
            }
        }
    }
    device.pass(Duration::from_secs(60)).await;
    let before = device.sim.faults().requests().len();
    let began = device.now();
    device.drained(1).await;
    let took = device.now().since(began);
    let seen = device.sim.faults().requests();
    let beside =
        |uri: &str| uri.contains("/status?") || uri.contains("/events") || uri == "/api/v1/nodes/n1?";
    let writes = seen[before..].iter().filter(|it| it.method != "GET" && !beside(&it.uri));
    let mut writes: Vec<String> = writes.map(|it| format!("{} {}", it.method, it.uri)).collect();
    // A cordon is written again where another write of the Node was faster: it is one.
    writes.dedup_by(|one, other| one == other && one.starts_with("PATCH /api/v1/nodes/n1?"));
    (took, writes)
}

#[tokio::test(start_paused = true)]
async fn o3_the_drain_takes_no_longer_and_writes_no_more_whatever_becomes_of_it() {
    let without = course(false, None).await;
    for fault in [
        None,
        Some(ScriptedFault::Hang),
        Some(ScriptedFault::status(403, "Forbidden")),
        Some(ScriptedFault::status(429, "TooManyRequests")),
    ] {
        let with = course(true, fault.clone()).await;
        assert_eq!(with.1.len(), without.1.len(), "writes of the drain: {fault:?}: {:#?}", with.1);
        let more = with.0.saturating_sub(without.0);
        assert!(more < Duration::from_millis(50), "{fault:?}: {:?} and {:?}", with.0, without.0);
    }
}
