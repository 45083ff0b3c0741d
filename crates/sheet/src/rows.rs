//! What there is to know of this node beside the headline, in rows with a weight each. Pure: no clock, no I/O, no task.

use topics::{
    BaseOsStatus, Blocker, CordonOwner, DrainFinding, DrainPhase, DrainStatus, GateWarning, GoTime,
    MachineProgress, NodeDrainProgress, NodeDrainRequest, NodeLeave, NodeState, OperationPause, PauseScope,
    PodCounts, RequestId, Requester, RunningLimit, Trouble,
};

use crate::judge::Judgement;
use crate::judge::words::purpose;
use crate::outcome::DrainOutcome;
use crate::text::{moment, number, span, unix_secs};
use crate::view::DrainView;

/// Items beyond these are counted only; `-o json` has them all.
const SHOWN: usize = 10;

/// zedkube's reason where there is none.
const IDLE: &str = "no drain requested";

/// How much a row matters where not all of them have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowWeight {
    /// The first line, the first blocker, the next step.
    Essential,
    /// What else holds the drain up, or what it has come to.
    Cause,
    /// How far it is.
    Course,
    Detail,
}

/// What it is about, the text, and what a person can do about that alone, or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub weight: RowWeight,
    pub label: &'static str,
    pub text: String,
    pub step: String,
}

impl Row {
    pub const fn new(weight: RowWeight, label: &'static str, text: String) -> Self {
        Self { weight, label, text, step: String::new() }
    }

    fn with(self, step: &str) -> Self {
        Self { step: step.to_owned(), ..self }
    }
}

/// All rows between the headline and the next step; then whether zedkube runs.
pub fn rows(view: &DrainView, judged: &Judgement, now: GoTime) -> Vec<Row> {
    let mut rows: Vec<Row> = view.status_row(now).into_iter().collect();
    if let Some(progress) = view.agreed() {
        rows.extend(progress_rows(view, progress, judged, now));
    }
    rows.extend(preflight_rows(view, judged));
    let served = view.served();
    let others = view.requests.values().filter(|it| Some(*it) != served);
    let also = |it: &NodeDrainRequest| request_words(it, view.asked_at(it.id()), now);
    let cause = |label: &'static str, text: String| Row::new(RowWeight::Cause, label, text);
    rows.extend(others.map(|it| cause("also", also(it))));
    for it in view.pending.values() {
        let skip = if it.skip.is_empty() { String::new() } else { format!("; without a drain: {}", it.skip) };
        let text = format!("{} waits for {}{skip}", it.words(), it.waiting_for);
        // Of a drain that is asked for the headline says that it waits for it.
        let weight = if view.requests.is_empty() { RowWeight::Cause } else { RowWeight::Detail };
        rows.push(Row::new(weight, "pending", text));
    }
    rows.extend(view.updates.values().map(|it| cause("pending", update_words(it, now))));
    if let Some(it) = &view.last_look {
        rows.push(cause("held", format!("nodeagent holds the {} back: {}", it.op, it.held)));
    }
    rows.extend(view.leave.iter().map(|it| cause("cluster", leave_words(it, now))));
    // Who and why is in the headline of a node that rests.
    let told = judged.headline.state == NodeState::Paused;
    let paused = view.pause.iter().map(|it| pause_words(it, told, now));
    rows.extend(paused.map(|it| Row::new(RowWeight::Essential, "paused", it)));
    rows.extend(view.force.iter().map(|it| {
        cause(
            "force file",
            match it.order {
                Some(order) => format!("{} orders {order}", it.file),
                None => format!("{} is refused: {}", it.file, it.refused),
            },
        )
    }));
    for (at, (agent, it)) in view.each_trouble().enumerate() {
        // The headline of a node at rest and its next step say the first.
        let told = at == 0 && judged.headline.state == NodeState::InService;
        let weight = if told { RowWeight::Detail } else { RowWeight::Cause };
        rows.push(Row::new(weight, "trouble", trouble_words(agent, it) + &since(it.since, now)));
    }
    rows.extend(view.more_troubles().map(|text| cause("trouble", text)));
    if !view.broken.is_empty() {
        let files = number(view.broken.len(), "file");
        rows.push(cause("broken", format!("{files} cannot be used, named on standard error")));
    }
    if !view.denied.is_empty() {
        rows.push(cause("unread", "not all files may be read; run this as root, with sudo".to_owned()));
    }
    rows
}

