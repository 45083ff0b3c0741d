//! This node's answer to its peers, behind `/outage`: built by zedkube.
//!
//! Made one at a time, once a second at most, and within a limit. Not here: its content.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use step::Mono;
use tokio::sync::Semaphore;

/// As JSON. Dropping the future loses nothing.
pub type Make = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// How long a statement is used.
const FRESH: Duration = Duration::from_secs(1);

/// Made on demand.
pub(crate) struct OutageStatement {
    make: Make,
    clock: Clock,
    limit: Duration,
    last: Mutex<Option<(Mono, Bytes)>>,
    turn: Semaphore,
}

impl OutageStatement {
    /// No caller waits longer than `limit`.
    pub(crate) fn new(make: Make, clock: Clock, limit: Duration) -> Self {
        Self { make, clock, limit, last: Mutex::default(), turn: Semaphore::new(1) }
    }

    /// At most a second old; `None` when it is late. Dropping it loses nothing.
    pub(super) async fn read(&self) -> Option<Bytes> {
        tokio::time::timeout(self.limit, self.fresh()).await.ok().flatten()
    }

    async fn fresh(&self) -> Option<Bytes> {
        let _turn = self.turn.acquire().await.ok()?;
        if let Some((at, made)) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner)
            && self.clock.now().since(*at) < FRESH
        {
            return Some(made.clone());
        }
        let asked = self.clock.now();
        let made = Bytes::from((self.make)().await);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, made.clone()));
        Some(made)
    }
}
