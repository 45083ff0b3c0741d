//! Arguments of `zedbox pause`, `resume`, `drain refuse`, `drain done` and `drain at-shutdown`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as Group;

use super::Output;
use super::time::{span, span_with_unit};

/// Keeps operations from starting on this node: reboots, shutdowns and updates of whomever, drains and updates of k3s. What
/// has started ends. It stays through reboots, until `zedbox resume` or the end of --for.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct PauseCommand {
    #[command(flatten)]
    pub(crate) said: PauseOptions,
    #[command(flatten)]
    pub(crate) place: PausePlace,
}

/// Ends the pause of this node, or the refusal: what waits goes ahead.
#[derive(Debug, Clone, Group)]
pub(crate) struct ResumeCommand {
    #[command(flatten)]
    pub(crate) place: PausePlace,
}

/// What is said.
#[derive(Debug, Clone, Group)]
pub(crate) struct PauseOptions {
    /// Why, in at most 200 bytes; status, page, log and history show it with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// End by itself after so long, as 90s, 30m or 2h [default: until `zedbox resume`].
    #[arg(long = "for", value_name = "TIME", value_parser = span_with_unit)]
    pub(crate) lasts: Option<Duration>,
}

/// Where, and for whom it is printed.
#[derive(Debug, Clone, Group)]
pub(crate) struct PausePlace {
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// What a person refuses the controller.
#[derive(Debug, Clone, Group)]
#[command(arg_required_else_help = true)]
pub(crate) struct RefuseOptions {
    /// Why, in at most 200 bytes; status, page, log and history show it with your name.
    #[arg(long, value_name = "TEXT", required_unless_present = "withdraw")]
    pub(crate) reason: Option<String>,
    /// End by itself after so long, as 90s, 30m or 2h [default: until --withdraw].
    #[arg(long = "for", value_name = "TIME", value_parser = span_with_unit)]
    pub(crate) lasts: Option<Duration>,
    /// Let what waits go ahead.
    #[arg(long, conflicts_with_all = ["reason", "lasts"])]
    pub(crate) withdraw: bool,
}

/// How long the end of a person's work is waited for.
#[derive(Debug, Clone, Group)]
pub(crate) struct DoneOptions {
    /// Wait for so long at most until the node is schedulable again, as 90s, 5m or 2h: then end with 3 or 4. The withdrawal
    /// stays.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
}

/// How long a machine that goes down may drain.
#[derive(Debug, Clone, Group)]
pub(crate) struct AtShutdownOptions {
    /// For so long at most, as 90s or 4m: less than the unit's limit for stopping.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "4m")]
    pub(crate) timeout: Duration,
}
