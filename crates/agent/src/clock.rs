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

/// A wall clock that differs by less than this from what is known of it has not been set.
const SET: Duration = Duration::from_millis(500);
/// Two readings of the clocks that lie further apart than this are made again, so often at most.
const APART: (Duration, u8) = (Duration::from_millis(5), 20);

/// Time as the agents see it. Copies share one start; under tokio's paused clock it stands still with it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// The machine's own monotonic time at `start`.
    since_boot: Duration,
    wall: &'static Wall,
}

/// A wall clock. It may be set at any time; the monotonic clock is steered like it and never set, so that one time
/// says how the two are related: that at which the monotonic clock started.
#[derive(Debug)]
struct Wall {
    /// By how many seconds it is wrong; never zero but in simulations.
    off_by_secs: AtomicI64,
    /// When the monotonic clock started, by the wall clock as it was looked at last.
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
            // A process that had to wait between two readings would take that for a step of the clock.
            if since_boot().saturating_sub(before) <= far || tries == 0 {
                return wall.minus(before);
            }
        }
    }
}

/// The machine's own: one for all clocks of a process.
static MACHINE: LazyLock<Wall> = LazyLock::new(|| Wall::new(0));

impl Clock {
    /// A clock whose [`Mono::START`] is the start of the machine's monotonic clock (`CLOCK_MONOTONIC`), so that
    /// processes of one boot agree on it. The machine is asked once; from then on the runtime's time counts.
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

    /// The wall clock, which may be wrong and may jump: for display and for members that other programs read.
    pub fn wall(&self) -> GoTime {
        self.wall.now()
    }

    /// When the monotonic clock started, by the wall clock as it is now: added to a [`Mono`], the time of that point.
    pub fn booted_at(&self) -> GoTime {
        self.wall.boot()
    }

    /// [`Clock::booted_at`], and each change of it by more than steering brings: the wall clock was set. Somebody has
    /// to [`Clock::look`].
    pub fn boots(&self) -> watch::Receiver<GoTime> {
        self.wall.booted_at.subscribe()
    }

    /// Compares the wall clock with the monotonic one; that it was set is told to all that [`Clock::boots`] knows.
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

    /// The same clock on a machine whose wall clock is wrong by so many seconds: for simulations.
    #[must_use]
    pub fn off_by(self, secs: i64) -> Self {
        // Clocks are copied freely; a simulation has few of these.
        Self { wall: Box::leak(Box::new(Wall::new(secs))), ..self }
    }

    /// Sets the wall clock of a simulation while its agents run: from now on it is wrong by so many seconds.
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
