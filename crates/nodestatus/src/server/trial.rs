//! The server's own code without sockets and without a cluster, for tests and fuzzing: one connection over any stream,
//! and what `/cluster-app` makes of what peers send.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::Clock;
use kubeapi::ApiClient;
use pubsub::{Error, TopicRoot};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use topics::{GoTime, GoUuid, NodeShown, NodeStatus};

use super::answer::Router;
use super::frame::{PeerBytes, frame, object};
use super::listen::{ServerLimits, serve_one};
use super::metrics::Totals;
use super::on_demand::Make;
use super::page;
use super::view::NodeView;
use crate::cluster_status::NodeAddress;
use kubeapi::OwnNode;

/// No wait is longer: nobody is there to be waited for.
const LIMIT: Duration = Duration::from_millis(100);
/// What this node says of itself.
const OWN: &str = "{}";

/// Serves one connection with the files under `root`, within the limits that a device has but those of time. False
/// when it took too long. To be called within a runtime that has time and file work.
/// Errors: the working directory is gone, to which a relative `root` belongs.
pub async fn serve(
    root: &Path,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<bool, Error> {
    let (topic_root, clock) = (TopicRoot::open(root)?, Clock::new());
    let cluster = ApiClient::from_kubeconfig(topic_root.path("no-kubeconfig"));
    let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let place = NodeAddress { address: own.ip(), cluster: GoUuid::default() };
    let outage: Make = Arc::new(|| Box::pin(async { OWN.to_owned() }));
    let said = (outage, watch::channel(Totals::default()).1);
    let (files, api) = ((topic_root, clock), (cluster, OwnNode::default()));
    let router = Arc::new(Router::new(files, api, (LIMIT, LIMIT), watch::channel(None).1, said));
    let limits = ServerLimits::default();
    tokio::select! {
        () = router.node_list.keep() => Ok(false),
        in_time = serve_one(async { Some((Box::new(stream) as _, None)) }, Arc::clone(&router), Some(place), own, &limits) => Ok(in_time),
    }
}

/// The answer of `/cluster-app` when peers send these bodies.
pub fn merge<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> String {
    let heard = bodies.into_iter().map(|body| object(body).map_or(PeerBytes::Nothing, PeerBytes::Object));
    frame(OWN, &heard.collect::<Vec<_>>())
}

/// What `/status.json` tells at `now` of the files under `root`, and the page that shows the same,
/// when these are the nodes.
pub fn shown(root: &Path, now: GoTime, nodes: Vec<NodeShown>) -> Result<(NodeStatus, String), Error> {
    let view = NodeView::read(&TopicRoot::open(root)?, Clock::new());
    let nodes_source = "as of 4 s ago".to_owned();
    let (status, rows) = page::report(view, None, now);
    let facts = (NodeStatus { nodes, nodes_source, ..status }, rows);
    Ok((facts.0.clone(), page::page(&facts, false)))
}
