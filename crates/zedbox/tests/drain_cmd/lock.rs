//! `zedbox lock status`: holder, waiting nodes and reasons, in text and JSON; and an invalid record.

use std::collections::BTreeMap;

use kubesim::Sim;
use serde_json::{Value, json};
use topics::GoTime;

use crate::drain_cmd::node::{Ended, holds, words};
use crate::drain_cmd::place::Place;
use crate::drain_cmd::readme::shown;
use crate::drain_cmd::terminal::Terminal;

pub(crate) const LEASE: &str = "pillar-rs-outage";

pub(crate) fn add_worker(sim: &Sim, name: &str) {
    sim.add_node(name, &format!("uuid-{name}"));
    relabel(sim, name, "node-role.kubernetes.io/control-plane", None);
}

pub(crate) fn relabel(sim: &Sim, node: &str, label: &str, value: Option<&str>) {
    sim.edit("nodes", "", node, |it| {
        let labels = it["metadata"]["labels"].as_object_mut().unwrap();
        match value {
            Some(value) => drop(labels.insert(label.to_owned(), value.into())),
            None => drop(labels.remove(label)),
        }
    });
}

/// A cluster of the server n1, a member of etcd, and the workers n2, n3 and n4, which is cordoned.
pub(crate) fn place() -> Place {
    Place::new(0, |sim| {
        sim.add_node("n1", "uuid-n1");
        relabel(sim, "n1", "node-role.kubernetes.io/etcd", Some("true"));
        for worker in ["n2", "n3", "n4"] {
            add_worker(sim, worker);
        }
        sim.edit("nodes", "", "n4", |it| it["spec"]["unschedulable"] = json!(true));
    })
}

impl Place {
    fn uid(&self, node: &str) -> String {
        self.sim.get("nodes", "", node).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn waiter(&self, node: &str, class: &str, op: &str) -> Value {
        json!({ "node": node, "nodeUID": self.uid(node), "class": class, "op": op, "counter": 3 })
    }

    /// n2 holds turn 7 since `since`; n1 and n3 wait, in that order of arrival.
    pub(crate) fn turns(&self, since: &str) {
        let holder = json!({
            "node": "n2", "nodeUID": self.uid("n2"), "bootID": "b1", "op": "reboot", "counter": 3, "fence": 7,
            "phase": "drained", "since": since, "later": "a member of another version",
        });
        let queue = [self.waiter("n1", "follower", "os-update"), self.waiter("n3", "worker", "reboot")];
        let forced = json!([{
            "node": "n3", "nodeUID": self.uid("n3"), "fence": 5, "who": "operator field on laptop",
            "why": "its board was replaced", "when": since,
        }]);
        self.lease(&[
            ("holders", json!([holder]).to_string()),
            ("queue", json!(queue).to_string()),
            ("forced", forced.to_string()),
            ("version", "1".to_owned()),
        ]);
    }

    /// With these annotations of ours and a foreign one.
    pub(crate) fn lease(&self, annotations: &[(&str, String)]) {
        let mut all: BTreeMap<String, String> =
            annotations.iter().map(|(key, text)| (format!("pillar-rs/outage-{key}"), text.clone())).collect();
        all.insert("example.com/theirs".to_owned(), "kept".to_owned());
        self.sim.apply(
            "coordination/leases",
            json!({
                "metadata": { "name": LEASE, "namespace": "eve-kube-app", "annotations": all },
                "spec": { "leaseTransitions": 7 },
            }),
        );
    }

    pub(crate) fn lock(&self, line: &str) -> Ended {
        self.node.sudo(&format!("lock {line}"))
    }
}

/// Ten and a half minutes ago, as stored and as shown.
fn a_while_ago() -> (String, String) {
    let now = agent::Clock::new().wall().to_timestamp();
    let since = GoTime::from(now - std::time::Duration::from_secs(630));
    let since = sheet::text::seconds(since);
    let time = since.get(11..19).unwrap().to_owned();
    (since, time)
}

/// The output at the documents' time; a test at midnight shows a date too.
fn at_their_time(out: &str, (since, time): &(String, String)) -> String {
    let date = since.get(..10).unwrap();
    words(out)
        .replace(&format!("{date} {time} UTC"), "09:30:30 UTC")
        .replace(&format!("{time} UTC"), "09:30:30 UTC")
}

#[test]
fn turns_are_shown_with_what_each_waits_for_and_what_to_type() {
    let place = place();
    let since = a_while_ago();
    place.turns(&since.0);
    let away = json!({ "who": "operator field on laptop", "why": "in repair", "when": since.0 }).to_string();
    place.annotate("n4", "pillar-rs/outage-ignore", &away);
    let told = place.lock("status").done();
    assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{}", told.out);
    let printed = at_their_time(&told.out, &since);
    assert_eq!(words(&shown("zedbox lock status")), printed, "docs/operate differs:\n{}", told.out);
    assert_eq!(place.written(), []);

    let mut terminal = Terminal::of(place.node.command("lock status"), (40, 24), &[("TERM", "dumb")]);
    assert_eq!(terminal.end(), 0);
    let phone = terminal.read.replace('\r', "");
    assert!(phone.lines().all(|line| line.chars().count() <= 40), "{phone}");
    assert_eq!(words(&phone), words(&told.out));
}

#[test]
fn one_node_is_explained_whether_it_holds_waits_or_neither() {
    let place = place();
    place.turns("2026-03-14T09:30:30Z");
    place.lock("status --node n1").says(&[
        "why node n1 waits for a turn (os-update): node n2 holds a turn",
        "next step wait until node n2 is back",
    ]);
    place.lock("status --node n2").says(&["`zedbox lock release n2 --fence 7 --reason '...'`"]);
    place.lock("status --node n4").says(&["node n4 neither holds a turn nor waits for one"]);
    let unknown = "the cluster has no node n9; check the name with kubectl get nodes";
    place.lock("status --node n9").refused(&[unknown]);
    place.lock("status --node N_9").refused(&["as a node name"]);

    // No holder: n4 is down, and n3 waits for that; then n1 waits for n3.
    let queue = json!([place.waiter("n1", "follower", "os-update"), place.waiter("n3", "worker", "reboot")]);
    place.lease(&[("queue", queue.to_string())]);
    place.lock("status").says(&["why node n3 waits for a turn (reboot): node n4 is cordoned; 1 may be down at once",
        "next step once whoever has cordoned node n4 agrees: `kubectl uncordon n4`; to let others go down beside it: `zedbox lock ignore n4 --reason '...'`"]);
    place.cordon("n4", false);
    place.lock("status --node n1").says(&["node n3 (worker) is before this node in the queue"]);
    place.lock("status").says(&["nothing of other nodes prevents it"]);
    // A member of etcd must not be ignored.
    place.cordon("n1", true);
    place.lock("status").says(&["agrees: `kubectl uncordon n1`"]).lacks(&["lock ignore"]);
}

/// Our commands in a text, as arguments.
fn commands(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2).filter_map(|it| it.strip_prefix("zedbox lock "));
    spans.map(|it| it.replace('\'', "")).collect()
}

