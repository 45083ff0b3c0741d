//! Replaced control-plane nodes: the leader deletes their Node objects, so that their places become free: after each
//! change of the cluster's config, when it becomes the leader, and every ten minutes.
//!
//! A node that is not on the config's list is deleted, except our own and those with an unknown device. A list
//! without any node of the cluster is another cluster's: then nothing is deleted. Not here: leadership.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use kubeapi::names::{CONTROL_PLANE_NOW, NodeName};
use kubeapi::nodes::{self, UUID_LABEL};
use kubeapi::slim::NodeObject;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, OwnNode, found};
use tokio::sync::watch;
use topics::EdgeNodeClusterConfig;
use tracing::{info, warn};

use crate::leader::Leadership;
use crate::{ClusterConfig, leads_otherwise};

/// Runs until the sender of `leading` is gone. Dropping it ends its calls.
pub(crate) async fn run(
    cluster: ApiClient,
    clock: Clock,
    every: Duration,
    own_node: OwnNode,
    mut config: ClusterConfig,
    mut leading: watch::Receiver<Leadership>,
) {
    let mut said = Warned::default();
    loop {
        let masters = masters(config.borrow_and_update().as_deref());
        let leads = leading.borrow_and_update().holds(clock.now());
        let due = (leads && !masters.is_empty()).then(|| clock.now() + every);
        if leads && !masters.is_empty() {
            if let Err(why) = sweep(&cluster, clock, &own_node, &masters, &leading, &mut said).await
                && said.is_new(why.clone())
            {
                warn!(error = why, "cannot look for replaced control-plane nodes");
            }
            said.end_look();
        }
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            known = leads_otherwise(&mut leading, clock, leads) => if !known { return },
            () = clock.sleep_until(due), if due.is_some() => {}
        }
    }
}

/// Warnings of the last look and this one: a warning is not repeated while it holds, and older ones are
/// forgotten, so that memory is bounded.
#[derive(Debug, Default)]
struct Warned {
    before: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Warned {
    /// Whether neither the last look nor this one has found it.
    fn is_new(&mut self, what: String) -> bool {
        !self.before.contains(&what) & self.now.insert(what)
    }

    fn end_look(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

/// The devices of the control plane, from a member's config; empty when unknown.
fn masters(config: Option<&EdgeNodeClusterConfig>) -> Vec<String> {
    let listed = config.and_then(|it| it.master_node_ids.as_deref()).unwrap_or_default();
    listed.iter().map(ToString::to_string).collect()
}

async fn sweep(
    cluster: &ApiClient,
    clock: Clock,
    own_node: &OwnNode,
    masters: &[String],
    leading: &watch::Receiver<Leadership>,
    said: &mut Warned,
) -> Result<(), String> {
    let (_, own) = own_node.get()?;
    let found = look(cluster, masters, &own).await.map_err(|error| error.advice())?;
    for node in &found.unlabelled {
        if said.is_new(format!("unlabelled {node}")) {
            warn!(node, "a control-plane node without label node-uuid: it is left alone");
        }
    }
    if found.foreign_list && said.is_new("foreign list".to_owned()) {
        warn!("no control-plane node is on the config's list MasterNodeIDs: none is deleted");
    }
    for stale in &found.stale {
        // Each deletion needs the lease at its own moment.
        if !leading.borrow().holds(clock.now()) {
            return Ok(());
        }
        delete(cluster, stale).await.map_err(|error| error.advice())?;
        info!(
            node = %stale.name,
            device = stale.device_uuid,
            "a control-plane node that is no longer in the config's list was deleted"
        );
    }
    Ok(())
}

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
    let all = WatchScope::all("control-plane nodes", NodeObject::url_path(None));
    let scope = WatchScope { labels: Some(CONTROL_PLANE_NOW.to_owned()), ..all };
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

    #[test]
    fn what_still_holds_is_warned_of_once_and_what_is_over_is_forgotten() {
        let mut warned = Warned::default();
        assert!(warned.is_new("a".to_owned()) && !warned.is_new("a".to_owned()));
        warned.end_look();
        assert!(!warned.is_new("a".to_owned()));
        warned.end_look();
        for look in 0..1000 {
            assert!(warned.is_new(format!("trouble {look}")));
            warned.end_look();
            assert!(warned.before.len() + warned.now.len() <= 2);
        }
        assert!(warned.is_new("a".to_owned()), "it is back");
    }

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
