//! Arguments of `zedbox machines`.

use clap::{Args as Group, Subcommand};

use super::cluster::OverCluster;

/// Virtual machines that drains have stopped, from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct MachinesCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: MachinesAction,
}

/// What can be done about them.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum MachinesAction {
    /// Show which are stopped, and by the drain of which node. Nothing is written.
    List,
    /// Start them again now. One that somebody has changed since stays as it is.
    Restore {
        /// Only those of this node's drains [default: all].
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
}
