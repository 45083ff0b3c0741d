//! Whether the virtual IP of the API is there: kube-vip's leases are held by a node that is Ready and they are renewed, and
//! the address takes a connection.
//!
//! A cluster without kube-vip has none. That a lease is renewed is seen by its time being another one. Source:
//! spec/cluster-lock.md 7.

use std::time::Duration;

use checks::cluster;
use checks::network::{self, VirtualIp};
use kubeapi::{ApiClient, Error};
use tokio::net::TcpStream;

use crate::turn::pulses::Pulse;
use crate::turn::rule::TurnNode;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The leases as they were seen first with a holder that is Ready.
#[derive(Debug, Default)]
pub struct Address(Vec<VirtualIp>);

impl Address {
    /// Why it is not there yet, or empty.
    pub async fn look(&mut self, cluster: &ApiClient, nodes: &[TurnNode]) -> Result<String, Error> {
        let is_ready =
            |name: &str| nodes.iter().any(|it| it.name == name && it.ready && it.pulse != Pulse::Still);
        let all = cluster::virtual_ips(cluster, is_ready).await?;
        for it in &all {
            if it.ready && !self.0.iter().any(|first| first.lease == it.lease) {
                self.0.push(it.clone());
            }
        }
        if let Some(found) = network::virtual_ips(&network::renewed(&all, &self.0)).pop() {
            return Ok(found.text);
        }
        if all.is_empty() {
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
    let variables = cluster::kube_vip(cluster, None).await?;
    let given = |name: &str| variables.get(name).filter(|it| !it.is_empty());
    let port = given("port").map_or("6443", String::as_str);
    let address = given("address").or_else(|| given("vip_address"));
    Ok(address
        .filter(|_| given("cp_enable").is_none_or(|it| it == "true"))
        .map(|it| if it.contains(':') { format!("[{it}]:{port}") } else { format!("{it}:{port}") }))
}
