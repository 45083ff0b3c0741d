//! `zedbox demo`, and the processes that it starts.

use std::path::PathBuf;

use clap::{Args as Group, ValueEnum};

use super::{AgentOptions, NAMES};

/// What the demo shows, and where it works.
#[derive(Debug, Clone, Group)]
pub(crate) struct DemoOptions {
    /// Directory that is made again and left behind for a look.
    #[arg(long, value_name = "DIR", default_value = "./run/demo")]
    pub(crate) dir: PathBuf,
    /// What is shown.
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub(crate) scenario: Scenario,
    /// Keep the cluster and its three machines running until Ctrl-C, and print what to try with them.
    #[arg(long)]
    pub(crate) keep: bool,
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