impl DrainView {
    /// `CORDONED (5), for a reboot, requested 09:30:00 UTC, 11 min ago, attempt 1 of 5`.
    fn status_row(&self, now: GoTime) -> Option<Row> {
        let mut text = status_words(self.drain_status()?);
        let progress = self.agreed();
        let asked = progress.filter(|it| !it.requested_at.is_zero());
        let asked = asked.map(|it| (it.requested_by, it.context.as_str(), it.requested_at));
        let served = || self.served().map(|it| (it.requested_by, it.context.as_str(), it.requested_at));
        if let Some((by, context, at)) = asked.or_else(served) {
            let at = moment(self.asked_at(RequestId { by, at }), now);
            text = format!("{text}, {}, requested {at}", for_whom(by, context));
        }
        if let Some(it) = progress.filter(|it| it.attempt > 0) {
            text = format!("{text}, attempt {} of {}", it.attempt, it.max_attempts);
        }
        Some(Row::new(RowWeight::Detail, "status", text))
    }

    /// All troubles in lines that stay as they are while time passes.
    pub fn trouble_lines(&self) -> Vec<String> {
        let each = self.each_trouble().map(|(agent, it)| trouble_words(agent, it));
        each.chain(self.more_troubles()).collect()
    }

    fn more_troubles(&self) -> Option<String> {
        let more: u32 = self.troubles.values().map(|it| it.more).sum();
        (more > 0).then(|| format!("and {more} more, see run/<agent>/AgentTrouble/global.json"))
    }

    /// Whether zedkube runs and has turns, and how heavy that is.
    pub fn live_row(&self, now: GoTime) -> Row {
        let (live, at) = (self.live, self.live.last_turn);
        let turn = if at.is_zero() {
            "has not run on these files in this boot".to_owned()
        } else {
            format!("last heard of {}", moment(at, now))
        };
        let text = match live.running {
            Some(true) if live.hangs(now) => format!("hangs, or the clock was changed since: {turn}"),
            Some(true) if at.is_zero() => "running".to_owned(),
            Some(true) => format!("running, {turn}"),
            Some(false) => {
                let why = self.away("not running", "cannot start").unwrap_or_default();
                format!("{why}: what is shown is what it wrote last; {turn}")
            }
            None if live.is_silent(now) => format!("{turn}; while it works it has one every 25 s"),
            None => turn,
        };
        Row::new(if live.is_dead() { RowWeight::Cause } else { RowWeight::Detail }, "zedkube", text)
    }
}

/// The name of a status in the documents and its number, as `FAILEDDRAIN (8)`.
pub fn status_words(status: DrainStatus) -> String {
    format!("{} ({})", status_name(status), status.number())
}

/// The name alone.
pub fn status_name(status: DrainStatus) -> String {
    status.text().replace(' ', "").to_uppercase()
}

/// Whom a drain is for.
pub fn for_whom(by: Requester, context: &str) -> String {
    match by {
        Requester::Update => format!("for OS image {context}"),
        Requester::Operator | Requester::NodeMaintenance => format!("by {context}"),
        Requester::K3sUpdate => format!("for {context}"),
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
            format!("for a {context}")
        }
    }
}

/// The same for a whole request.
pub fn request_words(request: &NodeDrainRequest, asked_at: GoTime, now: GoTime) -> String {
    let whom = for_whom(request.requested_by, &request.context);
    format!("{whom}, requested {}", moment(asked_at, now))
}

/// `OS update 14.5.1: the drain failed; asked for again 60 s after the error, 09:40:00 UTC, 1 min ago`.
fn update_words(update: &BaseOsStatus, now: GoTime) -> String {
    let BaseOsStatus { base_os_version, error, error_retry_condition: retry, error_time, .. } = update;
    let retry = if retry.is_empty() { String::new() } else { format!("; {retry}") };
    let at = if error_time.is_zero() { String::new() } else { format!(", {}", moment(*error_time, now)) };
    format!("OS update {base_os_version}: {error}{retry}{at}")
}

