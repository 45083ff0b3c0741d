//! Virtual IPs, pods that no node has taken, and virtual machines: read now and then for the gate after a boot, as none
//! of them is worth a watch.
//!
//! Not here: what that means (`gate`). Sources: the documentation of kube-vip (leases); the words of the Kubernetes
//! scheduler (plugins NodePorts, TaintToleration).

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kube::api::GetParams;
use kube::core::Request;
use kubeapi::names::{NodeName, VIRTUAL_IPS};
use kubeapi::objects::{items, text};
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found, nodes};
use serde_json::Value;
use step::Inserted as _;

use super::pods::{SYSTEM, named};
use super::trouble;
use crate::machines::undo;
use crate::node::gate::{GateFact, Layer, VirtualIp};

/// The lease of the address of the control plane.
const CONTROL_PLANE_IP: &str = VIRTUAL_IPS[0];
/// In the image of kube-vip, and how its container is given the address.
const KUBE_VIP: &str = "kube-vip";
const ADDRESS: [&str; 2] = ["address", "vip_address"];
/// The time for the list of nodes.
const NODES_LIMIT: Duration = Duration::from_secs(10);

/// One look at all of them.
pub(super) fn look(cluster: ApiClient, node: NodeName) -> BoxStream<'static, GateFact> {
    let look = async move {
        let network = virtual_ips(&cluster, &node).await.map(GateFact::Network);
        let pending = pending(&cluster, &node).await.map(GateFact::Pending);
        let machines = machines(&cluster, &node).await.map(GateFact::Machines);
        [(Layer::Network, network), (Layer::System, pending), (Layer::Machines, machines)]
            .map(|(layer, seen)| seen.unwrap_or_else(|error| trouble(layer, &error)))
    };
    stream::once(look).flat_map(stream::iter).boxed()
}

async fn virtual_ips(cluster: &ApiClient, node: &NodeName) -> Result<Vec<VirtualIp>, Error> {
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
    let held = |(name, lease): &(&str, Lease)| {
        let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref());
        *name == CONTROL_PLANE_IP && holder == Some(node.as_str())
    };
    let absent = if leases.iter().any(held) { absent(cluster, node).await? } else { Vec::new() };
    let seen = leases.into_iter().map(|(name, lease)| {
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        VirtualIp {
            lease: format!("{SYSTEM}/{name}"),
            ready: members.iter().any(|it| it.name == holder && it.facts.ready == "True"),
            renewed: spec.renew_time.map(|it| it.0.to_string()).unwrap_or_default(),
            absent: if name == CONTROL_PLANE_IP { absent.clone() } else { Vec::new() },
            holder,
        }
    });
    Ok(seen.collect())
}

/// The addresses of kube-vip on this node that no interface of this machine has. Nothing says which
/// addresses of services a node has to serve.
async fn absent(cluster: &ApiClient, node: &NodeName) -> Result<Vec<String>, Error> {
    let fields = Some(format!("spec.nodeName={node},status.phase=Running"));
    let scope = WatchScope { fields, ..WatchScope::all("pods of kube-vip", Pod::url_path(Some(SYSTEM))) };
    let pods = scope.list_all::<Value>(cluster).await?.items;
    let containers = pods.iter().flat_map(|it| items(&it["spec"]["containers"]));
    let of_vip = containers.filter(|it| text(&it["image"]).contains(KUBE_VIP));
    let addresses =
        of_vip.flat_map(|it| items(&it["env"])).filter(|it| ADDRESS.contains(&text(&it["name"]).as_str()));
    let absent =
        addresses.filter_map(|it| text(&it["value"]).parse::<IpAddr>().ok()).filter(|it| !is_here(*it));
    Ok(absent.map(|it| it.to_string()).into_set().into_iter().collect())
}

/// Whether an interface has it: only then does the kernel bind a socket to it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).err().is_none_or(|it| it.kind() != ErrorKind::AddrNotAvailable)
}

/// Pods that no node has taken and that belong to this one, or to kube-system and to no other node.
async fn pending(cluster: &ApiClient, node: &NodeName) -> Result<Vec<String>, Error> {
    let fields = Some("spec.nodeName=,status.phase=Pending".to_owned());
    let scope = WatchScope { fields, ..WatchScope::all("pods that no node has taken", Pod::url_path(None)) };
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

async fn machines(cluster: &ApiClient, node: &NodeName) -> Result<Vec<String>, Error> {
    let down = match undo::not_up(cluster, node).await {
        // A role without rights to read it is refused also where it is not installed.
        Err(error) if error.is_refused() && !undo::is_installed(cluster).await? => None,
        down => down?,
    };
    let down = down.unwrap_or_default();
    Ok(down.into_iter().map(|it| format!("{} ({})", it.name, it.how)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod in this namespace, pinned to these nodes as a DaemonSet does it, and what the scheduler says of it.
    fn pod(namespace: &str, pinned: &[&str], said: Option<&str>) -> Value {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": pinned });
        let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
        let condition = said.map(|it| json!({ "type": "PodScheduled", "status": "False", "message": it }));
        json!({
            "metadata": { "namespace": namespace, "name": "p" },
            "spec": { "affinity": if pinned.is_empty() { Value::Null } else { affinity } },
            "status": { "phase": "Pending", "conditions": condition.as_slice() },
        })
    }

    fn waiting(pod: Value) -> Option<String> {
        waits_for(&serde_json::from_value(pod).unwrap(), "n1")
    }

    #[test]
    fn seed_1_06_of_a_pod_without_a_node_a_taint_or_a_port_is_named_as_the_cause() {
        // What the scheduler says, and what a person reads.
        let table = [
            (
                "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 node(s) \
                 didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not \
                 helpful for scheduling.",
                "no node: taint node.kubernetes.io/unreachable",
            ),
            (
                "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: db}. preemption: x",
                "no node: taint dedicated: db",
            ),
            (
                "0/1 nodes are available: 1 node(s) had untolerated taint(s)",
                "no node: 0/1 nodes are available: 1 node(s) had untolerated taint(s)",
            ),
            (
                "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 2 node(s) didn't \
                 match Pod's node affinity/selector. preemption: 0/3 nodes are available.",
                "no node: its host port is taken",
            ),
            (
                "0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 No preemption \
                 victims found for incoming pod.",
                "no node: 0/3 nodes are available: 3 Insufficient memory",
            ),
            ("", "no node: "),
        ];
        for (said, words) in table {
            let shown = waiting(pod("kube-system", &[], Some(said)));
            assert_eq!(shown.as_deref(), Some(format!("kube-system/p ({words})").as_str()), "{said}");
        }
    }

    #[test]
    fn seed_1_06_pods_of_this_node_and_of_kube_system_are_waited_for_and_no_others() {
        let table = [
            (
                pod("kube-system", &[], None),
                Some("kube-system/p (no node: not looked at by the scheduler yet)"),
            ),
            (pod("shop", &[], None), None),
            (pod("shop", &["n1"], Some("free ports")), Some("shop/p (no node: its host port is taken)")),
            (pod("kube-system", &["n2"], Some("free ports")), None),
        ];
        for (pod, shown) in table {
            assert_eq!(waiting(pod.clone()).as_deref(), shown, "{pod}");
            let mut ending = pod;
            ending["metadata"]["deletionTimestamp"] = "2026-03-14T09:00:00Z".into();
            assert_eq!(waiting(ending), None);
        }
    }
}
