//! What a topic publishes now, for the tasks of its peers.
//!
//! Not here: what each peer has received (`peer`).

use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct PublishedValue {
    /// Differs at each change of the topic; never 0.
    pub(crate) state: u64,
    pub(crate) disk: Arc<[u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct SocketBoard {
    pub(crate) values: BTreeMap<String, PublishedValue>,
    pub(crate) restarted: u32,
    /// Keys of earlier publishers of this boot: a peer may know them, also where they are gone by now.
    pub(crate) former: Vec<String>,
    states: u64,
}

impl SocketBoard {
    pub(super) fn new(former: Vec<String>) -> Self {
        Self { former, ..Self::default() }
    }

    /// Returns whether the value is new.
    pub(super) fn put(&mut self, key: &str, disk: Arc<[u8]>) -> bool {
        if self.values.get(key).is_some_and(|held| held.disk == disk) {
            return false;
        }
        self.states += 1;
        self.values.insert(key.to_owned(), PublishedValue { state: self.states, disk });
        true
    }
}
