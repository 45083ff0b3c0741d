//! `zedbox status`: what it says of every state, and how it ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};

use crate::drain_cmd::node::{Ended, NOW, Node, PROGRESS, STATUS, has, top, trees};

impl Node {
    /// All of it, at the time of the trees.
    fn status(&self) -> Ended {
        self.drain(&format!("status --all --as-of {NOW}"))
    }
}

#[test]
fn every_state_has_its_exit_code_and_fits_eighty_columns_without_colours() {
    // What is said of each, and its code: `page/trees.txt`.
    for tree in trees() {
        let told = Node::of(&tree).status();
        assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{tree}: {}", told.out);
        assert!(!told.out.contains('\x1b'), "{tree}: {}", told.out);
        assert_eq!(told.err.is_empty(), tree != "malformed", "{tree}: {}", told.err);
        let json = Node::of(&tree).drain("status -o json").ends(told.code).json();
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
    let sheet = |tree: &str, found: &[Value]| {
        let node = Node::of(tree);
        let report = json!({ "At": "2026-03-14T09:30:00Z", "Findings": found, "LeftOut": 1 });
        node.put("run/zedkube/DrainPreflight/global.json", &report.to_string());
        assert_eq!(node.drain("status -o json").json()["Preflight"]["Findings"], json!(found));
        node.status()
    };
    sheet("drain-3-requested", &found).says(&[
        "finding    [backups] blocks: text; step\n",
        "finding    [clock] blocks, passed by field: known: text; step\n",
        "finding    [room] warns: text; step\n",
        "finding    … and 1 more\n",
    ]);
    let many = vec![finding("nodes", "warns", ""); 12];
    let shown = sheet("drain-5-cordoned", &many).says(&["… and 3 more"]).out;
    assert_eq!(shown.matches("[nodes] warns").count(), 10, "{shown}");
    // What a drain that is over has found is no news.
    assert!(!sheet("cluster-idle", &found).out.contains("finding"));
}

/// A tree, what is changed in it, the exit code, and what is printed and said on standard error.
type Row = (&'static str, fn(&Node), i32, &'static [&'static str], &'static [&'static str]);

fn without_progress(node: &Node) {
    fs::remove_dir_all(node.path("run/zedkube/NodeDrainProgress")).unwrap();
}

fn pending(node: &Node, attempts: u32, words: &str) {
    let op =
        json!({ "Counter": 7, "Attempts": attempts, "WaitingFor": words, "NextStep": "read the reason" });
    node.put("persist/status/zedagent/DeviceOpPending/reboot.json", &op.to_string());
}

const ROWS: [Row; 9] = [
    (
        "drain-5-cordoned",
        |it| it.set(&json!({ "ApiSilentSince": "2026-03-14T09:36:00Z" })),
        4,
        &["silent     no answer from the Kubernetes API since 09:36:00 UTC, 5 min ago"],
        &[],
    ),
    // The request has vanished; the next try after a failed drain is still to come.
    (
        "cluster-idle",
        |it| pending(it, 1, "zedkube to accept the drain request"),
        3,
        &[
            "REQUESTED: reboot 7 is pending, its drain has not begun\n",
            "\npending    reboot 7 waits for zedkube to accept the drain request\n",
            "\nnext step  read the reason\n",
        ],
        &[],
    ),
    (
        "cluster-idle",
        |it| pending(it, 2, "the next try at 09:50, after 1 failed drain"),
        3,
        &["\npending    reboot 7 waits for the next try at 09:50, after 1 failed drain\n"],
        &[],
    ),
    (
        "malformed",
        |_| {},
        6,
        &[],
        &[
            "run/zedkube/NodeDrainStatus/global.json cannot be used: the JSON text is cut off",
            "run/zedagent/NodeDrainRequest/global.json cannot be used",
            "`zedbox check /",
        ],
    ),
    (
        "cluster-idle",
        |it| ["run", "persist"].iter().for_each(|dir| fs::remove_dir_all(it.path(dir)).unwrap()),
        6,
        &[],
        &["there is no /", "--root"],
    ),
    // A link is not followed.
    (
        "drain-9-complete",
        |it| {
            without_progress(it);
            fs::rename(it.path(STATUS), it.path("elsewhere.json")).unwrap();
            symlink(it.path("elsewhere.json"), it.path(STATUS)).unwrap();
        },
        6,
        &[],
        &["link"],
    ),
    // A zedkube of the reference has no progress.
    (
        "drain-5-cordoned",
        without_progress,
        3,
        &["DRAINING: reboot waits, pods are being evicted\nstatus     CORDONED (5), for a reboot"],
        &[],
    ),
    ("drain-9-complete", without_progress, 6, &["WITHOUT A PROVED DRAIN: this zedkube does not"], &[]),
    // Texts cannot steer the terminal.
    (
        "drain-5-cordoned",
        |it| it.put(PROGRESS, &it.text(PROGRESS).replace("pod shop/web-5f7d-e757f: Pod", "\\u001b[2Jpod")),
        4,
        &["?[2Jpod"],
        &[],
    ),
];

#[test]
fn what_the_files_hold_or_lack_is_shown_and_is_the_exit_code() {
    for (tree, change, code, out, err) in ROWS {
        let node = Node::of(tree);
        change(&node);
        let told = node.status();
        assert_eq!(told.code, code, "{tree}, {out:?} {err:?}: {told:#?}");
        let headline = out.first().filter(|it| it.starts_with(char::is_uppercase));
        let told = told.begins(headline.copied().unwrap_or_default());
        assert!(!told.says(out).warns(err).out.contains('\x1b'), "{tree}");
    }
}

#[test]
fn u3_a_machine_that_is_held_at_the_last_moment_shows_why_and_what_to_type() {
    Node::of("drain-9-held").with_zedkube().status().says(&[
        "held nodeagent holds the reboot back: etcd needs this node for its quorum: 2 of 3 etcd voters are healthy",
        "next step make all members of etcd healthy; zedkube is asked again every 30 s",
        "`zedbox go --past drain --reason '...'`",
    ]);
}

#[test]
fn a_blocked_drain_names_counts_blockers_what_comes_next_and_the_next_step() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let told = node.status().says(&[
        "[##########..........] 2 of 4 gone, 1 terminating, 1 blocked",
        "next       2026-03-15 09:30:02 UTC, in 23 h 49 min: this attempt is given up",
        "[budget] pod shop/web-5f7d-e757f: PodDisruptionBudget shop/web allows",
        "since 09:30:04 UTC,",
        "next step  shop/web-5f7d-e757f: wait until the budget allows a disruption, or",
    ]);
    // Of a copy that was made at another time nothing is said about the process.
    told.lacks(&["running", "reason "]);
    node.drain("status --all").says(&["\nzedkube    running"]);
    let json = node.drain(&format!("status -o json --as-of {NOW}")).json();
    assert_eq!(json["Live"]["Running"], Value::Null);
    let json = node.drain("status -o json").json();
    assert_eq!(json["Live"]["Running"], true);
    assert_eq!(json["Progress"]["Blockers"][0]["Code"], "budget");
    assert_eq!(json["Requests"]["zedagent"]["Context"], "reboot");
    assert_eq!(json["Pending"]["reboot"]["Counter"], 7);
    // Trouble with the API is told beside them, and nothing twice.
    node.set(&json!({ "Trouble": "trouble with the API: watch pods: connection refused" }));
    let told = node.status().says(&["reason     trouble with the API: watch pods: connection refused\n"]);
    assert_eq!(told.out.matches("PodDisruptionBudget shop/web").count(), 1, "{}", told.out);
}

#[test]
fn k8_a_dead_zedkube_is_named_and_the_recorded_next_step_stays() {
    let mut node = Node::of("drain-5-cordoned").with_zedkube();
    node.kill_zedkube();
    node.drain("status --all").says(&[
        "next step start zedkube, as no drain continues without it: `systemctl restart zedbox`; where it ends again, `zedbox \
         check /etc/zedbox/zedbox.toml` and `journalctl -u zedbox -n 20` say why; then, as it recorded: shop/web-5f7d-e757f:",
        "zedkube not running: what is shown is what it wrote last",
    ]);
    let mut idle = Node::of("cluster-idle").with_zedkube();
    idle.kill_zedkube();
    // Nothing waits for it yet.
    let rest = "IN SERVICE: no drain is requested; zedkube is not running\n";
    idle.drain("status").says(&[rest, "next step  start zedkube"]);
    // Nobody ever took a lock here: nothing is known, and nothing is said.
    let told = Node::of("drain-5-cordoned").drain("status --all").says(&["next step  shop/web-5f7d-e757f"]);
    told.lacks(&["running", "start zedkube"]);
}

#[test]
fn k8_on_a_copy_only_the_touch_file_says_whether_zedkube_ran() {
    let mut node = Node::of("drain-5-cordoned").with_zedkube();
    node.silent_since("2026-03-14T09:40:56Z");
    node.status().says(&["\nzedkube    last heard of 09:40:56 UTC, 4 s ago\n"]);
    node.kill_zedkube();
    fs::remove_file(node.path("run/zedkube.touch")).unwrap();
    node.status().says(&["\nzedkube    has not run on these files in this boot\n"]).lacks(&["start zedkube"]);
}

#[test]
fn k8_what_a_user_may_not_read_is_one_line() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    node.put("run/zedkube.touch", "");
    let Some(told) = node.drain_as_nobody("status --all") else { return };
    // The touch file is everybody's; the lock is not.
    let told = told.ends(6).says(&["\nzedkube    last heard of "]);
    let [line] = told.err.lines().collect::<Vec<_>>()[..] else { unreachable!("not one line: {}", told.err) };
    assert!(line.ends_with("run this as root, with sudo"), "{line}");
    // Directories, and none of what may or may not be in them.
    let dirs = ["run/zedagent", "run/zedkube", "persist"].map(|dir| node.path(dir).display().to_string());
    has(line, &["user nobody may not read", &dirs[0], &dirs[1], &dirs[2]]);
    assert!(!line.contains(".json") && !line.contains("run/zedbox"), "{line}");
    told.lacks(&["start zedkube", "refused"]);
}

#[test]
fn a_log_filter_that_is_none_ends_with_2_and_says_what_to_write() {
    for filter in ["loud", "zedkube=loud"] {
        let told = Node::of("cluster-idle").drain(&format!("status --log {filter}")).ends(2);
        assert_eq!(told.warns(&[filter, "--log", "info,zedkube=debug"]).out, "");
    }
}

#[test]
fn k2_what_an_agent_cannot_write_is_a_row_and_something_wanted_that_waits_for_it_ends_with_4() {
    let node = Node::of("cluster-idle").with_zedkube();
    node.drain("status --all").ends(0);
    let give = |holds: &[&str]| {
        let trouble = json!({
            "What": "RebootConfig", "Path": "/persist/status/rebootConfig", "Error": "No space left on device",
            "Since": "2026-03-14T09:30:00Z", "Holds": holds, "NextStep": "make room on /persist: `df /persist`",
        });
        let all = json!({ "Troubles": [trouble], "More": 2 });
        node.put("run/zedagent/AgentTrouble/global.json", &all.to_string());
        node.status()
    };
    give(&["the request for a drain"]).ends(4).says(&[
        "trouble zedagent: RebootConfig: No space left on device (/persist/status/rebootConfig); waits: the request \
         for a drain; since 09:30:00 UTC, 11 min ago",
        "trouble and 2 more",
        "next step make room on /persist: `df /persist`",
    ]);
    assert_eq!(node.drain("status -o json").ends(4).json()["Troubles"]["zedagent"]["More"], 2);
    // Nothing that is wanted waits for it: it is shown all the same.
    give(&[]).ends(0).says(&["(/persist/status/rebootConfig); make room on /persist"]);
}

#[test]
fn a_node_on_its_way_out_of_its_cluster_says_so_and_shows_no_token() {
    let node = Node::of("cluster-idle");
    let leave = fs::read_to_string(top().join("crates/topics/tests/filled/NodeLeave.json")).unwrap();
    let put = |phase: &str| {
        let leave = leave.replacen("draining", phase, 1);
        assert!(leave.contains(phase));
        node.put("persist/status/zedkube/NodeLeave/global.json", &leave);
        node.status()
    };
    let member = "cluster    cluster-a: still a member, about to leave, 09:27:53 UTC, 13 min ago:";
    put("announced").says(&[member, "3 of 5 pods"]);
    put("draining").says(&["leaving, draining the node"]);
    let json = node.drain("status -o json");
    assert_eq!(json.json()["Leave"]["Phase"], "draining");
    assert!(!json.out.contains("CipherData"), "{}", json.out);
    assert!(!put("member").out.contains("cluster-a"), "nothing is to be said of a member");
}

#[test]
fn d15_k12_each_limit_that_runs_is_shown_with_what_is_left_of_it_and_what_follows() {
    // Of what, its action, how many minutes of 30 are over by NOW; the row.
    let whole = "25 min of 30 min left for the whole drain; then: the drain fails, and our cordon is removed";
    let volumes = "left for volumes that are still attached; then: the drain continues without";
    for (of, then, gone, row) in [
        ("drain", "give-up", 5, whole),
        ("drain", "wait", 5, "then: it continues to wait, and is shown as over its time"),
        ("attempt", "give-up", 5, "left for this attempt; then: the attempt fails; another one follows"),
        ("drain", "wait", 40, "over its 30 min for the whole drain, since"),
        ("volumes", "go-on", 5, volumes),
        ("last-copies", "give-up", 5, "left for last healthy copies; then: the attempt fails; another one"),
    ] {
        let node = Node::of("drain-5-cordoned");
        let since = NOW.parse::<topics::GoTime>().unwrap().minus(Duration::from_secs(gone * 60));
        let until = since.plus(Duration::from_mins(30)).rfc3339();
        let limit = json!({ "Of": of, "Then": then, "Since": since.rfc3339(), "Until": until });
        node.set(&json!({ "Limits": [limit] }));
        node.status().says(&[row]);
    }
}
