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

use std::fmt::Write as _;

use plans::{From, Plan};
use search::{Report, Trace, search, wander};

use crate::wander::Wandered;

fn fail(plan: &Plan, trace: &Trace) -> ! {
    let Trace { steps, then, what, site } = trace;
    let mut lines = String::new();
    for step in steps {
        writeln!(lines, "  {step:?}").expect("a String takes all");
    }
    writeln!(lines, "  and {then} steps of the benign run").expect("a String takes all");
    panic!("{}: {what}\n{lines}{}", plan.name, site.text());
}

fn roam(ways: u64) {
    for plan in plans::all() {
        let Wandered { steps, at_rest, boots, took, found } = wander(&plan, 0..ways);
        if let Some((way, trace)) = found {
            println!("way {way}");
            fail(&plan, &trace);
        }
        let secs = took.as_secs_f64();
        println!("| {} | {ways} ways of {steps} steps | {boots} boots | {at_rest} | {secs:.1} |", plan.name);
    }
}

/// Searches the plans with two devices, from a state with one of them out.
fn check(states: usize, threads: usize, searched: fn(&Plan) -> bool) {
    for from in [From::Draining, From::Back] {
        for plan in plans::all().into_iter().filter(|it| it.wants.len() == 2 && searched(it)) {
            let plan = Plan { from, ..plan };
            let Report { states, depth, at_rest, took, found } = search(&plan, states, threads);
            if let Some(trace) = found {
                fail(&plan, &trace);
            }
            let secs = took.as_secs_f64();
            println!("| {}, {from:?} | {states} | {depth} | {at_rest} | {secs:.1} |", plan.name);
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
        if let Some((_, trace)) = wander(&healthy, 0..20).found {
            fail(&healthy, &trace);
        }
        let fault = plan.fault;
        let Wandered { steps, found, .. } = wander(&plan, 0..1_000);
        let line = match found {
            Some((way, Trace { what, steps, then, .. })) if what.contains(reported) => {
                println!("| {fault:?} | {what} | {way} | {} + {then} |", steps.len());
                continue;
            }
            Some((_, trace)) => format!("{fault:?} by {:?} instead: {}", trace.steps, trace.what),
            None => format!("{fault:?} is not caught in {steps} steps"),
        };
        writeln!(missed, "{line}").expect("a String takes all");
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
