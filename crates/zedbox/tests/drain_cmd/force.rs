//! `zedbox drain force`: the force file that the agents will read, and refusals.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use agent::force::FALLBACK;
use topics::FORCE_FILE;

use crate::drain_cmd::node::{Node, user};
use crate::skipped;

#[test]
fn complete_for_a_waiting_reboot_is_written_for_root_alone_with_a_warning() {
    let node = Node::of("failed-drain-8");
    node.drain("force complete --for reboot --reason x")
        .ends(0)
        .says(&["the pending reboot goes ahead WITHOUT a proved drain. The file is used once."])
        .warns(&["WARNING: no drain is proved"]);
    let written = format!(r#"{{"Status":9,"RequestedBy":2,"Reason":"x","By":"{}"}}"#, user());
    assert_eq!(node.text(FORCE_FILE), written);
    assert_eq!((node.mode(FORCE_FILE), node.mode("persist/kube-status")), (0o600, 0o700));
    node.drain("status --all").says(&["orders\n           {Complete 2}"]);
}

#[test]
fn complete_for_nobody_who_waits_is_refused_unless_it_is_meant() {
    let node = Node::of("cluster-idle");
    for (whom, why) in [("reboot", "no reboot or shutdown is pending"), ("update", "no update is pending")] {
        let line = format!("force 9 --for {whom} --reason x");
        node.drain(&line).refused(&[why, "--even-if-nobody-waits"]);
    }
    assert!(!node.path(FORCE_FILE).exists());
    let told = node.drain("force 9 --for update --even-if-nobody-waits -o json --reason x").ends(0);
    assert_eq!(told.json()["Order"]["RequestedBy"], 3);
    // An update waits only for baseosmgr's request.
    Node::of("update-5-cordoned").drain("force 9 --for update --reason x").ends(0);
    Node::of("update-5-cordoned").drain("force 9 --for reboot --reason x").refused(&["no reboot"]);
}

#[test]
fn what_the_agents_would_refuse_is_refused_in_words_of_the_command_line() {
    let node = Node::of("drain-5-cordoned");
    for (words, named) in [
        ("force", "STATUS"),
        ("force 9 --reason x", "COMPLETE needs a target: `--for reboot` or `--for update`"),
        ("force complete --reason x", "COMPLETE needs a target"),
        ("force 0 --for reboot", "no such status; known are 1 notsupported"),
        ("force 12 --for reboot", "no such status"),
        ("force done --for reboot", "no such status"),
        ("force 9 --for operator", "reboot"),
        ("force 9 --remove", "--remove"),
    ] {
        let told = node.drain(words).ends(2).warns(&[named]);
        assert!(told.out.is_empty() && !told.err.contains("RequestedBy"), "{words}: {told:?}");
    }
    assert!(!node.path(FORCE_FILE).exists());
    node.drain("force not-supported --reason x").ends(0);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":1,"RequestedBy":1,"#));
}

#[test]
fn an_existing_order_is_named_with_its_content_and_replaced_only_when_asked() {
    let node = Node::of("forced");
    let held = r#"holds {"Status":9,"RequestedBy":2}"#;
    node.drain("force notsupported --reason x").refused(&[FORCE_FILE, held, "--replace"]);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":9,"#), "it stays");
    node.drain("force notsupported --replace --reason x").ends(0);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":1,"RequestedBy":1,"#));
}

#[test]
fn links_and_directories_of_others_are_refused_by_name() {
    let node = Node::of("drain-5-cordoned");
    let (dir, elsewhere) = (node.path("persist/kube-status"), node.path("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &dir).unwrap();
    node.drain("force 9 --for reboot --reason x").refused(&["persist/kube-status is a link"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    node.drain("force 9 --for reboot --reason x").refused(&["others may put files into", "chmod 700"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dir, Some(65_534), None).unwrap();
        node.drain("force 9 --for reboot --reason x").refused(&["belongs to user 65534", "chown root"]);
        std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
    } else {
        skipped("only root can give a directory away; run this as root");
    }
    // A link in the file's place is not followed: it is named, and replaced with `--replace`.
    symlink(elsewhere.join("target"), node.path(FORCE_FILE)).unwrap();
    node.drain("force 9 --for reboot --reason x").refused(&[FORCE_FILE, "link"]);
    node.drain("force 9 --for reboot --replace --reason x").ends(0);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(fs::symlink_metadata(node.path(FORCE_FILE)).unwrap().is_file());
}

#[test]
fn remove_takes_the_order_away_and_says_what_it_was() {
    let node = Node::of("forced");
    node.drain("force --remove").ends(0).says(&["it ordered {Complete 2}"]);
    node.drain("force --remove").refused(&["there is no", FORCE_FILE]);
    let refused_one = Node::of("malformed").drain("force --remove -o json").ends(0);
    assert_eq!(refused_one.json()["Order"], serde_json::Value::Null);
}

#[test]
fn s6_whoever_forces_says_why() {
    let node = Node::of("failed-drain-8");
    for words in ["force 9 --for reboot", "force notsupported", "force cordoned"] {
        node.drain(words).ends(2).warns(&["--reason <TEXT>"]);
    }
    assert!(!node.path(FORCE_FILE).exists());
}

#[test]
fn s6_the_file_names_who_forces_and_why() {
    let node = Node::of("failed-drain-8");
    for (reason, words) in [(" ", "the reason is empty"), ("a\nb", "control characters")] {
        node.drain(&format!("force 9 --for reboot --reason '{reason}'")).refused(&[words]);
    }
    assert!(!node.path(FORCE_FILE).exists());
    node.sudo("drain force 9 --for reboot --reason 'disk \"2\" burns'").ends(0);
    let text = r#"{"Status":9,"RequestedBy":2,"Reason":"disk \"2\" burns","By":"field"}"#;
    assert_eq!(node.text(FORCE_FILE), text);
    if let Some(told) = node.drain_as_nobody("force notsupported --reason x") {
        told.refused(&["run it with sudo"]);
    }
    // A reader of the reference takes the order itself.
    assert_eq!(topics::read_force(text.as_bytes()).unwrap().to_string(), "{Complete 2}");
}

#[test]
fn an_order_under_run_is_shown_and_removed_with_the_one_under_persist_that_counts_before_it() {
    let node = Node::of("failed-drain-8");
    node.put(FALLBACK, r#"{"Status":8,"RequestedBy":2}"#);
    node.drain("status --all").says(&[&format!("{FALLBACK} orders {{Failed Drain 2}}")]);
    node.put(FORCE_FILE, r#"{"Status":9,"RequestedBy":2}"#);
    node.drain("status --all").says(&[&format!("{FORCE_FILE} orders {{Complete 2}}")]);
    node.drain("force --remove").says(&["it ordered {Complete 2}"]);
    assert!(!node.path(FORCE_FILE).exists() && !node.path(FALLBACK).exists());
}
