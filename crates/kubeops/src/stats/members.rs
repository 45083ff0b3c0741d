//! The nodes of the cluster by one call, for whoever needs them now and then and follows nothing.
//!
//! Source: spec/agents.md 4.7 (who is asked for `/cluster-app`).

use core::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;

use super::facts::Node;
use super::objects::{self, Raw, items};
use crate::client::Cluster;
use crate::error::Error;

/// More nodes are not read.
const MOST: u32 = 500;

/// A node and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub facts: Node,
    /// All its addresses of the type `InternalIP`, in their order; texts that are no addresses are left out.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    items: Vec<Raw>,
}

/// All nodes, 500 at most, in the server's order. Dropping it loses nothing.
///
/// # Errors
/// Those of [`Cluster`], also when the answer takes longer than `limit`.
pub async fn members(cluster: &Cluster, limit: Duration) -> Result<Vec<Member>, Error> {
    let list = Request::new(NodeObject::url_path(&(), None)).list(&ListParams::default().limit(MOST));
    let page: Page = cluster.ask_within(limit, "list nodes", list).await?;
    Ok(page.items.iter().map(member).collect())
}

fn member(raw: &Raw) -> Member {
    let internal = items(&raw.status["addresses"]).iter().filter(|it| it["type"] == "InternalIP");
    Member {
        name: raw.metadata.name.clone().unwrap_or_default(),
        facts: objects::node(raw),
        addresses: internal.filter_map(|it| it["address"].as_str()?.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn internal_addresses_of_both_families_are_kept_and_nonsense_is_left_out() {
        let raw: Raw = serde_json::from_value(json!({
            "metadata": { "name": "n2", "labels": { "node-role.kubernetes.io/etcd": "true" } },
            "spec": { "unschedulable": true },
            "status": { "addresses": [
                { "type": "Hostname", "address": "n2" },
                { "type": "InternalIP", "address": "10.244.244.2" },
                { "type": "ExternalIP", "address": "192.0.2.7" },
                { "type": "InternalIP", "address": "evil/../" },
                { "type": "InternalIP", "address": "fd00::2" },
                { "type": "InternalIP" },
            ] },
        }))
        .unwrap();
        let seen = member(&raw);
        let addresses: Vec<String> = seen.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.244.244.2", "fd00::2"]);
        assert_eq!((seen.name.as_str(), seen.facts.etcd, seen.facts.unschedulable), ("n2", true, true));
    }
}
