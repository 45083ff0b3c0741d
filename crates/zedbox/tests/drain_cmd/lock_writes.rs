//! Writes of `zedbox lock`: a release, a mark on a node, the limit; outdated arguments and lost races.

use kubesim::ScriptedFault;
use serde_json::{Value, json};

use crate::drain_cmd::lock::{LEASE, place, words};
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
    let told = place.lock("release n2 --fence 7 --reason", &["its board is dead"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    assert!(told.out.lines().all(|line| line.chars().count() <= 80), "{}", told.out);
    let said = words(&told.out);
    for part in [
        "Released the turn of node n2 (reboot, phase drained, fence 7), by operator field on ",
        ": its board is dead. When node n2 looks next, it stops",
        "Node n3 is first in the queue.",
    ] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    let after = record(&place);
    assert_eq!(note(&after, "holders"), json!([]));
    assert_eq!(note(&after, "queue"), note(&before, "queue"));
    let kept = &note(&after, "forced")[1];
    assert_eq!(
        (&kept["node"], &kept["fence"], &kept["why"]),
        (&json!("n2"), &json!(7), &json!("its board is dead"))
    );
    assert_eq!(kept["nodeUID"], note(&before, "holders")[0]["nodeUID"]);
    assert!(kept["who"].as_str().unwrap().starts_with("operator field on "), "{kept}");
    assert!(kept["when"].as_str().unwrap().starts_with("20"), "{kept}");
    // The same object, without a grant; foreign annotations stay.
    let meta = |lease: &Value, member: &str| lease["metadata"][member].clone();
    assert_eq!(meta(&after, "uid"), meta(&before, "uid"));
    assert_ne!(meta(&after, "resourceVersion"), meta(&before, "resourceVersion"));
    assert_eq!(after["metadata"]["annotations"][THEIRS], "kept");
    assert_eq!(
        (&after["spec"]["leaseTransitions"], &after["spec"]["holderIdentity"]),
        (&json!(7), &json!(""))
    );
    let shown = words(&place.lock("status", &[]).out);
    assert!(shown.contains("released node n2, fence 7; by operator field on "), "{shown}");
}

#[test]
fn a_release_of_a_turn_that_is_not_the_present_one_is_refused() {
    let place = place();
    place.turns(SINCE);
    for (words, why) in [
        ("release n2 --fence 6", "node n2 does not hold a turn with fence 6; current holders: n2 (fence 7)"),
        ("release n3 --fence 7", "node n3 does not hold a turn with fence 7; current holders: n2 (fence 7)"),
    ] {
        let told = place.lock(&format!("{words} --reason x"), &[]);
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{told:?}");
        assert!(
            told.err.contains(why) && told.err.contains("look again: zedbox lock status"),
            "{}",
            told.err
        );
    }
    for reason in ["", "two\nlines"] {
        let told = place.lock("release n2 --fence 7 --reason", &[reason]);
        assert!(told.code == 1 && told.err.contains("the reason "), "{told:?}");
    }
    assert!(place.sim.remove("coordination/leases", "eve-kube-app", LEASE));
    let told = place.lock("release n2 --fence 7 --reason x", &[]);
    assert!(told.code == 1 && told.err.contains("current holders: none"), "{told:?}");
    assert_eq!(place.written(), []);
}

#[test]
fn a_lost_race_is_made_again_from_a_fresh_reading_five_times_at_most() {
    let place = place();
    place.turns(SINCE);
    place.sim.faults().script("PUT", LEASE, 4, ScriptedFault::status(409, "Conflict"));
    let told = place.lock("release n2 --fence 7 --reason x -o json", &[]);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.json(), json!({ "Result": "released", "Node": "n2", "Fence": 7, "Limit": null }));
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases/{LEASE}");
    let once = [format!("GET {lease}"), format!("PUT {lease}")];
    assert_eq!(asked(&place), std::iter::repeat_n(once, 5).flatten().collect::<Vec<_>>());

    place.sim.faults().script("PUT", LEASE, 5, ScriptedFault::status(409, "Conflict"));
    let told = place.lock("limit 2", &[]);
    assert_eq!(told.code, 1);
    let why = "write lease eve-kube-app/pillar-rs-outage: somebody else wrote it first, 5 times; type the command again";
    assert!(told.err.contains(why), "{}", told.err);
    assert_eq!(place.sim.faults().count("PUT", LEASE), 10);

    place.sim.faults().script("PATCH", "/nodes/n4", 2, ScriptedFault::status(409, "Conflict"));
    assert_eq!(place.lock("ignore n4 --reason x", &[]).code, 0);
    assert_eq!(place.sim.faults().count("PATCH", "/nodes/n4"), 3);
}

