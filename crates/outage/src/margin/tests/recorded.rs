//! What real members of etcd 3.4, 3.5 and 3.6 answered in each situation, and what follows from it: the same, whatever
//! a version offers.
//!
//! What a Node object says, and what a member says of itself.
//!
//! What is read out of etcd's metrics, and what is not.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::calls::{read, waits};
use super::super::facts::{EtcdFacts, EtcdIsVoter, Kubernetes, Readyz, ServerNode};
use super::super::rule::{Margin, judge};
use super::calls::source;
use super::rule::{but, cluster, metrics, server, voter};
use crate::margin::facts::{BadMetrics, LARGEST_BYTES, parse};
use crate::tests::http::{self, Answer, http};

fn tables() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/etcd");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    let table = |it: PathBuf| serde_json::from_str::<Value>(&std::fs::read_to_string(it).unwrap()).unwrap();
    files.into_iter().map(table).map(|it| (it["version"].as_str().unwrap().to_owned(), it)).collect()
}

/// Answers as that member did; it hangs up where the member did not answer.
async fn member(owner: &mut JoinSet<()>, answers: Value) -> String {
    let answer = move |head: &str, body: &str| {
        let path = head.split(' ').nth(1).unwrap();
        let question = if body.is_empty() { path.to_owned() } else { format!("{path} {body}") };
        let recorded = &answers[&question];
        let code = recorded["code"].as_u64().unwrap_or_else(|| panic!("{question} was not recorded"));
        let lines =
            |it: &Vec<Value>| it.iter().map(|line| line.as_str().unwrap().to_owned() + "\n").collect();
        let text: String = recorded["lines"].as_array().map_or_else(|| recorded["json"].to_string(), lines);
        if code > 0 { http(code.try_into().unwrap(), &text) } else { Answer::HangUp }
    };
    format!("http://{}", http::server(owner, ([127, 0, 0, 1], 0).into(), answer).await)
}

