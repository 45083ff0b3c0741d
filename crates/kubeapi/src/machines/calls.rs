//! The calls that stop and start virtual machines.
//!
//! Not here: which one (`super`), and when.

use kube::api::{GetParams, Patch, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use super::{MachineAction, MachineSeen, MachineWork, Marking, RunStrategy, Stopped};
use crate::nodes::signed;
use crate::objects::{items, text};
use crate::{ApiClient, Error, found};

pub const GROUP: &str = "/apis/kubevirt.io/v1";
pub const MACHINES: &str = "virtualmachines";
pub const SETS: &str = "virtualmachineinstancereplicasets";
/// Instances of machines.
pub const GUESTS: &str = "virtualmachineinstances";
pub const LAUNCHERS: &str = "kubevirt.io=virt-launcher";

#[must_use]
pub fn path(kind: &str) -> String {
    format!("{GROUP}/{kind}")
}

#[must_use]
pub fn in_namespace(kind: &str, namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/{kind}")
}

/// A subresource, through which KubeVirt is asked to act.
pub fn subresource(
    kind: &str,
    namespace: &str,
    name: &str,
    what: &str,
    body: Vec<u8>,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let all = format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/{kind}");
    Request::new(all).replace_subresource(what, name, &PostParams::default(), body)
}

/// Whether a guest, a launcher or a migration has ended.
#[must_use]
pub fn is_over(object: &Value) -> bool {
    matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn strategy(spec: &Value) -> RunStrategy {
    RunStrategy {
        run_strategy: spec["runStrategy"].as_str().map(str::to_owned),
        running: spec["running"].as_bool(),
        replicas: spec["replicas"].as_i64(),
    }
}

/// A machine, or a replica set of machines; `own` is the machine's guest that is not over.
#[must_use]
pub fn described(
    kind: &'static str,
    object: &Value,
    own: Option<&Value>,
    marking: &'static Marking,
) -> MachineSeen {
    let (meta, mut strategy) = (&object["metadata"], strategy(&object["spec"]));
    if kind == SETS {
        strategy.replicas.get_or_insert(1);
    }
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
        marking,
        mark: meta["annotations"][marking.annotation].as_str().and_then(|it| serde_json::from_str(it).ok()),
        alive: own.is_some(),
        stopping: asked("Stop") || own.is_some_and(|it| !it["metadata"]["deletionTimestamp"].is_null()),
        starting: asked("Start"),
    }
}

/// Stops or starts one. A lost race changes nothing: it is read again.
///
/// Errors: those of [`ApiClient`]; a conflict only for a refused start.
pub async fn act(cluster: &ApiClient, work: &MachineWork) -> Result<(), Error> {
    let it = &work.machine;
    let done = match &work.turn {
        MachineAction::Set(strategy, mark) => set(cluster, it, strategy, mark.as_ref()).await,
        MachineAction::Stop(mark) => stop(cluster, it, mark).await,
        MachineAction::Start => start(cluster, it).await,
        MachineAction::Later => Ok(()),
        MachineAction::Leave => set(cluster, it, &RunStrategy::default(), None).await,
    };
    match done {
        // A refused start is an error.
        Err(error) if error.is_conflict() && work.turn != MachineAction::Start => Ok(()),
        // Deleted since it was read: no error.
        other => found(other).map(drop),
    }
}

fn place(it: &MachineSeen) -> String {
    in_namespace(it.kind, &it.namespace)
}

/// The metadata of a patch that sets or removes the mark.
fn marked(it: &MachineSeen, written: &Value) -> Value {
    let mut metadata = json!({ "annotations": { it.marking.annotation: written } });
    if let Some(label) = it.marking.label {
        let there = if written.is_null() { Value::Null } else { "true".into() };
        metadata["labels"] = json!({ label: there });
    }
    metadata
}

async fn patch(cluster: &ApiClient, it: &MachineSeen, patch: Value) -> Result<(), Error> {
    let what = format!("patch {} {}/{}", it.kind, it.namespace, it.name);
    cluster.order(&what, Request::new(place(it)).patch(&it.name, &signed(), &Patch::Merge(patch))).await
}

/// Sets `strategy` and the mark, if the object is unchanged since it was read.
async fn set(
    cluster: &ApiClient,
    it: &MachineSeen,
    strategy: &RunStrategy,
    mark: Option<&Stopped>,
) -> Result<(), Error> {
    let written = mark.map(serde_json::to_string).transpose().map_err(|source| Error::Unaskable {
        what: format!("mark {} {}/{}", it.kind, it.namespace, it.name),
        source: source.into(),
    })?;
    let mut body = json!({ "metadata": marked(it, &json!(written)), "spec": strategy });
    body["metadata"]["resourceVersion"] = it.version.as_str().into();
    patch(cluster, it, body).await
}

/// The mark comes first: a stopped machine without it would stay off.
async fn stop(cluster: &ApiClient, it: &MachineSeen, mark: &Stopped) -> Result<(), Error> {
    if it.mark.as_ref() != Some(mark) {
        set(cluster, it, &RunStrategy::default(), Some(mark)).await?;
    }
    ask(cluster, it, "stop").await?;
    // KubeVirt before 1.2 changes the strategy of a machine that it stops by a request.
    let what = format!("read {} {}/{}", it.kind, it.namespace, it.name);
    let now: Value = cluster.ask(&what, Request::new(place(it)).get(&it.name, &GetParams::default())).await?;
    let left = strategy(&now["spec"]);
    if left == mark.left {
        return Ok(());
    }
    let it = MachineSeen { version: text(&now["metadata"]["resourceVersion"]), ..it.clone() };
    set(cluster, &it, &RunStrategy::default(), Some(&Stopped { left, ..mark.clone() })).await
}

/// The mark goes last: a machine that did not start is asked once more.
async fn start(cluster: &ApiClient, it: &MachineSeen) -> Result<(), Error> {
    ask(cluster, it, "start").await?;
    patch(cluster, it, json!({ "metadata": marked(it, &Value::Null) })).await
}

async fn ask(cluster: &ApiClient, it: &MachineSeen, what: &str) -> Result<(), Error> {
    let request = subresource(it.kind, &it.namespace, &it.name, what, b"{}".to_vec());
    cluster.order(&format!("{what} virtual machine {}/{}", it.namespace, it.name), request).await
}
