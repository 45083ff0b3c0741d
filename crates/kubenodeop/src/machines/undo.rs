//! Takes back what a drain asked of machines, and starts again those that it stopped.
//!
//! Everything is found by what is written on the objects, so it does not matter which run of the agent, or which node, does
//! it. Not here: when (zedkube). Source: spec/vm-storage.md A5, A6, A8; goals D12, D19.

use kube::api::GetParams;
use kube::core::Request;
use kubeapi::machines::calls::{GROUP, MACHINES, act};
use kubeapi::machines::{DRAIN, MachineWork, Stopped, Turn, starts};
use kubeapi::names::{NodeName, PodRef};
use kubeapi::reply::{Class, Reply};
use kubeapi::watch::Scope;
use kubeapi::{Cluster, Error};
use serde_json::Value;

use super::kubevirt::{clear, delete, mark};
use super::{Asked, Migration, Settings, facts};

const GUESTS: &str = "virtualmachineinstances";

/// An instance that a drain of our node has asked to migrate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedOne {
    /// It.
    pub guest: PodRef,
    /// What is written there.
    pub asked: Asked,
    /// It is marked for leaving our node.
    pub marked: bool,
    /// Its migration that is not over.
    pub migration: Option<Migration>,
}

/// One call that takes something back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// KubeVirt's mark is removed.
    ClearMark,
    /// This migration is ended.
    DeleteMigration(PodRef),
    /// What was written on the instance is removed.
    Forget,
}

/// What takes back what was asked of one, in order: without the mark KubeVirt makes no other migration. One in post-copy
/// runs to its end.
#[must_use]
pub fn takes_back(it: &AskedOne) -> Vec<Undo> {
    let mut calls = Vec::new();
    if it.marked {
        calls.push(Undo::ClearMark);
    }
    if let Some(migration) = it.migration.as_ref().filter(|it| !it.post_copy && !it.ending) {
        calls.push(Undo::DeleteMigration(migration.object.clone()));
    }
    calls.push(Undo::Forget);
    calls
}

async fn listed(cluster: &Cluster, kind: &str, labels: Option<String>) -> Result<Vec<Value>, Error> {
    let path = format!("{GROUP}/{kind}");
    let scope = Scope { what: kind.to_owned(), path, fields: None, labels };
    match scope.list_all::<Value>(cluster).await {
        Ok(list) => Ok(list.items),
        // There is no KubeVirt.
        Err(error) if matches!(error.reply(), Reply::NotFound { .. }) => Ok(Vec::new()),
        // Who may not read them has asked nothing of them.
        Err(error) if matches!(error.reply(), Reply::Permanent { .. }) => {
            tracing::debug!(error = error.line(), "virtual machines are not read");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Takes back what drains of `node` have asked and is not done. A machine that was moved keeps its place.
///
/// # Errors
/// Those of [`Cluster`]: then something may be left, and it is to be called again.
pub async fn take_back(cluster: &Cluster, node: &NodeName) -> Result<(), Error> {
    let here = Some(format!("{}={node}", facts::NODE_LABEL));
    let all = listed(cluster, GUESTS, here).await?;
    let asked = |guest: &Value| facts::asked(guest, node.as_str());
    let guests: Vec<(&Value, Asked)> = all.iter().filter_map(|it| Some((it, asked(it)?))).collect();
    if guests.is_empty() {
        return Ok(());
    }
    let migrations = listed(cluster, "virtualmachineinstancemigrations", None).await?;
    let kubevirt = listed(cluster, "kubevirts", None).await?;
    let (settings, _): (Settings, _) = facts::settings(kubevirt.first().unwrap_or(&Value::Null));
    for (guest, asked) in guests {
        let one = AskedOne {
            guest: facts::named(guest),
            asked,
            marked: guest["status"]["evacuationNodeName"] == node.as_str(),
            migration: facts::migrations(&migrations, guest).0,
        };
        for call in takes_back(&one) {
            let done = match &call {
                Undo::ClearMark => clear(cluster, node, settings, &one.guest).await,
                Undo::DeleteMigration(migration) => delete(cluster, migration).await,
                Undo::Forget => mark(cluster, &one.guest, None).await,
            };
            match done {
                Err(error) if matches!(error.reply(), Reply::NotFound { .. } | Reply::UidChanged) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// Machines that drains have stopped, the oldest first: what brings each back, the node of its drain, and itself.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn stopped(cluster: &Cluster) -> Result<Vec<(MachineWork, String)>, Error> {
    let label = DRAIN.label.map(|it| format!("{it}=true"));
    let mut all = Vec::new();
    for machine in listed(cluster, MACHINES, label).await? {
        let name = facts::named(&machine);
        let what = format!("read virtual machine instance {name}");
        let guests = Request::new(format!("{GROUP}/namespaces/{}/{GUESTS}", name.namespace));
        let guest = match cluster.ask::<Value>(&what, guests.get(&name.name, &GetParams::default())).await {
            Ok(guest) => Some(guest),
            Err(error) if matches!(error.reply(), Reply::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        all.push(facts::machine(&machine, guest.as_ref()));
    }
    let work = starts(|_: &Stopped| true, &[], &all);
    let node = |it: &MachineWork| it.machine.mark.as_ref().map(|it| it.node.clone()).unwrap_or_default();
    Ok(work
        .into_iter()
        .map(|it| {
            let node = node(&it);
            (it, node)
        })
        .collect())
}

/// Starts again what drains of the nodes have stopped for which `of` holds, where nobody has changed it since. How many
/// still shut down and are to be started later.
///
/// # Errors
/// The first that occurred, once all have been tried.
pub async fn start_again(cluster: &Cluster, of: impl Fn(&str) -> bool) -> Result<usize, Error> {
    let (mut later, mut failed) = (0, None);
    for (work, node) in stopped(cluster).await? {
        if !of(&node) {
            continue;
        }
        if work.turn == Turn::Later {
            later += 1;
        } else if let Err(error) = act(cluster, &work).await {
            tracing::warn!(machine = work.machine.path(), %node, error = error.line(), "virtual machine is not started");
            // One that is refused is tried again by whoever leads; it holds nothing up.
            if !error.is_conflict() && error.reply().class() != Class::Permanent {
                failed.get_or_insert(error);
            }
        } else {
            tracing::info!(machine = work.machine.path(), %node, "virtual machine that a drain stopped: {}", word(&work.turn));
        }
    }
    failed.map_or(Ok(later), Err)
}

/// What was done with one, for the log.
const fn word(turn: &Turn) -> &'static str {
    match turn {
        Turn::Set(..) | Turn::Start => "started again",
        Turn::Leave => "left as it is now",
        Turn::Stop(_) => "stopped",
        Turn::Later => "still shutting down",
    }
}
