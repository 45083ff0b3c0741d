//! Where a drain is, and what is known of what is in its way: an API that is away or silent, what the preflight has found.
//!
//! Pure: no clock, no I/O, no task.

use kubenodeop::{DrainSuccess, Progress};
use step::Mono;
use topics::{Blocker, DrainStatus, RequestId, Skip};

use crate::core::facts::{CordonFailure, StartObstacle, UnansweredCall};

/// Drains that began again by themselves for one request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Repeats {
    pub(super) of: Option<RequestId>,
    pub(super) nth: u32,
}

/// One drain, from the request to its end; each state holds what is valid in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DrainRun {
    /// Nothing is asked for.
    Idle,
    /// A request was taken.
    Taken {
        /// When its drain starts.
        from: Mono,
    },
    /// Waits for a window to start in.
    OutsideWindow,
    /// Asks whether the API is there.
    Probing {
        /// As in [`DrainRun::Waiting`].
        tried: u32,
        /// When it is asked again; `None` while an answer is awaited.
        again: Option<Mono>,
        /// How it is not.
        away: ApiAbsence,
    },
    /// Waits for its turn to be down.
    Waiting {
        /// How often the API answered, and not about the turn.
        tried: u32,
        /// When it is asked again then.
        again: Option<Mono>,
    },
    /// Calls the hooks that come before the cordon.
    Hooks {
        /// Which one, or empty.
        running: String,
        /// When they are tried again; `None` while one is running.
        again: Option<Mono>,
        /// Why the last try failed, or empty.
        trouble: String,
    },
    Cordoning {
        /// This try, from 1.
        tried: u32,
        /// When the next try starts; `None` while an answer is awaited.
        again: Option<Mono>,
        /// Why the last try failed; empty before it.
        failure: CordonFailure,
    },
    /// The turn is its own, and all that is needed; it is looked at once more.
    Entering {
        /// When the question is asked again.
        again: Mono,
    },
    /// Cordoned; the turn is looked at once more.
    Confirming {
        /// When the question is asked again.
        again: Mono,
    },
    /// An attempt is under way.
    Draining {
        /// From 1.
        attempt: u32,
        /// When it is given up.
        deadline: Mono,
        /// How far it is.
        now: Box<Progress>,
    },
    /// Waits before the next attempt.
    Retrying {
        /// The attempt that failed.
        attempt: u32,
        /// When the next one starts.
        until: Mono,
        reason: String,
        /// How far it was.
        last: Box<Progress>,
    },
    /// Drained, and held by the fault-injection file.
    Holding {
        /// What came of it.
        done: DrainSuccess,
        /// The attempt that it took.
        attempt: u32,
        /// How far it was.
        last: Box<Progress>,
        /// When it is held no longer.
        until: Mono,
    },
    Ended(DrainEnd),
}

/// An API that is not there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiAbsence {
    pub(super) since: Mono,
    /// Why it is not, or empty.
    pub(super) trouble: String,
    /// When the drain is skipped, once it has been away for long enough.
    pub(super) skip_at: Option<Mono>,
    /// Why it is not skipped.
    pub(super) refused: Option<String>,
}

/// The API does not answer, as this run of the agent has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Silence {
    /// When it was asked first.
    pub(super) since: Mono,
    /// When the last answer was given up.
    pub(super) until: Mono,
    /// How often it was asked.
    pub(super) tries: u32,
    /// How it was the last time.
    pub(super) last: Box<UnansweredCall>,
}

/// How far the preflight is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum PreflightState {
    /// Nothing was looked at.
    #[default]
    Due,
    /// The first look is under way.
    Looking,
    Clean,
    /// The drain cannot start.
    Found {
        what: StartObstacle,
        /// What was found of pods.
        blockers: Vec<Blocker>,
        /// When it is looked again; `None` while it is.
        again: Option<Mono>,
        /// When the drain fails of it; never of an API that does not answer.
        until: Option<Mono>,
    },
}

impl DrainRun {
    /// Asks from now on whether the API is there.
    pub(super) fn probing(now: Mono, tried: u32) -> Self {
        let away = ApiAbsence { since: now, trouble: String::new(), skip_at: None, refused: None };
        Self::Probing { tried, again: None, away }
    }
}

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    /// Proved done.
    Drained { attempt: u32, last: Box<Progress> },
    /// Left out, for this reason.
    Skipped(Skip),
    /// Could not cordon.
    FailedCordon(CordonFailure),
    /// Could not drain.
    FailedDrain { attempt: u32, reason: String, last: Box<Progress> },
    /// As it was before: before this agent restarted in the same boot, or before a request that has gone.
    Resumed(DrainStatus),
}

