//! What somebody who watches a drain is told: a line for each change, and how it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;

use topics::RequestId;

use super::seen::{OPERATOR, Seen};
use super::stand::Stand;
use super::status::{name, phase_words, purpose};
use crate::Exit;

/// Which drain is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// That of the node, whoever asked.
    Any,
    /// That of one request of a person.
    Own(RequestId),
}

/// How a watched drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) words: String,
}

/// What was told so far.
#[derive(Debug)]
pub(super) struct Course {
    goal: Goal,
    under_way: bool,
    line: String,
    /// The reason of each blocker that was told, by pod.
    blocked: BTreeMap<String, String>,
    /// Broken files that were told, and why.
    broken: BTreeMap<PathBuf, String>,
}

impl Course {
    pub(super) fn new(goal: Goal) -> Self {
        Self {
            goal,
            under_way: false,
            line: String::new(),
            blocked: BTreeMap::new(),
            broken: BTreeMap::new(),
        }
    }

    /// Lines for what is new since the last call, without times.
    pub(super) fn news(&mut self, seen: &Seen) -> Vec<String> {
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
            .collect();
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
        lines
    }

    /// The end of the watched drain, if it has come.
    pub(super) fn end(&mut self, seen: &Seen) -> Option<End> {
        match self.goal {
            Goal::Any => self.end_of_any(seen),
            Goal::Own(id) => end_of_own(seen, id),
        }
    }

    fn end_of_any(&mut self, seen: &Seen) -> Option<End> {
        // Between two files of zedkube nothing ends.
        let settled = seen.settled();
        match seen.stand() {
            Stand::UnderWay | Stand::Blocked => {
                self.under_way = true;
                None
            }
            Stand::Complete if settled => Some(End { exit: Exit::Done, words: complete(seen) }),
            Stand::Failed if settled => Some(End { exit: Exit::DrainFailed, words: failed(seen) }),
            Stand::Idle if settled && self.under_way && seen.requests.is_empty() => Some(taken_back()),
            Stand::Unknown | Stand::Idle | Stand::Complete | Stand::Failed => None,
        }
    }
}

fn end_of_own(seen: &Seen, id: RequestId) -> Option<End> {
    if seen.requests.get(OPERATOR).is_none_or(|it| it.requested_at != id.at) {
        return Some(taken_back());
    }
    match seen.stand_of(id) {
        Stand::Complete => {
            let words = format!("{}; the node stays cordoned until `zedbox drain cancel`", complete(seen));
            Some(End { exit: Exit::Done, words })
        }
        Stand::Failed => {
            let ways = "`zedbox drain request` asks again, `zedbox drain cancel` gives up";
            Some(End { exit: Exit::DrainFailed, words: format!("{}; {ways}", failed(seen)) })
        }
        Stand::Unknown | Stand::Idle | Stand::UnderWay | Stand::Blocked => None,
    }
}

fn taken_back() -> End {
    End { exit: Exit::Done, words: "taken back: nothing is asked for any more".to_owned() }
}

fn complete(seen: &Seen) -> String {
    match seen.agreed() {
        Some(progress) if !progress.reason.is_empty() => format!("complete: {}", progress.reason),
        Some(_) | None => "complete".to_owned(),
    }
}

fn failed(seen: &Seen) -> String {
    match seen.agreed() {
        Some(progress) => format!("failed: {}", progress.reason),
        None => "failed; the log of zedkube says why".to_owned(),
    }
}

/// Everything but times and blockers in one line: what is equal is not told again.
fn line(seen: &Seen) -> String {
    let Some(status) = seen.drain_status() else {
        return "nothing is known: zedkube has published nothing yet".to_owned();
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
                "{line}; {gone} of {total} gone, {going} going, {waiting} waiting, {blocked} blocked"
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
    }
    if seen.live.running { line } else { format!("{line}; zedkube does not run") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{
        Answer, Blocker, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Requester,
    };

    fn seen(status: DrainStatus) -> Seen {
        let requested_by = Requester::DeviceOp;
        Seen {
            status: Some(NodeDrainStatus { status, requested_by }),
            progress: Some(NodeDrainProgress {
                status,
                reason: "why".to_owned(),
                ..NodeDrainProgress::default()
            }),
            ..Seen::default()
        }
    }

    fn exits(goal: Goal, way: &[Seen]) -> Vec<Option<Exit>> {
        let mut course = Course::new(goal);
        way.iter().map(|seen| course.end(seen).map(|end| end.exit)).collect()
    }

    #[test]
    fn idle_is_an_end_only_after_something_was_under_way() {
        let way = [DrainStatus::NotRequested, DrainStatus::Cordoned, DrainStatus::NotRequested].map(seen);
        assert_eq!(exits(Goal::Any, &way), [None, None, Some(Exit::Done)]);
        let way = [DrainStatus::Unknown, DrainStatus::NotSupported, DrainStatus::NotRequested].map(seen);
        assert_eq!(exits(Goal::Any, &way), [None; 3]);
    }

    #[test]
    fn a_restart_of_zedkube_ends_nothing() {
        let gone = Seen::default();
        let way = [seen(DrainStatus::Cordoned), gone, seen(DrainStatus::Cordoned)];
        assert_eq!(exits(Goal::Any, &way), [None; 3]);
        // It says that it is in no cluster before it has heard that it is; the request still stands.
        let mut early = seen(DrainStatus::NotSupported);
        early.requests.insert("zedagent", NodeDrainRequest::default());
        assert_eq!(exits(Goal::Any, &[seen(DrainStatus::Cordoned), early]), [None; 2]);
    }

    #[test]
    fn complete_and_failed_end_it_once_both_files_say_so() {
        for (status, exit) in [
            (DrainStatus::Complete, Exit::Done),
            (DrainStatus::FailedDrain, Exit::DrainFailed),
            (DrainStatus::FailedCordon, Exit::DrainFailed),
        ] {
            let mut between = seen(status);
            between.status = seen(DrainStatus::Cordoned).status;
            let mut late = seen(DrainStatus::Cordoned);
            late.status = seen(status).status;
            assert_eq!(exits(Goal::Any, &[between, late, seen(status)]), [None, None, Some(exit)]);
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
            let mut seen = seen(status);
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
        assert_eq!(exits(Goal::Own(mine.id()), &[seen(DrainStatus::NotRequested)]), [Some(Exit::Done)]);
    }

    #[test]
    fn what_has_not_changed_is_not_told_again_and_blockers_come_and_go_by_name() {
        let mut course = Course::new(Goal::Any);
        let mut seen = seen(DrainStatus::Cordoned);
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
