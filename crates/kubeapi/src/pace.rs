//! How long to wait before a retry.
//!
//! Not here: sleeping. The first wait is at most 1 s, none is over 15 s, all are jittered. Pure: no
//! clock, no I/O, no task.

use std::time::Duration;

use step::Dice;

pub const FIRST: Duration = Duration::from_secs(1);
pub const LONGEST: Duration = Duration::from_secs(15);

/// A stream of jittered waits. Different seeds give different waits, so that nodes do not retry in step.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    dice: Dice,
}

impl Pace {
    pub const fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed) }
    }

    /// The wait after failure number `tries`, which counts from 1: half to all of 1, 2, 4, 8, 15, 15, … s, but
    /// never under `retry_after`.
    pub fn pause(&mut self, tries: u32, retry_after: Option<Duration>) -> Duration {
        let whole = step::doubled(FIRST, LONGEST, tries);
        let half = whole / 2;
        let share = u32::try_from(self.dice.draw() % 1001).unwrap_or(1000);
        let jittered = half + half * share / 1000;
        jittered.max(retry_after.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_start_at_one_second_double_and_stop_at_fifteen() {
        for seed in 0..200 {
            let mut pace = Pace::new(seed);
            for (tries, most_ms) in
                [(0, 1000), (1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 15000), (4000, 15000)]
            {
                let most = Duration::from_millis(most_ms);
                let pause = pace.pause(tries, None);
                assert!(pause <= most && pause >= most / 2, "{tries}: {pause:?}");
            }
        }
    }

    #[test]
    fn waits_are_jittered() {
        let mut pace = Pace::new(7);
        let waits: std::collections::BTreeSet<Duration> = (0..50).map(|_| pace.pause(5, None)).collect();
        assert!(waits.len() > 25, "{waits:?}");
    }

    #[test]
    fn the_servers_wait_is_the_least() {
        let asked = Duration::from_secs(40);
        assert_eq!(Pace::new(1).pause(1, Some(asked)), asked);
        assert!(Pace::new(1).pause(5, Some(Duration::from_millis(1))) > Duration::from_secs(7));
    }
}
