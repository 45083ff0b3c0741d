//! A model checker over the turns of two and three nodes: every order of events, breadth first, within bounds.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use stateright::{Checker as _, HasDiscoveries, Model, Property};
use step::Fault;

use super::world::{Action, Budget, Step, World};

const NEVER_TOO_MANY: &str = "never too many are out";
const NEVER_STUCK: &str = "never stuck";

struct Cluster {
    nodes: usize,
    servers: usize,
    budget: Budget,
    fault: Option<Fault>,
    first: Step,
    queued: bool,
}

impl Model for Cluster {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(self.nodes, self.servers, 1, 1, self.budget, self.fault);
        // All of them look at an empty cluster first: no order of that matters.
        for nth in 0..self.nodes {
            world.apply(&Action::Serve(nth));
        }
        world.lead(0, self.first);
        if self.queued {
            (1..self.nodes).for_each(|nth| world.lead_into_queue(nth));
        }
        vec![world]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        actions.extend(state.actions());
        // Time passes once all calls are answered; calls that take long are those that are lost or late.
        if actions.iter().any(|it| matches!(it, Action::Serve(_))) {
            actions.retain(|it| *it != Action::Wait);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut next = last.clone();
        next.apply(&action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_TOO_MANY, |_, world: &World| world.wrong.is_none()),
            Property::always(NEVER_STUCK, |_, world: &World| {
                // One state of so many runs to its end.
                world.wrong.is_some() || !is_sampled(world) || world.clone().settle().is_ok()
            }),
        ]
    }
}

/// One state of 64: it is run to its end.
fn is_sampled(world: &World) -> bool {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish().is_multiple_of(64)
}

/// Searches `states` states; the way to a fault, and how many were seen.
fn search(model: Cluster, states: usize) -> (usize, Option<String>) {
    let checker = model
        .checker()
        .target_state_count(states)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = [NEVER_TOO_MANY, NEVER_STUCK].into_iter().find_map(|property| {
        let path = checker.discovery(property)?;
        let wrong = path.last_state().wrong.clone();
        Some(format!("{property}: {wrong:?}\n{:?}", path.into_actions()))
    });
    (checker.unique_state_count(), found)
}

#[test]
fn no_order_of_events_brings_two_down_or_leaves_one_waiting() {
    let none = Budget::default();
    let worlds = [
        (2, 0, none, Step::Idle),
        (2, 2, Budget { lost: 1, ..none }, Step::Idle),
        (2, 0, Budget { deletions: 1, ..none }, Step::Cordoned),
        (2, 1, Budget { restores: 1, uncordons: 1, ..none }, Step::Out),
        (2, 0, Budget { emergencies: 1, restarts: 1, ..none }, Step::Back),
        (3, 3, none, Step::Wants),
        (3, 0, Budget { late: 1, withdrawn: 1, ..none }, Step::Idle),
        (2, 0, Budget { etcds: 1, ..none }, Step::Out),
        (2, 0, Budget { etcds: 1, ..none }, Step::Off),
        (2, 1, Budget { findings: 2, restarts: 1, ..none }, Step::Idle),
    ];
    for (nodes, servers, budget, first) in worlds {
        let (states, found) =
            search(Cluster { nodes, servers, budget, fault: None, first, queued: false }, 6_000);
        println!("{nodes} nodes, {budget:?}: {states} states");
        assert!(found.is_none(), "{nodes} nodes, {budget:?}: {}", found.unwrap());
    }
}

#[test]
fn the_model_catches_each_planted_fault() {
    let none = Budget::default();
    let faults = [
        (Fault::TurnExpiry, Budget { uncordons: 1, ..none }, Step::Back),
        (Fault::TurnGate, Budget { uncordons: 1, ..none }, Step::Off),
        (Fault::TurnLastLook, Budget { releases: 1, ..none }, Step::Wants),
        (Fault::TurnFence, Budget { restores: 1, uncordons: 1, ..none }, Step::Out),
        (Fault::TurnPreflight, Budget { findings: 1, ..none }, Step::Idle),
        (Fault::FirstReading, Budget { etcds: 1, ..none }, Step::Off),
        (Fault::OlderLease, Budget { etcds: 1, ..none }, Step::Out),
    ];
    for (fault, budget, first) in faults {
        // Who waits already has passed its preflight, and has seen who holds a turn.
        let queued = !matches!(fault, Fault::TurnPreflight | Fault::FirstReading);
        let model = |fault| Cluster { nodes: 2, servers: 0, budget, fault, first, queued };
        let (states, found) = search(model(Some(fault)), 100_000);
        println!("{fault:?}: {states} states, {found:?}");
        assert!(
            found.is_some_and(|it| it.starts_with(NEVER_TOO_MANY)),
            "{fault:?} is not caught in {states} states"
        );
        let (_, found) = search(model(None), 5_000);
        assert!(found.is_none(), "without {fault:?}: {}", found.unwrap());
    }
}
