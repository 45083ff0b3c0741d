//! `zedbox drain` and `cancel`: files, refusals, waits.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use topics::{
    Answer, CordonOwner, DrainPhase, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus,
    Requester, go_json,
};

use crate::drain_cmd::node::Node;

const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";

fn request(node: &Node) -> NodeDrainRequest {
    go_json::from_slice(node.text(FILE).as_bytes()).unwrap()
}

/// zedkube answers a person's request as in this tree.
fn answer(node: &Node, tree: &str) {
    answer_with(node, tree, |_| {});
}

fn answer_with(node: &Node, tree: &str, change: impl FnOnce(&mut NodeDrainProgress)) {
    let request = request(node);
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let text =
        fs::read_to_string(crate::drain_cmd::node::top().join("run-fixtures").join(tree).join(file)).unwrap();
    let mut progress: NodeDrainProgress = go_json::from_slice(text.as_bytes()).unwrap();
    let answer = &mut progress.answers[0];
    (answer.requested_by, answer.requested_at) = (Requester::Operator, request.requested_at);
    change(&mut progress);
    node.put(file, &String::from_utf8(go_json::to_vec(&progress).unwrap()).unwrap());
    let status = NodeDrainStatus { status: progress.status, requested_by: Requester::Operator };
    node.put(
        "run/zedkube/NodeDrainStatus/global.json",
        &String::from_utf8(go_json::to_vec(&status).unwrap()).unwrap(),
    );
}

