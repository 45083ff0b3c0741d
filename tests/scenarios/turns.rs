//! Three to five nodes that are told to reboot together, with troubles by chance (goals U1, U2, U5, U14).
//!
//! The soak of zedbox does the same as often as one likes: `cargo test -p zedbox --test soak -- --turns 200`.

use std::hash::{BuildHasher as _, RandomState};

use scenarios::{AT_ONCE, Dice, at_once, turns_in_trouble, within_still};

/// Each takes some ten minutes of the agents' time, and seconds of a machine's.
const RUNS: u64 = 2;

#[test]
fn u1_u14_nodes_told_together_go_one_at_a_time_whatever_happens_to_them_and_to_the_lease() {
    let seed = RandomState::new().hash_one(0);
    println!("as `cargo test -p zedbox --test soak -- --turns {RUNS} --seed {seed}`");
    let jobs = (1..=RUNS).map(|number| {
        let seed = seed.wrapping_add(number);
        let met = move || {
            println!("run {number}: {}", within_still(turns_in_trouble(Dice::new(seed))));
            0
        };
        (format!("run {number}"), met)
    });
    let outcome = at_once(AT_ONCE, jobs.collect::<Vec<_>>());
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    assert_eq!(outcome.runs, usize::try_from(RUNS).unwrap());
}
