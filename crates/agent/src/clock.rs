//! The one door to time: monotonic for decisions, wall for display and for members that need it.

pub(crate) mod set;
pub mod sync;

use std::future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use rustix::time::{ClockId, clock_gettime};
use step::Mono;
use tokio::sync::watch;
use tokio::time::Instant;
use topics::GoTime;

/// A smaller difference from the known wall clock is not a change.
const SET: Duration = Duration::from_millis(500);
/// Two readings of the clocks further apart than this are repeated, at most so often.
const APART: (Duration, u8) = (Duration::from_millis(5), 20);

/// The time of the agents. Copies share one start; tokio's paused clock stops it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// The machine's own monotonic time at `start`.
    since_boot: Duration,
    wall: &'static Wall,
}

/// A wall clock. It may be set at any time; the monotonic clock is steered like it and never set, so one
/// value relates the two: the wall-clock time at which the monotonic clock started.
#[derive(Debug)]
struct Wall {
    /// Seconds by which it is wrong; zero except in simulations.
    off_by_secs: AtomicI64,
    /// As of the last [`Clock::look`].
    booted_at: watch::Sender<GoTime>,
}

impl Wall {
    fn new(off_by_secs: i64) -> Self {
        let wall = Self { off_by_secs: AtomicI64::new(off_by_secs), booted_at: watch::Sender::default() };
        wall.booted_at.send_replace(wall.boot());
        wall
    }

    fn now(&self) -> GoTime {
        let now = jiff::Timestamp::now();
        let off_by = SignedDuration::from_secs(self.off_by_secs.load(Ordering::Relaxed));
        GoTime::from(now.checked_add(off_by).unwrap_or(now))
    }

    fn boot(&self) -> GoTime {
        let (far, mut tries) = APART;
        loop {
            let (before, wall) = (since_boot(), self.now());
            tries -= 1;
            // A process that was suspended between two readings would see a step of the clock.
            if since_boot().saturating_sub(before) <= far || tries == 0 {
                return wall.minus(before);
            }
        }
    }
}

/// The machine's own: one for all clocks of a process.
static MACHINE: LazyLock<Wall> = LazyLock::new(|| Wall::new(0));

impl Clock {
    /// A clock whose [`Mono::START`] is the start of the machine's monotonic clock (`CLOCK_MONOTONIC`), so
    /// that processes of one boot agree on it. Read once; from then on the runtime's time counts.
    #[expect(
        clippy::new_without_default,
        reason = "a clock that starts at a default would hide a reading of time"
    )]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn new() -> Self {
        Self { start: Instant::now(), since_boot: since_boot(), wall: &MACHINE }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn now(&self) -> Mono {
        Mono::from_start(self.since_boot) + Instant::now().saturating_duration_since(self.start)
    }

    /// May be wrong and may jump: for display and for members that other programs read.
    pub fn wall(&self) -> GoTime {
        self.wall.now()
    }

    /// Wall-clock time of [`Mono::START`]: added to a [`Mono`], it gives the time of that point.
    pub fn booted_at(&self) -> GoTime {
        self.wall.boot()
    }

    /// [`Clock::booted_at`], and each change of it beyond steering: the wall clock was set. Needs calls of
    /// [`Clock::look`].
    pub fn boots(&self) -> watch::Receiver<GoTime> {
        self.wall.booted_at.subscribe()
    }

    /// Compares the wall clock with the monotonic one, and notifies [`Clock::boots`] when it was set.
    pub fn look(&self) {
        let boot = self.wall.boot();
        self.wall.booted_at.send_if_modified(|known| {
            let set = boot.apart(*known) >= SET;
            if set {
                *known = boot;
            }
            set
        });
    }

    /// For simulations: the same clock on a machine with a wrong wall clock.
    #[must_use]
    pub fn off_by(self, secs: i64) -> Self {
        Self { wall: Box::leak(Box::new(Wall::new(secs))), ..self }
    }

    /// Sets the wall clock of a simulation while its agents run.
    pub fn jump_to_off_by(&self, secs: i64) {
        self.wall.off_by_secs.store(secs, Ordering::Relaxed);
        self.look();
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

    #[tokio::test(start_paused = true)]
    async fn k4_a_clock_that_is_set_is_told_of_and_one_that_is_steered_is_not() {
        let clock = Clock::new().off_by(3);
        let mut boots = clock.boots();
        let years = 10 * 31_557_600;
        for off_by in [years, -years] {
            clock.jump_to_off_by(off_by);
            assert!(boots.has_changed().unwrap());
            let told = *boots.borrow_and_update();
            assert!(told.apart(clock.booted_at()) < SET, "{told}");
            let wall = told.plus(since_boot());
            assert!(wall.apart(clock.wall()) < SET, "{wall}");
            // Hours of the runtime's time say nothing about the wall clock.
            clock.sleep_until(Some(clock.now() + Duration::from_hours(5))).await;
            clock.look();
            assert!(!boots.has_changed().unwrap());
        }
        // Another clock of the same process is another machine's.
        assert!(Clock::new().wall().apart(clock.wall()) > Duration::from_hours(1));
    }
}
