//! What is known of a drain, in words for a person. Pure: no clock, no I/O, no task.

use topics::{
    BaseOsStatus, CordonOwner, DrainFinding, DrainPhase, DrainStatus, GoTime, NodeDrainProgress,
    NodeDrainRequest, NodeLeave, OperationPause, PauseScope, RequestId, Requester, RunningLimit,
};

use super::state::DrainState;
use super::text::{RowWeight, bar, moment, number, span, unix_secs};
use super::view::DrainView;

/// Blockers beyond these are counted only; `-o json` has them all.
const SHOWN: usize = 10;
/// A zedkube that had no turn for so long does not work: its watchdog's limit.
const STUCK_SECS: i64 = 180;

/// `CORDONED (5): pods are being evicted; for a reboot, requested 09:30:00 UTC, 11 min ago; attempt 1 of 5`.
pub(super) fn headline(seen: &DrainView, now: GoTime) -> String {
    let Some(status) = seen.drain_status() else {
        return "UNKNOWN: no drain status is known".to_owned();
    };
    let mut line = format!("{} ({}): {}", name(status), status.number(), phase_words(seen));
    let idle =
        seen.requests.is_empty() && matches!(status, DrainStatus::NotSupported | DrainStatus::NotRequested);
    let asked = match (seen.agreed(), seen.served()) {
        // What was asked before is over.
        _ if idle => None,
        (Some(it), _) if !it.requested_at.is_zero() => {
            Some((it.requested_by, it.context.clone(), it.requested_at))
        }
        (_, Some(it)) => Some((it.requested_by, it.context.clone(), it.requested_at)),
        (Some(_) | None, None) => None,
    };
    if let Some((by, context, at)) = asked {
        let at = seen.asked_at(RequestId { by, at });
        line = format!("{line}; {}, requested {}", purpose(by, &context), moment(at, now));
    }
    match seen.agreed() {
        Some(it) if it.attempt > 0 && !idle => {
            format!("{line}; attempt {} of {}", it.attempt, it.max_attempts)
        }
        Some(_) | None => line,
    }
}

/// What a request is for.
pub(super) fn purpose(by: Requester, context: &str) -> String {
    match by {
        Requester::Update => format!("for OS image {context}"),
        Requester::Operator => format!("by {context}"),
        Requester::K3sUpdate => format!("for {context}"),
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
            format!("for a {context}")
        }
    }
}

/// The same for a whole request.
pub(super) fn request_words(request: &NodeDrainRequest, asked_at: GoTime, now: GoTime) -> String {
    format!("{}, requested {}", purpose(request.requested_by, &request.context), moment(asked_at, now))
}

/// `OS update 0.0.0-new: the drain failed; asked for again 60 s after the error, 09:40:00 UTC, 1 min ago`.
pub(super) fn update_words(update: &BaseOsStatus, now: GoTime) -> String {
    let retry = &update.error_retry_condition;
    let at = if update.error_time.is_zero() {
        String::new()
    } else {
        format!(", {}", moment(update.error_time, now))
    };
    format!("OS update {}: {}; {retry}{at}", update.base_os_version, update.error)
}

/// `cluster-a: still a member, about to leave, 09:27:53 UTC, in 40 s: the config names no cluster; to stay: …`.
pub(super) fn leave_words(leave: &NodeLeave, now: GoTime) -> String {
    let at = if leave.deadline.is_zero() { leave.started_at } else { leave.deadline };
    let at = if at.is_zero() { String::new() } else { format!(", {}", moment(at, now)) };
    let mut words = format!("{}: {}{at}", leave.cluster_name, leave.phase.text());
    for (mark, text) in [(": ", &leave.reason), ("; ", &leave.next_step)] {
        if !text.is_empty() {
            words.push_str(mark);
            words.push_str(text);
        }
    }
    words
}

