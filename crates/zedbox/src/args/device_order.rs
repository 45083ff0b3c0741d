//! Arguments of `zedbox reboot` and `zedbox shutdown`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, ValueEnum};

use super::Output;
use super::time::span;

const CODES: &str = "Exit codes:\n  \
    0    ordered, or withdrawn; with --wait: the node is drained and goes down now\n  \
    1    it could not be done; standard error says why and what to do\n  \
    2    invalid arguments\n  \
    3    not within --timeout: the drain is under way; with --if-blocked fail the order is withdrawn\n  \
    4    the same, and something blocks the drain\n  \
    7    NOT DRAINED, and the machine goes down: the drain was skipped, for a reason that is named, as on a node\n         in no cluster\n  \
    8    the order was withdrawn meanwhile\n  \
    9    NOT DRAINED, and the machine goes down: a person forced it\n  \
    130  waiting was ended with Ctrl-C; the order stays";

/// Drains this node and reboots it. The agents do it: the order outlives this program.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true, after_help = CODES)]
pub(crate) struct RebootCommand {
    #[command(flatten)]
    pub(crate) order: OrderOptions,
}

/// Drains this node and switches it off. The agents do it: the order outlives this program.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true, after_help = CODES)]
pub(crate) struct ShutdownCommand {
    #[command(flatten)]
    pub(crate) order: OrderOptions,
    /// For power that is about to fail: drain what leaves within this time, as 5m, then go without the rest. Waits; this
    /// program must keep running. History shows it as forced.
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with_all = ["timeout", "if_blocked", "cancel"])]
    pub(crate) within: Option<Duration>,
}

/// What both take.
#[derive(Debug, Clone, Group)]
pub(crate) struct OrderOptions {
    /// Why, in at most 200 bytes; status, log and history show it with your name.
    #[arg(long, value_name = "TEXT", required_unless_present = "cancel")]
    pub(crate) reason: Option<String>,
    /// Show how the drain goes until the machine goes down.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so long at most, as 90s, 5m or 2h; then do as --if-blocked says.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
    /// What happens when something has blocked the drain for a minute, or at the end of --timeout.
    #[arg(long, value_name = "WHAT", value_enum, requires = "wait", default_value_t)]
    pub(crate) if_blocked: Blocked,
    /// Withdraw the order: the drain ends, and the node is schedulable again.
    #[arg(long, conflicts_with_all = ["reason", "wait"])]
    pub(crate) cancel: bool,
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Where the device config names no cluster: the one to look for this node in [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Go without a drain where the device config names no cluster, whether or not this device is a node.
    #[arg(long)]
    pub(crate) undrained: bool,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// What happens with an order that is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Blocked {
    /// It stays: what blocks is shown, and the agents try on.
    #[default]
    Wait,
    /// It is withdrawn.
    Fail,
    /// The machine goes without the rest of the drain.
    Force,
}
