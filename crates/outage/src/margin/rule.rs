//! Whether etcd keeps its quorum without this node.
//!
//! Who votes is in etcd's own list of members, whatever its version. Any own source that cannot be read and any two
//! that differ mean no. Not here: reading, forcing, whose turn it is. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::Inserted as _;

use super::facts::Metrics;
use super::facts::{Data, EtcdFacts, Kubernetes, ListedMemberFacts, Readyz, ServerNode};

/// An `EtcdIsVoter` that was not written for so long is stale: k3s writes it every 5 minutes at least.
pub const VOTER_STALE: Duration = Duration::from_secs(11 * 60);

/// Whether etcd can spare this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Margin {
    /// It can: without this node at least `quorum` healthy voters are left.
    Spare {
        voters: usize,
        /// Those that are healthy, this node included if it is.
        healthy: usize,
        quorum: usize,
    },
    /// There is no quorum to keep; the node may go.
    NotApplicable {
        /// Why, and what the outage means, for a person.
        why: String,
    },
    /// It cannot, or that is not known.
    None {
        /// What, where, and what to type.
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarginVerdict {
    /// Whether this node may go.
    pub margin: Margin,
    /// Healthy voters besides this one to which the lead may go, node and member id: no witness. Empty unless there is
    /// margin.
    pub may_lead: Vec<(String, u64)>,
}

/// Judges. The rule: V voters, quorum Q = V/2 + 1; this node may go when Q healthy voters are left without it, whether
/// it is healthy itself or not.
pub fn judge(facts: &EtcdFacts) -> MarginVerdict {
    let mut may_lead = Vec::new();
    let margin = weigh(facts, &mut may_lead).unwrap_or_else(|why| {
        may_lead.clear();
        Margin::None { why }
    });
    MarginVerdict { margin, may_lead }
}

/// The member that takes over leadership, of those that may: if possible none of `next`, the nodes that go next.
pub fn successor<'a>(may_lead: &'a [(String, u64)], next: &[String]) -> Option<&'a (String, u64)> {
    may_lead.iter().find(|(node, _)| !next.contains(node)).or_else(|| may_lead.first())
}

struct PeerVoter<'a> {
    name: &'a str,
    /// `None` while the API is unreachable.
    node: Option<&'a ServerNode>,
    /// The node that shares its machine with it; it has none of its own.
    host: Option<&'a ServerNode>,
    id: u64,
}

