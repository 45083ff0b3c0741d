//! The one door to time: monotonic for decisions, wall for display and for members that need it.

use std::future;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use step::Mono;
use tokio::time::Instant;
use topics::GoTime;

/// Time as the agents see it. Copies share one start; under tokio's paused clock it stands still with it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// The machine's own monotonic time at `start`.
    since_boot: Duration,
    /// By how much the wall clock is wrong.
    off_by: jiff::SignedDuration,
}

impl Clock {
    /// A clock whose [`Mono::START`] is the start of the machine's monotonic clock (`CLOCK_MONOTONIC`), so that
    /// processes of one boot agree on it. The machine is asked once; from then on the runtime's time counts.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a clock that starts at a default would hide a reading of time"
    )]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn new() -> Self {
        Self { start: Instant::now(), since_boot: since_boot(), off_by: jiff::SignedDuration::ZERO }
    }

    /// The monotonic time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn now(&self) -> Mono {
        Mono::from_start(self.since_boot) + Instant::now().saturating_duration_since(self.start)
    }

    /// The wall clock, which may be wrong and may jump: for display and for members that other programs read.
    #[must_use]
    pub fn wall(&self) -> GoTime {
        let now = jiff::Timestamp::now();
        GoTime::from(now.checked_add(self.off_by).unwrap_or(now))
    }

    /// The same clock on a machine whose wall clock is wrong by so many seconds: for simulations.
    #[must_use]
    pub const fn off_by(self, secs: i64) -> Self {
        Self { off_by: jiff::SignedDuration::from_secs(secs), ..self }
    }

    /// Returns at `due`, or never for `None`. Dropping it loses nothing.
    pub async fn sleep_until(&self, due: Option<Mono>) {
        let wait = |due: Mono| due.since(Mono::from_start(self.since_boot));
        match due.and_then(|due| self.start.checked_add(wait(due))) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => future::pending().await,
        }
    }
}

/// What the machine's monotonic clock shows.
fn since_boot() -> Duration {
    let shown = clock_gettime(ClockId::Monotonic);
    // It starts at zero: neither part is negative.
    Duration::new(shown.tv_sec.unsigned_abs(), u32::try_from(shown.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_clocks_of_one_boot_agree_and_the_runtimes_time_moves_them() {
        let before = since_boot();
        let (first, second) = (Clock::new(), Clock::new());
        let after = since_boot();
        for clock in [first, second] {
            assert!((before..=after).contains(&clock.now().since_start()), "{clock:?}");
        }
        let due = first.now() + Duration::from_secs(7);
        first.sleep_until(Some(due)).await;
        assert_eq!(first.now(), due);
        // A point that has passed is not waited for.
        first.sleep_until(Some(Mono::START)).await;
        assert_eq!(first.now(), due);
    }
}
