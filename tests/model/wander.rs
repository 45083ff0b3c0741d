//! Random paths through a scenario, each as long as several boots: the search covers nearby states, these
//! reach far ones. The same number gives the same path.

use std::time::Duration;

use stateright::Model as _;
use step::Dice;

use super::checker::{Device, NEVER_EARLY, NEVER_STUCK, Trace};
use super::scenarios::Scenario;
use super::steps::Action;

const LONGEST: usize = 160;

#[derive(Debug)]
pub(crate) struct Wandered<T = Trace> {
    pub(crate) steps: usize,
    pub(crate) at_rest: usize,
    pub(crate) boots: u32,
    pub(crate) took: Duration,
    /// Number of the path, and the fault at its end.
    pub(crate) found: Option<(u64, T)>,
}

pub(crate) fn wander(scenario: &Scenario, ways: std::ops::Range<u64>) -> Wandered {
    let clock = agent::Clock::new();
    let start = clock.now();
    let device = Device::new(scenario.clone());
    let first = device.init_states().pop().expect("there is one");
    let (mut steps, mut boots, mut found) = (0, 0, None);
    let mut actions = Vec::new();
    for way in ways {
        let mut dice = Dice::new(way);
        let mut state = first.clone();
        let mut taken = Vec::new();
        // A crash within a step that has ended is none.
        for _ in 0..LONGEST {
            if found.is_some() {
                break;
            }
            actions.clear();
            state.actions(&mut actions);
            let trouble = below(&mut dice, 16) == 0 || actions.iter().all(is_trouble);
            let mut choice: Vec<_> = actions.iter().filter(|it| is_trouble(it) == trouble).collect();
            if choice.is_empty() {
                choice = actions.iter().collect();
            }
            let Some(action) = choice.get(below(&mut dice, choice.len().max(1))) else { break };
            let Some(next) = state.after(action) else { continue };
            taken.push((*action).clone());
            state = next;
            steps += 1;
            let fault = if let Some(wrong) = &state.under.ghost.wrong {
                Some((NEVER_EARLY, wrong.clone(), state.clone(), 0))
            } else {
                device.fair.check(&state).err().map(|stuck| (NEVER_STUCK, stuck.why, *stuck.at, stuck.steps))
            };
            found = fault.map(|(property, what, state, then)| {
                (way, Trace { property, steps: taken.clone(), then, what, state: Box::new(state) })
            });
        }
        boots += state.under.boot - 1;
        if found.is_some() {
            break;
        }
    }
    Wandered { steps, at_rest: device.fair.states(), boots, took: clock.now().since(start), found }
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
