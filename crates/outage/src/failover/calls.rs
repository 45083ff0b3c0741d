//! What is read of silent nodes, and the one write of a failover: a patch of one Node.
//!
//! Not here: when, and what follows. Every call has a deadline.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kube::api::Patch;
use kubeapi::lease::CALL_LIMIT;
use kubeapi::nodes::{self, DEAD_BOOT_ANNOTATION, OUT_OF_SERVICE, signed};
use kubeapi::objects::{items, text};
use kubeapi::slim::longhorn::{self, NODE_DOWN_NOTHING, NODE_DOWN_POLICY};
use kubeapi::{ApiClient, Error};
use serde_json::{Value, json};

use super::silence::Heard;
use crate::calls::NodeItem;
use crate::margin::facts::ServerNode;
use crate::margin::words;
use crate::turn::record::DeclaredNode;
use crate::turn::rule::TurnNode;

/// Groups of software that acts on silent nodes, and what of it does.
const ACTORS: [(&str, &str); 3] = [
    ("remediation.medik8s.io", "the Node Healthcheck Operator"),
    ("self-node-remediation.medik8s.io", "Self Node Remediation"),
    ("harvesterhci.io", "Harvester, whose vm-force-reset-policy is on by default"),
];

/// By each of `silent` the nodes that it answers: this node, `own`, and others by the word of their agents. A machine that
/// refuses the connection lives. Dropping it loses nothing.
pub async fn heard(
    own: &str,
    silent: &[&TurnNode],
    nodes: &[ServerNode],
    port: u16,
) -> BTreeMap<String, Heard> {
    let others = nodes.iter().filter(|it| it.name != own);
    let asked: Vec<(String, IpAddr)> = others.filter_map(|it| Some((it.name.clone(), it.address?))).collect();
    let answers = words::ask(asked.clone(), port).await;
    let mut all = BTreeMap::new();
    for node in silent {
        let mut heard = Heard::new();
        if asked.iter().any(|(name, _)| *name == node.name) {
            // Left out is one that refuses the connection.
            heard.insert(own.to_owned(), answers.get(&node.name).is_none_or(Result::is_ok));
        }
        for (peer, said) in &answers {
            let said = said.as_ref().ok().and_then(|it| it.hears.get(&node.name));
            heard.extend(said.filter(|_| *peer != node.name).map(|it| (peer.clone(), *it)));
        }
        all.insert(node.name.clone(), heard);
    }
    all
}

/// Puts the taint of `entry` on its Node, by one patch that names the version and the UID that were read.
/// Errors: those of [`ApiClient`]; a lost race is [`Error::is_conflict`].
pub async fn taint(cluster: &ApiClient, node: &NodeItem, entry: &DeclaredNode) -> Result<(), Error> {
    let ours = json!({ "key": OUT_OF_SERVICE, "value": entry.mark(), "effect": "NoExecute" });
    let taints: Vec<&Value> = node.taints.iter().chain([&ours]).collect();
    let body = json!({
        "metadata": {
            "resourceVersion": node.version,
            "uid": entry.node_uid,
            "annotations": { DEAD_BOOT_ANNOTATION: entry.boot_id },
        },
        "spec": { "taints": taints },
    });
    let patch = nodes::api().patch(&entry.node, &signed(), &Patch::Merge(body));
    let what = format!("take node {} out of service", entry.node);
    cluster.ask_within::<Value>(CALL_LIMIT, &what, patch).await.map(drop)
}

/// The minor version of Kubernetes 1; `None` where it says none.
/// Errors: those of [`ApiClient`].
pub async fn minor_version(cluster: &ApiClient) -> Result<Option<u32>, Error> {
    let said: Value = cluster.ask_path("read the version of Kubernetes", "/version").await?;
    let minor = text(&said["minor"]);
    let digits = minor.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
    Ok(digits.parse().ok().filter(|_| said["major"] == "1"))
}

/// Who else acts on silent nodes, without knowing that they are off.
/// Errors: those of [`ApiClient`].
pub async fn actors(cluster: &ApiClient) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let settings = longhorn::scope("settings").list_installed::<Value>(cluster).await?.unwrap_or_default();
    let policy = settings.iter().find(|it| it["metadata"]["name"] == NODE_DOWN_POLICY);
    if let Some(value) =
        policy.map(|it| text(&it["value"])).filter(|it| it != NODE_DOWN_NOTHING && !it.is_empty())
    {
        found.push(format!("Longhorn, whose {NODE_DOWN_POLICY} is {value}"));
    }
    let groups: Value = cluster.ask_path("read the API groups", "/apis").await?;
    let served = |group: &str| items(&groups["groups"]).iter().any(|it| it["name"] == group);
    found.extend(ACTORS.iter().filter(|(group, _)| served(group)).map(|(_, who)| (*who).to_owned()));
    Ok(found)
}
