//! Whose cordon is on a node, and when ours goes; taints that an outage leaves on a node. Source: the Kubernetes page
//! "Taints and Tolerations", taint based evictions.

use checks::{Finding, nodes};
use k8s_openapi::api::core::v1::Taint;
use kubeapi::names::{NodeName, OUTAGE_TAINTS, OWNER_ANNOTATION};
use kubeapi::nodes::{CordonAnnotation, DEAD_BOOT_ANNOTATION, FAILOVER_STAYS};
use kubeapi::slim::NodeObject;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use serde_json::{Value, json};
use topics::CordonOwner;
use tracing::warn;

use crate::calls::volumes;
use crate::node;

/// The cordon of a node as a watch shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CordonSeen {
    #[default]
    None,
    Ours,
    /// Somebody else's, or a tie-breaker's, which stays.
    Foreign,
    /// None of ours, and our annotation is there: somebody has left it, or made it up.
    Marked,
}

/// The facts about a node that decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: NodeName,
    /// Condition Ready is True.
    pub ready: bool,
    /// What condition Ready says where nobody reports for the kubelet (status Unknown); empty otherwise.
    pub silent: String,
    /// The flag `spec.unschedulable`. The taint is not looked at: it follows the flag late.
    pub unschedulable: bool,
    /// Ours where our annotation is there and the server knows of nobody else who wrote the flag; foreign without our
    /// annotation, with one that does not parse, or by another hand since: that is never undone.
    pub cordon: CordonOwner,
    /// Our annotation, also when somebody has uncordoned the node, or cordoned it again, and left it behind.
    pub annotation: Option<CordonAnnotation>,
    /// Label `tie-breaker-node=true`: the node carries no workloads.
    pub tie_breaker: bool,
    /// The version that a write must name.
    pub resource_version: String,
}

/// What [`crate::node::cordon`] does to a node, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordoned {
    /// Flag and annotation are written.
    Written,
    /// They are as wanted.
    Kept,
    /// The node is somebody else's cordon, and stays so.
    Foreign,
}

impl NodeFacts {
    /// Its cordon, for whoever watches it.
    pub fn seen(&self) -> CordonSeen {
        match self.cordon {
            CordonOwner::Ours if !self.tie_breaker => CordonSeen::Ours,
            CordonOwner::None | CordonOwner::Foreign if self.annotation.is_some() => CordonSeen::Marked,
            CordonOwner::None => CordonSeen::None,
            CordonOwner::Ours | CordonOwner::Foreign => CordonSeen::Foreign,
        }
    }

    /// What a cordon in the name of `owner` comes to.
    pub fn cordoned_by(&self, owner: &CordonAnnotation) -> Cordoned {
        match self.cordon {
            CordonOwner::None => Cordoned::Written,
            // A cordon of ours from a former request or boot changes its owner, so that the cleaning after a
            // boot does not take it for a leftover.
            CordonOwner::Ours if self.annotation.as_ref() != Some(owner) => Cordoned::Written,
            CordonOwner::Ours => Cordoned::Kept,
            CordonOwner::Foreign => Cordoned::Foreign,
        }
    }

    /// Whether our cordon goes once nobody needs it: one of this boot at once, one of an earlier boot when the gate
    /// after the boot is open and the node Ready.
    pub fn our_cordon_goes(&self, boot_id: &str, gate_open: bool) -> bool {
        let of_this_boot = self.annotation.as_ref().is_some_and(|owner| owner.boot_id == boot_id);
        of_this_boot || (gate_open && self.ready)
    }
}

/// Of [`OUTAGE_TAINTS`]. But for our own of a failover no other key or effect is ever touched.
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

fn is_of_outage(taint: &Taint) -> bool {
    OUTAGE_TAINTS.contains(&taint.key.as_str()) && EFFECTS.contains(&taint.effect.as_str())
}

/// Our taint of a failover.
fn is_of_failover(taint: &Taint) -> bool {
    kubeapi::nodes::is_of_failover(&taint.key, taint.value.as_deref().unwrap_or_default())
}

/// The boot of `node` that was declared dead, where that is an earlier one than `boot_id`: one that lives keeps its taint.
fn dead_boot<'a>(node: &'a NodeObject, boot_id: &str) -> Option<&'a String> {
    let dead = node.metadata.annotations.as_ref()?.get(DEAD_BOOT_ANNOTATION);
    dead.filter(|it| !it.is_empty() && *it != boot_id)
}

/// Whether an outage before `boot_id` has left the taint on `node`.
fn is_stale(node: &NodeObject, taint: &Taint, boot_id: &str) -> bool {
    is_of_outage(taint) || is_of_failover(taint) && dead_boot(node, boot_id).is_some()
}

