//! Every row of the rule: who may go, who may not, and the words for it.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::super::facts::{
    Data, EtcdFacts, EtcdIsVoter, Kubernetes, ListedMemberFacts, MemberList, OwnEtcd, PeerReport, Readyz,
    ServerNode,
};
use super::super::rule::{Margin, VOTER_STALE, judge, successor};
use crate::margin::facts::Metrics;

pub(super) fn voter(status: &str, reason: &str) -> EtcdIsVoter {
    EtcdIsVoter {
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: "its words".to_owned(),
        unmoved: Duration::ZERO,
    }
}

/// A node whose `EtcdIsVoter` says this.
fn says(status: &'static str, reason: &'static str) -> impl FnOnce(&mut ServerNode) {
    move |it| it.voter = Some(voter(status, reason))
}

fn is_voter() -> EtcdIsVoter {
    voter("True", "MemberNotLearner")
}

pub(super) fn server(nth: u64) -> ServerNode {
    ServerNode::healthy(&format!("n{nth}"), format!("n{nth}-0000000{nth}"))
}

fn member(nth: u64) -> ListedMemberFacts {
    ListedMemberFacts { id: nth, name: format!("n{nth}-0000000{nth}"), learner: false, address: None }
}

/// What node n1 sees of `servers` healthy servers and one worker; no peer has an agent.
pub(super) fn cluster(servers: u64) -> EtcdFacts {
    let metrics = Metrics {
        id: 1,
        has_leader: true,
        is_leader: false,
        is_learner: false,
        version: "3.5.16".to_owned(),
        streams: (2..=servers).map(|id| (id, true)).collect(),
    };
    let worker = ServerNode { name: "w1".to_owned(), ready: true, ..ServerNode::default() };
    EtcdFacts {
        node: "n1".to_owned(),
        own: OwnEtcd {
            data: Ok(Data::Present),
            metrics: Ok(metrics),
            readyz: Ok(Readyz::Ready),
            members: Ok(MemberList { by: 1, members: (1..=servers).map(member).collect() }),
            alarms: Ok(vec![]),
        },
        kubernetes: Kubernetes::Read((1..=servers).map(server).chain([worker]).collect()),
        words: vec![],
    }
}

pub(super) fn but(servers: u64, change: impl FnOnce(&mut EtcdFacts)) -> EtcdFacts {
    let mut facts = cluster(servers);
    change(&mut facts);
    facts
}

pub(super) fn metrics(servers: u64, change: impl FnOnce(&mut Metrics)) -> EtcdFacts {
    but(servers, |facts| change(facts.own.metrics.as_mut().unwrap()))
}

fn own(servers: u64, change: impl FnOnce(&mut OwnEtcd)) -> EtcdFacts {
    but(servers, |facts| change(&mut facts.own))
}

fn members(servers: u64, change: impl FnOnce(&mut Vec<ListedMemberFacts>)) -> EtcdFacts {
    own(servers, |own| change(&mut own.members.as_mut().unwrap().members))
}

fn words(servers: u64, words: &[(&str, bool)]) -> EtcdFacts {
    but(servers, |facts| facts.words.extend(words.iter().map(|(node, is)| word(node, *is))))
}

fn node(servers: u64, nth: usize, change: impl FnOnce(&mut ServerNode)) -> EtcdFacts {
    but(servers, |facts| change(of(facts, nth)))
}

fn of(facts: &mut EtcdFacts, nth: usize) -> &mut ServerNode {
    let Kubernetes::Read(nodes) = &mut facts.kubernetes else { panic!("no nodes") };
    &mut nodes[nth - 1]
}

/// Whether etcd on n1 is connected to this member.
fn stream(facts: &mut EtcdFacts, id: u64, up: bool) {
    facts.own.metrics.as_mut().unwrap().streams.insert(id, up);
}

fn no_api(servers: u64, change: impl FnOnce(&mut EtcdFacts)) -> EtcdFacts {
    but(servers, |facts| {
        facts.kubernetes = Kubernetes::Unreachable("no route".to_owned());
        change(facts);
    })
}

fn word(node: &str, healthy: bool) -> PeerReport {
    let health = if healthy { Ok(()) } else { Err("its agent says that its etcd is not healthy".to_owned()) };
    PeerReport { node: node.to_owned(), member: None, health }
}

