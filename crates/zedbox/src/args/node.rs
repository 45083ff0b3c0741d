//! Arguments of the commands on this node: its drain, pauses, and what goes past something that holds an operation.

use std::path::PathBuf;
use std::time::Duration;

use checks::DRAIN_CODES;
use clap::{Args as Group, Subcommand, ValueEnum};
use topics::{DrainStatus, GoTime, Requester};

use super::Output;
use super::time::{span, span_with_unit};

const DRAIN_EXITS: &str = "Exit codes:\n  \
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
    With -o json standard output holds JSON and nothing else; errors and warnings are text on standard error.";

/// What a person does on this node, over the files of the agents: no controller is needed.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show what is going on with this node, what blocks it, since when, until when, and what to do.
    Status(StatusOptions),
    /// Follow the drain until the node is drained (0), or the drain failed (5), was skipped (7), withdrawn (8) or
    /// forced (9); Ctrl-C ends this with 130.
    ///
    /// On a terminal the output of `status --all` is drawn over itself. Elsewhere each change is one line, or one JSON
    /// object with `-o json`.
    Watch(WatchOptions),
    /// Predict a drain: which pods leave in which order, and what would block it (4). Nothing is written.
    Plan(PlanOptions),
    /// Show the last ten drains with their steps, and who wrote which force file when and why, also after a reboot.
    History(NodePlace),
    /// Have zedkube cordon and drain this node, for work on it. Nothing is rebooted. `zedbox undrain` ends it.
    Drain(DrainOptions),
    /// End what `zedbox drain` began, at any time: evictions stop, and zedkube removes its own cordon.
    Undrain(UndrainOptions),
    /// Keep operations from starting on this node, while somebody works on it.
    Pause(PauseOptions),
    /// End the pause of this node: what waits goes ahead.
    Resume(NodePlace),
    /// Let what waits go past that which holds it, when you know better.
    Go(GoOptions),
    /// Drain this node and reboot it, or withdraw that. The agents do it: the order outlives this program.
    #[command(after_help = CODES)]
    Reboot(OrderOptions),
    /// Drain this node and switch it off, or withdraw that.
    Shutdown(ShutdownCommand),
}

impl NodeCommand {
    pub(crate) const fn place(&self) -> &NodePlace {
        match self {
            Self::Status(it) => &it.place,
            Self::Watch(it) => &it.place,
            Self::Plan(it) => &it.place,
            Self::Drain(it) => &it.place,
            Self::Undrain(it) => &it.place,
            Self::Pause(it) => &it.place,
            Self::History(it) | Self::Resume(it) => it,
            Self::Go(it) => &it.place,
            Self::Reboot(it) => &it.place,
            Self::Shutdown(it) => &it.order.place,
        }
    }
}

/// Where, and for whom it is printed.
#[derive(Debug, Clone, Group)]
pub(crate) struct NodePlace {
    /// Directory that holds `run` and `persist`.
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    pub(crate) root: PathBuf,
    /// For people or for programs.
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t, global = true)]
    pub(crate) output: Output,
}

/// How the state of this node is shown.
#[derive(Debug, Clone, Group)]
#[command(after_help = DRAIN_EXITS)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Show all that is known, in place of the ten lines that matter most.
    #[arg(long)]
    pub(crate) all: bool,
    /// Compute "ago" and "in" from this moment, for files that were copied from a node earlier [default: now].
    #[arg(long, value_name = "TIME")]
    pub(crate) as_of: Option<GoTime>,
}

/// How long a drain is watched.
#[derive(Debug, Clone, Group)]
#[command(after_help = DRAIN_EXITS)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// For so long at most, as 90s, 5m or 2h: then end with 3 or 4.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
}

/// Whose drain is predicted.
#[derive(Debug, Clone, Group)]
#[command(after_help = DRAIN_EXITS)]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Node object to plan for [default: this device's, by its name].
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Cluster to read from [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The limits file of the agents [default: of this node, that of the settings file].
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
}

