//! `zedbox machines`: those that a drain stopped, and their start by hand; the plan of a node with one.

use std::process::Command;

use serde_json::json;

use crate::drain_cmd::node::{Ended, Node};
use crate::drain_cmd::place::Place;

const MACHINES: &str = "kubevirt/virtualmachines";

/// Two machines stopped by drains of n1 and n9, and one stopped by a person.
fn place() -> Place {
    let place = Place::new(0, |sim| {
        sim.add_node("n1", "uuid-1");
        sim.add_kubevirt("v1.7.3");
        for name in ["db", "till", "own"] {
            sim.add_machine("shop", name, "Halted");
        }
    });
    for (name, node) in [("db", "n1"), ("till", "n9")] {
        place.sim.edit(MACHINES, "shop", name, |it| {
            let written = json!({ "id": "d", "node": node, "uid": it["metadata"]["uid"],
                "was": { "runStrategy": "Always" }, "left": { "runStrategy": "Halted" } });
            it["metadata"]["labels"]["pillar-rs/drain-stopped"] = "true".into();
            it["metadata"]["annotations"]["pillar-rs/drain-stopped"] = written.to_string().into();
        });
    }
    place
}

impl Place {
    fn machines(&self, words: &str) -> Ended {
        self.node.drain(&format!("machines {words}"))
    }

    fn strategies(&self) -> Vec<String> {
        let all = self.sim.list(MACHINES);
        all.iter().map(|it| it["spec"]["runStrategy"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn machines_that_drains_have_stopped_are_listed_and_started_again_by_hand() {
    let place = place();
    let all = place.machines("list -o json").ends(0).json();
    let of = |name: &str, node: &str| json!({ "Name": name, "Node": node, "Was": "Always" });
    assert_eq!(all, json!([of("shop/db", "n1"), of("shop/till", "n9")]));
    assert_eq!(place.strategies(), ["Halted", "Halted", "Halted"], "a list writes nothing");
    place.machines("restore --node nosuch").refused(&["without --node"]);
    assert_eq!(place.strategies(), ["Halted", "Halted", "Halted"]);
    place.machines("restore --node n9").ends(0).says(&["shop/till: by the drain of node n9, was Always"]);
    assert_eq!(place.strategies(), ["Halted", "Halted", "Always"]);
    place.machines("restore").ends(0);
    assert_eq!(place.strategies(), ["Always", "Halted", "Always"], "what a person has stopped stays");
    place.machines("list").begins("0 virtual machines");
}

#[test]
fn a_path_that_is_a_slip_is_refused_and_nothing_is_made_there() {
    let node = Node::of("cluster-idle");
    let slip = node.path("nosuch");
    let shown = slip.to_str().unwrap();
    let run = |words: &str| {
        Ended::of(Command::new(env!("CARGO_BIN_EXE_zedbox")).args(words.split(' ')).env_clear())
    };
    for told in [node.drain(&format!("bundle --to {shown}/x.tgz")), run(&format!("run --root {shown}"))] {
        told.refused(&[shown, "make it, or name another"]);
    }
    assert!(!slip.exists());
}
