//! `zedbox plan`: a table or an object, no write, and the next step when it fails.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use kubesim::Sim;
use serde_json::{Value, json};
use topics::{PASS_FILE, PreflightPass};

use crate::drain_cmd::node::{Ended, Node, top};
use crate::drain_cmd::place::Place;
use crate::drain_cmd::readme::shown;

/// Two nodes, the device's is `edge-node-1`; a `StatefulSet` behind a budget that allows no disruption.
fn place() -> Place {
    Place::new(4, seed)
}

fn seed(sim: &Sim) {
    sim.add_node("edge-node-1", "uuid-1");
    sim.add_node("n2", "uuid-2");
    sim.add_stateful_set("shop", "web", 2);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 2 }));
    sim.add_daemon_set("kube-system", "agent");
}

impl Place {
    fn plan(&self, words: &str) -> Ended {
        let told = self.node.drain(&format!("plan {words}"));
        let written: Vec<_> =
            self.sim.faults().requests().into_iter().filter(|it| it.method != "GET").collect();
        assert!(written.is_empty(), "a plan writes nothing: {written:?}");
        told
    }
}

/// Without the finding of a nearly full disk, which may be this machine's.
fn without_this_disk(sheet: &str) -> String {
    let mut of_it = false;
    let kept = sheet.lines().filter(|line| {
        let goes_on = line.starts_with(' ') || of_it && line.starts_with("next step");
        of_it = line.starts_with("finding    [disk]") || of_it && goes_on;
        !of_it
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn o5_the_plan_of_this_device_names_pods_blockers_and_the_next_step() {
    let place = place();
    let told = place.plan("");
    assert_eq!(told.code, 4, "{told:?}");
    assert_eq!(told.err, "");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "POD CLASS TIER PRIORITY BUDGETS shop/web-0",
        " evict application 0 web ",
        "kube-system/agent-edge-node-1 keep-daemonset application 0 - ",
        "blocked [budget-stuck] pod shop/web-",
        "PodDisruptionBudget shop/web allows no disruption: 2 of 2 pods healthy, 2 required",
        "next step waiting does not help; this lets one pod go: `kubectl -n shop patch pdb web --type merge -p",
        "node edge-node-1, cordon none: 2 pods; 1 leave, 0 going, 1 stay; 1 would be blocked; order: application 1",
    ] {
        assert!(said.contains(words), "no `{words}` in {}", told.out);
    }
    assert_eq!(shown("zedbox plan"), without_this_disk(&told.out), "docs/operate differs");
    assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{}", told.out);
}

/// Row 3-22.
#[test]
fn the_plan_names_the_steps_of_the_written_procedure_in_its_order() {
    let place = place();
    place.sim.add_claim("shop", "data", "pvc-1");
    place.sim.add_mounting_pod("shop", "db", "edge-node-1", "data");
    let steps = |words: &str| -> Vec<String> {
        let all = place.plan(&format!("{words} -o json")).json()["Steps"].clone();
        serde_json::from_value(all).unwrap()
    };
    let said = steps("");
    assert_eq!(said[..4], ["preflight", "turn", "hooks", "cordon"]);
    assert_eq!(said.last().map(String::as_str), Some("COMPLETE"));
    let operate = fs::read_to_string(top().join("docs/operate/before-a-drain.md")).unwrap();
    let written: Vec<&str> = operate
        .split_once("| Step | By hand |")
        .map(|(_, table)| table.lines().skip(2).map_while(|line| line.strip_prefix("| `")?.split('`').next()))
        .unwrap()
        .collect();
    let place_of = |step: &String| written.iter().position(|it| step.starts_with(it));
    let places: Vec<_> = said.iter().map(place_of).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{said:?} {written:?}");
    assert!(said.contains(&"pods of tier application (2)".to_owned()), "{said:?}");
    // A skipped step is not listed.
    place.sim.edit("nodes", "", "edge-node-1", |it| it["spec"]["unschedulable"] = true.into());
    place.node.put("limits.json", r#"{"zedkube":{"take_turns":false}}"#);
    let less = steps(&format!("--limits {}", place.node.path("limits.json").display()));
    assert_eq!(less[..2], ["preflight", "hooks"], "{less:?}");
}

#[test]
fn u6_a_certificate_of_the_api_server_that_ends_within_a_day_stops_a_drain_until_it_is_renewed() {
    let hours = |it: u64| Duration::from_secs(it * 3600);
    let now = SystemTime::from(agent::Clock::new().wall().to_timestamp());
    let place = Place::over_tls(4, seed, now - hours(1)..now + hours(12));
    place.node.put("limits.json", r#"{"zedkube":{"preflight_stops":["certificates"]}}"#);
    let plan = || place.plan(&format!("--limits {}", place.node.path("limits.json").display()));
    place.sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(1));
    for (ends, code, expected) in [
        (None, 4, "finding [certificates] blocks: certificates that expire within a day"),
        (Some(hours(100)), 0, "finding [certificates] warns: certificates that expire within 7"),
        (Some(hours(24 * 300)), 0, ""),
    ] {
        if let Some(ends) = ends {
            place.server.renew(now - hours(1)..now + ends);
        }
        let told = plan();
        let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((told.code, said.contains("[certificates]")), (code, !expected.is_empty()), "{told:?}");
        assert!(said.contains(expected), "no `{expected}` in {}", told.out);
    }
    // Expired, or not yet valid: such a server is not usable.
    for dates in [now - hours(3)..now - hours(2), now + hours(2)..now + hours(3)] {
        place.server.renew(dates);
        let told = plan();
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{told:?}");
        assert!(told.err.contains("certificate"), "{told:?}");
    }
}

#[test]
fn o5_a_plan_for_programs_is_one_object_with_the_members_of_the_topics() {
    let place = place();
    place.sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(1));
    let told = place.plan("--node n2 -o json");
    assert_eq!(told.code, 0, "{told:?}");
    let plan: Value = serde_json::from_str(&told.out).unwrap();
    let members: Vec<&str> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    let all =
        "Blockers Cordon Counts Findings Machines Node Notes Peers Pods ResourceVersions Steps Tiers Volumes";
    assert_eq!(members.join(" "), all);
    assert_eq!((&plan["Node"], &plan["Blockers"]), (&json!("n2"), &json!([])));
    assert_eq!(plan["Counts"], json!({"Total": 2, "Leave": 1, "Going": 0, "Keep": 1, "Blocked": 0}));
    assert_eq!(plan["Peers"], json!([{"Node": "edge-node-1", "Closed": ""}]));
    assert_eq!(plan["Tiers"], json!([{"Tier": "application", "Pods": 1}]));
    let pod = &plan["Pods"][0];
    assert_eq!((&pod["Class"], &pod["Budgets"]), (&json!("evict"), &json!(["web"])));
    assert!(pod["Workload"].as_str().unwrap().starts_with("StatefulSet/web"), "{pod}");

    place.sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(2));
    let held: Value = serde_json::from_str(&place.plan("-o json").out).unwrap();
    let first = &held["Blockers"][0];
    assert_eq!(first["Code"], "budget-stuck");
    assert_eq!(first["Pod"], held["Pods"][0]["Pod"]);
    assert_eq!(first["UID"], held["Pods"][0]["UID"]);
    assert!(first["NextStep"].as_str().unwrap().contains("patch pdb web"));
}

#[test]
fn what_stands_in_the_way_of_a_plan_is_named_with_the_next_step() {
    let place = place();
    let told = place.plan("--node n9");
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert!(
        told.err.contains("nodes \"n9\" not found; check the name with kubectl get nodes"),
        "{}",
        told.err
    );
    let told = place.plan("--node N_9");
    assert!(told.code == 1 && told.err.contains("as a node name"), "{told:?}");
    drop(place);

    let node = Node::empty();
    let told = node.drain("plan");
    let file = node.path("run/zedagent/EdgeNodeInfo/global.json");
    assert!(told.code == 1 && told.err.contains("--root DIR") && told.err.contains("--node"), "{told:?}");
    assert!(told.err.contains(&format!("{} (the agents write it", file.display())), "{}", told.err);
    let told = node.drain("plan --node n1");
    assert_eq!(told.code, 1);
    assert!(told.err.contains("k3s.yaml") && told.err.contains("k3s writes it at start"), "{}", told.err);
}

#[test]
fn u6_a_plan_shows_what_the_preflight_finds_and_ends_with_4_where_it_stops_the_drain() {
    let place = place();
    place.sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(1));
    let longhorn = |kind: &str, name: &str, status: Value| {
        let meta = json!({ "name": name, "namespace": "longhorn-system" });
        place.sim.apply(&format!("longhorn/{kind}"), json!({ "metadata": meta, "status": status }));
    };
    longhorn("volumes", "pvc-1", json!({ "robustness": "degraded" }));
    let told = place.plan("-o json");
    assert_eq!(told.code, 0, "{told:?}");
    let found = &told.json()["Findings"][0];
    assert_eq!((&found["Code"], &found["Severity"]), (&json!("volumes"), &json!("warns")));
    assert!(found["NextStep"].as_str().unwrap().contains("kubectl"), "{found}");
    longhorn("backups", "b1", json!({ "state": "InProgress" }));
    let told = place.plan("");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(told.code, 4, "{told:?}");
    assert!(said.contains("finding [backups] blocks: backups in progress: b1"), "{said}");
    // A passed finding no longer counts, with this code and on this node only.
    for (code, ends) in [("clock", 4), ("backups", 0)] {
        assert_eq!(place.node.drain(&format!("go --past preflight:{code} --reason hangs")).code, 0);
        assert_eq!(place.plan("").code, ends, "{code}");
    }
    let by = place.plan("-o json").json()["Findings"][0]["PassedBy"].as_str().unwrap().to_owned();
    assert!(by.ends_with(": hangs"), "{by}");
    assert!(place.plan("").out.contains("[backups] blocks, passed by "));
    assert_eq!(place.plan("--node edge-node-1").code, 4, "as planned from elsewhere");
    place.node.put(PASS_FILE, "{");
    let told = place.plan("");
    assert!(told.code == 4 && told.out.contains("no finding is passed"), "{told:?}");
}

