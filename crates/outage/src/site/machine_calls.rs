//! What a whole-site operation reads and writes of virtual machines.
//!
//! Not here: which one is stopped or started (`machines`), and when (`coordinate`). Without KubeVirt there are none, and
//! only that is asked. Source: spec/vm-storage.md A1 and A8.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{GetParams, Patch, PostParams};
use kube::core::Request;
use kubeapi::nodes::signed;
use kubeapi::objects::{items, text};
use kubeapi::watch::Scope;
use kubeapi::{Cluster, Error, found};
use serde_json::{Value, json};

use super::calls::{installed, listed, named};
use super::machines::{MachineSeen, MachineWork, Machines, Stopped, Strategy, Turn};

/// Annotation of a machine: what a whole-site operation changed there, a JSON object [`Stopped`].
pub const STOPPED: &str = "pillar-rs/site-stopped";
pub(super) const GROUP: &str = "/apis/kubevirt.io/v1";
/// Machines.
pub(super) const MACHINES: &str = "virtualmachines";
/// Replica sets of machines.
const SETS: &str = "virtualmachineinstancereplicasets";

/// Reads them.
pub(super) async fn find(cluster: &Cluster) -> Result<Machines, Error> {
    let guests = installed(cluster, "virtual machines", format!("{GROUP}/virtualmachineinstances")).await?;
    let Some(guests) = guests else { return Ok(Machines::default()) };
    let launchers = Scope {
        labels: Some("kubevirt.io=virt-launcher".to_owned()),
        ..Scope::all("launchers of virtual machines", Pod::url_path(&(), None))
    };
    let (machines, sets, launchers) = futures::try_join!(
        listed(cluster, MACHINES, format!("{GROUP}/{MACHINES}")),
        listed(cluster, SETS, format!("{GROUP}/{SETS}")),
        launchers.list_all::<Value>(cluster)
    )?;
    let guests: Vec<&Value> = guests.iter().filter(|it| !is_over(it)).collect();
    let running: BTreeSet<String> = guests.iter().map(|it| named(it)).collect();
    let mut found = Machines {
        all: machines.iter().map(|it| seen(MACHINES, it, &guests)).collect(),
        guests: running.iter().cloned().collect(),
        loose: guests.iter().filter(|it| is_loose(it)).map(|it| named(it)).collect(),
    };
    found.all.extend(sets.iter().map(|it| seen(SETS, it, &[])));
    let guest = |pod: &Value| {
        let meta = &pod["metadata"];
        format!("{}/{}", text(&meta["namespace"]), text(&meta["annotations"]["kubevirt.io/domain"]))
    };
    let left = launchers.items.iter().filter(|it| !is_over(it) && !running.contains(&guest(it)));
    found.guests.extend(left.map(|it| format!("launcher {}", named(it))));
    Ok(found)
}

