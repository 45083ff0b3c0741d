//! Where a drain is, each state with what is valid in it, and what a restart of this agent in the same boot must not forget.
//!
//! Not here: what takes it on (`life`, `gates`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Progress;
use step::Mono;
use topics::{Blocker, DrainJournal, DrainMarks, DrainStatus, NodeDrainRequest, PodCounts, RequestId, Skip};

use crate::core::facts::{CordonFailure, StartObstacle, UnansweredCall};

/// One drain, from the request to its end; each state holds what is valid in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum DrainRun {
    #[default]
    Idle,
    /// Something keeps it from its cordon.
    AtGate(DrainGate),
    Cordoning(CordonStage),
    /// An attempt is under way, or was the last one.
    Draining {
        /// From 1.
        attempt: u32,
        /// When it is given up, or held no longer.
        deadline: Mono,
        /// How far it is.
        now: Box<Progress>,
        /// Proved done after this time, and held by the fault-injection file.
        held: Option<Duration>,
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
    Ended(DrainEnd),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CordonStage {
    Trying {
        /// This try, from 1.
        tried: u32,
        /// When the next try starts; `None` while an answer is awaited.
        again: Option<Mono>,
        /// Why the last try failed; empty before it.
        failure: CordonFailure,
    },
    /// Cordoned; the turn is looked at once more.
    Confirming {
        /// When the question is asked again.
        again: Mono,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    /// Proved done.
    Drained {
        attempt: u32,
        last: Box<Progress>,
    },
    /// Left out, for this reason.
    Skipped(Skip),
    FailedCordon(CordonFailure),
    FailedDrain {
        attempt: u32,
        reason: String,
        last: Box<Progress>,
    },
    /// As it was before: before this agent restarted in the same boot, or before a request that has gone.
    Resumed(DrainStatus),
}

/// The first gate that is shut.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DrainGate {
    /// A request was accepted.
    Start {
        /// When its drain starts.
        from: Mono,
    },
    /// By a person or by the windows.
    Window,
    /// Preflight, API and turn.
    Turn(TurnGate),
    /// The turn is its own, and all that is needed; it is looked at once more.
    TurnAlone {
        /// When the question is asked again.
        again: Mono,
    },
    Hooks {
        /// Which one is called, or empty.
        running: String,
        /// When they are tried again; `None` while one is running.
        again: Option<Mono>,
        /// Why the last try failed, or empty.
        trouble: String,
    },
}

/// Preflight, API and turn: the three are asked again and again until one answer lets it through.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TurnGate {
    /// What was looked at before a turn is asked for, or the node is cordoned.
    pub(super) preflight: Preflight,
    /// How often the API answered, and not about the turn.
    pub(super) tried: u32,
    /// When the turn, or the API, is asked for again; `None` while an answer is awaited.
    pub(super) again: Option<Mono>,
    /// The API is asked whether it is there.
    pub(super) away: Option<ApiAbsence>,
}

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

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Preflight {
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

/// Drains that began again by themselves for one request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Repeats {
    pub(super) of: Option<RequestId>,
    pub(super) nth: u32,
}

/// The API does not answer, as this run of the agent has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiSilence {
    /// When it was asked first.
    pub(super) since: Mono,
    /// When the last answer was given up.
    pub(super) until: Mono,
    /// How often it was asked.
    pub(super) tries: u32,
    /// How it was the last time.
    pub(super) last: Box<UnansweredCall>,
}

/// An attempt in which this agent restarted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resume {
    /// The requests that it was for.
    of: Vec<RequestId>,
    /// From 1.
    pub(super) attempt: u32,
    /// Since when its limits run.
    pub(super) marks: DrainMarks,
    /// The end of the pause after it, and why it failed; `None` when it was under way.
    pub(super) pause: Option<(Mono, String)>,
}

impl Resume {
    /// What `journal` says of an attempt that is not over.
    pub(super) fn from(journal: &DrainJournal) -> Option<Self> {
        (journal.attempt > 0 && journal.status.is_under_way()).then(|| Self {
            of: journal
                .answers
                .iter()
                .filter(|it| it.status.is_under_way())
                .map(topics::Answer::id)
                .collect(),
            attempt: journal.attempt,
            marks: journal.marks.clone(),
            pause: Mono::of_ms(journal.pause_end_ms).map(|at| (at, journal.reason.clone())),
        })
    }

    /// Whether one of those who waited for it still does; a later request gets attempts of its own.
    pub(super) fn is_for<'a>(&self, mut waiting: impl Iterator<Item = &'a NodeDrainRequest>) -> bool {
        waiting.any(|request| self.of.contains(&request.id()))
    }
}

/// What a drain had done before the task that is at work now: in earlier attempts, and before this agent restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EarlierWork {
    /// Evictions that the server had accepted.
    pub(super) evicted: u32,
    /// How often the cordon had to be renewed.
    pub(super) recordons: u32,
    /// Pods of this attempt, as they were shown last.
    pub(super) counts: PodCounts,
}

