//! `zedbox machines`: virtual machines that drains have stopped, for a node that does not come back.
//!
//! Not here: how one is started (`kubenodeop::machines::undo`).

use anyhow::{Context as _, bail};
use kubenodeop::machines::undo;
use serde::Serialize;

use crate::Exit;
use crate::args::{MachinesAction, MachinesCommand, Output};
use crate::drain_cmd::Shell;
use crate::drain_cmd::voice::Voice;
use sheet::text::number;

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StoppedMachineForm {
    name: String,
    node: String,
    /// Run strategy before.
    was: String,
}

pub(crate) async fn run(command: &MachinesCommand) -> anyhow::Result<Exit> {
    let shell = &Shell::open(&command.place.at)?;
    let (cluster, voice) = (shell.cluster(command.place.kubeconfig.as_deref())?, &shell.voice);
    let node = match &command.action {
        MachinesAction::List => None,
        MachinesAction::Restore { node } => Some(node.as_deref()),
    };
    let is_of = |of: &str| node.flatten().is_none_or(|it| it == of);
    let found = undo::stopped(&cluster).await.context("read virtual machines")?;
    let of_node = found.into_iter().filter(|(_, of)| is_of(of));
    let all: Vec<StoppedMachineForm> = of_node
        .map(|(work, node)| StoppedMachineForm {
            name: work.machine.path(),
            node,
            was: work.machine.mark.map(|it| it.was.to_string()).unwrap_or_default(),
        })
        .collect();
    if let Some(Some(name)) = node
        && all.is_empty()
    {
        bail!(
            "start virtual machines: no drain of a node {name} has stopped any; without --node those of all nodes are started"
        );
    }
    if node.is_some() {
        undo::start_all(&cluster, is_of).await.context("start virtual machines")?;
    }
    if voice.output == Output::Json {
        return Voice::json(&all, false).map(|_| Exit::Done);
    }
    let done = if node.is_some() { "asked to start again" } else { "stopped by drains" };
    let count = number(all.len(), "virtual machine");
    voice.paragraph(&format!("{count} {done}"))?;
    for StoppedMachineForm { name, node, was } in &all {
        voice.paragraph(&format!("{name}: by the drain of node {node}, was {was}"))?;
    }
    Ok(Exit::Done)
}