fn weigh(facts: &EtcdFacts, may_lead: &mut Vec<(String, u64)>) -> Result<Margin, String> {
    let nodes = match &facts.kubernetes {
        Kubernetes::Read(nodes) => Some(nodes.as_slice()),
        Kubernetes::Unreachable(_) => None,
        Kubernetes::Unreadable(why) => {
            return Err(format!("the nodes cannot be read from Kubernetes: {why}"));
        }
    };
    if let Some(why) = no_member(facts, nodes)? {
        return Ok(Margin::NotApplicable { why });
    }
    let metrics = facts.own.metrics.as_ref().map_err(Clone::clone)?;
    in_the_cluster(facts, metrics)?;
    let servers: Option<Vec<&ServerNode>> = nodes.map(|all| all.iter().filter(|it| it.etcd).collect());
    let servers = servers.as_deref();
    let members = listed(facts, metrics, servers)?;
    let voters = members.len();
    let witnesses = members.iter().filter(|it| host(it, &facts.node, servers).is_some()).count();
    if let Some(servers) = servers.filter(|it| it.len() + witnesses != voters) {
        let names: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
        return Err(format!(
            "etcd has {voters} members, but nodes with its role label: {} ({}); compare `kubectl get nodes -l \
             node-role.kubernetes.io/etcd` with the member list, and remove what is no longer there",
            servers.len(),
            names.join(", ")
        ));
    }
    if voters == 1 {
        return Ok(Margin::NotApplicable { why: alone(facts) });
    }
    let self_sick = match facts.own.readyz.as_ref().map_err(Clone::clone)? {
        Readyz::Ready => None,
        Readyz::NotReady(why) => Some(format!("{} (its /readyz: {})", facts.node, why.trim())),
    };
    for server in servers.unwrap_or_default() {
        is_voter(server, self_sick.is_some() && server.name == facts.node)?;
    }
    let alarms = facts.own.alarms.as_ref().map_err(|why| format!("etcd's alarms cannot be read: {why}"))?;
    if !alarms.is_empty() {
        return Err(format!(
            "etcd has the alarm {}; free disk space or replace the damaged member, then clear it: `etcdctl alarm disarm`",
            alarms.join(", ")
        ));
    }
    if voters == 2 {
        return Err(format!(
            "etcd has two voters and needs both: without node {} the cluster stops; add a third server, or force it, \
             or take the whole site down",
            facts.node
        ));
    }
    let peers = peers(facts, servers, members)?;
    let (mut sick, mut look, mut healthy) = (Vec::new(), vec!["kubectl describe nodes"], 0_usize);
    for peer in &peers {
        // One that was never reached is not known to be there.
        let connected = |id| metrics.streams.get(&id).copied().unwrap_or_default();
        let sickness = |peer: &PeerVoter<'_>| sickness(facts, peer, !connected(peer.id));
        let of_host = peer.host.and_then(|host| peers.iter().find(|it| it.name == host.name));
        let why = match of_host.map(sickness).transpose()?.flatten() {
            None => sickness(peer)?,
            of_host => of_host,
        };
        if let Some(why) = why {
            sick.push(format!("{} ({why})", peer.name));
            look.push(peer.host.map_or(peer.name, |it| &it.name));
            continue;
        }
        healthy += 1;
        if peer.host.is_none() && !peer.node.is_some_and(|it| it.witness) {
            may_lead.push((peer.name.to_owned(), peer.id));
        }
    }
    let quorum = voters / 2 + 1;
    let all_healthy = healthy + usize::from(self_sick.is_none());
    if healthy >= quorum {
        return Ok(Margin::Spare { voters, healthy: all_healthy, quorum });
    }
    if let Some(witness) = peers.iter().find(|it| it.host.is_some_and(|host| host.name == facts.node)) {
        return Err(format!(
            "{voters} vote in etcd, and of them the witness {} is on the machine of node {}: with it two go, {healthy} would be \
             left, {quorum} are required; let the controller move the witness, or force it, or take the whole site down",
            witness.name, facts.node
        ));
    }
    sick.extend(self_sick);
    Err(format!(
        "{all_healthy} of {voters} etcd voters are healthy; without node {} {healthy} would be left, {quorum} are \
         required. Not healthy: {}; see `{}`",
        facts.node,
        sick.join("; "),
        look.join(" ")
    ))
}

/// Why this node is no member of etcd; `None` if it is one.
fn no_member(facts: &EtcdFacts, nodes: Option<&[ServerNode]>) -> Result<Option<String>, String> {
    let data = facts.own.data.as_ref().map_err(Clone::clone)?;
    let Some(nodes) = nodes else {
        return match data {
            Data::Present => Ok(None),
            Data::Absent { looked } => Err(format!(
                "Kubernetes cannot be reached, and there is no sign that etcd runs on node {}: {looked}",
                facts.node
            )),
        };
    };
    let node = &facts.node;
    let own = nodes.iter().find(|it| it.name == *node).ok_or_else(|| {
        format!("node {node} is not among the nodes of the cluster; see `kubectl get nodes`")
    })?;
    match (own.etcd, data) {
        (true, Data::Present) => Ok(None),
        (true, Data::Absent { looked }) => {
            Err(format!("node {node} has the role label of etcd, but no data of etcd: {looked}"))
        }
        (false, Data::Present) => Err(format!(
            "node {node} has data of etcd, but not the role label node-role.kubernetes.io/etcd; see `kubectl get \
             node {node} --show-labels`, and remove the data if it left the cluster"
        )),
        (false, Data::Absent { .. }) if !own.control_plane => {
            Ok(Some(format!("node {node} is no server: etcd loses nothing")))
        }
        (false, Data::Absent { .. }) => {
            let is_other = |it: &&ServerNode| it.control_plane && it.name != *node;
            Ok(Some(match nodes.iter().filter(is_other).count() {
                0 => format!(
                    "node {node} keeps its data without etcd (kine) and is the only server: the Kubernetes API is not \
                     available while it is down"
                ),
                others => format!(
                    "node {node} keeps its data without etcd (kine or another machine): no quorum to keep; \
                     {others} other servers"
                ),
            }))
        }
    }
}

