//! The times of an attempt: when it is given up, when the container runtime is asked, when all is expected to be done.
//!
//! Not here: what is done then (`limits`, `containers`). Sources: goals D9, D15, O1.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use super::words::{AttemptRules, Effect, limit};
use topics::{DrainMarks, PodCounts};

/// From one answer to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The same after an answer that says nothing.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// When the attempt is given up, or the whole drain, whichever is first, and the limit in words.
pub(super) fn given_up_at(rules: &AttemptRules, marks: &DrainMarks, now: Mono) -> (Mono, String) {
    let began = Mono::of_ms(marks.attempt_ms).map_or(now, |mark| mark.min(now));
    let attempt = (began + rules.attempt, limit(rules.attempt, "an attempt"));
    let drain = Mono::of_ms(marks.drain_ms).zip(rules.drain);
    let drain = drain.map(|(since, after)| (since.min(now) + after, limit(after, "the whole drain")));
    drain.filter(|(at, _)| *at <= attempt.0).unwrap_or(attempt)
}

/// What is known of the runtime.
#[derive(Debug, Default)]
pub(super) struct RuntimeLooks {
    asking: bool,
    from: Option<Mono>,
    /// Why its last answer says nothing; empty when it does, and before the first one.
    pub(super) trouble: String,
}

impl RuntimeLooks {
    /// When to ask, where the first pod is overdue at `overdue`.
    pub(super) fn due(&self, overdue: Option<Mono>) -> Option<Mono> {
        let at = overdue.filter(|_| !self.asking)?;
        Some(self.from.map_or(at, |from| from.max(at)))
    }

    pub(super) fn ask(&mut self, now: Mono, overdue: Option<Mono>, effects: &mut Vec<Effect>) {
        if self.due(overdue).is_some_and(|at| at <= now) {
            self.asking = true;
            effects.push(Effect::AskRuntime);
        }
    }

    pub(super) fn answered(&mut self, now: Mono, trouble: Option<&String>) {
        self.asking = false;
        self.from = Some(now + if trouble.is_some() { TRY_AGAIN } else { ASK_AGAIN });
        self.trouble = trouble.cloned().unwrap_or_default();
    }
}

/// The moment at which the attempt would be done: the pods that wait go at the pace of those that went, the last
/// that is ending takes its whole grace period, and the proof follows. `None` while something is blocked, and
/// while pods wait and none has gone.
pub(super) fn estimate(
    now: Mono,
    started: Mono,
    counts: PodCounts,
    last_grace: Option<Mono>,
    proof: Duration,
) -> Option<Mono> {
    let PodCounts { gone, going: _, waiting, blocked, total } = counts;
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

    fn counts(gone: u32, going: u32, waiting: u32, blocked: u32) -> PodCounts {
        PodCounts { total: gone + going + waiting + blocked, gone, going, waiting, blocked }
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
