//! Where the drain stands, in one word, and how a program that asked for it ends.

use topics::{Blocker, DrainStatus, NodeDrainProgress, NodeDrainRequest, RequestId};

use super::seen::{REQUESTERS, Seen};
use crate::Exit;

/// Where a drain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// Nothing can be told.
    Unknown,
    /// Nothing is asked for, or there is nothing to drain.
    Idle,
    /// Asked for or at work.
    UnderWay,
    /// At work, and something does not leave.
    Blocked,
    /// Done, or left out with a reason.
    Complete,
    /// Given up.
    Failed,
}

impl Stand {
    /// How a program ends that was asked where the drain stands.
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::Idle | Self::Complete => Exit::Done,
            Self::UnderWay => Exit::UnderWay,
            Self::Blocked => Exit::Blocked,
            Self::Failed => Exit::DrainFailed,
            Self::Unknown => Exit::Unknown,
        }
    }
}

impl Seen {
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

    /// Pods that do not leave.
    pub(super) fn blockers(&self) -> &[Blocker] {
        self.agreed().map(|it| it.blockers.as_slice()).unwrap_or_default()
    }

    /// Where the drain of this node stands.
    pub(super) fn stand(&self) -> Stand {
        match self.drain_status() {
            None | Some(DrainStatus::Unknown | DrainStatus::Stranger(_)) => Stand::Unknown,
            // Asked for, and not yet taken.
            Some(DrainStatus::NotRequested) if !self.requests.is_empty() => Stand::UnderWay,
            Some(DrainStatus::NotSupported | DrainStatus::NotRequested) => Stand::Idle,
            Some(
                DrainStatus::Requested
                | DrainStatus::Starting
                | DrainStatus::Cordoned
                | DrainStatus::DrainRetrying,
            ) => {
                let held = |it: &NodeDrainProgress| !it.blockers.is_empty() || it.counts.blocked > 0;
                if self.agreed().is_some_and(held) { Stand::Blocked } else { Stand::UnderWay }
            }
            Some(DrainStatus::FailedCordon | DrainStatus::FailedDrain) => Stand::Failed,
            Some(DrainStatus::Complete) => Stand::Complete,
        }
    }

    /// Where the drain for one request stands, by the answers to that request alone: another requester's COMPLETE
    /// is none of its business.
    pub(super) fn stand_of(&self, id: RequestId) -> Stand {
        let answer = self.progress.as_ref().and_then(|it| it.answer(id));
        match answer.map(|it| it.status) {
            Some(DrainStatus::Complete) => Stand::Complete,
            Some(DrainStatus::FailedCordon | DrainStatus::FailedDrain) => Stand::Failed,
            Some(
                DrainStatus::Unknown
                | DrainStatus::NotSupported
                | DrainStatus::NotRequested
                | DrainStatus::Requested
                | DrainStatus::Starting
                | DrainStatus::Cordoned
                | DrainStatus::DrainRetrying
                | DrainStatus::Stranger(_),
            )
            | None => match self.stand() {
                Stand::Blocked => Stand::Blocked,
                Stand::Unknown | Stand::Idle | Stand::UnderWay | Stand::Complete | Stand::Failed => {
                    Stand::UnderWay
                }
            },
        }
    }

    /// The request that is being served, or the first that waits for it.
    pub(super) fn served(&self) -> Option<&NodeDrainRequest> {
        let standing = || REQUESTERS.iter().filter_map(|agent| self.requests.get(agent));
        let asked = self.agreed().map(|it| it.requested_at);
        standing().find(|it| Some(it.requested_at) == asked).or_else(|| standing().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{Answer, NodeDrainStatus, Requester};

    fn seen(status: u8) -> Seen {
        let status = DrainStatus::from(status);
        let requested_by = Requester::DeviceOp;
        Seen { status: Some(NodeDrainStatus { status, requested_by }), ..Seen::default() }
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
            (9, Exit::Done),
            (10, Exit::Unknown),
            (255, Exit::Unknown),
        ];
        for (status, exit) in table {
            assert_eq!(seen(status).stand().exit(), exit, "{status}");
        }
        assert_eq!(Seen::default().stand().exit(), Exit::Unknown);
    }

    #[test]
    fn a_pod_that_is_held_makes_it_blocked_while_progress_and_status_agree() {
        let mut held = seen(5);
        let mut progress =
            NodeDrainProgress { status: DrainStatus::Cordoned, ..NodeDrainProgress::default() };
        progress.counts.blocked = 1;
        held.progress = Some(progress);
        assert_eq!(held.stand(), Stand::Blocked);
        // What was told before the status changed says nothing about now.
        held.status = seen(9).status;
        assert_eq!(held.stand(), Stand::Complete);
    }

    #[test]
    fn a_request_that_nobody_has_taken_is_under_way() {
        let mut asked = seen(2);
        asked.requests.insert("zedbox", NodeDrainRequest::default());
        assert_eq!(asked.stand(), Stand::UnderWay);
    }

    #[test]
    fn anothers_complete_is_no_answer_to_this_request() {
        let mine = RequestId { by: Requester::Operator, at: "2026-03-14T09:30:00Z".parse().unwrap() };
        let mut told = seen(9);
        let answer = |by: Requester, status: DrainStatus| Answer {
            requested_by: by,
            requested_at: mine.at,
            status,
            ..Answer::default()
        };
        let answers = vec![answer(Requester::DeviceOp, DrainStatus::Complete)];
        told.progress = Some(NodeDrainProgress {
            status: DrainStatus::Complete,
            answers,
            ..NodeDrainProgress::default()
        });
        assert_eq!(told.stand_of(mine), Stand::UnderWay);
        for (status, stand) in [
            (DrainStatus::Cordoned, Stand::UnderWay),
            (DrainStatus::FailedDrain, Stand::Failed),
            (DrainStatus::Complete, Stand::Complete),
        ] {
            told.progress.as_mut().unwrap().answers.push(answer(Requester::Operator, status));
            assert_eq!(told.stand_of(mine), stand, "{status:?}");
            told.progress.as_mut().unwrap().answers.pop();
        }
    }
}
