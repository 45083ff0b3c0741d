//! `zedbox drain status`: the state of the drain as a sheet for a person or one object for a program.
//!
//! Not here: the words of its rows (`words`).

use agent::Clock;
use pubsub::TopicRoot;
use topics::{GoTime, PAUSE_FILE};

use super::follow::Follow;
use super::person::user;
use super::state::DrainState;
use super::text::{RowWeight, Sheet, number, paragraph, row};
use super::view::DrainView;
use super::voice::Voice;
use super::words::{
    headline, leave_words, live_words, next_step, operation, pause_words, preflight_rows, progress_rows,
    request_words, update_words,
};
use crate::Exit;
use crate::args::{Output, StatusOptions};

/// Prints how far the drain is.
pub(super) async fn run(
    topic_root: &TopicRoot,
    clock: Clock,
    options: &StatusOptions,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let mut follow = Follow::open(topic_root, clock).await;
    follow.settle(clock).await;
    let mut seen = follow.view().clone();
    if options.as_of.is_some() {
        // Of files of another time only the touch file says whether zedkube ran.
        seen.live.running = None;
    }
    let (now, by_clock) = match options.as_of {
        // Of a tree from elsewhere: everything by its own clock.
        Some(as_of) => (as_of, seen.clone()),
        None => (clock.wall(), seen.clone().by_clock(clock)),
    };
    match voice.output {
        Output::Json => Voice::json(&seen, false)?,
        Output::Text => Voice::print(&sheet(&by_clock, now, voice.columns()).text(voice.colours))?,
    };
    for line in warnings(topic_root, &seen) {
        Voice::warn(&line);
    }
    Ok(seen.state().exit())
}

/// What cannot be used, with the next step, for standard error; all that this user may not read is one line.
pub(super) fn warnings(topic_root: &TopicRoot, seen: &DrainView) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if !seen.denied.is_empty() {
        let paths: Vec<String> = seen.denied.iter().map(|it| it.display().to_string()).collect();
        lines.push(format!("user {} may not read {}; run this as root, with sudo", user(), paths.join(", ")));
    }
    for (path, reason) in &seen.broken {
        let path = path.display();
        let next = if path.to_string().contains("/run/zedbox/") {
            "`zedbox drain cancel` removes it".to_owned()
        } else if path.to_string().ends_with(PAUSE_FILE) {
            "`zedbox resume` removes it".to_owned()
        } else {
            format!("its agent writes it again when it restarts; `zedbox check {path}` shows more")
        };
        lines.push(format!("{path} cannot be used: {reason}; {next}"));
    }
    if lines.is_empty() && seen.status.is_none() && seen.progress.is_none() {
        let file = topic_root.path("run/zedkube/NodeDrainStatus/global.json");
        lines.push(format!(
            "zedkube has published nothing: there is no {}; check that it runs, and that --root is right",
            file.display()
        ));
    }
    lines
}

/// The whole sheet: the state in one line, then rows, the next step last but one.
pub(super) fn sheet(seen: &DrainView, now: GoTime, columns: usize) -> Sheet {
    let state = seen.state();
    let headline = headline(seen, now);
    let mut out = Sheet::new(&paragraph("", &headline, columns), colour(state));
    let mut add = |weight: RowWeight, label: &str, text: &str| out.add(weight, &row(label, text, columns));
    if let Some(progress) = seen.agreed() {
        let rows = progress_rows(progress, state, now);
        // A reason that the first line gives already is not given twice.
        for (weight, label, text) in
            rows.iter().filter(|(_, label, text)| *label != "reason" || !headline.contains(text))
        {
            add(*weight, label, text);
        }
    }
    for (weight, label, text) in preflight_rows(seen) {
        add(weight, label, &text);
    }
    let served = seen.served();
    for request in seen.requests.values().filter(|it| Some(*it) != served) {
        add(RowWeight::Detail, "also", &request_words(request, seen.asked_at(request.id()), now));
    }
    for (op, pending) in &seen.pending {
        let skip = if pending.skip.is_empty() {
            String::new()
        } else {
            format!("; without a drain: {}", pending.skip)
        };
        let text = format!("{} waits for {}{skip}", operation(op, pending.counter), pending.waiting_for);
        add(RowWeight::Cause, "pending", &text);
    }
    for update in seen.updates.values() {
        add(RowWeight::Cause, "pending", &update_words(update, now));
    }
    if let Some(it) = &seen.last_look {
        add(RowWeight::Cause, "held", &format!("nodeagent holds the {} back: {}", it.op, it.held));
    }
    if let Some(leave) = &seen.leave {
        add(RowWeight::Cause, "cluster", &leave_words(leave, now));
    }
    if let Some(pause) = &seen.pause {
        add(RowWeight::Essential, "paused", &pause_words(pause, now));
    }
    if let Some(forced) = &seen.force {
        match forced.order {
            Some(order) => add(RowWeight::Cause, "force file", &format!("{} orders {order}", forced.file)),
            None => {
                add(
                    RowWeight::Cause,
                    "force file",
                    &format!("{} is refused: {}", forced.file, forced.refused),
                );
            }
        }
    }
    for text in super::trouble::rows(seen, now) {
        add(RowWeight::Cause, "trouble", &text);
    }
    if !seen.broken.is_empty() {
        let files = number(seen.broken.len(), "file");
        add(RowWeight::Cause, "broken", &format!("{files} cannot be used; `zedbox drain status` names them"));
    }
    if !seen.denied.is_empty() {
        add(RowWeight::Cause, "unread", "not all files may be read; run this as root, with sudo");
    }
    add(RowWeight::Essential, "next step", &next_step(seen));
    let weight = if seen.live.is_dead() { RowWeight::Cause } else { RowWeight::Detail };
    add(weight, "zedkube", &live_words(seen, now));
    out
}

const fn colour(state: DrainState) -> Option<&'static str> {
    match state {
        DrainState::Unknown | DrainState::Idle => None,
        DrainState::UnderWay => Some("36"),
        DrainState::Blocked | DrainState::Unproved => Some("33"),
        DrainState::Complete => Some("32"),
        DrainState::Skipped | DrainState::Forced | DrainState::Failed => Some("31"),
    }
}
