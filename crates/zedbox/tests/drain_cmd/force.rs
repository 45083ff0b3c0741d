//! `zedbox drain force`: the force file that the agents will read, and refusals.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use agent::force::FALLBACK;
use topics::FORCE_FILE;

use crate::drain_cmd::node::{Ended, Node};

fn mode(node: &Node, path: &str) -> u32 {
    fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o777
}

fn refused(told: &Ended, words: &[&str]) {
    assert_eq!((told.code, told.out.as_str()), (1, ""), "{told:?}");
    for words in words {
        assert!(told.err.contains(words), "no `{words}` in {}", told.err);
    }
}

#[test]
fn complete_for_a_waiting_reboot_is_written_for_root_alone_with_a_warning() {
    let node = Node::of("failed-drain-8");
    let told = node.drain("force complete --for reboot --reason x");
    assert_eq!(told.code, 0, "{told:?}");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("the pending reboot goes ahead WITHOUT a proved drain. The file is used once."),
        "{said}"
    );
    assert!(told.err.contains("WARNING: no drain is proved"), "{}", told.err);
    let user =
        String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let written = format!(r#"{{"Status":9,"RequestedBy":2,"Reason":"x","By":"{}"}}"#, user.trim());
    assert_eq!(node.text(FORCE_FILE), written);
    assert_eq!((mode(&node, FORCE_FILE), mode(&node, "persist/kube-status")), (0o600, 0o700));
    let status = node.drain("status --all");
    assert!(status.out.contains("orders\n           {Complete 2}"), "{}", status.out);
}

#[test]
fn complete_for_nobody_who_waits_is_refused_unless_it_is_meant() {
    let node = Node::of("cluster-idle");
    refused(
        &node.drain("force 9 --for reboot --reason x"),
        &["no reboot or shutdown is pending", "--even-if-nobody-waits"],
    );
    refused(
        &node.drain("force 9 --for update --reason x"),
        &["no update is pending", "--even-if-nobody-waits"],
    );
    assert!(!node.path(FORCE_FILE).exists());
    let told = node.drain("force 9 --for update --even-if-nobody-waits -o json --reason x");
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.json()["Order"]["RequestedBy"], 3);
    // An update waits only for baseosmgr's request.
    assert_eq!(Node::of("update-5-cordoned").drain("force 9 --for update --reason x").code, 0);
    refused(&Node::of("update-5-cordoned").drain("force 9 --for reboot --reason x"), &["no reboot"]);
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
        let told = node.drain(words);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{words}: {told:?}");
        assert!(told.err.contains(named) && !told.err.contains("RequestedBy"), "{words}: {}", told.err);
    }
    assert!(!node.path(FORCE_FILE).exists());
    assert_eq!(node.drain("force not-supported --reason x").code, 0);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":1,"RequestedBy":1,"#));
}

#[test]
fn an_existing_order_is_named_with_its_content_and_replaced_only_when_asked() {
    let node = Node::of("forced");
    let told = node.drain("force notsupported --reason x");
    refused(&told, &[FORCE_FILE, r#"holds {"Status":9,"RequestedBy":2}"#, "--replace"]);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":9,"#), "it stays");
    assert_eq!(node.drain("force notsupported --replace --reason x").code, 0);
    assert!(node.text(FORCE_FILE).starts_with(r#"{"Status":1,"RequestedBy":1,"#));
}

#[test]
fn links_and_directories_of_others_are_refused_by_name() {
    let node = Node::of("drain-5-cordoned");
    let (dir, elsewhere) = (node.path("persist/kube-status"), node.path("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &dir).unwrap();
    refused(&node.drain("force 9 --for reboot --reason x"), &["persist/kube-status is a link"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    refused(&node.drain("force 9 --for reboot --reason x"), &["others may put files into", "chmod 700"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dir, Some(65_534), None).unwrap();
        refused(&node.drain("force 9 --for reboot --reason x"), &["belongs to user 65534", "chown root"]);
        std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
    } else {
        writeln!(std::io::stderr(), "skipped: only root can give a directory away; run this as root")
            .unwrap();
    }
    // A link in the file's place is not followed: it is named, and replaced with `--replace`.
    symlink(elsewhere.join("target"), node.path(FORCE_FILE)).unwrap();
    refused(&node.drain("force 9 --for reboot --reason x"), &[FORCE_FILE, "link"]);
    assert_eq!(node.drain("force 9 --for reboot --replace --reason x").code, 0);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(fs::symlink_metadata(node.path(FORCE_FILE)).unwrap().is_file());
}

#[test]
fn remove_takes_the_order_away_and_says_what_it_was() {
    let node = Node::of("forced");
    let told = node.drain("force --remove");
    assert_eq!(told.code, 0, "{told:?}");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("it ordered {Complete 2}"), "{said}");
    refused(&node.drain("force --remove"), &["there is no", FORCE_FILE]);
    let refused_one = Node::of("malformed").drain("force --remove -o json");
    assert_eq!(refused_one.code, 0, "{refused_one:?}");
    assert_eq!(refused_one.json()["Order"], serde_json::Value::Null);
}

#[test]
fn a_user_without_the_right_is_told_to_use_sudo() {
    let node = Node::of("drain-5-cordoned");
    let Some(told) = node.drain_as_nobody("force notsupported --reason x") else { return };
    refused(&told, &["run it with sudo"]);
}

#[test]
fn s6_whoever_forces_says_why() {
    let node = Node::of("failed-drain-8");
    for words in ["force 9 --for reboot", "force notsupported", "force cordoned"] {
        let told = node.drain(words);
        assert!(told.code == 2 && told.err.contains("--reason <TEXT>"), "{words}: {told:?}");
    }
    assert!(!node.path(FORCE_FILE).exists());
}

#[test]
fn s6_the_file_names_who_forces_and_why() {
    let node = Node::of("failed-drain-8");
    for (reason, words) in [(" ", "the reason is empty"), ("a\nb", "control characters")] {
        refused(&node.drain_with("force 9 --for reboot --reason", reason), &[words]);
    }
    assert!(!node.path(FORCE_FILE).exists());
    let mut command = node.command("force 9 --for reboot --reason");
    let told = Ended::of(command.arg("disk \"2\" burns").env("SUDO_USER", "field").output().unwrap());
    assert_eq!(told.code, 0, "{told:?}");
    let text = r#"{"Status":9,"RequestedBy":2,"Reason":"disk \"2\" burns","By":"field"}"#;
    assert_eq!(node.text(FORCE_FILE), text);
    // A reader of the reference takes the order itself.
    assert_eq!(topics::read_force(text.as_bytes()).unwrap().to_string(), "{Complete 2}");
}

#[test]
fn an_order_under_run_is_shown_and_removed_with_the_one_under_persist_that_counts_before_it() {
    let node = Node::of("failed-drain-8");
    node.put(FALLBACK, r#"{"Status":8,"RequestedBy":2}"#);
    let flat = |out: &str| out.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = flat(&node.drain("status --all").out);
    assert!(status.contains(&format!("{FALLBACK} orders {{Failed Drain 2}}")), "{status}");
    node.put(FORCE_FILE, r#"{"Status":9,"RequestedBy":2}"#);
    let status = flat(&node.drain("status --all").out);
    assert!(status.contains(&format!("{FORCE_FILE} orders {{Complete 2}}")), "{status}");
    assert!(flat(&node.drain("force --remove").out).contains("it ordered {Complete 2}"));
    assert!(!node.path(FORCE_FILE).exists() && !node.path(FALLBACK).exists());
}
