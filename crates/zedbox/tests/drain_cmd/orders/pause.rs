//! `zedbox pause`, `zedbox resume`, `zedbox pause --only-controller` and `zedbox undrain`: files, refusals, output,
//! waits.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use topics::{
    CordonOwner, DrainPhase, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, PAUSE_FILE,
    Requester, go_json,
};

use crate::drain_cmd::lock::words as flat;
use crate::drain_cmd::node::{Ended, Node};

const REQUEST: &str = "run/zedbox/NodeDrainRequest/global.json";

fn said(node: &Node, command: &str, words: &str) -> Ended {
    Ended::of(node.command_of(command, words).env("SUDO_USER", "field").output().unwrap())
}

#[test]
fn x3_a_pause_names_who_and_why_is_shown_refuses_orders_and_is_ended_once() {
    let node = Node::of("cluster-idle").with_zedkube();
    let told = said(&node, "pause", "--reason disk");
    assert_eq!(told.code, 0, "{told:?}");
    assert!(flat(&told.out).contains("`zedbox resume` ends it"), "{told:?}");
    let kept: Value = serde_json::from_str(&node.text(PAUSE_FILE)).unwrap();
    assert_eq!(
        (&kept["Scope"], &kept["By"], &kept["Reason"]),
        (&"node".into(), &"field".into(), &"disk".into())
    );
    let mode = std::fs::metadata(node.path(PAUSE_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = node.drain("status --all");
    assert!(flat(&shown.out).contains("ends it next step ask whoever paused"), "{shown:?}");
    // A second one, and every order that would wait for it, is refused with the next step.
    node.put("run/force-NodeDrainStatus-boot", "b1");
    for (command, words) in
        [("pause", "--reason more"), ("drain", "--reason disk"), ("reboot", "--reason disk")]
    {
        let told = said(&node, command, words);
        assert!(told.code == 1 && told.err.contains("zedbox resume"), "{command}: {told:?}");
    }
    assert!(!node.path(REQUEST).exists());
    let told = said(&node, "resume", "-o json");
    assert_eq!((told.code, &told.json()["Result"]), (0, &"resumed".into()), "{told:?}");
    assert!(!node.path(PAUSE_FILE).exists());
    let told = said(&node, "resume", "");
    assert!(told.code == 1 && told.err.contains("is not paused"), "{told:?}");
}

#[test]
fn x3_a_pause_may_end_by_itself_and_is_not_written_through_a_link() {
    let node = Node::of("cluster-idle").with_zedkube();
    let told = said(&node, "pause", "--reason disk --for 2h");
    assert!(told.code == 0 && flat(&told.out).contains(" UTC, in 2 h, by this machine"), "{told:?}");
    assert!(flat(&node.drain("status --all").out).contains("; ends by itself"));
    // An expired one blocks nothing.
    let over = node.text(PAUSE_FILE);
    let mut kept: Value = serde_json::from_str(&over).unwrap();
    kept["AtSecs"] = 0.into();
    kept["LastsSecs"] = 1.into();
    node.put(PAUSE_FILE, &kept.to_string());
    assert!(!node.drain("status --all").out.contains("no operation starts"));
    assert_eq!(said(&node, "pause", "--reason again").code, 0);
    let node = Node::of("cluster-idle").with_zedkube();
    std::fs::create_dir_all(node.path("persist/status/zedbox")).unwrap();
    std::os::unix::fs::symlink("/tmp", node.path("persist/status/zedbox/OperationPause")).unwrap();
    let told = said(&node, "pause", "--reason disk");
    assert!(told.code == 1 && told.err.contains("is a link"), "{told:?}");
    for wrong in ["", "--reason x --for soon", "--reason x --for 2"] {
        assert_eq!(said(&node, "pause", wrong).code, 2, "{wrong}");
    }
}

#[test]
fn x3_a_refusal_is_for_what_the_controller_has_ordered_and_is_withdrawn_by_its_own_word_or_by_resume() {
    let node = Node::of("cluster-idle").with_zedkube();
    let told = said(&node, "pause", "--only-controller --reason disk");
    assert!(told.code == 1 && told.err.contains("nothing of the controller is pending"), "{told:?}");
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let told = said(&node, "pause", "--only-controller --reason disk");
    assert!(
        told.code == 0 && flat(&told.out).contains("Refused: reboot 7 waits, and is not lost"),
        "{told:?}"
    );
    assert!(node.text(PAUSE_FILE).contains(r#""Scope":"controller""#));
    let shown = flat(&node.drain("status --all").out);
    assert!(shown.contains("what the controller orders waits, by field: disk"), "{shown}");
    assert_eq!(said(&node, "pause", "--only-controller --reason again").code, 1);
    let told = said(&node, "drain", "refuse --withdraw");
    assert!(told.err.contains("this is now `zedbox resume`"), "{told:?}");
    assert!(told.code == 0 && flat(&told.out).contains("goes ahead by itself"), "{told:?}");
    assert!(!node.path(PAUSE_FILE).exists());
}

fn tells(node: &Node, phase: DrainPhase, cordon: CordonOwner) {
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let mut progress: NodeDrainProgress = go_json::from_slice(node.text(file).as_bytes()).unwrap();
    (progress.phase, progress.cordon, progress.status) = (phase, cordon, DrainStatus::NotRequested);
    node.put(file, &String::from_utf8(go_json::to_vec(&progress).unwrap()).unwrap());
}

#[test]
fn x3_finished_work_withdraws_the_request_and_waits_until_the_node_is_schedulable_again() {
    let node = Node::of("cluster-idle").with_zedkube();
    let told = said(&node, "undrain", "--wait");
    // Repeating it is no error.
    assert!(told.code == 0 && told.out.contains("and the node is schedulable again"), "{told:?}");
    let told = said(&Node::of("drain-5-cordoned").with_zedkube(), "undrain", "--wait");
    assert!(told.code == 1 && told.err.contains("no person has requested a drain"), "{told:?}");
    assert!(told.err.contains("BLOCKED: reboot waits"), "{told:?}");

    assert_eq!(said(&node, "drain", "--reason disk").code, 0);
    tells(&node, DrainPhase::Complete, CordonOwner::Ours);
    let mut program = node.start("undrain --wait");
    program.until("Withdrew the request");
    assert!(!node.path(REQUEST).exists());
    tells(&node, DrainPhase::Withdrawing, CordonOwner::Ours);
    tells(&node, DrainPhase::Idle, CordonOwner::None);
    program.until("The node is schedulable again.");
    assert_eq!(program.end(), 0);

    // The obstacle is named, and the wait has a limit.
    for (cordon, words, code) in [
        (CordonOwner::Ours, "the time is over and the node is not schedulable yet", 3),
        (CordonOwner::Foreign, "that cordon is not ours", 4),
    ] {
        assert_eq!(said(&node, "drain", "--reason disk").code, 0);
        let phase = if code == 3 { DrainPhase::Withdrawing } else { DrainPhase::Idle };
        tells(&node, phase, cordon);
        let told = said(&node, "undrain", "--wait --timeout 0");
        assert_eq!(told.code, code, "{told:?}");
        assert!(flat(&told.out).to_lowercase().contains(words), "{told:?}");
    }
}

#[test]
fn x3_finished_work_on_a_node_that_somebody_else_drains_too_says_for_whom_it_stays() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let request = NodeDrainRequest { requested_by: Requester::Operator, ..NodeDrainRequest::default() };
    node.put(REQUEST, &String::from_utf8(go_json::to_vec(&request).unwrap()).unwrap());
    let status = NodeDrainStatus { status: DrainStatus::Cordoned, requested_by: Requester::DeviceOp };
    assert_eq!(status.status.number(), 5);
    let told = said(&node, "undrain", "--wait");
    assert!(told.code == 3 && flat(&told.out).contains("for reboot as well"), "{told:?}");
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
        let told = said(node, "drain", "at-shutdown");
        assert!(told.code == 0 && flat(&told.out).contains(why), "{why}: {told:?}");
        assert!(!node.path(REQUEST).exists(), "{why}");
    }
    let node = Node::of("cluster-idle").with_zedkube();
    let told = said(&node, "drain", "at-shutdown --timeout 0");
    assert!(
        told.code == 0 && told.err.contains("NOT DRAINED: the machine goes down all the same"),
        "{told:?}"
    );
    assert!(node.text(REQUEST).contains("goes down by other means than zedbox"));
}
