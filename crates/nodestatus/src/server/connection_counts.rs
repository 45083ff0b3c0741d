//! Who is connected: a bound on all, and one on those of one address, so that one peer cannot keep the others out.
//!
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::collections::HashMap;

/// Connections at once, counted.
#[derive(Debug)]
pub(super) struct ConnectionCounts {
    most: usize,
    most_of_one: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl ConnectionCounts {
    /// Room for so many, and for so many of one address.
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, by_address: HashMap::new() }
    }

    /// Counts a connection in; false where there is no room for it.
    pub(super) fn admit(&mut self, from: IpAddr) -> bool {
        let of_one = self.by_address.get(&from).copied().unwrap_or_default();
        let all: usize = self.by_address.values().sum();
        if all >= self.most || of_one >= self.most_of_one {
            return false;
        }
        self.by_address.insert(from, of_one + 1);
        true
    }

    /// Counts one out that was admitted.
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
        assert_eq!([a, a, a, b, c].map(|it| counts.admit(it)), [true, true, false, true, false]);
        counts.leave(a);
        assert!(counts.admit(c));
        for it in [a, b, c] {
            counts.leave(it);
        }
        // Addresses of the past are not kept.
        assert_eq!(counts.by_address.len(), 0);
    }
}
