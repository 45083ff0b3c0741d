//! Whether the drain for one request is done: by its identity where zedkube gives one, else by requester and order.
//!
//! Pure: no clock, no I/O, no task.

use topics::{DrainStatus, NodeDrainProgress, NodeDrainStatus, RequestId, Requester};

/// What is known of the drain.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Drain {
    /// The status as published; `None` before anything was.
    pub status: Option<NodeDrainStatus>,
    /// The progress as published; `None` beside a zedkube that gives none.
    pub progress: Option<Box<NodeDrainProgress>>,
    /// Whether it is known that there is a progress, or none.
    progress_read: bool,
    /// Whether, since the request that stands was made, the status has been one from before an answer.
    open_since_request: bool,
}

/// What a request was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// Nothing final, or something that was meant for another request.
    NotYet,
    /// Drained; with the reason why not, when the drain was left out.
    Complete {
        /// Empty for a real drain.
        skip: String,
    },
    /// Given up.
    Failed(NodeDrainStatus),
}

impl Drain {
    /// A new status.
    pub fn hear(&mut self, status: Option<NodeDrainStatus>) {
        self.status = status;
        self.open_since_request |= status.is_some_and(|it| is_open(it.status));
    }

    /// A new progress, or that there is none.
    pub fn hear_progress(&mut self, progress: Option<Box<NodeDrainProgress>>) {
        self.progress = progress;
        self.progress_read = true;
    }

    /// Whether nobody gives answers by request, so that requester and order have to do.
    pub(super) fn is_without_answers(&self) -> bool {
        self.progress_read && self.progress.is_none()
    }

    /// A request is being made: answers from before are not for it.
    pub fn asked(&mut self) {
        self.open_since_request = self.status.is_some_and(|it| is_open(it.status));
    }

    /// What the request `id` was told.
    #[must_use]
    pub fn answer(&self, id: RequestId) -> Answered {
        if let Some(progress) = &self.progress {
            let Some(answer) = progress.answer(id) else { return Answered::NotYet };
            let status = NodeDrainStatus { status: answer.status, requested_by: id.by };
            return final_answer(status, &answer.skip);
        }
        match self.status {
            Some(status) if self.progress_read && status.requested_by == id.by && self.open_since_request => {
                final_answer(status, "")
            }
            Some(_) | None => Answered::NotYet,
        }
    }

    /// Whether somebody who knows the cluster has spoken: anything but "unknown" and "in no cluster".
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        match self.status.map(|it| it.status) {
            None | Some(DrainStatus::Unknown | DrainStatus::NotSupported) => false,
            Some(
                DrainStatus::NotRequested
                | DrainStatus::Requested
                | DrainStatus::Starting
                | DrainStatus::Cordoned
                | DrainStatus::FailedCordon
                | DrainStatus::DrainRetrying
                | DrainStatus::FailedDrain
                | DrainStatus::Complete
                | DrainStatus::Stranger(_),
            ) => true,
        }
    }

    /// What a person reads about the request `id`.
    #[must_use]
    pub fn in_words(&self, id: RequestId) -> String {
        // Not how many pods are left: this goes to a file on disk, and NodeDrainProgress tells it.
        let answer =
            self.progress.as_ref().and_then(|progress| progress.answer(id)).map(|answer| answer.status);
        let of_ours = self.status.filter(|it| it.requested_by == Requester::DeviceOp).map(|it| it.status);
        match answer.or(of_ours.filter(|_| self.progress.is_none())) {
            Some(status) => format!("drain of this node: {}", status.text()),
            None => "zedkube to take the drain request".to_owned(),
        }
    }
}

/// A status that says nothing final about any request.
fn is_open(status: DrainStatus) -> bool {
    match status {
        DrainStatus::NotRequested
        | DrainStatus::Requested
        | DrainStatus::Starting
        | DrainStatus::Cordoned
        | DrainStatus::DrainRetrying => true,
        DrainStatus::Unknown
        | DrainStatus::NotSupported
        | DrainStatus::FailedCordon
        | DrainStatus::FailedDrain
        | DrainStatus::Complete
        | DrainStatus::Stranger(_) => false,
    }
}

fn final_answer(status: NodeDrainStatus, skip: &str) -> Answered {
    match status.status {
        DrainStatus::Complete => Answered::Complete { skip: skip.to_owned() },
        DrainStatus::FailedCordon | DrainStatus::FailedDrain => Answered::Failed(status),
        DrainStatus::Unknown
        | DrainStatus::NotSupported
        | DrainStatus::NotRequested
        | DrainStatus::Requested
        | DrainStatus::Starting
        | DrainStatus::Cordoned
        | DrainStatus::DrainRetrying
        | DrainStatus::Stranger(_) => Answered::NotYet,
    }
}
