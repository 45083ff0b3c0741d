//! The search through all states of a scenario.

use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use super::fair::Fair;
use super::scenarios::Scenario;
use super::steps::Action;
use super::world::State;

pub(crate) const NEVER_EARLY: &str = "never early";
pub(crate) const NEVER_STUCK: &str = "never stuck";

pub(crate) struct Device {
    scenario: Arc<Scenario>,
    pub(crate) fair: Fair,
}

impl Device {
    pub(crate) fn new(scenario: Scenario) -> Self {
        Self { scenario: Arc::new(scenario), fair: Fair::default() }
    }
}

impl Model for Device {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(&self.scenario);
        if !self.scenario.from_boot {
            while let Some(next) = state.at_once() {
                state = next;
            }
        }
        if self.scenario.going_down {
            state = state.after(&Action::Change(0)).expect("the first change comes");
            while !state.is_going_down() {
                state = state.benign().expect("the machine goes down");
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        last.after(&action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_EARLY, |_, state: &State| state.under.ghost.wrong.is_none()),
            Property::always(NEVER_STUCK, |model: &Self, state: &State| {
                state.under.ghost.wrong.is_some() || model.fair.check(state).is_ok()
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

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) at_rest: usize,
    pub(crate) whole: bool,
    pub(crate) took: Duration,
    /// The broken property, with the steps to it.
    pub(crate) found: Option<Trace>,
}

#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) property: &'static str,
    pub(crate) steps: Vec<Action>,
    pub(crate) then: usize,
    pub(crate) what: String,
    pub(crate) state: Box<State>,
}

/// Searches for the shortest path to a fault: the search continues for a while after the first one that it
/// meets, and is repeated below that depth until there is none.
pub(crate) fn shortest(scenario: &Scenario, bounds: Bounds) -> Report {
    let mut report = search(scenario, bounds);
    while let Some(trace) = &report.found {
        let shorter = search(scenario, Bounds { depth: trace.steps.len() + 1, ..bounds });
        if shorter.found.is_none() {
            break;
        }
        report = shorter;
    }
    report
}

/// Searches breadth first, as far as threads allow.
pub(crate) fn search(scenario: &Scenario, bounds: Bounds) -> Report {
    let clock = agent::Clock::new();
    let start = clock.now();
    let checker = Device::new(scenario.clone())
        .checker()
        .threads(bounds.threads)
        .target_max_depth(bounds.depth)
        .target_state_count(bounds.states)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = [NEVER_EARLY, NEVER_STUCK].into_iter().find_map(|property| {
        let path = checker.discovery(property)?;
        let state = path.last_state().clone();
        let stuck = state.under.ghost.wrong.is_none().then(|| Fair::default().check(&state).err()).flatten();
        let what = match (&state.under.ghost.wrong, &stuck) {
            (Some(wrong), _) => wrong.clone(),
            (None, Some(stuck)) => stuck.why.clone(),
            (None, None) => "another state of the same fingerprint is stuck".to_owned(),
        };
        let then = stuck.as_ref().map_or(0, |stuck| stuck.steps);
        let state = stuck.map_or_else(|| Box::new(state), |stuck| stuck.at);
        // A benign run may meet a violation.
        let property = if state.under.ghost.wrong.is_some() { NEVER_EARLY } else { property };
        Some(Trace { property, steps: path.into_actions(), then, what, state })
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