/// `cluster-a: still a member, about to leave, 09:27:53 UTC, in 40 s: the config names no cluster; to stay: …`.
fn leave_words(leave: &NodeLeave, now: GoTime) -> String {
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

fn progress_rows(
    view: &DrainView,
    progress: &NodeDrainProgress,
    judged: &Judgement,
    now: GoTime,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |weight, label, text: String| rows.push(Row::new(weight, label, text));
    let counts = progress.counts;
    if counts.total > 0 {
        add(RowWeight::Course, "pods", counts_words(counts));
    }
    if !progress.tier.is_empty() {
        add(RowWeight::Detail, "tier", progress.tier.clone());
    }
    for (label, at) in [("started", progress.started_at), ("estimate", progress.estimate)] {
        if !at.is_zero() {
            add(RowWeight::Detail, label, moment(at, now));
        }
    }
    if let Some(text) = next_words(progress, now) {
        add(RowWeight::Essential, "next", text);
    }
    for it in progress.limits.iter().filter(|it| it.until != progress.deadline) {
        add(RowWeight::Detail, "limit", limit_words(it, now));
    }
    let works = matches!(judged.outcome, DrainOutcome::UnderWay | DrainOutcome::Blocked);
    if works && progress.estimate.is_zero() && counts.total > 0 {
        add(RowWeight::Detail, "estimate", "not available yet".to_owned());
    }
    if !progress.api_silent_since.is_zero() {
        let since = moment(progress.api_silent_since, now);
        add(RowWeight::Cause, "silent", format!("no answer from the Kubernetes API since {since}"));
    }
    let failed = view.failed(progress.requested_by).next().filter(|_| judged.outcome == DrainOutcome::Failed);
    match failed.filter(|_| progress.blockers.is_empty()) {
        Some(record) => rows.extend(blocker_rows(&record.blockers, record.more_blockers, judged, now)),
        None => rows.extend(blocker_rows(&progress.blockers, progress.blockers_omitted, judged, now)),
    }
    let going = progress.machines.iter().filter(|it| it.state != "gone");
    let machine = |it: &MachineProgress| format!("{} [{}] {}", it.name, it.state, it.reason);
    rows.extend(going.map(|it| Row::new(RowWeight::Course, "machine", machine(it))));
    rows.extend(more("machine", 0, progress.machines_omitted));
    let detail = |label: &'static str, text: String| Row::new(RowWeight::Detail, label, text);
    let cause = |label: &'static str, text: String| Row::new(RowWeight::Cause, label, text);
    rows.extend(progress.volumes.iter().map(|it| cause("volume", format!("still attached: {it}"))));
    rows.extend(more("volume", 0, progress.volumes_omitted));
    let storage = progress.storage.iter();
    rows.extend(
        storage.map(|it| cause("storage", format!("{}: {}", it.volume, it.reason)).with(&it.next_step)),
    );
    rows.extend(more("storage", 0, progress.storage_omitted));
    rows.extend(progress.left.iter().map(|it| detail("left", format!("by policy: {it}"))));
    rows.extend(more("left", 0, progress.left_omitted));
    rows.extend(progress.hooks.iter().map(|it| detail("hooks", it.clone())));
    if progress.cordon == CordonOwner::Foreign {
        let text = "not ours: somebody else set it; it is kept".to_owned();
        rows.push(Row::new(RowWeight::Course, "cordon", text));
    }
    if progress.recordons > 0 {
        rows.push(detail("cordon", recordons(progress.recordons)));
    }
    if !progress.gate.layer.is_empty() {
        let failed = if progress.gate.failed { ", over its time limit; still retrying" } else { "" };
        let text = format!("closed at {}{failed}: {}", progress.gate.layer, progress.gate.words);
        rows.push(cause("gate", text));
    }
    rows.extend(progress.gate.warnings.iter().map(|it| warning(it, now)));
    let taints = progress.gate.stale_taints.iter();
    rows.extend(taints.map(|it| detail("taint", format!("{it}: stale, removed soon"))));
    let repairs = progress.repairs.iter();
    rows.extend(
        repairs.map(|(what, count)| detail("repaired", format!("{what}, {}", number(*count, "time")))),
    );
    // As a reason it is said with the phase.
    if !progress.skip.is_empty() && progress.phase != DrainPhase::Skipped {
        rows.push(cause("skipped", progress.skip.clone()));
    }
    // What the headline and the row `paused` say is not said again, and what other rows say has less weight.
    let of_phase = [DrainPhase::Paused, DrainPhase::Undecided, DrainPhase::WholeSite, DrainPhase::AfterBoot];
    let is_told = of_phase.contains(&progress.phase) || progress.reason == IDLE;
    let said = rows.iter().any(|it| matches!(it.label, "blocked" | "volume" | "storage"));
    let weight = if said { RowWeight::Detail } else { RowWeight::Cause };
    rows.extend(reason(progress).filter(|_| !is_told).map(|it| Row::new(weight, "reason", it.to_owned())));
    rows
}

/// The reason, without what the rows of counts and blockers say while pods leave.
pub fn reason(progress: &NodeDrainProgress) -> Option<&str> {
    let counted = progress.phase == DrainPhase::Draining && progress.api_silent_since.is_zero();
    let reason = if counted { &progress.trouble } else { &progress.reason };
    (!reason.is_empty()).then_some(reason.as_str())
}

fn warning(it: &GateWarning, now: GoTime) -> Row {
    let (weight, turn) = if it.failed {
        (RowWeight::Cause, "")
    } else {
        (RowWeight::Detail, "; its turn is held for this for a time")
    };
    let since = moment(it.since, now);
    Row::new(weight, "warning", format!("{}: {}, since {since}{turn}", it.layer, it.words))
        .with(&it.next_step)
}

/// `25 min of 30 min left for the whole drain; then: the drain fails, and our cordon is removed`.
fn limit_words(limit: &RunningLimit, now: GoTime) -> String {
    let secs = |from, to| u64::try_from(unix_secs(to) - unix_secs(from)).unwrap_or_default();
    let (all, left) = (secs(limit.since, limit.until), secs(now, limit.until));
    let of = match limit.of.as_str() {
        "drain" => "the whole drain",
        "volumes" => "volumes that are still attached",
        "last-copies" => "last healthy copies",
        _ => "this attempt",
    };
    let then = then_words(limit);
    if left == 0 {
        return format!("over its {} for {of}, since {}: {then}", span(all), moment(limit.until, now));
    }
    format!("{} of {} left for {of}; then: {then}", span(left), span(all))
}

/// What time alone changes, and when; without such a time what follows by itself.
fn next_words(progress: &NodeDrainProgress, now: GoTime) -> Option<String> {
    let limit = progress.limits.iter().find(|it| it.until == progress.deadline);
    if !progress.deadline.is_zero() {
        let then = match (limit, progress.phase) {
            (Some(limit), _) => then_words(limit),
            (None, DrainPhase::Checking) => "the operation goes ahead WITHOUT a drain",
            (None, DrainPhase::RunningHooks) => "the hooks are tried again",
            (None, DrainPhase::OutsideWindow) => "the window opens",
            (None, DrainPhase::Retrying) => "the next attempt begins",
            (None, _) => "this attempt is given up",
        };
        return Some(format!("{}: {then}", moment(progress.deadline, now)));
    }
    let what = purpose(progress.requested_by, &progress.context);
    let empty = || format!("{what} goes ahead once the node is proved empty");
    let follows = [
        (DrainPhase::Checking, "the node is cordoned once it has been checked".to_owned()),
        (DrainPhase::WaitingForTurn, "its drain begins by itself, once its turn comes".to_owned()),
        (DrainPhase::Cordoning, empty()),
        (DrainPhase::MovingMachines, empty()),
        (DrainPhase::Draining, empty()),
        (DrainPhase::Detaching, empty()),
        (DrainPhase::WaitingForStorage, empty()),
        (DrainPhase::Proving, empty()),
    ];
    follows.into_iter().find(|(phase, _)| *phase == progress.phase).map(|(_, words)| words)
}

/// What follows when it is over.
fn then_words(limit: &RunningLimit) -> &'static str {
    match limit.then.as_str() {
        "give-up" if limit.of == "drain" => "the drain fails, and our cordon is removed",
        "give-up" => "the attempt fails; another one follows, unless it was the last",
        "go-on" => "the drain continues without waiting for them, and names them",
        _ => "it continues to wait, and is shown as over its time",
    }
}

