//! A model checker over the four real cores: topics that coalesce, arrive late and in any order, agents that end and
//! start anew at any step, boots at any step, two requesters, changes of the config, force files.
//!
//! What is explored and how far, with numbers: README.md beside this file.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test binary: a panic is its way to fail, a line its way to tell"
)]

mod checker;
mod effects;
mod fair;
mod print;
mod properties;
mod scenarios;
mod steps;
mod topics;
mod world;

use checker::{Bounds, Report, search};

fn tell(name: &str, report: &Report) {
    let Report { states, depth, at_rest, whole, took, .. } = report;
    let reach = if *whole { "all of them" } else { "bounded" };
    println!(
        "{name}: {states} states ({reach}), depth {depth}, {at_rest} come to rest, {:.1} s",
        took.as_secs_f64()
    );
}

#[test]
fn never_early_and_never_stuck() {
    let depth = std::env::var("DEPTH").ok().and_then(|it| it.parse().ok()).unwrap_or(20);
    let states = std::env::var("STATES").ok().and_then(|it| it.parse().ok()).unwrap_or(200_000);
    for scenario in scenarios::all() {
        let report = search(&scenario, Bounds { depth, states, threads: 2 });
        tell(scenario.name, &report);
        if let Some(trace) = report.found {
            for step in &trace.steps {
                println!("  {step:?}");
            }
            println!("{}", trace.state.text());
            panic!("{}: {}: {}", scenario.name, trace.property, trace.what);
        }
    }
}
