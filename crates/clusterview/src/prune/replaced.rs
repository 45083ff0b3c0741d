//! Replaced control-plane nodes: the leader deletes their Node objects, so that their places become free
//! (spec/agents.md 4.9).
//!
//! A node that is not on the config's list is deleted, except our own and those with an unknown device. A
//! list without any node of the cluster is another cluster's: then nothing is deleted. Not here: when, and
//! leadership.

use kubeapi::slim::NodeObject;

use kubeapi::ApiClient;
use kubeapi::Error;

use kubeapi::found;
use kubeapi::names::{CONTROL_PLANE_NOW, NodeName};
use kubeapi::nodes::{self, UUID_LABEL};
use kubeapi::watch::WatchScope;

/// A Node object to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    pub name: NodeName,
    pub device_uuid: String,
    uid: Option<String>,
}

/// The control-plane nodes, judged by the config's list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplacedNodes {
    pub stale: Vec<Stale>,
    /// Nodes without a device UUID: they stay.
    pub unlabelled: Vec<String>,
    /// No node of the cluster is on the list.
    pub foreign_list: bool,
}

/// `keep` is the config's list, `own` the UUID of our device.
pub async fn look(cluster: &ApiClient, keep: &[String], own: &str) -> Result<ReplacedNodes, Error> {
    let scope = WatchScope {
        what: "control-plane nodes".to_owned(),
        path: NodeObject::url_path(None),
        fields: None,
        labels: Some(CONTROL_PLANE_NOW.to_owned()),
    };
    let list = scope.list_all::<NodeObject>(cluster).await?;
    judge(&list.items, keep, own)
}

fn judge(nodes: &[NodeObject], keep: &[String], own: &str) -> Result<ReplacedNodes, Error> {
    let mut found = ReplacedNodes { foreign_list: true, ..ReplacedNodes::default() };
    for node in nodes {
        let name = NodeName::parse(node.metadata.name.as_deref().unwrap_or_default())?;
        let label = node.metadata.labels.as_ref().and_then(|all| all.get(UUID_LABEL));
        let Some(device) = label.filter(|it| !it.is_empty()) else {
            found.unlabelled.push(name.to_string());
            continue;
        };
        if keep.iter().any(|it| it.eq_ignore_ascii_case(device)) {
            found.foreign_list = false;
        } else if !device.eq_ignore_ascii_case(own) {
            let uid = node.metadata.uid.clone();
            found.stale.push(Stale { name, device_uuid: device.clone(), uid });
        }
    }
    if found.foreign_list {
        found.stale.clear();
    }
    Ok(found)
}

/// Only this object, by UID; a missing one is no error.
pub async fn delete(cluster: &ApiClient, stale: &Stale) -> Result<(), Error> {
    found(nodes::delete(cluster, &stale.name, stale.uid.clone()).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, uuid: &str) -> NodeObject {
        let labels = if uuid.is_empty() { json!({}) } else { json!({ "node-uuid": uuid }) };
        let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": labels } });
        serde_json::from_value(object).unwrap()
    }

    fn judged(keep: &[&str], own: &str) -> (Vec<String>, Vec<String>, bool) {
        let nodes = [node("n1", "A"), node("n2", "b"), node("n3", "c"), node("n4", "")];
        let keep: Vec<String> = keep.iter().map(|&it| it.to_owned()).collect();
        let found = judge(&nodes, &keep, own).unwrap();
        (found.stale.iter().map(|it| it.name.to_string()).collect(), found.unlabelled, found.foreign_list)
    }

    #[test]
    fn a_node_off_the_list_goes_but_never_our_own_nor_one_of_no_known_device() {
        let names = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let unlabelled = names(&["n4"]);
        assert_eq!(judged(&["a", "B"], "a"), (names(&["n3"]), unlabelled.clone(), false));
        assert_eq!(judged(&["a", "b", "c"], "a"), (names(&[]), unlabelled.clone(), false));
        assert_eq!(judged(&["b"], "C"), (names(&["n1"]), unlabelled.clone(), false), "own, off the list");
        assert_eq!(judged(&["x"], "a"), (names(&[]), unlabelled, true), "the list of another cluster");
    }
}
