//! The network between the agents of the nodes: each asks all others by a door of its own in front of each, which answers
//! nothing while the two are cut or the other one has no power.
//!
//! A cut in one direction is one in both here: no connection is made without the answer to its first packet.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubesim::Sim;
use scenarios::World;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the paused clock may lose while bytes are on their way.
const TICK: Duration = Duration::from_millis(100);

type Pairs = Arc<Mutex<BTreeSet<[usize; 2]>>>;

pub(super) struct Links {
    cut: Pairs,
    /// Where the agent of each node listens.
    pub(super) own: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
}

impl Links {
    /// Between agents that do not run yet. Must be called inside a tokio runtime.
    pub(super) async fn between(worlds: &[World]) -> Self {
        let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
        let address = |nth: u8| IpAddr::from([127, 1 + a % 250, b, 1 + nth]);
        let addresses: Vec<IpAddr> = (0..).take(worlds.len()).map(address).collect();
        let (mut own, mut doors, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for (from, at) in addresses.iter().enumerate() {
            let held = TcpListener::bind((*at, 0)).await.unwrap();
            own.push(held.local_addr().unwrap());
            for (to, other) in addresses.iter().enumerate().filter(|(to, _)| *to != from) {
                doors.push(([from, to], TcpListener::bind((*other, own[from].port())).await.unwrap()));
            }
        }
        let cut = Pairs::default();
        for (pair, door) in doors {
            let (name, sim) =
                (worlds[pair[1]].cluster.device_name().to_owned(), worlds[0].cluster.sim().clone());
            sim.edit("nodes", "", &name, |it| {
                let address = json!({ "type": "InternalIP", "address": own[pair[1]].ip() });
                it["status"]["addresses"] = json!([address]);
            });
            tasks.spawn(serve(door, own[pair[1]], (cut.clone(), pair), (sim, name)));
        }
        tasks.spawn(async {
            loop {
                tokio::time::sleep(TICK).await;
            }
        });
        Self { cut, own, _tasks: tasks }
    }

    /// Nothing passes between it and these, or all does again.
    pub(super) fn cut(&self, of: usize, peers: &[usize], is_cut: bool) {
        for pair in peers.iter().flat_map(|peer| [[of, *peer], [*peer, of]]) {
            let mut cut = self.cut.lock().unwrap();
            let _ = if is_cut { cut.insert(pair) } else { cut.remove(&pair) };
        }
    }
}

async fn serve(
    door: TcpListener,
    agent: SocketAddr,
    (cut, pair): (Pairs, [usize; 2]),
    (sim, name): (Sim, String),
) {
    let (mut silent, mut passing) = (Vec::new(), JoinSet::new());
    loop {
        let mut asker = door.accept().await.unwrap().0;
        let power = sim.get("nodes", "", &name).unwrap_or_default()["metadata"]["annotations"]["kubesim/power"]
            != "off";
        if !power || cut.lock().unwrap().contains(&pair) {
            silent.push(asker);
            continue;
        }
        passing.spawn(async move {
            // Where its agent does not run, the connection is cut.
            if let Ok(mut agent) = TcpStream::connect(agent).await {
                drop(copy_bidirectional(&mut asker, &mut agent).await);
            }
        });
        while passing.try_join_next().is_some() {}
    }
}
