//! What a Node object says, and what a member says of itself.

use std::time::Duration;

use serde_json::json;

use super::super::facts::{EtcdIsVoter, Readyz, ServerNode};
use super::rule::{but, cluster, metrics, server, voter};

#[test]
fn what_a_member_says_of_its_own_health_to_its_peers() {
    assert_eq!(cluster(3).own.health(), Ok(()));
    for (facts, words) in [
        (but(3, |it| it.own.metrics = Err("a".to_owned())), "a"),
        (but(3, |it| it.own.readyz = Err("b".to_owned())), "b"),
        (but(3, |it| it.own.readyz = Ok(Readyz::NotReady("c".to_owned()))), "etcd is not ready: c"),
        (metrics(3, |it| it.is_learner = true), "etcd is still a learner"),
        (metrics(3, |it| it.has_leader = false), "etcd has no leader"),
        (but(3, |it| it.own.alarms = Ok(vec!["CORRUPT".to_owned()])), "etcd has the alarm CORRUPT"),
        (but(3, |it| it.own.alarms = Err("d".to_owned())), "d"),
    ] {
        assert_eq!(facts.own.health(), Err(words.to_owned()));
    }
}

#[test]
fn a_node_object_says_whether_it_is_a_server_and_what_k3s_writes_of_its_member() {
    let object = |annotation: &str| {
        json!({
            "metadata": {
                "name": "n1",
                "labels": { "node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/master": "true" },
                "annotations": { annotation: "n1-00000001" },
            },
            "status": { "conditions": [
                { "type": "Ready", "status": "True" },
                { "type": "EtcdIsVoter", "status": "True", "reason": "MemberNotLearner", "message": "its words" },
            ] },
        })
    };
    for annotation in ["etcd.k3s.cattle.io/node-name", "etcd.rke2.cattle.io/node-name"] {
        let expected = ServerNode { voter: Some(voter("True", "MemberNotLearner")), ..server(1) };
        assert_eq!(ServerNode::read(&object(annotation), true, Duration::ZERO), expected);
    }
    for odd in [json!({}), json!({ "metadata": [], "status": { "conditions": "x" } })] {
        assert_eq!(ServerNode::read(&odd, false, Duration::ZERO), ServerNode::default());
    }
    let mut sick = object("");
    sick["status"]["conditions"] = json!([
        { "type": "Ready", "status": "Unknown" }, { "type": "EtcdIsVoter", "status": "False", "reason": "Unhealthy" },
    ]);
    let read = ServerNode::read(&sick, true, Duration::from_secs(7));
    let voter = EtcdIsVoter {
        message: String::new(),
        unmoved: Duration::from_secs(7),
        ..voter("False", "Unhealthy")
    };
    assert_eq!((read.ready, read.voter, read.member), (false, Some(voter), None));
}
