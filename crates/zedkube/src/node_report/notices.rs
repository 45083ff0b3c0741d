//! Notices: what can be said of a drain to the cluster, and by which word. Pure: no clock, no I/O, no task.

use outage::failover::silence::NodeSilence;
use topics::RequestId;

use crate::failover::Told;

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
    /// Nothing is heard of another node, or only of its machine.
    NodeSilent,
    /// A person has declared it dead.
    NodeDeclaredDead,
    /// It is heard again.
    NodeBack,
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
            Self::NodeSilent => "NodeSilent",
            Self::NodeDeclaredDead => "NodeDeclaredDead",
            Self::NodeBack => "NodeBack",
        }
    }

    pub(crate) const fn is_warning(self) -> bool {
        matches!(
            self,
            Self::Blocked
                | Self::Stalled
                | Self::Skipped
                | Self::Forced
                | Self::Failed
                | Self::StillPaused
                | Self::NodeSilent
                | Self::NodeDeclaredDead
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
        self.end().is_some() || matches!(self, Self::Uncordoned | Self::Resumed | Self::NodeBack)
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

/// What has changed with other nodes: from one state to another, and back.
pub(crate) fn of_nodes(before: &Told, now: &Told) -> Vec<Notice> {
    let notice = |kind, node: &String, message: &str| Notice {
        kind,
        id: RequestId::default(),
        subject: node.clone(),
        message: format!("node {node}: {message}"),
        is_new: true,
    };
    let new = now.iter().filter(|(node, told)| before.get(*node).is_none_or(|it| it.0 != told.0));
    let told = new.map(|(node, (silence, text))| match silence {
        NodeSilence::Silent | NodeSilence::Heard => notice(NoticeKind::NodeSilent, node, text),
        NodeSilence::Declared | NodeSilence::Broken => notice(NoticeKind::NodeDeclaredDead, node, text),
    });
    let back = before.keys().filter(|it| !now.contains_key(*it));
    told.chain(back.map(|it| notice(NoticeKind::NodeBack, it, "heard again"))).collect()
}
