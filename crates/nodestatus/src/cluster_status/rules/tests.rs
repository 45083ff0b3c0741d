//! EdgeNodeClusterStatus beside the reference's own bytes.

use std::path::Path;
use std::sync::Arc;

use topics::{
    AddrInfo, DeviceNetworkStatus, EdgeNodeClusterConfig, EdgeNodeClusterStatus, GoIp, GoTime, LbInterface,
    NetworkPortStatus, Secret, Topic, go_json,
};

use super::{NodeAddress, StatusDecision, StatusFacts, place};
use crate::ClusterMembership;
use crate::Membership;
use crate::token::{BlockAnswer, ClusterToken};

const TOKEN: &str = "s3cr3t<token>&\"x\"";

fn golden(topic: &str, sample: &str) -> Vec<u8> {
    let file = format!("../../tests/golden/{topic}/{sample}.json");
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn sample<T: Topic>(name: &str) -> T {
    go_json::from_slice(&golden(T::NAME, name)).unwrap()
}

fn clear() -> ClusterToken {
    ClusterToken::Clear(Secret::new(TOKEN.to_owned()))
}

fn at(text: &str) -> GoTime {
    text.parse().unwrap()
}

fn ip(text: &str) -> GoIp {
    GoIp(Some(text.parse().unwrap()))
}

fn network(change: impl FnOnce(&mut Vec<NetworkPortStatus>)) -> DeviceNetworkStatus {
    let mut network: DeviceNetworkStatus = sample("two-ports-cluster-ip");
    change(network.ports.as_mut().unwrap());
    network
}

impl StatusFacts {
    fn configured(&mut self, config: EdgeNodeClusterConfig) {
        let config = Some(Arc::new(config));
        self.learn_membership(&ClusterMembership { membership: Membership::Member, config, left: None });
    }
}

fn facts(config: &str, network: DeviceNetworkStatus, token: ClusterToken) -> StatusFacts {
    let mut facts = StatusFacts { network: Some(network), ..StatusFacts::default() };
    facts.configured(sample(config));
    facts.token = token;
    facts
}

fn status(facts: &StatusFacts, last: Option<&EdgeNodeClusterStatus>, now: &str) -> EdgeNodeClusterStatus {
    match facts.judge(last, at(now)) {
        StatusDecision::Status(status) => *status,
        other @ (StatusDecision::Keep | StatusDecision::Stay | StatusDecision::Nothing) => {
            panic!("{other:?}")
        }
    }
}

fn bytes(status: &EdgeNodeClusterStatus) -> String {
    String::from_utf8(go_json::to_vec(status).unwrap()).unwrap()
}

fn expected(name: &str) -> String {
    String::from_utf8(golden("EdgeNodeClusterStatus", name)).unwrap().trim_end().to_owned()
}

/// A member of the sample's cluster on whose second port is an address of the load balancer.
fn in_conflict() -> StatusFacts {
    let network = network(|ports| {
        ports[0].cluster_ip_addr = ip("10.244.244.3");
        ports[1].is_l3_port = true;
        let addr = ip("192.168.86.201");
        ports[1].addr_info_list = Some(vec![AddrInfo { addr }]);
    });
    let mut facts = facts("join-with-masters", network, clear());
    let entry = LbInterface { interface: "eth1".to_owned(), ip_prefix: "192.168.86.200/29".to_owned() };
    Arc::make_mut(facts.config.as_mut().unwrap()).lb_interfaces = Some(vec![entry]);
    facts
}

#[test]
fn a_bootstrap_node_with_load_balancing_says_what_the_reference_says() {
    let facts = facts("tiebreaker-lb-masters", network(|_| {}), clear());
    let said = status(&facts, None, "2026-03-14T09:30:00Z");
    assert_eq!(bytes(&said), expected("bootstrap-lb"));
    let address = "10.244.244.2".parse().unwrap();
    assert_eq!(place(&said), Some(NodeAddress { address, cluster: said.cluster_id.uuid }));
}

#[test]
fn a_member_in_conflict_says_what_the_reference_says_and_an_unchanged_error_keeps_its_time() {
    let mut facts = in_conflict();
    let said = status(&facts, None, "2026-03-14T09:30:00Z");
    assert_eq!(bytes(&said), expected("member-lb-conflict"));
    assert_eq!(status(&facts, Some(&said), "2026-03-14T10:00:00Z"), said);
    // Another address is another text, which begins now; without a conflict there is no error.
    let port = &mut facts.network.as_mut().unwrap().ports.as_mut().unwrap()[1];
    port.addr_info_list.as_mut().unwrap()[0].addr = ip("192.168.86.202");
    let other = status(&facts, Some(&said), "2026-03-14T10:00:00Z");
    assert_eq!(other.lb_config_error.error_time, at("2026-03-14T10:00:00Z"));
    facts.network.as_mut().unwrap().ports.as_mut().unwrap()[1].is_l3_port = false;
    assert_eq!(status(&facts, Some(&other), "2026-03-14T10:01:00Z").lb_config_error.error, "");
}

#[test]
fn a_token_that_cannot_be_decrypted_is_told_as_the_reference_tells_it_and_keeps_its_time() {
    let network = network(|ports| ports[0].cluster_ip_addr = GoIp(None));
    let why = "decryptClusterTokenAndManifest: failed to decrypt cluster token: no such cert";
    let facts = facts("bootstrap", network, ClusterToken::Failed(why.to_owned()));
    let said = status(&facts, None, "2026-03-14T09:26:53.589793238Z");
    assert_eq!(bytes(&said), expected("not-ready-decrypt-error"));
    assert_eq!(place(&said), None);
    assert_eq!(status(&facts, Some(&said), "2026-03-14T10:00:00Z"), said);
}

#[test]
fn the_address_is_ready_on_a_usable_port_of_its_label_alone() {
    type Change = fn(&mut NetworkPortStatus);
    let changes: [(Change, bool, &str); 6] = [
        (|_| {}, true, "eth0"),
        (|port| port.invalid_config = true, false, "eth0"),
        (|port| port.if_name = String::new(), false, ""),
        (|port| port.logicallabel = "other".to_owned(), false, ""),
        (|port| port.cluster_ip_addr = ip("10.244.244.9"), false, "eth0"),
        (|port| port.if_name = "keth0".to_owned(), true, "keth0"),
    ];
    for (nth, (change, ready, interface)) in changes.into_iter().enumerate() {
        let network = network(|ports| change(&mut ports[0]));
        let said = status(&facts("bootstrap", network, ClusterToken::None), None, "2026-03-14T09:30:00Z");
        assert_eq!((said.cluster_ip_is_ready, said.cluster_interface.as_str()), (ready, interface), "{nth}");
    }
    // A config without a label or an address has no place.
    let changes: [fn(&mut EdgeNodeClusterConfig); 2] =
        [|it| it.cluster_interface = String::new(), |it| it.cluster_ip_prefix = None];
    for change in changes {
        let mut facts =
            facts("bootstrap", network(|ports| ports[0].logicallabel = String::new()), ClusterToken::None);
        change(Arc::make_mut(facts.config.as_mut().unwrap()));
        assert!(!status(&facts, None, "2026-03-14T09:30:00Z").cluster_ip_is_ready);
    }
}

#[test]
fn d_a12_only_a_config_that_is_decided_and_not_valid_takes_the_status_back() {
    let now = at("2026-03-14T09:30:00Z");
    let mut facts = StatusFacts { network: Some(network(|_| {})), ..StatusFacts::default() };
    assert_eq!(facts.judge(None, now), StatusDecision::Keep);
    facts.configured(sample("bootstrap"));
    facts.token = ClusterToken::None;
    let said = status(&facts, None, "2026-03-14T09:30:00Z");
    let left = Some(Arc::new(sample("bootstrap")));
    let config = Some(Arc::new(sample("initialized-not-clustered")));
    let membership = Membership::Leaving;
    facts.learn_membership(&ClusterMembership { membership, config: config.clone(), left });
    facts.token = ClusterToken::None;
    let encrypted_cluster_token = Secret::new(TOKEN.to_owned());
    let with_token = EdgeNodeClusterStatus { encrypted_cluster_token, ..said };
    // On the way out nothing is withdrawn, but what the cluster cannot be reached by is said again.
    assert_eq!(facts.judge(Some(&with_token), now), StatusDecision::Stay);
    let not_ready = EdgeNodeClusterStatus { cluster_ip_is_ready: false, ..with_token };
    for last in [None, Some(&not_ready)] {
        assert!(matches!(facts.judge(last, now), StatusDecision::Status(it) if it.cluster_ip_is_ready));
    }
    facts.learn_membership(&ClusterMembership { membership, config: config.clone(), left: None });
    assert_eq!(facts.judge(None, now), StatusDecision::Stay, "nothing is kept of the cluster");
    facts.learn_membership(&ClusterMembership { membership: Membership::Outside, config, left: None });
    assert_eq!(facts.judge(None, now), StatusDecision::Nothing);
}

#[test]
fn nothing_is_said_before_the_ports_have_been_looked_for() {
    let mut facts = StatusFacts::default();
    facts.configured(sample("bootstrap"));
    facts.token = ClusterToken::None;
    assert_eq!(facts.judge(None, GoTime::ZERO), StatusDecision::Keep);
    facts.network = Some(DeviceNetworkStatus::default());
    let said = status(&facts, None, "2026-03-14T09:30:00Z");
    assert_eq!((said.cluster_ip_is_ready, said.cluster_interface.as_str()), (false, ""));
}

#[test]
fn a_token_is_that_of_its_config_and_nothing_is_said_until_it_is_decrypted() {
    let now = at("2026-03-14T09:30:00Z");
    let mut facts = facts("bootstrap", network(|_| {}), ClusterToken::Pending);
    assert_eq!(facts.judge(None, now), StatusDecision::Keep);
    let answer = BlockAnswer { of: facts.sealed().unwrap(), token: clear() };
    let mut other = answer.clone();
    other.of.block.cipher_data = None;
    facts.opened(other);
    assert_eq!(facts.judge(None, now), StatusDecision::Keep, "the answer was for another block");
    facts.opened(answer.clone());
    assert_eq!(status(&facts, None, "2026-03-14T09:30:00Z").encrypted_cluster_token.reveal(), TOKEN);
    // Another member changes: the token is the same. Another block: it is not known yet.
    let mut config: EdgeNodeClusterConfig = sample("bootstrap");
    config.bootstrap_node = false;
    facts.configured(config.clone());
    assert_eq!(facts.token, clear());
    config.cipher_token.clear_text_hash = None;
    facts.configured(config.clone());
    assert_eq!(facts.token, ClusterToken::Pending);
    facts.opened(answer);
    assert_eq!(facts.token, ClusterToken::Pending, "the answer was for the block before");
    config.cipher_token.is_cipher = false;
    facts.configured(config);
    assert_eq!((facts.token.clone(), facts.sealed()), (ClusterToken::None, None));
}