impl DrainRun {
    /// The status that says where it is. `floor` is what was shown before this agent restarted.
    pub(super) fn status(&self, floor: Option<DrainStatus>) -> DrainStatus {
        match self {
            Self::Idle => DrainStatus::NotRequested,
            Self::Taken { .. } | Self::OutsideWindow => DrainStatus::Requested,
            Self::Waiting { tried: 0, .. } => floor.unwrap_or(DrainStatus::Requested),
            Self::Waiting { .. }
            | Self::Probing { .. }
            | Self::Entering { .. }
            | Self::Hooks { .. }
            | Self::Cordoning { .. }
            | Self::Confirming { .. } => floor.unwrap_or(DrainStatus::Starting),
            Self::Draining { .. } | Self::Holding { .. } => DrainStatus::Cordoned,
            Self::Retrying { .. } => DrainStatus::DrainRetrying,
            Self::Ended(DrainEnd::Drained { .. } | DrainEnd::Skipped(_)) => DrainStatus::Complete,
            Self::Ended(DrainEnd::FailedCordon(_)) => DrainStatus::FailedCordon,
            Self::Ended(DrainEnd::FailedDrain { .. }) => DrainStatus::FailedDrain,
            Self::Ended(DrainEnd::Resumed(status)) => *status,
        }
    }

    /// How it ended or was before this agent restarted, while nothing has come after it.
    pub(super) fn resumed(&self) -> Option<DrainStatus> {
        if let Self::Ended(DrainEnd::Resumed(status)) = self { Some(*status) } else { None }
    }

    /// Why the drain was left out, or empty.
    pub(super) fn skip(&self) -> String {
        if let Self::Ended(DrainEnd::Skipped(skip)) = self { skip.text.clone() } else { String::new() }
    }

    /// Why it failed, or empty.
    pub(super) fn failure(&self) -> String {
        if let Self::Ended(
            DrainEnd::FailedCordon(CordonFailure { why: reason, .. }) | DrainEnd::FailedDrain { reason, .. },
        ) = self
        {
            reason.clone()
        } else {
            String::new()
        }
    }

    /// Whether it does what only the holder of a turn may do: the way to the cordon, and all after it.
    pub(super) fn is_under_turn(&self) -> bool {
        matches!(
            self,
            Self::Entering { .. }
                | Self::Hooks { .. }
                | Self::Cordoning { .. }
                | Self::Confirming { .. }
                | Self::Draining { .. }
                | Self::Retrying { .. }
                | Self::Holding { .. }
        )
    }

    /// Whether a task is, or soon will be, at work.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self, Self::Idle | Self::Ended(_))
    }

    /// Number of the attempt that it is in, or was in last, and how far that is, or was at its end.
    fn attempted(&self) -> Option<(u32, &Progress)> {
        let (Self::Draining { attempt, now: pods, .. }
        | Self::Retrying { attempt, last: pods, .. }
        | Self::Holding { attempt, last: pods, .. }
        | Self::Ended(
            DrainEnd::Drained { attempt, last: pods } | DrainEnd::FailedDrain { attempt, last: pods, .. },
        )) = self
        else {
            return None;
        };
        Some((*attempt, pods))
    }

    /// The attempt that it is in, or was in last.
    pub(super) fn attempt(&self) -> u32 {
        self.attempted().map_or(0, |(attempt, _)| attempt)
    }

    /// How far the attempt is, or was at its end.
    pub(crate) fn pods(&self) -> Option<&Progress> {
        self.attempted().map(|(_, pods)| pods)
    }

    /// When it must be looked at again.
    pub(super) fn due(&self) -> Option<Mono> {
        match self {
            Self::Taken { from } => Some(*from),
            Self::Probing { again, .. }
            | Self::Waiting { again, .. }
            | Self::Hooks { again, .. }
            | Self::Cordoning { again, .. } => *again,
            Self::Entering { again } | Self::Confirming { again } => Some(*again),
            Self::Retrying { until, .. } | Self::Holding { until, .. } => Some(*until),
            Self::Idle | Self::OutsideWindow | Self::Draining { .. } | Self::Ended(_) => None,
        }
    }
}
