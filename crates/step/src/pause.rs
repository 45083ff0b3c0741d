//! Growing pauses after failures.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::{Mono, doubled};

/// What failed, how often in a row, and the end of the pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePause<T> {
    pub of: T,
    pub failures: u32,
    pub until: Mono,
    pub wait_secs: u64,
    pub reason: String,
}

impl<T: PartialEq> FailurePause<T> {
    /// Another failure of `of`; a failure of something else restarts the count.
    pub fn grow(
        last: Option<Self>,
        of: T,
        reason: String,
        now: Mono,
        (first, longest): (Duration, Duration),
    ) -> Self {
        let before = last.filter(|last| last.of == of).map_or(0, |last| last.failures);
        let failures = before.saturating_add(1);
        let wait = doubled(first, longest, failures);
        Self { of, failures, until: now + wait, wait_secs: wait.as_secs(), reason }
    }

    /// When `of` may be tried, if not yet.
    pub fn holds(this: Option<&Self>, of: &T, now: Mono) -> Option<Mono> {
        this.filter(|pause| pause.of == *of && pause.until > now).map(|pause| pause.until)
    }
}
