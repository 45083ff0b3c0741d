//! The API of the embedded cluster and the status pages over plain HTTP: a replacement for `kubectl`, and a
//! watch of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Api(String);

impl Api {
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let at = text.find("http://").unwrap();
        let server: String = text[at..].chars().take_while(|it| !it.is_whitespace() && *it != '"').collect();
        Self(server.trim_end_matches('/').to_owned())
    }

    /// The request of this `kubectl` line, and its answer.
    pub(crate) fn stands_in(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (method, path, body) = match words.as_slice() {
            ["kubectl", "get", "nodes"] => ("GET", "/api/v1/nodes".to_owned(), ""),
            ["kubectl", "get", "node", name] => ("GET", format!("/api/v1/nodes/{name}"), ""),
            ["kubectl", "get", "pods", "-A", "-o", "wide"] => ("GET", "/api/v1/pods".to_owned(), ""),
            ["kubectl", "-n", namespace, "patch", "pdb", name, "--type", "merge", "-p", patch] => (
                "PATCH",
                format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"),
                patch.trim_matches('\''),
            ),
            // Only looked at.
            _ => return String::new(),
        };
        let (status, answer) = ask(method, &format!("{}{path}", self.0), body);
        assert_eq!(status, 200, "{line}: {answer}");
        answer
    }
}

pub(crate) fn get(url: &str) -> (u16, String) {
    ask("GET", url, "")
}

fn ask(method: &str, url: &str, body: &str) -> (u16, String) {
    let mut answer = String::new();
    open(method, url, body).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// HTTP/1.0, so without chunks.
fn open(method: &str, url: &str, body: &str) -> BufReader<TcpStream> {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let kind = "Content-Type: application/merge-patch+json";
    write!(
        stream,
        "{method} /{path} HTTP/1.0\r\nHost: {host}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    BufReader::new(stream)
}

/// The objects of a watch: existing ones, then each change.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(api: &Api, list: &str) -> Self {
        let mut events = open("GET", &format!("{}{list}?watch=true", api.0), "");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(events.read_line(&mut line).unwrap() > 0, "no watch");
        }
        Self(events)
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the watch ended");
        let mut event: Value = serde_json::from_str(&line).unwrap();
        event["object"].take()
    }
}

/// Waits until no node holds a turn, which a node that is schedulable again does until it is healthy, and until
/// no Deployment lacks a pod: what is typed next finds the cluster as it was.
pub(crate) fn is_at_rest(api: &Api) {
    let until = |list: &str, is: fn(&Value) -> bool| {
        let mut events = Events::of(api, list);
        while !is(&events.next()) {}
    };
    until("/apis/coordination.k8s.io/v1/leases", |it| {
        let holder = it["spec"]["holderIdentity"].as_str().unwrap_or_default();
        it["metadata"]["name"] == "pillar-rs-outage" && holder.is_empty()
    });
    until("/apis/apps/v1/namespaces/shop/deployments", |it| {
        it["status"]["readyReplicas"] == it["spec"]["replicas"]
    });
}

pub(crate) struct Nodes {
    events: Events,
    known: BTreeMap<String, Value>,
}

impl Nodes {
    pub(crate) fn watch(api: &Api) -> Self {
        Self { events: Events::of(api, "/api/v1/nodes"), known: BTreeMap::new() }
    }

    /// Waits until all nodes are Ready and schedulable, once each of `drained` was cordoned and each of
    /// `down` was not Ready; never two of them at a time.
    pub(crate) fn until_back(&mut self, drained: &[&str], down: &[&str]) {
        self.follow(drained, down, true);
    }

    /// The same for nodes that may be down together.
    pub(crate) fn until_on(&mut self, down: &[&str]) {
        self.follow(down, down, false);
    }

    fn follow(&mut self, drained: &[&str], down: &[&str], in_turn: bool) {
        let (mut cordoned, mut went) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let node = self.events.next();
            self.known.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), node);
            let those = |is: fn(&Value) -> bool| -> Vec<String> {
                self.known.iter().filter(|it| is(it.1)).map(|it| it.0.clone()).collect()
            };
            let (closed, off) = (those(|it| it["spec"]["unschedulable"] == true), those(|it| !is_ready(it)));
            let one = closed.len() <= 1 && off.len() <= 1;
            assert!(one || !in_turn, "at the same time: {closed:?}, {off:?}");
            let all = self.known.len() == 3 && closed.is_empty() && off.is_empty();
            cordoned.extend(closed);
            went.extend(off);
            let seen =
                drained.iter().all(|it| cordoned.contains(*it)) && down.iter().all(|it| went.contains(*it));
            if all && seen {
                return;
            }
        }
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}
