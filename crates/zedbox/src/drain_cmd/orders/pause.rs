//! `zedbox pause`, `zedbox resume` and `zedbox drain refuse`: one file by which a person keeps operations from starting.
//!
//! Not here: what it does (zedagent, baseosmgr and zedkube, each by itself).

use std::time::Duration;

use agent::{Clock, operator};
use anyhow::{Context as _, bail};
use pubsub::{TopicRoot, store};
use sheet::DrainView;
use sheet::text::{clock_time, span};
use topics::{DeviceOp, OperationPause, PAUSE_FILE, PAUSE_LEFT_FILE, PauseScope, PendingState};

use super::write;
use crate::Exit;
use crate::args::{PauseOptions, PausePlace, RefuseOptions, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;

/// Keeps operations from starting. What goes wrong is said on standard error in plain words.
pub(crate) async fn pause(said: &PauseOptions, place: &PausePlace) -> Exit {
    let surroundings = Surroundings::of_this_process();
    let voice = Voice::new(place.output, &surroundings);
    let done = async {
        let (topic_root, clock) = (open(place)?, Clock::new());
        let seen = DrainView::read(&topic_root, clock);
        let pause = word(PauseScope::Node, &said.reason, said.lasts, clock, &surroundings)?;
        if let Some(held) = seen.pause.as_ref().filter(|it| it.scope == PauseScope::Node) {
            bail!("it is {} already; `zedbox resume` ends that", held.words());
        }
        let file = write(&topic_root, PAUSE_FILE, &pause).await?;
        for line in under_way(&seen) {
            Voice::warn_of("pause", &line);
        }
        let end = end(&pause, "zedbox resume");
        let text = format!(
            "No operation starts on this node, through reboots as well: reboots, shutdowns, updates, drains and updates of k3s \
             wait, whoever orders them. A shutdown or reboot of the whole site does not. {end}"
        );
        voice.done("paused", &file, ("Pause", &pause), &text)
    };
    Voice::exit("pause", done.await.context("pause the operations of this node"))
}

pub(crate) async fn resume(place: &PausePlace) -> Exit {
    let voice = Voice::new(place.output, &Surroundings::of_this_process());
    let done = async {
        let topic_root = open(place)?;
        let seen = DrainView::read(&topic_root, Clock::new());
        remove(&topic_root, &seen, &voice)
    };
    Voice::exit("resume", done.await.context("end the pause"))
}

/// Refuses what the controller has ordered, or no longer.
pub(in crate::drain_cmd) async fn refuse(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &RefuseOptions,
    surroundings: &Surroundings,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let seen = DrainView::read(topic_root, clock);
    if options.withdraw {
        let doing = "withdraw the refusal";
        if let Some(held) = seen.pause.as_ref().filter(|it| it.scope == PauseScope::Node) {
            bail!("{doing}: the node is {}, which `zedbox resume` ends", held.words());
        }
        return remove(topic_root, &seen, voice).context(doing);
    }
    let doing = "refuse what the controller has ordered";
    let reason = options.reason.as_deref().unwrap_or_default();
    let pause = word(PauseScope::Controller, reason, options.lasts, clock, surroundings).context(doing)?;
    if let Some(held) = &seen.pause {
        bail!("{doing}: it is {} already; {}", held.words(), held.next_step());
    }
    let pending = of_controller(&seen);
    if pending.is_empty() {
        bail!(
            "{doing}: nothing of the controller is pending; to keep what may come from starting: `zedbox pause`"
        );
    }
    let file = write(topic_root, PAUSE_FILE, &pause).await.context(doing)?;
    for line in commanded(&seen) {
        Voice::warn(&line);
    }
    let end = end(&pause, "zedbox drain refuse --withdraw");
    let text = format!(
        "Refused: {} waits, and is not lost; its drain, where one had begun, ends, and the node is schedulable again. So does \
         whatever else the controller orders; `zedbox reboot` and `zedbox shutdown` do not. {end}",
        pending.join(", ")
    );
    voice.done("refused", &file, ("Pause", &pause), &text)
}

fn open(place: &PausePlace) -> anyhow::Result<TopicRoot> {
    TopicRoot::open(&place.root).with_context(|| format!("open the root {}", place.root.display()))
}

fn word(
    scope: PauseScope,
    reason: &str,
    lasts: Option<Duration>,
    clock: Clock,
    surroundings: &Surroundings,
) -> anyhow::Result<OperationPause> {
    let pause = OperationPause {
        scope,
        by: person::name(surroundings),
        reason: person::reason(reason)?.to_owned(),
        since: clock.wall(),
        ..OperationPause::default()
    };
    Ok(operator::lasting(pause, lasts, clock))
}

fn end(pause: &OperationPause, command: &str) -> String {
    let by_itself = if pause.until.is_zero() {
        " It has no other end, and is warned of once a day.".to_owned()
    } else {
        let at = clock_time(pause.until, pause.since);
        format!(
            " By itself it ends in {}, at {at} by this machine's clock as it is now.",
            span(pause.lasts_secs)
        )
    };
    format!("`{command}` ends it.{by_itself}")
}

fn remove(topic_root: &TopicRoot, seen: &DrainView, voice: &Voice) -> anyhow::Result<Exit> {
    let file = topic_root.path(PAUSE_FILE);
    store::remove(&topic_root.path(PAUSE_LEFT_FILE)).map_err(person::root_needed)?;
    if !store::remove(&file).map_err(person::root_needed)? {
        bail!("this node is not paused, there is no {}", file.display());
    }
    let was = seen.pause.as_ref().map_or_else(String::new, |it| format!(", it was {}", it.words()));
    let text =
        format!("Operations may start on this node again{was}. What waited for that goes ahead by itself.");
    voice.done("resumed", &file, ("Pause", &seen.pause), &text)
}

/// What a pause does not stop any more.
fn under_way(seen: &DrainView) -> Vec<String> {
    let mut lines = commanded(seen);
    if lines.is_empty() && !seen.requests.is_empty() {
        let whose: Vec<&str> = seen.requests.values().map(|it| it.context.as_str()).collect();
        lines.push(format!(
            "a drain is requested already (for {}): unless it still waits for a window or its turn, it continues to its end, and so \
             does what it is for; `zedbox drain status` shows it, `zedbox drain refuse` stops what the controller has ordered",
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
pub(in crate::drain_cmd) fn refuse_while_paused(seen: &DrainView, doing: &str) -> anyhow::Result<()> {
    if let Some(pause) = seen.pause.as_ref().filter(|it| it.scope == PauseScope::Node) {
        bail!(
            "{doing}: operations of this node are {}; {}, then this again",
            pause.words(),
            pause.next_step()
        );
    }
    Ok(())
}
