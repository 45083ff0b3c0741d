//! Arguments of `zedbox demo`, of the processes that it starts, and of `zedbox site drill`.

use std::path::PathBuf;

use clap::{Args as Group, ValueEnum, value_parser};

use super::{AgentOptions, NAMES};
use crate::demo::nodes::NODES;

/// What the demo shows, and where it works.
#[derive(Debug, Clone, Group)]
pub(crate) struct DemoOptions {
    /// Directory that is made again and left behind for a look.
    #[arg(long, value_name = "DIR", default_value = "./run/demo")]
    pub(crate) dir: PathBuf,
    /// What is shown.
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub(crate) scenario: Scenario,
    /// Nodes of the cluster.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u8).range(1..=5))]
    pub(crate) nodes: u8,
    /// Keep the cluster and its machines running until Ctrl-C, and print what to try with them.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Show between the sentences what the agents publish.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Scenario {
    /// A reboot waits for its drain, which a PodDisruptionBudget blocks for a while.
    #[default]
    Reboot,
    /// The drain for a reboot fails: the machine stays up until a later drain completes.
    FailedDrain,
    /// An OS update waits for its drain, and the machine boots the new image.
    OsUpdate,
    /// The whole site is switched off in order, and on again.
    SiteStop,
    /// Virtual machines move to other nodes before their node reboots.
    MovingMachines,
}

/// One agent of the demo in a process of its own, which ends with the demo.
#[derive(Debug, Clone, Group)]
pub(crate) struct DemoAgent {
    /// Its name.
    #[arg(value_parser = NAMES)]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) options: AgentOptions,
}

/// How the drill goes.
#[derive(Debug, Clone, Group)]
pub(crate) struct DrillOptions {
    /// Directory that is made again and left behind for a look.
    #[arg(long, value_name = "DIR", default_value = "./run/drill")]
    pub(crate) dir: PathBuf,
    /// Nodes of the cluster.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u8).range(1..=5))]
    pub(crate) nodes: u8,
    /// In which order the nodes get their power back, as `edge-node-2,edge-node-1`.
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = node)]
    pub(crate) order: Vec<usize>,
    /// A node that stays off.
    #[arg(long, value_name = "NODE", value_parser = node)]
    pub(crate) missing: Option<usize>,
    /// What the clocks of the nodes show after the power cut: `right`, `1970`, or so many days ahead, as `+400d`.
    #[arg(long, value_name = "CLOCK", value_parser = clock, default_value = "right", allow_hyphen_values = true)]
    pub(crate) clock: i64,
}

fn node(text: &str) -> Result<usize, String> {
    let known = NODES.iter().position(|(name, _)| *name == text);
    known.ok_or_else(|| format!("expected one of {}", NODES.map(|(name, _)| name).join(", ")))
}

/// Seconds ahead; a clock goes back to 1970 at most.
fn clock(text: &str) -> Result<i64, String> {
    let days =
        text.strip_prefix('+').and_then(|it| it.strip_suffix('d')).and_then(|it| it.parse::<i64>().ok());
    match (text, days) {
        ("right", _) => Ok(0),
        ("1970", _) => Ok(i64::MIN),
        (_, Some(days @ 0..=36_500)) => Ok(days * 86_400),
        _ => Err("expected right, 1970, or days ahead as +400d".to_owned()),
    }
}
