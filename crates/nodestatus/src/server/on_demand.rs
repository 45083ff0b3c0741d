//! Answers that are made only when somebody asks: one at a time, once a second at most, and within a limit, whoever asks how
//! often (D-K26). This node's answer to its peers, behind `/outage`, built by zedkube; and whether this node serves the
//! cluster's control plane, as its labels say: the question behind `/status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::Clock;
use futures::future::BoxFuture;
use kubeapi::names::{CONTROL_PLANE, ETCD};
use kubeapi::{ApiClient, OwnNode, nodes};
use step::Mono;
use tokio::sync::Mutex;
use tracing::debug;

/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(1);

/// Makes an answer. Dropping the future loses nothing.
pub(super) type Source<T> = Arc<dyn Fn() -> BoxFuture<'static, T> + Send + Sync>;

/// As JSON.
pub type Make = Source<String>;

pub(super) struct OnDemand<T> {
    source: Source<T>,
    clock: Clock,
    limit: Duration,
    /// Locked by the one who makes it.
    last: Mutex<Option<(Mono, T)>>,
}

impl<T: Clone> OnDemand<T> {
    /// No asker waits longer than `limit`.
    pub(super) fn new(source: Source<T>, clock: Clock, limit: Duration) -> Self {
        Self { source, clock, limit, last: Mutex::default() }
    }

    /// At most a second old; `None` when it is late. Dropping it loses nothing.
    pub(super) async fn read(&self) -> Option<T> {
        let fresh = async {
            let mut last = self.last.lock().await;
            if let Some((at, made)) = &*last
                && self.clock.now().since(*at) < FRESH
            {
                return made.clone();
            }
            let asked = self.clock.now();
            let made = (self.source)().await;
            last.insert((asked, made)).1.clone()
        };
        tokio::time::timeout(self.limit, fresh).await.ok()
    }
}

/// Whether our node is a server of the cluster; false on any trouble.
pub(super) fn is_server(cluster: ApiClient, own_node: OwnNode) -> Source<bool> {
    Arc::new(move || {
        let (cluster, own_node) = (cluster.clone(), own_node.clone());
        Box::pin(async move {
            let labels = labels(&cluster, &own_node).await;
            labels.inspect_err(|why| debug!(error = why, "/status stays empty")).is_ok_and(|it| serves(&it))
        })
    })
}

async fn labels(cluster: &ApiClient, own_node: &OwnNode) -> Result<BTreeMap<String, String>, String> {
    let (name, uuid) = own_node.get()?;
    let node = nodes::own(cluster, &name, &uuid).await.map_err(|error| error.line())?;
    Ok(node.metadata.labels.unwrap_or_default())
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
