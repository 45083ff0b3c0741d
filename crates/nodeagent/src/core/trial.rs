//! The test of the running image: how long it must have a controller before it counts as good.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::Mono;
use topics::ZbootStatus;

use super::vault::Contact;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ImageTrial {
    /// Nothing to test, or not begun.
    #[default]
    Idle,
    /// The controller gives no config: the time starts again after that.
    Held,
    Running {
        since: Mono,
        /// The next report of the remaining time.
        tell_at: Mono,
        /// As reported last.
        remaining: Duration,
    },
    /// Passed; baseosmgr has not accepted it yet.
    Passed,
    Taken,
}

pub(super) struct Conditions {
    pub(super) in_test: bool,
    /// baseosmgr has accepted its end.
    pub(super) taken: bool,
    /// The machine is about to go down: no verdict any more.
    pub(super) going_down: bool,
    pub(super) contact: Contact,
    pub(super) time: Duration,
    /// Between reports of the remaining time.
    pub(super) tick: Duration,
}

impl ImageTrial {
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

    pub(super) fn due(self, on: &Conditions) -> Option<Mono> {
        match self {
            Self::Running { since, tell_at, .. } if !on.going_down => Some(tell_at.min(since + on.time)),
            Self::Idle | Self::Held | Self::Running { .. } | Self::Passed | Self::Taken => None,
        }
    }

    /// As published.
    pub(super) const fn remaining(self, on: &Conditions) -> Duration {
        match self {
            Self::Held => on.time,
            Self::Running { remaining, .. } => remaining,
            Self::Idle | Self::Passed | Self::Taken => Duration::ZERO,
        }
    }

    /// Whether the image passed and baseosmgr does not know yet.
    pub(super) fn passed(self) -> bool {
        self == Self::Passed
    }
}

/// The partitions of a device.
pub const LABELS: [&str; 2] = ["IMGA", "IMGB"];

/// As baseosmgr publishes them. An unpublished one stays: partitions do not disappear.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownPartitions(BTreeMap<String, ZbootStatus>);

impl KnownPartitions {
    pub(super) fn hear(&mut self, value: ZbootStatus) {
        self.0.insert(value.partition_label.clone(), value);
    }

    pub(super) fn running(&self) -> Option<(&str, &ZbootStatus)> {
        self.0.iter().find(|(_, it)| it.current_partition).map(|(label, it)| (label.as_str(), it))
    }

    pub(super) fn in_test(&self) -> bool {
        self.running().is_some_and(|(_, it)| it.partition_state == "inprogress")
    }

    /// The next boot's trial: label and version. Only once the running one is known, as that one may still be
    /// published as before the boot.
    pub(super) fn to_try(&self) -> Option<(&str, &str)> {
        self.running()?;
        let wanted = self.0.iter().find(|(_, it)| !it.current_partition && it.partition_state == "updating");
        wanted.map(|(label, it)| (label.as_str(), it.short_version.as_str()))
    }
}
