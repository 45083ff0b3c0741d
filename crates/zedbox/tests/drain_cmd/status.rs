//! `zedbox drain status`: what it says of every state, and how it ends.

use std::os::unix::fs::symlink;

use crate::node::{NOW, Node};

/// Every tree with its exit code and what its first line begins with.
const TREES: [(&str, i32, &str); 13] = [
    ("cluster-idle", 0, "NOTREQUESTED (2): nothing is asked for"),
    ("drain-3-requested", 3, "REQUESTED (3): the request is taken; for a reboot, asked 09:30:00 UTC, 11 min"),
    ("drain-4-starting", 3, "STARTING (4): "),
    (
        "drain-5-cordoned",
        4,
        "CORDONED (5): pods leave; for a reboot, asked 09:30:00 UTC, 11 min ago; attempt",
    ),
    ("drain-5-detaching", 3, "CORDONED (5): pods have left, their volumes are being detached; for a reboot"),
    ("drain-7-retrying", 4, "DRAINRETRYING (7): "),
    ("drain-9-complete", 0, "COMPLETE (9): drained; for a reboot"),
    ("failed-cordon-6", 5, "FAILEDCORDON (6): gave up cordoning"),
    ("failed-drain-8", 5, "FAILEDDRAIN (8): gave up draining"),
    ("forced", 0, "COMPLETE (9): done without a drain"),
    ("malformed", 6, "UNKNOWN: nothing is known"),
    ("single-node", 0, "NOTSUPPORTED (1): this node is in no cluster"),
    ("update-5-cordoned", 4, "CORDONED (5): pods leave; for OS image 2e1f0d3c-"),
];

#[test]
fn every_state_has_its_exit_code_and_fits_eighty_columns_without_colours() {
    for (tree, code, first) in TREES {
        let told = Node::of(tree).drain(&format!("status --as-of {NOW}"));
        assert_eq!(told.code, code, "{tree}: {told:?}");
        assert!(told.out.starts_with(first), "{tree}: {}", told.out);
        assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{tree}: {}", told.out);
        assert!(!told.out.contains('\x1b'), "{tree}: {}", told.out);
        assert_eq!(told.err.is_empty(), tree != "malformed", "{tree}: {}", told.err);
        let json = Node::of(tree).drain("status -o json");
        assert_eq!(json.code, code, "{tree}");
        let json = json.json();
        let members: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let known = ["Broken", "Force", "Live", "Pending", "Progress", "Requests", "Status"];
        assert_eq!(members, known, "{tree}");
    }
}

#[test]
fn a_blocked_drain_names_counts_blockers_deadline_and_the_next_step() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let told = node.drain(&format!("status --as-of {NOW}"));
    for words in [
        "[##########..........] 2 of 4 gone, 1 going, 1 blocked",
        "deadline   2026-03-15 09:30:02 UTC, in 23 h 49 min",
        "[budget] pod shop/web-5f7d-e757f: PodDisruptionBudget shop/web allows",
        "since 09:30:04 UTC,",
        "next step  shop/web-5f7d-e757f: wait until the budget allows a disruption, or",
        "zedkube    runs",
    ] {
        assert!(told.out.contains(words), "no `{words}` in\n{}", told.out);
    }
    let json = node.drain("status -o json").json();
    assert_eq!(json["Live"]["Running"], true);
    assert_eq!(json["Progress"]["Blockers"][0]["Code"], "budget");
    assert_eq!(json["Requests"]["zedagent"]["Context"], "reboot");
    assert_eq!(json["Pending"]["reboot"]["Counter"], 7);
}

#[test]
fn trouble_with_the_api_is_told_beside_blockers_and_nothing_is_told_twice() {
    let node = Node::of("drain-5-cordoned");
    let file = "run/zedkube/NodeDrainProgress/global.json";
    assert!(!node.drain("status").out.contains("reason "));
    let mut progress: serde_json::Value = serde_json::from_str(&node.text(file)).unwrap();
    let said = progress["Reason"].as_str().unwrap();
    progress["Reason"] = format!("{said}; trouble with the API: watch pods: connection refused").into();
    node.put(file, &progress.to_string());
    let told = node.drain("status");
    assert!(
        told.out.contains("reason     trouble with the API: watch pods: connection refused\n"),
        "{}",
        told.out
    );
    assert_eq!(told.out.matches("PodDisruptionBudget shop/web").count(), 1, "{}", told.out);
}

#[test]
fn a_dead_zedkube_is_told_so_that_nobody_waits_for_it() {
    let told = Node::of("drain-5-cordoned").drain("status");
    assert!(told.out.contains("next step  start zedkube"), "{}", told.out);
    assert!(told.out.contains("zedkube    does not run"), "{}", told.out);
}

#[test]
fn broken_files_are_named_with_the_cause_and_the_next_step() {
    let told = Node::of("malformed").drain("status");
    for words in [
        "run/zedkube/NodeDrainStatus/global.json cannot be used: read JSON: EOF",
        "run/zedagent/NodeDrainRequest/global.json cannot be used",
        "`zedbox check /",
    ] {
        assert!(told.err.contains(words), "no `{words}` in\n{}", told.err);
    }
    let nothing = Node::empty().drain("status");
    assert_eq!(nothing.code, 6);
    assert!(nothing.err.contains("there is no /") && nothing.err.contains("--root"), "{}", nothing.err);
}

#[test]
fn a_status_behind_a_link_is_not_followed() {
    let node = Node::of("drain-9-complete");
    let file = node.path("run/zedkube/NodeDrainStatus/global.json");
    std::fs::rename(&file, node.path("elsewhere.json")).unwrap();
    std::fs::remove_file(node.path("run/zedkube/NodeDrainProgress/global.json")).unwrap();
    symlink(node.path("elsewhere.json"), &file).unwrap();
    let told = node.drain("status");
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.err.contains("link"), "{}", told.err);
}

#[test]
fn a_drain_that_only_a_reference_zedkube_tells_of_is_told_by_its_status_alone() {
    let node = Node::of("drain-5-cordoned");
    std::fs::remove_dir_all(node.path("run/zedkube/NodeDrainProgress")).unwrap();
    let told = node.drain(&format!("status --as-of {NOW}"));
    assert_eq!(told.code, 3);
    assert!(
        told.out.starts_with("CORDONED (5): the node is cordoned, pods leave; for a reboot"),
        "{}",
        told.out
    );
}

#[test]
fn texts_in_the_files_cannot_steer_the_terminal() {
    let node = Node::of("drain-5-cordoned");
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let text = std::fs::read_to_string(node.path(file)).unwrap();
    node.put(file, &text.replace("pod shop/web-5f7d-e757f: Pod", "\\u001b[2Jpod"));
    let told = node.drain("status");
    assert!(told.out.contains("?[2Jpod") && !told.out.contains('\x1b'), "{}", told.out);
}

#[test]
fn without_permission_it_says_to_become_root() {
    let node = Node::of("drain-5-cordoned");
    let Some(told) = node.drain_as_nobody("status") else { return };
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.err.contains("run this as root, with sudo"), "{}", told.err);
}
