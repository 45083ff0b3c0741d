//! `zedbox plan`: a table or an object, no write, and the next step when it fails.

use std::fs;
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
        assert_eq!(self.written(), [], "a plan writes nothing");
        told
    }

    /// The budget of the shop lets so many pods stay.
    fn keeps(&self, least: u32) {
        let edit = |it: &mut Value| it["spec"]["minAvailable"] = least.into();
        self.sim.edit("policy/poddisruptionbudgets", "shop", "web", edit);
    }

    /// The limits file with this of zedkube, and the option that names it.
    fn limits(&self, zedkube: &Value) -> String {
        self.node.put("limits.json", &json!({ "zedkube": zedkube }).to_string());
        format!("--limits {}", self.node.path("limits.json").display())
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
    let told = place.plan("").ends(4).says(&["POD CLASS TIER PRIORITY BUDGETS shop/web-0",
        " evict application 0 web ",
        "kube-system/agent-edge-node-1 keep-daemonset application 0 - ",
        "blocked [budget-stuck] pod shop/web-",
        "PodDisruptionBudget shop/web allows no disruption: 2 of 2 pods healthy, 2 required",
        "next step waiting does not help; this lets one pod go: `kubectl -n shop patch pdb web --type merge -p",
        "node edge-node-1, cordon none: 2 pods; 1 leave, 0 going, 1 stay; 1 would be blocked; order: application 1",]);
    assert_eq!(told.err, "");
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
    let table = operate.split_once("| Step | By hand |").unwrap().1.lines().skip(2);
    let written: Vec<&str> = table.map_while(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let place_of = |step: &String| written.iter().position(|it| step.starts_with(it));
    let places: Vec<_> = said.iter().map(place_of).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{said:?} {written:?}");
    assert!(said.contains(&"pods of tier application (2)".to_owned()), "{said:?}");
    // A skipped step is not listed.
    place.sim.edit("nodes", "", "edge-node-1", |it| it["spec"]["unschedulable"] = true.into());
    let less = steps(&place.limits(&json!({ "take_turns": false })));
    assert_eq!(less[..2], ["preflight", "hooks"], "{less:?}");
}

#[test]
fn u6_a_certificate_of_the_api_server_that_ends_within_a_day_stops_a_drain_until_it_is_renewed() {
    let hours = |it: u64| Duration::from_secs(it * 3600);
    let now = SystemTime::from(agent::Clock::new().wall().to_timestamp());
    let place = Place::over_tls(4, seed, now - hours(1)..now + hours(12));
    let limits = place.limits(&json!({ "preflight_stops": ["certificates"] }));
    let plan = || place.plan(&limits);
    place.keeps(1);
    for (ends, code, expected) in [
        (None, 4, "finding [certificates] blocks: certificates that expire within a day"),
        (Some(hours(100)), 0, "finding [certificates] warns: certificates that expire within 7"),
        (Some(hours(24 * 300)), 0, ""),
    ] {
        if let Some(ends) = ends {
            place.server.renew(now - hours(1)..now + ends);
        }
        let told = plan().ends(code).says(&[expected]);
        assert_eq!(told.out.contains("[certificates]"), !expected.is_empty(), "{told:?}");
    }
    // Expired, or not yet valid: such a server is not usable.
    for dates in [now - hours(3)..now - hours(2), now + hours(2)..now + hours(3)] {
        place.server.renew(dates);
        plan().refused(&["certificate"]);
    }
}

#[test]
fn o5_a_plan_for_programs_is_one_object_with_the_members_of_the_topics() {
    let place = place();
    place.keeps(1);
    let plan = place.plan("--node n2 -o json").ends(0).json();
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

    place.keeps(2);
    let held = place.plan("-o json").json();
    let first = &held["Blockers"][0];
    assert_eq!(first["Code"], "budget-stuck");
    assert_eq!(first["Pod"], held["Pods"][0]["Pod"]);
    assert_eq!(first["UID"], held["Pods"][0]["UID"]);
    assert!(first["NextStep"].as_str().unwrap().contains("patch pdb web"));
}

#[test]
fn what_stands_in_the_way_of_a_plan_is_named_with_the_next_step() {
    let place = place();
    place.plan("--node n9").refused(&["nodes \"n9\" not found; check the name with kubectl get nodes"]);
    place.plan("--node N_9").ends(1).warns(&["as a node name"]);
    drop(place);

    let node = Node::empty();
    let file =
        node.path("run/zedagent/EdgeNodeInfo/global.json").display().to_string() + " (the agents write it";
    node.drain("plan").ends(1).warns(&["--root DIR", "--node", &file]);
    node.drain("plan --node n1").ends(1).warns(&["k3s.yaml", "k3s writes it at start"]);
}

#[test]
fn u6_a_plan_shows_what_the_preflight_finds_and_ends_with_4_where_it_stops_the_drain() {
    let place = place();
    place.keeps(1);
    let longhorn = |kind: &str, name: &str, status: Value| {
        let meta = json!({ "name": name, "namespace": "longhorn-system" });
        place.sim.apply(&format!("longhorn/{kind}"), json!({ "metadata": meta, "status": status }));
    };
    longhorn("volumes", "pvc-1", json!({ "robustness": "degraded" }));
    let found = place.plan("-o json").ends(0).json()["Findings"][0].clone();
    assert_eq!((&found["Code"], &found["Severity"]), (&json!("volumes"), &json!("warns")));
    assert!(found["NextStep"].as_str().unwrap().contains("kubectl"), "{found}");
    longhorn("backups", "b1", json!({ "state": "InProgress" }));
    place.plan("").ends(4).says(&["finding [backups] blocks: backups in progress: b1"]);
    // A passed finding no longer counts, with this code and on this node only.
    for (code, ends) in [("clock", 4), ("backups", 0)] {
        place.node.drain(&format!("go --past preflight:{code} --reason hangs")).ends(0);
        place.plan("").ends(ends);
    }
    let by = place.plan("-o json").json()["Findings"][0]["PassedBy"].clone();
    assert!(by.as_str().unwrap().ends_with(": hangs"), "{by}");
    place.plan("").says(&["[backups] blocks, passed by "]);
    // As planned from elsewhere.
    place.plan("--node edge-node-1").ends(4);
    place.node.put(PASS_FILE, "{");
    place.plan("").ends(4).says(&["no finding is passed"]);
}

#[test]
fn a_plan_of_this_node_says_who_has_paused_it_and_when_its_windows_open() {
    let place = place();
    place.keeps(1);
    place.windows_on_leap_days();
    let steps = || place.plan("-o json").json()["Steps"].clone();
    assert_eq!(steps()[0], "window");
    place.node.drain("pause --reason disk --for 2h").ends(0);
    place.plan("").ends(0).says(&[
        "finding [pause] warns: operations of this node are paused by ",
        ": disk, since ",
        " UTC, until ",
        "then, on this node: `sudo zedbox resume` finding [window] hint: outside its windows: \"0 0 29 2 *\" UTC opens next, ",
        "`zedbox go --past window --reason '...'`",
        "steps window, preflight, turn, ",
    ]);
    assert!(!place.plan("--node edge-node-1").out.contains("[pause]"), "as planned from elsewhere");
}

#[test]
fn u6_findings_are_passed_by_name_with_a_reason_in_a_file_for_root_alone_and_no_longer_once_that_is_removed()
{
    let node = Node::of("cluster-idle");
    let both = "go --past preflight:backups --past preflight:clock";
    node.drain("go --past preflight:backups").ends(2);
    node.drain("go --past preflight:weather --reason r").ends(2);
    node.drain(&format!("{both} --undo")).ends(1);
    let json = node.drain(&format!("{both} --reason hangs -o json")).ends(0).json();
    assert_eq!(json["Codes"], json!(["backups", "clock"]));
    let order = PreflightPass::read(node.text(PASS_FILE).as_bytes()).unwrap();
    assert_eq!((order.codes.len(), order.reason.as_str()), (2, "hangs"));
    assert!(!order.by.is_empty());
    assert_eq!(node.mode(PASS_FILE), 0o600);
    node.drain("go --past preflight:backups --past preflight:clock --undo").ends(0);
    assert!(!node.path(PASS_FILE).exists());
}
