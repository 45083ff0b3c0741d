//! A model checker over the four real cores: topics that coalesce, arrive late and in any order, agents that end and
//! start anew at any step, boots at any step, two requesters, changes of the config, force files.
//!
//! What is explored and how far, with numbers: README.md beside this file.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test binary: a panic is its way to fail, a line its way to tell"
)]

mod checker;
mod effects;
mod fair;
mod faults;
mod outside;
mod print;
mod properties;
mod scenarios;
mod starts;
mod steps;
mod topics;
mod world;

use std::fmt::Write as _;

use checker::{Bounds, Report, search, shortest};
use scenarios::Scenario;

/// Searches each scenario and fails with the shortest way to the first fault.
fn check(scenarios: &[Scenario], bounds: Bounds) {
    for scenario in scenarios {
        let Report { states, depth, at_rest, whole, took, found } = search(scenario, bounds);
        let reach = if whole { "all" } else { "bounded" };
        let secs = took.as_secs_f64();
        println!(
            "{states} states ({reach}), depth {depth}, {at_rest} come to rest, {secs:.1} s: {}",
            scenario.name
        );
        if let Some(trace) = found {
            let mut steps = String::new();
            for step in &trace.steps {
                writeln!(steps, "  {step:?}").expect("a String takes all");
            }
            panic!("{}: {}\n{steps}{}", trace.property, trace.what, trace.state.text());
        }
    }
}

#[test]
fn never_early_and_never_stuck_within_bounds() {
    check(&scenarios::all(), Bounds { depth: 40, states: 12_000, threads: 2 });
}

#[test]
#[ignore = "takes long: cargo test -p scenarios --test model -- --ignored --nocapture all_states"]
fn never_early_and_never_stuck_in_all_states() {
    check(&scenarios::all(), Bounds { depth: 400, states: 4_000_000, threads: 2 });
}

#[test]
fn every_planted_fault_is_caught() {
    let mut missed = String::new();
    for planted in faults::all() {
        let report = shortest(&planted.scenario, Bounds { depth: 40, states: 60_000, threads: 1 });
        match report.found {
            Some(trace) if trace.what.contains(planted.reported) => {
                println!(
                    "{:?}: {} after {} steps: {}",
                    planted.fault,
                    trace.property,
                    trace.steps.len(),
                    trace.what
                );
            }
            Some(trace) => {
                { writeln!(missed, "{:?} by {:?} instead: {}", planted.fault, trace.steps, trace.what) }
                    .expect("a String takes all")
            }
            None => {
                writeln!(
                    missed,
                    "{:?} is not caught in {} states, depth {}",
                    planted.fault, report.states, report.depth
                )
                .expect("a String takes all");
            }
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
fn the_same_scenarios_without_the_fault_are_sound() {
    let sound: Vec<_> = faults::all().into_iter().map(|it| Scenario { fault: None, ..it.scenario }).collect();
    check(&sound, Bounds { depth: 40, states: 6_000, threads: 2 });
}
