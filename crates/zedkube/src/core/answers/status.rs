//! Which status is shown, and to which requester it belongs. Pure: no clock, no I/O, no task.

use step::{Fault, planted};
use topics::{DrainStatus, NodeDrainStatus, Requester};

use super::table::{Answers, is_complete};
use crate::core::facts::Force;

impl Answers {
    /// Whether this requester waits for an answer. Until its topic is read, it does if it did before this agent
    /// restarted.
    fn asks(&self, who: Requester) -> bool {
        let answered = || self.given.iter().any(|it| it.requested_by == who);
        self.requests.contains_key(&who) || (!self.read.contains(&who) && answered())
    }

    /// Whether this requester's own answer is COMPLETE: no other requester is shown that.
    pub(crate) fn completed(&self, who: Requester) -> bool {
        self.asks(who) && self.given.iter().any(|it| it.requested_by == who && is_complete(it))
    }

    fn is_answered(&self, who: Requester) -> bool {
        self.given.iter().any(|it| it.requested_by == who && it.status.is_final())
    }

    /// The status of the drain, for the requester that comes first.
    fn own_status(&self, status: DrainStatus) -> NodeDrainStatus {
        let first_that = |is: &dyn Fn(Requester) -> bool| Self::REQUESTERS.into_iter().find(|who| is(*who));
        let first = first_that(&|who| self.asks(who)).unwrap_or(Requester::None);
        // Who has its answer is not named as waiting.
        let open = first_that(&|who| self.asks(who) && !self.is_answered(who)).unwrap_or(first);
        if let Some(failed) = self.failed_beside_a_person(status) {
            return failed;
        }
        let requested_by = match status {
            DrainStatus::NotSupported | DrainStatus::NotRequested => Requester::None,
            DrainStatus::Complete if self.second && self.completed(Requester::Update) => Requester::Update,
            DrainStatus::Complete => first_that(&|who| self.completed(who)).unwrap_or(first),
            DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::DrainRetrying => open,
            DrainStatus::Unknown
            | DrainStatus::FailedCordon
            | DrainStatus::FailedDrain
            | DrainStatus::Stranger(_) => first,
        };
        NodeDrainStatus { status, requested_by }
    }

    /// An agent of the reference reads nothing but the status: while COMPLETE is that of a person or of an update of
    /// k3s alone, the failure of an operation that waits is what has to be seen. The others read it in the answers.
    fn failed_beside_a_person(&self, status: DrainStatus) -> Option<NodeDrainStatus> {
        let operations = Self::OPERATIONS;
        if status != DrainStatus::Complete || operations.into_iter().any(|who| self.completed(who)) {
            return None;
        }
        let failed = |who: Requester| {
            let said = self.given.iter().find(|it| it.requested_by == who && it.status.is_failure())?;
            self.asks(who).then_some(NodeDrainStatus { status: said.status, requested_by: who })
        };
        operations.into_iter().find_map(failed)
    }

    /// The status that is shown: the forced one, or that of the drain.
    pub(crate) fn status(&self, drain: DrainStatus) -> NodeDrainStatus {
        match self.force {
            Force::Order(_) if planted(Fault::K14) => self.own_status(drain),
            // COMPLETE is shown for the requester that it names, if that one waits.
            Force::Order(order) if order.status == DrainStatus::Complete => {
                if self.requests.contains_key(&order.requested_by) { order } else { self.own_status(drain) }
            }
            Force::Order(order) => order,
            Force::Absent | Force::Refused(_) => self.own_status(drain),
        }
    }
}
