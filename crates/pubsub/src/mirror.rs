//! What a subscriber knows of a topic, and what it has still to be told.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use crate::{BadFile, Change};

/// The values of one topic as far as they were heard. What is equal is not told.
pub(crate) struct Mirror<T> {
    /// Boxed: one map's code serves all topics, and no node of it keeps room for eleven values.
    values: BTreeMap<String, Box<T>>,
    restarted: u32,
    synced: bool,
    /// Changes that were not yet handed over: at most a few for each key.
    told: VecDeque<Change<T>>,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), restarted: 0, synced: false, told: VecDeque::new() }
    }
}

impl<T: Clone + PartialEq> Mirror<T> {
    /// The next change to hand over.
    pub(crate) fn take(&mut self) -> Option<Change<T>> {
        self.told.pop_front()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        self.values.get(key).map(Box::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_ref()))
    }

    pub(crate) fn put(&mut self, key: &str, value: T) {
        let old = match self.values.get_mut(key) {
            Some(known) if **known == value => return,
            Some(known) => Some(mem::replace(&mut **known, value.clone())),
            None => {
                self.values.insert(key.to_owned(), Box::new(value.clone()));
                None
            }
        };
        self.told.push_back(Change::Put { key: key.to_owned(), value, old });
    }

    pub(crate) fn gone(&mut self, key: &str) {
        if let Some(old) = self.values.remove(key) {
            self.told.push_back(Change::Gone { key: key.to_owned(), old: *old });
        }
    }

    pub(crate) fn count(&mut self, restarted: u32) {
        if mem::replace(&mut self.restarted, restarted) != restarted {
            self.told.push_back(Change::Restarted(restarted));
        }
    }

    /// The first hearing is through.
    pub(crate) fn synced(&mut self) {
        if !mem::replace(&mut self.synced, true) {
            self.told.push_back(Change::Synced);
        }
    }

    pub(crate) const fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether all changes were handed over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.told.is_empty()
    }

    pub(crate) fn bad(&mut self, finding: BadFile) {
        self.told.push_back(Change::Bad(finding));
    }
}
