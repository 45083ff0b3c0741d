//! What somebody who watches a drain reads: a line for each change, and how it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sheet::{DrainOutcome, DrainView, OPERATOR, blocker_words, counts_words, reason, status_words};
use step::Inserted as _;
use topics::{
    CordonOwner, DeviceOp, DeviceOpPending, DrainStatus, GoTime, PendingState, RequestId, Skip, SkipKind,
};

use crate::Exit;

/// Why a node that is in no cluster was not drained.
const NO_CLUSTER: &str = "the device config names no cluster";

/// Which drain is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// That of the node, whoever asked.
    Any,
    /// That of one request of a person.
    Own(RequestId),
    /// That before the machine goes down in this way.
    Machine(DeviceOp),
}

/// How a watched drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchEnd {
    pub(super) exit: Exit,
    pub(super) words: String,
}

impl WatchEnd {
    /// The node was not drained, which the last words begin with.
    pub(super) const fn is_undrained(&self) -> bool {
        matches!(self.exit, Exit::DrainFailed | Exit::Skipped | Exit::Forced | Exit::Withdrawn)
    }
}

/// What was told so far.
#[derive(Debug)]
pub(super) struct WatchCourse {
    goal: Goal,
    under_way: bool,
    line: String,
    /// The reason of each blocker that was told, by pod.
    blocked: BTreeMap<String, String>,
    /// Broken files that were told, and why.
    broken: BTreeMap<PathBuf, String>,
    /// Troubles of agents that were told.
    troubles: Vec<String>,
}

impl WatchCourse {
    pub(super) fn new(goal: Goal) -> Self {
        Self {
            goal,
            under_way: false,
            line: String::new(),
            blocked: BTreeMap::new(),
            broken: BTreeMap::new(),
            troubles: Vec::new(),
        }
    }

    /// Lines for what is new since the last call, without times.
    pub(super) fn news(&mut self, seen: &DrainView, now: GoTime) -> Vec<String> {
        let mut lines = Vec::new();
        let line = line(seen, now);
        if self.line != line {
            lines.push(line.clone());
            self.line = line;
        }
        let blockers = seen.agreed().map(|it| it.blockers.as_slice()).unwrap_or_default();
        let blocked: BTreeMap<String, String> =
            blockers.iter().map(|it| (it.subject(), blocker_words(it))).into_map();
        let new = blocked.iter().filter(|(subject, words)| self.blocked.get(*subject) != Some(*words));
        lines.extend(new.map(|(_, words)| format!("blocked {words}")));
        let gone = self.blocked.keys().filter(|it| !blocked.contains_key(*it));
        lines.extend(gone.map(|it| format!("no longer blocked: {it}")));
        self.blocked = blocked;
        for (path, reason) in
            seen.broken.iter().filter(|(path, reason)| self.broken.get(*path) != Some(reason))
        {
            lines.push(format!("{} cannot be used: {reason}", path.display()));
        }
        self.broken = seen.broken.clone();
        let troubles = seen.trouble_lines();
        lines.extend(
            troubles.iter().filter(|it| !self.troubles.contains(it)).map(|it| format!("trouble: {it}")),
        );
        self.troubles = troubles;
        lines
    }

    /// The end of the watched drain, if it has come.
    pub(super) fn end(&mut self, seen: &DrainView, now: GoTime) -> Option<WatchEnd> {
        match self.goal {
            Goal::Any => self.end_of_any(seen, now),
            Goal::Own(id) => end_of_own(seen, id, now),
            Goal::Machine(op) => self.end_of_machine(seen, op),
        }
    }

    fn end_of_machine(&mut self, seen: &DrainView, op: DeviceOp) -> Option<WatchEnd> {
        // The controller's shutdown leaves the power on; that one is not waited for.
        let ours = |it: &DeviceOpPending| op == DeviceOp::Reboot || !it.site.is_empty();
        let pending = seen.pending.values().find(|it| it.op == op && ours(it));
        let was = self.under_way;
        self.under_way |= pending.is_some();
        match pending {
            // nodeagent may hold it at the last moment.
            Some(it) if it.state == PendingState::Commanded && seen.last_look.is_none() => {
                let no_cluster = it.skip.is_empty() && seen.drain_status() == Some(DrainStatus::NotSupported);
                let skip = Skip { kind: it.skip_kind, text: it.skip.clone() };
                Some(goes(op, &if no_cluster { Skip::other(NO_CLUSTER) } else { skip }))
            }
            Some(_) => None,
            None => was.then(withdrawn),
        }
    }

    fn end_of_any(&mut self, seen: &DrainView, now: GoTime) -> Option<WatchEnd> {
        // Between two files of zedkube nothing ends.
        let settled = seen.settled();
        match seen.judge_drain(now).outcome {
            DrainOutcome::UnderWay | DrainOutcome::Blocked => {
                self.under_way = true;
                None
            }
            DrainOutcome::Idle if settled && self.under_way && seen.requests.is_empty() => Some(withdrawn()),
            DrainOutcome::Unknown | DrainOutcome::Idle => None,
            state @ (DrainOutcome::Complete
            | DrainOutcome::Skipped
            | DrainOutcome::Forced
            | DrainOutcome::Unproved
            | DrainOutcome::Failed) => {
                settled.then(|| WatchEnd { exit: Exit::of(state), words: outcome(seen, state) })
            }
        }
    }
}

