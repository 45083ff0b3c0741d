//! `zedbox failover`: what would run elsewhere, nodes that were declared dead, and words that are refused at once.
//!
//! Not here: a declaration, which watches a node for 40 s (`failover_cmd`'s own tests, on a paused clock).

use std::time::Duration;

use kubesim::Sim;
use serde_json::{Value, json};

use crate::drain_cmd::lock::{LEASE, add_worker};
use crate::drain_cmd::node::{Ended, has};
use crate::drain_cmd::place::Place;
use crate::drain_cmd::terminal::Terminal;

const WIDTHS: [u16; 3] = [46, 80, 200];

/// A server n1 and the workers n2 and n3; on n2 a machine, one that nothing starts again, and a pod with a volume.
fn place() -> Place {
    let place = Place::new(3, |sim: &Sim| {
        sim.add_node("n1", "uuid-n1");
        for worker in ["n2", "n3"] {
            add_worker(sim, worker);
        }
        sim.add_kubevirt("v1.7.3");
        sim.add_machine_on("shop", "till", "Always", "n2", &json!({ "evictionStrategy": "LiveMigrate" }));
        sim.add_guest_on("shop", "lab", "n2", &json!({}));
        sim.add_claim("shop", "data", "pv-data");
        sim.add_mounting_pod("shop", "alone", "n2", "data");
    });
    place.sim.longhorn_setting("node-down-pod-deletion-policy", "delete-statefulset-pod");
    // A guest cannot be migrated to another model of CPU, and starts there.
    let model =
        |it: &mut Value| it["metadata"]["labels"]["host-model-cpu.node.kubevirt.io/Skylake"] = "true".into();
    place.sim.edit("nodes", "", "n2", model);
    place
}

impl Place {
    fn failover(&self, line: &str) -> Ended {
        self.node.sudo(&format!("failover {line}"))
    }

    /// On a terminal of each of the widths.
    fn shown(&self, line: &str) -> [String; 3] {
        WIDTHS.map(|columns| {
            let command = self.node.command(&format!("failover {line}"));
            let mut terminal = Terminal::of(command, (columns, 60), &[("NO_COLOR", "1")]);
            assert_eq!(terminal.end(), 0);
            let longest = terminal.read.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(usize::from(columns)), "{}", terminal.read);
            terminal.read
        })
    }

    fn declared(&self, entries: &Value) {
        self.sim.apply(
            "coordination/leases",
            json!({
                "metadata": {
                    "name": LEASE, "namespace": "eve-kube-app",
                    "annotations": { "pillar-rs/failover": entries.to_string() },
                },
                "spec": { "leaseTransitions": 7 },
            }),
        );
    }
}

fn entry(number: u32, state: &str, work: &Value) -> Value {
    let when = agent::Clock::new().wall().to_timestamp() - Duration::from_secs(60);
    json!({
        "number": number, "node": "n2", "nodeUID": "u2", "bootID": "b2", "state": state, "who": "operator anna on laptop",
        "why": "its supply burnt", "when": when.to_string(), "evidence": "its kubelet has renewed no lease for 40 s",
        "passed": ["--although-others-act"], "work": work,
    })
}

#[test]
fn check_says_of_each_node_what_would_run_elsewhere_and_what_would_not_and_why() {
    let place = place();
    for said in place.shown("check") {
        has(
            &said,
            &[
                "if a node dies and is declared dead: node n1: no machine and no pod with a volume is on it node n2:",
                "node n2: 1 of 2 machines and 0 of 1 pod would run elsewhere waits",
                "waits machine shop/lab: nothing starts it again",
                "waits pod shop/alone: nothing makes it again",
                "warning acts on silent nodes, off or not: Longhorn, whose node-down-pod-deletion-policy is delete-statefulset-pod",
            ],
        );
    }
    let shown = place.failover("check -o json").json();
    assert_eq!(shown["Nodes"][0], json!({ "Node": "n1", "Work": [], "LoneVolumes": [] }));
    let work = shown["Nodes"][1]["Work"].as_array().unwrap();
    let waits: Vec<_> = work.iter().map(|it| (&it["Name"], it["Waits"] != "")).collect();
    assert_eq!(waits, [(&json!("lab"), true), (&json!("till"), false), (&json!("alone"), true)]);
    assert_eq!(shown["Actors"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(place.written(), []);
}

#[test]
fn status_shows_each_declared_node_with_who_why_what_moved_where_and_what_waits() {
    let place = place();
    let none = place.failover("status").done();
    assert_eq!(none.out, "no node is declared dead; what would run elsewhere: `zedbox failover check`\n");
    assert_eq!(place.failover("status -o json").json(), json!({ "Declared": [] }));
    let work = json!([
        { "kind": "pod", "namespace": "shop", "name": "alone", "claims": ["data"], "afterSecs": 0 },
        { "kind": "machine", "namespace": "shop", "name": "gone", "afterSecs": 0, "waits": "nothing starts it again" },
    ]);
    place.declared(&json!([entry(1, "returned", &json!([])), entry(2, "tainted", &work)]));
    for said in place.shown("status") {
        has(
            &said,
            &[
                "declared dead: 1 node node n2, number 2: out of service: Kubernetes moves its work declared by operator anna on laptop, ",
                " ago: its supply burnt evidence its kubelet has renewed no lease for 40 s passed --although-others-act waits",
                "waits pod shop/alone: its pod shop/alone on n2 is not gone yet",
                "waits machine shop/gone: nothing starts it again",
                "next step repair n2, then switch it on: in its next boot it takes pods again once it is healthy. If it never comes \
             back: `kubectl delete node n2`",
                "before n2, number 1: back: its taint is gone; by operator anna on laptop, ",
            ],
        );
    }
    let shown = place.failover("status -o json").json();
    assert_eq!(shown["Declared"][1]["Work"][0]["Waits"], "its pod shop/alone on n2 is not gone yet");
    assert_eq!(place.written(), []);
}

#[test]
fn a_word_that_lacks_something_and_one_that_was_given_before_are_refused_at_once() {
    let place = place();
    place.failover("declare n2 --powered-off").ends(2);
    place.failover("declare n2 --reason burnt").ends(2).warns(&["--powered-off"]);
    place.failover("declare n2 --powered-off --reason ' '").refused(&["the reason "]);
    place.failover("declare N_2 --powered-off --reason burnt").refused(&["as a node name"]);
    for line in ["--yes", "-o json"] {
        place.failover(&format!("declare n9 --powered-off {line} --reason burnt")).refused(&[
            "the cluster has no node n9; check the name: `kubectl get nodes`",
            "declare node n9 dead: 1 reason against it, and nothing was written",
        ]);
    }
    place.declared(&json!([entry(3, "moved", &json!([]))]));
    let twice = "node n2 (number 3, moved) is declared dead already";
    place.failover("declare n2 --powered-off --yes --reason burnt").refused(&[twice]);
    place.declared(&json!("none"));
    for words in ["status", "declare n2 --powered-off --reason burnt"] {
        place.failover(words).ends(1).warns(&["pillar-rs/failover='[]'"]);
    }
    assert_eq!(place.written(), []);
}
