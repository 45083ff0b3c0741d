//! The container runtime of this machine as `kubenodeop` asks it, and the pods that a drained node still has.
//!
//! Not here: the socket (`agent::runtime`), whether an answer is believed (`kubenodeop::engine::containers`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kubeapi::names::PodUid;
use kubeapi::{ApiClient, Error, NodeName};
use kubenodeop::engine::containers;
use kubenodeop::plan::{PodClass, PodFacts};
use kubenodeop::{RuntimeQuery, pods};
use step::Inserted as _;
use tokio::time::sleep;

use crate::core::RemainingPod;
use crate::limits::Limits;

/// Between two answers that make a pod count as gone.
const APART: Duration = Duration::from_secs(5);

/// The runtime at the socket that the limits name, or at the usual places below `root`.
pub(crate) fn socket(root: &Path, limits: &Limits) -> agent::runtime::Runtime {
    agent::runtime::Runtime::new(root, &limits.runtime_socket)
}

/// What the drain asks of it.
pub(crate) fn seam(root: &Path, limits: &Limits) -> RuntimeQuery {
    let runtime = socket(root, limits);
    RuntimeQuery::new(move || {
        let runtime = runtime.clone();
        Box::pin(async move { runtime.live_pods().await })
    })
}

/// The pods that a drain would take away or wait for. Of those that are ending the ones without a container do not count,
/// as they did not in the drain.
pub(crate) async fn remaining(
    cluster: &ApiClient,
    node: &NodeName,
    runtime: &RuntimeQuery,
) -> Result<Vec<RemainingPod>, Error> {
    let (mut all, mut unknown) = (pods::list(cluster, node).await?, false);
    all.retain(|it| matches!(it.class(), PodClass::Leave | PodClass::Await));
    if all.iter().any(|it| it.terminating) {
        let gone = without(cluster, node, runtime).await;
        unknown = gone.is_none();
        let gone = gone.unwrap_or_default();
        all.retain(|it| !it.terminating || !gone.contains(&it.pod.uid));
    }
    let remaining = |it: PodFacts| RemainingPod {
        unknown: unknown && it.terminating,
        namespace: it.pod.namespace,
        name: it.pod.name,
        workload: it.workload,
    };
    Ok(all.into_iter().map(remaining).collect())
}

/// What two answers in a row show no container of; `None` when that is not known.
async fn without(cluster: &ApiClient, node: &NodeName, runtime: &RuntimeQuery) -> Option<BTreeSet<PodUid>> {
    let once = || async {
        let all = containers::without(cluster, node, runtime).await.ok()?;
        Some(all.into_iter().filter_map(|it| it.metadata.uid).map(PodUid::new).into_set())
    };
    let first = once().await?;
    sleep(APART).await;
    Some(once().await?.intersection(&first).cloned().collect())
}

#[cfg(test)]
mod tests {
    use agent::runtime::mock::{RuntimeReply, pod, serve};
    use kube::Client;
    use kubesim::{Sim, SimConfig};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn d9_p8_what_the_drain_counted_as_gone_does_not_void_complete_and_anything_else_does() {
        let sim = Sim::new(SimConfig::default());
        sim.add_node("n1", "u1");
        for name in ["web", "db"] {
            sim.add_bare_pod("shop", name, "n1");
        }
        sim.until("pods", |all| all.iter().all(|it| it["status"]["phase"] == "Running")).await;
        sim.leave_behind("shop", "web", true);
        let root = TempDir::new().unwrap();
        let socket = root.path().join(agent::runtime::SOCKETS[1]);
        let (cluster, node) =
            (ApiClient::from_client(Client::new(sim.service(), "default")), NodeName::parse("n1").unwrap());
        let runtime = seam(root.path(), &Limits::default());
        let names = || async {
            let all = remaining(&cluster, &node, &runtime).await.unwrap();
            all.into_iter().map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["db", "web"], "no socket");
        {
            let _stranger = serve(&socket, || RuntimeReply::Pods(vec![pod("x", true)])).unwrap();
            assert_eq!(names().await, ["db", "web"], "it lists other pods only");
        }
        std::fs::remove_file(&socket).unwrap();
        let live = sim.clone();
        let list = move || live.live_pods("n1").iter().map(|uid| pod(uid, true)).collect();
        let _runtime = serve(&socket, move || RuntimeReply::Pods(list())).unwrap();
        assert_eq!(names().await, ["db"], "one that is not ending counts, container or not");
        sim.edit("pods", "shop", "web", |it| {
            it["metadata"]["annotations"] = json!({});
        });
        assert_eq!(names().await, ["db", "web"], "its container runs");
    }
}
