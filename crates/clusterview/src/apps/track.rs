//! When the log of one container is read, which run of it, and which lines are new.
//!
//! The API server reports a run of a container a moment after it has begun, when its log is already that of
//! the new run. So a reading without a known line is doubted: it is repeated [`DOUBT`] later, and counts if
//! the run is still the same. Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::pods::{ContainerState, LogLine, LogRange};
use step::Mono;

use super::marks::{LogMark, Sieve};

/// Between two readings.
pub const ROUND: Duration = Duration::from_secs(10);
/// The same after a reading that was cut for its length.
pub const AGAIN: Duration = Duration::from_secs(1);
/// How long a reading without a known line is doubted.
pub const DOUBT: Duration = Duration::from_secs(2);
/// The same for an ending pod: its containers are not restarted, and its log goes with it.
pub(super) const LAST_DOUBT: Duration = Duration::from_millis(250);
/// Readings, one a second, of a container in an ending pod, after each change of it.
const LAST_READS: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerRun {
    pub(super) restarts: u32,
    pub(super) state: ContainerState,
    /// Its pod is ending or has ended: its last lines are read soon.
    pub(super) ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// To the end of the log.
    Whole,
    Cut,
    /// At a line that may be of another run.
    Doubtful,
    /// The server refuses this log.
    Refused,
    /// Worth a retry.
    Failed,
}

#[derive(Debug)]
struct LogReading {
    sieve: Sieve,
    previous: bool,
    ended: bool,
}

#[derive(Debug)]
pub(super) struct ContainerTrack {
    pub(super) mark: LogMark,
    run: ContainerRun,
    /// `None` while there is nothing to read.
    next: Option<Mono>,
    /// The last reading met no known line, and the run is still the same.
    doubted: bool,
    reading: Option<LogReading>,
    /// The run has changed during the reading.
    hurry: bool,
    reads: u32,
}

impl ContainerTrack {
    /// Due at once.
    pub(super) fn new(mark: Option<LogMark>, run: ContainerRun, now: Mono) -> Self {
        let mark = mark.unwrap_or(LogMark::fresh(run.restarts));
        Self { mark, run, next: Some(now), doubted: false, reading: None, hurry: false, reads: 0 }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.next.filter(|_| self.reading.is_none())
    }

    /// Updates its newest run. A new or changed run is read at once.
    pub(super) fn see(&mut self, now: Mono, run: ContainerRun) {
        if run != self.run {
            self.run = run;
            (self.doubted, self.reads) = (false, 0);
            self.next = Some(now);
            self.hurry = self.reading.is_some();
        }
    }

    /// The next reading, if due; starts it.
    pub(super) fn due(&mut self, now: Mono) -> Option<LogRange> {
        if self.next_wake().is_none_or(|at| now < at) {
            return None;
        }
        let newest = self.run.restarts;
        let (mut previous, mut missed) = (false, false);
        if self.mark.restarts > newest {
            self.mark = LogMark::fresh(newest);
        }
        if let Some(before) = newest.checked_sub(1).filter(|_| self.mark.restarts < newest) {
            match self.run.state {
                ContainerState::Running | ContainerState::Ended => {
                    missed = self.mark.restarts < before;
                    if missed {
                        self.mark = LogMark::fresh(before);
                    }
                    previous = true;
                }
                // Of ended runs the node keeps only the newest.
                ContainerState::BackingOff => {
                    missed = true;
                    self.mark = LogMark::fresh(newest);
                }
                ContainerState::Waiting => {}
            }
        }
        let ended = previous || matches!(self.run.state, ContainerState::Ended | ContainerState::BackingOff);
        if !ended && self.run.state == ContainerState::Waiting {
            self.next = None;
            return None;
        }
        self.reading = Some(LogReading { sieve: Sieve::of(&self.mark), previous, ended });
        Some(LogRange { previous, since: self.mark.since(), ended, missed })
    }

    /// New lines of the reading; `None` when they may be of another run.
    pub(super) fn sift(&mut self, lines: Vec<LogLine>) -> Option<Vec<LogLine>> {
        let Some(reading) = &mut self.reading else { return Some(Vec::new()) };
        let mut news = Vec::new();
        for line in lines {
            if !reading.sieve.is_news(line.at) {
                continue;
            }
            if !reading.sieve.anchored && !self.doubted {
                return None;
            }
            news.push(line);
        }
        Some(news)
    }

    pub(super) fn ended(&mut self, now: Mono, outcome: ReadEnd) {
        let Some(reading) = self.reading.take() else { return };
        self.doubted = outcome == ReadEnd::Doubtful && !self.hurry;
        self.reads = self.reads.saturating_add(1);
        let last = self.run.ending && self.reads <= LAST_READS;
        let through = reading.previous && matches!(outcome, ReadEnd::Whole | ReadEnd::Refused);
        if through {
            self.mark = LogMark::fresh(self.mark.restarts.saturating_add(1));
        }
        self.next = match outcome {
            _ if through || self.hurry => Some(now),
            // There will be no more lines.
            ReadEnd::Whole if reading.ended => None,
            ReadEnd::Whole | ReadEnd::Refused | ReadEnd::Failed if !last => Some(now + ROUND),
            ReadEnd::Whole | ReadEnd::Refused | ReadEnd::Failed | ReadEnd::Cut => Some(now + AGAIN),
            ReadEnd::Doubtful => Some(now + if last { LAST_DOUBT } else { DOUBT }),
        };
        self.hurry = false;
    }
}

#[cfg(test)]
mod tests;
