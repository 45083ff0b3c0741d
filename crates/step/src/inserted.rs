//! Maps and sets filled one by one: `collect` sorts first, which costs an image 3 KB for each sorted type.
//! For an agent's few values this is no loss.

use std::collections::{BTreeMap, BTreeSet};

/// A small `collect` for ordered collections.
pub trait Inserted: Iterator + Sized {
    /// Of two values with one key the later stays.
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