fn is_over(object: &Value) -> bool {
    matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_loose(guest: &Value) -> bool {
    let owner = |it: &Value| {
        matches!(it["kind"].as_str(), Some("VirtualMachine" | "VirtualMachineInstanceReplicaSet"))
    };
    !items(&guest["metadata"]["ownerReferences"]).iter().any(owner)
}

fn strategy(spec: &Value) -> Strategy {
    Strategy {
        run_strategy: spec["runStrategy"].as_str().map(str::to_owned),
        running: spec["running"].as_bool(),
        replicas: spec["replicas"].as_i64(),
    }
}

fn seen(kind: &'static str, object: &Value, guests: &[&Value]) -> MachineSeen {
    let (meta, mut strategy) = (&object["metadata"], strategy(&object["spec"]));
    if kind == SETS {
        strategy.replicas.get_or_insert(1);
    }
    let own = guests.iter().find(|it| kind == MACHINES && named(it) == named(object));
    let asked =
        |what: &str| items(&object["status"]["stateChangeRequests"]).iter().any(|it| it["action"] == what);
    MachineSeen {
        kind,
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        uid: text(&meta["uid"]),
        version: text(&meta["resourceVersion"]),
        created: text(&meta["creationTimestamp"]),
        strategy,
        mark: meta["annotations"][STOPPED].as_str().and_then(|it| serde_json::from_str(it).ok()),
        alive: own.is_some(),
        stopping: asked("Stop") || own.is_some_and(|it| !it["metadata"]["deletionTimestamp"].is_null()),
        starting: asked("Start"),
    }
}

/// Stops or starts one. A lost race changes nothing: it is read again.
///
/// # Errors
/// Those of [`Cluster`], but a conflict only where it is a start that is refused.
pub async fn act(cluster: &Cluster, work: &MachineWork) -> Result<(), Error> {
    let it = &work.machine;
    let done = match &work.turn {
        Turn::Set(strategy, mark) => set(cluster, it, strategy, mark.as_ref()).await,
        Turn::Stop(mark) => stop(cluster, it, mark).await,
        Turn::Start => start(cluster, it).await,
        Turn::Later => Ok(()),
        Turn::Leave => set(cluster, it, &Strategy::default(), None).await,
    };
    match done {
        // One that is refused its start is named.
        Err(error) if error.is_conflict() && work.turn != Turn::Start => Ok(()),
        // One that was deleted since it was read is no error.
        other => found(other).map(drop),
    }
}

fn place(it: &MachineSeen) -> String {
    format!("{GROUP}/namespaces/{}/{}", it.namespace, it.kind)
}

async fn patch(cluster: &Cluster, it: &MachineSeen, patch: Value) -> Result<(), Error> {
    let what = format!("patch {} {}/{}", it.kind, it.namespace, it.name);
    cluster.order(&what, Request::new(place(it)).patch(&it.name, &signed(), &Patch::Merge(patch))).await
}

/// Sets what `strategy` names, and what is written there, if the object is still as it was read.
async fn set(
    cluster: &Cluster,
    it: &MachineSeen,
    strategy: &Strategy,
    mark: Option<&Stopped>,
) -> Result<(), Error> {
    let written = mark.map(serde_json::to_string).transpose().map_err(|source| Error::Unaskable {
        what: format!("mark {} {}/{}", it.kind, it.namespace, it.name),
        source: source.into(),
    })?;
    let body = json!({
        "metadata": { "resourceVersion": it.version, "annotations": { STOPPED: written } }, "spec": strategy,
    });
    patch(cluster, it, body).await
}

/// What is written there comes first: a machine that is off without it would stay off.
async fn stop(cluster: &Cluster, it: &MachineSeen, mark: &Stopped) -> Result<(), Error> {
    if it.mark.as_ref() != Some(mark) {
        set(cluster, it, &Strategy::default(), Some(mark)).await?;
    }
    ask(cluster, it, "stop").await?;
    // KubeVirt before 1.2 changes the word of a machine that it stops by a request.
    let what = format!("read {} {}/{}", it.kind, it.namespace, it.name);
    let now: Value = cluster.ask(&what, Request::new(place(it)).get(&it.name, &GetParams::default())).await?;
    let left = strategy(&now["spec"]);
    if left == mark.left {
        return Ok(());
    }
    let it = MachineSeen { version: text(&now["metadata"]["resourceVersion"]), ..it.clone() };
    set(cluster, &it, &Strategy::default(), Some(&Stopped { left, ..mark.clone() })).await
}

/// What is written there goes last: a machine that was not started is asked once more.
async fn start(cluster: &Cluster, it: &MachineSeen) -> Result<(), Error> {
    ask(cluster, it, "start").await?;
    patch(cluster, it, json!({ "metadata": { "annotations": { STOPPED: null } } })).await
}

async fn ask(cluster: &Cluster, it: &MachineSeen, what: &str) -> Result<(), Error> {
    let all = format!("/apis/subresources.kubevirt.io/v1/namespaces/{}/{}", it.namespace, it.kind);
    let request =
        Request::new(all).replace_subresource(what, &it.name, &PostParams::default(), b"{}".to_vec());
    cluster.order(&format!("{what} virtual machine {}/{}", it.namespace, it.name), request).await
}
