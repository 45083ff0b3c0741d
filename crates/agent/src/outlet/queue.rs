//! Which effects wait for which. Pure: no clock, no I/O, no task.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    pub(super) rank: Rank,
    /// What is written or requested; a newer effect replaces an older one with the same key.
    pub(super) key: Cow<'static, str>,
    /// Shown to a person while it waits.
    pub(super) words: Cow<'static, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Plain,
    Status,
    Record,
    Promise,
}

impl Weight {
    /// Writes nothing. Its error ends the agent.
    pub const fn plain() -> Self {
        Self { rank: Rank::Plain, key: Cow::Borrowed(""), words: Cow::Borrowed("") }
    }

    /// The same, and drops waiting promises of `key`.
    pub const fn cancels(key: &'static str) -> Self {
        Self { rank: Rank::Plain, key: Cow::Borrowed(key), words: Cow::Borrowed("") }
    }

    /// Reports a state or withdraws something: it waits for nothing.
    pub fn status(key: impl Into<Cow<'static, str>>) -> Self {
        Self { rank: Rank::Status, key: key.into(), words: Cow::Borrowed("") }
    }

    /// Later effects wait until it is on disk.
    pub fn record(key: impl Into<Cow<'static, str>>) -> Self {
        Self { rank: Rank::Record, key: key.into(), words: Cow::Borrowed("") }
    }

    /// Waits until earlier records are on disk, shown with these words meanwhile.
    pub fn promise(key: impl Into<Cow<'static, str>>, words: impl Into<Cow<'static, str>>) -> Self {
        Self { rank: Rank::Promise, key: key.into(), words: words.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedEffect<E> {
    pub(super) weight: Weight,
    pub(super) effect: E,
}

#[derive(Debug)]
pub(super) struct EffectQueue<E> {
    /// Records and promises, in order.
    pub(super) ordered: VecDeque<QueuedEffect<E>>,
    /// Statuses, one per key.
    pub(super) late: Vec<QueuedEffect<E>>,
}

impl<E> Default for EffectQueue<E> {
    fn default() -> Self {
        Self { ordered: VecDeque::new(), late: Vec::new() }
    }
}

impl<E> EffectQueue<E> {
    pub(super) fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.late.is_empty()
    }

    /// Whether an effect of this weight has to wait. Removes what it replaces.
    pub(super) fn waits(&mut self, weight: &Weight, forced: bool) -> bool {
        if !weight.key.is_empty() {
            self.late.retain(|it| it.weight.key != weight.key);
            self.ordered.retain(|it| it.weight.rank != Rank::Promise || it.weight.key != weight.key);
            self.leave_out_older();
        }
        match weight.rank {
            Rank::Plain | Rank::Status => false,
            Rank::Record => !self.ordered.is_empty(),
            Rank::Promise => !self.ordered.is_empty() && !forced,
        }
    }

    pub(super) fn keep(&mut self, held: QueuedEffect<E>) {
        match held.weight.rank {
            Rank::Plain => {}
            Rank::Status => self.late.push(held),
            Rank::Record | Rank::Promise => {
                self.ordered.push_back(held);
                self.leave_out_older();
            }
        }
    }

    /// Of adjacent records only the newest per key is written.
    fn leave_out_older(&mut self) {
        let mut newer = BTreeSet::new();
        let mut kept: Vec<QueuedEffect<E>> = Vec::with_capacity(self.ordered.len());
        for held in self.ordered.drain(..).rev() {
            if held.weight.rank == Rank::Promise {
                newer.clear();
            } else if !newer.insert(held.weight.key.clone()) {
                continue;
            }
            kept.push(held);
        }
        self.ordered.extend(kept.into_iter().rev());
    }

    /// Words of what waits for the first entry.
    pub(super) fn waiting(&self) -> Vec<String> {
        let promises = self.ordered.iter().filter(|it| it.weight.rank == Rank::Promise);
        promises.map(|it| it.weight.words.clone().into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut EffectQueue<u8>, weight: Weight, effect: u8) -> bool {
        let waits = queue.waits(&weight, false);
        if waits {
            queue.keep(QueuedEffect { weight, effect });
        }
        waits
    }

    fn ordered(queue: &EffectQueue<u8>) -> Vec<u8> {
        queue.ordered.iter().map(|it| it.effect).collect()
    }

    fn stuck() -> EffectQueue<u8> {
        let mut queue = EffectQueue::default();
        queue.keep(QueuedEffect { weight: Weight::record("a"), effect: 1 });
        queue
    }

    #[test]
    fn a_promise_waits_behind_its_record_and_a_status_does_not() {
        let mut queue = stuck();
        assert!(push(&mut queue, Weight::promise("p", "the request"), 2));
        assert!(!push(&mut queue, Weight::status("s"), 3));
        assert!(!push(&mut queue, Weight::plain(), 4));
        assert_eq!((ordered(&queue), queue.waiting()), (vec![1, 2], vec!["the request".to_owned()]));
        assert!(!push(&mut EffectQueue::default(), Weight::promise("p", ""), 2), "nothing is in its way");
    }

    #[test]
    fn a_newer_record_takes_the_place_of_the_older_but_never_goes_ahead_of_a_promise_or_another_record() {
        let mut queue = stuck();
        push(&mut queue, Weight::record("a"), 2);
        assert_eq!(ordered(&queue), [2]);
        // The counter is saved before the operation is forgotten, whatever else happens.
        push(&mut queue, Weight::record("b"), 3);
        push(&mut queue, Weight::record("a"), 4);
        assert_eq!(ordered(&queue), [3, 4]);
        push(&mut queue, Weight::promise("p", ""), 5);
        push(&mut queue, Weight::record("a"), 6);
        push(&mut queue, Weight::record("a"), 7);
        assert_eq!(ordered(&queue), [3, 4, 5, 7]);
    }

    #[test]
    fn what_is_cancelled_or_replaced_is_not_asked_for_afterwards() {
        let mut queue = stuck();
        push(&mut queue, Weight::promise("p", ""), 2);
        push(&mut queue, Weight::promise("q", ""), 3);
        push(&mut queue, Weight::promise("p", ""), 4);
        assert_eq!(ordered(&queue), [1, 3, 4]);
        assert!(!push(&mut queue, Weight::cancels("p"), 5));
        assert!(!push(&mut queue, Weight::status("q"), 6));
        assert_eq!(ordered(&queue), [1]);
    }

    #[test]
    fn the_queue_stays_short_however_long_the_trouble_lasts() {
        let mut queue = stuck();
        for nth in 0..1000_u32 {
            let key = if nth % 2 == 0 { "a" } else { "b" };
            push(&mut queue, Weight::record(key), 1);
            push(&mut queue, Weight::promise(key, ""), 2);
        }
        assert!(queue.ordered.len() <= 8, "{}", queue.ordered.len());
    }
}
