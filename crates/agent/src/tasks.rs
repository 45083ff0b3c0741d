//! The tasks of an agent and the queue of their events. Every task has one owner, which starts, replaces and cancels
//! it, and no task outlives it.
//!
//! Not here: who receives the events (`turn`).
//!
//! Orderly shutdown: one stopper, and a `Stop` in every loop.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;

/// Waiting events. Small: senders wait, and facts coalesce before they are sent.
const INBOX_EVENTS: usize = 64;

#[derive(Debug)]
pub struct Outbox<E>(mpsc::Sender<E>);

impl<E> Clone for Outbox<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> Outbox<E> {
    /// Waits for room and sends `event`; false when the agent is gone. Dropping it before it returns loses
    /// the event.
    pub async fn send(&self, event: E) -> bool {
        self.0.send(event).await.is_ok()
    }
}

#[derive(Debug)]
pub struct Inbox<E>(mpsc::Receiver<E>);

impl<E> Inbox<E> {
    /// The next event, or `None` when all senders are gone. Dropping it loses nothing.
    pub async fn recv(&mut self) -> Option<E> {
        self.0.recv().await
    }

    /// The next event, if there is one.
    pub(crate) fn waiting(&mut self) -> Option<E> {
        self.0.try_recv().ok()
    }
}

/// A bounded queue of events.
pub fn inbox<E>() -> (Outbox<E>, Inbox<E>) {
    let (sender, receiver) = mpsc::channel(INBOX_EVENTS);
    (Outbox(sender), Inbox(receiver))
}

/// The running tasks of one agent, by name. Dropping it cancels them all.
#[derive(Debug)]
pub struct Tasks<E> {
    outbox: Outbox<E>,
    running: JoinSet<()>,
    named: HashMap<String, AbortHandle>,
}

impl<E: Send + 'static> Tasks<E> {
    pub fn new(outbox: Outbox<E>) -> Self {
        Self { outbox, running: JoinSet::new(), named: HashMap::new() }
    }

    /// Starts `work` under `name`, and replaces a running task of that name. A returned event goes to the
    /// inbox. A replaced task may have sent its event already: events name the request that they belong to.
    pub fn start(&mut self, name: impl Into<String>, work: impl Future<Output = Option<E>> + Send + 'static) {
        self.events(name, move |outbox| async move {
            if let Some(event) = work.await {
                outbox.send(event).await;
            }
        });
    }

    /// Starts a task that reports several events.
    pub fn events<F>(&mut self, name: impl Into<String>, work: impl FnOnce(Outbox<E>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.reap();
        let name = name.into();
        self.cancel(&name);
        // One type for the runtime, so that its code is compiled once.
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work(self.outbox.clone()));
        let handle = self.running.spawn(work);
        self.named.insert(name, handle);
    }

    /// Cancels at the task's next wait; a missing task is no error.
    pub fn cancel(&mut self, name: &str) {
        if let Some(handle) = self.named.remove(name) {
            handle.abort();
        }
    }

    pub fn is_running(&self, name: &str) -> bool {
        self.named.get(name).is_some_and(|handle| !handle.is_finished())
    }

    fn reap(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            if let Err(cause) = ended
                && cause.is_panic()
            {
                error!(error = %cause, "a task of this agent ended by a panic");
            }
        }
        self.named.retain(|_, handle| !handle.is_finished());
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_of_the_same_name_is_replaced() {
        let (outbox, mut inbox) = inbox();
        let mut tasks = Tasks::new(outbox);
        tasks.start("probe", std::future::pending::<Option<u8>>());
        tasks.start("probe", async { Some(2_u8) });
        assert_eq!(inbox.recv().await, Some(2));
        tasks.start("probe", std::future::pending());
        assert!(tasks.is_running("probe"));
        tasks.cancel("probe");
        assert!(!tasks.is_running("probe"));
    }

    #[tokio::test]
    async fn dropping_the_owner_ends_every_task() {
        let (outbox, mut inbox) = inbox::<u8>();
        let mut tasks = Tasks::new(outbox);
        tasks.start("a", std::future::pending());
        drop(tasks);
        // The task held the last way in: an inbox that ends shows that it is gone.
        assert_eq!(inbox.recv().await, None);
    }
}
