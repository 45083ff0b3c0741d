//! Keepers of several nodes against one embedded API server: at no time is more than one node between cordon and
//! schedulable, and all get their turn.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kubeapi::{ApiClient, NodeName, nodes::MachineIds};
use kubesim::{Etcd, EtcdFault, ScriptedFault, Sim, SimConfig};
use outage::Ours;
use outage::calls::follow;
use outage::keeper::{Ask, KeeperReport, TurnRequest, keep};
use outage::margin::calls::{Addresses, EtcdAccess, EtcdSettings};
use outage::margin::facts::Paths;
use outage::turn::event::{TurnState, TurnWait, Unconfirmed};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::TurnRule;
use serde_json::{Value, json};
use step::Mono;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

#[path = "keepers/machine.rs"]
mod machine;
#[path = "keepers/restored.rs"]
mod restored;

const NODES: usize = 5;
const DOWN: Duration = Duration::from_secs(90);
const SETTINGS: EtcdSettings = EtcdSettings { metrics: "m", gateway: "g", data: "d" };
const WALL: Timestamp = Timestamp::UNIX_EPOCH;

fn sim() -> Sim {
    let sim = Sim::new(SimConfig::default());
    for nth in 0..NODES {
        sim.add_node(&format!("n{nth}"), &format!("uuid-{nth}"));
    }
    sim
}

fn now(start: Instant) -> Mono {
    Mono::from_start(start.elapsed())
}

#[expect(clippy::disallowed_methods, reason = "the paused clock of a test")]
fn start() -> Instant {
    Instant::now()
}

/// A keeper of this node: what it is asked, and what it says.
fn keeper(
    sim: &Sim,
    nth: usize,
    begun: Instant,
    tasks: &mut JoinSet<()>,
) -> (mpsc::UnboundedSender<Ask>, Reports) {
    let nowhere = EtcdAccess {
        addresses: Addresses::default(),
        paths: Paths::usual(std::path::Path::new("/nonexistent")),
        settings: SETTINGS,
    };
    keeper_with(sim, nth, begun, nowhere, tasks)
}

fn keeper_with(
    sim: &Sim,
    nth: usize,
    begun: Instant,
    etcd: EtcdAccess,
    tasks: &mut JoinSet<()>,
) -> (mpsc::UnboundedSender<Ask>, Reports) {
    let id = |of: &str| format!("{of}-{nth}");
    let machine = MachineIds { boot: id("boot"), machine: id("machine"), system: id("system") };
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default")).on_machine(machine);
    let (asks, mut asked) = mpsc::unbounded_channel();
    let (says, told) = mpsc::unbounded_channel();
    let ours = Ours {
        node: NodeName::parse(&format!("n{nth}")).unwrap(),
        device_uuid: format!("uuid-{nth}"),
        boot_id: format!("boot-{nth}"),
        etcd,
        port: 0,
    };
    tasks.spawn(async move {
        let (leases, lease) = watch::channel(None);
        tokio::select! {
            () = keep(&cluster, &ours, &lease, (|| now(begun), || WALL), &mut asked, &says) => {}
            () = follow(&cluster, &leases) => {}
        }
    });
    (asks, told)
}

fn reboot() -> Ask {
    Ask::Want(Some(TurnRequest { op: Op::Reboot, counter: 1, emergency: false, fit: true }))
}

fn cordon(sim: &Sim, nth: usize, held: Option<(u32, String)>) {
    sim.edit("nodes", "", &format!("n{nth}"), |node| {
        node["spec"]["unschedulable"] = json!(held.is_some());
        let mark = held.map_or(Value::Null, |(fence, uid)| {
            json!({ "bootId": format!("boot-{nth}"), "requestedBy": 2, "requestedAt": "t", "fence": fence,
                "leaseUid": uid })
            .to_string()
            .into()
        });
        node["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark;
    });
}

type Reports = mpsc::UnboundedReceiver<KeeperReport>;

/// Takes what a keeper says until this is said.
async fn until<T>(told: &mut Reports, wanted: impl Fn(KeeperReport) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(told.recv().await.unwrap()) {
            return found;
        }
    }
}

async fn until_held(told: &mut Reports) -> (u32, String) {
    until(told, |report| {
        let KeeperReport::TurnState(TurnState::Held { fence, lease_uid, .. }) = report else { return None };
        Some((fence, lease_uid))
    })
    .await
}

