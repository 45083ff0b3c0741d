//! Writes of `zedbox lock`: a release, a mark on a node, the limit; outdated arguments and lost races.

use kubesim::ScriptedFault;
use serde_json::{Value, json};

use crate::drain_cmd::lock::{LEASE, place};
use crate::drain_cmd::node::holds;
use crate::drain_cmd::place::Place;

const SINCE: &str = "2026-03-14T09:30:30Z";
const THEIRS: &str = "example.com/theirs";

fn record(place: &Place) -> Value {
    place.sim.get("coordination/leases", "eve-kube-app", LEASE).unwrap()
}

/// Our annotation, as JSON.
fn note(lease: &Value, key: &str) -> Value {
    let text = lease["metadata"]["annotations"][format!("pillar-rs/outage-{key}")].as_str();
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// Methods and paths of requests, in order.
fn asked(place: &Place) -> Vec<String> {
    let path = |uri: &str| uri.split('?').next().unwrap().to_owned();
    place.sim.faults().requests().iter().map(|it| format!("{} {}", it.method, path(&it.uri))).collect()
}

#[test]
fn a_release_names_its_turn_and_is_kept_with_who_and_why() {
    let place = place();
    place.turns(SINCE);
    let before = record(&place);
    let told = place.lock("release n2 --fence 7 --reason 'its board is dead'").done().says(&[
        "Released the turn of node n2 (reboot, phase drained, fence 7), by operator field on ",
        ": its board is dead. When node n2 looks next, it stops",
        "Node n3 is first in the queue.",
    ]);
    assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{}", told.out);
    let after = record(&place);
    assert_eq!(note(&after, "holders"), json!([]));
    assert_eq!(note(&after, "queue"), note(&before, "queue"));
    let (kept, uid) = (&note(&after, "forced")[1], note(&before, "holders")[0]["nodeUID"].clone());
    holds(kept, &json!({ "node": "n2", "nodeUID": uid, "fence": 7, "why": "its board is dead" }));
    assert!(kept["who"].as_str().unwrap().starts_with("operator field on "), "{kept}");
    assert!(kept["when"].as_str().unwrap().starts_with("20"), "{kept}");
    // The same object, without a grant; foreign annotations stay.
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(after["metadata"]["annotations"][THEIRS], "kept");
    holds(&after["spec"], &json!({ "leaseTransitions": 7, "holderIdentity": "" }));
    place.lock("status").says(&["released node n2, fence 7; by operator field on "]);
}

#[test]
fn a_release_of_a_turn_that_is_not_the_present_one_is_refused() {
    let place = place();
    place.turns(SINCE);
    for (node, fence) in [("n2", 6), ("n3", 7)] {
        let why =
            format!("node {node} does not hold a turn with fence {fence}; current holders: n2 (fence 7)");
        let told = place.lock(&format!("release {node} --fence {fence} --reason x"));
        told.refused(&[&why, "look again: zedbox lock status"]);
    }
    for reason in ["", "two\nlines"] {
        place.lock(&format!("release n2 --fence 7 --reason '{reason}'")).ends(1).warns(&["the reason "]);
    }
    assert!(place.sim.remove("coordination/leases", "eve-kube-app", LEASE));
    place.lock("release n2 --fence 7 --reason x").ends(1).warns(&["current holders: none"]);
    assert_eq!(place.written(), []);
}

#[test]
fn a_lost_race_is_made_again_from_a_fresh_reading_five_times_at_most() {
    let place = place();
    place.turns(SINCE);
    place.sim.faults().script("PUT", LEASE, 4, ScriptedFault::status(409, "Conflict"));
    let told = place.lock("release n2 --fence 7 --reason x -o json").ends(0);
    assert_eq!(told.json(), json!({ "Result": "released", "Node": "n2", "Fence": 7, "Limit": null }));
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases/{LEASE}");
    let once = [format!("GET {lease}"), format!("PUT {lease}")];
    assert_eq!(asked(&place), std::iter::repeat_n(once, 5).flatten().collect::<Vec<_>>());

    place.sim.faults().script("PUT", LEASE, 5, ScriptedFault::status(409, "Conflict"));
    place.lock("limit 2").ends(1).warns(&[
        "write lease eve-kube-app/pillar-rs-outage: somebody else wrote it first, 5 times; type the command again",
    ]);
    assert_eq!(place.sim.faults().count("PUT", LEASE), 10);

    place.sim.faults().script("PATCH", "/nodes/n4", 2, ScriptedFault::status(409, "Conflict"));
    place.lock("ignore n4 --reason x").ends(0);
    assert_eq!(place.sim.faults().count("PATCH", "/nodes/n4"), 3);
}

#[test]
fn a_node_is_ignored_and_counted_again() {
    let place = place();
    place.turns(SINCE);
    place.annotate("n4", THEIRS, "kept");
    place
        .lock("ignore n4 --reason 'in repair'")
        .done()
        .says(&["Node n4 does not count as down from now on, by operator field on "]);
    let node = place.sim.get("nodes", "", "n4").unwrap();
    let mark = node["metadata"]["annotations"]["pillar-rs/outage-ignore"].as_str().unwrap();
    let mark: Value = serde_json::from_str(mark).unwrap();
    assert_eq!(mark["why"], "in repair");
    assert!(mark["who"].as_str().unwrap().starts_with("operator field on "), "{mark}");
    assert_eq!(node["metadata"]["annotations"][THEIRS], "kept");
    let shown = place.lock("status -o json").json();
    assert_eq!(shown["Down"].as_array().unwrap().len(), 1, "{shown}");
    holds(&shown["Ignored"][0], &json!({ "Node": "n4", "Counts": false }));

    for result in ["counted", "unchanged"] {
        assert_eq!(place.lock("ignore n4 --undo -o json").ends(0).json()["Result"], result);
        assert_eq!(place.written().len(), 2, "{result}");
    }
    let node = place.sim.get("nodes", "", "n4").unwrap();
    assert_eq!(node["metadata"]["annotations"]["pillar-rs/outage-ignore"], Value::Null);
    assert_eq!(place.lock("status -o json").json()["Down"].as_array().unwrap().len(), 2);
}

#[test]
fn a_member_of_etcd_is_not_ignored_and_a_node_that_is_not_there_is_named() {
    let place = place();
    let member = "node n1 is a member of etcd and always counts; delete the node if it is gone for good";
    for (words, why) in [
        ("ignore n1 --reason x", member),
        ("ignore n9 --reason x", "check the name with kubectl get nodes"),
        ("ignore n9 --undo", "check the name with kubectl get nodes"),
        ("ignore N_9 --undo", "as a node name"),
    ] {
        place.lock(words).refused(&[why]);
    }
    assert_eq!(place.written(), []);
    // A hand-written mark.
    place.cordon("n1", true);
    place.annotate("n1", "pillar-rs/outage-ignore", "gone");
    place
        .lock("status")
        .says(&["node n1 is a member of etcd and counts all the same; by gone", "down node n1 is cordoned"]);
}

#[test]
fn the_limit_is_set_also_before_any_node_asked_for_a_turn() {
    let place = place();
    // The rest of a turn in a deleted Lease.
    let mark = json!({
        "bootId": "b1", "requestedBy": 2, "requestedAt": "2026-03-14T09:26:53Z", "fence": 12, "leaseUid": "gone",
    });
    place.annotate("n4", "pillar-rs/cordon-owner", &mark.to_string());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases";
    place.sim.faults().script("POST", leases, 1, ScriptedFault::status(409, "AlreadyExists"));
    let limit = "2 nodes may be down at once (before: 1); of the control plane it is always one.";
    place.lock("limit 2").done().begins(limit);
    let lease = record(&place);
    assert_eq!(note(&lease, "limit"), json!(2));
    assert_eq!(note(&lease, "holders")[0]["node"], "n4");
    // Its number is not ours: the Lease that it names is gone.
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    let round = [format!("GET {leases}/{LEASE}"), "GET /api/v1/nodes".to_owned(), format!("POST {leases}")];
    assert_eq!(asked(&place), [round.clone(), round].concat());

    let told = place.lock("limit 2 -o json");
    assert_eq!(told.json(), json!({ "Result": "unchanged", "Node": "", "Fence": null, "Limit": 2 }));
    place.lock("limit 1").ends(0);
    assert_eq!(note(&record(&place), "limit"), json!(1));
    assert_eq!(place.sim.faults().count("PUT", LEASE), 1);
}