pub(super) fn progress_rows(
    progress: &NodeDrainProgress,
    state: DrainState,
    now: GoTime,
) -> Vec<(RowWeight, &'static str, String)> {
    let mut rows = Vec::new();
    let counts = progress.counts;
    if counts.total > 0 {
        rows.push((RowWeight::Course, "pods", counts_words(progress)));
    }
    if !progress.tier.is_empty() {
        rows.push((RowWeight::Detail, "tier", progress.tier.clone()));
    }
    for (weight, label, at) in [
        (RowWeight::Detail, "started", progress.started_at),
        (RowWeight::Course, "deadline", progress.deadline),
        (RowWeight::Detail, "estimate", progress.estimate),
    ] {
        if !at.is_zero() {
            rows.push((weight, label, moment(at, now)));
        }
    }
    rows.extend(progress.limits.iter().map(|it| (RowWeight::Course, "limit", limit_words(it, now))));
    if matches!(state, DrainState::UnderWay | DrainState::Blocked)
        && progress.estimate.is_zero()
        && counts.total > 0
    {
        rows.push((RowWeight::Detail, "estimate", "not available yet".to_owned()));
    }
    if !progress.api_silent_since.is_zero() {
        let since = moment(progress.api_silent_since, now);
        rows.push((RowWeight::Cause, "silent", format!("no answer from the Kubernetes API since {since}")));
    }
    rows.extend(blocker_rows(progress, now));
    let going = progress.machines.iter().filter(|it| it.state != "gone");
    rows.extend(
        going.map(|it| (RowWeight::Course, "machine", format!("{} [{}] {}", it.name, it.state, it.reason))),
    );
    rows.extend(more("machine", 0, progress.machines_omitted));
    let detail = |label: &'static str, text: String| (RowWeight::Detail, label, text);
    rows.extend(
        progress.volumes.iter().map(|it| (RowWeight::Cause, "volume", format!("still attached: {it}"))),
    );
    rows.extend(more("volume", 0, progress.volumes_omitted));
    let storage = |it: &topics::StorageWait| format!("{}: {}; {}", it.volume, it.reason, it.next_step);
    rows.extend(progress.storage.iter().map(|it| (RowWeight::Cause, "storage", storage(it))));
    rows.extend(more("storage", 0, progress.storage_omitted));
    rows.extend(progress.left.iter().map(|it| detail("left", format!("by policy: {it}"))));
    rows.extend(more("left", 0, progress.left_omitted));
    rows.extend(progress.hooks.iter().map(|it| detail("hooks", it.clone())));
    if progress.cordon == CordonOwner::Foreign {
        rows.push((RowWeight::Course, "cordon", "not ours: somebody else set it; it is kept".to_owned()));
    }
    if progress.recordons > 0 {
        rows.push(detail("cordon", recordons(progress.recordons)));
    }
    if !progress.gate.layer.is_empty() {
        let failed = if progress.gate.failed { ", over its time limit; still retrying" } else { "" };
        let text = format!("closed at {}{failed}: {}", progress.gate.layer, progress.gate.words);
        rows.push((RowWeight::Cause, "gate", text));
    }
    rows.extend(progress.gate.warnings.iter().map(|it| {
        let weight = if it.failed { RowWeight::Cause } else { RowWeight::Detail };
        let turn = if it.failed { "" } else { "; its turn is held for this for a time" };
        let since = moment(it.since, now);
        (weight, "warning", format!("{}: {}, since {since}{turn}; {}", it.layer, it.words, it.next_step))
    }));
    rows.extend(
        progress.gate.stale_taints.iter().map(|it| detail("taint", format!("{it}: stale, removed soon"))),
    );
    rows.extend(
        progress
            .repairs
            .iter()
            .map(|(what, count)| detail("repaired", format!("{what}, {}", number(*count, "time")))),
    );
    if !progress.skip.is_empty() && !progress.reason.contains(&progress.skip) {
        rows.push((RowWeight::Cause, "skipped", progress.skip.clone()));
    }
    let reason = beyond_counts(progress);
    if !reason.is_empty() {
        rows.push((RowWeight::Cause, "reason", reason.to_owned()));
    }
    rows
}

