//! `zedbox history`: the last drains as one report, and reports of a missing or broken history.

use crate::drain_cmd::node::Node;
use crate::drain_cmd::readme::shown;

const FILE: &str = "persist/status/zedkube/DrainHistory/global.json";

#[test]
fn o8_the_readme_shows_what_history_prints_after_a_reboot() {
    // Of the boot of those drains only `persist` is left.
    let node = Node::of("cluster-idle");
    std::fs::remove_dir_all(node.path("run")).unwrap();
    let told = node.drain("history").done();
    assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{}", told.out);
    assert_eq!(told.out.split("\n\n").next(), Some(shown("zedbox history").trim_end()));
    told.says(&["\n\nforce file {Complete 2} by field (file of root, uid 0), seen 2026-03-13"]);
    let json = node.drain("history -o json").json();
    assert_eq!(json["Drains"][0]["Steps"][4]["Step"], "attempt-failed");
    assert_eq!(json["Drains"][1]["Blockers"][0]["Code"], "budget");
}

#[test]
fn what_a_history_holds_is_told_and_cannot_steer_the_terminal() {
    for (held, changed, told) in [
        (
            "2026-03-14T08:39:12Z\",\"Status\":9",
            "0001-01-01T00:00:00Z\",\"Status\":5",
            "CORDONED (5), continues",
        ),
        (
            "{\"At\":\"2026-03-14T08:39:12Z",
            "{\"At\":\"2026-03-15T00:01:02Z",
            "00:01:02   2026-03-15 drained, verified",
        ),
        ("ours", "\\u001b[2Jours", "?[2Jours"),
    ] {
        let node = Node::of("cluster-idle");
        node.put(FILE, &node.text(FILE).replace(held, changed));
        node.drain("history").says(&[told]).lacks(&["\x1b"]);
    }
}

#[test]
fn without_a_history_it_says_so_and_a_broken_one_names_the_file_and_the_next_step() {
    let node = Node::empty();
    assert_eq!(node.drain("history").ends(0).out, "No drain and no force file is recorded on this node.\n");
    node.put(FILE, "{\"Drains\":[");
    node.drain("history").refused(&[FILE, "`zedbox check`"]);
}
