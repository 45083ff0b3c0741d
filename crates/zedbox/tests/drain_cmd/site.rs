//! `zedbox site` begun, shown, continued, withdrawn; and without the API.

use std::io::Write as _;
use std::process::{Command, Stdio};

use kubesim::ScriptedFault;
use serde_json::{Value, json};

use crate::drain_cmd::lock::{self, LEASE};
use crate::drain_cmd::node::{Ended, has, holds, top, words};
use crate::drain_cmd::place::Place;

fn place() -> Place {
    let place = lock::place();
    let now = agent::Clock::new().wall();
    place.sim.apply(
        "k3s/etcdsnapshotfiles",
        json!({ "metadata": { "name": "s1" }, "status": { "readyToUse": true, "creationTime": now } }),
    );
    place
}

impl Place {
    fn site(&self, line: &str) -> Ended {
        self.node.sudo(&format!("site {line}"))
    }

    /// The state as a program reads it.
    fn form(&self) -> Value {
        self.site("status -o json").json()
    }

    fn mode(&self) -> Value {
        let lease = self.sim.get("coordination/leases", "eve-kube-app", LEASE).unwrap();
        let text = lease["metadata"]["annotations"]["pillar-rs/outage-mode"].as_str();
        text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    fn edit_mode(&self, change: impl FnOnce(&mut Value)) {
        let mut mode = self.mode();
        change(&mut mode);
        self.sim.edit("coordination/leases", "eve-kube-app", LEASE, |it| {
            it["metadata"]["annotations"]["pillar-rs/outage-mode"] = mode.to_string().into();
        });
    }
}

#[test]
fn u13_a_shutdown_is_begun_shown_continued_and_withdrawn() {
    let place = place();
    assert_eq!(words(&place.site("status").out), "no whole-site operation is in progress");
    let begun = ["has begun for 4 nodes, by operator field on ", ": new power supply. `zedbox site status`"];
    place.site("shutdown --reason 'new power supply'").done().begins("All checks passed.").says(&begun);
    assert_eq!(place.mode()["kind"], "shutdown");
    assert!(place.mode()["nodes"][0]["uid"].as_str().is_some_and(|it| !it.is_empty()));
    place.site("reboot --reason x").ends(1).warns(&["is in progress; look at it: zedbox site status"]);
    // No turn is granted meanwhile.
    place.lock("status").says(&["is in progress: no turn is granted"]);

    place.edit_mode(|it| {
        it["phase"] = "detaching".into();
        it["waits"] = "volumes to be detached: pv-1 on node n2".into();
        it["next"] = "kubectl get volumeattachments".into();
        it["seen"] = json!([{
            "node": "n2", "uid": it["nodes"][1]["uid"], "step": "cordoned", "bootID": "b1", "waits": "its disk",
            "since": "2026-03-14T09:30:00Z",
        }]);
    });
    let shown = place.site("status").says(&[
        ": detaching by operator field on ",
        "node n1 (follower): no answer yet; Ready",
        "node n2 (worker): cordoned, since 2026-03-14 09:30:00 UTC",
        "; waits for its disk",
        "node n4 (worker): no answer yet; Ready, cordoned",
        "waits for volumes to be detached: pv-1 on node n2",
        "next step kubectl get volumeattachments",
    ]);
    assert!(shown.out.lines().all(|line| line.chars().count() <= 80), "{shown:?}");
    holds(&place.form(), &json!({ "Phase": "detaching", "/Nodes/1/Step": "cordoned" }));

    place.site("continue --phase stopping --reason x").ends(1).warns(&["in phase detaching, not stopping"]);
    place.site("continue --phase detaching --reason 'it is an archive'").ends(0);
    assert_eq!(place.mode()["passed"][0]["why"], "it is an archive");
    let told = place.site("cancel --reason late -o json").ends(0);
    assert_eq!(told.json(), json!({ "Result": "cancelled" }));
    holds(&place.mode(), &json!({ "phase": "uncordoning", "/cancelled/phase": "detaching" }));
    place.edit_mode(|it| (it["phase"], it["cancelled"]) = ("servers-going".into(), Value::Null));
    place.site("cancel").ends(1).warns(&["cannot be withdrawn any more"]);
    // The first machine to switch on is named before the API goes away.
    place.edit_mode(|it| it["order"] = json!(["n3", "n1"]));
    place.site("status").says(&["switch on n1 first: it goes down last"]);
}

#[test]
fn v3_a_restart_is_planned_begun_shown_stopped_continued_and_withdrawn() {
    let place = place();
    let order = "Order: n2, n3, n4, n1; of the servers, the one that leads etcd by then goes last.";
    let planned = format!("{order} Nothing was begun.");
    place.site("restart --dry-run --reason 'new kernel'").done().says(&[&planned]);
    assert!(place.sim.get("coordination/leases", "eve-kube-app", LEASE).is_none(), "something was written");
    let begun = ["The whole-site restart ", " has begun for 4 nodes, by operator field on ", order];
    place.site("restart --reason 'new kernel'").done().says(&begun);
    holds(&place.mode(), &json!({ "kind": "restart", "phase": "restarting" }));
    place.site("shutdown --reason x").ends(1).warns(&["operation restart ("]);
    place.lock("status").says(&["is in progress: zedbox site status"]).lacks(&["no turn is granted"]);

    place.edit_mode(|it| {
        (it["phase"], it["waits"]) = ("stopped".into(), "node n3: its drain failed".into());
        it["next"] = "repair that".into();
        it["seen"] = json!([
            {
                "node": "n2", "uid": it["nodes"][1]["uid"], "step": "done", "bootID": "b2",
                "since": "2026-03-14T09:33:00Z", "past": [
                    ["seen", "2026-03-14T09:00:00Z"], ["draining", "2026-03-14T09:30:00Z"],
                    ["going", "2026-03-14T09:30:55Z"], ["booted", "2026-03-14T09:32:05Z"],
                    ["verifying", "2026-03-14T09:32:50Z"],
                ],
            },
            {
                "node": "n3", "uid": it["nodes"][2]["uid"], "step": "failed", "bootID": "b1",
                "since": "2026-03-14T09:34:00Z", "waits": "its drain failed", "past": [["draining", ""]],
            },
        ]);
    });
    place.site("status").says(&[
        ": stopped by operator field on ",
        "node n2 (worker): done, since 2026-03-14 09:33:00 UTC",
        "node n3 (worker): failed, since 2026-03-14 09:34:00 UTC",
        "waits for its drain failed",
        "stopped node n3: its drain failed",
        "next step repair that",
        "order n2, n3, n4, n1",
    ]);
    assert_eq!(place.form()["Nodes"][0]["Past"][1]["Step"], "draining");

    let continued = "The whole-site operation continues, by ";
    place.site("continue --phase stopped --reason 'more room'").ends(0).says(&[continued]);
    holds(&place.mode(), &json!({ "phase": "checking", "/seen/1/step": "draining" }));
    place.site("cancel --reason late").ends(0).begins("Withdrew the restart of the site");
    assert_eq!(place.mode(), Value::Null);
    let shown = place.site("status").begins("1 of 4 nodes restarted: whole-site restart ");
    shown.says(&["node n2 (worker): done"]).lacks(&["next step"]);
    holds(&place.form(), &json!({ "Phase": "ended", "Withdrawn": true }));
}

#[test]
fn v3_with_the_lease_deleted_status_says_what_nodes_have_under_way_and_what_to_type() {
    let place = place();
    place.site("restart --reason x").ends(0);
    assert!(place.sim.remove("coordination/leases", "eve-kube-app", LEASE));
    assert_eq!(words(&place.site("status").out), "no whole-site operation is in progress");
    place.cordon("n3", true);
    let mark = r#"{"bootId":"b1","requestedBy":3,"requestedAt":"","fence":4,"leaseUid":"gone"}"#;
    place.annotate("n3", "pillar-rs/cordon-owner", mark);
    place.node.put(
        "persist/status/zedkube/SiteOperation/global.json",
        include_str!("../../../topics/tests/filled/SiteOperation.json"),
    );
    place.site("status").says(&[
        "no whole-site operation is in the Lease eve-kube-app/pillar-rs-outage",
        "node n3: cordoned for its own drain or reboot",
        "node this one, in the whole-site shutdown 2026",
        ": going, since ",
        "; waits for this machine to go down",
        "next step wait until they are back: `zedbox status`",
        "Then begin again: zedbox site restart",
    ]);
    let form = place.form();
    holds(&form, &json!({ "ID": "" }));
    assert!(form["UnderWay"][0].as_str().unwrap().starts_with("n3: cordoned"), "{form}");
    assert!(form["NextStep"].as_str().unwrap().contains("begin again"), "{form}");
}

#[test]
fn a_shutdown_waits_for_the_turn_of_a_node_unless_it_is_told_otherwise() {
    let place = place();
    place.turns("2026-03-14T09:30:30Z");
    place.site("shutdown --reason x").ends(1).says(&["[turn] node n2 holds a turn (reboot, phase drained)"]);
    assert_eq!(place.written(), []);
    place.site("shutdown --although-held --reason x").ends(0);
}

#[test]
fn u13_without_the_api_the_status_is_that_of_the_disk() {
    let place = place();
    place.sim.faults().script("GET", LEASE, u32::MAX, ScriptedFault::status(503, "ServiceUnavailable"));
    place.site("status").ends(1).warns(&["failed to show the site"]);
    place.node.put(
        "persist/status/zedkube/SiteOperation/global.json",
        r#"{"ID":"op-1","Op":"shutdown","Step":"ready","Phase":"servers-going","By":"operator field: power work",
            "WaitingFor":"node n2 to be off, at most 5 min","At":"2026-03-14T09:30:00Z"}"#,
    );
    place.site("status").says(&[
        "whole-site shutdown op-1; the cluster cannot be asked",
        "waits for node n2 to be off",
        "this node ready",
    ]);
    assert_eq!(place.site("status -o json").json()["Step"], "ready");
}

