//! `zedbox status`: what it says of every state, and how it ends.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use topics::DeviceOpPending;

use crate::drain_cmd::node::{NOW, Node, top, trees};

#[test]
fn every_state_has_its_exit_code_and_fits_eighty_columns_without_colours() {
    // What is said of each, and its code: `page/trees.txt`.
    for tree in trees() {
        let told = Node::of(&tree).drain(&format!("status --all --as-of {NOW}"));
        assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{tree}: {}", told.out);
        assert!(!told.out.contains('\x1b'), "{tree}: {}", told.out);
        assert_eq!(told.err.is_empty(), tree != "malformed", "{tree}: {}", told.err);
        let json = Node::of(&tree).drain("status -o json");
        assert_eq!(json.code, told.code, "{tree}");
        let json = json.json();
        let members: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let known = "Broken Denied Force LastLook Leave Live Pause Pending Preflight Progress Requests Status \
            Troubles Updates";
        assert_eq!(members.join(" "), known, "{tree}");
    }
}

#[test]
fn u6_what_the_preflight_has_found_is_shown_while_there_is_a_drain_with_what_to_do_and_who_has_it_pass() {
    let finding = |code: &str, severity: &str, passed: &str| json!({ "Code": code, "Severity": severity, "Text": "text", "NextStep": "step", "PassedBy": passed });
    let found = [
        finding("backups", "blocks", ""),
        finding("clock", "blocks", "field: known"),
        finding("room", "warns", ""),
    ];
    let many = vec![finding("nodes", "warns", ""); 12];
    let sheet = |tree: &str, found: &[serde_json::Value]| {
        let node = Node::of(tree);
        let report = json!({ "At": "2026-03-14T09:30:00Z", "Findings": found, "LeftOut": 1 });
        node.put("run/zedkube/DrainPreflight/global.json", &report.to_string());
        assert_eq!(node.drain("status -o json").json()["Preflight"]["Findings"], json!(found));
        node.drain(&format!("status --all --as-of {NOW}")).out
    };
    let shown = sheet("drain-3-requested", &found);
    for row in [
        "finding    [backups] blocks: text; step\n",
        "finding    [clock] blocks, passed by field: known: text; step\n",
        "finding    [room] warns: text; step\n",
        "finding    … and 1 more\n",
    ] {
        assert!(shown.contains(row), "{row} {shown}");
    }
    let shown = sheet("drain-5-cordoned", &many);
    assert_eq!(shown.matches("[nodes] warns").count(), 10, "{shown}");
    assert!(shown.contains("… and 3 more"), "{shown}");
    // What a drain that is over has found is no news.
    assert!(!sheet("cluster-idle", &found).contains("finding"));
}

#[test]
fn an_api_that_is_lost_is_shown_with_since_when() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let path = "run/zedkube/NodeDrainProgress/global.json";
    let silent = node
        .text(path)
        .replace(r#""ApiSilentSince":"0001-01-01T00:00:00Z""#, r#""ApiSilentSince":"2026-03-14T09:36:00Z""#);
    node.put(path, &silent);
    let told = node.drain(&format!("status --all --as-of {NOW}"));
    let words = "silent     no answer from the Kubernetes API since 09:36:00 UTC, 5 min ago";
    assert!(told.out.contains(words), "{}", told.out);
}

#[test]
fn u3_a_machine_that_is_held_at_the_last_moment_shows_why_and_what_to_type() {
    let told = Node::of("drain-9-held").with_zedkube().drain(&format!("status --all --as-of {NOW}"));
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "held nodeagent holds the reboot back: etcd needs this node for its quorum: 2 of 3 etcd voters are healthy",
        "next step make all members of etcd healthy; zedkube is asked again every 30 s",
        "`zedbox go --past drain --reason '...'`",
    ] {
        assert!(said.contains(words), "no `{words}` in\n{}", told.out);
    }
}

