//! Maps and sets of what an iterator gives, one after another: `collect` sorts first, and each type that is sorted costs
//! an image 3 KB. For the few values that an agent has at a time nothing is lost by it.

use std::collections::{BTreeMap, BTreeSet};

/// The small `collect` into what is ordered.
pub trait Inserted: Iterator + Sized {
    /// A map; of two values with one key the later stays.
    fn into_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }

    fn into_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

impl<I: Iterator> Inserted for I {}
