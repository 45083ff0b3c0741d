//! The stand-in of etcd beside what real members of each version answered in the same situation (`tests/golden/etcd`).

use std::collections::BTreeMap;
use std::path::Path;

use kubesim::{ETCD_VERSIONS, Etcd, EtcdFault};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Status and body of an answer of the stand-in; code 0 where it cuts the connection.
async fn ask(etcd: &Etcd, node: &str, question: &str) -> (u64, String) {
    let (path, body) = question.split_once(' ').unwrap_or((question, ""));
    let at = if path.starts_with("/v3/") || path == "/version" {
        etcd.gateway_url(node)
    } else {
        etcd.metrics_url(node)
    };
    let mut stream = TcpStream::connect(at.strip_prefix("http://").unwrap()).await.unwrap();
    let verb = if body.is_empty() { "GET" } else { "POST" };
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    let Some((head, body)) = answer.split_once("\r\n\r\n").filter(|_| read.is_ok()) else {
        return (0, String::new());
    };
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Ids by the node of their member, as a list of members names them.
fn ids(list: &Value) -> BTreeMap<u64, String> {
    let id = |it: &Value| it["ID"].as_str().unwrap().parse().unwrap();
    let node = |it: &Value| it["name"].as_str().unwrap().split('-').next().unwrap().to_owned();
    list["members"].as_array().unwrap().iter().map(|it| (id(it), node(it))).collect()
}

/// The same for two clusters: ids are nodes, and what is another one in each cluster or at each moment is left out.
fn form(text: &str, ids: &BTreeMap<u64, String>) -> Value {
    let mut text = text.to_owned();
    for (id, node) in ids {
        text = text
            .replace(&format!("\"{id}\""), &format!("\"{node}\""))
            .replace(&format!("{id:x}\""), &format!("{node}\""));
    }
    let Ok(mut said) = serde_json::from_str::<Value>(&text) else {
        // A connection to a member that was removed says nothing; checks run in any order.
        let is_of_now = |line: &&str| {
            !line.contains("Remote") || ids.values().any(|it| line.contains(&format!("Remote=\"{it}\"")))
        };
        let mut lines: Vec<&str> = text.lines().filter(is_of_now).collect();
        lines.sort_unstable();
        return lines.into();
    };
    if let Some(said) = said.as_object_mut() {
        said.retain(|name, _| {
            !["raftIndex", "raftTerm", "raftAppliedIndex", "dbSize", "dbSizeInUse"].contains(&name.as_str())
        });
    }
    for changing in ["cluster_id", "raft_term", "revision"] {
        if let Some(header) = said["header"].as_object_mut() {
            header.remove(changing);
        }
    }
    if let Some(members) = said["members"].as_array_mut() {
        for it in members.iter_mut() {
            it["name"] = it["name"].as_str().unwrap().split('-').next().unwrap().into();
            let count = |it: &Value| it.as_array().map(Vec::len);
            (it["peerURLs"], it["clientURLs"]) =
                (json!(count(&it["peerURLs"])), json!(count(&it["clientURLs"])));
        }
        members.sort_by_key(|it| it["name"].to_string());
    }
    said
}

#[tokio::test]
async fn t4_the_stand_in_of_etcd_answers_as_a_real_member_of_each_version_did() {
    let learner = ("n4", EtcdFault::Learner);
    let situations: [(&str, &[(&str, EtcdFault)]); 9] = [
        ("leader", &[]),
        ("follower", &[]),
        ("alarm", &[("n3", EtcdFault::Alarm("NOSPACE".to_owned()))]),
        ("learner", std::slice::from_ref(&learner)),
        ("learner-own", std::slice::from_ref(&learner)),
        ("removed", &[]),
        ("peer-down", &[("n3", EtcdFault::Down)]),
        ("no-quorum", &[("n2", EtcdFault::Down), ("n3", EtcdFault::Down)]),
        ("alone", &[]),
    ];
    for version in ETCD_VERSIONS {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/etcd/{version}.json"));
        let table: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!((&table["component"], &table["version"]), (&json!("etcd"), &json!(version)));
        for (situation, faults) in &situations {
            let recorded = &table["situations"][situation];
            let nodes: &[&str] = match *situation {
                "alone" => &["n1"],
                "learner" | "learner-own" => &["n1", "n2", "n3", "n4"],
                _ => &["n1", "n2", "n3"],
            };
            let etcd = Etcd::start_of(version, nodes).await.unwrap();
            let list = r#"/v3/cluster/member/list {"linearizable":true}"#;
            let ours = ids(&serde_json::from_str(&ask(&etcd, "n1", list).await.1).unwrap());
            for (node, fault) in *faults {
                etcd.script(node, std::slice::from_ref(fault));
            }
            // A learner tells no list, and without a quorum only that of etcd 3.4 is told: the same members are in another.
            let lists = match *situation {
                "learner-own" => "learner",
                "no-quorum" => "leader",
                other => other,
            };
            let theirs = ids(&table["situations"][lists]["answers"][list]["json"]);
            for (question, expected) in recorded["answers"].as_object().unwrap() {
                let (code, body) = ask(&etcd, recorded["node"].as_str().unwrap(), question).await;
                let at = format!("etcd {version}, {situation}, {question}");
                assert_eq!(json!(code), expected["code"], "{at}: {body}");
                let lines = |it: &Vec<Value>| {
                    it.iter().map(|line| line.as_str().unwrap().to_owned() + "\n").collect()
                };
                let text: String =
                    expected["lines"].as_array().map_or_else(|| expected["json"].to_string(), lines);
                if code != 0 {
                    assert_eq!(form(&body, &ours), form(&text, &theirs), "{at}");
                }
            }
        }
    }
}
