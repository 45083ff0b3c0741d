//! Arguments of `zedbox drain force`: the forced status, for which operation and why.

use clap::{Args as Group, ValueEnum};
use topics::{DrainStatus, Requester};

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
