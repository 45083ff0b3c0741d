//! `zedbox site` begun, shown, continued, withdrawn; and without the API.

use std::io::Write as _;
use std::process::{Command, Stdio};

use kubesim::ScriptedFault;
use serde_json::{Value, json};

use crate::drain_cmd::lock::{self, LEASE, words};
use crate::drain_cmd::node::{Ended, top};
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
    fn site(&self, line: &str, last: &[&str]) -> Ended {
        let mut command = self.node.command_of("site", line);
        Ended::of(command.args(last).env("SUDO_USER", "field").output().unwrap())
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
    assert_eq!(words(&place.site("status", &[]).out), "no whole-site operation is in progress");
    let told = place.site("shutdown --reason", &["new power supply"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    let said = words(&told.out);
    assert!(said.starts_with("All checks passed."), "{said}");
    for part in ["has begun for 4 nodes, by operator field on ", ": new power supply. `zedbox site status`"] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    assert_eq!(place.mode()["kind"], "shutdown");
    assert!(place.mode()["nodes"][0]["uid"].as_str().is_some_and(|it| !it.is_empty()));
    let again = place.site("reboot --reason x", &[]);
    assert!(
        again.code == 1 && again.err.contains("is in progress; look at it: zedbox site status"),
        "{again:?}"
    );
    // No turn is granted meanwhile.
    assert!(words(&place.lock("status", &[]).out).contains("is in progress: no turn is granted"));

    place.edit_mode(|it| {
        it["phase"] = "detaching".into();
        it["waits"] = "volumes to be detached: pv-1 on node n2".into();
        it["next"] = "kubectl get volumeattachments".into();
        it["seen"] = json!([{
            "node": "n2", "uid": it["nodes"][1]["uid"], "step": "cordoned", "bootID": "b1", "waits": "its disk",
            "since": "2026-03-14T09:30:00Z",
        }]);
    });
    let shown = place.site("status", &[]).out;
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let shown = words(&shown);
    for part in [
        ": detaching by operator field on ",
        "node n1 (follower): no answer yet; Ready",
        "node n2 (worker): cordoned, since 2026-03-14 09:30:00 UTC",
        "; waits for its disk",
        "node n4 (worker): no answer yet; Ready, cordoned",
        "waits for volumes to be detached: pv-1 on node n2",
        "next step kubectl get volumeattachments",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let form = place.site("status -o json", &[]).json();
    let read: topics::SiteStatus = serde_json::from_value(form.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), form, "it is what its schema is made of, and no more");
    assert_eq!((&form["Phase"], &form["Nodes"][1]["Step"]), (&json!("detaching"), &json!("cordoned")));

    let stale = place.site("continue --phase stopping --reason x", &[]);
    assert!(stale.code == 1 && stale.err.contains("in phase detaching, not stopping"), "{stale:?}");
    assert_eq!(place.site("continue --phase detaching --reason", &["it is an archive"]).code, 0);
    assert_eq!(place.mode()["passed"][0]["why"], "it is an archive");
    let told = place.site("cancel --reason late -o json", &[]);
    assert_eq!((told.code, told.json()), (0, json!({ "Result": "cancelled" })), "{told:?}");
    assert_eq!(
        (&place.mode()["phase"], &place.mode()["cancelled"]["phase"]),
        (&json!("uncordoning"), &json!("detaching"))
    );
    place.edit_mode(|it| it["phase"] = "servers-going".into());
    place.edit_mode(|it| it["cancelled"] = Value::Null);
    let late = place.site("cancel", &[]);
    assert!(late.code == 1 && late.err.contains("cannot be withdrawn any more"), "{late:?}");
    // The first machine to switch on is named before the API goes away.
    place.edit_mode(|it| it["order"] = json!(["n3", "n1"]));
    let shown = words(&place.site("status", &[]).out);
    assert!(shown.contains("switch on n1 first: it goes down last"), "{shown}");
}

#[test]
fn v3_a_restart_is_planned_begun_shown_stopped_continued_and_withdrawn() {
    let place = place();
    let planned = place.site("restart --dry-run --reason", &["new kernel"]);
    assert_eq!((planned.code, planned.err.as_str()), (0, ""), "{planned:?}");
    let order = "Order: n2, n3, n4, n1; of the servers, the one that leads etcd by then goes last.";
    assert!(words(&planned.out).contains(&format!("{order} Nothing was begun.")), "{planned:?}");
    assert!(place.sim.get("coordination/leases", "eve-kube-app", LEASE).is_none(), "something was written");
    let told = place.site("restart --reason", &["new kernel"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    let said = words(&told.out);
    assert!(said.contains(" has begun, by operator field on ") && said.contains(order), "{said}");
    assert_eq!((&place.mode()["kind"], &place.mode()["phase"]), (&json!("restart"), &json!("restarting")));
    let second = place.site("shutdown --reason x", &[]);
    assert!(second.code == 1 && second.err.contains("operation restart ("), "{second:?}");
    let turns = words(&place.lock("status", &[]).out);
    assert!(
        turns.contains("is in progress: zedbox site status") && !turns.contains("no turn is granted"),
        "{turns}"
    );

    place.edit_mode(|it| {
        (it["phase"], it["waits"]) = ("stopped".into(), "node n3: its drain failed".into());
        it["next"] = "repair that".into();
        it["seen"] = json!([
            {
                "node": "n2", "uid": it["nodes"][1]["uid"], "step": "done", "bootID": "b2",
                "since": "2026-03-14T09:33:00Z", "verified": "11 layers pass", "past": [
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
    let shown = words(&place.site("status", &[]).out);
    for part in [
        ": stopped by operator field on ",
        "node n2 (worker): done, since 2026-03-14 09:33:00 UTC",
        "took: draining 55 s, rebooting 1 min 10 s, checks after boot 45 s, verifying 10 s; verified: 11 layers pass",
        "node n3 (worker): failed, since 2026-03-14 09:34:00 UTC",
        "waits for its drain failed; took: draining ?",
        "stopped node n3: its drain failed",
        "next step repair that",
        "order n2, n3, n4, n1",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let form = place.site("status -o json", &[]).json();
    let read: topics::SiteStatus = serde_json::from_value(form.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), form, "it is what its schema is made of, and no more");
    assert_eq!(form["Nodes"][0]["Past"][1]["Step"], "draining");
    let waited = place.site("status --wait", &[]);
    assert!(
        waited.code == 1 && waited.err.contains("it has stopped: node n3: its drain failed"),
        "{waited:?}"
    );

    let told = place.site("continue --phase stopped --reason", &["more room"]);
    assert!(
        told.code == 0 && words(&told.out).contains("The restart of the site continues, by "),
        "{told:?}"
    );
    assert_eq!(
        (&place.mode()["phase"], &place.mode()["seen"][1]["step"]),
        (&json!("checking"), &json!("draining"))
    );
    let told = place.site("cancel --reason late", &[]);
    assert!(told.code == 0 && words(&told.out).starts_with("Withdrew the restart of the site"), "{told:?}");
    assert_eq!(place.mode(), Value::Null);
    let shown = words(&place.site("status", &[]).out);
    assert!(shown.starts_with("1 of 4 nodes restarted: whole-site restart "), "{shown}");
    assert!(shown.contains("node n2 (worker): done") && !shown.contains("next step"), "{shown}");
    let form = place.site("status -o json", &[]).json();
    assert_eq!((&form["Phase"], &form["Withdrawn"]), (&json!("ended"), &json!(true)));
    assert_eq!(place.site("status --wait", &[]).code, 1, "there is nothing to follow");
}

#[test]
fn v3_with_the_lease_deleted_status_says_what_nodes_have_under_way_and_what_to_type() {
    let place = place();
    let begun = place.site("restart --reason x", &[]);
    assert_eq!(begun.code, 0, "{begun:?}");
    assert!(place.sim.remove("coordination/leases", "eve-kube-app", LEASE));
    assert_eq!(words(&place.site("status", &[]).out), "no whole-site operation is in progress");
    place.sim.edit("nodes", "", "n3", |it| {
        it["spec"]["unschedulable"] = true.into();
        it["metadata"]["annotations"]["pillar-rs/cordon-owner"] =
            r#"{"bootId":"b1","requestedBy":3,"requestedAt":"","fence":4,"leaseUid":"gone"}"#.into();
    });
    place.node.put(
        "persist/status/zedkube/SiteOperation/global.json",
        include_str!("../../../topics/tests/filled/SiteOperation.json"),
    );
    let shown = words(&place.site("status", &[]).out);
    for part in [
        "no whole-site operation is in the Lease eve-kube-app/pillar-rs-outage",
        "node n3: Ready, cordoned; waits for its own drain or reboot",
        "node this one: going; waits for this machine to go down; in the whole-site shutdown 2026",
        "next step wait until these nodes are back: `zedbox status`",
        "Then begin again: zedbox site restart",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    let form = place.site("status -o json", &[]).json();
    assert_eq!((&form["ID"], &form["Nodes"][0]["Node"]), (&json!(""), &json!("n3")));
    assert!(form["NextStep"].as_str().unwrap().contains("begin again"), "{form}");
}

#[test]
fn a_shutdown_waits_for_the_turn_of_a_node_unless_it_is_told_otherwise() {
    let place = place();
    place.turns("2026-03-14T09:30:30Z");
    let refused = place.site("shutdown --reason x", &[]);
    assert!(
        refused.code == 1
            && words(&refused.out).contains("[turn] node n2 holds a turn (reboot, phase drained)"),
        "{refused:?}"
    );
    assert_eq!(place.written(), []);
    assert_eq!(place.site("shutdown --although-held --reason x", &[]).code, 0);
}

#[test]
fn u13_without_the_api_the_status_is_that_of_the_disk() {
    let place = place();
    place.sim.faults().script("GET", LEASE, u32::MAX, ScriptedFault::status(503, "ServiceUnavailable"));
    let failed = place.site("status", &[]);
    assert!(failed.code == 1 && failed.err.contains("failed to show the site"), "{failed:?}");
    place.node.put(
        "persist/status/zedkube/SiteOperation/global.json",
        r#"{"ID":"op-1","Op":"shutdown","Step":"ready","Phase":"servers-going","By":"operator field: power work",
            "WaitingFor":"node n2 to be off, at most 5 min","At":"2026-03-14T09:30:00Z"}"#,
    );
    let shown = words(&place.site("status", &[]).out);
    for part in [
        "whole-site shutdown op-1; the cluster cannot be asked",
        "waits for node n2 to be off",
        "this node ready",
    ] {
        assert!(shown.contains(part), "no `{part}` in {shown}");
    }
    assert_eq!(place.site("status -o json", &[]).json()["Step"], "ready");
}

#[test]
fn u13_a_shutdown_is_checked_first_and_what_is_passed_is_kept() {
    let place = lock::place();
    let found = place.site("check", &[]);
    assert!(found.code == 1 && found.err.contains("failed to pass the checks: 1 finding"), "{found:?}");
    let refused = place.site("shutdown --reason x", &[]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let said = words(&refused.out);
    assert!(
        said.contains("[snapshot] the cluster has no snapshot of etcd. on a server: k3s etcd-snapshot save"),
        "{said}"
    );
    assert!(refused.err.contains("or add --pass snapshot"), "{refused:?}");
    let wrong = place.site("shutdown --reason x --pass volumes -o json", &[]);
    assert_eq!((wrong.code, &wrong.json()["Findings"][0]["Code"]), (1, &json!("snapshot")), "{wrong:?}");
    assert_eq!(place.site("shutdown --reason x --pass luck", &[]).code, 2);
    assert_eq!(place.written(), []);

    let told = place.site("shutdown --pass snapshot --reason x", &[]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        words(&told.out).starts_with("[snapshot] the cluster has no snapshot of etcd; passed."),
        "{told:?}"
    );
    let shown = words(&place.site("status", &[]).out);
    assert!(shown.contains("finding [snapshot] the cluster has no snapshot of etcd; passed"), "{shown}");
    let again = place.site("check", &[]);
    assert!(again.code == 1 && again.err.contains("is in progress"), "{again:?}");
}

/// docs/drill.sh on a site of three servers, with these exit codes of its looks: its own exit code, output, and calls.
fn drilled(codes: &[u8]) -> (Option<i32>, String, String) {
    drilled_on(codes, "3")
}

fn drilled_on(codes: &[u8], servers: &str) -> (Option<i32>, String, String) {
    let place = tempfile::tempdir().unwrap();
    let called = place.path().join("called");
    let codes = codes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("bash");
    script.arg(top().join("docs/drill.sh")).args(["edge-node-1", "--kubeconfig", "K"]).env("LIMIT", "60");
    script
        .env("SERVERS", servers)
        .env("ZEDBOX", top().join("crates/zedbox/tests/drain_cmd/orders/zedbox.sh"));
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
    let (code, said, called) = drilled(&[4, 0]);
    assert_eq!((code, called), (Some(0), format!("{before}{after}")), "{said}");
    let (_, report) = said.split_once("The drill has ended:\n").unwrap();
    assert_eq!(report.lines().count(), 9, "{report}");
    assert!(
        report.contains("order a reboot of edge-node-1") && report.contains("(zedbox verify ended with 4)"),
        "{report}"
    );
    assert!(report.contains("so that 2 of 3 are on"), "{report}");
    for (servers, steps, quorum) in [("1", 8, "so that 1 of 1 are on"), ("5", 9, "switch on 2 of 5 servers")]
    {
        let (code, said, _) = drilled_on(&[0, 0], servers);
        let (_, report) = said.split_once("The drill has ended:\n").unwrap();
        assert!(code == Some(0) && report.lines().count() == steps && report.contains(quorum), "{report}");
    }
    let (code, said, called) = drilled(&[1]);
    assert_eq!((code, called.as_str()), (Some(1), before));
    assert!(said.contains("Stopped: before the power cut") && !said.contains("snapshot"), "{said}");
    let (code, said, called) = drilled(&[0, 3]);
    assert_eq!((code, called), (Some(3), format!("{before}{after}")));
    assert!(said.contains("Stopped: after the power cut"), "{said}");
}
