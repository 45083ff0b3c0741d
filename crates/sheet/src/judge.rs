//! The judgement: whether it is safe to work on this node, or what is going on, in one sentence, and how a command ends
//! that was asked.
//!
//! It never claims more than is so (K7): safe is only a node that is proved empty under a cordon, for a person's request
//! that exists at this moment, with nothing else asked for. Sentences hold no distance in time, so that one stays as it is
//! until something happens. What COMPLETE means: `complete`. Pure: no clock, no I/O, no task.

mod complete;
pub(crate) mod words;

use topics::{
    CordonOwner, DeviceOpPending, DrainPhase, DrainStatus, GoTime, Headline, NodeDrainProgress, NodeState,
    PauseScope, PendingState, RequestId, Requester,
};

use crate::outcome::DrainOutcome;
use crate::text::{clock_time, number, of_today, spoken};
use crate::view::DrainView;
use complete::complete;
use words::{JudgedState, blocked, by, purpose, turn, unknown, waits};

/// What is so, in one sentence, and how a command ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub headline: Headline,
    pub outcome: DrainOutcome,
}

impl DrainView {
    /// The judgement at `now`.
    pub fn judge(&self, now: GoTime) -> Judgement {
        let judged = |(state, outcome, rest): JudgedState| Judgement {
            headline: Headline::new(state, &of_today(&spoken(&rest), now)),
            outcome,
        };
        if let Some((agent, since)) = self.hung(now) {
            let rest = format!("{agent} hangs, its last turn was at {}", clock_time(since, now));
            return judged((NodeState::Blocked, DrainOutcome::Blocked, rest));
        }
        let inner = drain(self, now);
        let open = matches!(
            inner.1,
            DrainOutcome::Unknown | DrainOutcome::Idle | DrainOutcome::UnderWay | DrainOutcome::Complete
        );
        judged(match (self.holding().filter(|_| open), &self.last_look) {
            (Some(trouble), _) => {
                let what = trouble.holds.first().map_or("an operation", String::as_str);
                blocked(format!("{what} waits until {} can be used: {}", trouble.path, trouble.error))
            }
            (None, Some(held)) if open => {
                blocked(format!("{} waits for the last check before it goes down", held.op))
            }
            (None, _) => inner,
        })
    }

    /// The same for the drain alone, which ends whatever else waits for a file or for nodeagent.
    pub fn judge_drain(&self, now: GoTime) -> Judgement {
        Self { troubles: std::collections::BTreeMap::new(), last_look: None, ..self.clone() }.judge(now)
    }

    /// How far the drain for one request is, by the answers to that request alone.
    pub fn outcome_of(&self, id: RequestId, now: GoTime) -> DrainOutcome {
        let blocked = || self.judge(now).outcome == DrainOutcome::Blocked;
        self.answered(id)
            .unwrap_or_else(|| if blocked() { DrainOutcome::Blocked } else { DrainOutcome::UnderWay })
    }
}

/// Of a state in which nothing is drained: whether something waits.
fn resting(view: &DrainView, state: NodeState, rest: String) -> JudgedState {
    (state, if view.is_wanted() { DrainOutcome::UnderWay } else { DrainOutcome::Idle }, rest)
}

fn drain(view: &DrainView, now: GoTime) -> JudgedState {
    if view.earlier_boot {
        return unknown("what zedkube has published is of an earlier boot");
    }
    if view.live.is_silent(now) {
        let at = clock_time(view.live.last_turn, now);
        return unknown(format!("zedkube was last heard of at {at}; below is what it wrote then"));
    }
    let Some(status) = view.drain_status() else {
        return unknown(
            view.zedkube_away().unwrap_or_else(|| "zedkube has published nothing yet".to_owned()),
        );
    };
    let Some(progress) = view.agreed() else { return by_status(view, status, now) };
    let what = purpose(progress.requested_by, &progress.context);
    let under_way = |state, rest: String| (state, DrainOutcome::UnderWay, rest);
    match progress.phase {
        DrainPhase::Idle => idle(view, status, now),
        DrainPhase::Undecided => {
            let waits = view.waiting().next().map_or_else(|| "operations wait".to_owned(), waits);
            let why = format!(
                "zedagent has read no device config, so whether this node is in a cluster is not known: {waits}"
            );
            let (state, outcome, why) = unknown(why);
            (state, if view.is_wanted() { DrainOutcome::UnderWay } else { outcome }, why)
        }
        DrainPhase::OutsideWindow => {
            let opens = format!("the next one opens at {}", clock_time(progress.deadline, now));
            let opens = if progress.deadline.is_zero() { "the windows stay closed" } else { &opens };
            under_way(NodeState::WaitingForWindow, format!("{what} waits, {opens}"))
        }
        DrainPhase::Paused => under_way(NodeState::Paused, format!("{what} waits; {}", by(&progress.pause))),
        DrainPhase::WaitingForTurn => {
            let (_, outcome, _) = at_work(progress, &what, now);
            (NodeState::WaitingForTurn, outcome, turn(progress))
        }
        DrainPhase::Checking
        | DrainPhase::RunningHooks
        | DrainPhase::Cordoning
        | DrainPhase::MovingMachines
        | DrainPhase::Draining
        | DrainPhase::Detaching
        | DrainPhase::WaitingForStorage
        | DrainPhase::Proving
        | DrainPhase::Retrying => at_work(progress, &what, now),
        DrainPhase::Complete | DrainPhase::Skipped => complete(view, progress, &what),
        DrainPhase::Forced => {
            (NodeState::Unproved, DrainOutcome::Forced, "a person has forced the status".to_owned())
        }
        DrainPhase::FailedCordon => {
            failed(view, progress.requested_by, &format!("{what} waits, the node cannot be cordoned"))
        }
        DrainPhase::FailedDrain => {
            let after = after_failures(view, progress.requested_by);
            failed(view, progress.requested_by, &format!("{what} waits, {after}"))
        }
        DrainPhase::Withdrawing => {
            resting(view, NodeState::Withdrawn, "our cordon is being removed".to_owned())
        }
        DrainPhase::AfterBoot if progress.gate.open => {
            resting(view, NodeState::AfterBoot, "healthy, our cordon is being removed".to_owned())
        }
        DrainPhase::AfterBoot => {
            let seen = if progress.gate.words.is_empty() { "the first look" } else { &progress.gate.words };
            resting(view, NodeState::AfterBoot, format!("stays cordoned until it is healthy: {seen}"))
        }
        DrainPhase::Leaving => resting(view, NodeState::Leaving, "drains wait until it has left".to_owned()),
        DrainPhase::WholeSite => {
            resting(view, NodeState::WholeSite, progress.reason.replace("whole-site ", ""))
        }
    }
}

