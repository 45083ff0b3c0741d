//! The Node object: reading it, and cordoning with an owner.
//!
//! Not here: how often to try (the caller counts), what a cordon allows (`cordon`). Sources: goals D17, R4;
//! spec/agents.md 4.3 steps 3 and 4, 4.6.

use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::core::{ObjectList, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Cluster, PROBE_LIMIT};
use crate::cordon::{Cordon, CordonOwner, CordonStep, NodeFacts};
use crate::error::Error;
use crate::names::NodeName;
use crate::watch::Scope;

/// The annotation that says whose cordon it is.
pub const OWNER_ANNOTATION: &str = "pillar-rs/cordon-owner";
/// The label that names the device of a node.
pub const UUID_LABEL: &str = "node-uuid";
/// The label of a node that carries no workloads.
pub const TIE_BREAKER_LABEL: &str = "tie-breaker-node";

/// The annotation's text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerForm {
    boot_id: String,
    requested_by: u8,
    requested_at: String,
}

/// What [`cordon`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordoned {
    /// Flag and annotation written.
    Written,
    /// They were as wanted.
    Kept,
    /// The node is somebody else's cordon, and stays so.
    Foreign,
}

/// What [`uncordon_own`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncordoned {
    /// Flag and annotation removed.
    Opened,
    /// There was nothing of ours.
    NothingOfOurs,
}

/// Our own node by its name.
///
/// # Errors
/// [`Error::WrongNode`] when the node carries another device's UUID, and all of [`Cluster`]'s.
pub async fn read(cluster: &Cluster, name: &NodeName, device_uuid: &str) -> Result<NodeFacts, Error> {
    let what = format!("read node {name}");
    let node: Node = cluster.ask(&what, nodes().get(name.as_str(), &GetParams::default())).await?;
    let facts = facts(&node)?;
    match facts.labels.get(UUID_LABEL) {
        Some(label) if !label.eq_ignore_ascii_case(device_uuid) => Err(Error::WrongNode {
            node: name.to_string(),
            label: label.clone(),
            device: device_uuid.to_owned(),
        }),
        Some(_) | None => Ok(facts),
    }
}

/// All nodes but `own`.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn others(cluster: &Cluster, own: &NodeName) -> Result<Vec<NodeFacts>, Error> {
    let list: ObjectList<Node> = cluster.ask("list nodes", nodes().list(&ListParams::default())).await?;
    let all: Result<Vec<NodeFacts>, Error> = list.items.iter().map(facts).collect();
    Ok(all?.into_iter().filter(|node| node.name != *own).collect())
}

/// Asks the API for one node, whichever. The error's [`Error::reach`] tells whether a server is there at all.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn probe(cluster: &Cluster) -> Result<(), Error> {
    let one = nodes().list(&ListParams::default().limit(1));
    cluster.ask_within::<Value>(PROBE_LIMIT, "reach the API", one).await.map(drop)
}

/// Makes the node unschedulable in the name of `owner`, by one patch of flag and annotation that names the
/// resource version. A foreign cordon is left as it is.
///
/// # Errors
/// As [`read`]; a lost race is [`Error::is_conflict`], and the caller counts its tries.
pub async fn cordon(
    cluster: &Cluster,
    name: &NodeName,
    device_uuid: &str,
    owner: &CordonOwner,
) -> Result<Cordoned, Error> {
    let node = read(cluster, name, device_uuid).await?;
    match node.cordon_step(owner) {
        CordonStep::Keep => Ok(Cordoned::Kept),
        CordonStep::LeaveForeign => Ok(Cordoned::Foreign),
        CordonStep::Write => {
            let what = format!("cordon node {name}");
            let owner = owner_text(owner)
                .map_err(|source| Error::Unaskable { what: what.clone(), source: source.into() })?;
            let body = json!({
                "metadata": {
                    "resourceVersion": node.resource_version,
                    "annotations": { OWNER_ANNOTATION: owner },
                },
                "spec": { "unschedulable": true },
            });
            patch(cluster, &what, name, body).await.map(|()| Cordoned::Written)
        }
    }
}