#[test]
fn a_blocked_drain_names_counts_blockers_what_comes_next_and_the_next_step() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let told = node.drain(&format!("status --all --as-of {NOW}"));
    for words in [
        "[##########..........] 2 of 4 gone, 1 terminating, 1 blocked",
        "next       2026-03-15 09:30:02 UTC, in 23 h 49 min: this attempt is given up",
        "[budget] pod shop/web-5f7d-e757f: PodDisruptionBudget shop/web allows",
        "since 09:30:04 UTC,",
        "next step  shop/web-5f7d-e757f: wait until the budget allows a disruption, or",
    ] {
        assert!(told.out.contains(words), "no `{words}` in\n{}", told.out);
    }
    // Of a copy that was made at another time nothing is said about the process.
    assert!(!told.out.contains("running"), "{}", told.out);
    assert!(node.drain("status --all").out.contains("\nzedkube    running"));
    let json = node.drain(&format!("status -o json --as-of {NOW}")).json();
    assert_eq!(json["Live"]["Running"], serde_json::Value::Null);
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
    assert!(!node.drain("status --all").out.contains("reason "));
    let mut progress: serde_json::Value = serde_json::from_str(&node.text(file)).unwrap();
    progress["Trouble"] = "trouble with the API: watch pods: connection refused".into();
    node.put(file, &progress.to_string());
    let told = node.drain("status --all");
    assert!(
        told.out.contains("reason     trouble with the API: watch pods: connection refused\n"),
        "{told:?}"
    );
    assert_eq!(told.out.matches("PodDisruptionBudget shop/web").count(), 1, "{}", told.out);
}

#[test]
fn k8_a_dead_zedkube_is_named_and_the_recorded_next_step_stays() {
    let mut node = Node::of("drain-5-cordoned").with_zedkube();
    node.kill_zedkube();
    let told = node.drain("status --all");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "next step start zedkube, as no drain continues without it: `systemctl restart zedbox`; where it ends again, `zedbox \
         check /etc/zedbox/zedbox.toml` and `journalctl -u zedbox -n 20` say why; then, as it recorded: shop/web-5f7d-e757f:",
        "zedkube not running: what is shown is what it wrote last",
    ] {
        assert!(said.contains(words), "no `{words}` in\n{}", told.out);
    }
    let mut idle = Node::of("cluster-idle").with_zedkube();
    idle.kill_zedkube();
    let told = idle.drain("status").out;
    assert!(told.contains("IN SERVICE: no drain is requested; zedkube is not running\n"), "{told}");
    assert!(told.contains("next step  start zedkube"), "nothing waits for it yet");
    // Nobody ever took a lock here: nothing is known, and nothing is said.
    let told = Node::of("drain-5-cordoned").drain("status --all");
    assert!(!told.out.contains("running") && !told.out.contains("start zedkube"), "{}", told.out);
    assert!(told.out.contains("next step  shop/web-5f7d-e757f"), "{}", told.out);
}

#[test]
fn k8_on_a_copy_only_the_touch_file_says_whether_zedkube_ran() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.put("run/zedkube.touch", "");
    let secs = NOW.parse::<topics::GoTime>().unwrap().to_timestamp().as_second() - 4;
    let turn = UNIX_EPOCH + Duration::from_secs(u64::try_from(secs).unwrap());
    File::options().write(true).open(node.path("run/zedkube.touch")).unwrap().set_modified(turn).unwrap();
    let of_then = |node: &Node| node.drain(&format!("status --all --as-of {NOW}")).out;
    assert!(
        of_then(&node).contains("\nzedkube    last heard of 09:40:56 UTC, 4 s ago\n"),
        "{}",
        of_then(&node)
    );
    let mut copy = Node::of("drain-5-cordoned").with_zedkube();
    copy.kill_zedkube();
    assert!(
        of_then(&copy).contains("\nzedkube    has not run on these files in this boot\n"),
        "{}",
        of_then(&copy)
    );
    assert!(!of_then(&copy).contains("start zedkube"));
}

#[test]
fn an_operation_that_waits_without_a_request_is_shown_and_ends_with_3() {
    let node = Node::of("cluster-idle").with_zedkube();
    let pending = |attempts: u32, words: &str| {
        let op = DeviceOpPending {
            counter: 7,
            attempts,
            waiting_for: words.to_owned(),
            next_step: "read the reason".to_owned(),
            ..DeviceOpPending::default()
        };
        String::from_utf8(topics::go_json::to_vec(&op).unwrap()).unwrap()
    };
    let file = "persist/status/zedagent/DeviceOpPending/reboot.json";
    // Its request has vanished, and the next try after a failed drain is still to come.
    for (attempts, words) in
        [(1, "zedkube to accept the drain request"), (2, "the next try at 09:50, after 1 failed drain")]
    {
        node.put(file, &pending(attempts, words));
        let told = node.drain("status --all");
        assert_eq!(told.code, 3, "{told:?}");
        assert!(
            told.out.starts_with("REQUESTED: reboot 7 is pending, its drain has not begun\n"),
            "{}",
            told.out
        );
        assert!(told.out.contains(&format!("\npending    reboot 7 waits for {words}\n")), "{}", told.out);
        assert!(told.out.contains("\nnext step  read the reason\n"), "{}", told.out);
    }
}

