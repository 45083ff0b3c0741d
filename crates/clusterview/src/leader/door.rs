//! The drain's handle on the election.

use std::time::Duration;

use agent::Clock;
use tokio::sync::watch;
use tracing::warn;

use super::candidacy::Candidacy;

/// Passes the drain's candidacy on. The election may be down at any moment: only the release of the lease is
/// waited for, with a limit.
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

    /// Passes `candidacy` on. For `Closed`, waits until the lease is released, or until the limit: a finished
    /// drain must not fail because of it. Dropping it ends the wait only.
    pub async fn announce(&mut self, candidacy: Candidacy) {
        self.candidacy.send_replace(Some(candidacy));
        if candidacy == Candidacy::Closed {
            cleared(&mut self.clear, self.clock, self.patience, "the drain").await;
        }
    }
}

/// Waits until the lease is released, with a limit.
pub(super) async fn cleared(clear: &mut watch::Receiver<bool>, clock: Clock, patience: Duration, what: &str) {
    let late = clock.sleep_until(Some(clock.now() + patience));
    tokio::select! {
        biased;
        // An error means that the election has ended.
        ended = clear.wait_for(|clear| *clear) => drop(ended),
        () = late => warn!(
            secs = patience.as_secs_f32(),
            "the lease could not be released in time, {what} continues without; the others take it once it has run out"
        ),
    }
}
