//! `zedbox history`: the last drains and force files as one report, also after a reboot.
//!
//! Not here: what is kept; zedkube decides that and bounds it.

use agent::wire;
use agent::wire::GLOBAL;
use anyhow::Context as _;
use pubsub::store;
use sheet::text::{clock_time, date_and_time, number, span};
use sheet::{blocker_words, counts_words, for_whom, recordons, status_words};
use topics::{
    DrainHistory, DrainRecord, DrainStep, ForceRecord, GoTime, NodeDrainProgress, OperationPause,
    PauseRecord, PauseScope, StepWord, go_json,
};

use super::Shell;
use super::text::{paragraph, row};
use super::voice::Voice;
use crate::Exit;
use crate::args::Output;

/// No history is longer.
const LIMIT_BYTES: u64 = 1 << 20;

pub(super) fn run(shell: &Shell) -> anyhow::Result<Exit> {
    let Shell { topic_root, voice, .. } = shell;
    let path = wire::path::<DrainHistory>(topic_root, "zedkube", GLOBAL);
    let doing = || format!("read the history {}; `zedbox check` shows more", path.display());
    let mut history = match store::read(&path, LIMIT_BYTES).with_context(doing)? {
        Some(bytes) => go_json::from_slice::<DrainHistory>(&bytes).with_context(doing)?,
        None => DrainHistory::default(),
    };
    match wire::peek(topic_root, "zedkube", GLOBAL) {
        Ok(Some(progress)) => bring_up_to_date(&mut history, &progress),
        Ok(None) => {}
        Err(cause) => Voice::warn(&format!(
            "a drain that runs is shown as of its last step, as its progress cannot be read: {}",
            step::chain(&cause)
        )),
    }
    match voice.output {
        Output::Json => Voice::json(&history, false)?,
        Output::Text => Voice::print(&report(&history, voice.columns()))?,
    };
    Ok(Exit::Done)
}

/// The record of a drain that still runs is written at each step: how far it is now is in the progress.
fn bring_up_to_date(history: &mut DrainHistory, progress: &NodeDrainProgress) {
    let Some(record) = history.drains.first_mut().filter(|it| it.is_open()) else { return };
    if (progress.requested_by, progress.requested_at) == (record.requested_by, record.requested_at) {
        record.counts = progress.counts;
        record.evicted = progress.evicted.max(record.evicted);
        record.recordons = progress.recordons.max(record.recordons);
    }
}

fn report(history: &DrainHistory, columns: usize) -> String {
    if history.drains.is_empty() && history.forced.is_empty() && history.pauses.is_empty() {
        return paragraph("", "No drain and no force file is recorded on this node.", columns);
    }
    let drains = history.drains.iter().map(|it| drain(it, columns));
    let forced = history.forced.iter().map(|it| force(it, columns));
    let pauses = history.pauses.iter().map(|it| pause(it, columns));
    drains.chain(forced).chain(pauses).collect::<Vec<_>>().join("\n")
}

fn drain(record: &DrainRecord, columns: usize) -> String {
    let asked = clock_time(record.requested_at, GoTime::ZERO);
    let how = status_words(record.status);
    let how = match (record.is_open(), record.steps.last()) {
        (true, _) => format!("{how}, continues"),
        (false, Some(last)) => format!("{how}, {} after {}", last.step.text(), span(record.seconds)),
        (false, None) => how,
    };
    let head = format!("{}, requested {asked}: {how}", for_whom(record.requested_by, &record.context));
    let mut out = row("drain", &head, columns);
    let mut add = |label: &str, text: &str| out.push_str(&row(label, text, columns));
    for (nth, it) in record.steps.iter().enumerate() {
        if nth == 3 && record.steps_left_out > 0 {
            add("", &format!("... {} more", number(record.steps_left_out, "step")));
        }
        let (time, text) = step(it, record.started_at);
        add(&time, &text);
    }
    let pods = counts_words(record.counts);
    add("pods", &format!("{pods}; {} evicted in {}", record.evicted, number(record.attempts, "attempt")));
    if record.recordons > 0 {
        add("cordon", &recordons(record.recordons));
    }
    for it in &record.blockers {
        add("blocked", &blocker_words(it));
    }
    if record.more_blockers > 0 {
        add("blocked", &format!("… and {} more", record.more_blockers));
    }
    for it in &record.left {
        add("left", &format!("by policy: {it}"));
    }
    if record.more_left > 0 {
        add("left", &format!("… and {} more", record.more_left));
    }
    add("boot", &record.boot_id);
    out
}

/// The time of a step, and what happened; with its date on another day than that on which the drain began.
fn step(step: &DrainStep, began: GoTime) -> (String, String) {
    let (date, time) = date_and_time(step.at);
    let date = if date_and_time(began).0 == date { String::new() } else { format!("{date} ") };
    let counted = matches!(step.step, StepWord::Attempt | StepWord::AttemptFailed);
    let nth = if counted && step.attempt > 0 { format!(" {}", step.attempt) } else { String::new() };
    let text = if step.text.is_empty() { String::new() } else { format!(": {}", step.text) };
    (time, format!("{date}{}{nth}{text}", step.step.text()))
}

fn pause(record: &PauseRecord, columns: usize) -> String {
    let time = |at: GoTime| clock_time(at, GoTime::ZERO);
    let OperationPause { scope, by, reason, since, .. } = &record.pause;
    let what = match scope {
        PauseScope::Node => "all operations",
        PauseScope::Controller => "what the controller orders",
    };
    let mut out = row("pause", &format!("{what}, by {by}, since {}", time(*since)), columns);
    let ended = if record.ended_at.is_zero() { "not yet".to_owned() } else { time(record.ended_at) };
    for (label, text) in [("reason", reason), ("ended", &ended)] {
        out.push_str(&row(label, text, columns));
    }
    out
}

fn force(record: &ForceRecord, columns: usize) -> String {
    let time = |at: GoTime| clock_time(at, GoTime::ZERO);
    let what = if record.refused.is_empty() { record.order.to_string() } else { "an order".to_owned() };
    let head = format!("{what} by {}, seen {}", record.who(), time(record.seen_at));
    let mut out = row("force file", &head, columns);
    let mut add = |label: &str, text: &str| out.push_str(&row(label, text, columns));
    // A file that was written by hand may say none.
    add("reason", if record.reason.is_empty() { "no reason given" } else { &record.reason });
    add("effect", &record.effect);
    if !record.written_at.is_zero() {
        add("written", &time(record.written_at));
    }
    let gone = if record.gone_at.is_zero() { "not yet".to_owned() } else { time(record.gone_at) };
    add("gone", &gone);
    out
}
