//! Who is heard, and the writes.

use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use kube::Client;
use kubeapi::mock::{self, RecordedCall};
use kubeapi::{ApiClient, NodeName};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use topics::NodeOutage;

use super::super::act::advance;
use super::super::calls::{actors, heard, minor_version, taint};
use super::super::record::declare;
use super::super::{DeclaredNode, FailoverState};
use super::{dead, entry, node, record};
use crate::calls::{look, named, read};
use crate::margin::facts::ServerNode;
use crate::operator::change;
use crate::tests::http::{Answer, http, server};
use crate::turn::pulses::{Pulse, Pulses};
use crate::turn::record::FAILOVER;
use crate::turn::rule::TurnNode;

fn n1() -> NodeName {
    NodeName::parse("n1").unwrap()
}

/// Answers at this address with `body`, or hangs up without.
async fn answers(at: SocketAddr, body: Option<String>, all: &mut JoinSet<()>) -> SocketAddr {
    server(all, at, move |_, _| body.as_ref().map_or(Answer::HangUp, |it| http(200, it))).await
}

fn word(node: &str, hears: &[(&str, bool)]) -> String {
    let hears = hears.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
    let word = NodeOutage { node: node.to_owned(), hears, ..NodeOutage::default() };
    serde_json::to_string(&word).unwrap()
}

#[tokio::test]
async fn f10_a_node_is_heard_by_who_gets_an_answer_and_a_machine_that_refuses_the_connection_lives() {
    let address = |last: u8| IpAddr::from([127, 0, 77, last]);
    let mut doors = JoinSet::new();
    // n2 is us. n3 hears n1 and nothing of n4; n5 hangs up; n6 refuses; n7 has no address; n8 is asked and is not silent.
    let n3 = Some(word("n3", &[("n1", true), ("n5", false), ("n8", true)]));
    let port = answers(SocketAddr::new(address(3), 0), n3, &mut doors).await.port();
    let at = |last: u8| SocketAddr::new(address(last), port);
    answers(at(1), None, &mut doors).await;
    answers(at(4), Some(word("n4", &[("n1", false), ("n4", true)])), &mut doors).await;
    answers(at(5), None, &mut doors).await;
    answers(at(8), Some(word("n8", &[("n5", false)])), &mut doors).await;
    let server = |last: u8| ServerNode {
        name: format!("n{last}"),
        address: (last != 7).then(|| address(last)),
        ..ServerNode::default()
    };
    let nodes: Vec<ServerNode> = (1..=8).map(server).collect();
    let silent: Vec<TurnNode> = ["n1", "n4", "n5", "n6", "n7"].map(dead).into();
    let silent: Vec<&TurnNode> = silent.iter().collect();
    let found = heard("n2", &silent, &nodes, port).await;
    let of = |name: &str| {
        let all = found[name].iter().map(|(by, is)| format!("{by}{}", if *is { '+' } else { '-' }));
        all.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of("n1"), "n2- n3+ n4-");
    assert_eq!(of("n4"), "n2+", "its own word of itself does not count");
    assert_eq!(of("n5"), "n2- n3- n8-");
    assert_eq!(of("n6"), "n2+");
    assert_eq!(of("n7"), "");
    assert_eq!(found.len(), 5);
}

