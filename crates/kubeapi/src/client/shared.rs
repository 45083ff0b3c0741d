//! Answers shared by several callers: lists that are read once in a look, and the server's clock. Not here:
//! the calls (`client`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::OnceCell;
use tokio::time::Instant;

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
