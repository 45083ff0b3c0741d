//! What turns cost a large cluster: one server and N - 1 workers want a reboot in the
//! same moment, five may be down at once.
//!
//! Keepers as they run on a device, one for each node, on one embedded API server and a paused clock; an answer takes 10
//! to 40 ms. For each size: requests, the busiest second, writes that another node was faster for, the time until the
//! last node is back against the floor that the limit allows, memory.
//! `cargo bench -p outage --bench fleet [-- NODES...]`

#![expect(clippy::print_stdout, reason = "a program that measures: it says what it found")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubesim::{Sim, SimConfig};
use outage::Ours;
use outage::calls::follow;
use outage::keeper::{Ask, KeeperReport, TurnRequest, keep};
use outage::margin::calls::{Addresses, EtcdAccess, EtcdSettings};
use outage::margin::facts::Paths;
use outage::turn::event::TurnState;
use outage::turn::record::{LEASE, LIMIT, Op};
use serde_json::{Value, json};
use step::{Dice, Mono};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// How many may be down at once.
const AT_ONCE: u32 = 5;
/// How long a node is down: from its cordon until it is healthy again.
const DOWN: Duration = Duration::from_secs(300);

type Failed = Box<dyn std::error::Error>;

/// What the API server was asked.
#[derive(Debug, Default)]
struct Asked {
    all: u64,
    writes: u64,
    /// Writes of an outdated version.
    refused: u64,
    seconds: BTreeMap<u64, u64>,
}

struct Node {
    name: String,
    asks: mpsc::UnboundedSender<Ask>,
    told: mpsc::UnboundedReceiver<KeeperReport>,
}

impl Node {
    async fn until(&mut self, wanted: impl Fn(&KeeperReport) -> bool) -> Option<KeeperReport> {
        loop {
            let told = self.told.recv().await?;
            if wanted(&told) {
                return Some(told);
            }
        }
    }

    /// Asks, waits, is down for its time, and is back.
    async fn life(mut self, sim: Sim) -> Option<Self> {
        self.asks
            .send(Ask::Want(Some(TurnRequest { op: Op::Reboot, counter: 1, emergency: false, fit: true })))
            .ok()?;
        let held = self.until(|it| matches!(it, KeeperReport::TurnState(TurnState::Held { .. }))).await?;
        let KeeperReport::TurnState(TurnState::Held { fence, lease_uid, .. }) = held else { return None };
        cordon(&sim, &self.name, Some((fence, lease_uid)));
        self.asks.send(Ask::Confirm).ok()?;
        self.until(|it| matches!(it, KeeperReport::Confirmed(Ok(())))).await?;
        sleep(DOWN).await;
        cordon(&sim, &self.name, None);
        self.asks.send(Ask::Want(None)).ok()?;
        self.until(|it| matches!(it, KeeperReport::TurnState(TurnState::NotWanted { .. }))).await?;
        Some(self)
    }
}

fn cordon(sim: &Sim, node: &str, held: Option<(u32, String)>) {
    sim.edit("nodes", "", node, |object| {
        object["spec"]["unschedulable"] = json!(held.is_some());
        let mark = held.map_or(Value::Null, |(fence, uid)| {
            json!({ "bootId": "b", "requestedBy": 2, "requestedAt": "t", "fence": fence, "leaseUid": uid })
                .to_string()
                .into()
        });
        object["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark;
    });
}

/// A way to the API server of its own for each node.
fn cluster(sim: &Sim, nth: u64, begun: Instant, asked: &Arc<Mutex<Asked>>) -> ApiClient {
    let (service, asked) = (sim.service(), Arc::clone(asked));
    let dice = Arc::new(Mutex::new(Dice::new(nth)));
    let way = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, asked, dice) = (service.clone(), Arc::clone(&asked), Arc::clone(&dice));
        async move {
            let late = || {
                let drawn = dice.lock().unwrap_or_else(PoisonError::into_inner).draw() % 16;
                sleep(Duration::from_millis(5 + drawn))
            };
            late().await;
            let writes = request.method() != http::Method::GET;
            let at = begun.elapsed().as_secs();
            let answer = service.oneshot(request).await;
            {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.all += 1;
                asked.writes += u64::from(writes);
                *asked.seconds.entry(at).or_default() += 1;
                asked.refused += u64::from(answer.as_ref().is_ok_and(|it| it.status() == 409));
            }
            late().await;
            answer
        }
    });
    ApiClient::from_client(Client::new(tower::util::BoxCloneService::new(way), "default"))
}