impl EarlierWork {
    /// With an attempt that is over.
    pub(super) fn and(self, last: &Progress) -> Self {
        Self {
            evicted: self.evicted.saturating_add(last.evicted),
            recordons: self.recordons.saturating_add(last.recordons),
            counts: PodCounts::default(),
        }
    }

    /// What an attempt counts `now`, with the pods that had gone before this agent restarted. One that is `over`
    /// has none left.
    pub(super) fn with(self, now: PodCounts, over: bool) -> PodCounts {
        let was = self.counts;
        match was.total.checked_sub(now.total) {
            None | Some(0) => now,
            // Nothing is known yet.
            Some(_) if now.total == 0 && !over => was,
            Some(gone) => PodCounts { total: was.total, gone: now.gone + gone, ..now },
        }
    }
}

impl CordonStage {
    /// No try has failed yet.
    pub(super) fn first(tried: u32, again: Option<Mono>) -> Self {
        Self::Trying { tried, again, failure: CordonFailure::default() }
    }
}

impl DrainRun {
    /// The status that says where it is. `floor` is what was shown before this agent restarted.
    pub(super) fn status(&self, floor: Option<DrainStatus>) -> DrainStatus {
        match self {
            Self::Idle => DrainStatus::NotRequested,
            Self::AtGate(DrainGate::Start { .. } | DrainGate::Window) => DrainStatus::Requested,
            Self::AtGate(DrainGate::Turn(TurnGate { tried: 0, away: None, .. })) => {
                floor.unwrap_or(DrainStatus::Requested)
            }
            Self::AtGate(_) | Self::Cordoning(_) => floor.unwrap_or(DrainStatus::Starting),
            Self::Draining { .. } => DrainStatus::Cordoned,
            Self::Retrying { .. } => DrainStatus::DrainRetrying,
            Self::Ended(DrainEnd::Drained { .. } | DrainEnd::Skipped(_)) => DrainStatus::Complete,
            Self::Ended(DrainEnd::FailedCordon(_)) => DrainStatus::FailedCordon,
            Self::Ended(DrainEnd::FailedDrain { .. }) => DrainStatus::FailedDrain,
            Self::Ended(DrainEnd::Resumed(status)) => *status,
        }
    }

    /// Why the drain was left out, or empty.
    pub(super) fn skip(&self) -> String {
        if let Self::Ended(DrainEnd::Skipped(skip)) = self { skip.text.clone() } else { String::new() }
    }

    /// Why it failed, or empty.
    pub(super) fn failure(&self) -> &str {
        if let Self::Ended(
            DrainEnd::FailedCordon(CordonFailure { why, .. }) | DrainEnd::FailedDrain { reason: why, .. },
        ) = self
        {
            why
        } else {
            ""
        }
    }

    /// Whether it does what only the holder of a turn may do: the way to the cordon, and all after it.
    pub(super) fn is_under_turn(&self) -> bool {
        match self {
            Self::AtGate(gate) => matches!(gate, DrainGate::TurnAlone { .. } | DrainGate::Hooks { .. }),
            Self::Cordoning(_) | Self::Draining { .. } | Self::Retrying { .. } => true,
            Self::Idle | Self::Ended(_) => false,
        }
    }

    /// It is proved done, be it held or not.
    pub(crate) fn is_drained(&self) -> bool {
        matches!(self, Self::Draining { held: Some(_), .. } | Self::Ended(DrainEnd::Drained { .. }))
    }

    /// The attempt that it is in, or was in last, and how far that is, or was at its end.
    fn attempted(&self) -> Option<(u32, &Progress)> {
        let (Self::Draining { attempt, now: pods, .. }
        | Self::Retrying { attempt, last: pods, .. }
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
            Self::AtGate(gate) => gate.due(),
            Self::Cordoning(CordonStage::Trying { again, .. }) => *again,
            Self::Cordoning(CordonStage::Confirming { again: at })
            | Self::Retrying { until: at, .. }
            | Self::Draining { held: Some(_), deadline: at, .. } => Some(*at),
            Self::Idle | Self::Draining { held: None, .. } | Self::Ended(_) => None,
        }
    }
}

impl DrainGate {
    /// When it must be looked at again, but for the preflight.
    pub(super) fn due(&self) -> Option<Mono> {
        match self {
            Self::Start { from: at } | Self::TurnAlone { again: at } => Some(*at),
            Self::Turn(TurnGate { again, .. }) | Self::Hooks { again, .. } => *again,
            Self::Window => None,
        }
    }
}

impl TurnGate {
    /// What keeps it from starting, while it waits for that.
    pub(super) fn obstacle(&self) -> Option<(&StartObstacle, &[Blocker])> {
        match &self.preflight {
            Preflight::Found { what, blockers, .. } if self.away.is_none() => Some((what, blockers)),
            Preflight::Due | Preflight::Looking | Preflight::Clean | Preflight::Found { .. } => None,
        }
    }
}