/// `removed by somebody and set again 2 times`.
pub fn recordons(count: u32) -> String {
    format!("removed by somebody and set again {}", number(count, "time"))
}

/// `2 of 4 gone, 1 terminating, 1 blocked`.
pub fn counts_words(counts: PodCounts) -> String {
    [(counts.going, "terminating"), (counts.waiting, "waiting"), (counts.blocked, "blocked")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .fold(format!("{} of {} gone", counts.gone, counts.total), |text, (count, word)| {
            format!("{text}, {count} {word}")
        })
}

/// `[budget] pod shop/web-0: PodDisruptionBudget shop/web allows no disruption: …`.
pub fn blocker_words(it: &Blocker) -> String {
    format!("[{}] {}", it.code, it.sentence())
}

/// The first blockers: code, sentence, since when; then how many more there are.
fn blocker_rows(blockers: &[Blocker], omitted: u32, judged: &Judgement, now: GoTime) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for it in blockers.iter().take(SHOWN) {
        let weight = if rows.is_empty() { RowWeight::Essential } else { RowWeight::Cause };
        // What the headline of a drain that failed says is not said again.
        let told = judged.headline.state == NodeState::Failed && rows.is_empty();
        let text = if told { format!("[{}] {}", it.code, it.subject()) } else { blocker_words(it) };
        rows.push(Row::new(weight, "blocked", text + &since(it.since, now)).with(&it.next_step));
    }
    let hidden = blockers.len() - rows.len();
    rows.extend(more("blocked", hidden, omitted));
    rows
}

