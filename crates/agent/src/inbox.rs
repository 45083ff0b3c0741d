//! The way of events into an agent.
//!
//! Not here: who hears them (`turn`).

use tokio::sync::mpsc;

/// Events that wait for their turn. Small: writers of facts wait, and facts coalesce before they are sent.
const INBOX_EVENTS: usize = 64;

/// The way in for events.
#[derive(Debug)]
pub struct Outbox<E>(mpsc::Sender<E>);

impl<E> Clone for Outbox<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> Outbox<E> {
    /// Waits for room and hands `event` over; false when the agent is gone. Dropping it before it returns
    /// loses the event.
    pub async fn send(&self, event: E) -> bool {
        self.0.send(event).await.is_ok()
    }
}

/// Where the loop hears events.
#[derive(Debug)]
pub struct Inbox<E>(mpsc::Receiver<E>);

impl<E> Inbox<E> {
    /// The next event, or `None` when nobody can send any more. Dropping it loses nothing.
    pub async fn recv(&mut self) -> Option<E> {
        self.0.recv().await
    }

    /// The next event, where there is one already.
    pub(crate) fn waiting(&mut self) -> Option<E> {
        self.0.try_recv().ok()
    }
}

/// A bounded way for events into one agent.
pub fn inbox<E>() -> (Outbox<E>, Inbox<E>) {
    let (sender, receiver) = mpsc::channel(INBOX_EVENTS);
    (Outbox(sender), Inbox(receiver))
}
