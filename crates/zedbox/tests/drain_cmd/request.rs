//! `zedbox drain` and `undrain`: files, refusals, waits.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::drain_cmd::node::{Node, PROGRESS, REQUEST, Reader, STATUS, has, user};

/// zedkube answers a person's request as in this tree, with these members of its progress.
fn answer(node: &Node, tree: &str, members: &Value) {
    let request: Value = serde_json::from_str(&node.text(REQUEST)).unwrap();
    // In one write, as a person waits for it.
    let mut progress = Node::of(tree).progress();
    progress.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    progress["Answers"][0]["RequestedBy"] = 4.into();
    progress["Answers"][0]["RequestedAt"] = request["RequestedAt"].clone();
    node.put(PROGRESS, &progress.to_string());
    node.put(STATUS, &json!({ "Status": progress["Status"], "RequestedBy": 4 }).to_string());
}

/// A node at rest, and a person who waits for its drain.
fn waiting() -> (Node, Reader) {
    let node = Node::of("cluster-idle").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("NOTREQUESTED (2)");
    (node, asked)
}

#[test]
fn a_request_names_who_asks_and_why_and_only_its_owner_may_read_it() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.sudo("drain --reason 'new disk in bay 2'")
        .done()
        .says(&["says \"operator field: new disk in bay 2\"", "`zedbox watch` follows it"]);
    let request: Value = serde_json::from_str(&node.text(REQUEST)).unwrap();
    assert_eq!(request["RequestedBy"], 4);
    assert_eq!(request["Context"], "operator field: new disk in bay 2");
    assert!(request["RequestedAt"].as_str().is_some_and(|it| it.starts_with("20")), "{request}");
    assert_eq!(node.mode(REQUEST), 0o600);
    // Without sudo the user of the process is named.
    let json = Node::of("cluster-idle").drain("--reason disk -o json").ends(0).json();
    assert_eq!(json["Result"], "requested");
    assert_eq!(json["Request"]["Context"], format!("operator {}: disk", user()));
}

#[test]
fn a_second_request_is_refused_unless_the_first_one_failed() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.drain("--reason first").ends(0);
    let before = node.text(REQUEST);
    node.drain("--reason second").refused(&[
        REQUEST,
        "exists already",
        ": first, requested",
        "`zedbox undrain`",
    ]);
    assert_eq!(node.text(REQUEST), before);
    answer(&node, "failed-drain-8", &json!({}));
    node.drain("--reason second").ends(0);
    assert!(node.text(REQUEST).contains(": second\""), "{}", node.text(REQUEST));
}

#[test]
fn a_reason_that_is_empty_too_long_or_steers_a_terminal_is_refused_and_nothing_is_written() {
    let node = Node::of("cluster-idle");
    for (reason, words) in [
        (" ", "the reason is empty"),
        (&"x".repeat(201), "201 bytes, the limit is 200"),
        ("a\x1b[2Jb", "control characters"),
        ("a\nb", "control characters"),
    ] {
        node.drain(&format!("--reason '{reason}'")).refused(&[words]);
    }
    assert!(!node.path("run/zedbox").exists());
    node.drain("").ends(2).warns(&["--reason"]);
    let Some(told) = node.drain_as_nobody("--reason disk") else { return };
    told.ends(1).warns(&["run it with sudo", "/run/zedbox"]);
}

#[test]
fn nobody_who_would_drain_and_no_cluster_are_warned_of() {
    let mut node = Node::of("single-node").with_zedkube();
    node.kill_zedkube();
    let cause = "the device config names no cluster, so nothing is drained; if this node is in one";
    node.drain("--reason disk").ends(0).warns(&["zedkube is not running", cause]);
    Node::of("single-node").drain("--reason disk --wait").ends(7).warns(&["NOT DRAINED", "not waiting"]);
}

#[test]
fn a_waiting_request_ends_by_its_own_answer_and_not_by_the_controllers() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("CORDONED (5)");
    // The controller's reboot is done; this request is not answered yet.
    node.zedkube_tells("drain-9-complete");
    asked.until("COMPLETE (9)");
    answer(&node, "drain-5-cordoned", &json!({}));
    asked.until("CORDONED (5)");
    answer(&node, "drain-9-complete", &json!({}));
    asked.until("stays cordoned until `zedbox undrain`");
    assert_eq!(asked.end(), 0);
}

