//! Which lines of a container's log have been passed on.
//!
//! Lines have no number: a line is identified by the moment when it was written, and by its position among
//! lines of that moment. A mark keeps the last moments and not only the newest, because the two streams of a
//! container have two writers: a line may follow one that is a few microseconds younger. The API server takes
//! whole seconds, so its repetitions are removed here. Pure: no clock, no I/O, no task.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use step::{Inserted as _, LiteMap, SmallSort as _};
use topics::{AppLogMoment, GoTime};

/// Number of moments kept.
pub(super) const MOMENTS: usize = 16;

/// How much older a line may be than the one before it.
const SLACK: SignedDuration = SignedDuration::from_secs(1);

/// How far the log of one run of a container has been passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogMark {
    pub(super) restarts: u32,
    /// Lines of forgotten moments were passed on too.
    older: bool,
    moments: VecDeque<(Timestamp, u32)>,
}

impl LogMark {
    /// For a run without passed-on lines.
    pub(super) const fn fresh(restarts: u32) -> Self {
        Self { restarts, older: false, moments: VecDeque::new() }
    }

    pub(super) fn read(restarts: u32, older: bool, moments: &[AppLogMoment]) -> Self {
        let mut moments: Vec<_> = moments.iter().map(|it| (it.at.to_timestamp(), it.lines)).collect();
        moments.order();
        Self { restarts, older, moments: moments.into() }
    }

    pub(super) fn written(&self) -> (bool, Vec<AppLogMoment>) {
        let moment = |(at, lines): &(Timestamp, u32)| AppLogMoment { at: GoTime::from(*at), lines: *lines };
        (self.older, self.moments.iter().map(moment).collect())
    }

    /// Start of the next reading: a second before the oldest moment, because a line of the other writer may
    /// be a little older and lie in the second before.
    pub(super) fn since(&self) -> Option<Timestamp> {
        let oldest = self.oldest()?;
        Some(oldest.saturating_sub(SLACK).unwrap_or(oldest))
    }

    fn oldest(&self) -> Option<Timestamp> {
        self.moments.front().map(|(at, _)| *at)
    }

    /// A line of this moment was passed on.
    pub(super) fn note(&mut self, at: Timestamp) {
        let place = self.moments.partition_point(|(known, _)| *known < at);
        match self.moments.get_mut(place) {
            Some((known, lines)) if *known == at => *lines = lines.saturating_add(1),
            Some(_) | None => self.moments.insert(place, (at, 1)),
        }
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
            self.older = true;
        }
    }
}

/// Finds the new lines of one reading.
#[derive(Debug)]
pub(super) struct Sieve {
    left: LiteMap<Timestamp, u32>,
    floor: Option<Timestamp>,
    /// A known line was met: it is the log that the mark is of.
    pub(super) anchored: bool,
}

impl Sieve {
    pub(super) fn of(mark: &LogMark) -> Self {
        let floor = mark.oldest().filter(|_| mark.older);
        Self { left: mark.moments.iter().copied().into_lite(), floor, anchored: false }
    }

    /// Whether the next line of the log, written then, is new.
    pub(super) fn is_news(&mut self, at: Timestamp) -> bool {
        let known = self.left.get_mut(&at).filter(|left| **left > 0);
        let before = self.floor.is_some_and(|floor| at < floor);
        let news = known.is_none() && !before;
        if let Some(left) = known {
            *left -= 1;
        }
        self.anchored |= !news;
        news
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanosecond(1_773_480_600_000_000_000 + i128::from(nanos)).unwrap()
    }

    /// Reads `log` as a container's node gives it: only lines of the second of `since` and later.
    fn read(mark: &mut LogMark, log: &[i64]) -> Vec<usize> {
        let second = |it: Timestamp| it.as_nanosecond().div_euclid(1_000_000_000);
        let since = mark.since().map(second);
        let mut sieve = Sieve::of(mark);
        let sent =
            log.iter().enumerate().filter(|(_, nanos)| since.is_none_or(|it| second(at(**nanos)) >= it));
        let news: Vec<(usize, i64)> =
            sent.filter(|(_, nanos)| sieve.is_news(at(**nanos))).map(|(nth, nanos)| (nth, *nanos)).collect();
        for (_, nanos) in &news {
            mark.note(at(*nanos));
        }
        news.into_iter().map(|(nth, _)| nth).collect()
    }

    #[test]
    fn lines_of_one_moment_are_counted_and_not_taken_for_one() {
        let mut mark = LogMark::fresh(0);
        assert_eq!(read(&mut mark, &[1, 1, 1]), [0, 1, 2]);
        assert_eq!(read(&mut mark, &[1, 1, 1, 1, 2]), [3, 4]);
        assert_eq!(read(&mut mark, &[1, 1, 1, 1, 2]), [0_usize; 0]);
    }

    #[test]
    fn a_line_behind_a_younger_one_is_not_lost() {
        let mut mark = LogMark::fresh(0);
        assert_eq!(read(&mut mark, &[10, 30]), [0, 1]);
        assert_eq!(read(&mut mark, &[10, 30, 20, 40]), [2, 3]);
        assert_eq!(read(&mut mark, &[10, 30, 20, 40]), [0_usize; 0]);
    }

    #[test]
    fn a_mark_stays_small_and_knows_that_it_forgot() {
        let mut mark = LogMark::fresh(0);
        let log: Vec<i64> = (0..1000).collect();
        assert_eq!(read(&mut mark, &log[..500]).len(), 500);
        assert_eq!(
            (mark.moments.len(), mark.oldest(), mark.since()),
            (MOMENTS, Some(at(484)), Some(at(484 - 1_000_000_000)))
        );
        assert_eq!(read(&mut mark, &log), (500..1000).collect::<Vec<_>>());
        let (older, moments) = mark.written();
        assert_eq!(LogMark::read(0, older, &moments), mark);
    }

    #[test]
    fn a_log_that_begins_anew_has_no_line_that_is_known() {
        let mut mark = LogMark::fresh(0);
        read(&mut mark, &[1, 2]);
        let mut sieve = Sieve::of(&mark);
        assert!(sieve.is_news(at(3)) && !sieve.anchored);
        let mut sieve = Sieve::of(&mark);
        assert!(!sieve.is_news(at(2)) && sieve.anchored);
        assert!(sieve.is_news(at(3)));
        assert!(!Sieve::of(&LogMark::fresh(0)).anchored);
    }

    proptest! {
        /// However a log grows, with moments that repeat and lines that change places, and whenever it is read, each
        /// line is handed on once.
        #[test]
        fn d_k23_each_line_is_news_once(
            steps in proptest::collection::vec((0_i64..600_000_000, 0_u8..4), 1..120),
            swaps in proptest::collection::vec(any::<bool>(), 120),
        ) {
            let (mut log, mut now, mut reads) = (Vec::new(), 0, Vec::new());
            for (wait, what) in &steps {
                now += if *what == 0 { 0 } else { *wait };
                log.push(now);
                reads.push(*what == 3);
            }
            // Two writers: neighbours change places.
            for (nth, swap) in swaps.iter().enumerate().take(log.len().saturating_sub(1)) {
                if *swap && nth % 2 == 0 {
                    log.swap(nth, nth + 1);
                }
            }
            let (mut mark, mut seen) = (LogMark::fresh(0), vec![0; log.len()]);
            reads.push(true);
            for (nth, read_now) in reads.iter().enumerate() {
                if *read_now {
                    let written = (nth + 1).min(log.len());
                    for line in read(&mut mark, &log[..written]) {
                        seen[line] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|times| *times == 1), "{seen:?} of {log:?}");
        }
    }
}
