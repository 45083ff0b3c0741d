//! When the log of one container is read, which run of it, and what of it is news.
//!
//! The API server reports the run of a container a moment after it has begun, and its log is that of the new run by
//! then. So a reading that meets no line handed on before is doubted: it is begun again [`DOUBT`] later, and counts if
//! the run is still the same. Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::pods::{ContainerState, LogLine};
use step::Mono;

use super::marks::{LogMark, Sieve};

/// From the end of one reading to the next (spec/agents.md 4.1).
pub const ROUND: Duration = Duration::from_secs(10);
/// The same after a reading that was cut because it was long.
pub const AGAIN: Duration = Duration::from_secs(1);
/// How long a reading without a known line is doubted.
pub const DOUBT: Duration = Duration::from_secs(2);
/// The same while the pod is about to go: its containers are not started again, and its log goes with it.
pub(super) const LAST_DOUBT: Duration = Duration::from_millis(250);
/// As often a container whose pod is about to go is read each second, after each change of it.
const LAST_READS: u32 = 60;

/// The newest run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerRun {
    pub(super) restarts: u32,
    pub(super) state: ContainerState,
    /// Its pod has been asked to end, or has come to its end: what it still says is read soon.
    pub(super) ending: bool,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogRange {
    pub(super) previous: bool,
    pub(super) since: Option<jiff::Timestamp>,
    pub(super) ended: bool,
    /// Runs before that one have ended unread.
    pub(super) missed: bool,
}

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// With all that there was.
    Whole,
    Cut,
    /// At a line that may be of another run.
    Doubtful,
    /// The server will not give this log.
    Refused,
    /// It can be tried again.
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
    mark: LogMark,
    run: ContainerRun,
    /// When it is read next; `None` while there is nothing to read.
    next: Option<Mono>,
    /// The last reading met no known line, and the run is still the same.
    doubted: bool,
    reading: Option<LogReading>,
    /// The run has changed during the reading.
    hurry: bool,
    /// Readings since the last change of the run.
    reads: u32,
}

impl ContainerTrack {
    /// A container that is read at once.
    pub(super) fn new(mark: Option<LogMark>, run: ContainerRun, now: Mono) -> Self {
        let mark = mark.unwrap_or(LogMark::fresh(run.restarts));
        Self { mark, run, next: Some(now), doubted: false, reading: None, hurry: false, reads: 0 }
    }

    pub(super) fn mark(&self) -> &LogMark {
        &self.mark
    }

    pub(super) fn into_mark(self) -> LogMark {
        self.mark
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// When [`ContainerTrack::due`] has something to say.
    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.next.filter(|_| self.reading.is_none())
    }

    /// Its newest run as it is now. Another one, and each change of it, is read at once.
    pub(super) fn see(&mut self, now: Mono, run: ContainerRun) {
        if run != self.run {
            self.run = run;
            (self.doubted, self.reads) = (false, 0);
            self.next = Some(now);
            self.hurry = self.reading.is_some();
        }
    }

    /// What is to be read now, if anything. A reading has begun then.
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
                // Only the newest of the ended runs is kept by the node.
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

    /// The news among the next lines of the reading; `None` when it is not certain that they are of this run.
    pub(super) fn sift(&mut self, lines: Vec<LogLine>) -> Option<Vec<LogLine>> {
        let Some(reading) = &mut self.reading else { return Some(Vec::new()) };
        let mut news = Vec::new();
        for line in lines {
            if !reading.sieve.is_news(line.at) {
                continue;
            }
            if !reading.sieve.is_anchored() && !self.doubted {
                return None;
            }
            news.push(line);
        }
        Some(news)
    }

    /// A line of this moment has been handed on.
    pub(super) fn note(&mut self, at: jiff::Timestamp) {
        self.mark.note(at);
    }

    /// The reading has ended.
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
            // It says nothing more.
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