/// That our own member votes and knows a leader; without one most other sources are silent.
fn in_the_cluster(facts: &EtcdFacts, metrics: &Metrics) -> Result<(), String> {
    let node = &facts.node;
    if metrics.is_learner {
        return Err(format!(
            "etcd on node {node} is still a learner; wait until it has caught up and is promoted"
        ));
    }
    if !metrics.has_leader {
        return Err(format!(
            "etcd on node {node} has no leader: a majority of its members does not answer; start the other servers, \
             and check port 2380 between them"
        ));
    }
    Ok(())
}

/// The sentence of a single server.
fn alone(facts: &EtcdFacts) -> String {
    let mut why = format!(
        "node {} is the only etcd server: the Kubernetes API is not available while it is down",
        facts.node
    );
    if let Some(alarms) = facts.own.alarms.as_ref().ok().filter(|it| !it.is_empty()) {
        why.push_str("; etcd has the alarm ");
        why.push_str(&alarms.join(", "));
    }
    why
}

/// The member list, checked against the metrics and the nodes. All of its members vote.
fn listed<'a>(
    facts: &'a EtcdFacts,
    metrics: &Metrics,
    servers: Option<&[&ServerNode]>,
) -> Result<&'a [ListedMemberFacts], String> {
    let list = facts.own.members.as_ref().map_err(|why| {
        format!("the members of etcd {} on node {} are not known: {why}", metrics.version, facts.node)
    })?;
    if list.by != metrics.id {
        return Err(format!(
            "the metrics are those of etcd member {:x}, the member list comes from {:x}: the two addresses belong to \
             different servers",
            metrics.id, list.by
        ));
    }
    if let Some(member) = list.members.iter().find(|it| it.learner) {
        return Err(format!(
            "etcd member {:x} {} is a learner: a server is joining; wait until it is promoted",
            member.id, member.name
        ));
    }
    if let Some(member) = list.members.iter().find(|it| it.name.is_empty()) {
        return Err(format!(
            "etcd member {:x} was added and never started; start its server, or remove the member",
            member.id
        ));
    }
    let ids: BTreeSet<u64> = list.members.iter().map(|it| it.id).into_set();
    if list.members.len() != ids.len() || !ids.contains(&metrics.id) {
        return Err(format!(
            "the member list names {} members, {} different ones, and member {:x} that answers here is {}; see \
             `etcdctl member list`",
            list.members.len(),
            ids.len(),
            metrics.id,
            if ids.contains(&metrics.id) { "one of them" } else { "none of them" }
        ));
    }
    let own = list.members.iter().find(|it| it.id == metrics.id);
    if let Some(own) = own.filter(|it| !is_of(it, &facts.node, servers)) {
        return Err(format!(
            "the etcd that answers here is member {}, which does not belong to node {}: the addresses lead to \
             another server",
            own.name, facts.node
        ));
    }
    Ok(&list.members)
}

/// Whether a member is the one of this node: by the node's annotation, else by its name, which is the node's with a
/// dash and 8 hexadecimal digits.
fn is_of(member: &ListedMemberFacts, node: &str, servers: Option<&[&ServerNode]>) -> bool {
    let object = servers.and_then(|all| all.iter().find(|it| it.name == node));
    match object.and_then(|it| it.member.as_ref()) {
        Some(annotated) => *annotated == member.name,
        None => node_of(member) == node,
    }
}

/// The node of a member, as its name has it: with a dash and 8 hexadecimal digits behind it.
pub(crate) fn node_of(member: &ListedMemberFacts) -> &str {
    let is_suffix = |it: &str| it.len() == 8 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    let split = member.name.rsplit_once('-').filter(|(_, end)| is_suffix(end));
    split.map_or(member.name.as_str(), |(node, _)| node)
}

/// That `EtcdIsVoter` of a server says nothing against it.
fn is_voter(server: &ServerNode, knows_itself_sick: bool) -> Result<(), String> {
    let name = &server.name;
    let look = format!("see `kubectl describe node {name}`");
    let Some(voter) = &server.voter else { return Ok(()) };
    match (voter.status.as_str(), voter.reason.as_str()) {
        ("True", "MemberNotLearner") if voter.unmoved <= VOTER_STALE => Ok(()),
        ("True", "MemberNotLearner") => Err(format!(
            "the condition EtcdIsVoter of node {name} is stale: not written for {} min; {look}, and check k3s or \
             rke2 on the leader's node",
            voter.unmoved.as_secs() / 60
        )),
        ("False", "Unhealthy") if knows_itself_sick => Ok(()),
        ("False", "Unhealthy") => Err(format!(
            "the condition EtcdIsVoter of node {name} says that its etcd is unhealthy: {}; {look}",
            voter.message
        )),
        ("False", "MemberIsLearner") => {
            Err(format!("etcd on node {name} is still a learner (EtcdIsVoter); wait until it is promoted"))
        }
        ("False", "NotAMember") => Err(format!(
            "node {name} has the role label of etcd, but is no member of it (EtcdIsVoter); {look}"
        )),
        (status, reason) => {
            Err(format!("the condition EtcdIsVoter of node {name} is {status}/{reason}; {look}"))
        }
    }
}

