//! The read-only HTTP server on this node's address in the cluster: who may join asks it, and people and monitors look
//! at this node's drain.
//!
//! Only while that address is ready, and on no other. One request a connection, with limits on its size, its time and
//! on connections at once, so that nobody can hold it. What it may tell comes from three topics of this agent, none of
//! which holds a secret. Not here: `/app` and `/cluster-app`. Source: spec/agents.md 4.7.

mod answer;
mod guests;
mod joined;
mod listen;
#[cfg(test)]
mod listen_tests;
mod metrics;
mod page;
mod view;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent::Station;
use kubeops::Cluster;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::status::Place;
use crate::work::Target;

use answer::Desk;
use joined::Joined;
pub(crate) use listen::Ground;
use view::View;

/// Longest wait for the API behind `/status`: the rest of a request's time is for the request.
const API_LIMIT: Duration = Duration::from_secs(3);

/// Serves at each place in turn for good. Dropping it closes everything.
pub(crate) fn run(
    station: Station,
    limits: &Limits,
    cluster: Cluster,
    target: Target,
    places: watch::Receiver<Option<Place>>,
) -> impl Future<Output = ()> + Send + use<> {
    let ground = limits.ground();
    let joined = Arc::new(Joined::new(cluster, target, station.clock, API_LIMIT.min(ground.request / 2)));
    let (to_view, view) = watch::channel(View::default());
    let (bound, _) = watch::channel(None);
    let desk = Desk { view, joined, clock: station.clock };
    async move {
        tokio::join!(view::follow(station, to_view), listen::serve(ground, desk, places, bound));
    }
}
