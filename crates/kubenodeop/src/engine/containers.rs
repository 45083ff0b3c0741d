//! What the container runtime of the node says of pods that take longer to end than they may: when it is asked, and
//! what a pod is of which no container lives any more.
//!
//! Such a pod counts as gone, whatever keeps its object: a finalizer, a volume, a kubelet that has died. It takes two
//! answers in a row, as a kubelet that has not heard of the deletion may be about to start a container again; of a pod
//! with volumes it takes as long as volumes may take to be detached, as the kubelet unmounts them after its containers
//! have ended. Those that count as gone are asked for again as long as their objects are there.
//!
//! Which pods of this node have no live container any more, by the word of its container runtime. An answer is believed
//! only if it shows a live container of a pod that Kubernetes has on this node: what answers is then the runtime of its
//! kubelet.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kubeapi::ApiClient;
use kubeapi::names::{NodeName, PodUid};
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use step::{Mono, say};

use super::pod_table::PodTable;
use super::storage::VOLUMES_LIMIT;
use super::track::PodState;
use super::words::Effect;
use crate::calls::pods::{MIRROR_ANNOTATION, scope};

/// Least time between the two answers that make a pod count as gone.
const APART: Duration = Duration::from_secs(5);

impl PodTable {
    /// Since when it is to be asked: for the first pod that is overdue, else for one that counts as gone by its word.
    pub(super) fn doubtful(&self) -> Option<Mono> {
        let objects = || self.book.in_state(&PodState::ObjectOnly).filter_map(|it| it.without).min();
        self.book.next_overdue().or_else(objects)
    }

    /// Why it is not known whether pods that are overdue still run; empty when it is, and while none is.
    pub(super) fn runtime_trouble(&self, now: Mono) -> String {
        let late = self.book.overdue_by(now).next().is_some();
        if late { self.runtime.trouble.clone() } else { String::new() }
    }

    /// The pods of the node of which no container lives, or why they are not known.
    pub(super) fn containers(
        &mut self,
        now: Mono,
        without: &Result<BTreeSet<PodUid>, String>,
        effects: &mut Vec<Effect>,
    ) {
        self.runtime.answered(now, without.as_ref().err());
        self.live_again(now, without, effects);
        let overdue: Vec<PodUid> = self.book.overdue_by(now).cloned().collect();
        for uid in overdue {
            let has_none = without.as_ref().is_ok_and(|all| all.contains(&uid));
            let lives = without.is_ok() && !has_none;
            let gone = self.book.change(&uid, |track| {
                track.lives = lives;
                let since = track.without.get_or_insert(now);
                // A kubelet keeps the object of one with volumes until they are unmounted: who serves them must not go before.
                let least = if track.facts.claims.is_empty() { APART } else { VOLUMES_LIMIT };
                let gone = has_none && now.since(*since) >= least;
                if gone {
                    track.state = PodState::ObjectOnly;
                } else if !has_none {
                    track.without = None;
                }
                gone.then(|| track.facts.pod.clone())
            });
            if let Some(pod) = gone.flatten() {
                self.bump();
                say!(
                    effects,
                    warn,
                    "nodedrain-step:pod-evict-progress no container of the pod runs; it counts as gone, though its object \
                     is there: {pod}, uid {}",
                    pod.uid
                );
            }
        }
    }

    /// Of those that counted as gone, a container runs again.
    fn live_again(
        &mut self,
        now: Mono,
        without: &Result<BTreeSet<PodUid>, String>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(without) = without else { return };
        let objects = self.book.all().filter(|(_, track)| track.state == PodState::ObjectOnly);
        let lives = objects.filter(|(uid, _)| !without.contains(uid)).map(|(uid, _)| uid.clone());
        for uid in lives.collect::<Vec<_>>() {
            self.book.change(&uid, |track| {
                (track.without, track.lives) = (None, true);
                track.going(now);
            });
            self.bump();
            self.settle(now, &uid, effects);
        }
    }
}

/// The UIDs of pods of which a container lives, or in one sentence why they are not known.
type LivePods = Result<BTreeSet<String>, String>;

