//! Orderly shutdown: one stopper, and a `Stop` in every loop.

use tokio::sync::watch;

/// Held by the program that ends the agents. Dropping it stops them too.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub fn new() -> (Stopper, Self) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Self(receiver))
    }

    pub fn is_stopped(&self) -> bool {
        // Without a stopper the agents are to end.
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once the agents are to end. Dropping it loses nothing.
    pub async fn stopped(&mut self) {
        drop(self.0.wait_for(|stop| *stop).await);
    }
}

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}
