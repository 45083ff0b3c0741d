//! Random paths, each as long as several boots: the search covers nearby states, these reach far ones. The same
//! number gives the same path.

use std::ops::Range;
use std::time::Duration;

use step::Dice;

use super::checker::{Explored, Trace};
use super::fair::Fair;
use super::steps::Action;

pub(crate) struct Wandered<S: Explored> {
    pub(crate) steps: usize,
    at_rest: usize,
    boots: u32,
    took: Duration,
    /// Number of the path, and the fault at its end.
    pub(crate) found: Option<(u64, Trace<S>)>,
}

impl<S: Explored> Wandered<S> {
    pub(crate) fn show(self, name: &str, ways: u64) {
        let Self { steps, at_rest, boots, took, found } = self;
        if let Some((way, trace)) = found {
            println!("way {way}");
            trace.fail(name);
        }
        let secs = took.as_secs_f64();
        println!("| {name} | {ways} ways of {steps} steps | {boots} boots | {at_rest} | {secs:.1} |");
    }
}

pub(crate) fn wander<S: Explored>(first: &S, ways: Range<u64>) -> Wandered<S> {
    let clock = agent::Clock::new();
    let start = clock.now();
    let fair = Fair::default();
    let (mut steps, mut boots, mut found) = (0, 0, None);
    for way in ways {
        let (mut dice, mut state, mut taken) = (Dice::new(way), first.clone(), Vec::new());
        while taken.len() < S::LONGEST && found.is_none() {
            let Some(step) = state.choose(&mut dice) else { break };
            // A crash within a step that has ended is none.
            let Some(next) = state.chosen_after(&step) else { continue };
            taken.push(step);
            state = next;
            steps += 1;
            let runs = state.wrong().is_none() && (state.is_drawn(&mut dice) || taken.len() == S::LONGEST);
            found = Trace::of(&taken, &state, runs.then_some(&fair)).map(|it| (way, it));
        }
        boots += state.boots();
        if found.is_some() {
            break;
        }
    }
    Wandered { steps, at_rest: fair.states(), boots, took: clock.now().since(start), found }
}

/// Trouble is rare, so that it hits states far from the start.
pub(crate) fn is_trouble(action: &Action) -> bool {
    matches!(
        action,
        Action::Crash(_)
            | Action::StopInTask
            | Action::Power
            | Action::Within(..)
            | Action::Force(_)
            | Action::ByHand(_)
            | Action::Change(_)
    )
}

/// A random number below `end`.
pub(crate) fn below(dice: &mut Dice, end: usize) -> usize {
    let wide = u128::from(dice.draw()) * (end as u128);
    usize::try_from(wide >> 64).expect("it is below end")
}
