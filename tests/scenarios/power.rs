//! All three nodes lose power, at random writes.
//!
//! The soak of zedbox repeats this any number of times: `cargo test -p zedbox --test soak -- --power 200`.

use std::hash::{BuildHasher as _, RandomState};

use scenarios::{AT_ONCE, by_chance, folders_of_a_device, power_lost, within, within_still};

/// On a paused clock these cost half a minute of a small machine.
const RUNS: u64 = 100;

#[test]
fn r6_three_nodes_that_lose_power_anywhere_come_back_in_any_order_with_wrong_clocks() {
    let seed = RandomState::new().hash_one(0);
    println!("as `cargo test -p zedbox --test soak -- --power {RUNS} --seed {seed}`");
    let folders = within(folders_of_a_device());
    let outcome =
        by_chance("power lost", seed, (RUNS, AT_ONCE), |dice| within_still(power_lost(dice, &folders)));
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    assert_eq!(outcome.runs, usize::try_from(RUNS).unwrap());
}
