//! Virtual IPs, pods that no node has taken, and virtual machines: read now and then for the gate after a boot, as none
//! of them is worth a watch.
//!
//! Not here: what that means (`gate`). Sources: the documentation of kube-vip (leases); the words of the Kubernetes
//! scheduler (plugins NodePorts, TaintToleration).

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kube::api::GetParams;
use kube::core::Request;
use kubeapi::names::{NodeName, VIRTUAL_IPS};
use kubeapi::slim::Pod;
use kubeapi::watch::Scope;
use kubeapi::{Cluster, Error, found, nodes};

use super::pods::{SYSTEM, named};
use super::trouble;
use crate::machines::undo;
use crate::node::gate::{Fact, Layer, VirtualIp};

/// The time for the list of nodes.
const NODES_LIMIT: Duration = Duration::from_secs(10);

/// One look at all of them.
pub(super) fn look(cluster: Cluster, node: NodeName) -> BoxStream<'static, Fact> {
    let look = async move {
        let network = virtual_ips(&cluster).await.map(Fact::Network);
        let pending = pending(&cluster, &node).await.map(Fact::Pending);
        let machines = machines(&cluster, &node).await.map(Fact::Machines);
        [(Layer::Network, network), (Layer::System, pending), (Layer::Machines, machines)]
            .map(|(layer, seen)| seen.unwrap_or_else(|error| trouble(layer, &error)))
    };
    stream::once(look).flat_map(stream::iter).boxed()
}

async fn virtual_ips(cluster: &Cluster) -> Result<Vec<VirtualIp>, Error> {
    let mut leases = Vec::new();
    for name in VIRTUAL_IPS {
        let request = Request::new(Lease::url_path(&(), Some(SYSTEM))).get(name, &GetParams::default());
        let lease: Option<Lease> = found(cluster.ask(&format!("read lease {SYSTEM}/{name}"), request).await)?;
        leases.extend(lease.map(|it| (name, it)));
    }
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let members = nodes::members(cluster, NODES_LIMIT).await?;
    let seen = leases.into_iter().map(|(name, lease)| {
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        VirtualIp {
            lease: format!("{SYSTEM}/{name}"),
            ready: members.iter().any(|it| it.name == holder && it.facts.ready == "True"),
            renewed: spec.renew_time.map(|it| it.0.to_string()).unwrap_or_default(),
            holder,
        }
    });
    Ok(seen.collect())
}

/// Pods that no node has taken and that belong to this one, or to kube-system and to no other node.
async fn pending(cluster: &Cluster, node: &NodeName) -> Result<Vec<String>, Error> {
    let fields = Some("spec.nodeName=,status.phase=Pending".to_owned());
    let scope = Scope { fields, ..Scope::all("pods that no node has taken", Pod::url_path(None)) };
    let list = scope.list_all::<Pod>(cluster).await?;
    let mut all: Vec<String> = list.items.iter().filter_map(|pod| waits_for(pod, node.as_str())).collect();
    all.sort();
    Ok(all)
}

fn waits_for(pod: &Pod, node: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let term = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let terms = term.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    // What a DaemonSet writes into its pods.
    let pinned: Vec<&str> = terms
        .iter()
        .flat_map(|it| &it.node_selector_terms)
        .flat_map(|it| it.match_fields.iter().flatten())
        .filter(|it| it.key == "metadata.name" && it.operator == "In")
        .flat_map(|it| it.values.iter().flatten().map(String::as_str))
        .collect();
    let is_ours = if pinned.is_empty() {
        pod.metadata.namespace.as_deref() == Some(SYSTEM)
    } else {
        pinned.contains(&node)
    };
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let message =
        refused.and_then(|it| it.message.as_deref()).unwrap_or("not looked at by the scheduler yet");
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    (is_ours && !is_ending).then(|| format!("{} ({})", named(&pod.metadata), cause(message)))
}

/// What the scheduler says, short: a taint or a port is named as the cause.
fn cause(message: &str) -> String {
    let taint = message.split("untolerated taint ").nth(1).and_then(|it| it.split('}').next());
    if let Some(taint) = taint {
        return format!("no node: taint {}", taint.trim_start_matches('{').trim_end_matches([':', ' ']));
    }
    if message.contains("free ports") {
        return "no node: its host port is taken".to_owned();
    }
    let said = message.split(". preemption:").next().unwrap_or(message);
    format!("no node: {said}")
}

async fn machines(cluster: &Cluster, node: &NodeName) -> Result<Vec<String>, Error> {
    let down = match undo::not_up(cluster, node).await {
        // Who may read nothing of it is refused also where it is not installed.
        Err(error) if undo::is_refused(&error) && !undo::is_installed(cluster).await? => None,
        down => down?,
    };
    let down = down.unwrap_or_default();
    Ok(down.into_iter().map(|it| format!("{} ({})", it.name, it.how)).collect())
}
