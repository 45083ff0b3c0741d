//! `zedbox drain status`: the state of the drain as a sheet for a person or one object for a program.

use agent::Clock;
use pubsub::Bus;
use topics::{
    CordonOwner, DrainPhase, DrainStatus, FORCE_FILE, GoTime, NodeDrainProgress, NodeDrainRequest, RequestId,
    Requester,
};

use super::seen::{Follow, Live, Seen};
use super::stand::Stand;
use super::text::{bar, moment, paragraph, row, unix_secs};
use super::voice::Voice;
use crate::Exit;
use crate::args::{Output, StatusOptions};

/// Blockers beyond these are counted only; `-o json` has them all.
const SHOWN: usize = 10;
/// A zedkube that had no turn for so long does not work: its watchdog's limit.
const STUCK_SECS: i64 = 180;

/// Prints how far the drain is.
pub(super) async fn run(
    bus: &Bus,
    clock: Clock,
    options: &StatusOptions,
    voice: &Voice,
) -> anyhow::Result<Exit> {
    let mut follow = Follow::open(bus).await;
    follow.settle(clock).await;
    let seen = follow.seen();
    let (now, by_clock) = match options.as_of {
        // Of a tree from elsewhere: everything by its own clock.
        Some(as_of) => (as_of, seen.clone()),
        None => (clock.wall(), seen.clone().by_clock(clock)),
    };
    match voice.output {
        Output::Json => Voice::json(seen, false)?,
        Output::Text => Voice::print(&sheet(&by_clock, now, voice.columns(), voice.colours))?,
    };
    for line in warnings(bus, seen) {
        Voice::warn(&line);
    }
    Ok(seen.stand().exit())
}

/// What cannot be read, with the next step, for standard error.
pub(super) fn warnings(bus: &Bus, seen: &Seen) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (path, reason) in &seen.broken {
        let path = path.display();
        let next = if reason.contains("ermission denied") {
            "run this as root, with sudo".to_owned()
        } else if path.to_string().contains("/run/zedbox/") {
            "`zedbox drain cancel` removes it".to_owned()
        } else {
            format!("its agent writes it anew when it starts; `zedbox check {path}` tells more")
        };
        lines.push(format!("{path} cannot be used: {reason}; {next}"));
    }
    if lines.is_empty() && seen.status.is_none() && seen.progress.is_none() {
        let file = bus.path("run/zedkube/NodeDrainStatus/global.json");
        lines.push(format!(
            "zedkube has published nothing: there is no {}; see whether it runs, and whether --root is right",
            file.display()
        ));
    }
    lines
}

/// The whole sheet: the state in one line, then rows, the next step last but one.
pub(super) fn sheet(seen: &Seen, now: GoTime, columns: usize, colours: bool) -> String {
    let stand = seen.stand();
    let headline = headline(seen, now);
    let mut out = painted(&paragraph("", &headline, columns), stand, colours);
    let mut add = |label: &str, text: &str| out.push_str(&row(label, text, columns));
    if let Some(progress) = seen.agreed() {
        let rows = progress_rows(progress, stand, now);
        // A reason that the first line gives already is not given twice.
        for (label, text) in
            rows.iter().filter(|(label, text)| *label != "reason" || !headline.contains(text))
        {
            add(label, text);
        }
    }
    let served = seen.served();
    for (agent, request) in seen.requests.iter().filter(|(_, it)| Some(*it) != served) {
        let who =
            if request.requested_by == Requester::Operator { String::new() } else { format!("by {agent} ") };
        add("also asked", &format!("{who}{}", words(request, seen.asked_at(request.id()), now)));
    }
    for (op, pending) in &seen.pending {
        let skip = if pending.skip.is_empty() {
            String::new()
        } else {
            format!("; without a drain: {}", pending.skip)
        };
        add("pending", &format!("{op} {} waits for {}{skip}", pending.counter, pending.waiting_for));
    }
    if let Some(forced) = &seen.force {
        match forced.order {
            Some(order) => add("force file", &format!("{FORCE_FILE} orders {order}")),
            None => add("force file", &format!("{FORCE_FILE} is refused: {}", forced.refused)),
        }
    }
    if !seen.broken.is_empty() {
        let count = seen.broken.len();
        add("broken", &format!("{count} files cannot be used; `zedbox drain status` names them"));
    }
    add("next step", &next_step(seen));
    add("zedkube", &live_words(seen.live, now));
    out
}

fn painted(text: &str, stand: Stand, colours: bool) -> String {
    let colour = match stand {
        Stand::Unknown | Stand::Idle => return text.to_owned(),
        Stand::UnderWay => "36",
        Stand::Blocked => "33",
        Stand::Complete => "32",
        Stand::Failed => "31",
    };
    if colours { format!("\x1b[1;{colour}m{}\x1b[0m\n", text.trim_end()) } else { text.to_owned() }
}