#[test]
fn broken_files_are_named_with_the_cause_and_the_next_step() {
    let told = Node::of("malformed").drain("status --all");
    for words in [
        "run/zedkube/NodeDrainStatus/global.json cannot be used: the JSON text is cut off",
        "run/zedagent/NodeDrainRequest/global.json cannot be used",
        "`zedbox check /",
    ] {
        assert!(told.err.contains(words), "no `{words}` in\n{}", told.err);
    }
    let nothing = Node::empty().drain("status --all");
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
    let told = node.drain("status --all");
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.err.contains("link"), "{}", told.err);
}

#[test]
fn a_drain_that_only_a_reference_zedkube_tells_of_is_told_by_its_status_alone() {
    let node = Node::of("drain-5-cordoned");
    std::fs::remove_dir_all(node.path("run/zedkube/NodeDrainProgress")).unwrap();
    let told = node.drain(&format!("status --all --as-of {NOW}"));
    assert_eq!(told.code, 3);
    assert!(
        told.out.starts_with(
            "DRAINING: reboot waits, pods are being evicted\nstatus     CORDONED (5), for a reboot"
        ),
        "{}",
        told.out
    );
    let node = Node::of("drain-9-complete");
    std::fs::remove_dir_all(node.path("run/zedkube/NodeDrainProgress")).unwrap();
    let told = node.drain("status --all");
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.out.contains("PROVED DRAIN: this zedkube does not report whether"), "{}", told.out);
}

#[test]
fn texts_in_the_files_cannot_steer_the_terminal() {
    let node = Node::of("drain-5-cordoned");
    let file = "run/zedkube/NodeDrainProgress/global.json";
    let text = std::fs::read_to_string(node.path(file)).unwrap();
    node.put(file, &text.replace("pod shop/web-5f7d-e757f: Pod", "\\u001b[2Jpod"));
    let told = node.drain("status --all");
    assert!(told.out.contains("?[2Jpod") && !told.out.contains('\x1b'), "{}", told.out);
}

#[test]
fn k8_what_a_user_may_not_read_is_one_line() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.put("run/zedkube.touch", "");
    let Some(told) = node.drain_as_nobody("status --all") else { return };
    assert_eq!(told.code, 6, "{told:?}");
    let [line] = told.err.lines().collect::<Vec<_>>()[..] else { unreachable!("not one line: {}", told.err) };
    assert!(
        line.contains("user nobody may not read") && line.ends_with("run this as root, with sudo"),
        "{line}"
    );
    // Directories, and none of what may or may not be in them.
    for dir in ["run/zedagent", "run/zedkube", "persist"] {
        assert!(line.contains(&format!("{}", node.path(dir).display())), "no {dir} in {line}");
    }
    assert!(!line.contains(".json") && !line.contains("run/zedbox"), "{line}");
    // The touch file is everybody's; the lock is not.
    assert!(told.out.contains("\nzedkube    last heard of "), "{}", told.out);
    assert!(!told.out.contains("start zedkube") && !told.out.contains("refused"), "{}", told.out);
}

#[test]
fn a_log_filter_that_is_none_ends_with_2_and_says_what_to_write() {
    for filter in ["loud", "zedkube=loud"] {
        let told = Node::of("cluster-idle").drain_with("status --log", filter);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{told:?}");
        for words in [filter, "--log", "info,zedkube=debug"] {
            assert!(told.err.contains(words), "no `{words}` in {}", told.err);
        }
    }
}