/// The container runtime of this node, to be asked.
#[derive(Clone)]
pub struct RuntimeQuery(Arc<dyn Fn() -> BoxFuture<'static, LivePods> + Send + Sync>);

impl RuntimeQuery {
    /// One that is asked so. The answer has to come within seconds, as an error if need be.
    pub fn new(ask: impl Fn() -> BoxFuture<'static, LivePods> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }
}

/// None: nothing is known.
impl Default for RuntimeQuery {
    fn default() -> Self {
        Self::new(|| Box::pin(async { Err("no container runtime is asked".to_owned()) }))
    }
}

impl fmt::Debug for RuntimeQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Runtime")
    }
}

/// The pods that Kubernetes has on `node` and of which no container lives; empty is an answer. The runtime is asked first,
/// so that nothing is asked of the API where there is none.
pub async fn without(
    cluster: &ApiClient,
    node: &NodeName,
    runtime: &RuntimeQuery,
) -> Result<Vec<Pod>, String> {
    let live = (runtime.0)().await?;
    // All of them: the apps that a drain keeps show best that it is the right runtime.
    let scope = WatchScope { labels: None, ..scope(node) };
    let pods = scope.list_all::<Pod>(cluster).await.map_err(|error| error.line())?;
    believed(pods.items, &live)
}

/// Those of `pods`, all that Kubernetes has on this node, of which no container lives.
pub(crate) async fn among(pods: Vec<Pod>, runtime: &RuntimeQuery) -> Result<Vec<Pod>, String> {
    let live = (runtime.0)().await?;
    believed(pods, &live)
}

/// Those of `pods` without a live container, if the answer can be believed.
fn believed(pods: Vec<Pod>, live: &BTreeSet<String>) -> Result<Vec<Pod>, String> {
    let all = pods.len();
    let (alive, without): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(|it| live.contains(name(it)));
    if alive.is_empty() {
        return Err(format!(
            "the container runtime is not believed: it shows live pods: {}, none of them one of the {all} that Kubernetes has \
             on this node",
            live.len()
        ));
    }
    Ok(without)
}

/// The UID by which the runtime knows it: of a static pod the hash that its mirror carries.
fn name(pod: &Pod) -> &str {
    let hash = pod.metadata.annotations.as_ref().and_then(|all| all.get(MIRROR_ANNOTATION));
    hash.or(pod.metadata.uid.as_ref()).map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> Vec<Pod> {
        let pod = |name: &str, mirror: Option<&str>| {
            let marks = mirror.map_or(json!({}), |it| json!({ MIRROR_ANNOTATION: it }));
            let meta = json!({ "name": name, "uid": format!("uid-{name}"), "annotations": marks });
            serde_json::from_value(json!({ "metadata": meta })).unwrap()
        };
        vec![pod("web", None), pod("db", None), pod("etcd", Some("hash-1"))]
    }

    #[test]
    fn d9_an_answer_is_believed_only_if_it_shows_a_live_container_of_a_pod_known_here() {
        type Uids<'a> = &'a [&'a str];
        let table: [(Uids<'_>, Option<Uids<'_>>, &str); 7] = [
            (&["uid-web"], Some(&["uid-db", "uid-etcd"]), "one of ours"),
            (&["uid-web", "uid-db", "hash-1", "x"], Some(&[]), "all of them, and another"),
            (&["hash-1"], Some(&["uid-web", "uid-db"]), "a static pod goes by the hash of its file"),
            (&["uid-etcd"], None, "and not by the UID of its mirror"),
            (&[], None, "an empty runtime may be another one, or one that is just starting"),
            (&["x", "y"], None, "it lists other pods only"),
            (&[""], None, "no UID is nobody's"),
        ];
        for (live, expected, why) in table {
            let live = live.iter().map(|it| (*it).to_owned()).collect();
            let found = believed(pods(), &live).ok();
            let found: Option<Vec<String>> =
                found.map(|all| all.into_iter().filter_map(|it| it.metadata.uid).collect());
            let expected = expected.map(|all| all.iter().map(|it| (*it).to_owned()).collect());
            assert_eq!(found, expected, "{why}");
        }
        let why = believed(pods(), &BTreeSet::from(["x".to_owned()])).unwrap_err();
        let expected = "the container runtime is not believed: it shows live pods: 1, none of them one of the 3 that Kubernetes \
                        has on this node";
        assert_eq!(why, expected);
    }
}