/// Resident memory of this process, in kB.
fn resident() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number in VmRSS")?.parse()?)
}

async fn fleet(size: u32) -> Result<(), Failed> {
    let sim = Sim::new(SimConfig::default());
    for nth in 0..size {
        let name = format!("n{nth}");
        sim.add_node(&name, &format!("uuid-{nth}"));
        if nth > 0 {
            sim.edit("nodes", "", &name, |it| {
                it["metadata"]["labels"] = json!({ "node-uuid": format!("uuid-{nth}") });
            });
        }
    }
    sim.apply(
        "coordination/leases",
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": LEASE, "namespace": "eve-kube-app",
                "annotations": { (LIMIT): AT_ONCE.to_string() } } }),
    );
    // Until all are Ready.
    sleep(Duration::from_secs(60)).await;
    let before = resident()?;
    #[expect(clippy::disallowed_methods, reason = "the paused clock of a simulation")]
    let begun = Instant::now();
    let now = move || Mono::from_start(begun.elapsed());
    let (mut keepers, mut nodes) = (JoinSet::new(), JoinSet::new());
    let asked: Arc<Mutex<Asked>> = Arc::default();
    for nth in 0..size {
        let name = format!("n{nth}");
        let cluster = cluster(&sim, nth.into(), begun, &asked);
        let (asks, mut hears) = mpsc::unbounded_channel();
        let (says, told) = mpsc::unbounded_channel();
        let settings = EtcdSettings { metrics: "m", gateway: "g", data: "d" };
        let paths = Paths::usual(Path::new("/nonexistent"));
        let ours = Ours {
            node: NodeName::parse(&name)?,
            device_uuid: format!("uuid-{nth}"),
            boot_id: "b".to_owned(),
            etcd: EtcdAccess { addresses: Addresses::default(), paths, settings },
            port: 0,
        };
        keepers.spawn(async move {
            let (leases, lease) = watch::channel(None);
            tokio::select! {
                () = keep(&cluster, &ours, &lease, (now, || Timestamp::UNIX_EPOCH), &mut hears, &says) => {}
                () = follow(&cluster, &leases) => {}
            }
        });
        nodes.spawn(Node { name, asks, told }.life(sim.clone()));
    }
    // All wait, or hold.
    sleep(Duration::from_secs(240)).await;
    let memory = resident()?.saturating_sub(before);
    let (queued, refused) = {
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        (asked.all, asked.refused)
    };
    println!("{size:>5} nodes: {queued} requests in the first 240 s, {refused} writes refused; {memory} kB");
    if nodes.join_all().await.iter().any(Option::is_none) {
        return Err("a keeper has ended".into());
    }
    let took = now().since_start();
    let floor = DOWN * size.div_ceil(AT_ONCE);
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let size = f64::from(size);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let [all, writes, refused] = [asked.all, asked.writes, asked.refused].map(|it| it as f64);
    println!(
        "      in all {all}: {:.1} for each node, {:.2} a second, {} in the busiest; {:.2} writes and {:.2} refused for \
         each grant; done after {} s, {:.3} of the floor",
        all / size,
        all / took.as_secs_f64(),
        asked.seconds.values().max().copied().unwrap_or_default(),
        writes / size,
        refused / size,
        took.as_secs(),
        took.as_secs_f64() / floor.as_secs_f64(),
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Failed> {
    let mut sizes = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .map(|it| it.parse())
        .collect::<Result<Vec<u32>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![5, 50, 500];
    }
    for size in sizes {
        fleet(size).await?;
    }
    Ok(())
}
