//! What real members of etcd 3.4, 3.5 and 3.6 answered in each situation, and what follows from it: the same, whatever a
//! version offers.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::super::calls::{read, waits};
use super::super::facts::{Data, EtcdFacts, Kubernetes, Readyz};
use super::super::rule::{Margin, judge};
use super::calls::source;
use super::rule::server;

fn tables() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/etcd");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    let table = |it: PathBuf| serde_json::from_str::<Value>(&std::fs::read_to_string(it).unwrap()).unwrap();
    files.into_iter().map(table).map(|it| (it["version"].as_str().unwrap().to_owned(), it)).collect()
}

/// Answers as that member did; it hangs up where the member did not answer.
async fn member(owner: &mut JoinSet<()>, answers: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    owner.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            answer(stream, &answers).await;
        }
    });
    at
}

async fn answer(mut stream: TcpStream, answers: &Value) {
    let (mut request, mut part) = (String::new(), [0; 1024]);
    let (head, body) = loop {
        let read = stream.read(&mut part).await.unwrap();
        request.push_str(std::str::from_utf8(&part[..read]).unwrap());
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|it| it.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break (head, body);
        }
    };
    let path = head.split(' ').nth(1).unwrap();
    let question = if body.is_empty() { path.to_owned() } else { format!("{path} {body}") };
    let recorded = &answers[&question];
    let code = recorded["code"].as_u64().unwrap_or_else(|| panic!("{question} was not recorded"));
    let lines = |it: &Vec<Value>| it.iter().map(|line| line.as_str().unwrap().to_owned() + "\n").collect();
    let text: String = recorded["lines"].as_array().map_or_else(|| recorded["json"].to_string(), lines);
    if code > 0 {
        let head =
            format!("HTTP/1.1 {code} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn t1_each_version_of_etcd_is_read_and_judged_alike_in_each_situation() {
    let tables = tables();
    assert_eq!(tables.len(), 3);
    let root = tempfile::tempdir().unwrap();
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
            let own = super::super::facts::OwnEtcd { data: Ok(Data::Present), ..own };
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

#[tokio::test]
async fn a_member_without_a_quorum_says_how_many_of_it_are_here_in_each_version() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("var/lib/rancher/k3s/server/db/etcd")).unwrap();
    let mut owner = JoinSet::new();
    for (version, table) in tables() {
        let at = member(&mut owner, table["situations"]["no-quorum"]["answers"].clone()).await;
        let said = waits(&source(root.path(), at.clone(), at)).await;
        assert_eq!(
            said.as_deref(),
            Some("1 of 3 members of etcd are here, 2 are required"),
            "etcd {version}"
        );
    }
}