/// `[backups] blocks: backups in progress: b1`, and who has it pass.
pub fn finding_words(it: &DrainFinding) -> String {
    let passed =
        if it.passed_by.is_empty() { String::new() } else { format!(", passed by {}", it.passed_by) };
    format!("[{}] {}{passed}: {}", it.code, it.severity, it.text)
}

/// What the preflight of the drain has found, what stops it first, each with what a person can do; nothing while no drain
/// is at work.
fn preflight_rows(view: &DrainView, judged: &Judgement) -> Vec<Row> {
    let waits =
        view.agreed().is_some_and(|it| matches!(it.phase, DrainPhase::OutsideWindow | DrainPhase::Paused));
    let Some(report) = view.preflight.as_ref().filter(|_| judged.outcome != DrainOutcome::Idle && !waits)
    else {
        return Vec::new();
    };
    let shown = report.findings.iter().take(SHOWN).map(|it| {
        let stops = it.severity == "blocks" && it.passed_by.is_empty();
        let weight = if stops { RowWeight::Cause } else { RowWeight::Detail };
        Row::new(weight, "finding", finding_words(it)).with(&it.next_step)
    });
    let hidden = report.findings.len().saturating_sub(SHOWN);
    shown.chain(more("finding", hidden, report.left_out)).collect()
}

/// A row for what is not shown: items that the value has, and those that it had no room for.
fn more(label: &'static str, hidden: usize, omitted: u32) -> Option<Row> {
    let omitted = usize::try_from(omitted).unwrap_or(usize::MAX);
    let text = match (hidden, hidden.saturating_add(omitted)) {
        (_, 0) => return None,
        (0, all) => format!("… and {all} more"),
        (_, all) if omitted == 0 => format!("… and {all} more; `zedbox status -o json` shows all"),
        (_, all) => format!("… and {all} more; `zedbox status -o json` shows {hidden} of them"),
    };
    Some(Row::new(RowWeight::Cause, label, text))
}

/// Who keeps what from starting, and why, where that is not `told` already; since when, and what ends it.
fn pause_words(pause: &OperationPause, told: bool, now: GoTime) -> String {
    let OperationPause { by, reason, since, until, scope, .. } = pause;
    let what = match scope {
        _ if told => String::new(),
        PauseScope::Node => format!("no operation starts, by {by}: {reason}; "),
        PauseScope::Controller => format!("what the controller orders waits, by {by}: {reason}; "),
    };
    let end =
        if until.is_zero() { String::new() } else { format!("; ends by itself {}", moment(*until, now)) };
    format!("{what}since {}{end}; `zedbox resume` ends it", moment(*since, now))
}

fn since(at: GoTime, now: GoTime) -> String {
    if at.is_zero() { String::new() } else { format!("; since {}", moment(at, now)) }
}

fn trouble_words(agent: &str, it: &Trouble) -> String {
    let Trouble { what, path, error, since: _, holds, next_step } = it;
    let then = if holds.is_empty() { next_step.clone() } else { format!("waits: {}", holds.join(", ")) };
    let path = if path.is_empty() { String::new() } else { format!(" ({path})") };
    format!("{agent}: {what}: {error}{path}; {then}")
}
