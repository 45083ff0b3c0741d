//! Whether etcd can spare this node now, by all who can be asked, and moving its lead away before it goes.
//!
//! Not here: when that is asked (`turn`, the keeper, a caller without the API), and the rule (`margin::rule`). Sources:
//! spec/cluster-lock.md 3.4, 5.4 and 5.5; goals U3, U4.

use std::net::IpAddr;

use kubeapi::ApiClient;
use step::Mono;
use tracing::{info, warn};

use crate::Ours;
use crate::calls::{self, NodeListing, Pulses};
use crate::margin::calls as etcd;
use crate::margin::facts::{EtcdFacts, Kubernetes, OwnEtcd};
use crate::margin::rule::{Margin, judge, node_of, successor};
use crate::margin::words;

/// All that is known now, with what the agents of the other members say.
async fn facts(ours: &Ours, own: OwnEtcd, kubernetes: Kubernetes) -> EtcdFacts {
    let asked = peers(&own, &kubernetes).into_iter().filter(|(node, _)| node != ours.node.as_str());
    let words = words::ask(asked, ours.port).await;
    let words = words.into_iter().map(|(node, answer)| words::word(node, answer)).collect();
    EtcdFacts { node: ours.node.to_string(), own, kubernetes, words }
}

/// The servers with etcd and where their agents are: as Kubernetes says, else as the list of members does.
fn peers(own: &OwnEtcd, kubernetes: &Kubernetes) -> Vec<(String, IpAddr)> {
    match kubernetes {
        Kubernetes::Read(nodes) => {
            let servers = nodes.iter().filter(|it| it.etcd);
            servers.filter_map(|it| Some((it.name.clone(), it.address?))).collect()
        }
        Kubernetes::Unreachable(_) => {
            let members = own.members.iter().flat_map(|it| &it.members);
            members.filter_map(|it| Some((node_of(it).to_owned(), it.address?))).collect()
        }
        Kubernetes::Unreadable(_) => Vec::new(),
    }
}

/// What one reading has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    /// Why our node may go, or why not.
    pub margin: Result<String, String>,
    /// Whether our member leads; `None` where that could not be read.
    pub leads: Option<bool>,
}

/// Whether the cluster can spare our node, a server; read now.
pub async fn spare(ours: &Ours, kubernetes: Kubernetes) -> Spared {
    let own = etcd::read(&ours.etcd).await;
    let leads = own.metrics.as_ref().ok().map(|it| it.is_leader);
    let margin = match judge(&facts(ours, own, kubernetes).await).margin {
        Margin::Spare { voters, healthy, quorum } => {
            info!(voters, healthy, quorum, "etcd can spare this node");
            Ok(format!("{healthy} of {voters} etcd voters are healthy, {quorum} are required"))
        }
        Margin::NotApplicable { why } => {
            info!(why, "no quorum of etcd to keep");
            Ok(why)
        }
        Margin::None { why } => Err(why),
    };
    Spared { margin, leads }
}

/// Whether our member of etcd leads; `None` where that cannot be read.
pub(crate) async fn leads(ours: &Ours) -> Option<bool> {
    words::own(&ours.etcd).await.filter(|it| !it.member.is_empty()).map(|it| it.leads)
}

/// Asks those agents of the nodes whose names are given whether they are idle, and notes it.
pub(crate) async fn ask_idle(looked: &mut NodeListing, names: &[String], port: u16) {
    let asked = looked.servers.iter().filter(|it| names.contains(&it.name));
    let asked: Vec<(String, IpAddr)> = asked.filter_map(|it| Some((it.name.clone(), it.address?))).collect();
    for (name, answer) in words::ask(asked, port).await {
        let idle = answer.is_ok_and(|it| it.turn.idle);
        for node in looked.nodes.iter_mut().filter(|it| it.name == name) {
            node.idle = idle;
        }
    }
}

/// Moves the lead of etcd to a healthy member, if possible none of `next`, and says so; nothing where ours does not lead.
pub(crate) async fn move_lead(cluster: &ApiClient, ours: &Ours, next: &[String], now: Mono) {
    let own = etcd::read(&ours.etcd).await;
    if !own.metrics.as_ref().is_ok_and(|it| it.is_leader) {
        return;
    }
    let moved = async {
        let looked = calls::look(cluster, &ours.node, &mut Pulses::default(), now)
            .await
            .map_err(|it| it.to_string())?;
        let verdict = judge(&facts(ours, own, Kubernetes::Read(looked.servers)).await);
        let Some((to, id)) = successor(&verdict.may_lead, next) else {
            return Err(format!(
                "no other member is known to be healthy and no witness: {:?}",
                verdict.margin
            ));
        };
        etcd::hand_over(&ours.etcd, *id).await.map(|()| to.clone())
    };
    match moved.await {
        Ok(to) => info!(node = %ours.node, to, "moved the leadership of etcd before going down"),
        // etcd elects another leader by itself, some seconds later (goal U4).
        Err(why) => {
            warn!(node = %ours.node, why, "could not move the leadership of etcd; it is elected again");
        }
    }
}
