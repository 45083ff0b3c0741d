//! Pods of our node, as the gate after a boot wants to know them: storage that is crash-looping, and what of kube-system
//! is not Ready.
//!
//! Not here: what that means (`gate`).

use std::collections::BTreeMap;
use std::future::ready;

use futures::stream::{self, BoxStream, StreamExt};
use kubeapi::Cluster;
use kubeapi::slim::{Meta, Pod};
use kubeapi::watch::{Scope, Update};
use serde::{Deserialize, Deserializer};

use super::{Boot, heard, listed, trouble};
use crate::calls::pods;
use crate::node::gate::{Fact, Layer};
use crate::plan::tier::Tier;

/// Where the basic deployments of a cluster are.
pub(super) const SYSTEM: &str = "kube-system";

/// A pod of which only this much is kept.
#[derive(Debug, Clone)]
struct Lean {
    uid: Option<String>,
    ill: Ill,
}

/// Namespace and name of a pod where something is the matter with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ill {
    /// It gives volumes and is crash-looping.
    crashing: Option<String>,
    /// It is of kube-system and not Ready, with why.
    system: Option<String>,
}

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(from)?;
        let name = named(&pod.metadata);
        let crashing = is_crash_looping(&pod) && pods::facts(&pod).tier == Tier::Storage;
        let system = pod.metadata.namespace.as_deref() == Some(SYSTEM);
        let why = not_ready(&pod).filter(|_| system);
        let ill = Ill {
            crashing: crashing.then(|| name.clone()),
            system: why.map(|why| format!("{name} ({why})")),
        };
        Ok(Self { uid: pod.metadata.uid, ill })
    }
}

pub(super) fn named(meta: &Meta) -> String {
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn waiting(pod: &Pod) -> impl Iterator<Item = &str> {
    let all = pod.status.iter().flat_map(|it| [&it.init_container_statuses, &it.container_statuses]);
    all.flatten().flatten().filter_map(|it| it.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
}

fn is_crash_looping(pod: &Pod) -> bool {
    waiting(pod).any(|reason| reason == "CrashLoopBackOff")
}

/// Why a pod that should be Ready is not. One that has ended or is being deleted should not be.
fn not_ready(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|it| it.type_ == "Ready");
    if ready.is_some_and(|it| it.status == "True") {
        return None;
    }
    let reason = ready.and_then(|it| it.reason.clone()).filter(|it| !it.is_empty());
    Some(waiting(pod).next().map(str::to_owned).or(reason).unwrap_or_else(|| format!("phase {phase}")))
}

fn pod_scope(boot: &Boot) -> Scope {
    // All of them: the apps that a drain keeps are storage for the most part.
    Scope { labels: None, ..pods::scope(&boot.node) }
}

fn facts(all: &[&Ill]) -> [Fact; 2] {
    let sorted = |of: fn(&Ill) -> &Option<String>| {
        let mut all: Vec<String> = all.iter().filter_map(|it| of(it).clone()).collect();
        all.sort();
        all
    };
    [Fact::Storage(sorted(|it| &it.crashing)), Fact::System(sorted(|it| &it.system))]
}

/// One look at them.
pub(super) async fn look(cluster: &Cluster, boot: &Boot) -> Vec<Fact> {
    match listed::<Lean>(cluster, &pod_scope(boot)).await {
        Update::Listed(all) => facts(&all.iter().map(|it| &it.ill).collect::<Vec<_>>()).into(),
        Update::Put(_) | Update::Gone(_) => Vec::new(),
        Update::Trouble(error) => vec![trouble(Layer::Storage, &error)],
    }
}

/// Them, whenever one has changed.
pub(super) fn follow(cluster: &Cluster, boot: &Boot) -> BoxStream<'static, Fact> {
    let all: BTreeMap<String, Ill> = BTreeMap::new();
    heard::<Lean>(cluster, pod_scope(boot))
        .scan(all, |all, heard| {
            let uid = |pod: &Lean| pod.uid.clone().unwrap_or_default();
            match heard {
                Update::Listed(pods) => {
                    all.clear();
                    all.extend(pods.into_iter().map(|it| (uid(&it), it.ill)));
                }
                Update::Put(pod) => drop(all.insert(uid(&pod), pod.ill)),
                Update::Gone(pod) => drop(all.remove(&uid(&pod))),
                Update::Trouble(error) => return ready(Some(vec![trouble(Layer::Storage, &error)])),
            }
            all.retain(|_, ill| *ill != Ill::default());
            ready(Some(facts(&all.values().collect::<Vec<_>>()).into()))
        })
        .flat_map(stream::iter)
        .boxed()
}
