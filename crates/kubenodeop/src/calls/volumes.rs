//! The volumes of evicted pods that are still attached to a node.
//!
//! Not here: how long to wait for them. Sources: the Kubernetes pages on `PersistentVolume` (claimRef) and
//! `VolumeAttachment`. An attachment counts until its object is gone: the attacher removes it after the volume
//! has been detached. The volume itself cannot go before, the attacher's finalizer holds it.

use std::collections::BTreeSet;
use std::fmt;

use futures::stream::{self, BoxStream, StreamExt};
use step::{Inserted as _, LiteMap};
use tokio::time::sleep;

use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::{NodeName, PodRef};
use kubeapi::pace::Pace;
use kubeapi::slim::{PersistentVolume, Pod, VolumeAttachment};
use kubeapi::watch::{List, Manner, ObjectMirror, WatchScope};

use super::pods;
use crate::plan::PodFacts;

/// Namespace and name of a `PersistentVolumeClaim`.
pub type ClaimName = (String, String);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttachmentFacts {
    /// The name of the `VolumeAttachment`.
    pub name: String,
    /// The `PersistentVolume`.
    pub volume: String,
    /// Namespace and name of the claim that the volume is bound to.
    pub claim: ClaimName,
    /// It is detached, and only these finalizers keep its object; empty otherwise.
    pub kept_by: Vec<String>,
}

/// For a person: `shop/data (pv pvc-1)`.
impl fmt::Display for AttachmentFacts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{} (pv {})", self.claim.0, self.claim.1, self.volume)?;
        if self.kept_by.is_empty() {
            return Ok(());
        }
        write!(
            out,
            ", detached but for the finalizer {} of VolumeAttachment {}",
            self.kept_by.join(", "),
            self.name
        )
    }
}

/// The volumes of `claims` that are attached to `node`: the whole set first, and again whenever it has changed. A
/// failure is told, and got over without the caller. Without claims nothing is asked. The stream never ends;
/// dropping it closes its connection.
pub fn attachments(
    cluster: ApiClient,
    node: NodeName,
    claims: BTreeSet<ClaimName>,
    seed: u64,
) -> BoxStream<'static, Result<Vec<AttachmentFacts>, Error>> {
    if claims.is_empty() {
        return stream::iter([Ok(Vec::new())]).chain(stream::pending()).boxed();
    }
    // The volumes of the claims are read once; then their attachments are followed.
    let from = (Some(0), cluster.clone(), Pace::new(seed));
    let reads = stream::unfold(from, |(tries, cluster, mut pace)| async move {
        let tries = tries?;
        if tries > 0 {
            sleep(pace.pause(tries, None)).await;
        }
        let read = volume_scope().list_all::<PersistentVolume>(&cluster).await;
        let again = read.is_err().then(|| tries.saturating_add(1));
        Some((read, (again, cluster, pace)))
    });
    let follow = move |read: Result<List<PersistentVolume>, Error>| {
        let mut bound = match read {
            Ok(volumes) => bound(&volumes.items),
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        bound.retain(|_, claim| claims.contains(claim));
        let node = node.clone();
        let keep = move |it: VolumeAttachment| (it.metadata.name.clone(), facts(&it, &node, &bound));
        let all = ObjectMirror::open(&cluster, scope(), Manner::default(), seed, keep);
        all.changes(|known| known.values().cloned().collect())
    };
    reads.flat_map(follow).boxed()
}

/// All attachments of the cluster as a thing to follow; the server selects none by node.
pub(crate) fn scope() -> WatchScope {
    WatchScope::all("volume attachments", VolumeAttachment::url_path(None))
}

pub(crate) fn volume_scope() -> WatchScope {
    WatchScope::all("persistent volumes", PersistentVolume::url_path(None))
}

/// Volume by volume the claim that it is bound to.
pub(crate) fn bound(volumes: &[PersistentVolume]) -> LiteMap<String, ClaimName> {
    let claim = |volume: &PersistentVolume| {
        let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
        Some((volume.metadata.name.clone()?, (claim.namespace.clone()?, claim.name.clone()?)))
    };
    volumes.iter().filter_map(claim).into_lite()
}

