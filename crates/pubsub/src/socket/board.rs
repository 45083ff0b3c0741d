//! What a topic publishes now, for the tasks of its peers.
//!
//! Not here: what each peer has heard of it (`peer`).

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value that is published.
#[derive(Debug, Clone)]
pub(crate) struct PublishedValue {
    /// Differs at each change of the topic; never 0.
    pub(crate) state: u64,
    /// Its form on disk.
    pub(crate) disk: Arc<[u8]>,
}

/// What is published now.
#[derive(Debug, Default)]
pub(crate) struct SocketBoard {
    pub(crate) values: BTreeMap<String, PublishedValue>,
    pub(crate) restarted: u32,
    /// Keys of earlier processes of this boot: a peer may know them from one, also where they are gone by now.
    pub(crate) former: Vec<String>,
    states: u64,
}

impl SocketBoard {
    /// Nothing is published yet; peers may know the keys `former`.
    pub(super) fn new(former: Vec<String>) -> Self {
        Self { former, ..Self::default() }
    }

    /// Puts up a value, unless it is known; whether it was not.
    pub(super) fn put(&mut self, key: &str, disk: Arc<[u8]>) -> bool {
        if self.values.get(key).is_some_and(|held| held.disk == disk) {
            return false;
        }
        self.states += 1;
        self.values.insert(key.to_owned(), PublishedValue { state: self.states, disk });
        true
    }
}
