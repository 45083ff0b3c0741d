//! The Node object: which bytes are sent, and what is made of what comes back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{Cordoned, cordon, facts, others, read, uncordon_own};
use kubeapi::Error;
use kubeapi::client::PROBE_LIMIT;
use kubeapi::mock::{self, AfterLines, MockReply};
use kubeapi::names::NodeName;
use kubeapi::names::OWNER_ANNOTATION;
use kubeapi::nodes::CordonAnnotation;
use kubeapi::nodes::probe;
use kubeapi::reply::Reach;
use step::Mono;
use topics::CordonOwner;

const DEVICE: &str = "a5a4e5c1-0000-4000-8000-000000000001";

fn node_object(unschedulable: bool, annotation: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "resourceVersion": "77", "labels": {"node-uuid": DEVICE},
            "annotations": annotation.map(|text| json!({ OWNER_ANNOTATION: text }))},
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn name() -> NodeName {
    NodeName::parse("n1").unwrap()
}

fn owner() -> CordonAnnotation {
    CordonAnnotation {
        boot_id: "b1".to_owned(),
        requested_by: 2,
        requested_at: "2025-01-01T00:00:00Z".to_owned(),
        ..CordonAnnotation::default()
    }
}

const NOW: (&str, Mono) = ("b1", Mono::from_start(Duration::from_secs(100)));
const OURS: &str = r#"{"bootId":"b1","requestedBy":2,"requestedAt":"2025-01-01T00:00:00Z"}"#;
const EARLIER: &str = r#"{"bootId":"b0","requestedBy":3,"requestedAt":"2024-01-01T00:00:00Z"}"#;

#[tokio::test(start_paused = true)]
async fn the_own_node_is_read_by_name_and_recognised_by_its_label() {
    let (cluster, calls) = mock::cluster(vec![mock::object(&node_object(false, None))]);
    let facts = read(&cluster, &name(), &DEVICE.to_uppercase()).await.unwrap();
    assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"]);
    assert!(facts.ready && !facts.unschedulable && !facts.tie_breaker);
    assert_eq!(facts.cordon, CordonOwner::None);

    let (cluster, _) = mock::cluster(vec![mock::object(&node_object(false, None))]);
    let error = read(&cluster, &name(), "another").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("find our own node: node n1 has label node-uuid={DEVICE}, this device is another")
    );
    assert!(!error.is_retryable());
}

/// Row 1-11.
#[tokio::test(start_paused = true)]
async fn our_own_node_under_another_name_is_an_error_and_a_node_of_our_name_without_a_label_only_a_fallback()
{
    let mut unlabelled = node_object(false, None);
    unlabelled["metadata"]["labels"] = json!({});
    let mut other = node_object(false, None);
    other["metadata"]["name"] = "n2".into();
    let others = |items: &[Value]| mock::list("7", items);
    let of_device = format!("GET /api/v1/nodes?&labelSelector=node-uuid%3D{DEVICE}");
    let asked = ["GET /api/v1/nodes/n1", of_device.as_str()];
    let wrong = format!(
        "find our own node: node n2 has label node-uuid={DEVICE}, which is this device's, and node n1 has not"
    );
    let n2 = || others(std::slice::from_ref(&other));
    for (named, labelled, is_ours) in [
        (mock::status(404, "no such node"), n2(), false),
        (mock::object(&unlabelled), n2(), false),
        (mock::object(&unlabelled), others(&[]), true),
        // Who may not list nodes has the name alone.
        (mock::object(&unlabelled), mock::status(403, "Forbidden"), true),
    ] {
        let (cluster, calls) = mock::cluster(vec![named, labelled]);
        let found = read(&cluster, &name(), DEVICE).await.map_err(|error| error.to_string());
        assert_eq!(found.err().as_deref(), (!is_ours).then_some(wrong.as_str()));
        assert_eq!(calls.lines(), asked);
    }
}

