//! The words that every decision core is written in.
//!
//! Not here: clocks, files, tasks, logs, any type of a topic. A leaf: of other packages it has the map alone.
//! Pure: no clock, no I/O, no task.

mod message;
mod planted;

pub use litemap::LiteMap;
pub use message::{LogLevel, LogMessage, chain};
#[cfg(feature = "planted-faults")]
pub use planted::plant;
pub use planted::{Fault, planted};

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::time::Duration;

/// Number of a call that a core has asked for: the answer to another one changes nothing. Each call is answered, if only
/// by a timeout.
pub type CallId = u64;

/// What became of a write that names the version it was read with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WriteOutcome<T> {
    /// It came through: the object as it is now.
    Done(Box<T>),
    /// It did not: somebody was first, or the object is gone.
    Outdated,
    /// It failed, or nobody knows whether it was carried out; why, with the next step.
    Unknown(String),
}

impl<T> WriteOutcome<T> {
    /// The object read into what a core knows of it.
    pub fn read<U>(self, read: impl FnOnce(T) -> Result<Box<U>, String>) -> WriteOutcome<U> {
        match self {
            Self::Done(it) => read(*it).map_or_else(WriteOutcome::Unknown, WriteOutcome::Done),
            Self::Outdated => WriteOutcome::Outdated,
            Self::Unknown(why) => WriteOutcome::Unknown(why),
        }
    }
}

/// Holds `new` from now on; returns whether that is another value.
pub fn update<T: PartialEq>(held: &mut T, new: T) -> bool {
    let other = *held != new;
    *held = new;
    other
}

/// A pause that is `first` after the first of `failures` and doubles with each further one, up to `most`.
pub fn doubled(first: Duration, most: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(most)
}

/// A point on the machine's monotonic clock, counted from its start in this boot.
///
/// Two values compare within one boot, whichever of its processes took them. On disk one stands only beside the
/// identity of its boot, in milliseconds: a limit must not start again because an agent did, and the wall clock,
/// which may jump, cannot carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// The clock's start.
    pub const START: Self = Self(Duration::ZERO);

    /// The point `since_start` after the start.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time from the start to this point.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The point so many milliseconds after the start, as on disk, where 0 is none.
    pub fn of_ms(ms: u64) -> Option<Self> {
        (ms > 0).then(|| Self(Duration::from_millis(ms)))
    }

    /// Milliseconds from the start, as on disk: at least 1.
    pub fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Time from `earlier` to this point, zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    /// Saturates: a limit of 2^32 hours is "never", not a panic (D-K11).
    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// A decision apart from I/O: facts in, effects out, `now` an argument.
///
/// Events are levels, not edges: hearing one twice changes nothing in the end. Effects are performed in the
/// order given; a journal effect stands before the effect that it describes.
pub trait Core {
    /// A fact: the latest value of a topic, the result of an effect, a tick.
    type Event;
    /// Something for the shell to do.
    type Effect;

    /// Takes one fact and says what to do about it.
    fn step(&mut self, now: Mono, event: Self::Event) -> Vec<Self::Effect>;

    /// When [`Core::tick`] must be stepped next, or `None` when only a fact can change anything.
    fn next_wake(&self) -> Option<Mono>;

    /// The event that says "time has passed".
    fn tick() -> Self::Event;
}

/// What failed, how often in a row, and the end of the pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePause<T> {
    pub of: T,
    pub failures: u32,
    pub until: Mono,
    pub wait_secs: u64,
    pub reason: String,
}

impl<T: PartialEq> FailurePause<T> {
    /// Another failure of `of`; a failure of something else restarts the count.
    pub fn grow(
        last: Option<Self>,
        of: T,
        reason: String,
        now: Mono,
        (first, longest): (Duration, Duration),
    ) -> Self {
        let before = last.filter(|last| last.of == of).map_or(0, |last| last.failures);
        let failures = before.saturating_add(1);
        let wait = doubled(first, longest, failures);
        Self { of, failures, until: now + wait, wait_secs: wait.as_secs(), reason }
    }

    /// When `of` may be tried, if not yet.
    pub fn holds(this: Option<&Self>, of: &T, now: Mono) -> Option<Mono> {
        this.filter(|pause| pause.of == *of && pause.until > now).map(|pause| pause.until)
    }
}

/// Pseudo-random numbers from a seed, for jitter in cores that can be compared and replayed: no secrets. Different seeds give
/// different sequences. Source: splitmix64.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }
}

/// A small `collect` for ordered collections, filled one by one: `collect` sorts first, which costs an image 3 KB for each
/// sorted type.
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

    /// The same for a map that is one vector, sorted before: else each of a list in any order would move half of the map.
    fn into_lite<K: Ord, V>(self) -> LiteMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut all: Vec<_> = self.collect();
        all.order_by(|(one, _), (other, _)| one.cmp(other));
        let mut map = LiteMap::with_capacity(all.len());
        all.into_iter().insert_into(&mut map);
        map
    }

    /// One by one: its own `extend` brings a sort for each type into an image.
    fn insert_into<K: Ord, V>(self, map: &mut LiteMap<K, V>)
    where
        Self: Iterator<Item = (K, V)>,
    {
        self.for_each(|(key, value)| drop(map.insert(key, value)));
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

/// `sort` in one copy for all types: it is compiled anew for each, which costs an image 3 KB a type.
pub trait SmallSort<T> {
    /// As `sort_by`: what is equal keeps its order.
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    fn order_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.order_by(|one, other| key(one).cmp(&key(other)));
    }

    fn order(&mut self)
    where
        T: Ord,
    {
        self.order_by(T::cmp);
    }
}

impl<T> SmallSort<T> for [T] {
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        // For each place the one that its item is taken from.
        let mut from: Vec<usize> = (0..self.len()).collect();
        sort_places(&mut from, &|one, other| compare(&self[one], &self[other]));
        for first in 0..from.len() {
            let mut place = first;
            while from[place] != first {
                let next = from[place];
                self.swap(place, next);
                from[place] = place;
                place = next;
            }
            from[place] = place;
        }
    }
}

fn sort_places(places: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    places.sort_by(|one, other| compare(*one, *other));
}

/// Declares an enum with its words: all variants in `ALL`, in their order, and the word of each by `text`.
#[macro_export]
macro_rules! named {
    ($($(#[$about:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ })+) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const WORDS: &[&str] = &[$($word,)+];

            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    )+ };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn each_layer_is_said_once() {
        let shown = Layer("write a: disk full", Some(Box::new(Layer("disk full", None))));
        let top = Layer("publish", Some(Box::new(shown)));
        assert_eq!(chain(&top), "publish: write a: disk full");
    }

    #[test]
    fn a_wait_past_the_end_of_the_clock_is_never() {
        let at = Mono::from_start(Duration::from_secs(1));
        assert_eq!(at + Duration::MAX, Mono::from_start(Duration::MAX));
    }

    #[test]
    fn what_is_ordered_is_sorted_and_what_is_equal_keeps_its_order() {
        let mut numbers = Dice::new(7);
        for length in [0, 1, 2, 3, 7, 64, 500] {
            let mut ordered: Vec<_> = (0..length).map(|at| (numbers.draw() % 9, at)).collect();
            let mut sorted = ordered.clone();
            assert!(sorted.iter().copied().into_lite().into_iter().eq(sorted.iter().copied().into_map()));
            ordered.order_by_key(|(number, _)| *number);
            sorted.sort_by_key(|(number, _)| *number);
            assert_eq!(ordered, sorted);
        }
    }
}