#[test]
fn u3_v_a_and_q_are_those_of_the_table() {
    // Servers, silent ones among the peers, quorum, whether n1 may go when healthy.
    for (servers, silent, quorum, may) in [
        (3, 0, 2, true),
        (3, 1, 2, false),
        (4, 0, 3, true),
        (4, 1, 3, false),
        (5, 0, 3, true),
        (5, 1, 3, true),
        (5, 2, 3, false),
        (7, 2, 4, true),
        (7, 3, 4, false),
    ] {
        for own_healthy in [true, false] {
            let facts = but(servers, |facts| {
                for id in 2..2 + silent {
                    stream(facts, id, false);
                }
                if !own_healthy {
                    facts.own.readyz = Ok(Readyz::NotReady("[-]serializable_read failed".to_owned()));
                }
            });
            let healthy = usize::try_from(servers - silent).unwrap() - usize::from(!own_healthy);
            let voters = usize::try_from(servers).unwrap();
            match judge(&facts).margin {
                Margin::Spare { voters: v, healthy: a, quorum: q } => {
                    assert!(may, "{servers} {silent} {own_healthy}");
                    assert_eq!((v, a, q), (voters, healthy, quorum));
                }
                other @ (Margin::NotApplicable { .. } | Margin::None { .. }) => {
                    assert!(!may, "{servers} {silent} {own_healthy}: {other:?}");
                }
            }
        }
    }
}

