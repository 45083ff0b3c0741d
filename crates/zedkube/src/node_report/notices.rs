//! Notices: what can be said of a drain to the cluster, and by which word. Pure: no clock, no I/O, no task.

use topics::RequestId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum NoticeKind {
    /// Its turn has come: hooks, cordon and evictions follow.
    Started,
    /// Something does not leave, or keeps it from starting.
    Blocked,
    /// Another node has to be back, or to go, first.
    WaitingForTurn,
    /// The next window has to open.
    WaitingForWindow,
    /// Nothing has changed for long.
    Stalled,
    Complete,
    /// It counts as drained without a drain.
    Skipped,
    /// A person has said so.
    Forced,
    Failed,
    /// Nobody asks for it any more.
    Withdrawn,
    /// Our cordon is gone.
    Uncordoned,
    /// A person keeps operations from starting.
    Paused,
    /// The same, for long.
    StillPaused,
    Resumed,
}

impl NoticeKind {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Started => "DrainStarted",
            Self::Blocked => "DrainBlocked",
            Self::WaitingForTurn => "DrainWaitingForTurn",
            Self::WaitingForWindow => "DrainWaitingForWindow",
            Self::Stalled => "DrainStalled",
            Self::Complete => "DrainComplete",
            Self::Skipped => "DrainSkipped",
            Self::Forced => "DrainForced",
            Self::Failed => "DrainFailed",
            Self::Withdrawn => "DrainWithdrawn",
            Self::Uncordoned => "Uncordoned",
            Self::Paused => "OperationsPaused",
            Self::StillPaused => "OperationsStillPaused",
            Self::Resumed => "OperationsResumed",
        }
    }

    pub(crate) const fn is_warning(self) -> bool {
        matches!(
            self,
            Self::Blocked | Self::Stalled | Self::Skipped | Self::Forced | Self::Failed | Self::StillPaused
        )
    }

    /// How it ends a drain, by the word of the metrics.
    pub(crate) fn end(self) -> Option<&'static str> {
        let ends = [
            (Self::Complete, "complete"),
            (Self::Skipped, "skipped"),
            (Self::Forced, "forced"),
            (Self::Failed, "failed"),
            (Self::Withdrawn, "withdrawn"),
        ];
        ends.iter().find(|it| it.0 == self).map(|it| it.1)
    }

    /// Whether it ends something: room is kept for it.
    pub(crate) fn is_end(self) -> bool {
        self.end().is_some() || matches!(self, Self::Uncordoned | Self::Resumed)
    }
}

/// Something to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) kind: NoticeKind,
    /// The drain that it is about.
    pub(crate) id: RequestId,
    /// What of it: the same is said again under the same name.
    pub(crate) subject: String,
    pub(crate) message: String,
    /// It happened now, and was not found at the start of zedkube.
    pub(crate) is_new: bool,
}