fn node_object(version: &str, taints: &Value) -> Value {
    json!({
        "metadata": { "name": "n1", "uid": "n1-uid", "resourceVersion": version, "annotations": { "else": "x" } },
        "spec": { "taints": taints },
        "status": { "nodeInfo": { "bootID": "n1-boot" }, "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    })
}

#[tokio::test(start_paused = true)]
async fn f11_the_taint_is_one_patch_that_names_version_and_uid_and_keeps_other_taints() {
    let away = json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "t" });
    let object = node_object("7", &json!([away]));
    let (cluster, calls) = mock::cluster(vec![
        mock::object(&object),
        mock::object(&object),
        mock::status(409, "the object has been modified"),
        mock::status(500, "broken"),
    ]);
    let seen = named(&cluster, &n1()).await.unwrap();
    let entry = DeclaredNode { number: 3, ..entry("n1", FailoverState::Declared) };
    taint(&cluster, &seen, &entry).await.unwrap();
    let call = calls.all().pop().unwrap();
    assert!(call.line.starts_with("PATCH /api/v1/nodes/n1?"), "{}", call.line);
    assert_eq!(call.content_type, "application/merge-patch+json");
    let ours =
        json!({ "key": "node.kubernetes.io/out-of-service", "value": "pillar-rs-3", "effect": "NoExecute" });
    let expected = json!({
        "metadata": {
            "resourceVersion": "7", "uid": "n1-uid", "annotations": { "pillar-rs/dead-boot": "n1-boot" },
        },
        "spec": { "taints": [away, ours] },
    });
    assert_eq!(serde_json::from_str::<Value>(&call.body).unwrap(), expected);
    assert!(taint(&cluster, &seen, &entry).await.unwrap_err().is_conflict());
    assert!(!taint(&cluster, &seen, &entry).await.unwrap_err().is_conflict());
    assert_eq!(calls.all().len(), 4, "nothing is tried again");
}

/// A cluster in which n1 is declared dead, with its entry; a node that nothing reports is not Ready.
async fn site() -> (Sim, ApiClient, DeclaredNode) {
    let sim = Sim::new(SimConfig::default());
    for name in ["n1", "n2"] {
        sim.add_node(name, name);
    }
    sim.power("n1", false);
    let off =
        |it: &Value| it["metadata"]["name"] != "n1" || it["status"]["conditions"][0]["status"] != "True";
    sim.until("nodes", |all| all.iter().all(off)).await;
    sim.edit("nodes", "", "n1", |it| it["status"]["nodeInfo"]["bootID"] = "n1-boot".into());
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let uid = named(&cluster, &n1()).await.unwrap().seen.uid;
    let word = DeclaredNode { node_uid: uid, ..entry("n1", FailoverState::Declared) };
    let (_, after) = change(&cluster, Timestamp::UNIX_EPOCH, |it| declare(it, &word)).await.unwrap();
    let word = after.failovers[0].clone();
    (sim, cluster, word)
}

async fn step(
    cluster: &ApiClient,
    word: &DeclaredNode,
    is_heard: bool,
) -> Result<Option<FailoverState>, String> {
    let (nodes, now) = (silent(cluster).await, Timestamp::UNIX_EPOCH);
    advance(cluster, now, word, &nodes, is_heard).await.map_err(|it| it.to_string())
}

/// The nodes, whose kubelets have been silent for 40 s.
async fn silent(cluster: &ApiClient) -> Vec<TurnNode> {
    let looked = look(cluster, &n1(), &mut Pulses::default(), mock::clock()()).await.unwrap();
    looked.nodes.into_iter().map(|it| TurnNode { pulse: Pulse::Still, ..it }).collect()
}

async fn states(cluster: &ApiClient) -> Vec<FailoverState> {
    read(cluster).await.unwrap().unwrap().record.failovers.into_iter().map(|it| it.state).collect()
}

#[tokio::test(start_paused = true)]
async fn f8_a_step_that_is_cut_off_is_done_by_the_next_one_and_the_node_is_written_once() {
    let (sim, cluster, word) = site().await;
    let patches = || sim.faults().count("PATCH", "/nodes/n1");
    // Somebody else was faster, the answer was lost, and the entry could not be written.
    sim.faults().script("PATCH", "/nodes/n1", 1, ScriptedFault::status(409, "Conflict"));
    assert_eq!(step(&cluster, &word, false).await, Ok(None));
    sim.faults().script("PUT", "leases", 1, ScriptedFault::status(500, "InternalError"));
    step(&cluster, &word, false).await.unwrap_err();
    assert_eq!(states(&cluster).await, [FailoverState::Declared]);
    let written = patches();
    // The next one, of two at once.
    let two = tokio::join!(step(&cluster, &word, false), step(&cluster, &word, true));
    assert_eq!(two, (Ok(Some(FailoverState::Tainted)), Ok(Some(FailoverState::Tainted))));
    assert_eq!(states(&cluster).await, [FailoverState::Tainted]);
    assert_eq!((written, patches()), (2, 2));
    let taints = sim.get("nodes", "", "n1").unwrap()["spec"]["taints"].to_string();
    assert_eq!(taints.matches("out-of-service").count(), 1, "{taints}");
}

#[tokio::test(start_paused = true)]
async fn f7_one_that_has_come_back_meanwhile_gets_no_taint() {
    for what in ["answers", "ready", "another boot"] {
        let (sim, cluster, word) = site().await;
        let before = silent(&cluster).await;
        match what {
            "ready" => {
                sim.power("n1", true);
                let on = |it: &Value| it["status"]["conditions"][0]["status"] == "True";
                sim.until("nodes", |all| all.iter().all(on)).await;
            }
            "another boot" => {
                sim.edit("nodes", "", "n1", |it| it["status"]["nodeInfo"]["bootID"] = "another".into());
            }
            _ => {}
        }
        let is_heard = what == "answers";
        let now = Timestamp::UNIX_EPOCH;
        let state = advance(&cluster, now, &word, &before, is_heard).await.unwrap();
        assert_eq!(state, Some(FailoverState::Withdrawn), "{what}");
        assert_eq!(states(&cluster).await, [FailoverState::Withdrawn], "{what}");
        assert_eq!(sim.faults().count("PATCH", "/nodes/n1"), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn f8_what_another_one_wrote_while_the_taint_was_written_stays() {
    for (now, expected) in [
        (FailoverState::Withdrawn, FailoverState::Withdrawn),
        (FailoverState::Declared, FailoverState::Tainted),
        (FailoverState::Moved, FailoverState::Moved),
        (FailoverState::Gone, FailoverState::Gone),
    ] {
        let other = record(&[entry("n1", now)]).annotations().unwrap();
        let lease = |notes: &Value| {
            json!({
                "metadata": { "name": "pillar-rs-outage", "uid": "L", "resourceVersion": "5", "annotations": notes },
                "spec": { "leaseTransitions": 0 },
            })
        };
        let held = lease(&json!(other));
        let answer = move |call: &RecordedCall| match call.line.split('?').next().unwrap_or_default() {
            line if line.contains("/nodes/n1") => mock::object(&node_object("7", &json!([]))),
            line if line.starts_with("PUT ") => {
                let body: Value = serde_json::from_str(&call.body).unwrap();
                mock::object(&lease(&body["metadata"]["annotations"]))
            }
            _ => mock::object(&held),
        };
        let (cluster, calls) = mock::server(answer);
        let word = entry("n1", FailoverState::Declared);
        let nodes = [dead("n1"), node("n2")];
        let state = advance(&cluster, Timestamp::UNIX_EPOCH, &word, &nodes, false).await.unwrap();
        assert_eq!(state, Some(FailoverState::Tainted));
        let written = calls.all().into_iter().rfind(|it| it.line.starts_with("PUT "));
        let text = written.map(|it| {
            let body: Value = serde_json::from_str(&it.body).unwrap();
            body["metadata"]["annotations"][FAILOVER].as_str().unwrap().to_owned()
        });
        let text = text.unwrap_or_else(|| other[FAILOVER].clone());
        let entries: Vec<DeclaredNode> = serde_json::from_str(&text).unwrap();
        assert_eq!(entries[0].state, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn f10_who_acts_on_silent_nodes_is_named_and_the_version_is_read() {
    let setting =
        |value: &str| json!({ "metadata": { "name": "node-down-pod-deletion-policy" }, "value": value });
    let groups = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|it| json!({ "name": it })).collect();
        mock::object(&json!({ "kind": "APIGroupList", "groups": all }))
    };
    let found = async |settings, names: &[&str]| {
        let (cluster, _) = mock::cluster(vec![settings, groups(names)]);
        actors(&cluster).await.unwrap()
    };
    let none = || mock::list("1", &[]);
    assert_eq!(found(none(), &["apps"]).await, [""; 0]);
    assert_eq!(found(mock::status(404, "no such resource"), &[]).await, [""; 0], "no Longhorn");
    assert_eq!(found(mock::list("1", &[setting("do-nothing")]), &[]).await, [""; 0]);
    let policy = "delete-both-statefulset-and-deployment-pod";
    let all =
        found(mock::list("1", &[setting(policy)]), &["remediation.medik8s.io", "harvesterhci.io"]).await;
    assert_eq!(
        all,
        [
            "Longhorn, whose node-down-pod-deletion-policy is delete-both-statefulset-and-deployment-pod",
            "the Node Healthcheck Operator",
            "Harvester, whose vm-force-reset-policy is on by default",
        ]
    );
    for (major, minor, expected) in
        [("1", "33", Some(33)), ("1", "26+", Some(26)), ("2", "0", None), ("1", "", None)]
    {
        let (cluster, _) = mock::cluster(vec![mock::object(&json!({ "major": major, "minor": minor }))]);
        assert_eq!(minor_version(&cluster).await.unwrap(), expected, "{major}.{minor}");
    }
}
