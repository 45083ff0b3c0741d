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

use agent::Clock;
use kubeops::Cluster;
use tokio::sync::watch;

use crate::leader::Leadership;
use crate::leave::Standing;

/// Reports the cluster while this node leads, until the election has ended.
pub(crate) async fn report(
    cluster: Cluster,
    clock: Clock,
    leading: watch::Receiver<Leadership>,
    standing: watch::Receiver<Standing>,
    board: Board,
) {
    let (told, member) = watch::channel(false);
    tokio::select! {
        () = run(cluster, clock, leading, member, board) => {}
        () = follow_member(standing, &told) => {}
    }
}

/// Tells whether this device has a cluster config, until nobody can say any more.
async fn follow_member(mut standing: watch::Receiver<Standing>, told: &watch::Sender<bool>) {
    loop {
        told.send_replace(standing.borrow_and_update().config.as_ref().is_some_and(|it| it.valid));
        if standing.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
