//! Limits of connections: of all, and of one address, so that one peer cannot block others. The last places
//! are reserved for nodes of the cluster, which ask each other before one of them goes down.
//!
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::collections::HashMap;

/// Share reserved for nodes of the cluster: 8 of 64.
const KEPT_PART: usize = 8;

#[derive(Debug)]
pub(super) struct ConnectionCounts {
    most: usize,
    most_of_one: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl ConnectionCounts {
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, by_address: HashMap::new() }
    }

    /// Counts a connection; false where there is no room. `is_node` is called only for the reserved places.
    pub(super) fn admit(&mut self, from: IpAddr, is_node: impl FnOnce() -> bool) -> bool {
        let of_one = self.by_address.get(&from).copied().unwrap_or_default();
        let all: usize = self.by_address.values().sum();
        let kept = self.most / KEPT_PART;
        if all >= self.most || of_one >= self.most_of_one || (all + kept >= self.most && !is_node()) {
            return false;
        }
        self.by_address.insert(from, of_one + 1);
        true
    }

    pub(super) fn leave(&mut self, from: IpAddr) {
        let left = self.by_address.get(&from).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            self.by_address.remove(&from);
        } else {
            self.by_address.insert(from, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_fills_its_own_part_and_all_together_fill_the_whole() {
        let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().unwrap());
        let mut counts = ConnectionCounts::new(3, 2);
        assert_eq!([a, a, a, b, c].map(|it| counts.admit(it, || false)), [true, true, false, true, false]);
        counts.leave(a);
        assert!(counts.admit(c, || false));
        for it in [a, b, c] {
            counts.leave(it);
        }
        // Old addresses are dropped.
        assert_eq!(counts.by_address.len(), 0);
    }

    #[test]
    fn the_last_places_are_for_nodes_of_the_cluster() {
        let mut counts = ConnectionCounts::new(64, 16);
        let others = (0..60).map(|it| IpAddr::from([10, 1, 0, it]));
        assert_eq!(others.filter(|it| counts.admit(*it, || false)).count(), 56);
        let nodes = (0..9).map(|it| IpAddr::from([10, 2, 0, it]));
        assert_eq!(nodes.filter(|it| counts.admit(*it, || true)).count(), 8);
        counts.leave([10, 1, 0, 1].into());
        assert!(
            !counts.admit([10, 1, 0, 1].into(), || false),
            "a place that is free again is a node's first"
        );
    }
}