/// Makes the node schedulable again if the cordon is ours, by one patch that removes flag and annotation and
/// names the resource version. An annotation that somebody's uncordon left behind is removed too.
///
/// # Errors
/// As [`cordon`].
pub async fn uncordon_own(
    cluster: &Cluster,
    name: &NodeName,
    device_uuid: &str,
) -> Result<Uncordoned, Error> {
    let node = read(cluster, name, device_uuid).await?;
    let ours = match node.cordon {
        Cordon::Ours(_) => true,
        Cordon::None => node.annotation.is_some(),
        Cordon::Foreign => false,
    };
    if !ours {
        return Ok(Uncordoned::NothingOfOurs);
    }
    let body = json!({
        "metadata": {
            "resourceVersion": node.resource_version,
            "annotations": { OWNER_ANNOTATION: null },
        },
        "spec": { "unschedulable": null },
    });
    patch(cluster, &format!("uncordon node {name}"), name, body).await.map(|()| Uncordoned::Opened)
}

async fn patch(cluster: &Cluster, what: &str, name: &NodeName, body: Value) -> Result<(), Error> {
    cluster.order(what, nodes().patch(name.as_str(), &PatchParams::default(), &Patch::Merge(body))).await
}

fn nodes() -> Request {
    Request::new(Node::url_path(&(), None))
}

/// One node as a thing to follow.
pub(crate) fn scope(name: &NodeName) -> Scope {
    Scope {
        what: format!("node {name}"),
        path: Node::url_path(&(), None),
        fields: Some(format!("metadata.name={name}")),
        labels: None,
    }
}

/// The annotation's text, members in this order so that a person finds them.
fn owner_text(owner: &CordonOwner) -> Result<String, serde_json::Error> {
    let CordonOwner { boot_id, requested_by, requested_at } = owner.clone();
    serde_json::to_string(&OwnerForm { boot_id, requested_by, requested_at })
}

