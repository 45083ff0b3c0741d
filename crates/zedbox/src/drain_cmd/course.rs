//! What somebody who watches a drain reads: a line for each change, and how it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;

use step::Inserted as _;
use topics::{CordonOwner, DeviceOp, DeviceOpPending, DrainStatus, PendingState, RequestId};

use super::state::DrainState;
use super::view::{DrainView, OPERATOR};
use super::words::{beyond_counts, name, phase_words, purpose};
use crate::Exit;

/// What the last words begin with when the node was not drained.
pub(super) const NOT_DRAINED: &str = "NOT DRAINED";

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
    pub(super) fn news(&mut self, seen: &DrainView) -> Vec<String> {
        let mut lines = Vec::new();
        let line = line(seen);
        if self.line != line {
            lines.push(line.clone());
            self.line = line;
        }
        let now: BTreeMap<String, String> = seen
            .blockers()
            .iter()
            .map(|it| (it.pod.clone(), format!("[{}] {}", it.code, it.reason)))
            .into_map();
        for (pod, reason) in &now {
            if self.blocked.get(pod) != Some(reason) {
                let named =
                    if reason.contains(pod.as_str()) { String::new() } else { format!("pod {pod}: ") };
                lines.push(format!("blocked {named}{reason}"));
            }
        }
        for pod in self.blocked.keys().filter(|pod| !now.contains_key(*pod)) {
            lines.push(format!("no longer blocked: pod {pod}"));
        }
        self.blocked = now;
        for (path, reason) in
            seen.broken.iter().filter(|(path, reason)| self.broken.get(*path) != Some(reason))
        {
            lines.push(format!("{} cannot be used: {reason}", path.display()));
        }
        self.broken = seen.broken.clone();
        let troubles = super::trouble::lines(seen);
        lines.extend(
            troubles.iter().filter(|it| !self.troubles.contains(it)).map(|it| format!("trouble: {it}")),
        );
        self.troubles = troubles;
        lines
    }

    /// The end of the watched drain, if it has come.
    pub(super) fn end(&mut self, seen: &DrainView) -> Option<WatchEnd> {
        match self.goal {
            Goal::Any => self.end_of_any(seen),
            Goal::Own(id) => end_of_own(seen, id),
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
                Some(goes(op, if no_cluster { NO_CLUSTER } else { &it.skip }))
            }
            Some(_) => None,
            None => was.then(withdrawn),
        }
    }

    fn end_of_any(&mut self, seen: &DrainView) -> Option<WatchEnd> {
        // Between two files of zedkube nothing ends.
        let settled = seen.settled();
        match seen.drain_state() {
            DrainState::UnderWay | DrainState::Blocked => {
                self.under_way = true;
                None
            }
            state @ (DrainState::Complete
            | DrainState::Skipped
            | DrainState::Forced
            | DrainState::Unproved
            | DrainState::Failed)
                if settled =>
            {
                Some(WatchEnd { exit: state.exit(), words: outcome(seen, state) })
            }
            DrainState::Idle if settled && self.under_way && seen.requests.is_empty() => Some(withdrawn()),
            DrainState::Unknown
            | DrainState::Idle
            | DrainState::Complete
            | DrainState::Skipped
            | DrainState::Forced
            | DrainState::Unproved
            | DrainState::Failed => None,
        }
    }
}

/// The machine goes down: behind a drain, or for what reason without one.
fn goes(op: DeviceOp, skip: &str) -> WatchEnd {
    let now = match op {
        DeviceOp::Reboot => "the machine reboots now",
        DeviceOp::Shutdown => "the machine is switched off now",
    };
    let exit = match skip {
        "" => return WatchEnd { exit: Exit::Done, words: format!("complete: {now}") },
        it if it.starts_with("forced") => Exit::Forced,
        _ => Exit::Skipped,
    };
    WatchEnd { exit, words: format!("{NOT_DRAINED}: {skip}; {now}") }
}

