//! `zedbox drain at-shutdown`: the machine goes down by other means than these agents, and drains within the time it has.
//!
//! A unit calls it as its stop step, where no lock of systemd holds a plain `systemctl reboot` of root. It never fails that:
//! the machine goes down all the same. Not here: the drain (zedkube).

use sheet::{DrainView, OPERATOR, status_words};
use topics::{DrainStatus, PendingState};

use crate::Exit;
use crate::args::AtShutdownOptions;
use crate::drain_cmd::Shell;
use crate::drain_cmd::course::Goal;
use crate::drain_cmd::request;
use crate::drain_cmd::voice::Voice;
use crate::drain_cmd::watch::{self, WatchPatience};

/// What status, log and history show.
const REASON: &str = "the machine goes down by other means than zedbox";

/// Drains this node for as long as that may take.
pub(in crate::drain_cmd) async fn run(shell: &Shell, options: &AtShutdownOptions) -> anyhow::Result<Exit> {
    let seen = shell.look();
    if let Some(why) = needs_none(&seen) {
        shell.voice.paragraph(&format!("Nothing is drained before the machine goes down: {why}."))?;
        return Ok(Exit::Done);
    }
    let drained = if seen.requests.contains_key(OPERATOR) {
        watch::run(shell, Goal::Any, WatchPatience::until(shell.clock, Some(options.timeout))).await
    } else {
        request::order(shell, REASON, true, Some(options.timeout)).await
    };
    match drained {
        Ok(Exit::Done) => {}
        Ok(_) => Voice::warn("NOT DRAINED: the machine goes down all the same"),
        Err(error) => Voice::warn(&format!("NOT DRAINED, the machine goes down all the same: {error:#}")),
    }
    Ok(Exit::Done)
}

/// Why there is nothing to drain, or nobody who could.
fn needs_none(seen: &DrainView) -> Option<String> {
    if let Some(it) = seen.pending.values().find(|it| it.state == PendingState::Commanded) {
        return Some(format!("these agents have commanded the {}, behind its drain", it.op.word()));
    }
    if let Some(why) = seen.zedkube_away() {
        return Some(why);
    }
    if let Some(pause) = &seen.pause {
        return Some(format!("operations are {}", pause.words()));
    }
    let status = seen.drain_status().unwrap_or_default();
    matches!(status, DrainStatus::Unknown | DrainStatus::NotSupported | DrainStatus::Complete)
        .then(|| format!("the status is {}", status_words(status)))
}
