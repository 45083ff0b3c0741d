//! Where the drain stands, in one word, and how a program that asked for it ends.

use requester::RequestAnswer;
use topics::{
    Answer, Blocker, DeviceOpPending, DrainPhase, DrainStatus, NodeDrainProgress, NodeDrainRequest,
    PendingState, RequestId, Requester,
};

use super::view::{DrainView, REQUESTERS};
use crate::Exit;

/// Where a drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainState {
    /// Nothing can be told.
    Unknown,
    /// No drain requested, or there is nothing to drain.
    Idle,
    /// Requested, at work, or an operation is pending that will request a drain.
    UnderWay,
    /// At work, and something does not leave.
    Blocked,
    /// Drained: proved empty under a cordon.
    Complete,
    /// COMPLETE without a drain, for a reason.
    Skipped,
    /// A person forced the status.
    Forced,
    /// COMPLETE, and nothing tells whether the node was drained: a zedkube of the reference.
    Unproved,
    Failed,
}

impl DrainState {
    /// How a program ends that was asked where the drain stands.
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Idle | Self::Complete => Exit::Done,
            Self::UnderWay => Exit::UnderWay,
            Self::Blocked => Exit::Blocked,
            Self::Failed => Exit::DrainFailed,
            Self::Skipped => Exit::Skipped,
            Self::Forced => Exit::Forced,
            Self::Unknown | Self::Unproved => Exit::Unknown,
        }
    }

    /// How a request stands that has this answer.
    fn answered(answer: &Answer) -> Option<Self> {
        match RequestAnswer::of(answer) {
            RequestAnswer::Complete { forced: true, .. } => Some(Self::Forced),
            RequestAnswer::Complete { skip, .. } if !skip.is_empty() => Some(Self::Skipped),
            RequestAnswer::Complete { .. } => Some(Self::Complete),
            RequestAnswer::Failed => Some(Self::Failed),
            RequestAnswer::NotYet => None,
        }
    }
}

impl DrainView {
    /// How far the drain is: what operations go by, or else what zedkube has told beside it.
    pub(super) fn drain_status(&self) -> Option<DrainStatus> {
        self.status.map(|it| it.status).or_else(|| self.progress.as_ref().map(|it| it.status))
    }

    /// The progress, as long as it is about what the status says: zedkube writes one after the other.
    pub(super) fn agreed(&self) -> Option<&NodeDrainProgress> {
        self.progress.as_ref().filter(|it| self.status.is_none_or(|status| status.status == it.status))
    }

    /// Whether status and progress tell the same. Between the two files of one change they do not.
    pub(super) fn settled(&self) -> bool {
        self.progress.is_none() || self.agreed().is_some()
    }

    /// Nothing is drained before an operation, as the device config names no cluster; `member` is what zedagent says.
    pub(super) fn is_outside(&self, member: Option<bool>) -> bool {
        let unsupported = self.drain_status().is_none_or(|it| it == DrainStatus::NotSupported);
        member == Some(false) && unsupported
    }

    /// COMPLETE for a person's request that was withdrawn: zedkube has yet to hear of it.
    pub(super) fn is_withdrawn(&self) -> bool {
        // What cannot be read may be there.
        let all_read = self.denied.is_empty() && self.broken.is_empty();
        let own =
            |it: &NodeDrainProgress| it.requested_by == Requester::Operator && it.phase != DrainPhase::Forced;
        let complete = self.drain_status() == Some(DrainStatus::Complete);
        complete && all_read && self.requests.is_empty() && self.agreed().is_some_and(own)
    }

    /// Pods that do not leave.
    pub(super) fn blockers(&self) -> &[Blocker] {
        self.agreed().map(|it| it.blockers.as_slice()).unwrap_or_default()
    }

    /// Where the drain of this node stands, and what is wanted of it.
    pub(super) fn state(&self) -> DrainState {
        let state = self.drain_state();
        let open = matches!(
            state,
            DrainState::Unknown | DrainState::Idle | DrainState::UnderWay | DrainState::Complete
        );
        // What waits until a file can be written, or for the last look, is in none of the others.
        if open && (self.is_held() || self.last_look.is_some()) { DrainState::Blocked } else { state }
    }

    /// The same for the drain alone, which ends whatever else waits for a file.
    pub(super) fn drain_state(&self) -> DrainState {
        let Some(status) = self.drain_status() else { return DrainState::Unknown };
        let forced = self.agreed().is_some_and(|it| it.phase == DrainPhase::Forced);
        match status {
            DrainStatus::Unknown | DrainStatus::Stranger(_) => DrainState::Unknown,
            DrainStatus::NotSupported | DrainStatus::FailedCordon | DrainStatus::FailedDrain if forced => {
                DrainState::Forced
            }
            // Requested, and not yet accepted.
            DrainStatus::NotRequested if !self.requests.is_empty() => DrainState::UnderWay,
            DrainStatus::NotSupported | DrainStatus::NotRequested if self.waits() => DrainState::UnderWay,
            DrainStatus::NotSupported | DrainStatus::NotRequested => DrainState::Idle,
            DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::DrainRetrying => {
                let held = |it: &NodeDrainProgress| !it.blockers.is_empty() || it.counts.blocked > 0;
                if self.agreed().is_some_and(held) { DrainState::Blocked } else { DrainState::UnderWay }
            }
            DrainStatus::FailedCordon | DrainStatus::FailedDrain => DrainState::Failed,
            DrainStatus::Complete if self.is_withdrawn() => DrainState::UnderWay,
            DrainStatus::Complete => self.complete(),
        }
    }

