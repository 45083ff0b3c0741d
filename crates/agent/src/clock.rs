//! The one door to time: monotonic for decisions, wall for display and for members that need it.

use std::future;

use step::Mono;
use tokio::time::Instant;
use topics::GoTime;

/// Time as the agents see it. Copies share one start; under tokio's paused clock it stands still with it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose [`Mono::START`] is now.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a clock that starts at a default would hide a reading of time"
    )]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// The monotonic time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
    pub fn now(&self) -> Mono {
        Mono::from_start(Instant::now().saturating_duration_since(self.start))
    }

    /// The wall clock, which may be wrong and may jump: for display and for members that other programs read.
    #[must_use]
    pub fn wall(&self) -> GoTime {
        GoTime::from(jiff::Timestamp::now())
    }

    /// Returns at `due`, or never for `None`. Dropping it loses nothing.
    pub async fn sleep_until(&self, due: Option<Mono>) {
        match due.and_then(|due| self.start.checked_add(due.since_start())) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => future::pending().await,
        }
    }
}