/// Of a zedkube that says no more than its status, or is between its two files.
fn by_status(view: &DrainView, status: DrainStatus, now: GoTime) -> JudgedState {
    let served = view.served();
    let what = served.map_or_else(|| "the operation".to_owned(), |it| purpose(it.requested_by, &it.context));
    let (state, outcome, rest) = match status {
        DrainStatus::Unknown | DrainStatus::Stranger(_) => {
            return unknown("the status says nothing of this node");
        }
        DrainStatus::NotSupported | DrainStatus::NotRequested => return idle(view, status, now),
        DrainStatus::Complete => {
            let rest = "this zedkube does not report whether the node was drained".to_owned();
            return (NodeState::Unproved, DrainOutcome::Unproved, rest);
        }
        DrainStatus::Requested | DrainStatus::Starting => {
            (NodeState::Requested, DrainOutcome::UnderWay, "the node is being checked first")
        }
        DrainStatus::Cordoned => (NodeState::UnderWay, DrainOutcome::UnderWay, "pods are being evicted"),
        DrainStatus::DrainRetrying => {
            (NodeState::UnderWay, DrainOutcome::UnderWay, "an attempt failed, the next one follows")
        }
        DrainStatus::FailedCordon => (NodeState::Failed, DrainOutcome::Failed, "the node cannot be cordoned"),
        DrainStatus::FailedDrain => (NodeState::Failed, DrainOutcome::Failed, "the drain failed"),
    };
    (state, outcome, format!("{what} waits, {rest}"))
}

/// Nothing is being drained.
fn idle(view: &DrainView, status: DrainStatus, now: GoTime) -> JudgedState {
    if let Some(pause) = view.pause() {
        let rest = match (view.pending.values().next(), pause.scope) {
            (Some(it), _) => waits(it),
            (None, PauseScope::Node) => "no operation starts".to_owned(),
            (None, PauseScope::Controller) => "what the controller orders waits".to_owned(),
        };
        return resting(view, NodeState::Paused, format!("{rest}; {}", by(pause)));
    }
    if let Some(pending) = view.pending.values().next() {
        if pending.state == PendingState::Commanded {
            let rest = format!("{} is commanded, the machine goes down", pending.words());
            return resting(view, NodeState::Requested, rest);
        }
        if view.requests.is_empty() && view.failed(Requester::DeviceOp).next().is_some() {
            let after = after_failures(view, Requester::DeviceOp);
            return failed(view, Requester::DeviceOp, &format!("{}, {after}", waits(pending)));
        }
        let rest = format!("{} is pending, its drain has not begun", pending.words());
        return (NodeState::Requested, DrainOutcome::UnderWay, rest);
    }
    if !view.requests.is_empty() {
        let rest = "not yet accepted by zedkube".to_owned();
        return (NodeState::Requested, DrainOutcome::UnderWay, rest);
    }
    if let Some(update) = view.updates.values().next() {
        let why = if update.error.is_empty() { &update.error_retry_condition } else { &update.error };
        let rest = format!("OS update {} waits: {why}", update.base_os_version);
        return (NodeState::Requested, DrainOutcome::UnderWay, rest);
    }
    let silent = view.agreed().map(|it| it.api_silent_since).filter(|it| !it.is_zero());
    let foreign = view.agreed().is_some_and(|it| it.cordon == CordonOwner::Foreign);
    let ill = view.ill().map(|(what, why, _)| format!("{what}: {why}"));
    let ill = view.zedkube_away().or(ill).map(|it| format!("; {it}"));
    let (state, rest) = match silent {
        _ if status == DrainStatus::NotSupported => {
            (NodeState::NoCluster, "there is nothing to drain".to_owned())
        }
        _ if status != DrainStatus::NotRequested => {
            return unknown("whether this node is in a cluster is not known yet");
        }
        Some(since) => {
            let since = clock_time(since, now);
            (NodeState::Unknown, format!("the Kubernetes API has not answered since {since}"))
        }
        None if foreign => (NodeState::Cordoned, "by somebody else, its pods may still run here".to_owned()),
        None => (NodeState::InService, format!("no drain is requested{}", ill.unwrap_or_default())),
    };
    resting(view, state, rest)
}