/// `25 min of 30 min left for the whole drain; then: the drain fails, and our cordon is removed`.
fn limit_words(limit: &RunningLimit, now: GoTime) -> String {
    let secs = |from, to| u64::try_from(unix_secs(to) - unix_secs(from)).unwrap_or_default();
    let (all, left) = (secs(limit.since, limit.until), secs(now, limit.until));
    let whole = limit.of == "drain";
    let of = match limit.of.as_str() {
        "drain" => "the whole drain",
        "volumes" => "volumes that are still attached",
        "last-copies" => "last healthy copies",
        _ => "this attempt",
    };
    let then = match limit.then.as_str() {
        "give-up" if whole => "the drain fails, and our cordon is removed",
        "give-up" => "the attempt fails; another one follows, unless it was the last",
        "go-on" => "the drain continues without waiting for them, and names them",
        "delete" => {
            "pods that are left are deleted with their grace period, whatever their PodDisruptionBudgets say"
        }
        _ => "it continues to wait, and is shown as over its time",
    };
    if left == 0 {
        return format!("over its {} for {of}, since {}: {then}", span(all), moment(limit.until, now));
    }
    format!("{} of {} left for {of}; then: {then}", span(left), span(all))
}

/// `removed by somebody and set again 2 times`.
pub(super) fn recordons(count: u32) -> String {
    format!("removed by somebody and set again {}", number(count, "time"))
}

/// The reason, without the counts and the first blocker that it repeats while pods leave: what remains then is trouble
/// with the API.
pub(super) fn beyond_counts(progress: &NodeDrainProgress) -> &str {
    if progress.phase != DrainPhase::Draining {
        return &progress.reason;
    }
    let rest = match progress.blockers.first() {
        Some(first) => {
            progress.reason.split_once(&first.reason).map(|(_, rest)| rest.trim_start_matches("; "))
        }
        None => Some(progress.reason.split_once("; ").map_or("", |(_, rest)| rest)),
    };
    rest.unwrap_or(&progress.reason)
}

/// `[##########..........] 2 of 4 gone, 1 terminating, 1 blocked`.
pub(super) fn counts_words(progress: &NodeDrainProgress) -> String {
    let counts = progress.counts;
    let mut text = format!("{} {} of {} gone", bar(counts.gone, counts.total), counts.gone, counts.total);
    for (count, word) in
        [(counts.going, "terminating"), (counts.waiting, "waiting"), (counts.blocked, "blocked")]
    {
        if count > 0 {
            text = format!("{text}, {count} {word}");
        }
    }
    text
}

