//! Calls that are completed even when their caller is dropped: where a disruption budget has counted a
//! cut-off eviction, Kubernetes takes the pod for disrupted and allows no other one for two minutes.
//!
//! Not here: which calls (`kubenodeop::drain`), the limit of each (`client`). Source: goals T13.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Counts them. Clones count together.
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
