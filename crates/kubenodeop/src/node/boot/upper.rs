//! Virtual IPs, pods that no node has taken, and virtual machines: read now and then for the gate after a boot, as none
//! of them is worth a watch.
//!
//! Not here: what that means (`gate`). Sources: the documentation of kube-vip (leases); the words of the Kubernetes
//! scheduler (plugins NodePorts, TaintToleration).

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use checks::network::VirtualIp;
use checks::{Finding, IllObject, cluster, machines, workloads};
use futures::stream::{self, BoxStream, StreamExt};
use kubeapi::names::NodeName;
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, nodes};

use super::pods::{SYSTEM, named};
use super::{fact, found};
use crate::machines::undo;
use crate::node::gate::{Check, GateFact};

/// How the container of kube-vip is given the address of the control plane, and the lease of that.
const ADDRESS: [&str; 2] = ["address", "vip_address"];
const CONTROL_PLANE: &str = "plndr-cp-lock";
/// The time for the list of nodes.
const NODES_LIMIT: Duration = Duration::from_secs(10);

/// One look at all of them.
pub(super) fn look(cluster: ApiClient, node: NodeName) -> BoxStream<'static, GateFact> {
    let look = async move {
        [
            fact(virtual_ips(&cluster, &node).await, GateFact::VirtualIps),
            found(pending(&cluster, &node).await, Check::Pending),
            found(machines(&cluster, &node).await, Check::Machines),
        ]
    };
    stream::once(look).flat_map(stream::iter).boxed()
}

async fn virtual_ips(cluster: &ApiClient, node: &NodeName) -> Result<Vec<VirtualIp>, Error> {
    let mut all = cluster::virtual_ips(cluster, |_| false).await?;
    if all.is_empty() {
        return Ok(all);
    }
    let members = nodes::members(cluster, NODES_LIMIT).await?;
    for it in &mut all {
        it.ready = members.iter().any(|node| node.name == it.holder && node.facts.ready == "True");
        // Nothing says which addresses of services a node has to serve.
        if it.lease.ends_with(CONTROL_PLANE) && it.holder == node.as_str() {
            let given = cluster::kube_vip(cluster, Some(node.as_str())).await?;
            let given = ADDRESS.iter().filter_map(|name| given.get(*name)?.parse::<IpAddr>().ok());
            let absent: Vec<String> = given.filter(|it| !is_here(*it)).map(|it| it.to_string()).collect();
            if !absent.is_empty() {
                it.address = format!("this node holds it, and has no interface with {}", absent.join(", "));
            }
        }
    }
    Ok(all)
}

/// Whether an interface has it: only then does the kernel bind a socket to it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).err().is_none_or(|it| it.kind() != ErrorKind::AddrNotAvailable)
}

/// Pods that no node has taken and that belong to this one, or to kube-system and to no other node.
async fn pending(cluster: &ApiClient, node: &NodeName) -> Result<Vec<Finding>, Error> {
    let fields = Some("spec.nodeName=,status.phase=Pending".to_owned());
    let scope = WatchScope { fields, ..WatchScope::all("pods that no node has taken", Pod::url_path(None)) };
    let list = scope.list_all::<Pod>(cluster).await?;
    let mut all: Vec<IllObject> = list.items.iter().filter_map(|pod| waits_for(pod, node.as_str())).collect();
    all.sort();
    Ok(workloads::named("pods that no node has taken", &all, "describe pod"))
}

fn waits_for(pod: &Pod, node: &str) -> Option<IllObject> {
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
    (is_ours && !is_ending).then(|| IllObject::new(named(&pod.metadata), &cause(message)))
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

async fn machines(cluster: &ApiClient, node: &NodeName) -> Result<Vec<Finding>, Error> {
    let down = match undo::not_up(cluster, node).await {
        // A role without rights to read it is refused also where it is not installed.
        Err(error) if error.is_refused() && !undo::is_installed(cluster).await? => None,
        down => down?,
    };
    Ok(machines::not_up("vmi", &down.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        Some(waits_for(&serde_json::from_value(pod).unwrap(), "n1")?.as_ref().to_owned())
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
