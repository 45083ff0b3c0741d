//! Outputs in README.md and docs/operate equal the program's on the trees of `run-fixtures`.

use crate::documents::documents;
use crate::drain_cmd::node::{Ended, NOW, Node, top};

/// Every output of `command` in the documents; all are equal.
pub(crate) fn shown(command: &str) -> String {
    // A node's files are root's: there it is typed with sudo.
    let begins = ["", "sudo "].map(|root| format!("```text\n$ {root}{command}\n"));
    let documents = documents();
    let shows = |text: &'_ str| {
        begins.iter().find_map(|it| Some(text.split_once(it)?.1.split_once("```")?.0.to_owned()))
    };
    let mut found = documents.iter().filter_map(|(_, text)| shows(text));
    let Some(first) = found.next() else { unreachable!("no document shows `$ {command}`") };
    assert!(found.all(|other| other == first), "the documents differ on `{command}`");
    first
}

/// The output, with a device's root and the trees' time.
fn printed(node: &Node, told: &Ended) -> String {
    let text = format!("{}{}", told.out, told.err);
    text.replace(&format!("{}/", node.root().display()), "/")
}

/// Times of today in the documents' form: `asked 09:41:00 UTC, now`.
fn with_fixed_times(text: &str) -> String {
    let fixed = |word: &str| match word.as_bytes() {
        [_, _, b':', _, _, b':', ..] => "09:41:00".to_owned(),
        [_, _, _, _, b'-', .., b'Z'] => NOW.to_owned(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = text.split_whitespace().map(fixed).collect();
    let text = words.join(" ");
    // A slow machine is a second late.
    (1..60).fold(text, |text, secs| text.replace(&format!("UTC, {secs} s ago"), "UTC, now"))
}

/// Lines are wrapped by the root's length, which differs here.
fn same_words(node: &Node, line: &str) {
    let printed = with_fixed_times(&printed(node, &node.sudo(line).ends(0)));
    let shown = shown(&format!("sudo zedbox {line}"));
    assert_eq!(with_fixed_times(&shown), printed, "the documents differ, of `{line}`");
}

#[test]
fn the_readme_shows_what_status_prints() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.silent_since("2026-03-14T09:40:56Z");
    for line in ["status", "status --all"] {
        let told = node.drain(&format!("{line} --as-of {NOW}")).ends(4);
        // For another time it does not say whether zedkube runs.
        let printed =
            printed(&node, &told).replace("zedkube    last heard of", "zedkube    running, last heard of");
        assert_eq!(shown(&format!("zedbox {line}")), printed, "the documents differ");
    }
}

#[test]
fn the_readme_shows_what_watch_prints() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut watch = node.start("watch");
    watch.until("blocked [budget]");
    node.zedkube_tells("drain-9-complete");
    assert_eq!(watch.end(), 0);
    let printed = watch.read.join("\n");
    assert_eq!(with_fixed_times(&shown("zedbox watch")), with_fixed_times(&printed), "the documents differ");
}

#[test]
fn the_readme_shows_what_request_cancel_and_force_print() {
    let node = Node::of("cluster-idle").with_zedkube();
    same_words(&node, "drain --reason \"new disk in bay 2\"");
    node.zedkube_tells("drain-9-complete");
    same_words(&node, "undrain");
    let node = Node::of("failed-drain-8").with_zedkube();
    same_words(&node, "go --past drain --reason \"server is lost\"");
    same_words(&node, "drain force --remove");
}

#[test]
fn the_exit_codes_of_their_page_are_those_of_the_help() {
    let page = std::fs::read_to_string(top().join("docs/reference/exit-codes.md")).unwrap();
    let help = Node::empty().drain("--help").out;
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "130"] {
        assert!(page.contains(&format!("\n| {code} | ")), "docs/reference/exit-codes.md lacks {code}");
        assert!(help.contains(&format!("\n  {code:<4} ")), "--help lacks exit code {code}");
    }
}
