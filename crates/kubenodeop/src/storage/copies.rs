//! Asking for another copy of a volume whose last one is on our node, where Longhorn does not make one because of the
//! cordon; and taking that back.
//!
//! One more copy is wanted of the volume, with a mark that says of how many and for which node. It is taken back once the
//! node is schedulable again, or by whoever leads when it does not come back: the number only where it is still the one
//! that was asked for, as another is somebody else's. The copy that was made stays: Longhorn deletes a healthy copy over
//! the number only for an eviction, for data locality or for its auto-balance (controller/volume_controller.go,
//! cleanupExtraHealthyReplicas), and no data is deleted here. Sources: goals D14; spec/vm-storage.md B7 (way D).

use std::collections::BTreeSet;

use kube::api::{GetParams, Patch};
use kube::core::Request;
use kubeapi::names::{COPY_ANNOTATION, NodeName, STORAGE_NAMESPACE};
use kubeapi::nodes::signed;
use kubeapi::reply::Reply;
use kubeapi::slim::longhorn::{Volume, path, scope};
use kubeapi::{Cluster, Error, found};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The mark on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Copies that were wanted before.
    was: u32,
    /// The node that leaves.
    pub(super) node: String,
}

impl Mark {
    /// The mark of a volume. One that cannot be read is a foreign change.
    pub(super) fn of(volume: &Volume) -> Option<Self> {
        let text = volume.metadata.annotations.as_ref()?.get(COPY_ANNOTATION)?;
        serde_json::from_str(text).ok()
    }
}

/// Has one more copy made of a volume, unless it carries a mark already. Nothing is written when it wants another number
/// of copies than `wanted` by now.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn ask(cluster: &Cluster, node: &NodeName, volume: &str, wanted: u32) -> Result<(), Error> {
    let what = format!("read volume {STORAGE_NAMESPACE}/{volume}");
    let now: Volume =
        cluster.ask(&what, Request::new(path("volumes")).get(volume, &GetParams::default())).await?;
    let marked = now.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(COPY_ANNOTATION));
    if marked || now.spec.number_of_replicas != wanted {
        return Ok(());
    }
    let mark = Mark { was: wanted, node: node.to_string() };
    let body = json!({
        "metadata": {
            "resourceVersion": now.metadata.resource_version,
            "annotations": { COPY_ANNOTATION: json!(mark).to_string() },
        },
        "spec": { "numberOfReplicas": wanted.saturating_add(1) },
    });
    patch(cluster, &format!("ask for another copy of volume {volume}"), volume, body).await
}

/// The volumes with a mark; without Longhorn there are none.
async fn marked(cluster: &Cluster) -> Result<Vec<(Volume, Mark)>, Error> {
    let volumes = found(scope("volumes").list_all::<Volume>(cluster).await)?.map(|it| it.items);
    let with_mark = |it: Volume| Mark::of(&it).map(|mark| (it, mark));
    Ok(volumes.unwrap_or_default().into_iter().filter_map(with_mark).collect())
}

/// The nodes because of which copies were asked for that were not taken back.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn asked_for(cluster: &Cluster) -> Result<BTreeSet<String>, Error> {
    match marked(cluster).await {
        Ok(all) => Ok(all.into_iter().map(|(_, mark)| mark.node).collect()),
        // Who may not read them has asked for none.
        Err(error) if matches!(error.reply(), Reply::Permanent { .. }) => {
            tracing::debug!(error = error.line(), "volumes are not read");
            Ok(BTreeSet::new())
        }
        Err(error) => Err(error),
    }
}

/// Takes back what was asked for because of the nodes for which `of` holds: of which volumes, and the first failure, after
/// all were tried. Then it is to be called again.
pub async fn take_back(cluster: &Cluster, of: impl Fn(&str) -> bool) -> (Vec<String>, Result<(), Error>) {
    let all = match marked(cluster).await {
        Ok(all) => all,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let (mut done, mut failed) = (Vec::new(), Ok(()));
    for (volume, mark) in all.into_iter().filter(|(_, mark)| of(&mark.node)) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let mut body = json!({
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": { COPY_ANNOTATION: null },
            },
        });
        if volume.spec.number_of_replicas == mark.was.saturating_add(1) {
            body["spec"] = json!({ "numberOfReplicas": mark.was });
        }
        let what = format!("want no more than {} copies of volume {name}", mark.was);
        match found(patch(cluster, &what, &name, body).await) {
            Ok(_) => done.push(name),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    (done, failed)
}

async fn patch(cluster: &Cluster, what: &str, volume: &str, body: Value) -> Result<(), Error> {
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
        let without = r#"{"metadata":{"annotations":{"pillar-rs/last-copy":null},"resourceVersion":"7"}}"#;
        let lowered = r#"{"metadata":{"annotations":{"pillar-rs/last-copy":null},"resourceVersion":"7"},"spec":{"numberOfReplicas":1}}"#;
        let table = [
            (volume(2, Some(MARK)), Some(lowered)),
            (volume(3, Some(MARK)), Some(without)),
            (volume(1, Some(MARK)), Some(without)),
            (volume(2, Some(r#"{"was":1,"node":"n2"}"#)), None),
            (volume(2, None), None),
        ];
        for (now, expected) in table {
            let answers = vec![mock::list("9", std::slice::from_ref(&now)), mock::object(&json!({}))];
            let (cluster, calls) = mock::cluster(answers);
            let done = take_back(&cluster, |it| it == "n1").await.0;
            assert_eq!(done.len(), usize::from(expected.is_some()), "{now}");
            let writes: Vec<_> = calls.all().into_iter().filter(|it| it.line.starts_with("PATCH")).collect();
            assert_eq!(writes.first().map(|it| it.body.as_str()), expected, "{now}");
        }
        let (cluster, _) =
            mock::cluster(vec![mock::status(404, "the server could not find the requested resource")]);
        assert!(matches!(take_back(&cluster, |_| true).await, (none, Ok(())) if none.is_empty()));
    }
}
