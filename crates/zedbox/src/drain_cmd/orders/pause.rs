//! `zedbox pause` and `zedbox resume`: one file by which a person keeps operations from starting.
//!
//! Not here: what it does (zedagent, baseosmgr and zedkube, each by itself).

use agent::operator;
use anyhow::{Context as _, bail};
use pubsub::store;
use sheet::DrainView;
use sheet::text::{clock_time, of_today, span};
use topics::{DeviceOp, GoTime, OperationPause, PAUSE_FILE, PAUSE_LEFT_FILE, PauseScope, PendingState};

use super::write;
use crate::Exit;
use crate::args::PauseOptions;
use crate::drain_cmd::voice::Voice;
use crate::drain_cmd::{Shell, person};

/// Keeps operations from starting, or refuses what the controller has ordered.
pub(in crate::drain_cmd) async fn pause(shell: &Shell, options: &PauseOptions) -> anyhow::Result<Exit> {
    let (doing, scope) = if options.only_controller {
        ("refuse what the controller has ordered", PauseScope::Controller)
    } else {
        ("pause the operations of this node", PauseScope::Node)
    };
    let pause = word(shell, scope, options).context(doing)?;
    let seen = shell.look();
    // A pause of all takes the place of one of the controller's orders.
    if let Some(held) = seen.pause.as_ref().filter(|it| it.scope == PauseScope::Node || it.scope == scope) {
        bail!("{doing}: already {}; `zedbox resume` ends that pause", held.words());
    }
    let pending = of_controller(&seen);
    if options.only_controller && pending.is_empty() {
        bail!(
            "{doing}: nothing of the controller is pending; to keep what may come from starting, leave out --only-controller"
        );
    }
    let file = write(&shell.topic_root, PAUSE_FILE, &pause).await.context(doing)?;
    let (result, lines) =
        if options.only_controller { ("refused", commanded(&seen)) } else { ("paused", under_way(&seen)) };
    for line in lines {
        Voice::warn_of("pause", &line);
    }
    let what = match scope {
        PauseScope::Node => "No operation starts on this node, through reboots as well: reboots, shutdowns, updates, drains and \
                             updates of k3s wait, whoever orders them. A shutdown or reboot of the whole site does not."
            .to_owned(),
        PauseScope::Controller => format!(
            "Refused: {} waits, and is not lost; its drain, where one had begun, ends, and the node is schedulable again. So does \
             whatever else the controller orders; `zedbox reboot` and `zedbox shutdown` do not.",
            pending.join(", ")
        ),
    };
    shell.voice.done(result, &file, ("Pause", &pause), &format!("{what} {}", end(&pause)))
}

fn word(shell: &Shell, scope: PauseScope, options: &PauseOptions) -> anyhow::Result<OperationPause> {
    let pause = OperationPause {
        scope,
        by: shell.who(),
        reason: person::reason(&options.reason)?.to_owned(),
        since: shell.clock.wall(),
        ..OperationPause::default()
    };
    Ok(operator::lasting(pause, options.lasts, shell.clock))
}

fn end(pause: &OperationPause) -> String {
    if pause.until.is_zero() {
        return "`zedbox resume` ends it. It has no other end, and is warned of once a day.".to_owned();
    }
    let at = clock_time(pause.until, pause.since);
    format!(
        "`zedbox resume` ends it. It ends by itself at {at}, in {}, by this machine's clock as it is now.",
        span(pause.lasts_secs)
    )
}

/// Lets start what waits for that.
pub(in crate::drain_cmd) fn resume(shell: &Shell) -> anyhow::Result<Exit> {
    let doing = "end the pause";
    let (seen, file) = (shell.look(), shell.topic_root.path(PAUSE_FILE));
    let left = shell.topic_root.path(PAUSE_LEFT_FILE);
    store::remove(&left).map_err(person::root_needed).context(doing)?;
    if !store::remove(&file).map_err(person::root_needed).context(doing)? {
        bail!("{doing}: this node is not paused, there is no {}", file.display());
    }
    let was = seen.pause.as_ref().map_or_else(String::new, |it| format!(", it was {}", it.words()));
    let text =
        format!("Operations may start on this node again{was}. What waited for that goes ahead by itself.");
    shell.voice.done("resumed", &file, ("Pause", &seen.pause), &text)
}

/// What a pause does not stop any more.
fn under_way(seen: &DrainView) -> Vec<String> {
    let mut lines = commanded(seen);
    if lines.is_empty() && !seen.requests.is_empty() {
        let whose: Vec<&str> = seen.requests.values().map(|it| it.context.as_str()).collect();
        lines.push(format!(
            "a drain is requested already (for {}): unless it still waits for a window or its turn, it continues to its end, and so \
             does what it is for; `zedbox status` shows it, `zedbox pause --only-controller --reason TEXT` stops what the controller has ordered",
            whose.join(", ")
        ));
    }
    lines
}

/// What takes the machine down whatever is said now.
fn commanded(seen: &DrainView) -> Vec<String> {
    let it_goes =
        |op: DeviceOp| format!("too late for the {}: it is commanded, the machine goes down", op.word());
    let commanded = seen.pending.values().filter(|it| it.state == PendingState::Commanded);
    commanded.map(|it| it_goes(it.op)).collect()
}

/// Operations of the controller that wait or are being drained for, in words.
fn of_controller(seen: &DrainView) -> Vec<String> {
    let ordered = seen.pending.values().filter(|it| it.site.is_empty());
    let mut all: Vec<String> = ordered.map(|it| format!("{} {}", it.op.word(), it.counter)).collect();
    let update = seen.requests.get("baseosmgr").map(|it| format!("the update to {}", it.context));
    let waiting = || seen.updates.values().next().map(|it| format!("the update to {}", it.base_os_version));
    all.extend(update.or_else(waiting));
    let k3s = seen.agreed().filter(|it| it.requested_by == topics::Requester::K3sUpdate);
    all.extend(k3s.map(|it| format!("the update of {}", it.context)));
    all
}

/// Refuses `doing` while a pause would keep it waiting.
pub(crate) fn refuse_while_paused(seen: &DrainView, doing: &str, now: GoTime) -> anyhow::Result<()> {
    if let Some(pause) = seen.pause.as_ref().filter(|it| it.scope == PauseScope::Node) {
        let words = of_today(&pause.words(), now);
        bail!("{doing}: operations of this node are {words}; {}, then this again", pause.next_step());
    }
    Ok(())
}