#[test]
fn k2_what_an_agent_cannot_write_is_a_row_and_something_wanted_that_waits_for_it_ends_with_4() {
    let node = Node::of("cluster-idle").with_zedkube();
    assert_eq!(node.drain("status --all").code, 0);
    let give = |holds: &str| {
        let text = format!(
            r#"{{"Troubles":[{{"What":"RebootConfig","Path":"/persist/status/rebootConfig","Error":"No space left on device","Since":"2026-03-14T09:30:00Z","Holds":[{holds}],"NextStep":"make room on /persist: `df /persist`"}}],"More":2}}"#
        );
        node.put("run/zedagent/AgentTrouble/global.json", &text);
        node.drain(&format!("status --all --as-of {NOW}"))
    };
    let flat = |out: &str| out.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = give("\"the request for a drain\"");
    assert_eq!(told.code, 4, "{}", told.out);
    for words in [
        "trouble zedagent: RebootConfig: No space left on device (/persist/status/rebootConfig); waits: the request \
         for a drain; since 09:30:00 UTC, 11 min ago",
        "trouble and 2 more",
        "next step make room on /persist: `df /persist`",
    ] {
        assert!(flat(&told.out).contains(words), "no `{words}` in\n{}", told.out);
    }
    let json = node.drain("status -o json");
    assert_eq!((json.code, &json.json()["Troubles"]["zedagent"]["More"]), (4, &2.into()));
    // Nothing that is wanted waits for it: it is shown all the same.
    let told = give("");
    assert_eq!(told.code, 0, "{}", told.out);
    assert!(
        flat(&told.out).contains("(/persist/status/rebootConfig); make room on /persist"),
        "{}",
        told.out
    );
}

#[test]
fn a_node_on_its_way_out_of_its_cluster_says_so_and_shows_no_token() {
    let node = Node::of("cluster-idle");
    let leave = std::fs::read_to_string(top().join("crates/topics/tests/filled/NodeLeave.json")).unwrap();
    let file = "persist/status/zedkube/NodeLeave/global.json";
    let put = |phase: &str| {
        let leave = leave.replacen("draining", phase, 1);
        assert!(leave.contains(phase));
        pubsub::store::replace(&node.path(file), leave.as_bytes()).unwrap();
        node.drain(&format!("status --all --as-of {NOW}")).out
    };
    let told = put("announced");
    for words in
        ["cluster    cluster-a: still a member, about to leave, 09:27:53 UTC, 13 min ago:", "3 of 5 pods"]
    {
        assert!(told.contains(words), "no `{words}` in\n{told}");
    }
    assert!(put("draining").contains("leaving, draining the node"));
    let json = node.drain("status -o json");
    assert_eq!(json.json()["Leave"]["Phase"], "draining");
    assert!(!json.out.contains("CipherData"), "{}", json.out);
    assert!(!put("member").contains("cluster-a"), "nothing is to be said of a member");
}

#[test]
fn d15_k12_each_limit_that_runs_is_shown_with_what_is_left_of_it_and_what_follows() {
    let file = "run/zedkube/NodeDrainProgress/global.json";
    // Of what, its action, how many minutes of 30 are over by NOW; the row.
    let table = [
        (
            "drain",
            "give-up",
            5,
            "25 min of 30 min left for the whole drain; then: the drain fails, and our cordon is removed",
        ),
        ("drain", "wait", 5, "then: it continues to wait, and is shown as over its time"),
        ("attempt", "give-up", 5, "left for this attempt; then: the attempt fails; another one follows"),
        ("drain", "wait", 40, "over its 30 min for the whole drain, since"),
        (
            "volumes",
            "go-on",
            5,
            "left for volumes that are still attached; then: the drain continues without",
        ),
        ("last-copies", "give-up", 5, "left for last healthy copies; then: the attempt fails; another one"),
    ];
    for (of, then, gone, row) in table {
        let node = Node::of("drain-5-cordoned");
        let mut progress: serde_json::Value = serde_json::from_str(&node.text(file)).unwrap();
        let since: topics::GoTime = NOW.parse().unwrap();
        let since = since.minus(Duration::from_secs(gone * 60));
        let until = since.plus(Duration::from_mins(30));
        progress["Limits"] = serde_json::json!([{
            "Of": of, "Then": then, "Since": since.rfc3339(), "Until": until.rfc3339()
        }]);
        node.put(file, &progress.to_string());
        let out = node.drain(&format!("status --all --as-of {NOW}")).out;
        let text = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("limit {row}")) || text.contains(row), "no `{row}` in\n{out}");
    }
}
