//! Answers that are made only when somebody asks: one at a time, once a second at most, and within a limit, whoever asks how
//! often (D-K26). This node's answer to its peers, behind `/outage`, built by zedkube; and whether this node serves the
//! cluster's control plane, as its labels say: the question behind `/status`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use kubeapi::names::{CONTROL_PLANE, ETCD};
use kubeapi::{ApiClient, OwnNode, nodes};
use step::Mono;
use tokio::sync::Semaphore;
use tracing::debug;

/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(1);

struct OnDemand<T> {
    clock: Clock,
    limit: Duration,
    last: Mutex<Option<(Mono, T)>>,
    turn: Semaphore,
}

impl<T: Clone> OnDemand<T> {
    /// No asker waits longer than `limit`.
    fn new(clock: Clock, limit: Duration) -> Self {
        Self { clock, limit, last: Mutex::default(), turn: Semaphore::new(1) }
    }

    /// At most a second old; `None` when it is late. Dropping it loses nothing.
    async fn read(&self, source: impl Future<Output = T>) -> Option<T> {
        let fresh = async {
            let _turn = self.turn.acquire().await.ok()?;
            if let Some((at, made)) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner)
                && self.clock.now().since(*at) < FRESH
            {
                return Some(made.clone());
            }
            let asked = self.clock.now();
            let made = source.await;
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, made.clone()));
            Some(made)
        };
        tokio::time::timeout(self.limit, fresh).await.ok().flatten()
    }
}

/// As JSON. Dropping the future loses nothing.
pub type Make = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

pub(crate) struct OutageStatement(Make, OnDemand<Bytes>);

impl OutageStatement {
    /// No caller waits longer than `limit`.
    pub(crate) fn new(make: Make, clock: Clock, limit: Duration) -> Self {
        Self(make, OnDemand::new(clock, limit))
    }

    pub(super) async fn read(&self) -> Option<Bytes> {
        self.1.read(async { Bytes::from((self.0)().await) }).await
    }
}

/// What is known of our node's labels.
pub(crate) struct Joined {
    cluster: ApiClient,
    own_node: OwnNode,
    known: OnDemand<bool>,
}

impl Joined {
    /// Nothing yet. No asker waits longer than `limit`.
    pub(crate) fn new(cluster: ApiClient, own_node: OwnNode, clock: Clock, limit: Duration) -> Self {
        Self { cluster, own_node, known: OnDemand::new(clock, limit) }
    }

    /// Whether the node is a server of the cluster; false on any trouble. Dropping it loses nothing.
    pub(super) async fn is_server(&self) -> bool {
        let ask = async {
            let labels = self.ask().await.inspect_err(|why| debug!(error = why, "/status stays empty"));
            labels.is_ok_and(|it| serves(&it))
        };
        self.known.read(ask).await.unwrap_or(false)
    }

    async fn ask(&self) -> Result<BTreeMap<String, String>, String> {
        let (name, uuid) = self.own_node.get()?;
        let node = nodes::own(&self.cluster, &name, &uuid).await.map_err(|error| error.line())?;
        Ok(node.metadata.labels.unwrap_or_default())
    }
}

/// Whether labels are those of a server.
fn serves(labels: &BTreeMap<String, String>) -> bool {
    let [master, control_plane] = CONTROL_PLANE;
    labels.contains_key(ETCD)
        && (labels.contains_key(master) || labels.get(control_plane).is_some_and(|it| it == "true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_holds_etcd_and_is_master_or_control_plane() {
        for (labels, server) in [
            ("etcd=true master=true", true),
            ("etcd= master=", true),
            ("etcd=true control-plane=true", true),
            ("etcd=true control-plane=false", false),
            ("etcd=true", false),
            ("master=true control-plane=true", false),
            ("", false),
        ] {
            let label = |it: &str| {
                let (name, value) = it.split_once('=').unwrap();
                (format!("node-role.kubernetes.io/{name}"), value.to_owned())
            };
            assert_eq!(serves(&labels.split_whitespace().map(label).collect()), server, "{labels}");
        }
    }
}