/// The facts about a node.
pub(crate) fn facts(node: &Node) -> Result<NodeFacts, Error> {
    let name = NodeName::parse(node.metadata.name.as_deref().unwrap_or_default())?;
    let spec = node.spec.as_ref();
    let unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION));
    let owner = annotation.and_then(|text| serde_json::from_str::<OwnerForm>(text).ok());
    let owner = owner.map(|OwnerForm { boot_id, requested_by, requested_at }| CordonOwner {
        boot_id,
        requested_by,
        requested_at,
    });
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| {
        all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let labels = node.metadata.labels.clone().unwrap_or_default();
    Ok(NodeFacts {
        name,
        ready,
        unschedulable,
        annotation: owner.clone(),
        cordon: match (unschedulable, owner) {
            (false, _) => Cordon::None,
            (true, Some(owner)) => Cordon::Ours(owner),
            (true, None) => Cordon::Foreign,
        },
        tie_breaker: labels.get(TIE_BREAKER_LABEL).is_some_and(|value| value == "true"),
        labels,
        resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mock::{self, Answer, Then};
    use crate::reply::Reach;

    const DEVICE: &str = "a5a4e5c1-0000-4000-8000-000000000001";

    fn node_object(unschedulable: bool, annotation: Option<&str>) -> Value {
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "resourceVersion": "77", "labels": {"node-uuid": DEVICE}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        if unschedulable {
            node["spec"]["unschedulable"] = json!(true);
        }
        if let Some(text) = annotation {
            node["metadata"]["annotations"] = json!({ OWNER_ANNOTATION: text });
        }
        node
    }

    fn name() -> NodeName {
        NodeName::parse("n1").unwrap()
    }

    fn owner() -> CordonOwner {
        CordonOwner {
            boot_id: "b1".to_owned(),
            requested_by: 2,
            requested_at: "2025-01-01T00:00:00Z".to_owned(),
        }
    }

    const OURS: &str = r#"{"bootId":"b1","requestedBy":2,"requestedAt":"2025-01-01T00:00:00Z"}"#;
    const EARLIER: &str = r#"{"bootId":"b0","requestedBy":3,"requestedAt":"2024-01-01T00:00:00Z"}"#;

    #[tokio::test(start_paused = true)]
    async fn the_own_node_is_read_by_name_and_recognised_by_its_label() {
        let (cluster, calls) = mock::cluster(vec![mock::object(&node_object(false, None))]);
        let facts = read(&cluster, &name(), &DEVICE.to_uppercase()).await.unwrap();
        assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"]);
        assert!(facts.ready && !facts.unschedulable && !facts.tie_breaker);
        assert_eq!(facts.cordon, Cordon::None);

        let (cluster, _) = mock::cluster(vec![mock::object(&node_object(false, None))]);
        let error = read(&cluster, &name(), "another").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("find our own node: node n1 has label node-uuid={DEVICE}, this device is another")
        );
        assert!(!error.is_retryable());
    }

    #[test]
    fn the_facts_of_a_node_follow_its_object() {
        let facts = |value: Value| facts(&serde_json::from_value(value).unwrap()).unwrap();
        let table = [
            (node_object(false, None), Cordon::None, None),
            (node_object(true, None), Cordon::Foreign, None),
            (node_object(true, Some("{torn")), Cordon::Foreign, None),
            (node_object(true, Some(OURS)), Cordon::Ours(owner()), Some(owner())),
            (node_object(false, Some(OURS)), Cordon::None, Some(owner())),
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
        tainted["spec"]["taints"] =
            json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
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
            assert_eq!(patch.line, "PATCH /api/v1/nodes/n1?");
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
            assert_eq!(uncordon_own(&cluster, &name(), DEVICE).await.unwrap(), Uncordoned::Opened);
            let patch = calls.all().remove(1);
            assert_eq!(patch.line, "PATCH /api/v1/nodes/n1?");
            assert_eq!(
                patch.body,
                r#"{"metadata":{"annotations":{"pillar-rs/cordon-owner":null},"resourceVersion":"77"},"spec":{"unschedulable":null}}"#
            );
        }
        for (unschedulable, annotation) in [(true, None), (true, Some("{torn")), (false, None)] {
            let (cluster, calls) = mock::cluster(vec![mock::object(&node_object(unschedulable, annotation))]);
            assert_eq!(uncordon_own(&cluster, &name(), DEVICE).await.unwrap(), Uncordoned::NothingOfOurs);
            assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d17_a_lost_race_is_a_conflict_for_the_caller_to_count() {
        let answers =
            vec![mock::object(&node_object(false, None)), mock::status(409, "the object has been modified")];
        let (cluster, calls) = mock::cluster(answers);
        let error = cordon(&cluster, &name(), DEVICE, &owner()).await.unwrap_err();
        assert!(error.is_conflict() && error.is_retryable());
        assert_eq!(error.line(), "cordon node n1: the server answered 409: the object has been modified");
        assert_eq!(calls.lines().len(), 2, "no try of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn the_other_nodes_are_all_but_our_own() {
        let mut other = node_object(true, Some(OURS));
        other["metadata"]["name"] = json!("n2");
        let (cluster, calls) = mock::cluster(vec![mock::list("9", &[node_object(false, None), other])]);
        let found = others(&cluster, &name()).await.unwrap();
        assert_eq!(calls.lines(), ["GET /api/v1/nodes?"]);
        assert_eq!(found.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n2"]);
        assert!(crate::every_peer_drains(&found));
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
            (Answer::Full(200, vec![], "<html>".to_owned()), Some(Reach::Unreachable)),
            (Answer::Lines(vec![], Then::Cut), Some(Reach::Unreachable)),
            (Answer::Refused("connection refused"), Some(Reach::Unreachable)),
            (Answer::Refused(expired), Some(Reach::Unreachable)),
            (Answer::Silence, Some(Reach::Unreachable)),
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

    #[tokio::test(start_paused = true)]
    async fn trouble_with_certificates_says_what_to_renew() {
        let (cluster, _) =
            mock::cluster(vec![Answer::Refused("tls: invalid peer certificate: UnknownIssuer")]);
        let error = probe(&cluster).await.unwrap_err();
        assert!(error.line().contains("UnknownIssuer"), "{}", error.line());
        assert!(error.next_step().contains("renew"), "{}", error.next_step());
    }
}
