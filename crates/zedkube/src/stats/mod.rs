//! `KubeClusterInfo`: the cluster as its leader reports it, from watches.
//!
//! Not here: who leads (`leader`), how objects are read (`kubeops::stats`). Pure: `fold`, `storage`, `fit`, `rhythm`,
//! `told`; `board` writes, `task` waits. Sources: spec/agents.md 4.11, goals L2 and L6.

mod board;
mod fit;
mod fold;
mod rhythm;
mod storage;
mod task;
mod told;

pub use board::Board;
pub use rhythm::{FIRST_WAIT, GAP};
pub use task::run;

use agent::{Clock, Error, wire};
use kubeops::Cluster;
use pubsub::{Bus, Change};
use tokio::sync::watch;
use topics::EdgeNodeClusterConfig;

use crate::leader::Leadership;

/// Reports the cluster while this node leads, until the election has ended.
pub(crate) async fn report(
    bus: Bus,
    cluster: Cluster,
    clock: Clock,
    leading: watch::Receiver<Leadership>,
    board: Board,
) -> Result<(), Error> {
    let (told, member) = watch::channel(false);
    tokio::select! {
        () = run(cluster, clock, leading, member, board) => {}
        () = follow_member(&bus, &told) => {}
    }
    Ok(())
}

/// Tells for good whether this device has a cluster config.
async fn follow_member(bus: &Bus, told: &watch::Sender<bool>) {
    let name = wire::name::<EdgeNodeClusterConfig>("zedagent");
    let mut configs = bus.subscription(&name, wire::codec::<EdgeNodeClusterConfig>());
    loop {
        match configs.next().await {
            Change::Put { value, .. } => told.send_replace(value.member() == Some(true)),
            Change::Gone { .. } => told.send_replace(false),
            Change::Synced | Change::Restarted(_) | Change::Bad(_) => continue,
        };
    }
}
