//! What is explored, one device or a site of several, and the search through all states of it.

use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use stateright::{Checker as _, HasDiscoveries, Model, Property};
use step::{Dice, Fault};

use super::fair::{Fair, Stuck};

const NEVER_STUCK: &str = "never stuck";

pub(crate) trait Explored: Clone + Debug + PartialEq + Hash + Send + Sync + 'static {
    type Step: Clone + Debug + PartialEq + Send + Sync;
    /// Name of the property that each state shows by itself.
    const NEVER: &'static str;
    /// Most steps of a random path.
    const LONGEST: usize;

    fn wrong(&self) -> Option<&String>;
    /// Whether all wishes are fulfilled once the world turns benign.
    fn check(&self, fair: &Fair) -> Result<(), Stuck<Self>>;
    /// What a search tries here, and the state after one of it; `None` when it does not happen.
    fn searched(&self, out: &mut Vec<Self::Step>);
    fn searched_after(&self, step: &Self::Step) -> Option<Self>;
    /// Whether the search checks this state.
    fn is_sampled(&self) -> bool;
    /// The next step of a random path, and the state after it.
    fn choose(&self, dice: &mut Dice) -> Option<Self::Step>;
    fn chosen_after(&self, step: &Self::Step) -> Option<Self>;
    /// Whether the random path checks this state.
    fn is_drawn(&self, dice: &mut Dice) -> bool;
    fn boots(&self) -> u32;
    fn shown(&self) -> String;
}

struct Search<S> {
    first: S,
    fair: Fair,
    /// One state is known to be stuck: the search ends soon, and what is stuck too need not be run.
    is_stuck: AtomicBool,
}

impl<S: Explored> Model for Search<S> {
    type State = S;
    type Action = S::Step;

    fn init_states(&self) -> Vec<S> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &S, actions: &mut Vec<S::Step>) {
        state.searched(actions);
    }

    fn next_state(&self, last: &S, action: S::Step) -> Option<S> {
        last.searched_after(&action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(S::NEVER, |_, state: &S| state.wrong().is_none()),
            Property::always(NEVER_STUCK, |model: &Self, state: &S| {
                let stuck = !model.is_stuck.load(Relaxed)
                    && state.wrong().is_none()
                    && state.is_sampled()
                    && state.check(&model.fair).is_err();
                model.is_stuck.fetch_or(stuck, Relaxed);
                !stuck
            }),
        ]
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) depth: usize,
    pub(crate) states: usize,
    pub(crate) threads: usize,
}

pub(crate) struct Report<S: Explored> {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    at_rest: usize,
    whole: bool,
    took: Duration,
    pub(crate) found: Option<Trace<S>>,
}

/// The broken property, with the steps to it and those of the benign run after them.
pub(crate) struct Trace<S: Explored> {
    property: &'static str,
    pub(crate) steps: Vec<S::Step>,
    then: usize,
    what: String,
    state: Box<S>,
}

impl<S: Explored> Trace<S> {
    /// What is wrong with the state at the end of `steps`, or at the end of its benign run if that `runs`.
    pub(crate) fn of(steps: &[S::Step], state: &S, fair: Option<&Fair>) -> Option<Self> {
        let (what, state, then) = if let Some(wrong) = state.wrong() {
            (wrong.clone(), Box::new(state.clone()), 0)
        } else {
            let stuck = state.check(fair?).err()?;
            (stuck.why, stuck.at, stuck.steps)
        };
        // A benign run may meet a violation.
        let property = if state.wrong().is_some() { S::NEVER } else { NEVER_STUCK };
        Some(Self { property, steps: steps.to_vec(), then, what, state })
    }

    pub(crate) fn fail(self, name: &str) -> ! {
        let Self { property, steps, then, what, state } = self;
        let mut lines = String::new();
        for step in steps {
            writeln!(lines, "  {step:?}").expect("a String takes all");
        }
        writeln!(lines, "  and {then} steps of the benign run").expect("a String takes all");
        panic!("{name}: {property}: {what}\n{lines}{}", state.shown());
    }

    /// Why this fault was missed, which would be `reported` in these words; `None` where this is it.
    pub(crate) fn misses(self, fault: Fault, reported: &str) -> Option<String> {
        let Self { property, steps, then, what, .. } = self;
        if !what.contains(reported) {
            return Some(format!("{fault:?} by {steps:?} instead: {what}"));
        }
        println!("| {fault:?} | {property} | {what} | {} + {then} |", steps.len());
        None
    }
}

impl<S: Explored> Report<S> {
    pub(crate) fn show(self, name: &str) {
        if let Some(trace) = self.found {
            trace.fail(name);
        }
        let reach = if self.whole { "all" } else { "bounded" };
        let Self { states, depth, at_rest, took, .. } = self;
        println!("| {name} | {states} ({reach}) | {depth} | {at_rest} | {:.1} |", took.as_secs_f64());
    }
}

/// Searches for the shortest path to a fault: the search continues for a while after the first one that it
/// meets, and is repeated below that depth until there is none.
pub(crate) fn shortest<S: Explored>(first: &S, bounds: Bounds) -> Report<S> {
    let mut report = search(first, bounds);
    while let Some(trace) = &report.found {
        let shorter = search(first, Bounds { depth: trace.steps.len() + 1, ..bounds });
        if shorter.found.is_none() {
            break;
        }
        report = shorter;
    }
    report
}

/// Searches breadth first, as far as threads allow.
pub(crate) fn search<S: Explored>(first: &S, bounds: Bounds) -> Report<S> {
    let clock = agent::Clock::new();
    let start = clock.now();
    let checker = Search { first: first.clone(), fair: Fair::default(), is_stuck: AtomicBool::new(false) }
        .checker()
        .threads(bounds.threads)
        .target_max_depth(bounds.depth)
        .target_state_count(bounds.states)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = [S::NEVER, NEVER_STUCK].into_iter().find_map(|property| {
        let path = checker.discovery(property)?;
        let (state, what) = (path.last_state().clone(), "another state of the same fingerprint is stuck");
        let steps = path.into_actions();
        Trace::of(&steps, &state, Some(&Fair::default())).or_else(|| {
            Some(Trace { property, steps, then: 0, what: what.to_owned(), state: Box::new(state) })
        })
    });
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        at_rest: checker.model().fair.states(),
        whole: checker.max_depth() < bounds.depth && checker.state_count() < bounds.states,
        took: clock.now().since(start),
        found,
    }
}