/// The facts about an attachment to `node` of one of the volumes `bound`.
pub(crate) fn facts(
    attachment: &VolumeAttachment,
    node: &NodeName,
    bound: &LiteMap<String, ClaimName>,
) -> Option<AttachmentFacts> {
    let here = attachment.spec.node_name == node.as_str();
    let volume = attachment.spec.source.persistent_volume_name.as_ref().filter(|_| here)?;
    let claim = bound.get(volume)?.clone();
    let name = attachment.metadata.name.clone().unwrap_or_default();
    let meta = &attachment.metadata;
    let detached = attachment.status.as_ref().is_none_or(|it| it.attached != Some(true));
    let kept = meta.finalizers.as_ref().filter(|_| detached && meta.deletion_timestamp.is_some());
    Some(AttachmentFacts { name, volume: volume.clone(), claim, kept_by: kept.cloned().unwrap_or_default() })
}

/// Volumes that are attached to `node` and to another node too: somebody has taken them over, and `node` is not rid of them.
pub(crate) async fn taken_over(cluster: &ApiClient, node: &NodeName) -> Result<Vec<String>, Error> {
    let all = scope().list_all::<VolumeAttachment>(cluster).await?.items;
    let places = all.iter().filter_map(|it| {
        Some((it.spec.source.persistent_volume_name.clone()?, it.spec.node_name == node.as_str()))
    });
    let (here, elsewhere): (Vec<_>, Vec<_>) = places.partition(|(_, here)| *here);
    let both = here.into_iter().filter(|(volume, _)| elsewhere.iter().any(|(other, _)| other == volume));
    Ok(both.map(|(volume, _)| volume).collect())
}

/// A pod that waits for a volume although its device is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmountedPod {
    pub pod: PodRef,
    /// The `PersistentVolume`.
    pub volume: String,
}

/// Pods of `node` of which no container has begun or reports an error, and that mount one of the volumes `devices`. Without
/// devices nothing is asked.
/// Errors: those of [`ApiClient`].
pub async fn unmounted(
    cluster: &ApiClient,
    node: &NodeName,
    devices: &BTreeSet<String>,
) -> Result<Vec<UnmountedPod>, Error> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let all = pods::scope(node).list_all::<Pod>(cluster).await?.items;
    let waiting = all.iter().filter(|it| begins(it)).map(pods::facts);
    let waiting: Vec<PodFacts> = waiting.filter(|it| it.pending && !it.terminating).collect();
    if waiting.iter().all(|it| it.claims.is_empty()) {
        return Ok(Vec::new());
    }
    let volumes = volume_scope().list_all::<PersistentVolume>(cluster).await?.items;
    let here = bound(&volumes).into_iter().filter(|(volume, _)| devices.contains(volume));
    let here: LiteMap<ClaimName, String> = here.map(|(volume, claim)| (claim, volume)).into_lite();
    let of = |it: PodFacts| {
        let mut claims = it.claims.iter().map(|claim| (it.pod.namespace.clone(), claim.clone()));
        let volume = claims.find_map(|claim| here.get(&claim))?.clone();
        Some(UnmountedPod { pod: it.pod, volume })
    };
    Ok(waiting.into_iter().filter_map(of).collect())
}