#[test]
fn what_is_printed_as_a_command_can_be_typed() {
    let place = place();
    place.turns("2026-03-14T09:30:30Z");
    for expected in ["release n2 --fence 7 --reason ...", "ignore n4 --reason ..."] {
        let said = words(&place.lock("status").out);
        let found = commands(&said);
        assert_eq!(found, [expected], "{said}");
        place.lock(&found[0]).done();
    }
    let said = words(&place.lock("status").out);
    assert_eq!(commands(&said), ["ignore n4 --undo"], "{said}");
    place.lock("ignore n4 --undo").ends(0);
    let told = place.lock("release n2 --fence 7 --reason x");
    place.lock(told.err.split("look again: zedbox lock ").nth(1).unwrap().trim()).ends(0);
}

#[test]
fn turns_for_programs_are_one_object() {
    let place = place();
    place.turns("2026-03-14T09:30:30Z");
    let shown = place.lock("status -o json").ends(0).json();
    let members: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    let known = "Down Fence Holders Ignored Lease Limit Mode NextStep Queue Released Why";
    assert_eq!(members.join(" "), known);
    let since = "2026-03-14T09:30:30Z";
    let holder = json!({
        "Node": "n2", "NodeUID": place.uid("n2"), "Op": "reboot", "Counter": 3, "Phase": "drained", "Fence": 7,
        "Server": false, "Since": since,
    });
    // Workers go first.
    holds(
        &shown,
        &json!({
            "Lease": true, "Limit": 1, "Fence": 7, "Holders": [holder], "Mode": null, "Ignored": [],
            "/Queue/0/Place": 1, "/Queue/0/Node": "n3", "/Queue/0/WaitsFor": ["n2", "n4"],
            "/Queue/1/Place": 2, "/Queue/1/Node": "n1", "/Queue/2": null, "/Released/0/When": since,
            "/Down/1": { "Node": "n4", "Server": false, "Fence": null, "Why": "node n4 is cordoned" },
        }),
    );

    place.lease(&[("mode", json!({ "id": "op-1", "kind": "shutdown" }).to_string())]);
    let mode = place.lock("status -o json").json();
    assert_eq!(mode["Mode"], json!({ "ID": "op-1", "Kind": "shutdown" }));
    let headline = "the whole-cluster operation shutdown (op-1) is in progress: no turn is granted";
    place.lock("status").begins(headline);
}

#[test]
fn without_a_lease_no_node_holds_or_waits() {
    let place = place();
    let told = place.lock("status").done().says(&["down node n4 is cordoned next step nothing"]);
    told.begins("no node holds or waits for a turn\n");
    let shown = place.lock("status -o json").json();
    holds(&shown, &json!({ "Lease": false, "Holders": [], "Queue": [] }));
    assert_eq!(place.written(), []);
}

#[test]
fn a_record_that_cannot_be_used_is_named_with_what_to_type_and_nothing_is_written() {
    let place = place();
    let empty =
        "kubectl -n eve-kube-app annotate --overwrite lease pillar-rs-outage pillar-rs/outage-holders='[]'";
    for (key, text, why) in [("version", "2", "has format 2, newer than 1"), ("holders", "{", empty)] {
        place.lease(&[(key, text.to_owned())]);
        for command in ["status", "status -o json", "release n2 --fence 7 --reason x", "limit 2"] {
            let told = place.lock(command).refused(&[why]);
            assert!(told.err.starts_with("zedbox lock: failed to "), "{told:?}");
        }
    }
    assert_eq!(place.written(), []);
}

#[test]
fn a_cluster_that_does_not_answer_and_wrong_words_are_told_apart() {
    let place = place();
    place.sim.faults().script("GET", LEASE, 1, kubesim::ScriptedFault::status(403, "Forbidden"));
    place.lock("status").ends(1).warns(&["zedbox role"]);
    for words in ["limit 0", "release n2 --reason x", "ignore n2", ""] {
        place.lock(words).ends(2);
    }
}
