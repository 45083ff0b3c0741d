//! Takes back what a drain asked of machines, and starts again those that it stopped.
//!
//! Everything is found by what is written on the objects, so it does not matter which run of the agent, or which node,
//! does it. Not here: when (zedkube).

use std::time::Duration;

use checks::IllObject;
use futures::future;
use futures::stream::{self, StreamExt as _};
use kube::api::GetParams;
use kube::core::Request;
use kubeapi::machines::calls::{GROUP, GUESTS, MACHINES, act, is_over, path};
use kubeapi::machines::{DRAIN, MachineAction, MachineWork, Stopped, room, starts};
use kubeapi::names::{NodeName, PodRef};
use kubeapi::objects::text;
use kubeapi::reply::{RefusedBy, Reply};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found};
use serde_json::Value;
use step::SmallSort as _;

use super::kubevirt::{clear, delete, mark};
use super::{Migration, MigrationSettings, facts};
use crate::progress::VIRT_API;

/// Between two looks at machines that are still to be started again.
pub const LOOKS_APART: Duration = Duration::from_secs(2);

/// Why there is no call that removes a mark.
const KEEPS_MARK: &str =
    "before 1.7 KubeVirt removes it for nobody; the machine leaves once it can be migrated";
/// Machines of which something is taken back at the same time.
const AT_ONCE: usize = 8;

