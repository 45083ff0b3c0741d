//! Random interleavings of two to five nodes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use step::Fault;

use super::world::{Budget, World};

fn budget() -> impl Strategy<Value = Budget> {
    vec(0_u8..=1, 15).prop_map(|it| Budget {
        lost: it[0] * 3,
        late: it[1],
        restarts: it[2] * 2,
        power_cuts: it[3],
        failures: it[4],
        withdrawn: it[5],
        emergencies: it[6],
        deletions: it[7],
        restores: it[8],
        releases: it[9],
        uncordons: it[10],
        cuts: it[11] * 2,
        gone: it[12],
        findings: it[13],
        etcds: it[14],
    })
}

fn same_each_time() -> TestRng {
    TestRng::deterministic_rng(RngAlgorithm::ChaCha)
}

/// Runs `cases` random ways with `fault` planted, through worlds of up to `most` nodes; what was found.
fn run(
    rng: TestRng,
    cases: u32,
    most: usize,
    budget: impl Strategy<Value = Budget>,
    fault: Option<Fault>,
) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (2..=most, 0_usize..=3, 1_u32..=2, budget, vec(any::<u16>(), 250));
    let result = runner.run(&strategy, |(nodes, servers, limit, budget, choices)| {
        let mut world = World::new(nodes, servers.min(nodes), limit, 2, budget, fault);
        let mut way = Vec::new();
        for choice in choices {
            let actions = world.actions();
            let action = actions[usize::from(choice) % actions.len()].clone();
            world.apply(&action);
            way.push(action);
            if let Some(wrong) = &world.wrong {
                return Err(TestCaseError::fail(format!(
                    "{wrong}\nlimit {limit}\n{way:?}\n{:?}",
                    world.lease
                )));
            }
        }
        let settled = world.settle();
        if let Some(wrong) = &world.wrong {
            return Err(TestCaseError::fail(format!("{wrong} at the end\nlimit {limit}\n{way:?}")));
        }
        settled.map_err(|stuck| TestCaseError::fail(format!("{stuck}\n{way:?}")))
    });
    result.map_err(|error| match error {
        TestError::Fail(why, _) | TestError::Abort(why) => why.to_string(),
    })
}

#[test]
fn in_any_order_of_events_never_more_than_the_limit_are_out_and_nobody_waits_for_ever() {
    if let Err(why) = run(same_each_time(), 400, 5, budget(), None) {
        panic!("{why}");
    }
}

#[test]
fn each_planted_fault_that_chance_finds_is_caught() {
    let none = Budget::default();
    // A fence that is ignored is found once in some ten thousand ways: the model goes all of them. From these seeds
    // the others are found in 486, 306 and 126; from most it takes some thousand.
    let faults = [
        (Fault::TurnExpiry, Budget { emergencies: 1, ..none }, 6),
        (Fault::TurnGate, Budget { emergencies: 1, ..none }, 0),
        (Fault::TurnLastLook, Budget { releases: 2, ..none }, 5),
    ];
    for (fault, budget, seed) in faults {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        match run(rng, 10_000, 2, Just(budget), Some(fault)) {
            Ok(()) => panic!("{fault:?} is not caught"),
            Err(why) => println!("{fault:?}: {}", why.lines().next().unwrap_or_default()),
        }
        if let Err(why) = run(same_each_time(), 100, 2, Just(budget), None) {
            panic!("without {fault:?}: {why}");
        }
    }
}
