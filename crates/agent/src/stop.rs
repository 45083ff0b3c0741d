//! Leaving in order: one hand says so, every loop hears it.

use tokio::sync::watch;

/// Held by whoever may end the agents. Dropping it stops them too.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Heard by every loop.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop that has not been called, and the hand that calls it.
    pub fn new() -> (Stopper, Self) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Self(receiver))
    }

    /// Whether the agents are to leave.
    pub fn is_stopped(&self) -> bool {
        // Without a stopper there is nobody left who could want anything.
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once the agents are to leave. Dropping it loses nothing.
    pub async fn stopped(&mut self) {
        // An error means that the stopper is gone, which is a stop as well.
        drop(self.0.wait_for(|stop| *stop).await);
    }
}

impl Stopper {
    /// Tells every loop to leave.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}
