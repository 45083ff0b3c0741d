//! Pods of our node, as the gate after a boot wants to know them: storage that is crash-looping, and what of kube-system
//! is not Ready.
//!
//! Not here: what that means (`gate`).

use std::collections::BTreeMap;

use checks::{IllObject, workloads};
use futures::stream::{self, BoxStream, StreamExt};
use kubeapi::ApiClient;
use kubeapi::objects::{items, text};
use kubeapi::slim::{Meta, Pod};
use kubeapi::watch::{Manner, ObjectMirror, WatchScope, jitter_seed};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{BootWatch, found};
use crate::calls::pods;
use crate::node::gate::{Check, GateFact};
use crate::plan::tier::Tier;

/// Networks that a pod asks for besides the one of all pods, and those that it has.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
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
    crashing: Option<IllObject>,
    /// It gives volumes, is to have an address in a network of its own, and has none there: with that network.
    unconnected: Option<IllObject>,
    /// It is of kube-system and not Ready, with why.
    system: Option<IllObject>,
}

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(from)?;
        let name = named(&pod.metadata);
        let storage = pods::facts(&pod).tier == Tier::Storage;
        let crashing = storage && waiting(&pod).any(|reason| reason == "CrashLoopBackOff");
        let unconnected = storage.then(|| unconnected(&pod)).flatten();
        let system = pod.metadata.namespace.as_deref() == Some(SYSTEM);
        let why = not_ready(&pod).filter(|_| system);
        let ill = Ill {
            crashing: crashing.then(|| IllObject::alone(name.clone())),
            unconnected: unconnected.map(|it| IllObject::new(name.clone(), &format!("network {it}"))),
            system: why.map(|why| IllObject::new(name, &why)),
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

/// The network besides that of all pods that it asks for, as one for storage, and in which it has no address. What is to
/// have ended or has not begun needs none. Source: the Kubernetes Network Custom Resource Definition De-facto Standard 1.3.
fn unconnected(pod: &Pod) -> Option<String> {
    let marks = pod.metadata.annotations.as_ref()?;
    let wanted = marks.get(NETWORKS)?.trim();
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if wanted.is_empty() || phase != Some("Running") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    // A list of names with commas, or of objects; as namespace/name@interface.
    let of_objects = serde_json::from_str::<Vec<Value>>(wanted).ok();
    let names: Vec<String> = match of_objects {
        Some(all) => all.iter().map(|it| text(&it["name"])).collect(),
        None => wanted.split(',').map(str::to_owned).collect(),
    };
    let plain = |name: &str| {
        let name = name.trim().split('@').next().unwrap_or_default();
        name.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let seen: Value =
        marks.get(NETWORK_STATUS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    let has_address = |name: &String| {
        let mut all = items(&seen).iter();
        all.any(|it| plain(&text(&it["name"])) == *name && !items(&it["ips"]).is_empty())
    };
    names.iter().map(|it| plain(it)).find(|it| !it.is_empty() && !has_address(it))
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

fn pod_scope(boot: &BootWatch) -> WatchScope {
    // All of them: the apps that a drain keeps are storage for the most part.
    WatchScope { labels: None, ..pods::scope(&boot.node) }
}

fn facts(all: &BTreeMap<String, Ill>) -> Vec<GateFact> {
    type Part = fn(&Ill) -> &Option<IllObject>;
    let (logs, describe) = ("logs --previous", "describe pod");
    let rows: [(Check, &str, &str, Part); 3] = [
        (Check::CrashLoops, "storage pods are crash-looping", logs, |it| &it.crashing),
        (
            Check::Unconnected,
            "storage pods have no address in the network that they ask for",
            describe,
            |it| &it.unconnected,
        ),
        (Check::SystemPods, "pods are not Ready", describe, |it| &it.system),
    ];
    let of = |(check, what, verb, part): (Check, &str, &str, Part)| {
        let mut all: Vec<IllObject> = all.values().filter_map(|it| part(it).clone()).collect();
        all.sort();
        GateFact::Found(check, workloads::named(what, &all, verb))
    };
    rows.map(of).into()
}

/// What is kept of a pod, where something is the matter with it.
fn kept(pod: Lean) -> (String, Option<Ill>) {
    (pod.uid.unwrap_or_default(), Some(pod.ill).filter(|it| *it != Ill::default()))
}

/// Them, whenever one has changed.
pub(super) fn follow(cluster: &ApiClient, boot: &BootWatch) -> BoxStream<'static, GateFact> {
    ObjectMirror::open(cluster, pod_scope(boot), Manner::default(), jitter_seed(), kept)
        .changes(facts)
        .map(|heard| heard.unwrap_or_else(|error| vec![found(Err(error), Check::CrashLoops)]))
        .flat_map(stream::iter)
        .boxed()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r4_a_storage_pod_without_an_address_in_the_network_it_asks_for_is_named_and_one_that_asks_for_none_is_not()
     {
        let status = json!([{ "name": "cbr0", "ips": ["10.42.0.5"] }, { "name": "kube-system/lh", "interface": "lhnet1",
            "ips": ["172.16.0.5"] }])
        .to_string();
        let bare = json!([{ "name": "kube-system/lh", "ips": [] }]).to_string();
        let objects = json!([{ "name": "lh", "namespace": "kube-system" }]).to_string();
        // What it asks for, what it has, its phase, and the network that lacks.
        let table = [
            ("", "", "Running", None),
            ("kube-system/lh@lhnet1", status.as_str(), "Running", None),
            (objects.as_str(), status.as_str(), "Running", None),
            ("lh", "", "Running", Some("lh")),
            ("kube-system/lh@lhnet1", bare.as_str(), "Running", Some("lh")),
            (objects.as_str(), "[]", "Running", Some("lh")),
            ("lh, vlan5", status.as_str(), "Running", Some("vlan5")),
            ("lh", "no JSON", "Running", Some("lh")),
            ("lh", "", "Pending", None),
            ("lh", "", "Succeeded", None),
        ];
        for (networks, has, phase, lacks) in table {
            let pod = json!({
                "metadata": { "name": "im", "namespace": "longhorn-system", "labels": { "longhorn.io/component": "instance-manager" },
                    "annotations": { NETWORKS: networks, NETWORK_STATUS: has } },
                "status": { "phase": phase },
            });
            let read: Pod = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(unconnected(&read).as_deref(), lacks, "{networks} {has} {phase}");
            // Of a pod that serves no volumes nothing is wanted.
            let lean: Lean = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(lean.ill.unconnected.is_some(), lacks.is_some(), "{pod}");
            let mut other = pod;
            other["metadata"]["labels"] = json!({});
            other["metadata"]["namespace"] = "shop".into();
            let lean: Lean = serde_json::from_value(other).unwrap();
            assert_eq!(lean.ill.unconnected, None);
        }
    }
}
