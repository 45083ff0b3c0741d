//! The values that a subscriber knows, and the changes that it has not yet been given.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::BadFile;
use crate::raw::{AnyValue, Change};

pub(crate) type Same = fn(&AnyValue, &AnyValue) -> bool;

/// The values of one topic as read so far. Equal values are no change.
pub(crate) struct Mirror {
    same: Same,
    values: BTreeMap<String, AnyValue>,
    restarted: u32,
    synced: bool,
    /// Changes that were not yet handed over: at most a few for each key.
    told: VecDeque<Change<AnyValue>>,
}

impl Mirror {
    pub(crate) fn new(same: Same) -> Self {
        Self { same, values: BTreeMap::new(), restarted: 0, synced: false, told: VecDeque::new() }
    }

    pub(crate) fn take(&mut self) -> Option<Change<AnyValue>> {
        self.told.pop_front()
    }

    pub(crate) const fn values(&self) -> &BTreeMap<String, AnyValue> {
        &self.values
    }

    pub(crate) fn put(&mut self, key: &str, value: AnyValue) {
        let old = match self.values.get_mut(key) {
            Some(known) if (self.same)(known, &value) => return,
            Some(known) => Some(mem::replace(known, Arc::clone(&value))),
            None => self.values.insert(key.to_owned(), Arc::clone(&value)),
        };
        self.told.push_back(Change::Put { key: key.to_owned(), value, old });
    }

    pub(crate) fn gone(&mut self, key: &str) {
        if let Some(old) = self.values.remove(key) {
            self.told.push_back(Change::Gone { key: key.to_owned(), old });
        }
    }

    pub(crate) fn count(&mut self, restarted: u32) {
        if mem::replace(&mut self.restarted, restarted) != restarted {
            self.told.push_back(Change::Restarted(restarted));
        }
    }

    /// Marks the end of the first reading.
    pub(crate) fn synced(&mut self) {
        if !mem::replace(&mut self.synced, true) {
            self.told.push_back(Change::Synced);
        }
    }

    pub(crate) const fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.told.is_empty()
    }

    pub(crate) fn bad(&mut self, finding: BadFile) {
        self.told.push_back(Change::Bad(finding));
    }
}
