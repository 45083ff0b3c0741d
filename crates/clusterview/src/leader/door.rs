//! The way from the rest of this agent into the election.

use std::time::Duration;

use agent::Clock;
use tokio::sync::watch;
use tracing::warn;

use super::candidacy::Candidacy;

/// Tells the election what the drain leaves of it. The election may be down at any moment: nothing here waits for it
/// but the hand-over of the lease, and that for a limited time.
pub struct Door {
    candidacy: watch::Sender<Option<Candidacy>>,
    clear: watch::Receiver<bool>,
    clock: Clock,
    patience: Duration,
}

impl Door {
    pub(super) fn new(
        candidacy: watch::Sender<Option<Candidacy>>,
        clear: watch::Receiver<bool>,
        clock: Clock,
        patience: Duration,
    ) -> Self {
        Self { candidacy, clear, clock, patience }
    }

    /// Passes `candidacy` on. Once it is closed, waits until the lease is released, or until that takes too long:
    /// a drain that is done must not fail because of it. Dropping it loses the wait alone.
    pub async fn announce(&mut self, candidacy: Candidacy) {
        self.candidacy.send_replace(Some(candidacy));
        if candidacy == Candidacy::Closed {
            cleared(&mut self.clear, self.clock, self.patience, "the drain").await;
        }
    }
}

/// Waits until the lease is released, or until that takes too long.
pub(super) async fn cleared(clear: &mut watch::Receiver<bool>, clock: Clock, patience: Duration, what: &str) {
    let late = clock.sleep_until(Some(clock.now() + patience));
    tokio::select! {
        biased;
        // An error means that the election has ended: then nobody is waited for.
        ended = clear.wait_for(|clear| *clear) => drop(ended),
        () = late => warn!(
            secs = patience.as_secs_f32(),
            "the lease could not be released in time, {what} continues without; the others take it once it has run out"
        ),
    }
}
