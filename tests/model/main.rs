//! A model checker over the four real cores: topics that coalesce, arrive late and in any order, agents that
//! restart at any step, boots at any step, two requesters, changes of the config, force files.
//!
//! Scope and numbers: README.md beside this file.

#![cfg(test)]

mod checker;
mod effects;
mod fair;
mod faults;
mod k3s;
mod outside;
mod pause;
mod print;
mod properties;
mod scenarios;
mod site;
mod starts;
mod steps;
mod topics;
mod wander;
mod world;

use std::collections::HashSet;
use std::sync::Mutex;
use std::{iter, thread};

use checker::{Bounds, Report, search, shortest};
use faults::Planted;
use scenarios::Scenario;
use wander::wander;
use world::State;

fn check(scenarios: &[Scenario], bounds: Bounds) {
    for scenario in scenarios {
        search(&State::first(scenario), bounds).show(scenario.name);
    }
}

fn roam(ways: u64) {
    for scenario in scenarios::all() {
        wander(&State::first(&scenario), 0..ways).show(scenario.name, ways);
    }
}

/// Plants each fault, and compares the report's words.
fn plant(find: impl Fn(&State) -> Report<State> + Sync) {
    let faults = Mutex::new(faults::all().into_iter());
    let next = || faults.lock().expect("no search panics").next();
    let missed = || -> Vec<String> { iter::from_fn(next).filter_map(|it| missed(&it, &find)).collect() };
    let missed = thread::scope(|threads| {
        let other = threads.spawn(missed);
        [missed(), other.join().expect("no search panics")].concat()
    });
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Why this fault was missed, if it was.
fn missed(
    Planted { fault, scenario, reported }: &Planted,
    find: impl Fn(&State) -> Report<State>,
) -> Option<String> {
    let Report { states, depth, found, .. } = find(&State::first(scenario));
    match found {
        Some(trace) => trace.misses(*fault, reported),
        None => Some(format!("{fault:?} is not caught in {states} states, depth {depth}")),
    }
}

#[test]
fn never_early_and_never_stuck_within_bounds() {
    check(&scenarios::all(), Bounds { depth: 40, states: 5_000, threads: 2 });
}

#[test]
fn never_early_and_never_stuck_on_random_ways() {
    roam(10);
}

#[test]
fn every_planted_fault_is_caught() {
    plant(|first| search(first, Bounds { depth: 40, states: 300_000, threads: 1 }));
}

#[test]
fn the_scenarios_of_the_faults_are_sound_without_them() {
    let mut healthy: Vec<_> =
        faults::all().into_iter().map(|it| Scenario { fault: None, ..it.scenario }).collect();
    let mut seen = HashSet::new();
    healthy.retain(|it| seen.insert(format!("{it:?}")));
    check(&healthy, Bounds { depth: 40, states: 1_000, threads: 2 });
}

#[test]
#[ignore = "takes long: cargo test -p model -- --ignored --nocapture --test-threads=1"]
fn in_full_states() {
    check(&scenarios::all(), Bounds { depth: 400, states: 1_000_000, threads: 2 });
}

#[test]
#[ignore = "takes long, see in_full_states"]
fn in_full_random_ways() {
    roam(1_000);
}

#[test]
#[ignore = "takes long, see in_full_states"]
fn in_full_shortest_ways_to_planted_faults() {
    plant(|first| shortest(first, Bounds { depth: 40, states: 300_000, threads: 1 }));
}