#[test]
fn u13_a_shutdown_is_checked_first_and_what_is_passed_is_kept() {
    let place = lock::place();
    place.site("check").ends(1).warns(&["failed to pass the checks: 1 finding"]);
    let found = "[snapshot] the cluster has no snapshot of etcd. on a server: k3s etcd-snapshot save";
    let refused = place.site("shutdown --reason x").ends(1).says(&[found]);
    refused.warns(&["or add --pass snapshot"]);
    let wrong = place.site("shutdown --reason x --pass volumes -o json").ends(1);
    assert_eq!(wrong.json()["Findings"][0]["Code"], "snapshot");
    place.site("shutdown --reason x --pass luck").ends(2);
    assert_eq!(place.written(), []);

    let passed = "[snapshot] the cluster has no snapshot of etcd; passed.";
    place.site("shutdown --pass snapshot --reason x").ends(0).begins(passed);
    place.site("status").says(&["finding [snapshot] the cluster has no snapshot of etcd; passed"]);
    place.site("check").ends(1).warns(&["is in progress"]);
}

/// docs/drill.sh on a site of so many servers, with these exit codes of its looks: its own exit code, output, and calls.
fn drilled(codes: &[u8], servers: &str) -> (Option<i32>, String, String) {
    let place = tempfile::tempdir().unwrap();
    let called = place.path().join("called");
    let codes = codes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("bash");
    script.arg(top().join("docs/drill.sh")).args(["edge-node-1", "--kubeconfig", "K"]).env("LIMIT", "60");
    let zedbox = top().join("crates/zedbox/tests/drain_cmd/orders/zedbox.sh");
    script.env("SERVERS", servers).env("ZEDBOX", zedbox);
    script.env("CALLED", &called).env("CODES", codes).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().unwrap();
    // A person who does each step at once; a script that has stopped reads nothing.
    drop(script.stdin.take().unwrap().write_all(&[b'\n'; 16]));
    let ended = script.wait_with_output().unwrap();
    let called = std::fs::read_to_string(called).unwrap();
    (ended.status.code(), String::from_utf8(ended.stdout).unwrap(), called)
}