/// How many drains have failed for `by`, and what the last one could not move.
fn after_failures(view: &DrainView, by: Requester) -> String {
    let count = view.failed(by).count().max(1);
    let last = view.failed(by).next();
    let of_now = view.agreed().and_then(|it| it.blockers.first());
    let failed = format!("{} failed", number(count, "drain"));
    let failed = if count == 1 { "the drain failed".to_owned() } else { failed };
    match of_now.or_else(|| last.and_then(|it| it.blockers.first())) {
        Some(it) => format!("{failed}: {}", it.sentence()),
        None => failed,
    }
}

/// A drain that failed; whoever wants it asks again, and says when.
fn failed(view: &DrainView, asked: Requester, what: &str) -> JudgedState {
    // That it waits for this very drain is no news.
    let status = view.drain_status().unwrap_or_default();
    let of_drain = format!("drain of this node: {}", status.text());
    let waits = |it: &&DeviceOpPending| !it.waiting_for.is_empty() && it.waiting_for != of_drain;
    let op = || view.waiting().find(waits).map(|it| format!("it waits for {}", it.waiting_for));
    let image = || view.updates.values().next().map(|it| it.error_retry_condition.clone());
    let next = if asked == Requester::DeviceOp { op() } else { None };
    let next = if asked == Requester::Update { image() } else { next };
    let next = next.filter(|it| !it.is_empty()).map_or_else(String::new, |it| format!("; {it}"));
    (NodeState::Failed, DrainOutcome::Failed, format!("{what}{next}"))
}

/// Since when the API does not answer, and what happens then.
fn api_silent(progress: &NodeDrainProgress, what: &str, begun: bool, now: GoTime) -> String {
    let since = clock_time(progress.api_silent_since, now);
    let gives_up = progress.limits.iter().any(|it| it.until == progress.deadline);
    let then = if progress.phase != DrainPhase::Checking || progress.deadline.is_zero() || gives_up {
        String::new()
    } else {
        format!("; at {} {what} goes ahead WITHOUT a drain", clock_time(progress.deadline, now))
    };
    let no_answer = if begun { "the Kubernetes API has not answered" } else { "no answer" };
    format!("{no_answer} since {since}{then}")
}

fn at_work(progress: &NodeDrainProgress, what: &str, now: GoTime) -> JudgedState {
    let counts = progress.counts;
    let cannot = |it: String| blocked(format!("{what} waits, {it} cannot leave"));
    match (progress.blockers.first(), counts.blocked) {
        // Nothing of the pods keeps them.
        (Some(it), _) if it.code == "kubelet-silent" => {
            return blocked(format!("{what} waits, the kubelet of this node is silent"));
        }
        (Some(it), 0) => return cannot(it.subject()),
        (None, 0) => {}
        (_, held) => return cannot(format!("{held} of {}", number(counts.total, "pod"))),
    }
    let words = [
        (DrainPhase::RunningHooks, "hooks before the drain run"),
        (DrainPhase::Cordoning, "the node is being cordoned"),
        (DrainPhase::MovingMachines, "virtual machines leave first"),
        (DrainPhase::Detaching, "pods are gone, their volumes are being detached"),
        (DrainPhase::WaitingForStorage, "pods are gone, a volume needs another healthy copy"),
        (DrainPhase::Proving, "pods are gone, which is being verified"),
        (DrainPhase::Retrying, "an attempt failed, the next one follows"),
    ];
    let begun = !matches!(progress.phase, DrainPhase::Checking | DrainPhase::RunningHooks);
    let silent = !progress.api_silent_since.is_zero();
    let rest = match words.iter().find(|(phase, _)| *phase == progress.phase) {
        _ if silent => api_silent(progress, what, begun, now),
        _ if progress.phase == DrainPhase::Draining => {
            format!("{} of {} gone", counts.gone, number(counts.total, "pod"))
        }
        found => found.map_or("the node is being checked first", |(_, words)| words).to_owned(),
    };
    let state = match (begun, silent) {
        (true, _) => NodeState::UnderWay,
        (false, true) => NodeState::WaitingForApi,
        (false, false) => NodeState::Requested,
    };
    (state, DrainOutcome::UnderWay, format!("{what} waits, {rest}"))
}

#[cfg(test)]
mod tests;