fn end_of_own(seen: &DrainView, id: RequestId) -> Option<WatchEnd> {
    if seen.requests.get(OPERATOR).is_none_or(|it| it.requested_at != id.at) {
        return Some(withdrawn());
    }
    let state = seen.state_of(id);
    let ways = match state {
        DrainState::Unknown
        | DrainState::Idle
        | DrainState::UnderWay
        | DrainState::Blocked
        | DrainState::Unproved => return None,
        DrainState::Complete if foreign(seen) => "`zedbox drain done` leaves that cordon in place",
        DrainState::Complete => "the node stays cordoned until `zedbox drain done`",
        DrainState::Skipped | DrainState::Forced => {
            "do not work on this node yet: fix the cause, then `zedbox drain cancel` and `zedbox drain request` again"
        }
        DrainState::Failed => "`zedbox drain request` asks again, `zedbox drain cancel` gives up",
    };
    Some(WatchEnd { exit: state.exit(), words: format!("{}; {ways}", outcome(seen, state)) })
}

fn withdrawn() -> WatchEnd {
    WatchEnd { exit: Exit::Withdrawn, words: format!("{NOT_DRAINED}: the request was withdrawn") }
}

/// How a drain ended, in words that claim no more than is known.
fn outcome(seen: &DrainView, state: DrainState) -> String {
    let reason = seen.agreed().map(|it| it.reason.as_str()).unwrap_or_default();
    let or = |other: &str| if reason.is_empty() { other.to_owned() } else { reason.to_owned() };
    match state {
        DrainState::Complete if foreign(seen) => {
            format!("complete: {}; the cordon is not ours: somebody else set it", or("drained"))
        }
        DrainState::Complete => format!("complete: {}", or("drained")),
        DrainState::Unproved => {
            "COMPLETE, but this zedkube does not report whether the node was drained".to_owned()
        }
        DrainState::Failed => {
            format!("{NOT_DRAINED}: {}", or("the drain failed; the log of zedkube says why"))
        }
        DrainState::Skipped => format!("{NOT_DRAINED}: {}{}", or("the drain was skipped"), cordon(seen)),
        DrainState::Forced => format!("{NOT_DRAINED}: {}{}", or("a person forced the status"), cordon(seen)),
        DrainState::Unknown | DrainState::Idle | DrainState::UnderWay | DrainState::Blocked => {
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

/// Everything but times and blockers in one line: what is equal is not repeated.
fn line(seen: &DrainView) -> String {
    let Some(status) = seen.drain_status() else {
        return "UNKNOWN: zedkube has published nothing yet".to_owned();
    };
    let mut line = format!("{} ({}): {}", name(status), status.number(), phase_words(seen));
    if let Some(progress) = seen.agreed() {
        if !progress.requested_at.is_zero() {
            line = format!("{line}; {}", purpose(progress.requested_by, &progress.context));
        }
        let counts = progress.counts;
        if counts.total > 0 {
            let (gone, total, going, waiting, blocked) =
                (counts.gone, counts.total, counts.going, counts.waiting, counts.blocked);
            line = format!(
                "{line}; {gone} of {total} gone, {going} terminating, {waiting} waiting, {blocked} blocked"
            );
        }
        if !progress.tier.is_empty() {
            line = format!("{line}; tier {}", progress.tier);
        }
        if !progress.volumes.is_empty() {
            line = format!("{line}; still attached: {}", progress.volumes.join(", "));
        }
        if progress.attempt > 0 {
            line = format!("{line}; attempt {} of {}", progress.attempt, progress.max_attempts);
        }
        // What is over says it in its last words.
        let reason = beyond_counts(progress);
        if matches!(seen.state(), DrainState::UnderWay | DrainState::Blocked) && !reason.is_empty() {
            line = format!("{line}; {reason}");
        }
    }
    for pending in seen.pending().filter(|_| seen.requests.is_empty()) {
        line = format!("{line}; {} waits for {}", pending.op.word(), pending.waiting_for);
    }
    match seen.zedkube_away() {
        Some(why) => format!("{line}; {why}"),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{Answer, Blocker, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Requester};

    fn view_with(status: DrainStatus) -> DrainView {
        let requested_by = Requester::DeviceOp;
        DrainView {
            status: Some(NodeDrainStatus { status, requested_by }),
            progress: Some(NodeDrainProgress {
                status,
                reason: "why".to_owned(),
                ..NodeDrainProgress::default()
            }),
            ..DrainView::default()
        }
    }

    fn exits(goal: Goal, way: &[DrainView]) -> Vec<Option<Exit>> {
        let mut course = WatchCourse::new(goal);
        way.iter().map(|seen| course.end(seen).map(|end| end.exit)).collect()
    }

    #[test]
    fn idle_is_an_end_only_after_something_was_under_way() {
        let way =
            [DrainStatus::NotRequested, DrainStatus::Cordoned, DrainStatus::NotRequested].map(view_with);
        assert_eq!(exits(Goal::Any, &way), [None, None, Some(Exit::Withdrawn)]);
        let way = [DrainStatus::Unknown, DrainStatus::NotSupported, DrainStatus::NotRequested].map(view_with);
        assert_eq!(exits(Goal::Any, &way), [None; 3]);
    }

    #[test]
    fn a_restart_of_zedkube_ends_nothing() {
        let gone = DrainView::default();
        let way = [view_with(DrainStatus::Cordoned), gone, view_with(DrainStatus::Cordoned)];
        assert_eq!(exits(Goal::Any, &way), [None; 3]);
        // It says that it is in no cluster before it has heard that it is; the request still stands.
        let mut early = view_with(DrainStatus::NotSupported);
        early.requests.insert("zedagent", NodeDrainRequest::default());
        assert_eq!(exits(Goal::Any, &[view_with(DrainStatus::Cordoned), early]), [None; 2]);
    }

    #[test]
    fn complete_and_failed_end_it_once_both_files_say_so() {
        for (status, exit) in [
            (DrainStatus::Complete, Exit::Done),
            (DrainStatus::FailedDrain, Exit::DrainFailed),
            (DrainStatus::FailedCordon, Exit::DrainFailed),
        ] {
            let mut between = view_with(status);
            between.status = view_with(DrainStatus::Cordoned).status;
            let mut late = view_with(DrainStatus::Cordoned);
            late.status = view_with(status).status;
            assert_eq!(exits(Goal::Any, &[between, late, view_with(status)]), [None, None, Some(exit)]);
        }
    }

    #[test]
    fn a_persons_own_request_ends_by_its_own_answer_or_when_it_is_gone() {
        let mine = NodeDrainRequest {
            requested_at: "2026-03-14T09:30:00Z".parse().unwrap(),
            requested_by: Requester::Operator,
            context: "operator field: disk".to_owned(),
        };
        let told = |status: DrainStatus, by: Requester, answer: DrainStatus| {
            let mut seen = view_with(status);
            seen.requests.insert(OPERATOR, mine.clone());
            let answer = Answer {
                requested_by: by,
                requested_at: mine.requested_at,
                status: answer,
                ..Answer::default()
            };
            seen.progress.as_mut().unwrap().answers.push(answer);
            seen
        };
        let way = [
            told(DrainStatus::Complete, Requester::DeviceOp, DrainStatus::Complete),
            told(DrainStatus::FailedDrain, Requester::Update, DrainStatus::FailedDrain),
            told(DrainStatus::Cordoned, Requester::Operator, DrainStatus::Cordoned),
            told(DrainStatus::Complete, Requester::Operator, DrainStatus::Complete),
        ];
        assert_eq!(exits(Goal::Own(mine.id()), &way), [None, None, None, Some(Exit::Done)]);
        assert_eq!(
            exits(Goal::Own(mine.id()), &[view_with(DrainStatus::NotRequested)]),
            [Some(Exit::Withdrawn)]
        );
    }

    #[test]
    fn what_has_not_changed_is_not_told_again_and_blockers_come_and_go_by_name() {
        let mut course = WatchCourse::new(Goal::Any);
        let mut seen = view_with(DrainStatus::Cordoned);
        assert_eq!(course.news(&seen).len(), 1);
        assert_eq!(course.news(&seen).len(), 0);
        let progress = seen.progress.as_mut().unwrap();
        progress.blockers = vec![Blocker {
            pod: "shop/web".to_owned(),
            code: "budget".to_owned(),
            reason: "budget shop/web allows 0 of 3".to_owned(),
            ..Blocker::default()
        }];
        assert_eq!(course.news(&seen), ["blocked [budget] budget shop/web allows 0 of 3"]);
        assert_eq!(course.news(&seen).len(), 0);
        seen.progress.as_mut().unwrap().blockers[0].pod = "shop/db".to_owned();
        let news = course.news(&seen);
        assert_eq!(
            news,
            [
                "blocked pod shop/db: [budget] budget shop/web allows 0 of 3",
                "no longer blocked: pod shop/web"
            ]
        );
    }
}