#[test]
fn k7_a_waiting_request_ends_with_5_when_it_failed_and_with_8_when_it_was_withdrawn_elsewhere() {
    let (node, mut asked) = waiting();
    answer(&node, "failed-drain-8", &json!({}));
    asked.until("NOT DRAINED: could not drain");
    assert_eq!(asked.end(), 5);
    node.drain("undrain").ends(0);
    node.zedkube_tells("cluster-idle");
    let mut asked = node.start("--reason disk --wait -o json");
    asked.until("operator");
    node.drain("undrain").ends(0);
    assert_eq!(asked.end(), 8);
    for line in &asked.read {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn k7_a_skip_is_7_and_says_that_the_node_was_neither_drained_nor_cordoned() {
    let (node, mut asked) = waiting();
    let why = "the Kubernetes API was not reachable for 300 s";
    let (skipped, of) = (json!({ "Status": 9, "Skip": why }), format!("drain skipped: {why}"));
    let progress =
        json!({ "Status": 9, "Phase": "skipped", "Skip": why, "Reason": of, "Answers": [skipped] });
    answer(&node, "cluster-idle", &progress);
    let last = asked.until("NOT DRAINED: drain skipped");
    assert_eq!(asked.end(), 7);
    has(&last, &[why, "the node is not cordoned; do not work on this node"]);
    let headline = "WITHOUT A PROVED DRAIN: the operation goes ahead, its drain was skipped";
    node.drain("status --all").ends(7).begins(headline);
}

#[test]
fn k7_a_node_that_is_empty_under_somebody_elses_cordon_is_0_and_that_is_said() {
    let (node, mut asked) = waiting();
    answer(&node, "drain-9-complete", &json!({ "Cordon": "foreign" }));
    let last = asked.until("complete: drained");
    assert_eq!(asked.end(), 0);
    let ours = "the cordon is not ours: somebody else set it";
    has(&last, &[ours, "`zedbox undrain` leaves that cordon in place"]);
}

#[test]
fn cancel_removes_a_persons_request_only_and_says_what_follows() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.drain("--reason disk").ends(0);
    node.drain("undrain").done().says(&[
        "Withdrew the request, by operator",
        REQUEST,
        "A request of the controller or of a NodeMaintenance still exists",
    ]);
    assert!(!node.path(REQUEST).exists() && node.path("run/zedagent/NodeDrainRequest/global.json").exists());
    node.drain("undrain").refused(&[
        REQUEST,
        "no person has requested a drain",
        "for a reboot",
        "belongs to the controller, or is of a NodeMaintenance (zedagent)",
    ]);
}

#[test]
fn a_request_that_nobody_can_read_blocks_the_next_one_until_it_is_cancelled() {
    let node = Node::of("cluster-idle").with_zedkube();
    let outside = node.path("outside.json");
    fs::rename(node.path("persist/status/rebootConfig"), &outside).unwrap();
    for broken in ["garbage", "link"] {
        if broken == "link" {
            symlink(&outside, node.path(REQUEST)).unwrap();
        } else {
            node.put(REQUEST, "{\"Requ");
        }
        node.drain("--reason disk").ends(1).warns(&["cannot be read", REQUEST]);
        let json = node.drain("undrain -o json").ends(0).json();
        assert_eq!((&json["Result"], &json["Request"]), (&"cancelled".into(), &Value::Null), "{broken}");
        assert!(fs::symlink_metadata(node.path(REQUEST)).is_err() && outside.exists(), "{broken}");
    }
    // zedkube takes one that others could have written as none.
    node.drain("--reason disk").ends(0);
    node.drain("status --all").ends(3);
    fs::set_permissions(node.path(REQUEST), fs::Permissions::from_mode(0o666)).unwrap();
    node.drain("status --all").ends(0).warns(&["others may write it", "`zedbox undrain`"]);
}
