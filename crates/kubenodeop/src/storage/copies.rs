//! Asking for another copy of a volume whose last one is on our node, where Longhorn does not make one because of the
//! cordon; and taking that back.
//!
//! One more copy is wanted of the volume, with a mark that says of how many and for which node. It is taken back once
//! the node is schedulable again, or by whoever leads when it does not come back: the number only where it is still the
//! one that was asked for, as another is somebody else's. The copy that was made stays: Longhorn deletes a healthy copy
//! over the number only for an eviction, for data locality or for its auto-balance (controller/volume_controller.go,
//! cleanupExtraHealthyReplicas), and no data is deleted here.

use std::collections::BTreeSet;

use kube::api::{GetParams, Patch};
use kube::core::Request;
use kubeapi::names::{COPY_ANNOTATION, NodeName, PASS_ANNOTATION, STORAGE_NAMESPACE};
use kubeapi::nodes::{api, signed};
use kubeapi::slim::NodeObject;
use kubeapi::slim::longhorn::{Volume, path, scope};
use kubeapi::{ApiClient, Error, found};
use serde_json::{Map, Value, json};

use super::VolumesBefore;
use super::facts::{CopyMark, passed};
use crate::node;

/// Has one more copy made of a volume, unless it carries a mark already. Nothing is written when it wants another number
/// of copies than `wanted` by now.
pub async fn ask(cluster: &ApiClient, node: &NodeName, volume: &str, wanted: u32) -> Result<(), Error> {
    let what = format!("read volume {STORAGE_NAMESPACE}/{volume}");
    let now: Volume =
        cluster.ask(&what, Request::new(path("volumes")).get(volume, &GetParams::default())).await?;
    let marked = now.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(COPY_ANNOTATION));
    if marked || now.spec.number_of_replicas != wanted {
        return Ok(());
    }
    let mark = CopyMark { was: wanted, node: node.to_string() };
    let body = json!({
        "metadata": {
            "resourceVersion": now.metadata.resource_version,
            "annotations": { COPY_ANNOTATION: json!(mark).to_string() },
        },
        "spec": { "numberOfReplicas": wanted.saturating_add(1) },
    });
    patch(cluster, &format!("ask for another copy of volume {volume}"), volume, body).await
}

