//! `zedbox watch` into a pipe: a line for each change, and how it ends.

use crate::drain_cmd::node::{Node, Reader};

#[test]
fn started_before_zedkube_it_tells_each_change_and_ends_with_complete() {
    let node = Node::empty();
    let mut watch = node.start("watch");
    watch.until("NOT KNOWN: zedkube has published nothing");
    node.zedkube_tells("cluster-idle");
    watch.until("NOTREQUESTED (2)");
    let request = "run/zedagent/NodeDrainRequest/global.json";
    node.put(request, &Node::of("drain-4-starting").text(request));
    node.zedkube_tells("drain-4-starting");
    watch.until("STARTING (4)");
    node.zedkube_tells("drain-5-cordoned");
    let line = watch.until("2 of 4 gone, 1 terminating, 1 blocked");
    // A time, then words.
    assert_eq!(line.split_whitespace().next().unwrap().len(), "2026-03-14T09:41:00Z".len(), "{line}");
    watch
        .until("blocked [budget] pod shop/web-5f7d-e757f: PodDisruptionBudget shop/web allows no disruption");
    node.zedkube_tells("drain-9-complete");
    watch.until("no longer blocked: pod shop/web-5f7d-e757f");
    watch.until("complete: drained: 4 pods evicted, none left");
    assert_eq!(watch.end(), 0);
    let said: Vec<&str> = watch.read.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    let again = said.windows(2).any(|two| two[0] == two[1]);
    assert!(!again && !said.concat().contains('\x1b'), "{said:#?}");
}

/// A drain that is under way, watched.
fn watching() -> (Node, Reader) {
    let node = Node::of("drain-5-cordoned");
    let mut watch = node.start("watch");
    watch.until("CORDONED (5)");
    (node, watch)
}

#[test]
fn k7_a_failed_drain_ends_it_with_5_and_the_reason_and_a_forced_complete_with_9() {
    for (tree, words, exit) in [
        (
            "failed-drain-8",
            "NOT DRAINED: could not drain: not done within 86400 s, left: shop/web-5f7d-e757f",
            5,
        ),
        ("forced", "NOT DRAINED: drain skipped: forced", 9),
    ] {
        let (node, mut watch) = watching();
        node.zedkube_tells(tree);
        watch.until(words);
        assert_eq!(watch.end(), exit);
    }
}

#[test]
fn k7_a_drain_that_is_withdrawn_ends_it_with_8_in_these_words() {
    let (node, mut watch) = watching();
    for file in
        ["run/zedagent/NodeDrainRequest/global.json", "persist/status/zedagent/DeviceOpPending/reboot.json"]
    {
        std::fs::remove_file(node.path(file)).unwrap();
    }
    node.zedkube_tells("cluster-idle");
    watch.until("NOT DRAINED: the request was withdrawn");
    assert_eq!(watch.end(), 8);
}

#[test]
fn it_outlives_zedkube_and_its_files() {
    let (node, mut watch) = watching();
    std::fs::remove_dir_all(node.path("run/zedkube")).unwrap();
    watch.until("NOT KNOWN: zedkube has published nothing");
    node.zedkube_tells("drain-7-retrying");
    watch.until("DRAINRETRYING (7)");
    node.put("run/zedkube/NodeDrainProgress/global.json", "{\"Phase\":");
    watch.until("run/zedkube/NodeDrainProgress/global.json cannot be used: ");
    node.zedkube_tells("drain-9-complete");
    watch.until("complete: drained");
    assert_eq!(watch.end(), 0);
}

#[test]
fn the_death_of_zedkube_is_told() {
    let mut node = Node::of("drain-5-cordoned").with_zedkube();
    let mut watch = node.start("watch");
    assert!(!watch.until("CORDONED (5)").contains("not running"));
    node.kill_zedkube();
    watch.until("; zedkube is not running");
}

#[test]
fn ctrl_c_ends_the_watching_with_130_and_not_the_drain() {
    let (_node, mut watch) = watching();
    watch.interrupt();
    watch.until(". The drain continues;");
    assert_eq!(watch.end(), 130);
}

#[test]
fn for_programs_each_change_is_one_json_object_in_one_line() {
    let node = Node::of("drain-5-cordoned");
    let mut watch = node.start("watch -o json");
    watch.until("\"Status\":{\"Status\":5");
    node.zedkube_tells("drain-9-complete");
    watch.until("\"Status\":{\"Status\":9");
    assert_eq!(watch.end(), 0);
    for line in &watch.read {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object(), "{line}");
    }
}

#[test]
fn a_zedkube_that_dies_between_its_two_files_has_not_ended_the_drain() {
    let node = Node::of("drain-5-cordoned");
    let mut watch = node.start("watch");
    watch.until("2 of 4 gone");
    let complete = Node::of("drain-9-complete");
    for (topic, words) in [
        ("NodeDrainProgress", "DRAINING: reboot waits, pods are being evicted; CORDONED (5)"),
        ("NodeDrainStatus", "complete: drained"),
    ] {
        let file = format!("run/zedkube/{topic}/global.json");
        node.put(&file, &complete.text(&file));
        watch.until(words);
    }
    assert_eq!(watch.end(), 0);
}

#[test]
fn why_the_api_does_not_answer_is_in_the_line() {
    let node = Node::of("drain-4-starting");
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let mut progress: serde_json::Value = serde_json::from_str(&node.text(file)).unwrap();
    progress["Reason"] = "the Kubernetes API is not reachable: connection refused".into();
    node.put(file, &progress.to_string());
    let mut watch = node.start("watch");
    watch.until("REQUESTED: reboot waits, the node is being checked first; STARTING (4)");
    assert!(
        watch.read[0].contains("; the Kubernetes API is not reachable: connection refused"),
        "{:?}",
        watch.read
    );
    node.zedkube_tells("drain-5-cordoned");
    watch.until("CORDONED (5)");
    let mut progress: serde_json::Value = serde_json::from_str(&node.text(file)).unwrap();
    progress["Trouble"] = "trouble with the API: watch pods: connection refused".into();
    node.put(file, &progress.to_string());
    watch.until("; trouble with the API: watch pods: connection refused");
}