/// `CORDONED (5): pods leave; for a reboot, asked 09:30:00 UTC, 11 min ago; attempt 1 of 5`.
pub(super) fn headline(seen: &Seen, now: GoTime) -> String {
    let Some(status) = seen.drain_status() else { return "UNKNOWN: nothing is known of a drain".to_owned() };
    let phase = phase_words(seen);
    let mut line = format!("{} ({}): {phase}", name(status), status.number());
    let asked = match (seen.agreed(), seen.served()) {
        (Some(it), _) if !it.requested_at.is_zero() => {
            Some((it.requested_by, it.context.clone(), it.requested_at))
        }
        (_, Some(it)) => Some((it.requested_by, it.context.clone(), it.requested_at)),
        (Some(_) | None, None) => None,
    };
    if let Some((by, context, at)) = asked {
        let at = seen.asked_at(RequestId { by, at });
        line = format!("{line}; {}, asked {}", purpose(by, &context), moment(at, now));
    }
    match seen.agreed() {
        Some(it) if it.attempt > 0 => format!("{line}; attempt {} of {}", it.attempt, it.max_attempts),
        Some(_) | None => line,
    }
}

/// What a request is for.
pub(super) fn purpose(by: Requester, context: &str) -> String {
    match by {
        Requester::Update => format!("for OS image {context}"),
        Requester::Operator => format!("by {context}"),
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
            format!("for a {context}")
        }
    }
}

/// The same for a whole request.
pub(super) fn request_words(request: &NodeDrainRequest, now: GoTime) -> String {
    words(request, request.requested_at, now)
}

fn words(request: &NodeDrainRequest, asked_at: GoTime, now: GoTime) -> String {
    format!("{}, asked {}", purpose(request.requested_by, &request.context), moment(asked_at, now))
}

fn progress_rows(progress: &NodeDrainProgress, stand: Stand, now: GoTime) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let counts = progress.counts;
    if counts.total > 0 {
        rows.push(("pods", counts_words(progress)));
    }
    if !progress.tier.is_empty() {
        rows.push(("tier", progress.tier.clone()));
    }
    let times =
        [("started", progress.started_at), ("deadline", progress.deadline), ("estimate", progress.estimate)];
    for (label, at) in times.into_iter().filter(|(_, at)| !at.is_zero()) {
        rows.push((label, moment(at, now)));
    }
    if matches!(stand, Stand::UnderWay | Stand::Blocked) && progress.estimate.is_zero() && counts.total > 0 {
        rows.push(("estimate", "cannot be told yet".to_owned()));
    }
    rows.extend(blocker_rows(progress, now));
    rows.extend(progress.volumes.iter().map(|it| ("volume", format!("{it} is still attached"))));
    rows.extend(more("volume", 0, progress.volumes_omitted));
    rows.extend(progress.left.iter().map(|it| ("stays", it.clone())));
    rows.extend(more("stays", 0, progress.left_omitted));
    if progress.cordon == CordonOwner::Foreign {
        rows.push(("cordon", "somebody else's; it is kept".to_owned()));
    }
    if progress.recordons > 0 {
        rows.push(("cordon", format!("found removed and set again {} times", progress.recordons)));
    }
    if !progress.gate.layer.is_empty() {
        let failed = if progress.gate.failed { ", over its limit" } else { "" };
        rows.push(("gate", format!("shut at {}{failed}: {}", progress.gate.layer, progress.gate.words)));
    }
    rows.extend(
        progress.gate.stale_taints.iter().map(|it| ("taint", format!("{it}, stale, is removed soon"))),
    );
    rows.extend(progress.repairs.iter().map(|(what, count)| ("mended", format!("{what}, {count} times"))));
    if !progress.skip.is_empty() {
        rows.push(("skipped", progress.skip.clone()));
    }
    let reason = beyond_blockers(progress);
    if !reason.is_empty() {
        rows.push(("reason", reason.to_owned()));
    }
    rows
}

/// The reason, without the counts and the first blocker that it repeats while pods leave: what is left then is trouble
/// with the API.
fn beyond_blockers(progress: &NodeDrainProgress) -> &str {
    let first = progress.blockers.first().filter(|_| progress.phase == DrainPhase::Draining);
    let rest = first.and_then(|first| progress.reason.split_once(&first.reason));
    rest.map_or(&progress.reason, |(_, rest)| rest.trim_start_matches("; "))
}

/// `[##########..........] 2 of 4 gone, 1 going, 1 blocked`.
pub(super) fn counts_words(progress: &NodeDrainProgress) -> String {
    let counts = progress.counts;
    let mut text = format!("{} {} of {} gone", bar(counts.gone, counts.total), counts.gone, counts.total);
    for (count, word) in [(counts.going, "going"), (counts.waiting, "waiting"), (counts.blocked, "blocked")] {
        if count > 0 {
            text = format!("{text}, {count} {word}");
        }
    }
    text
}