#[test]
fn v4_the_script_for_a_real_site_goes_through_the_steps_of_the_page_and_stops_where_a_look_fails() {
    let (before, after) = ("verify --kubeconfig K\n", "verify --wait --timeout 60 --kubeconfig K\n");
    let (code, said, called) = drilled(&[4, 0], "3");
    assert_eq!((code, called), (Some(0), format!("{before}{after}")), "{said}");
    let (_, report) = said.split_once("The drill has ended:\n").unwrap();
    assert_eq!(report.lines().count(), 9, "{report}");
    has(report, &["order a reboot of edge-node-1", "(zedbox verify ended with 4)", "so that 2 of 3 are on"]);
    for (servers, steps, quorum) in [
        ("1", 8, "so that 1 of 1 are on"),
        ("3", 9, "so that 2 of 3 are on"),
        ("5", 9, "switch on 2 of 5 servers"),
    ] {
        let (code, said, _) = drilled(&[0, 0], servers);
        let (_, report) = said.split_once("The drill has ended:\n").unwrap();
        assert!(code == Some(0) && report.lines().count() == steps && report.contains(quorum), "{report}");
    }
    let (code, said, called) = drilled(&[1], "3");
    assert_eq!((code, called.as_str()), (Some(1), before));
    assert!(said.contains("Stopped: before the power cut") && !said.contains("snapshot"), "{said}");
    let (code, said, called) = drilled(&[0, 3], "3");
    assert_eq!((code, called), (Some(3), format!("{before}{after}")));
    assert!(said.contains("Stopped: after the power cut"), "{said}");
}
