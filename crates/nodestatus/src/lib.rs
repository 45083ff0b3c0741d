//! What this node shows of itself: its membership in a cluster (EdgeNodeClusterStatus), the cluster's token, and the
//! status server with its page.
//!
//! Who may call: `zedkube`, which runs it beside its core and says by a channel whether the node belongs to a cluster.
//! Not here: who drains, leaves or leads. Published in zedkube's name. Source: spec/agents.md 4.7.

mod cluster_status;
mod membership;
mod server;
mod token;

pub use membership::{ClusterMembership, Membership};
pub use server::{CODES, Limits, Make, trial};

// Everything here is published in its name.
use std::sync::Arc;

use agent::wire::{GLOBAL, ZEDKUBE as NAME};
use agent::{Station, Troubles, duties};
use kubeapi::{Cluster, Target};
use tokio::sync::watch;

use cluster_status::Speaker;

/// Publishes the node's status and serves pages at its address in the cluster, until the station says stop. `outage`
/// makes what this node says of itself to its peers. What fails
/// is restarted alone. Dropping it leaves what was published last.
pub async fn run(
    station: &Station,
    troubles: &Troubles,
    limits: &Limits,
    cluster: Cluster,
    target: Target,
    standing: watch::Receiver<ClusterMembership>,
    outage: Make,
) {
    let (places, place) = watch::channel(None);
    let status = duties::keep_until_stop("cluster status", station, || {
        let (station, standing, places) = (station.clone(), standing.clone(), places.clone());
        async move {
            Speaker::open(troubles)?.follow(station, standing, places).await;
            Ok(())
        }
    });
    let server = duties::keep_until_stop("status server", station, || {
        let (station, limits) = (station.clone(), limits.clone());
        let server =
            server::run(station, limits, cluster.clone(), target.clone(), place.clone(), Arc::clone(&outage));
        async move {
            server.await;
            Ok(())
        }
    });
    tokio::join!(Box::pin(status), Box::pin(server));
}