/// A taint as `node.kubernetes.io/unreachable:NoExecute`.
fn text(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn taints(node: &NodeObject) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

/// The annotation of a boot that was declared dead, where somebody has removed our taint of it by hand.
fn scar(node: &NodeObject, boot_id: &str) -> Option<String> {
    let is_left = dead_boot(node, boot_id).is_some() && !taints(node).any(is_of_failover);
    is_left.then(|| DEAD_BOOT_ANNOTATION.to_owned())
}

/// The taints that an outage before `boot_id` has left on `node`, as people read them.
pub(crate) fn of_outage(node: &NodeObject, boot_id: &str) -> Vec<String> {
    let stale = taints(node).filter(|it| is_stale(node, it, boot_id)).map(text);
    stale.chain(scar(node, boot_id)).collect()
}

/// Which taints of our node keep pods away and are not of what it is for, and what a look at the other nodes says of them.
#[derive(Debug, Default)]
pub(crate) struct UnusualTaints {
    known: Vec<String>,
    found: Vec<Finding>,
}

impl UnusualTaints {
    /// What is unusual on `node`. The other nodes are read when its taints are other ones than
    /// before; as long as they cannot be, nothing is.
    pub(crate) async fn of(&mut self, cluster: &ApiClient, node: &NodeObject) -> Vec<Finding> {
        let kept =
            taints(node).filter(|it| !is_of_failover(it) && nodes::may_be_unusual(&it.key, &it.effect));
        let now: Vec<String> = kept.map(text).collect();
        if now != self.known {
            self.found.clear();
            if !now.is_empty() {
                let scope = WatchScope::all("nodes", NodeObject::url_path(None));
                let Ok(all) = scope.list_all::<Value>(cluster).await else { return Vec::new() };
                let name = node.metadata.name.as_deref();
                let own = all.items.iter().find(|it| it["metadata"]["name"].as_str() == name);
                let Some(own) = own else { return Vec::new() };
                self.found.extend(nodes::unusual_taints_of(&all.items, own));
            }
            self.known = now;
        }
        self.found.clone()
    }
}

/// Removes the taints of an outage from our node if it is Ready, by one patch that names the version that was read. Where
/// it was declared dead, the same patch makes our cordon, as of that boot: so it takes no pods before the gate is open.
/// Returns those removed, as people read them.
/// Errors: as [`node::read`]; a lost race is [`Error::is_conflict`].
pub async fn remove_stale(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
    boot_id: &str,
) -> Result<Vec<String>, Error> {
    let (object, facts) = node::read_whole(cluster, name, device_uuid).await?;
    let (stale, mut kept): (Vec<&Taint>, Vec<&Taint>) =
        taints(&object).partition(|it| is_stale(&object, it, boot_id));
    let scar = scar(&object, boot_id);
    if stale.is_empty() && scar.is_none() || !facts.ready {
        return Ok(Vec::new());
    }
    let mut body = json!({ "metadata": { "resourceVersion": facts.resource_version }, "spec": {} });
    let (ours, mut stale): (Vec<&Taint>, Vec<&Taint>) = stale.into_iter().partition(|it| is_of_failover(it));
    let held = if ours.is_empty() { Vec::new() } else { volumes::taken_over(cluster, name).await? };
    match (dead_boot(&object, boot_id), ours.first()) {
        (Some(dead), Some(taint)) if held.is_empty() => {
            body["metadata"]["annotations"][DEAD_BOOT_ANNOTATION] = Value::Null;
            if taint.value.as_ref().is_some_and(|it| it.ends_with(FAILOVER_STAYS)) {
                // Nobody's of ours: a person lifts it.
                body["metadata"]["annotations"][OWNER_ANNOTATION] = Value::Null;
                body["spec"]["unschedulable"] = true.into();
            } else if facts.cordon != CordonOwner::Foreign {
                let owner = CordonAnnotation::of_failover(dead, taint.value.as_deref().unwrap_or_default());
                let owner = owner.text().map_err(|source| Error::Unaskable {
                    what: format!("cordon node {name}"),
                    source: source.into(),
                })?;
                body["metadata"]["annotations"][OWNER_ANNOTATION] = owner.into();
                body["spec"]["unschedulable"] = true.into();
            }
            stale.extend(ours);
        }
        (Some(_), None) => body["metadata"]["annotations"][DEAD_BOOT_ANNOTATION] = Value::Null,
        _ => {
            if !held.is_empty() {
                warn!(node = %name, ?held, "keeps the taint out-of-service: volumes are attached here and elsewhere");
            }
            kept.extend(ours);
        }
    }
    if stale.is_empty() && scar.is_none() {
        return Ok(Vec::new());
    }
    body["spec"]["taints"] = if kept.is_empty() { json!(null) } else { json!(kept) };
    node::patch(cluster, &format!("remove stale taints of node {name}"), name, body).await?;
    Ok(stale.into_iter().map(text).chain(scar).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A Ready node with this cordon.
    pub(crate) fn node(cordon: CordonOwner) -> NodeFacts {
        NodeFacts {
            name: NodeName::parse("n1").unwrap(),
            ready: true,
            silent: String::new(),
            unschedulable: cordon != CordonOwner::None,
            annotation: (cordon == CordonOwner::Ours).then(CordonAnnotation::default),
            cordon,
            tie_breaker: false,
            resource_version: "1".to_owned(),
        }
    }

    fn owner(boot: &str) -> CordonAnnotation {
        CordonAnnotation {
            boot_id: boot.to_owned(),
            requested_by: 2,
            requested_at: "t".to_owned(),
            ..CordonAnnotation::default()
        }
    }

    #[test]
    fn a_foreign_cordon_is_left_and_an_older_one_of_ours_is_taken_over() {
        let table = [
            (CordonOwner::None, None, Cordoned::Written),
            (CordonOwner::Ours, Some(owner("now")), Cordoned::Kept),
            (CordonOwner::Ours, Some(owner("before")), Cordoned::Written),
            (CordonOwner::Foreign, None, Cordoned::Foreign),
        ];
        for (cordon, annotation, step) in table {
            let facts = NodeFacts { annotation, ..node(cordon) };
            assert_eq!(facts.cordoned_by(&owner("now")), step, "{facts:?}");
        }
    }

    #[test]
    fn our_cordon_of_an_earlier_boot_goes_once_the_gate_is_open_and_the_node_ready() {
        for (boot, gate_open, ready, goes) in [
            ("b1", false, false, true),
            ("b2", true, true, true),
            ("b2", true, false, false),
            ("b2", false, true, false),
        ] {
            let facts = NodeFacts { ready, annotation: Some(owner("b1")), ..node(CordonOwner::Ours) };
            assert_eq!(facts.our_cordon_goes(boot, gate_open), goes, "{boot} {gate_open} {ready}");
        }
    }
}