/// Whether the node may go: a margin of three figures, no quorum to keep, no.
#[derive(Debug)]
enum May {
    Spare(usize, usize, usize),
    Void(&'static str),
    No(&'static str),
}
use May::{No, Spare, Void};

fn check(rows: Vec<(EtcdFacts, May)>) {
    for (nth, (facts, may)) in rows.into_iter().enumerate() {
        let margin = judge(&facts).margin;
        let agrees = match (&margin, &may) {
            (Margin::Spare { voters, healthy, quorum }, Spare(v, a, q)) => {
                (voters, healthy, quorum) == (v, a, q)
            }
            (Margin::NotApplicable { why }, Void(words)) | (Margin::None { why }, No(words)) => {
                why.contains(words)
            }
            (Margin::Spare { .. } | Margin::NotApplicable { .. } | Margin::None { .. }, _) => false,
        };
        assert!(agrees, "row {nth}: not {may:?} but {margin:?}");
    }
}

#[test]
fn u3_whoever_is_no_member_or_the_only_one_has_no_quorum_to_keep() {
    let absent = || Ok(Data::Absent { looked: "/x is not there".to_owned() });
    let kine = |facts: &mut EtcdFacts| {
        facts.own.data = absent();
        for nth in 1..=3 {
            of(facts, nth).etcd = false;
        }
    };
    check(vec![
        (cluster(1), Void("only etcd server: the Kubernetes API is not available while it is down")),
        (own(1, |it| it.alarms = Ok(vec!["NOSPACE".to_owned()])), Void("alarm NOSPACE")),
        (
            own(1, |it| it.members = Err("refused".to_owned())),
            No("etcd 3.5.16 on node n1 are not known: refused"),
        ),
        (own(1, |it| it.metrics = Err("port 2381 refused".to_owned())), No("port 2381 refused")),
        // Somebody joins, and is no node yet; a stream to it says nothing.
        (members(1, |it| it.push(member(2))), No("2 members, but nodes with its role label: 1 (")),
        (but(1, |it| stream(it, 2, true)), Void("only etcd server")),
        (but(3, kine), Void("without etcd (kine or another machine): no quorum to keep; 2 other servers")),
        (
            but(1, |it| {
                it.own.data = absent();
                of(it, 1).etcd = false;
            }),
            Void("without etcd (kine) and is the only server: the Kubernetes API is not available"),
        ),
        (
            but(3, |it| {
                it.node = "w1".to_owned();
                it.own.data = absent();
            }),
            Void("node w1 is no server"),
        ),
        (own(3, |it| it.data = absent()), No("role label of etcd, but no data of etcd: /x is not there")),
        (node(3, 1, |it| it.etcd = false), No("has data of etcd, but not the role label")),
        (own(3, |it| it.data = Err("/x: permission denied".to_owned())), No("permission denied")),
        (but(3, |it| it.node = "n9".to_owned()), No("n9 is not among the nodes")),
    ]);
}

#[test]
fn u3_a_source_that_cannot_be_read_means_no() {
    let no = || Err("port 2381 refused; set X".to_owned());
    check(vec![
        (own(3, |it| it.metrics = Err("port 2381 refused; set X".to_owned())), No("refused; set X")),
        (own(3, |it| it.readyz = Err("slow".to_owned())), No("slow")),
        (own(3, |it| it.alarms = no()), No("alarms cannot be read: port 2381 refused")),
        (but(3, |it| it.kubernetes = Kubernetes::Unreadable("403".to_owned())), No("Kubernetes: 403")),
        // Nothing else says who the members are: neither the nodes nor the streams.
        (
            own(3, |it| it.members = Err("port 2382 refused".to_owned())),
            No("the members of etcd 3.5.16 on node n1 are not known: port 2382 refused"),
        ),
        (
            but(3, |it| of(it, 3).voter = None),
            No("n3 has no agent that answers and no condition EtcdIsVoter"),
        ),
        (but(3, |it| of(it, 1).voter = None), Spare(3, 3, 2)),
        // One peer is sick and another one has no stream.
        (
            but(5, |it| {
                it.words.push(word("n2", false));
                stream(it, 3, false);
            }),
            No("3 of 5 etcd voters are healthy; without node n1 2 would be left, 3 are required"),
        ),
        // The API does not answer, at the last look.
        (no_api(3, |it| it.words.extend([word("n2", true), word("n3", true)])), Spare(3, 3, 2)),
        (no_api(3, |it| it.words.push(word("n2", true))), No("n3 (no word from its agent")),
        (no_api(3, |it| it.words.push(word("n2", false))), No("n2 (its agent says")),
        (
            no_api(3, |it| it.own.members = Err("2382 refused".to_owned())),
            No("the members of etcd 3.5.16 on node n1 are not known: 2382 refused"),
        ),
        (
            no_api(3, |it| it.own.data = Ok(Data::Absent { looked: "/x".to_owned() })),
            No("no sign that etcd runs"),
        ),
        (no_api(1, |_| ()), Void("only etcd server")),
        (no_api(3, |it| it.node = "n2".to_owned()), No("does not belong to node n2")),
    ]);
}

/// Two servers and a witness on the machine of the `nth` one, as n1 sees them.
fn with_witness(nth: usize, joined: bool, change: impl FnOnce(&mut EtcdFacts)) -> EtcdFacts {
    but(2, |facts| {
        let address = Some(IpAddr::from([10, 0, 0, 9]));
        let witness = ListedMemberFacts { name: "eve-witness-0000000a".to_owned(), address, ..member(10) };
        facts.own.members.as_mut().unwrap().members.push(witness);
        stream(facts, 10, true);
        of(facts, nth).hosts = address.map(|at| (at, joined));
        change(facts);
    })
}

#[test]
fn u3_a_witness_without_a_node_counts_where_it_runs() {
    let with_us = "the witness eve-witness is on the machine of node n1: with it two go, 1 would be left, 2 are required";
    let not_voting = "eve-witness (a witness on the machine of node n2; it does not vote)";
    check(vec![
        (with_witness(1, true, |_| ()), No(with_us)),
        (with_witness(1, false, |_| ()), No(with_us)),
        // Two say that it is theirs: it may be ours.
        (with_witness(2, true, |it| of(it, 1).hosts = of(it, 2).hosts), No(with_us)),
        (with_witness(2, true, |_| ()), Spare(3, 3, 2)),
        (with_witness(2, false, |_| ()), No(not_voting)),
        (with_witness(2, true, |it| stream(it, 10, false)), No(not_voting)),
        // It is as well as its machine.
        (
            with_witness(2, true, |it| it.words.push(word("n2", false))),
            No("eve-witness (its agent says that"),
        ),
        (with_witness(2, true, |it| of(it, 2).ready = false), No("eve-witness (its node is not Ready")),
        // Where no node says that it is there.
        (
            with_witness(2, true, |it| of(it, 2).hosts = None),
            No("etcd has 3 members, but nodes with its role label: 2"),
        ),
        (
            with_witness(2, true, |it| it.kubernetes = Kubernetes::Unreachable("no route".to_owned())),
            No("eve-witness (no word from its agent"),
        ),
    ]);
    let may_lead = judge(&with_witness(2, true, |_| ())).may_lead;
    assert_eq!(may_lead, [("n2".to_owned(), 2)]);
}

#[test]
fn u3_learners_alarms_no_leader_and_two_servers_mean_no() {
    check(vec![
        (cluster(2), No("two voters and needs both")),
        (metrics(3, |it| it.is_learner = true), No("n1 is still a learner")),
        (members(3, |it| it[2].learner = true), No("member 3 n3-00000003 is a learner")),
        (node(3, 3, says("False", "MemberIsLearner")), No("n3 is still a learner (EtcdIsVoter)")),
        (members(3, |it| it[2].name.clear()), No("3 was added and never started")),
        (own(3, |it| it.alarms = Ok(vec!["NOSPACE".to_owned()])), No("alarm NOSPACE; free disk space")),
        (own(3, |it| it.alarms = Ok(vec!["CORRUPT".to_owned()])), No("alarm CORRUPT")),
        (metrics(3, |it| it.has_leader = false), No("has no leader")),
        // Sick here, with and without a leader.
        (own(3, |it| it.readyz = Ok(Readyz::NotReady("[-]x failed".to_owned()))), Spare(3, 2, 2)),
        (
            but(3, |it| {
                it.own.readyz = Ok(Readyz::NotReady("[-]x failed".to_owned()));
                it.words.push(word("n2", false));
            }),
            No(
                "1 of 3 etcd voters are healthy; without node n1 1 would be left, 2 are required. Not healthy: n2",
            ),
        ),
    ]);
}

#[test]
fn u3_sources_that_differ_mean_no() {
    let by = |by: u64| move |it: &mut EtcdFacts| it.own.members.as_mut().unwrap().by = by;
    check(vec![
        (but(3, by(2)), No("belong to different servers")),
        // Never reached is not connected; what the list does not name is no member, whatever is connected.
        (metrics(3, |it| it.streams.retain(|id, _| *id != 3)), No("n3 (no connection to it)")),
        (metrics(3, |it| it.streams.extend([(0xab, true)])), Spare(3, 3, 2)),
        (members(3, |it| it.truncate(2)), No("etcd has 2 members, but nodes with its role label: 3")),
        (members(3, |it| drop(it.remove(0))), No("is none of them")),
        (members(3, |it| it.push(member(3))), No("names 4 members, 3 different ones")),
        (
            node(3, 3, |it| it.etcd = false),
            No("etcd has 3 members, but nodes with its role label: 2 (n1, n2)"),
        ),
        (
            node(3, 3, |it| it.member = Some("n3-ffffffff".to_owned())),
            No("n3-00000003 (3) belongs to no node"),
        ),
        (node(3, 1, |it| it.member = Some("n1-ffffffff".to_owned())), No("does not belong to node n1")),
        // Without annotations the names suffice.
        (
            but(3, |it| {
                for nth in 1..=3 {
                    of(it, nth).member = None;
                }
            }),
            Spare(3, 3, 2),
        ),
        (
            but(3, |it| {
                it.words.push(word("n3", true));
                stream(it, 3, false);
            }),
            No("agent of node n3 says that its etcd is healthy, but etcd here has no connection"),
        ),
        (node(3, 1, says("False", "Unhealthy")), No("n1 says that its etcd is unhealthy: its words")),
        (
            but(3, |it| {
                of(it, 1).voter = Some(voter("False", "Unhealthy"));
                it.own.readyz = Ok(Readyz::NotReady("[-]x failed".to_owned()));
            }),
            Spare(3, 2, 2),
        ),
    ]);
}

#[test]
fn u3_peers_are_judged_by_their_agents_and_else_by_their_nodes() {
    let stale = Some(EtcdIsVoter { unmoved: VOTER_STALE + Duration::from_secs(1), ..is_voter() });
    check(vec![
        (cluster(3), Spare(3, 3, 2)),
        (node(3, 3, |it| it.ready = false), No("n3 (its node is not Ready, so its EtcdIsVoter is stale)")),
        (node(3, 3, |it| it.lease_moving = false), No("n3 (its kubelet does not renew its lease")),
        (
            metrics(3, |it| it.streams.extend([(3, false)])),
            No("n3 (no connection to it); see `kubectl describe nodes n3`"),
        ),
        (node(3, 3, |it| it.voter = None), No("n3 has no agent that answers and no condition EtcdIsVoter")),
        (node(5, 3, |it| it.ready = false), Spare(5, 4, 3)),
        // The agent's word counts more than the node's state.
        (
            but(3, |it| {
                of(it, 3).ready = false;
                of(it, 3).voter = None;
                it.words.push(word("n3", true));
            }),
            Spare(3, 3, 2),
        ),
        (words(3, &[("n3", false)]), No("n3 (its agent says that its etcd is not healthy)")),
        (words(3, &[("n3", true), ("n3", false)]), No("n3 (its agent says that its etcd is not healthy)")),
        (words(3, &[("n3", false), ("n3", true)]), No("n3 (its agent says that its etcd is not healthy)")),
        // EtcdIsVoter is a second opinion that may only say no, also beside the agent's word.
        (
            but(5, |it| {
                of(it, 3).voter = Some(voter("False", "Unhealthy"));
                it.words.push(word("n3", true));
            }),
            No("n3 says that its etcd is unhealthy: its words; see `kubectl describe node n3`"),
        ),
        (node(3, 3, says("False", "NotAMember")), No("n3 has the role label of etcd, but is no")),
        (node(3, 3, says("Unknown", "")), No("n3 is Unknown/")),
        (node(3, 3, says("True", "Odd")), No("n3 is True/Odd")),
        (node(3, 3, |it| it.voter = stale), No("EtcdIsVoter of node n3 is stale: not written for 11 min")),
    ]);
}

#[test]
fn u4_leadership_moves_to_a_healthy_voter_that_does_not_go_next() {
    let verdict = judge(&words(5, &[("n2", false)]));
    let names: Vec<&str> = verdict.may_lead.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(names, ["n3", "n4", "n5"]);
    let next = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        successor(&verdict.may_lead, &names).cloned()
    };
    assert_eq!(next(&[]), Some(("n3".to_owned(), 3)));
    assert_eq!(next(&["n3", "n4"]), Some(("n5".to_owned(), 5)));
    // Never to a witness, also where there is nobody else.
    let witness = judge(&but(3, |it| {
        of(it, 2).witness = true;
        of(it, 3).witness = true;
    }));
    assert!(matches!(witness.margin, Margin::Spare { .. }), "it votes: {witness:?}");
    assert_eq!(successor(&witness.may_lead, &[]), None);
    let witness = judge(&node(3, 2, |it| it.witness = true));
    assert_eq!(successor(&witness.may_lead, &["n3".to_owned()]).cloned(), Some(("n3".to_owned(), 3)));
    // Better to one that goes next than to nobody.
    assert_eq!(next(&["n3", "n4", "n5"]), Some(("n3".to_owned(), 3)));
    assert_eq!(successor(&[], &[]), None);
    assert!(judge(&cluster(2)).may_lead.is_empty());
    assert!(judge(&node(3, 3, |it| it.ready = false)).may_lead.is_empty());
}

/// How one peer may look: word, Ready, lease, condition, stream.
fn looks() -> impl Strategy<Value = (Option<bool>, bool, bool, usize, bool)> {
    (any::<Option<bool>>(), any::<bool>(), any::<bool>(), 0..5_usize, any::<bool>())
}

proptest! {
    /// Margin is never said when the healthy peers, counted another way, are fewer than a majority.
    #[test]
    fn u3_whatever_the_sources_say_a_majority_that_nothing_speaks_against_is_left(
        peers in proptest::collection::vec(looks(), 1..6),
        ready in any::<bool>(),
    ) {
        let servers = peers.len() as u64 + 1;
        let mut facts = cluster(servers);
        if !ready { facts.own.readyz = Ok(Readyz::NotReady("x".to_owned())); }
        let mut good = 0;
        for (nth, (says, ready, lease, condition, up)) in (2..).zip(&peers) {
            let node = of(&mut facts, nth);
            (node.ready, node.lease_moving) = (*ready, *lease);
            node.voter = [Some(is_voter()), Some(is_voter()), None, Some(voter("False", "Unhealthy")), Some(voter("False", "MemberIsLearner"))][*condition].clone();
            facts.words.extend(says.map(|it| word(&format!("n{nth}"), it)));
            stream(&mut facts, nth as u64, *up);
            good += usize::from(*up && *condition < 3 && says.unwrap_or(*ready && *lease && *condition < 2));
        }
        if let Margin::Spare { voters, quorum, .. } = judge(&facts).margin {
            prop_assert_eq!(voters, peers.len() + 1);
            prop_assert!(quorum * 2 > voters && good >= quorum, "{} of {}", good, voters);
        }
    }
}
