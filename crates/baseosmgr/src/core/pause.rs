//! Growing pauses after failures.
//!
//! Pure: no clock, no I/O, no task.

use step::Mono;

use crate::Limits;

/// What failed, how often in a row, and the end of the pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailurePause<T> {
    pub(super) of: T,
    pub(super) failures: u32,
    pub(super) until: Mono,
    pub(super) wait_secs: u64,
    pub(super) reason: String,
}

impl<T: PartialEq> FailurePause<T> {
    /// Another failure of `of`; a failure of something else restarts the count.
    pub(super) fn grow(last: Option<Self>, of: T, reason: String, now: Mono, limits: &Limits) -> Self {
        let before = last.filter(|last| last.of == of).map_or(0, |last| last.failures);
        let failures = before.saturating_add(1);
        let wait = limits.again(failures);
        Self { of, failures, until: now + wait, wait_secs: wait.as_secs(), reason }
    }

    /// When `of` may be tried, if not yet.
    pub(super) fn holds(this: Option<&Self>, of: &T, now: Mono) -> Option<Mono> {
        this.filter(|pause| pause.of == *of && pause.until > now).map(|pause| pause.until)
    }
}
