//! `zedbox machines`: those that a drain stopped, and their start by hand; the plan of a node with one.

use std::process::Command;

use serde_json::{Value, json};

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
        Ended::of(self.node.command_of("machines", words).output().unwrap())
    }

    fn strategies(&self) -> Vec<String> {
        let all = self.sim.list(MACHINES);
        all.iter().map(|it| it["spec"]["runStrategy"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn machines_that_drains_have_stopped_are_listed_and_started_again_by_hand() {
    let place = place();
    let told = place.machines("list -o json");
    assert_eq!(told.code, 0, "{told:?}");
    let all: Value = serde_json::from_str(&told.out).unwrap();
    let of = |name: &str, node: &str| json!({ "Name": name, "Node": node, "Was": "Always" });
    assert_eq!(all, json!([of("shop/db", "n1"), of("shop/till", "n9")]));
    assert_eq!(place.strategies(), ["Halted", "Halted", "Halted"], "a list writes nothing");
    let told = place.machines("restore --node nosuch");
    assert!(told.code == 1 && told.out.is_empty() && told.err.contains("without --node"), "{told:?}");
    assert_eq!(place.strategies(), ["Halted", "Halted", "Halted"]);
    let told = place.machines("restore --node n9");
    assert!(
        told.code == 0 && told.out.contains("shop/till: by the drain of node n9, was Always"),
        "{told:?}"
    );
    assert_eq!(place.strategies(), ["Halted", "Halted", "Always"]);
    assert_eq!(place.machines("restore").code, 0);
    assert_eq!(place.strategies(), ["Always", "Halted", "Always"], "what a person has stopped stays");
    assert!(place.machines("list").out.starts_with("0 virtual machines"), "none is left");
}

#[test]
fn a_path_that_is_a_slip_is_refused_and_nothing_is_made_there() {
    let node = Node::of("cluster-idle");
    let slip = node.path("nosuch");
    let bundle = Ended::of(node.command_of("bundle", "--to").arg(slip.join("x.tgz")).output().unwrap());
    let mut run = Command::new(env!("CARGO_BIN_EXE_zedbox"));
    let run = Ended::of(run.args(["run", "--root"]).arg(&slip).env_clear().output().unwrap());
    for told in [bundle, run] {
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{told:?}");
        assert!(
            told.err.contains(slip.to_str().unwrap()) && told.err.contains("make it, or name another"),
            "{told:?}"
        );
    }
    assert!(!slip.exists());
}