/// The first blockers: code, sentence, since when; then how many more there are.
fn blocker_rows(progress: &NodeDrainProgress, now: GoTime) -> Vec<(RowWeight, &'static str, String)> {
    let mut rows: Vec<(RowWeight, &'static str, String)> = Vec::new();
    for it in progress.blockers.iter().take(SHOWN) {
        let weight = if rows.is_empty() { RowWeight::Essential } else { RowWeight::Cause };
        let since =
            if it.since.is_zero() { String::new() } else { format!("; since {}", moment(it.since, now)) };
        let what = if it.reason.contains(&it.pod) { String::new() } else { format!("{}: ", it.subject()) };
        rows.push((weight, "blocked", format!("[{}] {what}{}{since}", it.code, it.reason)));
    }
    let shown = progress.blockers.len().min(SHOWN);
    rows.extend(more("blocked", progress.blockers.len() - shown, progress.blockers_omitted));
    rows
}

/// `[backups] blocks: backups in progress: b1`, and who has it pass.
pub(super) fn finding_words(it: &DrainFinding) -> String {
    let passed =
        if it.passed_by.is_empty() { String::new() } else { format!(", passed by {}", it.passed_by) };
    format!("[{}] {}{passed}: {}", it.code, it.severity, it.text)
}

/// What the preflight of the drain has found, what stops it first, each with what a person can do; nothing while no drain
/// is at work.
pub(super) fn preflight_rows(seen: &DrainView) -> Vec<(RowWeight, &'static str, String)> {
    let waits =
        seen.agreed().is_some_and(|it| matches!(it.phase, DrainPhase::OutsideWindow | DrainPhase::Paused));
    let Some(report) = seen.preflight.as_ref().filter(|_| seen.state() != DrainState::Idle && !waits) else {
        return Vec::new();
    };
    let shown = report.findings.iter().take(SHOWN).map(|it| {
        let stops = it.severity == "blocks" && it.passed_by.is_empty();
        let weight = if stops { RowWeight::Cause } else { RowWeight::Detail };
        (weight, "finding", format!("{}; {}", finding_words(it), it.next_step))
    });
    let hidden = report.findings.len().saturating_sub(SHOWN);
    shown.chain(more("finding", hidden, report.left_out)).collect()
}

/// A row for what is not shown: items that the value has, and those that it had no room for.
fn more(label: &'static str, hidden: usize, omitted: u32) -> Option<(RowWeight, &'static str, String)> {
    let omitted = usize::try_from(omitted).unwrap_or(usize::MAX);
    let text = match (hidden, hidden.saturating_add(omitted)) {
        (_, 0) => return None,
        (0, all) => format!("… and {all} more"),
        (_, all) if omitted == 0 => format!("… and {all} more; `zedbox drain status -o json` shows all"),
        (_, all) => format!("… and {all} more; `zedbox drain status -o json` shows {hidden} of them"),
    };
    Some((RowWeight::Cause, label, text))
}

/// Who keeps what from starting, why, since when, and what ends it.
pub(super) fn pause_words(pause: &OperationPause, now: GoTime) -> String {
    let (what, ends) = match pause.scope {
        PauseScope::Node => ("no operation starts", "zedbox resume"),
        PauseScope::Controller => ("what the controller orders waits", "zedbox drain refuse --withdraw"),
    };
    let OperationPause { by, reason, since, until, .. } = pause;
    let end =
        if until.is_zero() { String::new() } else { format!("; ends by itself {}", moment(*until, now)) };
    format!("{what}, by {by}: {reason}; since {}{end}; `{ends}` ends it", moment(*since, now))
}

/// What a person can do: what zedkube recorded, and who is needed for it.
pub(super) fn next_step(seen: &DrainView) -> String {
    if let Some(step) = seen.trouble_step() {
        return step.to_owned();
    }
    if let Some(held) = &seen.last_look {
        return held.next_step.clone();
    }
    if seen.is_withdrawn() && !seen.live.is_dead() {
        return "nothing: zedkube removes its own cordon".to_owned();
    }
    let recorded = match seen.agreed() {
        Some(progress) if !progress.next_step.is_empty() => progress.next_step.as_str(),
        Some(_) | None => "nothing",
    };
    let idle = seen.requests.is_empty() && recorded == "nothing";
    let recorded = match seen.pending().find(|it| idle && !it.next_step.is_empty()) {
        Some(pending) => &pending.next_step,
        None => recorded,
    };
    if !seen.live.is_dead() || matches!(seen.state(), DrainState::Idle | DrainState::Complete) {
        return recorded.to_owned();
    }
    let start = "start zedkube, as no drain continues without it: `systemctl restart zedbox`; where it ends again, `zedbox check \
                 /etc/zedbox/zedbox.toml` and `journalctl -u zedbox -n 20` say why";
    if recorded == "nothing" {
        start.to_owned()
    } else {
        format!("{start}; then, as it recorded: {recorded}")
    }
}

/// Whether zedkube runs and has turns.
pub(super) fn live_words(seen: &DrainView, now: GoTime) -> String {
    let live = seen.live;
    let at = live.last_turn;
    let late = !at.is_zero() && unix_secs(now) - unix_secs(at) > STUCK_SECS;
    let turn =
        if at.is_zero() { "never heard of".to_owned() } else { format!("last heard of {}", moment(at, now)) };
    match live.running {
        Some(true) if late => format!("running, but {turn}: stuck, or the clock was changed since"),
        Some(true) if at.is_zero() => "running".to_owned(),
        Some(true) => format!("running, {turn}"),
        Some(false) => {
            let why = seen.zedkube_away().unwrap_or_default();
            let why = why.trim_start_matches("zedkube ").trim_start_matches("is ");
            format!("{why}: what is shown is what it wrote last; {turn}")
        }
        None if late => format!("{turn}; while it works it has one every 25 s"),
        None => turn,
    }
}

/// The name of a status in the documents, as `FAILEDDRAIN`.
pub(super) fn name(status: DrainStatus) -> String {
    status.text().replace(' ', "").to_uppercase()
}

fn meaning(status: DrainStatus) -> &'static str {
    match status {
        DrainStatus::Unknown | DrainStatus::Stranger(_) => "not known yet",
        DrainStatus::NotSupported => "nothing is drained before an operation",
        DrainStatus::NotRequested => "no drain requested",
        DrainStatus::Requested => "request accepted",
        DrainStatus::Starting => "checking whether the Kubernetes API is reachable",
        DrainStatus::Cordoned => "node cordoned, pods are being evicted",
        DrainStatus::FailedCordon => "NOT DRAINED: cordoning failed",
        DrainStatus::DrainRetrying => "an attempt failed, the next one follows after a pause",
        DrainStatus::FailedDrain => "NOT DRAINED: the drain failed",
        DrainStatus::Complete => "this zedkube does not report whether the node was drained",
    }
}

