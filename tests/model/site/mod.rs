//! Two and three devices that share a Lease of turns, each with its four cores and its real turn.
//!
//! Not here: one device alone (`crate`), the turn rule alone (`outage`).

mod fair;
mod judge;
mod keeper;
mod plans;
mod search;
mod steps;
mod world;

use plans::{From, Plan};
use world::Site;

use crate::checker::{Bounds, search};
use crate::wander::{Wandered, wander};

fn roam(ways: u64) {
    for plan in plans::all() {
        wander(&Site::new(&plan), 0..ways).show(plan.name, ways);
    }
}

/// Searches the plans with two devices, from a state with one of them out: this many states, and a block more per thread.
fn check(states: usize, threads: usize, searched: fn(&Plan) -> bool) {
    for from in [From::Draining, From::Back] {
        for plan in plans::all().into_iter().filter(|it| it.wants.len() == 2 && searched(it)) {
            let plan = Plan { from, ..plan };
            let bounds = Bounds { depth: usize::MAX, states, threads };
            search(&Site::new(&plan).rested(), bounds).show(&format!("{}, {from:?}", plan.name));
        }
    }
}

#[test]
fn never_too_many_are_out_and_nobody_waits_for_ever_on_random_ways() {
    roam(10);
}

#[test]
fn never_too_many_are_out_and_nobody_waits_for_ever_within_bounds() {
    // Crashes anywhere make many states: those are left to random paths, and to the full check.
    check(200, 1, |plan| plan.wants.iter().all(|(_, budget)| budget.crashes == 0));
}

#[test]
fn each_planted_fault_of_a_turn_is_caught_and_its_plan_is_sound_without_it() {
    let mut missed = String::new();
    for (plan, reported) in plans::faults() {
        let healthy = Plan { fault: None, ..plan.clone() };
        if let Some((_, trace)) = wander(&Site::new(&healthy), 0..20).found {
            trace.fail(healthy.name);
        }
        let fault = plan.fault.expect("it is planted");
        let Wandered { steps, found, .. } = wander(&Site::new(&plan), 0..1_000);
        let line = match found {
            Some((_, trace)) => trace.misses(fault, reported),
            None => Some(format!("{fault:?} is not caught in {steps} steps")),
        };
        missed.extend(line.map(|it| it + "\n"));
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
#[ignore = "takes long: cargo test -p model -- --ignored --nocapture --test-threads=1"]
fn in_full_random_ways_of_a_site() {
    roam(200);
}

#[test]
#[ignore = "takes long, see in_full_random_ways_of_a_site"]
fn in_full_states_of_a_site() {
    check(20_000, 2, |_| true);
}