/// Whether the kubelet prepares the pod still, by what it says of each container.
fn begins(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let all = status.map(|it| [&it.container_statuses, &it.init_container_statuses]);
    let mut all = all.into_iter().flatten().flatten().flatten();
    all.all(|it| {
        let waits = it.state.as_ref().and_then(|it| it.waiting.as_ref()?.reason.as_deref());
        matches!(waits, Some("ContainerCreating" | "PodInitializing"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use kubeapi::mock::{self, AfterLines, MockReply, RecordedCalls};

    fn volume(name: &str, claim: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "shop", "name": claim}}})
    }

    fn attachment(name: &str, node: &str, volume: &str) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": name, "resourceVersion": "6"},
            "spec": {"attacher": "driver", "nodeName": node, "source": {"persistentVolumeName": volume}},
        })
    }

    type Sets = BoxStream<'static, Result<Vec<AttachmentFacts>, Error>>;

    fn started(claims: &[&str], answers: Vec<MockReply>) -> (Sets, RecordedCalls) {
        let (cluster, calls) = mock::cluster(answers);
        let claims = claims.iter().map(|name| ("shop".to_owned(), (*name).to_owned())).collect();
        (attachments(cluster, NodeName::parse("n1").unwrap(), claims, 7), calls)
    }

    async fn hear(stream: &mut Sets) -> String {
        match stream.next().await.unwrap() {
            Ok(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            Err(error) => error.line(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d13_k12_only_volumes_of_the_given_claims_on_this_node_are_told_until_they_are_gone() {
        // Being deleted it is attached until the driver says otherwise; then only its finalizer keeps it.
        let kept = |attached| {
            let mut it = attachment("va-1", "n1", "pv-1");
            it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            it["metadata"]["finalizers"] = json!(["driver/f"]);
            it["status"] = json!({ "attached": attached });
            it
        };
        let lines = vec![
            // A change that is none, and one on another node: nothing is said.
            mock::event("MODIFIED", &attachment("va-1", "n1", "pv-1")),
            mock::event("ADDED", &attachment("va-8", "n2", "pv-2")),
            mock::event("DELETED", &attachment("va-9", "n1", "pv-9")),
            mock::event("ADDED", &attachment("va-2", "n1", "pv-2")),
            mock::event("MODIFIED", &kept(true)),
            mock::event("MODIFIED", &kept(false)),
            mock::event("DELETED", &attachment("va-1", "n1", "pv-1")),
            mock::event("DELETED", &attachment("va-2", "n1", "pv-2")),
        ];
        let (mut sets, calls) = started(
            &["data", "logs"],
            vec![
                mock::list("4", &[volume("pv-1", "data"), volume("pv-2", "logs"), volume("pv-9", "others")]),
                mock::list("5", &[attachment("va-1", "n1", "pv-1"), attachment("va-9", "n1", "pv-9")]),
                MockReply::Lines(lines, AfterLines::Silence),
            ],
        );
        for expected in [
            "shop/data (pv pv-1)",
            "shop/data (pv pv-1), shop/logs (pv pv-2)",
            "shop/data (pv pv-1), detached but for the finalizer driver/f of VolumeAttachment va-1, shop/logs (pv pv-2)",
            "shop/logs (pv pv-2)",
            "",
        ] {
            assert_eq!(hear(&mut sets).await, expected);
        }
        assert_eq!(
            calls.lines(),
            [
                "GET /api/v1/persistentvolumes?&limit=250",
                "GET /apis/storage.k8s.io/v1/volumeattachments?&limit=250",
                "GET /apis/storage.k8s.io/v1/volumeattachments?&watch=true&timeoutSeconds=30\
                 &allowWatchBookmarks=true&resourceVersion=5",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_told_and_got_over_at_growing_distance() {
        let (mut sets, calls) = started(
            &["data"],
            vec![
                mock::status(503, "starting"),
                mock::status(403, "forbidden"),
                mock::list("4", &[volume("pv-1", "data")]),
                MockReply::Refused("refused"),
                mock::list("5", &[attachment("va-1", "n1", "pv-1")]),
            ],
        );
        let now = mock::clock();
        assert_eq!(hear(&mut sets).await, "list persistent volumes: the server answered 503: starting");
        assert_eq!(now(), step::Mono::START);
        assert!(hear(&mut sets).await.ends_with("403: forbidden"));
        assert!(now() >= step::Mono::START + Duration::from_millis(500), "no busy loop");
        assert!(hear(&mut sets).await.ends_with("refused"));
        assert_eq!(hear(&mut sets).await, "shop/data (pv pv-1)");
        assert_eq!(calls.lines().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn without_claims_there_is_nothing_to_ask_and_nothing_attached() {
        let (mut sets, calls) = started(&[], vec![]);
        assert_eq!(hear(&mut sets).await, "");
        assert!(timeout(Duration::from_secs(60), sets.next()).await.is_err());
        assert!(calls.lines().is_empty());
    }
}