    /// What kind of COMPLETE it is: as the request at hand was answered, or else as the answer that claims least.
    fn complete(&self) -> DrainState {
        let Some(progress) = self.agreed() else { return DrainState::Unproved };
        let at_hand = |it: &&Answer| {
            (it.requested_by, it.requested_at) == (progress.requested_by, progress.requested_at)
        };
        let mut answers: Vec<&Answer> = progress.answers.iter().filter(at_hand).collect();
        if answers.is_empty() {
            answers = progress.answers.iter().collect();
        }
        let states: Vec<DrainState> = answers.into_iter().filter_map(DrainState::answered).collect();
        if progress.phase == DrainPhase::Forced || states.contains(&DrainState::Forced) {
            DrainState::Forced
        } else if !progress.skip.is_empty() || states.contains(&DrainState::Skipped) {
            DrainState::Skipped
        } else {
            DrainState::Complete
        }
    }

    /// Reboots and shutdowns that wait for something, or are commanded.
    pub(super) fn operations(&self) -> impl Iterator<Item = &DeviceOpPending> {
        self.pending.values()
    }

    /// Those that wait for something.
    pub(super) fn pending(&self) -> impl Iterator<Item = &DeviceOpPending> {
        self.operations().filter(|it| it.state == PendingState::Pending)
    }

    /// Whether an operation waits that nobody has requested a drain for yet, or does so again later.
    fn waits(&self) -> bool {
        self.pending().next().is_some() || !self.updates.is_empty()
    }

    /// Where the drain for one request stands, by the answers to that request alone: another requester's COMPLETE
    /// is none of its business.
    pub(super) fn state_of(&self, id: RequestId) -> DrainState {
        let answer = self.progress.as_ref().and_then(|it| it.answer(id));
        answer.and_then(DrainState::answered).unwrap_or(match self.state() {
            DrainState::Blocked => DrainState::Blocked,
            DrainState::Unknown
            | DrainState::Idle
            | DrainState::UnderWay
            | DrainState::Complete
            | DrainState::Skipped
            | DrainState::Forced
            | DrainState::Unproved
            | DrainState::Failed => DrainState::UnderWay,
        })
    }