#[test]
fn a_node_is_ignored_and_counted_again() {
    let place = place();
    place.turns(SINCE);
    place.sim.edit("nodes", "", "n4", |it| it["metadata"]["annotations"][THEIRS] = json!("kept"));
    let told = place.lock("ignore n4 --reason", &["in repair"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    assert!(
        words(&told.out).contains("Node n4 does not count as down from now on, by operator field on "),
        "{}",
        told.out
    );
    let node = place.sim.get("nodes", "", "n4").unwrap();
    let mark = node["metadata"]["annotations"]["pillar-rs/outage-ignore"].as_str().unwrap();
    let mark: Value = serde_json::from_str(mark).unwrap();
    assert_eq!(mark["why"], "in repair");
    assert!(mark["who"].as_str().unwrap().starts_with("operator field on "), "{mark}");
    assert_eq!(node["metadata"]["annotations"][THEIRS], "kept");
    let shown = place.lock("status -o json", &[]).json();
    assert_eq!(shown["Down"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!((&shown["Ignored"][0]["Node"], &shown["Ignored"][0]["Counts"]), (&json!("n4"), &json!(false)));

    for (result, present) in [("counted", true), ("unchanged", false)] {
        let told = place.lock("ignore n4 --undo -o json", &[]);
        assert_eq!((told.code, &told.json()["Result"]), (0, &json!(result)), "{told:?}");
        assert_eq!(place.written().len(), 2, "{present}");
    }
    let node = place.sim.get("nodes", "", "n4").unwrap();
    assert_eq!(node["metadata"]["annotations"]["pillar-rs/outage-ignore"], Value::Null);
    assert_eq!(place.lock("status -o json", &[]).json()["Down"].as_array().unwrap().len(), 2);
}

#[test]
fn a_member_of_etcd_is_not_ignored_and_a_node_that_is_not_there_is_named() {
    let place = place();
    for (words, why) in [
        (
            "ignore n1 --reason x",
            "node n1 is a member of etcd and always counts; delete the node if it is gone for good",
        ),
        ("ignore n9 --reason x", "check the name with kubectl get nodes"),
        ("ignore n9 --undo", "check the name with kubectl get nodes"),
        ("ignore N_9 --undo", "as a node name"),
    ] {
        let told = place.lock(words, &[]);
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{words}: {told:?}");
        assert!(told.err.contains(why), "{words}: {}", told.err);
    }
    assert_eq!(place.written(), []);
    // A hand-written mark.
    place.sim.edit("nodes", "", "n1", |it| {
        it["spec"]["unschedulable"] = json!(true);
        it["metadata"]["annotations"]["pillar-rs/outage-ignore"] = json!("gone");
    });
    let shown = words(&place.lock("status", &[]).out);
    assert!(shown.contains("node n1 is a member of etcd and counts all the same; by gone"), "{shown}");
    assert!(shown.contains("down node n1 is cordoned"), "{shown}");
}

#[test]
fn the_limit_is_set_also_before_any_node_asked_for_a_turn() {
    let place = place();
    // The rest of a turn in a deleted Lease.
    let mark = json!({
        "bootId": "b1", "requestedBy": 2, "requestedAt": "2026-03-14T09:26:53Z", "fence": 12, "leaseUid": "gone",
    });
    let mark = mark.to_string();
    place.sim.edit("nodes", "", "n4", |it| {
        it["metadata"]["annotations"]["pillar-rs/cordon-owner"] = mark.as_str().into();
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases";
    place.sim.faults().script("POST", leases, 1, ScriptedFault::status(409, "AlreadyExists"));
    let told = place.lock("limit 2", &[]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    let said = words(&told.out);
    assert!(
        said.starts_with("2 nodes may be down at once (before: 1); of the control plane it is always one."),
        "{said}"
    );
    let lease = record(&place);
    assert_eq!(note(&lease, "limit"), json!(2));
    assert_eq!(note(&lease, "holders")[0]["node"], "n4");
    // Its number is not ours: the Lease that it names is gone.
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    let round = [format!("GET {leases}/{LEASE}"), "GET /api/v1/nodes".to_owned(), format!("POST {leases}")];
    assert_eq!(asked(&place), [round.clone(), round].concat());

    let told = place.lock("limit 2 -o json", &[]);
    assert_eq!(told.json(), json!({ "Result": "unchanged", "Node": "", "Fence": null, "Limit": 2 }));
    assert_eq!(place.lock("limit 1", &[]).code, 0);
    assert_eq!(note(&record(&place), "limit"), json!(1));
    assert_eq!(place.sim.faults().count("PUT", LEASE), 1);
}