/// All volumes in which a drain may have written. Without Longhorn there are none, and who may not read them has written
/// in none.
async fn volumes(cluster: &ApiClient) -> Result<Vec<Volume>, Error> {
    match scope("volumes").list_installed::<Volume>(cluster).await {
        Ok(volumes) => Ok(volumes.unwrap_or_default()),
        Err(error) if error.is_refused() => {
            tracing::debug!(error = error.line(), "volumes are not read");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The nodes because of which volumes carry a mark or a pass that was not taken back.
pub async fn asked_for(cluster: &ApiClient) -> Result<BTreeSet<String>, Error> {
    let all = volumes(cluster).await?;
    let marked = all.iter().filter_map(|it| Some(CopyMark::of(it)?.node));
    Ok(marked.chain(all.iter().filter_map(|it| Some(passed(it)?.0.to_owned()))).collect())
}

/// Takes back what was asked for because of the nodes for which `of` holds: of which volumes, and the first failure, after
/// all were tried. Then it is to be called again. What a person has let pass with such a node goes too where `used` says
/// that of the volume.
pub async fn take_back(
    cluster: &ApiClient,
    of: impl Fn(&str) -> bool,
    used: impl Fn(&str) -> bool,
) -> (Vec<String>, Result<(), Error>) {
    let all = match volumes(cluster).await {
        Ok(all) => all,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (mut done, mut failed) = (Vec::new(), Ok(()));
    for volume in all {
        let mark = CopyMark::of(&volume).filter(|it| of(&it.node));
        let is_passed = passed(&volume).is_some_and(|(node, _)| of(node)) && used(&volume.name());
        if mark.is_none() && !is_passed {
            continue;
        }
        let name = volume.name();
        let gone = [(COPY_ANNOTATION, mark.is_some()), (PASS_ANNOTATION, is_passed)];
        let gone = gone.into_iter().filter(|(_, goes)| *goes).map(|(name, _)| (name.to_owned(), Value::Null));
        let mut body = json!({
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": gone.collect::<Map<_, _>>(),
            },
        });
        let was = mark.as_ref().map(|it| it.was);
        if let Some(was) = was.filter(|was| volume.spec.number_of_replicas == was.saturating_add(1)) {
            body["spec"] = json!({ "numberOfReplicas": was });
        }
        let what = format!("take back what a drain asked of volume {name}");
        match found(patch(cluster, &what, &name, body).await) {
            Ok(_) if mark.is_none() => {}
            Ok(_) => done.push(name),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    (done, failed)
}

/// Takes back what drains of our node have asked of volumes, and the words of persons that a drain has used: those that
/// let volumes go down with it. Of which volumes, and the first failure; then it is to be called again.
pub async fn withdraw_all(cluster: &ApiClient, name: &NodeName) -> (Vec<String>, Result<(), Error>) {
    let what = format!("read node {name}");
    let read = cluster.ask::<NodeObject>(&what, api().get(name.as_str(), &GetParams::default()));
    let record = match found(read.await) {
        Ok(node) => node.as_ref().and_then(node::recorded_volumes).unwrap_or_default(),
        Err(error) => return (Vec::new(), Err(error)),
    };
    let used = |volume: &str| record.passed.contains(volume);
    let (volumes, mut done) = take_back(cluster, |it| it == name.as_str(), used).await;
    if done.is_ok() && !record.passed.is_empty() {
        // The next word of a person is another one.
        let used_up = VolumesBefore { passed: BTreeSet::new(), ..record };
        done = node::record_volumes(cluster, name, &used_up).await;
    }
    (volumes, done)
}

async fn patch(cluster: &ApiClient, what: &str, volume: &str, body: Value) -> Result<(), Error> {
    cluster.order(what, Request::new(path("volumes")).patch(volume, &signed(), &Patch::Merge(body))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::mock;

    fn volume(copies: u32, mark: Option<&str>) -> Value {
        let annotations = mark.map(|text| json!({ COPY_ANNOTATION: text }));
        json!({
            "metadata": {"name": "pvc-1", "resourceVersion": "7", "annotations": annotations},
            "spec": {"numberOfReplicas": copies},
        })
    }

    fn node() -> NodeName {
        NodeName::parse("n1").unwrap()
    }

    fn passes(mut volume: Value, text: &str) -> Value {
        volume["metadata"]["annotations"] = json!({ PASS_ANNOTATION: text });
        volume
    }

    const MARK: &str = r#"{"was":1,"node":"n1"}"#;

    #[tokio::test]
    async fn d14_one_more_copy_is_asked_for_once_and_never_over_a_foreign_change() {
        let table = [
            (volume(1, None), true),
            // Already asked for, by us or for another node.
            (volume(2, Some(MARK)), false),
            (volume(1, Some(r#"{"was":1,"node":"n2"}"#)), false),
            (volume(1, Some("?")), false),
            // Somebody wants another number by now.
            (volume(3, None), false),
        ];
        for (now, asks) in table {
            let (cluster, calls) = mock::cluster(vec![mock::object(&now), mock::object(&json!({}))]);
            ask(&cluster, &node(), "pvc-1", 1).await.unwrap();
            let writes: Vec<_> = calls.all().into_iter().filter(|it| it.line.starts_with("PATCH")).collect();
            assert_eq!(writes.len(), usize::from(asks), "{now}");
            if let Some(write) = writes.first() {
                assert!(write.line.contains("/longhorn-system/volumes/pvc-1?"), "{}", write.line);
                let expected = r#"{"metadata":{"annotations":{"pillar-rs/last-copy":"{\"node\":\"n1\",\"was\":1}"},"resourceVersion":"7"},"spec":{"numberOfReplicas":2}}"#;
                assert_eq!(write.body, expected);
            }
        }
    }

    #[tokio::test]
    async fn d14_only_what_was_asked_for_this_node_is_taken_back_and_a_foreign_number_stays() {
        let gone = r#"{"metadata":{"annotations":{"pillar-rs/last-copy-pass":null},"resourceVersion":"7"}}"#;
        let without = r#"{"metadata":{"annotations":{"pillar-rs/last-copy":null},"resourceVersion":"7"}}"#;
        let lowered = r#"{"metadata":{"annotations":{"pillar-rs/last-copy":null},"resourceVersion":"7"},"spec":{"numberOfReplicas":1}}"#;
        let table = [
            (volume(2, Some(MARK)), Some(lowered)),
            (volume(3, Some(MARK)), Some(without)),
            (volume(1, Some(MARK)), Some(without)),
            (volume(2, Some(r#"{"was":1,"node":"n2"}"#)), None),
            (volume(2, None), None),
            (passes(volume(1, None), "n1 the disk is dead"), Some(gone)),
            (passes(volume(1, None), "n2 the disk is dead"), None),
        ];
        for (now, expected) in table {
            let answers = vec![mock::list("9", std::slice::from_ref(&now)), mock::object(&json!({}))];
            let (cluster, calls) = mock::cluster(answers);
            let done = take_back(&cluster, |it| it == "n1", |it| it == "pvc-1").await.0;
            assert_eq!(done.len(), usize::from(expected.is_some_and(|it| it != gone)), "{now}");
            let writes: Vec<_> = calls.all().into_iter().filter(|it| it.line.starts_with("PATCH")).collect();
            assert_eq!(writes.first().map(|it| it.body.as_str()), expected, "{now}");
        }
        // No drain has used it yet.
        let unused = passes(volume(1, None), "n1 the disk is dead");
        let (cluster, calls) = mock::cluster(vec![mock::list("9", &[unused])]);
        assert!(matches!(take_back(&cluster, |_| true, |_| false).await, (none, Ok(())) if none.is_empty()));
        assert_eq!(calls.all().len(), 1);
        // It asks for the groups too.
        let absent = || mock::status(404, "the server could not find the requested resource");
        let (cluster, _) = mock::cluster(vec![absent(), absent()]);
        assert!(matches!(take_back(&cluster, |_| true, |_| true).await, (none, Ok(())) if none.is_empty()));
    }
}