/// What is going on, in words.
pub(super) fn phase_words(seen: &DrainView) -> String {
    let status = seen.drain_status().unwrap_or_default();
    let said = match seen.state() {
        DrainState::UnderWay if status == DrainStatus::Complete => {
            "the request was withdrawn, the cordon is being removed"
        }
        DrainState::Skipped => "NOT DRAINED: the drain was skipped",
        DrainState::Forced => "NOT DRAINED: a person forced this status",
        DrainState::Blocked if status == DrainStatus::NotRequested && seen.is_held() => {
            "what is requested waits until a file can be written"
        }
        DrainState::UnderWay if status == DrainStatus::NotRequested && !seen.requests.is_empty() => {
            "a drain is requested, zedkube has not accepted it yet"
        }
        DrainState::Unknown
        | DrainState::Idle
        | DrainState::UnderWay
        | DrainState::Blocked
        | DrainState::Complete
        | DrainState::Unproved
        | DrainState::Failed => at_work(seen, status),
    };
    let idle =
        seen.requests.is_empty() && matches!(status, DrainStatus::NotSupported | DrainStatus::NotRequested);
    match (idle, seen.pending().next(), seen.updates.values().next()) {
        (true, Some(it), _) => format!("{said}; {} is pending", operation(it.op.word(), it.counter)),
        (true, None, Some(it)) => format!("{said}; OS update {} is pending", it.base_os_version),
        (true, None, None) | (false, ..) => said.to_owned(),
    }
}

/// The operation, with the controller's counter where the controller has ordered it.
pub(in crate::drain_cmd) fn operation(op: &str, counter: u32) -> String {
    if counter == 0 { op.to_owned() } else { format!("{op} {counter}") }
}

fn at_work(seen: &DrainView, status: DrainStatus) -> &'static str {
    match seen.agreed().map(|it| it.phase) {
        Some(DrainPhase::OutsideWindow) => "waiting for a window",
        Some(DrainPhase::Paused) => "waiting until a person ends the pause",
        Some(DrainPhase::RunningHooks) => "calling the hooks before the drain",
        Some(DrainPhase::WaitingForTurn) => "waiting for its turn to be down",
        Some(DrainPhase::Cordoning) => "cordoning the node",
        Some(DrainPhase::MovingMachines) => "virtual machines are being moved or shut down",
        Some(DrainPhase::Draining) => "pods are being evicted",
        Some(DrainPhase::Detaching) => "all pods are gone, their volumes are being detached",
        Some(DrainPhase::WaitingForStorage) => "pods are gone, a volume needs another healthy copy",
        Some(DrainPhase::Proving) => "all pods are gone, verifying",
        Some(DrainPhase::Complete) => "drained",
        Some(DrainPhase::Forced) => "a person forced this status",
        Some(DrainPhase::Withdrawing) => "the request was withdrawn, the cordon is being removed",
        Some(DrainPhase::WholeSite) => "waiting for the whole-site operation",
        Some(DrainPhase::Leaving) => "waiting until the node has left its cluster",
        Some(DrainPhase::AfterBoot) if seen.agreed().is_some_and(|it| it.gate.open) => {
            "removing our cordon of the earlier boot"
        }
        Some(DrainPhase::AfterBoot) => "our cordon of an earlier boot stays until the node is healthy",
        Some(
            DrainPhase::Idle
            | DrainPhase::Undecided
            | DrainPhase::Checking
            | DrainPhase::Retrying
            | DrainPhase::Skipped
            | DrainPhase::FailedCordon
            | DrainPhase::FailedDrain,
        )
        | None => meaning(status),
    }
}