#[test]
fn the_facts_of_a_node_follow_its_object() {
    let facts = |value: Value| facts(&serde_json::from_value(value).unwrap()).unwrap();
    let table = [
        (node_object(false, None), CordonOwner::None, None),
        (node_object(true, None), CordonOwner::Foreign, None),
        (node_object(true, Some("{torn")), CordonOwner::Foreign, None),
        (node_object(true, Some(OURS)), CordonOwner::Ours, Some(owner())),
        (node_object(false, Some(OURS)), CordonOwner::None, Some(owner())),
    ];
    for (object, cordon, annotation) in table {
        let found = facts(object.clone());
        assert_eq!((found.cordon, found.annotation), (cordon, annotation), "{object}");
    }
    let mut spare = node_object(false, None);
    spare["metadata"]["labels"]["tie-breaker-node"] = json!("true");
    spare["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let spare = facts(spare);
    assert!(spare.tie_breaker && !spare.ready);
    // The taint alone comes from a controller that is late; the flag decides.
    let mut tainted = node_object(false, None);
    tainted["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    assert!(!facts(tainted).unschedulable);
}

#[tokio::test(start_paused = true)]
async fn d17_a_cordon_is_one_patch_of_flag_and_owner_with_the_resource_version() {
    for annotation in [None, Some(EARLIER)] {
        let answers = vec![
            mock::object(&node_object(annotation.is_some(), annotation)),
            mock::object(&node_object(true, Some(OURS))),
        ];
        let (cluster, calls) = mock::cluster(answers);
        assert_eq!(cordon(&cluster, &name(), DEVICE, &owner()).await.unwrap(), Cordoned::Written);
        let patch = calls.all().remove(1);
        assert_eq!(patch.line, "PATCH /api/v1/nodes/n1?&fieldManager=pillar-rs");
        assert_eq!(patch.content_type, "application/merge-patch+json");
        let owner = OURS.replace('"', "\\\"");
        assert_eq!(
            patch.body,
            format!(
                r#"{{"metadata":{{"annotations":{{"pillar-rs/cordon-owner":"{owner}"}},"resourceVersion":"77"}},"spec":{{"unschedulable":true}}}}"#
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn d17_a_foreign_cordon_and_one_that_is_as_wanted_are_not_written() {
    for (annotation, expected) in [(None, Cordoned::Foreign), (Some(OURS), Cordoned::Kept)] {
        let (cluster, calls) = mock::cluster(vec![mock::object(&node_object(true, annotation))]);
        assert_eq!(cordon(&cluster, &name(), DEVICE, &owner()).await.unwrap(), expected);
        assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn r4_only_a_cordon_of_ours_is_removed_flag_and_annotation_in_one_patch() {
    for (unschedulable, annotation) in [(true, EARLIER), (false, OURS)] {
        let answers = vec![
            mock::object(&node_object(unschedulable, Some(annotation))),
            mock::object(&node_object(false, None)),
        ];
        let (cluster, calls) = mock::cluster(answers);
        assert!(uncordon_own(&cluster, &name(), DEVICE, NOW).await.unwrap());
        let patch = calls.all().remove(1);
        assert_eq!(patch.line, "PATCH /api/v1/nodes/n1?&fieldManager=pillar-rs");
        assert_eq!(
            patch.body,
            r#"{"metadata":{"annotations":{"pillar-rs/cordon-owner":null,"pillar-rs/volumes-before":null},"resourceVersion":"77"},"spec":{"unschedulable":null}}"#
        );
    }
    for (unschedulable, annotation) in [(true, None), (true, Some("{torn")), (false, None)] {
        let (cluster, calls) = mock::cluster(vec![mock::object(&node_object(unschedulable, annotation))]);
        assert!(!uncordon_own(&cluster, &name(), DEVICE, NOW).await.unwrap());
        assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn u10_what_a_drain_has_recorded_of_volumes_stays_for_the_boot_in_which_its_cordon_goes() {
    let kept = r#"{"opened":["b1",100000],"volumes":{"pvc-1":true}}"#;
    let table = [
        (EARLIER, r#"{"volumes":{"pvc-1":true}}"#, json!(kept)),
        // A drain of this boot that was withdrawn; a record of a boot that is over; one that nobody can read.
        (OURS, r#"{"volumes":{"pvc-1":true}}"#, Value::Null),
        (EARLIER, r#"{"volumes":{"pvc-1":true},"opened":["b0",7]}"#, Value::Null),
        (EARLIER, "{torn", Value::Null),
    ];
    for (owner, record, expected) in table {
        let mut node = node_object(true, Some(owner));
        node["metadata"]["annotations"]["pillar-rs/volumes-before"] = record.into();
        let (cluster, calls) =
            mock::cluster(vec![mock::object(&node), mock::object(&node_object(false, None))]);
        uncordon_own(&cluster, &name(), DEVICE, NOW).await.unwrap();
        let patch: Value = serde_json::from_str(&calls.all().remove(1).body).unwrap();
        let written = &patch["metadata"]["annotations"]["pillar-rs/volumes-before"];
        assert_eq!(*written, expected, "{owner} {record}");
    }
}

/// What the server remembers: each of `managers` has written the flag.
fn written_by(mut node: Value, managers: &[&str]) -> Value {
    let entry = |manager: &&str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:unschedulable": {}}}})
    };
    let mut entries: Vec<Value> = managers.iter().map(entry).collect();
    // Every kubelet and many a person have written something else.
    entries.push(
        json!({"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:unschedulable": {}}}, "f:spec": {"f:podCIDR": {}}}}),
    );
    node["metadata"]["managedFields"] = entries.into();
    node
}

#[test]
fn r4_a_cordon_that_another_hand_has_written_since_is_not_ours() {
    let found = |node: Value, managers: &[&str]| {
        facts(&serde_json::from_value(written_by(node, managers)).unwrap()).unwrap()
    };
    let marked = || node_object(true, Some(OURS));
    let table: [(&[&str], bool); 5] = [
        (&[], true),
        (&["pillar-rs"], true),
        (&["kubectl"], false),
        (&["kubectl-cordon"], false),
        // Somebody insists on the flag beside us.
        (&["pillar-rs", "gitops"], false),
    ];
    for (managers, ours) in table {
        let expected = if ours { CordonOwner::Ours } else { CordonOwner::Foreign };
        let seen = found(marked(), managers);
        assert_eq!((seen.cordon, seen.annotation), (expected, Some(owner())), "{managers:?}");
        assert_eq!(found(node_object(false, Some(OURS)), managers).cordon, CordonOwner::None);
        assert_eq!(found(node_object(true, None), managers).cordon, CordonOwner::Foreign);
    }
}

#[tokio::test(start_paused = true)]
async fn r4_our_mark_is_taken_off_somebody_elses_cordon_and_the_cordon_stays() {
    let body = r#"{"metadata":{"annotations":{"pillar-rs/cordon-owner":null,"pillar-rs/volumes-before":null},"resourceVersion":"77"}}"#;
    for door in ["cordon", "uncordon"] {
        let theirs = written_by(node_object(true, Some(OURS)), &["kubectl"]);
        let answers = vec![mock::object(&theirs), mock::object(&node_object(true, None))];
        let (cluster, calls) = mock::cluster(answers);
        if door == "cordon" {
            assert_eq!(cordon(&cluster, &name(), DEVICE, &owner()).await.unwrap(), Cordoned::Foreign);
        } else {
            assert!(!uncordon_own(&cluster, &name(), DEVICE, NOW).await.unwrap());
        }
        assert_eq!(calls.all().remove(1).body, body, "{door}");
    }
}

#[tokio::test(start_paused = true)]
async fn d17_a_lost_race_is_run_again_at_once_with_what_is_read_then_and_not_for_ever() {
    let lost = || mock::status(409, "the object has been modified");
    let open = || mock::object(&node_object(false, None));
    // By then somebody else has cordoned it.
    let theirs = mock::object(&node_object(true, None));
    let (cluster, calls) = mock::cluster(vec![open(), lost(), open(), lost(), theirs]);
    assert_eq!(cordon(&cluster, &name(), DEVICE, &owner()).await.unwrap(), Cordoned::Foreign);
    assert_eq!(calls.lines().len(), 5);
    let (cluster, calls) = mock::server(move |call| {
        if call.line.starts_with("GET") { mock::object(&node_object(true, Some(OURS))) } else { lost() }
    });
    let error = uncordon_own(&cluster, &name(), DEVICE, NOW).await.unwrap_err();
    let is_tried_again = error.is_conflict() && error.is_retryable() && !error.next_step().contains("log");
    assert!(is_tried_again, "{}", error.advice());
    assert_eq!(error.line(), "uncordon node n1: the server answered 409: the object has been modified");
    assert_eq!(calls.lines().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_other_nodes_are_all_but_our_own() {
    let mut other = node_object(true, Some(OURS));
    other["metadata"]["name"] = json!("n2");
    let (cluster, calls) = mock::cluster(vec![mock::list("9", &[node_object(false, None), other])]);
    let found = others(&cluster, &name()).await.unwrap();
    assert_eq!(calls.lines(), ["GET /api/v1/nodes?"]);
    assert_eq!(found.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n2"]);
}

#[tokio::test(start_paused = true)]
async fn d_k2_refused_silent_and_broken_servers_are_unreachable_and_busy_ones_are_not() {
    let expired = "tls: invalid peer certificate: Expired";
    let table = [
        (mock::list("1", &[]), None),
        (mock::status(401, ""), Some(Reach::Reachable)),
        (mock::status(403, ""), Some(Reach::Reachable)),
        (mock::status(429, ""), Some(Reach::Throttled)),
        (mock::status(500, ""), Some(Reach::Unreachable)),
        (mock::status(503, ""), Some(Reach::Unreachable)),
        (mock::status(504, ""), Some(Reach::Unreachable)),
        (MockReply::Full(200, vec![], "<html>".to_owned()), Some(Reach::Unreachable)),
        (MockReply::Lines(vec![], AfterLines::Cut), Some(Reach::Unreachable)),
        (MockReply::Refused("connection refused"), Some(Reach::Unreachable)),
        (MockReply::Refused(expired), Some(Reach::Unreachable)),
        (MockReply::Silence, Some(Reach::Unreachable)),
    ];
    for (number, (answer, reach)) in table.into_iter().enumerate() {
        let (cluster, calls) = mock::cluster(vec![answer]);
        let asked = tokio::time::timeout(PROBE_LIMIT + Duration::from_secs(1), probe(&cluster)).await;
        let error = asked.expect("bounded").err();
        assert_eq!(error.as_ref().map(Error::reach), reach, "row {number}: {error:?}");
        assert_eq!(calls.lines(), ["GET /api/v1/nodes?&limit=1"]);
        if let Some(error) = error {
            assert!(!error.next_step().is_empty());
        }
    }
}