async fn listed(cluster: &ApiClient, kind: &str, labels: Option<String>) -> Result<Vec<Value>, Error> {
    let scope = WatchScope { labels, ..WatchScope::all(kind, path(kind)) };
    match scope.list_installed::<Value>(cluster).await {
        Ok(list) => Ok(list.unwrap_or_default()),
        // A role without rights to read it is refused also where it is not installed. Every role may list the groups.
        Err(error) if error.is_refused() && !is_installed(cluster).await? => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(crate) async fn is_installed(cluster: &ApiClient) -> Result<bool, Error> {
    let (group, _) = GROUP.rsplit_once('/').unwrap_or((GROUP, ""));
    let all = Request::new("/apis".to_owned());
    let name = group.trim_start_matches("/apis/");
    match found(cluster.ask::<Value>("look for KubeVirt", all.get(name, &GetParams::default())).await) {
        Ok(group) => Ok(group.is_some()),
        // Not even that may be asked: it is taken to be there.
        Err(error) if error.is_refused() => Ok(true),
        Err(error) => Err(error),
    }
}

/// What a person can type about machines that cannot be read or written.
#[must_use]
pub fn next_step(error: &Error) -> String {
    if matches!(error.reply(), Reply::Permanent { by: RefusedBy::Role, .. }) {
        let role = "give the user of the kubeconfig the role pillar-rs-machines, as an administrator: `zedbox role | \
                    kubectl apply -f -`";
        return format!("{role}; it is tried again");
    }
    if matches!(error.reply(), Reply::Unanswered { .. }) {
        return VIRT_API.to_owned();
    }
    if matches!(error, Error::Unaskable { .. }) {
        return "wait; `kubectl get vmim -A` shows how far its migration is".to_owned();
    }
    error.next_step()
}

/// Takes back what drains of `node` have asked and is not done. A machine that was moved keeps its place, and what was
/// written on it goes.
/// Errors: the first that occurred, once each machine was tried: then something may be left, and it is to be called again.
pub async fn take_back(cluster: &ApiClient, node: &NodeName) -> Result<(), Error> {
    let all = listed(cluster, GUESTS, None).await?;
    let guests: Vec<&Value> = all.iter().filter(|it| facts::asked(it, node.as_str()).is_some()).collect();
    if guests.is_empty() {
        return Ok(());
    }
    let migrations = listed(cluster, "virtualmachineinstancemigrations", None).await?;
    let kubevirt = listed(cluster, "kubevirts", None).await?;
    let (settings, _): (MigrationSettings, _) = facts::settings(kubevirt.first().unwrap_or(&Value::Null));
    let calls = guests.into_iter().map(|guest| {
        let migration = facts::migrations(&migrations, guest).0;
        async move {
            let done = undo_one(cluster, node, settings, guest, migration).await;
            done.err().map(|error| (facts::named(guest), error))
        }
    });
    let failed: Vec<(PodRef, Error)> =
        stream::iter(calls.collect::<Vec<_>>()).buffered(AT_ONCE).filter_map(future::ready).collect().await;
    for (guest, error) in &failed {
        tracing::warn!(machine = %guest, %node, error = error.line(), "what was asked of a virtual machine is not undone yet");
    }
    failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// Takes back what was asked of one machine: the mark first, as without it KubeVirt makes no other migration. One in
/// post-copy runs to its end, and one of a machine that has left our node is somebody else's.
async fn undo_one(
    cluster: &ApiClient,
    node: &NodeName,
    settings: MigrationSettings,
    object: &Value,
    migration: Option<Migration>,
) -> Result<(), Error> {
    let (guest, status) = (facts::named(object), &object["status"]);
    let here = status["nodeName"] == node.as_str();
    if status["evacuationNodeName"] == node.as_str() {
        if !settings.cancels() {
            let what = format!("cancel the evacuation of virtual machine instance {guest}");
            return Err(Error::Unaskable { what, source: KEEPS_MARK.into() });
        }
        undone(clear(cluster, node, &guest).await)?;
    }
    if let Some(migration) = migration.filter(|it| here && !it.post_copy && !it.ending) {
        undone(delete(cluster, &migration.object).await)?;
    }
    // A drain of the node that it is on now may write there.
    let version = (!here).then(|| text(&object["metadata"]["resourceVersion"]));
    undone(mark(cluster, &guest, None, version.as_deref()).await)
}

/// What is gone, or another one, has nothing left to undo.
fn undone(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if error.reply() == Reply::UidChanged => Ok(()),
        other => found(other).map(drop),
    }
}

/// Machines that drains have stopped, in the order of their stops: what brings each back, the node of its drain, and
/// itself.
pub async fn stopped(cluster: &ApiClient) -> Result<Vec<(MachineWork, String)>, Error> {
    Ok(stopped_and_starting(cluster).await?.0)
}

/// These, and how many guests of the cluster are on their way up.
async fn stopped_and_starting(cluster: &ApiClient) -> Result<(Vec<(MachineWork, String)>, usize), Error> {
    let label = DRAIN.label.map(|it| format!("{it}=true"));
    let machines = listed(cluster, MACHINES, label).await?;
    if machines.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let mut guests = listed(cluster, GUESTS, None).await?;
    guests.retain(|it| !is_over(it));
    let place = |it: &Value| (it["metadata"]["namespace"].clone(), it["metadata"]["name"].clone());
    let own = |machine: &Value| guests.iter().find(|it| place(it) == place(machine));
    let all: Vec<_> = machines.iter().map(|it| facts::machine(it, own(it))).collect();
    let node = |it: &MachineWork| it.machine.mark.as_ref().map(|it| it.node.clone()).unwrap_or_default();
    let work = starts(|_: &Stopped| true, &all).into_iter();
    let starting = guests.iter().filter(|it| it["status"]["phase"] != "Running" && !facts::is_ending(it));
    Ok((work.map(|it| (it.clone(), node(&it))).collect(), starting.count()))
}

/// Takes back what drains of `node` have asked, and starts again what they have stopped, as [`start_again`] does.
pub async fn undo_all(cluster: &ApiClient, node: &NodeName) -> Result<usize, Error> {
    let taken = take_back(cluster, node).await;
    let later = start_again(cluster, |it| it == node.as_str()).await;
    taken.and(later)
}

/// Starts again what drains of the nodes for which `of` holds have stopped, unless it was changed since, a few at a
/// time. Returns how many are to be started later: they still shut down, or others are on their way up.
/// Errors: the first that occurred, once as many as may were started.
pub async fn start_again(cluster: &ApiClient, of: impl Fn(&str) -> bool) -> Result<usize, Error> {
    let (shutting_down, waiting) = start_some(cluster, of).await?;
    Ok(shutting_down + waiting)
}

/// Starts as many as may. How many still shut down, and how many wait only for others that are on their way up.
async fn start_some(cluster: &ApiClient, of: impl Fn(&str) -> bool) -> Result<(usize, usize), Error> {
    let (all, starting) = stopped_and_starting(cluster).await?;
    let (mut room, mut later, mut failed) = (room(starting), (0, 0), None);
    for (work, node) in all.into_iter().filter(|(_, node)| of(node)) {
        if work.turn == MachineAction::Later {
            later.0 += 1;
        } else if room == 0 {
            later.1 += 1;
        } else if let Err(error) = act(cluster, &work).await {
            // The next one has its place.
            tracing::warn!(machine = work.machine.path(), %node, error = error.line(), "virtual machine is not started");
            failed.get_or_insert(error);
        } else {
            room -= usize::from(work.turn != MachineAction::Leave);
            tracing::info!(machine = work.machine.path(), %node, "virtual machine that a drain stopped: {}", word(&work.turn));
        }
    }
    failed.map_or(Ok(later), Err)
}

/// Starts all of them, look after look. How many still shut down and are to be started later.
pub async fn start_all(cluster: &ApiClient, of: impl Fn(&str) -> bool) -> Result<usize, Error> {
    loop {
        let (shutting_down, waiting) = start_some(cluster, &of).await?;
        if waiting == 0 {
            return Ok(shutting_down);
        }
        tokio::time::sleep(LOOKS_APART).await;
    }
}

/// The machines of `node` that are not up, and those that no node has, each with how it is and since when by the server's
/// clock; `None` without KubeVirt.
pub async fn not_up(cluster: &ApiClient, node: &NodeName) -> Result<Option<Vec<IllObject>>, Error> {
    let stopped = listed(cluster, MACHINES, DRAIN.label.map(|it| format!("{it}=true"))).await?;
    let of_ours = |it: &&Value| facts::machine(it, None).mark.is_some_and(|mark| mark.node == node.as_str());
    let off = |it: &Value| {
        let at = facts::machine(it, None).mark.map(|it| it.at).unwrap_or_default();
        let how = format!("a drain of this node stopped it at {at}, and it is not started again yet");
        (facts::named(it).to_string(), how)
    };
    let mut all: Vec<(String, String)> = stopped.iter().filter(of_ours).map(off).collect();
    for labels in [format!("{}={node}", facts::NODE_LABEL), format!("!{}", facts::NODE_LABEL)] {
        let scope =
            WatchScope { labels: Some(labels), ..WatchScope::all("virtual machine instances", path(GUESTS)) };
        let Some(guests) = scope.list_installed::<Value>(cluster).await? else { return Ok(None) };
        let down = guests
            .iter()
            .filter(|it| !is_over(it))
            .filter_map(|it| Some((facts::named(it).to_string(), facts::not_up(it)?)));
        all.extend(down);
    }
    all.order();
    all.dedup_by(|one, other| one.0 == other.0);
    Ok(Some(all.into_iter().map(|(name, how)| IllObject::new(name, &how)).collect()))
}

/// What was done with one, for the log.
const fn word(turn: &MachineAction) -> &'static str {
    match turn {
        MachineAction::Set(..) | MachineAction::Start => "started again",
        MachineAction::Leave => "left as it is now",
        MachineAction::Stop(_) => "stopped",
        MachineAction::Later => "still shutting down",
    }
}
