//! When an attempt is expected to be done.
//!
//! Not here: what is counted (`index`). Source: goals O1.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use crate::progress::Counts;

/// The moment at which the attempt would be done: the pods that wait go at the pace of those that went, the last
/// that is ending takes its whole grace period, and the proof follows. `None` while something is blocked, and
/// while pods wait and none has gone.
pub(super) fn estimate(
    now: Mono,
    started: Mono,
    counts: Counts,
    last_grace: Option<Mono>,
    proof: Duration,
) -> Option<Mono> {
    let Counts { gone, going: _, waiting, blocked, total } = counts;
    if blocked > 0 || total == 0 || (waiting > 0 && gone == 0) {
        return None;
    }
    let pace = now.since(started) / gone.max(1);
    let asked = pace.saturating_mul(waiting);
    let ending = last_grace.map(|at| at.since(now)).unwrap_or_default();
    Some(now + asked.saturating_add(ending).saturating_add(proof))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(gone: u32, going: u32, waiting: u32, blocked: u32) -> Counts {
        Counts { total: gone + going + waiting + blocked, gone, going, waiting, blocked }
    }

    #[test]
    fn o1_pace_of_those_that_went_then_the_longest_grace_then_the_proof() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let table = [
            (counts(0, 0, 0, 0), None, None, "nothing is known"),
            (counts(0, 0, 9, 0), None, None, "no pace is known"),
            (counts(5, 0, 4, 1), None, None, "somebody has to act"),
            (counts(5, 0, 10, 0), None, Some(at(100 + 20 + 1)), "10 s for 5 is 20 s for 10"),
            (counts(5, 2, 10, 0), Some(at(130)), Some(at(100 + 20 + 30 + 1)), "and 30 s of grace"),
            (counts(0, 2, 0, 0), Some(at(130)), Some(at(131)), "all are asked"),
            (counts(2, 1, 0, 0), Some(at(90)), Some(at(101)), "its grace is over"),
            (counts(3, 0, 0, 0), None, Some(at(101)), "only the proof"),
        ];
        for (counts, grace, expected, why) in table {
            assert_eq!(estimate(at(100), at(90), counts, grace, Duration::from_secs(1)), expected, "{why}");
        }
    }
}