/// What a person asks for.
#[derive(Debug, Clone, Group)]
#[command(after_help = DRAIN_EXITS, subcommand_negates_reqs = true)]
pub(crate) struct DrainOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Why, in at most 200 bytes; status, log and report show it with your name.
    #[arg(long, value_name = "TEXT", required = true)]
    pub(crate) reason: Option<String>,
    /// Continue as `watch` until this request is answered; the exit code is that of `watch`.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so long at most, as 90s, 5m or 2h: then end with 3 or 4, and the request stays.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
    #[command(subcommand)]
    pub(crate) other: Option<OtherDrain>,
}

/// What else there is for a drain.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum OtherDrain {
    /// Force a status by the force file. What only waits for its drain goes ahead by `zedbox go --past drain`.
    Force(ForceOptions),
    /// Drain this node because the machine goes down by other means: the stop step of a unit, within its limit.
    #[command(hide = true)]
    AtShutdown(AtShutdownOptions),
}

/// How the end of a drain is waited for.
#[derive(Debug, Clone, Group)]
#[command(after_help = DRAIN_EXITS)]
pub(crate) struct UndrainOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Wait until the node is schedulable again, or say what keeps its cordon.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait for so long at most, as 90s, 5m or 2h: then end with 3 or 4. The withdrawal stays.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// Keeps operations from starting on this node: reboots, shutdowns and updates of whomever, drains and updates of k3s. What
/// has started ends. It stays through reboots, until `zedbox resume` or the end of --for.
#[derive(Debug, Clone, Group)]
pub(crate) struct PauseOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Why, in at most 200 bytes; status, page, log and history show it with your name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// End by itself after so long, as 90s, 30m or 2h [default: until `zedbox resume`].
    #[arg(long = "for", value_name = "TIME", value_parser = span_with_unit)]
    pub(crate) lasts: Option<Duration>,
    /// Only what the controller has ordered and is pending waits, its drain too where one has begun; `zedbox reboot` and
    /// `zedbox shutdown` do not.
    #[arg(long)]
    pub(crate) only_controller: bool,
}

/// Lets what waits go past that which holds it. Who said so, and why, is recorded.
#[derive(Debug, Clone, Group)]
#[command(after_help = "Past what:\n  \
    window          the drain that waits for a window starts now\n  \
    preflight:CODE  this finding does not stop a drain until the next boot; may be given more than once\n  \
    turn            the turn of the node that this one waits for is released: only when that node will not continue\n  \
    drain           the operation goes ahead without the rest of its drain: what still runs here is cut off")]
pub(crate) struct GoOptions {
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// What to go past; `zedbox status` shows what holds the operation.
    #[arg(long, value_name = "WHAT", required = true, value_parser = past)]
    pub(crate) past: Vec<Past>,
    /// Why, in at most 200 bytes; history and log show it with your name.
    #[arg(long, value_name = "TEXT", required_unless_present = "undo")]
    pub(crate) reason: Option<String>,
    /// Take that word back, as long as nothing has gone ahead by it.
    #[arg(long, conflicts_with = "reason")]
    pub(crate) undo: bool,
    /// Past a drain: whose operation, where more than one waits.
    #[arg(long = "for", value_name = "WHOM", value_enum)]
    pub(crate) whom: Option<Whom>,
    /// Do not ask: on a terminal, what lets an operation go ahead without a drain is asked about.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Past a turn: cluster to work on [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// What can be gone past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Past {
    Window,
    /// A finding of the preflight.
    Preflight(String),
    Turn,
    Drain,
}

fn past(text: &str) -> Result<Past, String> {
    let code = DRAIN_CODES.iter().find(|it| text == format!("preflight:{it}"));
    match (text, code) {
        ("window", _) => Ok(Past::Window),
        ("turn", _) => Ok(Past::Turn),
        ("drain", _) => Ok(Past::Drain),
        (_, Some(code)) => Ok(Past::Preflight((*code).to_owned())),
        (_, None) => {
            Err(format!("use window, turn, drain, or preflight: with a code of {}", DRAIN_CODES.join(", ")))
        }
    }
}

