//! Deadlines by kind. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use crate::{Mono, SmallSort as _};

/// One deadline for each kind `K` that is armed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timers<K> {
    due: BTreeMap<K, Mono>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Arms or re-arms `kind`.
    pub fn set(&mut self, kind: K, at: Mono) {
        self.due.insert(kind, at);
    }

    pub fn stop(&mut self, kind: K) {
        self.due.remove(&kind);
    }

    pub fn armed(&self, kind: K) -> bool {
        self.due.contains_key(&kind)
    }

    /// When the earliest deadline is due.
    pub fn next(&self) -> Option<Mono> {
        self.due.values().min().copied()
    }

    /// Takes every kind that is due at `now`, earliest first.
    pub fn expired(&mut self, now: Mono) -> Vec<K> {
        let mut due: Vec<(Mono, K)> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(kind, at)| (*at, *kind)).collect();
        due.order();
        for (_, kind) in &due {
            self.due.remove(kind);
        }
        due.into_iter().map(|(_, kind)| kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn deadlines_come_earliest_first_and_once() {
        let mut timers = Timers::default();
        timers.set('b', at(2));
        timers.set('a', at(3));
        timers.set('c', at(9));
        assert_eq!(timers.next(), Some(at(2)));
        assert_eq!(timers.expired(at(3)), ['b', 'a']);
        assert_eq!(timers.expired(at(3)), []);
        assert!(timers.armed('c'));
        timers.stop('c');
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_wait_past_the_end_of_the_clock_is_never() {
        assert_eq!(at(1) + Duration::MAX, Mono::from_start(Duration::MAX));
    }

    #[test]
    fn what_is_ordered_is_sorted_and_what_is_equal_keeps_its_order() {
        let mut numbers = crate::Dice::new(7);
        for length in [0, 1, 2, 3, 7, 64, 500] {
            let mut ordered: Vec<_> = (0..length).map(|at| (numbers.draw() % 9, at)).collect();
            let mut sorted = ordered.clone();
            ordered.order_by_key(|(number, _)| *number);
            sorted.sort_by_key(|(number, _)| *number);
            assert_eq!(ordered, sorted);
        }
    }
}
