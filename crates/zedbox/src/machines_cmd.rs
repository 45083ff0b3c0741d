//! `zedbox machines`: virtual machines that drains have stopped, for a node that does not come back.
//!
//! Not here: how one is started (`kubenodeop::machines::undo`).

use anyhow::{Context as _, bail};
use kubenodeop::machines::undo;
use serde::Serialize;

use crate::Exit;
use crate::args::{MachinesAction, MachinesCommand, Output, Surroundings};
use crate::drain_cmd::voice::Voice;
use sheet::text::number;

/// Failures go to standard error in plain words.
pub(crate) async fn run(command: &MachinesCommand) -> Exit {
    let voice = Voice::new(command.place.at.output, &Surroundings::of_this_process());
    Voice::exit("machines", act(command, &voice).await.map(|()| Exit::Done))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StoppedMachineForm {
    name: String,
    node: String,
    /// Run strategy before.
    was: String,
}

async fn act(command: &MachinesCommand, voice: &Voice) -> anyhow::Result<()> {
    let cluster = command.place.cluster()?;
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
        return Voice::json(&all, false).map(drop);
    }
    let done = if node.is_some() { "asked to start again" } else { "stopped by drains" };
    let count = number(all.len(), "virtual machine");
    voice.paragraph(&format!("{count} {done}"))?;
    for StoppedMachineForm { name, node, was } in &all {
        voice.paragraph(&format!("{name}: by the drain of node {node}, was {was}"))?;
    }
    Ok(())
}