#[tokio::test]
async fn t1_each_version_of_etcd_is_read_and_judged_alike_in_each_situation() {
    let tables = tables();
    assert_eq!(tables.len(), 3);
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("var/lib/rancher/k3s/server/db/etcd")).unwrap();
    let mut owner = JoinSet::new();
    for (version, table) in tables {
        for (situation, voters, expected) in [
            ("leader", 3, Ok(3)),
            ("follower", 3, Ok(3)),
            ("removed", 3, Ok(3)),
            ("alone", 1, Ok(0)),
            ("alarm", 3, Err("etcd has the alarm NOSPACE of member ")),
            ("added", 3, Err(" is a learner")),
            ("learner", 3, Err("n4-00000004 is a learner")),
            ("learner-own", 4, Err("is still a learner")),
            (
                "peer-down",
                3,
                Err(
                    "2 of 3 etcd voters are healthy; without node n1 1 would be left, 2 are required. Not healthy: n3 (no connection to it)",
                ),
            ),
            ("never-reached", 3, Err("Not healthy: n3 (no connection to it)")),
            ("no-quorum", 3, Err("has no leader")),
        ] {
            let recorded = &table["situations"][situation];
            let at = member(&mut owner, recorded["answers"].clone()).await;
            let source = source(root.path(), at.clone(), at);
            let own = read(&source).await;
            let what = format!("etcd {version}, {situation}");
            assert_eq!(own.metrics.as_ref().unwrap().version, version, "{what}");
            let node = recorded["node"].as_str().unwrap().to_owned();
            let nodes = (1..=voters).map(server).collect();
            let is_ready = own.readyz == Ok(Readyz::Ready);
            let waits = waits(&source).await;
            let missing = "1 of 3 members of etcd are here, 2 are required";
            assert_eq!(waits.as_deref(), (situation == "no-quorum").then_some(missing), "{what}");
            let margin =
                judge(&EtcdFacts { node, own, kubernetes: Kubernetes::Read(nodes), words: vec![] }).margin;
            match (&margin, expected) {
                (Margin::Spare { healthy, .. }, Ok(count)) => {
                    assert_eq!((*healthy, is_ready), (count, true), "{what}");
                }
                (Margin::NotApplicable { .. }, Ok(0)) => {}
                (Margin::None { why }, Err(words)) => assert!(why.contains(words), "{what}: {why}"),
                (Margin::Spare { .. } | Margin::NotApplicable { .. } | Margin::None { .. }, _) => {
                    panic!("{what}: {margin:?}")
                }
            }
        }
    }
}

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
    for (state, expected) in [(1, None), (2, Some(false)), (3, Some(true)), (4, Some(false))] {
        let said = format!(r#"{{"WitnessIP":"10.0.0.9","State":{state},"Error":{{}}}}"#);
        let mut hosts = object("");
        hosts["metadata"]["annotations"]["witness-status"] = said.into();
        let expected = expected.map(|joined| (IpAddr::from([10, 0, 0, 9]), joined));
        assert_eq!(ServerNode::read(&hosts, true, Duration::ZERO).hosts, expected, "{state}");
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

/// As a member of etcd 3.5 writes it that has reached one of its two peers.
const TEXT: &str = "# TYPE etcd_network_active_peers gauge
etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1
etcd_network_disconnected_peers_total{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 2
etcd_server_has_leader 1
etcd_server_health_success 1.2e+03
etcd_server_id{server_id=\"8e9e05c52164694d\"} 1
etcd_server_is_leader 0
etcd_server_is_learner 0
etcd_server_leader_changes_seen_total 1
etcd_server_version{server_version=\"3.5.16\"} 1
";
const OWN: u64 = 0x8e9e_05c5_2164_694d;
const UP: u64 = 0x91bc_3c39_8fb3_c146;

#[test]
fn what_a_member_says_of_itself_and_its_connections_is_read() {
    let read = parse(TEXT).unwrap();
    assert_eq!((read.id, read.has_leader, read.is_leader, read.is_learner), (OWN, true, false, false));
    assert_eq!((read.streams.into_iter().collect(), read.version.as_str()), (vec![(UP, true)], "3.5.16"));
}

#[test]
fn each_metric_that_is_missing_is_named() {
    for name in
        ["etcd_server_has_leader", "etcd_server_is_leader", "etcd_server_is_learner", "etcd_server_id"]
    {
        let left: Vec<&str> = TEXT.lines().filter(|line| !line.starts_with(name)).collect();
        let text = left.join("\n");
        assert_eq!(
            parse(&text).unwrap_err().to_string(),
            format!("the metric {name} is missing (etcd 3.5.16)")
        );
    }
    for (text, words) in [("", "of unknown version"), ("<html>502 Bad Gateway</html>", "of unknown version")]
    {
        assert!(parse(text).unwrap_err().to_string().contains(words));
    }
    // Where no peer was reached there is no such line.
    let none: Vec<&str> = TEXT.lines().filter(|line| !line.contains("Remote")).collect();
    assert_eq!(parse(&none.join("\n")).unwrap().streams.len(), 0);
}

fn with(line: &str, new: &str) -> String {
    assert!(TEXT.contains(line), "{line}");
    TEXT.replacen(line, new, 1)
}

const LEADER: &str = "etcd_server_has_leader 1\n";

#[test]
fn odd_lines_are_read_where_they_mean_something_and_named_where_they_do_not() {
    let id = "etcd_server_id{server_id=\"8e9e05c52164694d\"} 1\n";
    let stream = "etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1\n";
    for (line, new) in [
        (LEADER, "etcd_server_has_leader 1e+00\r\n"),
        (LEADER, "  etcd_server_has_leader\t1.0 1763800000000\n"),
        (LEADER, "etcd_server_has_leader{} 1\netcd_server_has_leader 1\n"),
        (LEADER, "etcd_server_has_leader{job=\"a \\\"b\\\\ } c\\n\",} 1\n"),
        (LEADER, "etcd_server_has_leader_since NaN x y\netcd_server_has_leader 1"),
        (id, "etcd_server_id{server_id=\"8e9e05c52164694d\"} 1\netcd_server_id{server_id=\"1\"} 0\n"),
        (stream, "etcd_network_active_peers{Remote=\"91bc3c398fb3c146\",Local=\"8e9e05c52164694d\"} 2\n"),
        // Another member that lived in the same process.
        (
            stream,
            "etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1\n\
                  etcd_network_active_peers{Local=\"1\",Remote=\"2\"} 1\n",
        ),
    ] {
        let text = if new.ends_with('\n') { with(line, new) } else { with(line, &format!("{new}\n")) };
        assert_eq!(parse(&text), parse(TEXT), "{new}");
    }
    for (new, words) in [
        ("etcd_server_has_leader 2\n", "unexpected line: etcd_server_has_leader 2"),
        ("etcd_server_has_leader NaN\n", "unexpected"),
        ("etcd_server_has_leader yes\n", "unexpected"),
        ("etcd_server_has_leader\n", "unexpected"),
        ("etcd_server_has_leader{a=\"b 1\n", "unexpected"),
        ("etcd_server_has_leader 1 soon\n", "unexpected"),
        (
            "etcd_server_has_leader 1\netcd_server_has_leader 0\n",
            "etcd_server_has_leader has two different values",
        ),
        (
            "etcd_server_has_leader 1\netcd_server_id{server_id=\"1\"} 1\n",
            "etcd_server_id has two different values",
        ),
        (
            "etcd_server_has_leader 1\netcd_server_id{server_id=\"n1\"} 1\n",
            "etcd_server_id has an unexpected line",
        ),
        (
            "etcd_server_has_leader 1\netcd_network_active_peers{Local=\"1\"} 1\n",
            "active_peers has an unexpected",
        ),
        (
            "etcd_server_has_leader 1\netcd_network_active_peers{Local=\"1\",Remote=\"2\"} -1\n",
            "active_peers",
        ),
    ] {
        let error = parse(&with(LEADER, new)).unwrap_err().to_string();
        assert!(error.contains(words), "{new}: {error}");
    }
}

#[test]
fn a_text_that_is_too_long_is_not_read() {
    let text = format!("{TEXT}{}", "# x\n".repeat(LARGEST_BYTES / 4));
    assert_eq!(parse(&text), Err(BadMetrics::TooLong(text.len())));
    let line = format!("etcd_server_has_leader {}", "x".repeat(10_000));
    assert!(parse(&line).unwrap_err().to_string().len() < 400);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        let _any = parse(&text);
    }

    #[test]
    fn no_change_of_one_place_makes_it_panic(at in 0..TEXT.len(), new in "(?s).{0,3}") {
        let mut text = TEXT.to_owned();
        text.replace_range(at..=at, &new);
        let _any = parse(&text);
    }
}