    /// The request that is being served, or the first that waits for it.
    pub(super) fn served(&self) -> Option<&NodeDrainRequest> {
        let requests = || REQUESTERS.iter().filter_map(|agent| self.requests.get(agent));
        let asked = self.agreed().map(|it| it.requested_at);
        requests().find(|it| Some(it.requested_at) == asked).or_else(|| requests().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{NodeDrainStatus, Requester};

    fn view_with(status: u8) -> DrainView {
        let status = DrainStatus::from(status);
        let requested_by = Requester::DeviceOp;
        DrainView { status: Some(NodeDrainStatus { status, requested_by }), ..DrainView::default() }
    }

    #[test]
    fn every_status_has_its_exit_code() {
        let table = [
            (0, Exit::Unknown),
            (1, Exit::Done),
            (2, Exit::Done),
            (3, Exit::UnderWay),
            (4, Exit::UnderWay),
            (5, Exit::UnderWay),
            (6, Exit::DrainFailed),
            (7, Exit::UnderWay),
            (8, Exit::DrainFailed),
            // A zedkube of the reference does not say how it came to this.
            (9, Exit::Unknown),
            (10, Exit::Unknown),
            (255, Exit::Unknown),
        ];
        for (status, exit) in table {
            assert_eq!(view_with(status).state().exit(), exit, "{status}");
        }
        assert_eq!(DrainView::default().state().exit(), Exit::Unknown);
    }

    #[test]
    fn a_pod_that_is_held_makes_it_blocked_while_progress_and_status_agree() {
        let mut held = view_with(5);
        let mut progress =
            NodeDrainProgress { status: DrainStatus::Cordoned, ..NodeDrainProgress::default() };
        progress.counts.blocked = 1;
        held.progress = Some(progress);
        assert_eq!(held.state(), DrainState::Blocked);
        // What was published before the status changed says nothing about now.
        held.status = view_with(8).status;
        assert_eq!(held.state(), DrainState::Failed);
    }

    #[test]
    fn k7_a_complete_is_a_proof_only_without_a_skip_and_without_force() {
        let complete = |skip: &str, forced: bool| {
            let mut view = view_with(9);
            let answer =
                Answer { status: DrainStatus::Complete, skip: skip.to_owned(), forced, ..Answer::default() };
            view.progress = Some(NodeDrainProgress {
                status: DrainStatus::Complete,
                answers: vec![Answer { skip: String::new(), forced: false, ..answer.clone() }, answer],
                ..NodeDrainProgress::default()
            });
            view
        };
        for (skip, forced, exit) in [
            ("", false, Exit::Done),
            ("the API was not reachable", false, Exit::Skipped),
            ("forced", true, Exit::Forced),
        ] {
            assert_eq!(complete(skip, forced).state().exit(), exit, "{skip}");
        }
        // After a restart of zedkube its answers are the record; before, the run itself says why.
        let mut skipped = complete("", false);
        skipped.progress.as_mut().unwrap().skip = "the API was not reachable".to_owned();
        assert_eq!(skipped.state(), DrainState::Skipped);
        // Of a status that a person holds up nothing is believed.
        for status in [1, 6, 8, 9] {
            let mut held = view_with(status);
            held.progress = Some(NodeDrainProgress {
                status: DrainStatus::from(status),
                phase: DrainPhase::Forced,
                ..NodeDrainProgress::default()
            });
            assert_eq!(held.state(), DrainState::Forced, "{status}");
        }
    }

    #[test]
    fn k7_an_old_request_that_was_skipped_says_nothing_of_the_proof_for_the_one_at_hand() {
        let at = |text: &str| text.parse().unwrap();
        let (old, new) = (at("2026-03-14T09:00:00Z"), at("2026-03-14T10:00:00Z"));
        let mut view = view_with(9);
        let answer = |requested_by, requested_at, skip: &str| Answer {
            requested_by,
            requested_at,
            status: DrainStatus::Complete,
            skip: skip.to_owned(),
            ..Answer::default()
        };
        let mut progress = NodeDrainProgress {
            status: DrainStatus::Complete,
            requested_by: Requester::DeviceOp,
            requested_at: new,
            ..NodeDrainProgress::default()
        };
        progress.answers = vec![
            answer(Requester::Operator, old, "the API was not reachable"),
            answer(Requester::DeviceOp, new, ""),
        ];
        view.progress = Some(progress.clone());
        assert_eq!(view.state(), DrainState::Complete);
        // The other way round nothing is proved, nor where the one at hand has no answer.
        progress.answers[1].skip = "no quorum".to_owned();
        view.progress = Some(progress.clone());
        assert_eq!(view.state(), DrainState::Skipped);
        progress.answers.pop();
        view.progress = Some(progress);
        assert_eq!(view.state(), DrainState::Skipped);
    }

    #[test]
    fn an_operation_that_waits_without_a_request_is_under_way() {
        for status in [1, 2] {
            let mut view = view_with(status);
            let op = DeviceOpPending { state: PendingState::Commanded, ..DeviceOpPending::default() };
            view.pending.insert("reboot".to_owned(), op.clone());
            assert_eq!(view.state(), DrainState::Idle, "{status}");
            view.pending.insert("reboot".to_owned(), DeviceOpPending { state: PendingState::Pending, ..op });
            assert_eq!(view.state(), DrainState::UnderWay, "{status}");
        }
    }

    #[test]
    fn k7_once_a_persons_request_is_withdrawn_nobody_is_told_that_the_node_is_his() {
        let mut view = view_with(9);
        view.progress = Some(NodeDrainProgress {
            status: DrainStatus::Complete,
            phase: DrainPhase::Complete,
            requested_by: Requester::Operator,
            ..NodeDrainProgress::default()
        });
        assert_eq!(view.state().exit(), Exit::UnderWay);
        // What cannot be read may be there.
        view.denied.insert("run/zedbox".into());
        assert_eq!(view.state(), DrainState::Complete);
        view.denied.clear();
        view.requests.insert("zedbox", NodeDrainRequest::default());
        assert_eq!(view.state(), DrainState::Complete);
    }

    #[test]
    fn a_request_that_nobody_has_taken_is_under_way() {
        let mut asked = view_with(2);
        asked.requests.insert("zedbox", NodeDrainRequest::default());
        assert_eq!(asked.state(), DrainState::UnderWay);
    }

    #[test]
    fn anothers_complete_is_no_answer_to_this_request() {
        let mine = RequestId { by: Requester::Operator, at: "2026-03-14T09:30:00Z".parse().unwrap() };
        let mut view = view_with(9);
        let answer = |by: Requester, status: DrainStatus| Answer {
            requested_by: by,
            requested_at: mine.at,
            status,
            ..Answer::default()
        };
        let answers = vec![answer(Requester::DeviceOp, DrainStatus::Complete)];
        view.progress = Some(NodeDrainProgress {
            status: DrainStatus::Complete,
            answers,
            ..NodeDrainProgress::default()
        });
        assert_eq!(view.state_of(mine), DrainState::UnderWay);
        for (status, state) in [
            (DrainStatus::Cordoned, DrainState::UnderWay),
            (DrainStatus::FailedDrain, DrainState::Failed),
            (DrainStatus::Complete, DrainState::Complete),
        ] {
            view.progress.as_mut().unwrap().answers.push(answer(Requester::Operator, status));
            assert_eq!(view.state_of(mine), state, "{status:?}");
            view.progress.as_mut().unwrap().answers.pop();
        }
    }
}
