//! Whether the virtual IP of the API is there: kube-vip's leases are held by a node that is Ready and they are renewed, and
//! the address takes a connection.
//!
//! A cluster without kube-vip has none. That a lease is renewed is seen by its version on our own clock. Source:
//! spec/cluster-lock.md 7.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::api::GetParams;
use kube::core::Request;
use kubeapi::names::VIRTUAL_IPS;
use kubeapi::objects::{items, text};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::turn::pulses::Pulse;
use crate::turn::rule::TurnNode;

const NAMESPACE: &str = "kube-system";
/// The labels of its DaemonSet.
const LABELS: &str = "app.kubernetes.io/name=kube-vip-ds";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What was seen of it.
#[derive(Debug, Default)]
pub struct Address {
    /// The version of each lease when it was seen first.
    first: BTreeMap<&'static str, String>,
}

impl Address {
    /// Why it is not there yet, or empty.
    pub async fn look(&mut self, cluster: &ApiClient, nodes: &[TurnNode]) -> Result<String, Error> {
        let (mut used, mut late) = (false, String::new());
        for name in VIRTUAL_IPS {
            let what = format!("read lease {NAMESPACE}/{name}");
            let path = Lease::url_path(&(), Some(NAMESPACE));
            let lease =
                cluster.ask::<Value>(&what, Request::new(path).get(name, &GetParams::default())).await;
            let Some(lease) = found(lease)? else { continue };
            used = true;
            let holder = text(&lease["spec"]["holderIdentity"]);
            if !nodes.iter().any(|it| it.name == holder && it.ready && it.pulse != Pulse::Still) {
                let holder = if holder.is_empty() { "nobody" } else { &holder };
                return Ok(format!(
                    "the virtual IP: lease {NAMESPACE}/{name} is held by {holder}, which is no node that is Ready"
                ));
            }
            let version = text(&lease["metadata"]["resourceVersion"]);
            if *self.first.entry(name).or_insert_with(|| version.clone()) == version {
                late = format!("the virtual IP: lease {NAMESPACE}/{name} to be renewed by node {holder}");
            }
        }
        if !late.is_empty() {
            return Ok(late);
        }
        if !used {
            return Ok(String::new());
        }
        let Some(address) = configured(cluster).await? else { return Ok(String::new()) };
        let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&address)).await;
        Ok(match connected {
            Ok(Ok(_)) => String::new(),
            Ok(Err(why)) => format!("the virtual IP {address}: {why}"),
            Err(_elapsed) => {
                format!("the virtual IP {address}: no answer within {} s", CONNECT_LIMIT.as_secs())
            }
        })
    }
}

/// Address and port of the control plane, as kube-vip was given them.
async fn configured(cluster: &ApiClient) -> Result<Option<String>, Error> {
    let mut sets = WatchScope::all("daemonsets of kube-vip", DaemonSet::url_path(&(), Some(NAMESPACE)));
    sets.labels = Some(LABELS.to_owned());
    let sets = sets.list_all::<Value>(cluster).await?;
    let mut variables = BTreeMap::new();
    for set in &sets.items {
        for container in items(&set["spec"]["template"]["spec"]["containers"]) {
            for it in items(&container["env"]) {
                variables.insert(text(&it["name"]), text(&it["value"]));
            }
        }
    }
    let given = |name: &str| variables.get(name).filter(|it| !it.is_empty());
    let port = given("port").map_or("6443", String::as_str);
    let address = given("address").or_else(|| given("vip_address"));
    Ok(address
        .filter(|_| given("cp_enable").is_none_or(|it| it == "true"))
        .map(|it| if it.contains(':') { format!("[{it}]:{port}") } else { format!("{it}:{port}") }))
}
