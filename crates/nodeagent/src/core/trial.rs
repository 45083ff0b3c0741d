//! The test of the running image: so long must it have a controller before it counts as good.
//!
//! Source: spec agents.md 2.5. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use super::controller::Contact;

/// How far the test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ImageTrial {
    /// Nothing to test, or not begun.
    #[default]
    Idle,
    /// The controller is there but gives no config: the time begins again when that ends.
    Held,
    Running {
        since: Mono,
        /// When the remaining time is reported next.
        tell_at: Mono,
        /// The remaining time as it was reported last.
        remaining: Duration,
    },
    /// Passed; baseosmgr has not taken it yet.
    Passed,
    /// baseosmgr has taken it.
    Taken,
}

/// What the test depends on.
pub(super) struct Conditions {
    /// The running image is in test.
    pub(super) in_test: bool,
    /// baseosmgr has taken its end.
    pub(super) taken: bool,
    /// The machine is about to go down: no verdict any more.
    pub(super) going_down: bool,
    pub(super) contact: Contact,
    /// How long it takes.
    pub(super) time: Duration,
    /// How often the remaining time is reported.
    pub(super) tick: Duration,
}

impl ImageTrial {
    /// Where the test is now.
    pub(super) fn update(self, now: Mono, on: &Conditions) -> Self {
        if !on.in_test {
            return Self::Idle;
        }
        match (self, on.contact) {
            (Self::Passed | Self::Taken, _) if on.taken => Self::Taken,
            (kept @ (Self::Passed | Self::Taken), _) | (kept @ Self::Idle, Contact::Lost) => kept,
            (kept, _) if on.going_down => kept,
            (Self::Idle | Self::Held, Contact::Config) | (Self::Held, Contact::Lost) => {
                Self::Running { since: now, tell_at: now + on.tick, remaining: on.time }
            }
            (Self::Idle | Self::Held | Self::Running { .. }, Contact::Busy) => Self::Held,
            (Self::Running { since, .. }, Contact::Config | Contact::Lost) if now >= since + on.time => {
                Self::Passed
            }
            (Self::Running { since, tell_at, .. }, Contact::Config | Contact::Lost) if now >= tell_at => {
                let remaining = on.time.saturating_sub(now.since(since));
                Self::Running { since, tell_at: now + on.tick, remaining }
            }
            (running @ Self::Running { .. }, Contact::Config | Contact::Lost) => running,
        }
    }

    /// When to look again.
    pub(super) fn due(self, on: &Conditions) -> Option<Mono> {
        match self {
            Self::Running { since, tell_at, .. } if !on.going_down => Some(tell_at.min(since + on.time)),
            Self::Idle | Self::Held | Self::Running { .. } | Self::Passed | Self::Taken => None,
        }
    }

    /// Time that is left, as it is published.
    pub(super) const fn remaining(self, on: &Conditions) -> Duration {
        match self {
            Self::Held => on.time,
            Self::Running { remaining, .. } => remaining,
            Self::Idle | Self::Passed | Self::Taken => Duration::ZERO,
        }
    }

    /// Whether the image counts as good and baseosmgr is still to hear it.
    pub(super) fn passed(self) -> bool {
        self == Self::Passed
    }
}