/// The first blockers: code, sentence, since when; then how many more there are.
pub(super) fn blocker_rows(progress: &NodeDrainProgress, now: GoTime) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    for it in progress.blockers.iter().take(SHOWN) {
        let since =
            if it.since.is_zero() { String::new() } else { format!("; since {}", moment(it.since, now)) };
        let pod = if it.reason.contains(&it.pod) { String::new() } else { format!("pod {}: ", it.pod) };
        rows.push(("blocked", format!("[{}] {pod}{}{since}", it.code, it.reason)));
    }
    let shown = progress.blockers.len().min(SHOWN);
    rows.extend(more("blocked", progress.blockers.len() - shown, progress.blockers_omitted));
    rows
}

/// A row for what is not shown: items that the value has, and those that it had no room for.
fn more(label: &'static str, hidden: usize, omitted: u32) -> Option<(&'static str, String)> {
    let omitted = usize::try_from(omitted).unwrap_or(usize::MAX);
    match (hidden, hidden.saturating_add(omitted)) {
        (_, 0) => None,
        (0, all) => Some((label, format!("… and {all} more"))),
        (_, all) if omitted == 0 => {
            Some((label, format!("… and {all} more; `zedbox drain status -o json` shows all")))
        }
        (_, all) => {
            Some((label, format!("… and {all} more; `zedbox drain status -o json` shows {hidden} of them")))
        }
    }
}

/// What a person can do.
pub(super) fn next_step(seen: &Seen) -> String {
    if !seen.live.running && matches!(seen.stand(), Stand::UnderWay | Stand::Blocked | Stand::Unknown) {
        return "start zedkube: without it no drain goes on".to_owned();
    }
    match seen.agreed() {
        Some(progress) if !progress.next_step.is_empty() => progress.next_step.clone(),
        Some(_) | None => "nothing".to_owned(),
    }
}

/// Whether zedkube runs and has turns.
pub(super) fn live_words(live: Live, now: GoTime) -> String {
    let turn = |at: GoTime| moment(at, now);
    match (live.running, live.last_turn) {
        (true, at) if at.is_zero() => "runs".to_owned(),
        (true, at) if unix_secs(now) - unix_secs(at) > STUCK_SECS => {
            format!("runs, but had its last turn {}: it is stuck", turn(at))
        }
        (true, at) => format!("runs, last turn {}", turn(at)),
        (false, at) if at.is_zero() => "does not run: what stands above is what it wrote last".to_owned(),
        (false, at) => {
            format!("does not run: what stands above is what it wrote last; last turn {}", turn(at))
        }
    }
}

/// The name of a status in the documents, as `FAILEDDRAIN`.
pub(super) fn name(status: DrainStatus) -> String {
    status.text().replace(' ', "").to_uppercase()
}

fn meaning(status: DrainStatus) -> &'static str {
    match status {
        DrainStatus::Unknown | DrainStatus::Stranger(_) => "nothing is known yet",
        DrainStatus::NotSupported => "this node is in no cluster, there is nothing to drain",
        DrainStatus::NotRequested => "nothing is asked for",
        DrainStatus::Requested => "the request is taken",
        DrainStatus::Starting => "looks for the API and the node",
        DrainStatus::Cordoned => "the node is cordoned, pods leave",
        DrainStatus::FailedCordon => "gave up cordoning",
        DrainStatus::DrainRetrying => "an attempt failed, the next one comes after a pause",
        DrainStatus::FailedDrain => "gave up draining",
        DrainStatus::Complete => "done",
    }
}

/// What is going on, in words.
pub(super) fn phase_words(seen: &Seen) -> &'static str {
    let status = seen.drain_status().unwrap_or_default();
    if status == DrainStatus::NotRequested && !seen.requests.is_empty() {
        return "asked for, and not yet taken by zedkube";
    }
    match seen.agreed().map(|it| it.phase) {
        Some(DrainPhase::Cordoning) => "makes the node unschedulable",
        Some(DrainPhase::Draining) => "pods leave",
        Some(DrainPhase::Detaching) => "pods have left, their volumes are being detached",
        Some(DrainPhase::Proving) => "no pod is left, that is being proved",
        Some(DrainPhase::Complete) => "drained",
        Some(DrainPhase::Skipped) => "done without a drain",
        Some(DrainPhase::Forced) => "a person has forced this status",
        Some(DrainPhase::Withdrawing) => "the request was taken back, the cordon is being removed",
        Some(DrainPhase::Leaving) => "waits until the node has left its cluster",
        Some(DrainPhase::AfterBoot) if seen.agreed().is_some_and(|it| it.gate.open) => {
            "removing our cordon of the earlier boot"
        }
        Some(DrainPhase::AfterBoot) => "our cordon of an earlier boot stays until the node is healthy",
        Some(
            DrainPhase::Idle
            | DrainPhase::Checking
            | DrainPhase::Pausing
            | DrainPhase::FailedCordon
            | DrainPhase::FailedDrain,
        )
        | None => meaning(status),
    }
}