#[test]
fn a_plan_of_this_node_says_who_has_paused_it_and_when_its_windows_open() {
    let place = place();
    place.sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(1));
    place.windows_on_leap_days();
    let steps = || place.plan("-o json").json()["Steps"].clone();
    assert_eq!(steps()[0], "window");
    assert_eq!(place.node.drain("pause --reason disk --for 2h").code, 0);
    let told = place.plan("");
    let said = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "finding [pause] warns: operations of this node are paused by ",
        ": disk, since ",
        " UTC, until ",
        "then, on this node: `sudo zedbox resume` finding [window] hint: outside its windows: \"0 0 29 2 *\" UTC opens next, ",
        "`zedbox go --past window --reason '...'`",
        "steps window, preflight, turn, ",
    ] {
        assert!(told.code == 0 && said.contains(words), "no `{words}` in {}", told.out);
    }
    assert!(!place.plan("--node edge-node-1").out.contains("[pause]"), "as planned from elsewhere");
}

#[test]
fn u6_findings_are_passed_by_name_with_a_reason_in_a_file_for_root_alone_and_no_longer_once_that_is_removed()
{
    let node = Node::of("cluster-idle");
    assert_eq!(node.drain("go --past preflight:backups").code, 2);
    assert_eq!(node.drain("go --past preflight:weather --reason r").code, 2);
    assert_eq!(node.drain("go --past preflight:backups --past preflight:clock --undo").code, 1);
    let told = node.drain("go --past preflight:backups --past preflight:clock --reason hangs -o json");
    assert_eq!((told.code, &told.json()["Codes"]), (0, &json!(["backups", "clock"])), "{told:?}");
    let order = PreflightPass::read(node.text(PASS_FILE).as_bytes()).unwrap();
    assert_eq!((order.codes.len(), order.reason.as_str()), (2, "hangs"));
    assert!(!order.by.is_empty());
    assert_eq!(fs::metadata(node.path(PASS_FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(node.drain("go --past preflight:backups --past preflight:clock --undo").code, 0);
    assert!(!node.path(PASS_FILE).exists());
}
