//! The way from the rest of this agent into the election.

use std::time::Duration;

use agent::{Clock, Outbox};
use tokio::sync::watch;
use tracing::warn;

use super::core::Event;
use crate::core::Candidacy;

/// Tells the election what the drain leaves of it.
pub(crate) struct Door {
    outbox: Outbox<Event>,
    clear: watch::Receiver<bool>,
    clock: Clock,
    patience: Duration,
}

impl Door {
    pub(super) fn new(
        outbox: Outbox<Event>,
        clear: watch::Receiver<bool>,
        clock: Clock,
        patience: Duration,
    ) -> Self {
        Self { outbox, clear, clock, patience }
    }

    /// Passes `candidacy` on. Once it is closed, waits until the lease is given back, or until that takes too long:
    /// a drain that is done must not fail because of it. Dropping it loses the wait alone.
    pub(crate) async fn tell(&mut self, candidacy: Candidacy) {
        if self.outbox.send(Event::Candidacy(candidacy)).await && candidacy == Candidacy::Closed {
            self.cleared("the drain").await;
        }
    }

    /// Leaves the election, and waits likewise.
    pub(super) async fn leave(&mut self) {
        if self.outbox.send(Event::Leaving).await {
            self.cleared("leaving").await;
        }
    }

    async fn cleared(&mut self, what: &str) {
        let late = self.clock.sleep_until(Some(self.clock.now() + self.patience));
        tokio::select! {
            biased;
            // An error means that the election has ended: then nobody is waited for.
            ended = self.clear.wait_for(|clear| *clear) => drop(ended),
            () = late => warn!(
                secs = self.patience.as_secs_f32(),
                "the lease could not be given back in time, {what} goes on without; the others take it once it has \
                 run out"
            ),
        }
    }
}
