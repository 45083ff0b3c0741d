//! The read-only HTTP server on this node's address in the cluster, for joining nodes, for peers, and for
//! people and monitors who look at this node's drain and the cluster's nodes.
//!
//! Answers of each path: `answer`; whether `/status` names the cluster, and the answer for peers:
//! `on_demand`. Not here: when the address is ready (`cluster_status`).
//!
//! Only while that address is ready, and on no other. One request a connection, with limits on its size, its
//! time and on parallel connections, so that no client can block it. Answers come from topics of this device,
//! read at each request and only by the members named in `view` and `app`: none of these holds a secret.

mod answer;
mod app;
mod exchange;
mod frame;
mod listen;
mod metrics;
mod node_list;
mod on_demand;
mod page;
mod peers;
#[cfg(test)]
mod tests;
pub mod trial;
mod view;

use std::sync::Arc;
use std::time::Duration;

use agent::AgentContext;
use kubeapi::{ApiClient, OwnNode};
use tokio::sync::watch;

use crate::cluster_status::NodeAddress;
use answer::Router;
pub use exchange::cluster_of;
pub use listen::ServerLimits;
pub use metrics::Totals;
pub use on_demand::Make;

/// Longest wait for the API: the rest is for the request itself.
const API_LIMIT: Duration = Duration::from_secs(3);

/// Serves each place in turn. Dropping it closes everything.
pub(crate) async fn run(
    context: AgentContext,
    limits: ServerLimits,
    cluster: ApiClient,
    own_node: OwnNode,
    places: watch::Receiver<Option<NodeAddress>>,
    said: (Make, watch::Receiver<Totals>),
) {
    let (clock, limit) = (context.clock, API_LIMIT.min(limits.request / 2));
    let (bound, listens) = watch::channel(None);
    let (files, api) = ((context.topic_root, clock), (cluster, own_node));
    let router = Arc::new(Router::new(files, api, (limit, limits.peer), listens, said));
    tokio::join!(router.node_list.keep(), listen::serve(limits, Arc::clone(&router), places, bound));
}
