//! Answers shared by several callers: lists that are read once in a look, and the server's clock. Not here:
//! the calls (`client`).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, timeout};

use crate::settling::now;

/// How long the date of an answer is used.
const FRESH: Duration = Duration::from_mins(1);

pub(super) type DatedBody = (Vec<u8>, Option<Timestamp>);

/// The lists of one collection, each read once. A failed list is read again.
pub(super) struct SharedReads {
    path: String,
    read: Mutex<BTreeMap<String, Arc<OnceCell<DatedBody>>>>,
}

impl SharedReads {
    pub(super) fn of(path: String) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// The cell for the answer to `request`, where others may use it too.
    pub(super) fn of_request(&self, request: &Request<Vec<u8>>) -> Option<Arc<OnceCell<DatedBody>>> {
        if request.method() != Method::GET || request.uri().path() != self.path {
            return None;
        }
        // A panic of another reader leaves each entry whole.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(read.entry(request.uri().to_string()).or_default()))
    }
}

/// The server's clock; `None` where it is unknown.
#[derive(Clone, Copy)]
pub struct ServerDate(pub Option<Timestamp>);

#[derive(Clone, Default)]
pub(super) struct ServerDates(Arc<Mutex<Option<(ServerDate, Instant)>>>);

impl ServerDates {
    pub(super) fn take(&self, date: Option<Timestamp>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((ServerDate(date), now()));
    }

    pub(super) fn now(&self) -> Option<ServerDate> {
        let (date, at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let age = now().duration_since(at);
        let since = SignedDuration::try_from(age).unwrap_or_default();
        (age <= FRESH).then(|| ServerDate(date.0.map(|it| it.saturating_add(since).unwrap_or(it))))
    }
}

/// Calls that are completed even when their caller is dropped: where a disruption budget has counted a cut-off eviction,
/// Kubernetes takes the pod for disrupted and allows no other one for two minutes. Clones count together. Source: goals T13.
#[derive(Debug, Clone)]
pub(crate) struct CallsUnderWay(watch::Sender<usize>);

impl Default for CallsUnderWay {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|it| *it = it.saturating_sub(1));
    }
}

impl CallsUnderWay {
    /// Starts `call` now; it ends by itself.
    pub(crate) fn to_its_end<T, F>(&self, call: F) -> impl Future<Output = T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.0.send_modify(|it| *it += 1);
        let counted = Counted(self.0.clone());
        #[expect(clippy::disallowed_methods, reason = "it outlives who asked; `ended` waits for it")]
        let task = tokio::spawn(async move {
            let _counted = counted;
            call.await
        });
        async move {
            match task.await {
                Ok(done) => done,
                Err(cause) if cause.is_panic() => std::panic::resume_unwind(cause.into_panic()),
                // The runtime is being shut down.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Waits up to `limit` until none is under way; returns whether none is. Dropping it loses nothing.
    pub(crate) async fn ended(&self, limit: Duration) -> bool {
        let mut count = self.0.subscribe();
        let none = timeout(limit, count.wait_for(|it| *it == 0)).await;
        matches!(none, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test(start_paused = true)]
    async fn t13_a_call_that_nobody_waits_for_comes_to_its_end_and_can_be_waited_for_so_long() {
        let calls = CallsUnderWay::default();
        let (sender, begun) = oneshot::channel();
        let (answer, answered) = oneshot::channel::<()>();
        let call = calls.to_its_end(async move {
            assert!(sender.send(()).is_ok());
            answered.await
        });
        begun.await.unwrap();
        drop(call);
        assert!(!calls.clone().ended(Duration::from_secs(5)).await);
        answer.send(()).unwrap();
        assert!(calls.ended(Duration::from_secs(5)).await);
        assert_eq!(calls.to_its_end(async { 7 }).await, 7);
    }
}
