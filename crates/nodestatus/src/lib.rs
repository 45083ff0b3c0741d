//! What this node shows of itself: its membership in a cluster (EdgeNodeClusterStatus), the cluster's token, and the
//! status server with its page.
//!
//! Who may call: `zedkube`, which runs it beside its core and sends it the node's membership. Not here:
//! drain, leave, election. Published in zedkube's name.

mod cluster_status;
mod identity;
mod server;
mod token;

pub use cluster_status::{ClusterMembership, Membership};
pub use identity::ClusterIdentity;
pub use server::{Make, ServerLimits, Totals, cluster_of, trial};

use std::sync::Arc;

use agent::wire::{GLOBAL, ZEDKUBE as NAME};
use agent::{AgentContext, Troubles, duties};
use kubeapi::{ApiClient, OwnNode};
use tokio::sync::watch;

use cluster_status::Speaker;

/// Publishes the node's status and serves pages at its address in the cluster, until `context` says stop.
/// `outage` makes the answer for peers, and `totals` are the metrics' counters. A failed part is restarted
/// alone. Dropping it leaves the last values published.
pub async fn run(
    context: &AgentContext,
    troubles: &Troubles,
    limits: &ServerLimits,
    cluster: ApiClient,
    own_node: OwnNode,
    cluster_membership: watch::Receiver<ClusterMembership>,
    (outage, totals): (Make, watch::Receiver<Totals>),
) {
    let (places, place) = watch::channel(None);
    let status = duties::keep_until_stop("cluster status", context, || {
        let (context, cluster_membership, places) =
            (context.clone(), cluster_membership.clone(), places.clone());
        async move {
            Speaker::open(troubles)?.follow(context, cluster_membership, places).await;
            Ok(())
        }
    });
    let server = duties::keep_endless("status server", context, || {
        let (context, limits) = (context.clone(), limits.clone());
        let said = (Arc::clone(&outage), totals.clone());
        server::run(context, limits, cluster.clone(), own_node.clone(), place.clone(), said)
    });
    tokio::join!(Box::pin(status), Box::pin(server));
}
