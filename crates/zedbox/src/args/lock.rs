//! Arguments of `zedbox lock`.

use clap::{Args as Group, Subcommand};

use super::OverCluster;

/// The turns of the cluster's nodes to be down, from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct LockCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: LockAction,
}

/// What can be done about turns.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum LockAction {
    /// Show who holds a turn, who waits and why, who counts as down, and what to type. Nothing is written.
    Status {
        /// Node to explain [default: the first of the queue].
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// Take the turn from a node that will not continue. It stops and starts over when it looks next.
    Release {
        /// The node that holds the turn.
        #[arg(value_name = "NODE")]
        node: String,
        /// Number of its turn, as `status` shows it; another one is refused.
        #[arg(long, value_name = "F")]
        fence: u32,
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Say that a node is away for long and does not count as down. Refused for a member of etcd.
    Ignore {
        /// The node.
        #[arg(value_name = "NODE")]
        node: String,
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT", required_unless_present = "undo", conflicts_with = "undo")]
        reason: Option<String>,
        /// The node counts again.
        #[arg(long)]
        undo: bool,
    },
    /// Set how many nodes may be down at once; of the control plane it is always one.
    Limit {
        /// A number from 1.
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}
