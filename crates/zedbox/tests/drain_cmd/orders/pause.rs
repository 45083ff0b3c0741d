//! `zedbox pause`, `zedbox resume`, `zedbox pause --only-controller` and `zedbox undrain`: files, refusals, output,
//! waits.

use serde_json::{Value, json};
use topics::PAUSE_FILE;

use crate::drain_cmd::node::{Node, REQUEST, holds};

#[test]
fn x3_a_pause_names_who_and_why_is_shown_refuses_orders_and_is_ended_once() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.sudo("pause --reason disk").ends(0).says(&["`zedbox resume` ends it"]);
    let kept: Value = serde_json::from_str(&node.text(PAUSE_FILE)).unwrap();
    holds(&kept, &json!({ "Scope": "node", "By": "field", "Reason": "disk" }));
    assert_eq!(node.mode(PAUSE_FILE), 0o600);
    node.drain("status --all").says(&["ends it next step ask whoever paused"]);
    // A second one, and every order that would wait for it, is refused with the next step.
    node.put("run/force-NodeDrainStatus-boot", "b1");
    for command in ["pause", "drain", "reboot"] {
        node.sudo(&format!("{command} --reason more")).ends(1).warns(&["zedbox resume"]);
    }
    assert!(!node.path(REQUEST).exists());
    assert_eq!(node.sudo("resume -o json").ends(0).json()["Result"], "resumed");
    assert!(!node.path(PAUSE_FILE).exists());
    node.sudo("resume").ends(1).warns(&["is not paused"]);
}

#[test]
fn x3_a_pause_may_end_by_itself_and_is_not_written_through_a_link() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.sudo("pause --reason disk --for 2h").ends(0).says(&[" UTC, in 2 h, by this machine"]);
    node.drain("status --all").says(&["; ends by itself"]);
    // An expired one blocks nothing.
    node.edit(PAUSE_FILE, |it| (it["AtSecs"], it["LastsSecs"]) = (0.into(), 1.into()));
    node.drain("status --all").lacks(&["no operation starts"]);
    node.sudo("pause --reason again").ends(0);
    let node = Node::of("cluster-idle").with_zedkube();
    std::fs::create_dir_all(node.path("persist/status/zedbox")).unwrap();
    std::os::unix::fs::symlink("/tmp", node.path("persist/status/zedbox/OperationPause")).unwrap();
    node.sudo("pause --reason disk").ends(1).warns(&["is a link"]);
    for wrong in ["", "--reason x --for soon", "--reason x --for 2"] {
        node.sudo(&format!("pause {wrong}")).ends(2);
    }
}

#[test]
fn x3_a_refusal_is_for_what_the_controller_has_ordered_and_is_withdrawn_by_its_own_word_or_by_resume() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.sudo("pause --only-controller --reason disk")
        .ends(1)
        .warns(&["nothing of the controller is pending"]);
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.sudo("pause --only-controller --reason disk")
        .ends(0)
        .says(&["Refused: reboot 7 waits, and is not lost"]);
    assert!(node.text(PAUSE_FILE).contains(r#""Scope":"controller""#));
    node.drain("status --all").says(&["what the controller orders waits, by field: disk"]);
    node.sudo("pause --only-controller --reason again").ends(1);
    node.sudo("drain refuse --withdraw")
        .ends(0)
        .says(&["goes ahead by itself"])
        .warns(&["this is now `zedbox resume`"]);
    assert!(!node.path(PAUSE_FILE).exists());
}

fn tells(node: &Node, phase: &str, cordon: &str) {
    node.set(&json!({ "Phase": phase, "Cordon": cordon, "Status": 2 }));
}

#[test]
fn x3_finished_work_withdraws_the_request_and_waits_until_the_node_is_schedulable_again() {
    let node = Node::of("cluster-idle").with_zedkube();
    // Repeating it is no error.
    node.sudo("undrain --wait").ends(0).says(&["and the node is schedulable again"]);
    let other = Node::of("drain-5-cordoned").with_zedkube();
    other.sudo("undrain --wait").ends(1).warns(&["no person has requested a drain", "BLOCKED: reboot waits"]);

    node.sudo("drain --reason disk").ends(0);
    tells(&node, "complete", "ours");
    let mut program = node.start("undrain --wait");
    program.until("Withdrew the request");
    assert!(!node.path(REQUEST).exists());
    tells(&node, "withdrawing", "ours");
    tells(&node, "idle", "none");
    program.until("The node is schedulable again.");
    assert_eq!(program.end(), 0);

    // The obstacle is named, and the wait has a limit.
    for (phase, cordon, words, code) in [
        ("withdrawing", "ours", "The time is over and the node is not schedulable yet", 3),
        ("idle", "foreign", "that cordon is not ours", 4),
    ] {
        node.sudo("drain --reason disk").ends(0);
        tells(&node, phase, cordon);
        node.sudo("undrain --wait --timeout 0").ends(code).says(&[words]);
    }
}

#[test]
fn x3_finished_work_on_a_node_that_somebody_else_drains_too_says_for_whom_it_stays() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.put(REQUEST, &json!({ "RequestedBy": 4 }).to_string());
    node.sudo("undrain --wait").ends(3).says(&["for reboot as well"]);
}

#[test]
fn x3_a_machine_that_goes_down_by_other_means_drains_within_its_time_and_is_never_held_up() {
    // No confirmation where the agents go down themselves, it has no effect, or a pause blocks it.
    let commanded = Node::of("drain-9-complete").with_zedkube();
    let paused = Node::of("paused").with_zedkube();
    let mut dead = Node::of("cluster-idle").with_zedkube();
    dead.kill_zedkube();
    for (node, why) in [
        (&commanded, "these agents have commanded the reboot"),
        (&paused, "paused by field"),
        (&dead, "zedkube is not running"),
        (&Node::of("single-node").with_zedkube(), "NOTSUPPORTED (1)"),
    ] {
        node.sudo("drain at-shutdown").ends(0).says(&[why]);
        assert!(!node.path(REQUEST).exists(), "{why}");
    }
    let node = Node::of("cluster-idle").with_zedkube();
    node.sudo("drain at-shutdown --timeout 0")
        .ends(0)
        .warns(&["NOT DRAINED: the machine goes down all the same"]);
    assert!(node.text(REQUEST).contains("goes down by other means than zedbox"));
}
