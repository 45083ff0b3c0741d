//! Side duties that fail: each restarts on its own, and the drain takes no notice (goal K5).

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use pubsub::{Codec, Name, Publication};
use serde_json::{Value, json};
use topics::DrainStatus;

use crate::device::{Device, US};

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
    device.start().await;
    device.pass(Duration::from_mins(5)).await;
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
            device.start().await;
            device.pass(Duration::from_mins(5)).await;
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
        device.start().await;
        device.pass(Duration::from_mins(5)).await;
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
    device.start().await;
    device.pass(Duration::from_mins(10)).await;
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
        device.start().await;
        device.pass(Duration::from_mins(5)).await;
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