/// The server that shares its machine with this member, which has no node: `own`, if two say so.
fn host<'a>(
    member: &ListedMemberFacts,
    own: &str,
    servers: Option<&[&'a ServerNode]>,
) -> Option<&'a ServerNode> {
    let hosts = |it: &&&ServerNode| it.hosts.is_some_and(|(at, _)| member.address == Some(at));
    servers.into_iter().flatten().filter(hosts).min_by_key(|it| it.name != own).copied()
}

/// All voters but this one.
fn peers<'a>(
    facts: &'a EtcdFacts,
    servers: Option<&[&'a ServerNode]>,
    members: &'a [ListedMemberFacts],
) -> Result<Vec<PeerVoter<'a>>, String> {
    let others = || servers.into_iter().flatten().copied().filter(|it| it.name != facts.node);
    let is_own = |it: &&ListedMemberFacts| is_of(it, &facts.node, servers);
    let peer = |member: &'a ListedMemberFacts| {
        let node = others().find(|node| is_of(member, &node.name, servers));
        let host = host(member, &facts.node, servers);
        if servers.is_some() && node.is_none() && host.is_none() {
            return Err(format!(
                "etcd member {} ({:x}) belongs to no node; if its server is gone for good, remove the member",
                member.name, member.id
            ));
        }
        Ok(PeerVoter { name: node.map_or_else(|| node_of(member), |it| &it.name), node, host, id: member.id })
    };
    members.iter().filter(|it| !is_own(it)).map(peer).collect()
}

/// Why a peer is not healthy; `None` if it is. `lost`: our etcd has no connection to it.
fn sickness(facts: &EtcdFacts, peer: &PeerVoter<'_>, lost: bool) -> Result<Option<String>, String> {
    let name = peer.name;
    if let Some(host) = peer.host {
        let joined = host.hosts.is_some_and(|(_, joined)| joined);
        return Ok(if host.name == facts.node {
            Some("goes down with this node".to_owned())
        } else if !joined || lost {
            Some(format!("a witness on the machine of node {}; it does not vote", host.name))
        } else {
            None
        });
    }
    // Of two words about one node the bad one counts.
    let word = facts.words.iter().filter(|it| it.node == name).min_by_key(|it| it.health.is_ok());
    if let Some(said) = word.and_then(|it| it.member).filter(|said| *said != peer.id) {
        return Err(format!(
            "the agent of node {name} speaks of etcd member {said:x}, the member list names {:x}: the address of \
             that node leads to another server",
            peer.id
        ));
    }
    match word.map(|it| &it.health) {
        Some(Ok(())) if lost => Err(format!(
            "the agent of node {name} says that its etcd is healthy, but etcd here has no connection to it; check \
             port 2380 between the two"
        )),
        Some(Ok(())) => Ok(None),
        Some(Err(why)) => Ok(Some(why.clone())),
        None => {
            let Some(node) = peer.node else {
                // etcd shows its connection to a peer without power, or with a hung process, for minutes.
                return Ok(Some("no word from its agent, and Kubernetes cannot be asked".to_owned()));
            };
            if node.voter.is_none() {
                return Err(format!(
                    "node {name} has no agent that answers and no condition EtcdIsVoter: whether its etcd is healthy \
                     is not known; see `kubectl describe node {name}`"
                ));
            }
            let why = if !node.ready {
                "its node is not Ready, so its EtcdIsVoter is stale"
            } else if !node.lease_moving {
                "its kubelet does not renew its lease, so its EtcdIsVoter is stale"
            } else if lost {
                "no connection to it"
            } else {
                return Ok(None);
            };
            Ok(Some(why.to_owned()))
        }
    }
}
