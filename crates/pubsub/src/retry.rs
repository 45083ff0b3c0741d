//! When a failed read is repeated: soon, then less and less often.
//!
//! A failed read says nothing about the file: readers keep what they know until a read works.

use std::future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Most reads that fail for want of descriptors or memory work a moment later.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Recovery is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub struct Retry {
    longest: Duration,
    pause: Option<Duration>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Default for Retry {
    fn default() -> Self {
        Self::up_to(LONGEST_PAUSE)
    }
}

impl Retry {
    pub(crate) const fn up_to(longest: Duration) -> Self {
        Self { longest, pause: None, sleep: None }
    }

    /// Starts the next, longer pause. True at the first failure in a row, which is to be reported. Needs a
    /// runtime.
    pub fn failed(&mut self) -> bool {
        let former = self.pause;
        let pause = former.map_or(FIRST_PAUSE, |pause| (pause * 2).min(self.longest));
        self.pause = Some(pause);
        self.sleep = Some(Box::pin(sleep(pause)));
        former.is_none()
    }

    pub fn worked(&mut self) {
        *self = Self::up_to(self.longest);
    }

    pub const fn is_failing(&self) -> bool {
        self.pause.is_some()
    }

    /// Returns when the next try is due; never while the last one worked. Dropping it loses nothing.
    pub async fn due(&mut self) {
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().await,
            None => future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_bound_and_begin_short_again_once_it_worked() {
        #[expect(clippy::disallowed_methods, reason = "the runtime's time stands still in this test")]
        let now = tokio::time::Instant::now;
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        for nth in 0..9 {
            assert_eq!(retry.failed(), nth == 0, "reported at the first failure only");
            let began = now();
            retry.due().await;
            pauses.push(began.elapsed().as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 3_200, 4_000, 4_000]);
        retry.worked();
        assert!(!retry.is_failing() && retry.failed());
        let began = now();
        retry.due().await;
        assert_eq!(began.elapsed(), FIRST_PAUSE);
    }
}