#[test]
fn a_request_names_who_asks_and_why_and_only_its_owner_may_read_it() {
    let node = Node::of("cluster-idle").with_zedkube();
    let mut command = node.command("--reason");
    let told = command.arg("new disk in bay 2").env("SUDO_USER", "field").output().unwrap();
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let (said, warned) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("says \"operator field: new disk in bay 2\"")
            && said.contains("`zedbox watch` follows it")
    );
    assert_eq!(warned, "");
    let request = request(&node);
    assert_eq!(request.requested_by, Requester::Operator);
    assert_eq!(request.context, "operator field: new disk in bay 2");
    assert!(!request.requested_at.is_zero());
    assert_eq!(fs::metadata(node.path(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_sudo_the_user_of_the_process_is_named() {
    let node = Node::of("cluster-idle");
    let told = node.drain("--reason disk -o json");
    assert_eq!(told.code, 0, "{told:?}");
    let json = told.json();
    assert_eq!(json["Result"], "requested");
    let context = json["Request"]["Context"].as_str().unwrap();
    let user = std::process::Command::new("id").arg("-un").output().unwrap().stdout;
    assert_eq!(context, format!("operator {}: disk", String::from_utf8(user).unwrap().trim()));
}

#[test]
fn a_second_request_is_refused_with_the_first_ones_file_reason_and_way_out() {
    let node = Node::of("cluster-idle").with_zedkube();
    assert_eq!(node.drain("--reason first").code, 0);
    let before = node.text(FILE);
    let told = node.drain("--reason second");
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    for words in [FILE, "exists already", ": first, requested", "`zedbox undrain`"] {
        assert!(told.err.contains(words), "no `{words}` in {}", told.err);
    }
    assert_eq!(node.text(FILE), before);
}

#[test]
fn a_reason_that_is_empty_too_long_or_steers_a_terminal_is_refused_and_nothing_is_written() {
    let node = Node::of("cluster-idle");
    for (reason, words) in [
        (" ".to_owned(), "the reason is empty"),
        ("x".repeat(201), "201 bytes, the limit is 200"),
        ("a\x1b[2Jb".to_owned(), "control characters"),
        ("a\nb".to_owned(), "control characters"),
    ] {
        let told = node.drain_with("--reason", &reason);
        assert_eq!((told.code, told.out.as_str()), (1, ""));
        assert!(told.err.contains(words), "{}", told.err);
    }
    assert!(!node.path("run/zedbox").exists());
    let told = node.drain("");
    assert_eq!(told.code, 2);
    assert!(told.err.contains("--reason"), "{}", told.err);
}

#[test]
fn nobody_who_would_drain_and_no_cluster_are_warned_of() {
    let mut node = Node::of("single-node").with_zedkube();
    node.kill_zedkube();
    let told = node.drain("--reason disk");
    assert_eq!(told.code, 0);
    assert!(told.err.contains("zedkube is not running"), "{}", told.err);
    let cause = "the device config names no cluster, so nothing is drained; if this node is in one";
    assert!(told.err.contains(cause), "{}", told.err);
    let waited = Node::of("single-node").drain("--reason disk --wait");
    assert_eq!(waited.code, 7);
    assert!(waited.err.contains("NOT DRAINED") && waited.err.contains("not waiting"), "{}", waited.err);
}

#[test]
fn a_user_without_the_right_is_told_to_use_sudo() {
    let node = Node::of("cluster-idle");
    let Some(told) = node.drain_as_nobody("--reason disk") else { return };
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.err.contains("run it with sudo") && told.err.contains("/run/zedbox"), "{}", told.err);
}

#[test]
fn a_waiting_request_ends_by_its_own_answer_and_not_by_the_controllers() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("CORDONED (5)");
    // The controller's reboot is done; this request is not answered yet.
    node.zedkube_tells("drain-9-complete");
    asked.until("COMPLETE (9)");
    answer(&node, "drain-5-cordoned");
    asked.until("CORDONED (5)");
    answer(&node, "drain-9-complete");
    asked.until("stays cordoned until `zedbox undrain`");
    assert_eq!(asked.end(), 0);
}

#[test]
fn k7_a_waiting_request_ends_with_5_when_it_failed_and_with_8_when_it_was_withdrawn_elsewhere() {
    let node = Node::of("cluster-idle").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("NOTREQUESTED (2)");
    answer(&node, "failed-drain-8");
    asked.until("NOT DRAINED: could not drain");
    assert_eq!(asked.end(), 5);
    assert_eq!(node.drain("undrain").code, 0);
    node.zedkube_tells("cluster-idle");
    let mut asked = node.start("--reason disk --wait -o json");
    asked.until("operator");
    assert_eq!(node.drain("undrain").code, 0);
    assert_eq!(asked.end(), 8);
    for line in &asked.read {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn k7_a_skip_is_7_and_says_that_the_node_was_neither_drained_nor_cordoned() {
    let node = Node::of("cluster-idle").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("NOTREQUESTED (2)");
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let request = request(&node);
    let why = "the Kubernetes API was not reachable for 300 s";
    let answer = Answer {
        requested_by: Requester::Operator,
        requested_at: request.requested_at,
        status: DrainStatus::Complete,
        skip: why.to_owned(),
        ..Answer::default()
    };
    let progress = NodeDrainProgress {
        status: DrainStatus::Complete,
        phase: DrainPhase::Skipped,
        skip: why.to_owned(),
        reason: format!("drain skipped: {why}"),
        answers: vec![answer],
        ..NodeDrainProgress::default()
    };
    node.put(file, &String::from_utf8(go_json::to_vec(&progress).unwrap()).unwrap());
    node.put("run/zedkube/NodeDrainStatus/global.json", r#"{"Status":9,"RequestedBy":4}"#);
    let last = asked.until("NOT DRAINED: drain skipped");
    assert_eq!(asked.end(), 7);
    assert!(
        last.contains(why) && last.contains("the node is not cordoned; do not work on this node"),
        "{last}"
    );
    let told = node.drain("status --all");
    assert_eq!(told.code, 7, "{told:?}");
    assert!(
        told.out.starts_with("WITHOUT A PROVED DRAIN: the operation goes ahead, its drain was skipped"),
        "{}",
        told.out
    );
}

#[test]
fn k7_a_node_that_is_empty_under_somebody_elses_cordon_is_0_and_that_is_said() {
    let node = Node::of("cluster-idle").with_zedkube();
    let mut asked = node.start("--reason disk --wait");
    asked.until("NOTREQUESTED (2)");
    answer_with(&node, "drain-9-complete", |it| it.cordon = CordonOwner::Foreign);
    let last = asked.until("complete: drained");
    assert_eq!(asked.end(), 0);
    for words in
        ["the cordon is not ours: somebody else set it", "`zedbox undrain` leaves that cordon in place"]
    {
        assert!(last.contains(words), "no `{words}` in {last}");
    }
}

#[test]
fn cancel_removes_a_persons_request_only_and_says_what_follows() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    assert_eq!(node.drain("--reason disk").code, 0);
    let told = node.drain("undrain");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert!(said.contains("Withdrew the request, by operator") && said.contains(FILE), "{said}");
    assert!(said.contains("A request of the controller or of a NodeMaintenance still exists"), "{said}");
    assert!(!node.path(FILE).exists() && node.path("run/zedagent/NodeDrainRequest/global.json").exists());
    let again = node.drain("undrain");
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    for words in [
        FILE,
        "no person has requested a drain",
        "for a reboot",
        "belongs to the controller, or is of a NodeMaintenance (zedagent)",
    ] {
        assert!(again.err.contains(words), "no `{words}` in {}", again.err);
    }
}

#[test]
fn a_request_that_nobody_can_read_blocks_the_next_one_until_it_is_cancelled() {
    let node = Node::of("cluster-idle").with_zedkube();
    let outside = node.path("outside.json");
    fs::rename(node.path("persist/status/rebootConfig"), &outside).unwrap();
    for broken in ["garbage", "link"] {
        if broken == "link" {
            symlink(&outside, node.path(FILE)).unwrap();
        } else {
            node.put(FILE, "{\"Requ");
        }
        let told = node.drain("--reason disk");
        assert_eq!(told.code, 1, "{broken}: {told:?}");
        assert!(told.err.contains("cannot be read") && told.err.contains(FILE), "{}", told.err);
        let told = node.drain("undrain -o json");
        assert_eq!(told.code, 0, "{broken}: {told:?}");
        let json = told.json();
        assert_eq!((&json["Result"], &json["Request"]), (&"cancelled".into(), &serde_json::Value::Null));
        assert!(fs::symlink_metadata(node.path(FILE)).is_err() && outside.exists());
    }
}

#[test]
fn a_request_that_failed_may_be_made_anew() {
    let node = Node::of("cluster-idle").with_zedkube();
    assert_eq!(node.drain("--reason first").code, 0);
    answer(&node, "failed-drain-8");
    let told = node.drain("--reason second");
    assert_eq!(told.code, 0, "{told:?}");
    assert!(request(&node).context.ends_with(": second"));
}

#[test]
fn a_request_that_others_could_have_written_is_shown_as_zedkube_takes_it_as_none() {
    let node = Node::of("cluster-idle").with_zedkube();
    assert_eq!(node.drain("--reason disk").code, 0);
    assert_eq!(node.drain("status --all").code, 3);
    fs::set_permissions(node.path(FILE), fs::Permissions::from_mode(0o666)).unwrap();
    let told = node.drain("status --all");
    assert_eq!(told.code, 0);
    assert!(
        told.err.contains("others may write it") && told.err.contains("`zedbox undrain`"),
        "{}",
        told.err
    );
}
