//! Whether this node serves the cluster's control plane, as its labels say: the question behind `/status`.
//!
//! One call at a time and one a second at most, whoever asks how often; no asker waits longer than the limit (D-K26).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use kubeapi::names::{CONTROL_PLANE, ETCD};
use kubeapi::{ApiClient, OwnNode, nodes};
use step::Mono;
use tokio::sync::Semaphore;
use tracing::debug;

/// An answer of the API counts so long.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of our node's labels.
pub(crate) struct Joined {
    cluster: ApiClient,
    own_node: OwnNode,
    clock: Clock,
    limit: Duration,
    last: Mutex<Option<(Mono, bool)>>,
    turn: Semaphore,
}

impl Joined {
    /// Nothing yet. No asker waits longer than `limit`.
    pub(crate) fn new(cluster: ApiClient, own_node: OwnNode, clock: Clock, limit: Duration) -> Self {
        Self { cluster, own_node, clock, limit, last: Mutex::default(), turn: Semaphore::new(1) }
    }

    /// Whether the node is a server of the cluster; false on any trouble. Dropping it loses nothing.
    pub(super) async fn is_server(&self) -> bool {
        tokio::time::timeout(self.limit, self.look()).await.unwrap_or(false)
    }

    async fn look(&self) -> bool {
        let Ok(_turn) = self.turn.acquire().await else { return false };
        if let Some((at, known)) = *self.last.lock().unwrap_or_else(PoisonError::into_inner)
            && self.clock.now().since(at) < FRESH
        {
            return known;
        }
        let known = match self.ask().await {
            Ok(labels) => serves(&labels),
            Err(why) => {
                debug!(error = why, "/status stays empty");
                false
            }
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.clock.now(), known));
        known
    }

    async fn ask(&self) -> Result<BTreeMap<String, String>, String> {
        let (name, uuid) = self.own_node.get()?;
        let node = nodes::own(&self.cluster, &name, &uuid).await.map_err(|error| error.line())?;
        Ok(node.metadata.labels.unwrap_or_default())
    }
}

/// Whether labels are those of a server (spec/agents.md 4.7).
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
