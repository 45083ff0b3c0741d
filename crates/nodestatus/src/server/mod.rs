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

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent::AgentContext;
use kubeapi::ApiClient;
use tokio::sync::watch;

use crate::cluster_status::NodeAddress;
use kubeapi::OwnNode;

use answer::Router;
pub use exchange::cluster_of;
pub use listen::ServerLimits;
pub use metrics::Totals;
use node_list::NodeList;
use on_demand::Joined;
pub use on_demand::Make;
use on_demand::OutageStatement;
use peers::Peers;

/// Longest wait for the API: the rest is for the request itself.
const API_LIMIT: Duration = Duration::from_secs(3);

/// Serves each place in turn. Dropping it closes everything.
pub(crate) fn run(
    context: AgentContext,
    limits: ServerLimits,
    cluster: ApiClient,
    own_node: OwnNode,
    places: watch::Receiver<Option<NodeAddress>>,
    (outage, totals): (Make, watch::Receiver<Totals>),
) -> impl Future<Output = ()> + Send + use<> {
    let (clock, limit) = (context.clock, API_LIMIT.min(limits.request / 2));
    let joined = Joined::new(cluster.clone(), own_node, clock, limit);
    let (bound, listens) = watch::channel(None);
    let node_list = Arc::new(NodeList::new(cluster, clock, limit, listens));
    let peers = Peers::new(Arc::clone(&node_list), clock, limits.peer);
    let outage = OutageStatement::new(outage, clock, limit);
    let router = Router::new((context.topic_root, clock), joined, Arc::clone(&node_list), peers, outage)
        .counting(totals);
    async move {
        tokio::join!(node_list.keep(), listen::serve(limits, router, places, bound));
    }
}
