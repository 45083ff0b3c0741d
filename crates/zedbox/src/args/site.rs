//! Arguments of `zedbox site`.

use std::collections::BTreeSet;

use checks::verify;
use clap::builder::PossibleValuesParser;
use clap::{Args as Group, Subcommand};
use outage::site::calls::CODES;
use step::Inserted as _;

use super::cluster::OverCluster;

/// The whole site, from any machine with a kubeconfig.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct SiteCommand {
    #[command(flatten)]
    pub(crate) place: OverCluster,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: SiteAction,
}

/// What can be done with a site.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SiteAction {
    /// Switch all machines off: applications with volumes are scaled down, volumes detached, then workers and servers go,
    /// the leader of etcd last. No pod is evicted. Switch the machines on again in any order.
    Shutdown(BeginOptions),
    /// Reboot all machines in the same order.
    Reboot(BeginOptions),
    /// Reboot all machines one after another: each is drained in its turn like any node, and the next one starts once the
    /// cluster is well with it. Workers go first, the leader of etcd last. What fails first stops it:
    /// `zedbox site continue --phase stopped` takes it up again, `zedbox site cancel` ends it.
    Restart(RestartOptions),
    /// Lose the power of all nodes of an embedded cluster, one in the middle of its drain, and show how each comes back.
    /// Nothing of this machine or of a real cluster is touched.
    #[cfg(feature = "demo")]
    Drill(super::DrillOptions),
    /// Run the checks that come before a shutdown or a reboot, and name what they find (1). Nothing is written.
    Check,
    /// Show how far the site is, and what each node waits for; of the last restart, how it ended. Nothing is written.
    Status,
    /// End the wait of the phase that the site is in; what it waits for stays as it is. A restart that is stopped is taken up
    /// again; one that waits for the cluster to be well takes it as well.
    Continue {
        /// The phase, as `status` shows it; another one is refused.
        #[arg(long, value_name = "PHASE", required_unless_present = "skip")]
        phase: Option<String>,
        /// Of a restart: the node that goes; another one is refused.
        #[arg(long, value_name = "NODE", conflicts_with = "skip")]
        node: Option<String>,
        /// Of a restart: leave this node out; one that is stopped for it continues. It is not rebooted, and kept by name.
        #[arg(long, value_name = "NODE", conflicts_with = "phase")]
        skip: Option<String>,
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Withdraw the operation, until the servers go: cordons are removed, and applications scaled up again. Of a restart: the
    /// drain of the node that goes is withdrawn, and no other node starts.
    Cancel {
        /// Why, in at most 200 bytes; it is kept with your name.
        #[arg(long, value_name = "TEXT", default_value = "no reason given")]
        reason: String,
    },
}

/// What a person asks for.
#[derive(Debug, Clone, Group)]
pub(crate) struct BeginOptions {
    /// Why, in at most 200 bytes; it is kept with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Let virtual machines go down with their nodes. They are not stopped before that, and their volumes stay attached.
    #[arg(long)]
    pub(crate) leave_machines: bool,
    /// Begin although the checks have found this; may be given more than once. The codes are those that they name; past
    /// `turn`, what the node does that holds one stops.
    #[arg(long, value_name = "CODE", value_parser = CODES)]
    pub(crate) pass: Vec<String>,
}

/// What a person asks for.
#[derive(Debug, Clone, Group)]
pub(crate) struct RestartOptions {
    /// Why, in at most 200 bytes; it is kept with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Begin although the checks have found this, or this layer of `zedbox verify` is not well; exactly that is then passed
    /// between two nodes as well, and what is new is not. May be given more than once; the codes are those that the checks name.
    #[arg(long, value_name = "CODE", value_parser = PossibleValuesParser::new(codes()))]
    pub(crate) pass: Vec<String>,
    /// Check, show the order of the nodes, and begin nothing.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Follow it to its end, and show each node. It ends with 1 when the restart is stopped or withdrawn; the
    /// restart itself needs nobody who waits.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Findings that can be passed: the checks before a shutdown, except a held turn, and the layers of the
/// cluster.
fn codes() -> BTreeSet<&'static str> {
    let local = ["turn", "devices", "turns", "probes"];
    CODES.into_iter().chain(verify::LAYERS).filter(|it| !local.contains(it)).into_set()
}