/// What a person forces.
#[derive(Debug, Clone, Group)]
#[command(after_help = "Status by number or name:\n  \
    1 notsupported    as if the node were in no cluster, while the file stays\n  \
    2 notrequested, 3 requested, 4 starting, 5 cordoned, 6 failedcordon, 7 drainretrying, 8 faileddrain:\n    \
    shown while the file stays\n  \
    9 complete        the pending operation goes ahead without a proved drain; used once")]
pub(crate) struct ForceOptions {
    /// Number or name of the status, as `9` or `complete`.
    #[arg(value_name = "STATUS", value_parser = drain_status, required_unless_present = "remove")]
    pub(crate) status: Option<DrainStatus>,
    /// Whose operation it is for; needed with complete.
    #[arg(long = "for", value_name = "WHOM", value_enum)]
    pub(crate) whom: Option<Whom>,
    /// Why, in at most 200 bytes; history and log show it with your name.
    #[arg(long, value_name = "TEXT", required_unless_present = "remove")]
    pub(crate) reason: Option<String>,
    /// Replace an existing force file.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Force complete also when no such operation is pending now.
    #[arg(long)]
    pub(crate) even_if_nobody_waits: bool,
    /// Do not ask: on a terminal, what lets an operation go ahead without a drain is asked about.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Remove the force file.
    #[arg(long, conflicts_with_all = ["status", "whom", "reason", "replace", "even_if_nobody_waits", "yes"])]
    pub(crate) remove: bool,
}

/// Whose operation a forced status is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Whom {
    /// A reboot or a shutdown.
    #[value(alias = "shutdown")]
    Reboot,
    /// An OS update.
    Update,
}

impl Whom {
    /// The requester of its drain.
    pub(crate) const fn requester(self) -> Requester {
        match self {
            Self::Reboot => Requester::DeviceOp,
            Self::Update => Requester::Update,
        }
    }
}

/// A number, or a name in any case, with or without `-`, `_` and blanks.
fn drain_status(text: &str) -> Result<DrainStatus, String> {
    let bare = |text: &str| text.replace(['-', '_', ' '], "").to_lowercase();
    let known = (1..=9).map(DrainStatus::from);
    let is = |status: &DrainStatus| bare(status.text()) == bare(text) || text.parse() == Ok(status.number());
    known.clone().find(is).ok_or_else(|| {
        let names: Vec<String> = known.map(|it| format!("{} {}", it.number(), bare(it.text()))).collect();
        format!("no such status; known are {}", names.join(", "))
    })
}

/// How long a machine that goes down may drain.
#[derive(Debug, Clone, Group)]
pub(crate) struct AtShutdownOptions {
    /// For so long at most, as 90s or 4m: less than the unit's limit for stopping.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "4m")]
    pub(crate) timeout: Duration,
}

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

/// Drains this node and switches it off. The agents do it: the order outlives this program.
#[derive(Debug, Clone, Group)]
#[command(after_help = CODES)]
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
    #[command(flatten)]
    pub(crate) place: NodePlace,
    /// Where the device config names no cluster: the one to look for this node in [default: that of the settings file, else
    /// <root>/run/.kube/k3s/k3s.yaml].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Go without a drain where the device config names no cluster, whether or not this device is a node.
    #[arg(long)]
    pub(crate) undrained: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_number_and_a_name() {
        for (text, number) in [("9", 9), ("complete", 9), ("not-supported", 1), ("FAILED_DRAIN", 8)] {
            assert_eq!(drain_status(text).unwrap().number(), number, "{text}");
        }
        for wrong in ["", "done", "-1", "0", "12", "999", "unknown"] {
            assert!(drain_status(wrong).unwrap_err().contains("9 complete"), "{wrong}");
        }
    }
}