/// The machine goes down: behind a drain, or for what reason without one.
fn goes(op: DeviceOp, skip: &Skip) -> WatchEnd {
    let now = match op {
        DeviceOp::Reboot => "the machine reboots now",
        DeviceOp::Shutdown => "the machine is switched off now",
    };
    if skip.text.is_empty() {
        return WatchEnd { exit: Exit::Done, words: format!("complete: {now}") };
    }
    let exit = if skip.kind == SkipKind::Forced { Exit::Forced } else { Exit::Skipped };
    WatchEnd { exit, words: format!("{}; {now}", skip.text) }
}

fn end_of_own(seen: &DrainView, id: RequestId, now: GoTime) -> Option<WatchEnd> {
    if seen.requests.get(OPERATOR).is_none_or(|it| it.requested_at != id.at) {
        return Some(withdrawn());
    }
    let state = seen.outcome_of(id, now);
    let ways = match state {
        DrainOutcome::Unknown
        | DrainOutcome::Idle
        | DrainOutcome::UnderWay
        | DrainOutcome::Blocked
        | DrainOutcome::Unproved => {
            return None;
        }
        DrainOutcome::Complete if foreign(seen) => "`zedbox undrain` leaves that cordon in place",
        DrainOutcome::Complete => "the node stays cordoned until `zedbox undrain`",
        DrainOutcome::Skipped | DrainOutcome::Forced => {
            "do not work on this node yet: fix the cause, then `zedbox undrain` and `zedbox drain --reason TEXT` again"
        }
        DrainOutcome::Failed => "`zedbox drain --reason TEXT` asks again, `zedbox undrain` gives up",
    };
    Some(WatchEnd { exit: Exit::of(state), words: format!("{}; {ways}", outcome(seen, state)) })
}

fn withdrawn() -> WatchEnd {
    WatchEnd { exit: Exit::Withdrawn, words: "the request was withdrawn".to_owned() }
}

/// How a drain ended, in words that claim no more than is known.
fn outcome(seen: &DrainView, state: DrainOutcome) -> String {
    let reason = seen.agreed().map(|it| it.reason.as_str()).unwrap_or_default();
    let or = |other: &str| if reason.is_empty() { other.to_owned() } else { reason.to_owned() };
    match state {
        DrainOutcome::Complete if foreign(seen) => {
            format!("complete: {}; the cordon is not ours: somebody else set it", or("drained"))
        }
        DrainOutcome::Complete => format!("complete: {}", or("drained")),
        DrainOutcome::Unproved => {
            "COMPLETE, but this zedkube does not report whether the node was drained".to_owned()
        }
        DrainOutcome::Failed => or("the drain failed; the log of zedkube says why"),
        DrainOutcome::Skipped => format!("{}{}", or("the drain was skipped"), cordon(seen)),
        DrainOutcome::Forced => format!("{}{}", or("a person forced the status"), cordon(seen)),
        DrainOutcome::Unknown | DrainOutcome::Idle | DrainOutcome::UnderWay | DrainOutcome::Blocked => {
            reason.to_owned()
        }
    }
}

fn foreign(seen: &DrainView) -> bool {
    seen.agreed().is_some_and(|it| it.cordon == CordonOwner::Foreign)
}

fn cordon(seen: &DrainView) -> &'static str {
    match seen.agreed().map(|it| it.cordon) {
        Some(CordonOwner::None) => "; the node is not cordoned",
        Some(CordonOwner::Ours) => "; the node is cordoned",
        Some(CordonOwner::Foreign) => "; the node is cordoned by somebody else",
        None => "",
    }
}

/// Everything but distances in time and blockers in one line: what is equal is not repeated.
fn line(seen: &DrainView, now: GoTime) -> String {
    let judged = seen.judge(now);
    let mut line = judged.headline.text;
    let mut add = |text: &str| {
        if !text.is_empty() {
            line = format!("{line}; {text}");
        }
    };
    add(&seen.drain_status().map(status_words).unwrap_or_default());
    if let Some(progress) = seen.agreed() {
        if progress.counts.total > 0 {
            add(&counts_words(progress.counts));
        }
        if !progress.tier.is_empty() {
            add(&format!("tier {}", progress.tier));
        }
        if !progress.volumes.is_empty() {
            add(&format!("still attached: {}", progress.volumes.join(", ")));
        }
        if progress.attempt > 0 {
            add(&format!("attempt {} of {}", progress.attempt, progress.max_attempts));
        }
        // What is over says it in its last words.
        if matches!(judged.outcome, DrainOutcome::UnderWay | DrainOutcome::Blocked) {
            add(reason(progress).unwrap_or_default());
        }
    }
    for pending in seen.waiting().filter(|_| seen.requests.is_empty()) {
        add(&format!("{} waits for {}", pending.op.word(), pending.waiting_for));
    }
    add(&seen.zedkube_away().unwrap_or_default());
    line
}