/// Why it waits, and gets no turn before.
async fn until_waiting(told: &mut Reports, wanted: impl Fn(&TurnWait) -> bool) -> String {
    until(told, |report| {
        assert!(!matches!(report, KeeperReport::TurnState(TurnState::Held { .. })), "it has a turn");
        let KeeperReport::TurnState(TurnState::Waiting(it)) = report else { return None };
        wanted(&it).then_some(it.why)
    })
    .await
}

async fn give_back(asks: &mpsc::UnboundedSender<Ask>, told: &mut Reports) {
    asks.send(Ask::Want(None)).unwrap();
    until(told, |it| matches!(it, KeeperReport::TurnState(TurnState::NotWanted { .. })).then_some(())).await;
}

async fn confirmed(asks: &mpsc::UnboundedSender<Ask>, told: &mut Reports) {
    asks.send(Ask::Confirm).unwrap();
    until(told, |it| (it == KeeperReport::Confirmed(Ok(()))).then_some(())).await;
}

/// What the last look of this number shows.
async fn look(asks: &mpsc::UnboundedSender<Ask>, told: &mut Reports, number: u64) -> Result<(), Unconfirmed> {
    asks.send(Ask::LastLook(number)).unwrap();
    until(told, |report| {
        let KeeperReport::LookedLast(answered, result) = report else { return None };
        (answered == number).then_some(result)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn u1_u5_of_nodes_that_are_told_together_one_is_down_at_a_time_and_all_come_to_their_turn() {
    let sim = sim();
    // Until all are Ready.
    sleep(Duration::from_secs(60)).await;
    let begun = start();
    let mut keepers = JoinSet::new();
    let mut nodes = JoinSet::new();
    let down = Arc::new(AtomicUsize::new(0));
    for nth in 0..NODES {
        let (asks, mut told) = keeper(&sim, nth, begun, &mut keepers);
        let (sim, down) = (sim.clone(), Arc::clone(&down));
        nodes.spawn(async move {
            asks.send(reboot()).unwrap();
            let held = until_held(&mut told).await;
            let fence = held.0;
            cordon(&sim, nth, Some(held));
            confirmed(&asks, &mut told).await;
            assert_eq!(down.fetch_add(1, Ordering::SeqCst), 0, "two nodes are down");
            sleep(DOWN).await;
            down.fetch_sub(1, Ordering::SeqCst);
            cordon(&sim, nth, None);
            give_back(&asks, &mut told).await;
            // The keeper stays as long as its node asks.
            (asks, fence)
        });
    }
    let mut fences: Vec<u32> = nodes.join_all().await.into_iter().map(|(_, fence)| fence).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), NODES, "each grant has a number of its own: {fences:?}");
    // The first one waits until each other kubelet has renewed its lease, which it does every 10 s.
    let floor = DOWN * u32::try_from(NODES).unwrap() + Duration::from_secs(10 + 4);
    let took = now(begun).since_start();
    assert!(
        took < floor + Duration::from_secs(2 * NODES as u64),
        "{took:?}: a free turn is taken within 2 s"
    );
}

#[tokio::test(start_paused = true)]
async fn u12_waiting_costs_no_request_but_one_watch_far_back_in_the_queue() {
    let sim = sim();
    sleep(Duration::from_secs(60)).await;
    let begun = start();
    let mut keepers = JoinSet::new();
    let mut all = Vec::new();
    for nth in 0..NODES {
        let (asks, mut told) = keeper(&sim, nth, begun, &mut keepers);
        asks.send(reboot()).unwrap();
        if nth == 0 {
            let held = until_held(&mut told).await;
            cordon(&sim, nth, Some(held));
        } else {
            until_waiting(&mut told, |it| it.place.is_some()).await;
        }
        all.push((asks, told));
    }
    sleep(Duration::from_secs(60)).await;
    // The last one alone: those nearer to the front look at the nodes now and then.
    for (asks, _) in all.drain(..NODES - 1) {
        drop(asks);
    }
    sleep(Duration::from_secs(1)).await;
    let before = sim.faults().requests().len();
    sleep(Duration::from_secs(480)).await;
    let seen = sim.faults().requests();
    let asked: Vec<&str> = seen[before..].iter().map(|it| it.uri.split('?').next().unwrap()).collect();
    assert!(asked.len() <= 2 && asked.iter().all(|it| it.ends_with("/leases")), "{asked:?}");
    drop(all);
}

/// Three servers with embedded etcd, of which the first leads; what node `n0` needs of it.
async fn servers(root: &std::path::Path) -> (Sim, Etcd, EtcdAccess) {
    some_servers(root, &["n0", "n1", "n2"]).await
}

async fn some_servers(root: &std::path::Path, names: &[&str]) -> (Sim, Etcd, EtcdAccess) {
    // These run in real time, beside etcd's sockets: that all kubelets live shows soon.
    let sim = Sim::new(SimConfig { renew_every: Duration::from_millis(100), ..SimConfig::default() });
    let etcd = Etcd::start(names).await.unwrap();
    for (nth, name) in names.iter().enumerate() {
        sim.add_node(name, &format!("uuid-{nth}"));
        sim.edit("nodes", "", name, |node| {
            node["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = json!("true");
            node["metadata"]["annotations"]["etcd.k3s.cattle.io/node-name"] = etcd.member_name(name).into();
            let voter = json!({ "type": "EtcdIsVoter", "status": "True", "reason": "MemberNotLearner" });
            let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
            node["status"]["conditions"] = json!([voter, ready]);
        });
    }
    std::fs::create_dir_all(root.join("k3s/server/db/etcd")).unwrap();
    let source = source(root, &etcd, "n0");
    (sim, etcd, source)
}

fn source(root: &std::path::Path, etcd: &Etcd, node: &str) -> EtcdAccess {
    EtcdAccess {
        addresses: Addresses { metrics: etcd.metrics_url(node), gateway: etcd.gateway_url(node) },
        paths: Paths::at(&root.join("k3s")),
        settings: SETTINGS,
    }
}

#[tokio::test]
async fn u3_a_server_waits_while_etcd_cannot_spare_it_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let (sim, etcd, source) = servers(root.path()).await;
    etcd.script("n2", &[EtcdFault::Down]);
    let mut keepers = JoinSet::new();
    let (asks, mut told) = keeper_with(&sim, 0, start(), source, &mut keepers);
    asks.send(reboot()).unwrap();
    let why = until_waiting(&mut told, |it| it.rule == TurnRule::Margin).await;
    assert!(why.contains("2 of 3 etcd voters are healthy"), "{why}");
}

/// The class of each waiting node, as the Lease says.
fn classes(sim: &Sim) -> Vec<(String, String)> {
    let lease = sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage");
    let queue = lease.map(|it| it["metadata"]["annotations"]["pillar-rs/outage-queue"].clone());
    let queue =
        queue.and_then(|it| serde_json::from_str::<Vec<Value>>(it.as_str()?).ok()).unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let mut all: Vec<_> = queue.iter().map(|it| (text(&it["node"]), text(&it["class"]))).collect();
    all.sort();
    all
}

async fn until_classes(sim: &Sim, wanted: [&str; 2]) {
    let wanted = [("n0", wanted[0]), ("n1", wanted[1])].map(|(node, it)| (node.to_owned(), it.to_owned()));
    let there = async {
        while classes(sim) != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(20), there).await;
    assert!(came.is_ok(), "{:?}", classes(sim));
}

#[tokio::test]
async fn u4_of_three_servers_that_are_told_together_the_one_that_leads_etcd_goes_last_and_the_lead_moves_once()
 {
    let root = tempfile::tempdir().unwrap();
    let (sim, etcd, _) = servers(root.path()).await;
    let etcd = Arc::new(etcd);
    assert_eq!(etcd.leader().as_deref(), Some("n0"));
    // Nobody goes before all have asked: a worker is in its turn.
    sim.add_node("n3", "uuid-3");
    sim.edit("nodes", "", "n3", |node| {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
        node["status"]["conditions"] = json!([ready]);
        node["metadata"]["labels"].as_object_mut().unwrap().retain(|it, _| !it.starts_with("node-role"));
    });
    let (mut keepers, mut nodes) = (JoinSet::new(), JoinSet::new());
    let (first, mut told) = keeper(&sim, 3, start(), &mut keepers);
    first.send(reboot()).unwrap();
    until_held(&mut told).await;
    let went = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for nth in 0..3 {
        let name = format!("n{nth}");
        let (asks, mut told) =
            keeper_with(&sim, nth, start(), source(root.path(), &etcd, &name), &mut keepers);
        asks.send(reboot()).unwrap();
        until_waiting(&mut told, |it| it.place.is_some()).await;
        waiting.push((nth, asks, told));
    }
    assert_eq!(classes(&sim)[0], ("n0".to_owned(), "leader".to_owned()));
    for (nth, asks, mut told) in waiting {
        let (sim, went, etcd) = (sim.clone(), Arc::clone(&went), Arc::clone(&etcd));
        nodes.spawn(async move {
            let held = until_held(&mut told).await;
            let name = format!("n{nth}");
            cordon(&sim, nth, Some(held));
            went.lock().unwrap().push((name.clone(), etcd.leader().unwrap()));
            asks.send(Ask::Phase(Phase::Drained)).unwrap();
            while etcd.leader().as_ref() == Some(&name) {
                sleep(Duration::from_millis(1)).await;
            }
            // Its turn is its own as before.
            confirmed(&asks, &mut told).await;
            cordon(&sim, nth, None);
            give_back(&asks, &mut told).await;
            asks
        });
    }
    first.send(Ask::Want(None)).unwrap();
    let asks = tokio::time::timeout(Duration::from_secs(60), nodes.join_all()).await.unwrap();
    drop(asks);
    let went = went.lock().unwrap().clone();
    assert_eq!(went.iter().map(|it| it.1.as_str()).collect::<Vec<_>>(), ["n0", "n0", "n0"], "{went:?}");
    assert_eq!(went[2].0, "n0", "{went:?}");
    assert_ne!(etcd.leader().as_deref(), Some("n0"));
}

#[tokio::test]
async fn u4_a_lead_that_moves_while_servers_wait_is_seen_in_the_queue() {
    let root = tempfile::tempdir().unwrap();
    let (sim, etcd, _) = servers(root.path()).await;
    let mut keepers = JoinSet::new();
    let (first, mut told) = keeper_with(&sim, 2, start(), source(root.path(), &etcd, "n2"), &mut keepers);
    first.send(reboot()).unwrap();
    until_held(&mut told).await;
    let mut waiting = Vec::new();
    for nth in 0..2 {
        let source = source(root.path(), &etcd, &format!("n{nth}"));
        let (asks, told) = keeper_with(&sim, nth, start(), source, &mut keepers);
        asks.send(reboot()).unwrap();
        waiting.push((asks, told));
    }
    until_classes(&sim, ["leader", "follower"]).await;
    etcd.script("n0", &[EtcdFault::Isolated]);
    assert_eq!(etcd.leader().as_deref(), Some("n1"));
    etcd.script("n0", &[]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    until_classes(&sim, ["follower", "leader"]).await;
}

#[tokio::test]
async fn u3_at_the_last_look_a_server_reads_etcd_again_and_without_the_api_it_goes_by_etcd_alone() {
    for (names, alone_goes) in [(&["n0", "n1", "n2"][..], false), (&["n0"][..], true)] {
        let root = tempfile::tempdir().unwrap();
        let (sim, etcd, source) = some_servers(root.path(), names).await;
        if alone_goes {
            // A worker beside it: the node is not the only one.
            sim.add_node("w", "uuid-w");
            sim.until("nodes", |all| all.iter().all(|it| it["status"]["conditions"][0]["status"] == "True"))
                .await;
        }
        let mut keepers = JoinSet::new();
        let (asks, mut told) = keeper_with(&sim, 0, start(), source, &mut keepers);
        asks.send(reboot()).unwrap();
        let held = until_held(&mut told).await;
        cordon(&sim, 0, Some(held));
        let mut look = async |number| look(&asks, &mut told, number).await;
        assert_eq!(look(1).await, Ok(()), "{names:?}");
        if !alone_goes {
            etcd.script("n2", &[EtcdFault::Down]);
            let Err(Unconfirmed::NoMargin(why)) = look(2).await else { panic!("a look without margin") };
            assert!(why.contains("2 of 3 etcd voters are healthy"), "{why}");
            etcd.script("n2", &[]);
        }
        for path in ["/apis/coordination.k8s.io", "/api/v1/nodes"] {
            sim.faults().script("GET", path, u32::MAX, ScriptedFault::Cut);
        }
        match look(3).await {
            Err(Unconfirmed::Unreachable { margin: Ok(()), .. }) if alone_goes => {}
            Err(Unconfirmed::Unreachable { margin: Err(why), .. }) if !alone_goes => {
                assert!(why.contains("Kubernetes cannot be asked"), "{why}");
            }
            other => panic!("{names:?}: {other:?}"),
        }
    }
}
