//! Arguments of `zedbox drain`.
//!
//! Not here: orders about operations of this node that are no drain (`pause`, `device_order`), and the
//! actions (`drain_cmd`).

mod force;
mod preflight;
mod request;
mod window;

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use topics::GoTime;

use super::Output;
use super::pause::{AtShutdownOptions, DoneOptions, RefuseOptions};
pub(crate) use force::{ForceOptions, Whom};
pub(crate) use preflight::{PassOptions, PlanOptions};
pub(crate) use request::RequestOptions;
use request::WatchOptions;
pub(crate) use window::StartOptions;

/// The drain of this node, over the files of the agents: no controller is needed.
#[derive(Debug, Clone, Group)]
#[command(
    arg_required_else_help = true,
    after_help = "Exit codes:\n  \
    0    done; no drain requested; or drained: the node is proved empty under a cordon\n  \
    1    it could not be done; standard error says why and what to do\n  \
    2    invalid arguments\n  \
    3    a drain is under way, or an operation is pending\n  \
    4    a drain is under way, and something blocks it; or a plan predicts that\n  \
    5    NOT DRAINED: the drain failed (status 6 or 8)\n  \
    6    not known: zedkube has published nothing, or its file is broken\n  \
    7    NOT DRAINED: COMPLETE, but the drain was skipped\n  \
    8    NOT DRAINED: the request was withdrawn\n  \
    9    NOT DRAINED: a person forced the status\n  \
    130  watching was ended with Ctrl-C, or nobody reads any more; the drain continues\n\
    With -o json standard output holds JSON and nothing else; errors and warnings are text on standard error."
)]
pub(crate) struct DrainCommand {
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    pub(crate) root: PathBuf,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t, global = true)]
    pub(crate) output: Output,
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: DrainAction,
}

/// What can be done about the drain of this node.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DrainAction {
    /// Show how far the drain is, what blocks it, since when, until when, and what to do.
    Status(StatusOptions),
    /// Follow the drain until the node is drained (0), or the drain failed (5), was skipped (7), withdrawn (8) or
    /// forced (9); Ctrl-C ends this with 130.
    ///
    /// On a terminal the output of `status` is drawn over itself. Elsewhere each change is one line, or one JSON object
    /// with `-o json`.
    Watch(WatchOptions),
    /// Show the last ten drains with their steps, and who wrote which force file when and why, also after a reboot.
    History,
    /// Predict a drain: which pods leave in which order, and what would block it (4). Nothing is written.
    Plan(PlanOptions),
    /// Ask zedkube to cordon and drain this node, for work on it. Nothing is rebooted.
    Request(RequestOptions),
    /// Withdraw a person's request: evictions stop, and zedkube removes its own cordon.
    Cancel,
    /// Finish the work on this node: withdraw a person's request, and wait until the node is schedulable again.
    Done(DoneOptions),
    /// Refuse what the controller has ordered and is pending, as somebody works on the machine; or let it go ahead.
    Refuse(RefuseOptions),
    /// Start the drain that waits for a window now, for this request alone.
    StartNow(StartOptions),
    /// Drain this node because the machine goes down by other means: the stop step of a unit, within its limit.
    AtShutdown(AtShutdownOptions),
    /// Force a status when you know better than the drain: a pending operation goes ahead.
    Force(ForceOptions),
    /// Have findings of the preflight pass: drains begin although they exist, until the next boot.
    Pass(PassOptions),
}

/// How the state of a drain is shown.
#[derive(Debug, Clone, Group)]
pub(crate) struct StatusOptions {
    /// Compute "ago" and "in" from this moment, for files that were copied from a node earlier [default: now].
    #[arg(long, value_name = "TIME")]
    pub(crate) as_of: Option<GoTime>,
}
