//! Agents killed and stopped at random, over whole reboots and updates of real processes.
//!
//! No harness: it prints its seed, to continue from. `--kills N` sets how many kills it deals at least,
//! `--all` kills each agent at each single write instead. Kills fall by number of writes and not by time, so
//! a seed gives the same ones as far as processes get their turns in the same order.

#![expect(
    clippy::print_stdout,
    reason = "what a harness would do: it says what it tries and how to repeat it"
)]
#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::time::Instant;

use scenarios::{
    AT_ONCE, Course, Dice, Outcome, Story, at_once, by_chance, folders_of_a_device, power_lost,
    turns_in_trouble, within, within_still,
};

const KILLS: usize = 40;
/// Most kills of one story: it must reach its end.
const KILLS_A_STORY: usize = 12;

fn courses() -> [Course; 2] {
    Story::ALL.map(|story| within(Course::of(story, Path::new(env!("CARGO_BIN_EXE_zedbox")))))
}

fn soak(seed: u64, kills: usize) -> Outcome {
    let courses = courses();
    let mut all = Outcome::default();
    let mut number = 0;
    while all.kills < kills && all.violations.len() < 10 {
        let left = (kills - all.kills).div_ceil(KILLS_A_STORY).min(20);
        let jobs = (0..u64::try_from(left).unwrap()).map(|_| {
            number += 1;
            let (seed, course) = (seed.wrapping_add(number), &courses[usize::from(number % 2 == 0)]);
            let hunted = move || within(course.hunted(Dice::new(seed), KILLS_A_STORY));
            (format!("run {number}, its own seed {seed}"), hunted)
        });
        let some = at_once(AT_ONCE, jobs.collect::<Vec<_>>());
        all.runs += some.runs;
        all.kills += some.kills;
        all.violations.extend(some.violations);
        println!("{} runs, {} kills, {} violations", all.runs, all.kills, all.violations.len());
    }
    all
}

fn power(seed: u64, runs: u64) -> Outcome {
    let folders = within(folders_of_a_device());
    by_chance("power lost", seed, (runs, AT_ONCE), |dice| within_still(power_lost(dice, &folders)))
}

fn turns(seed: u64, runs: u64) -> Outcome {
    by_chance("turns in trouble", seed, (runs, AT_ONCE), |dice| {
        within_still(turns_in_trouble(dice, None, None))
    })
}

fn turns_of_processes(seed: u64, runs: u64, faketime: Option<&Path>) -> Outcome {
    let zedbox = Some(Path::new(env!("CARGO_BIN_EXE_zedbox")));
    let run = |dice| within(turns_in_trouble(dice, zedbox, faketime));
    by_chance("turns in trouble", seed, (runs, AT_ONCE), run)
}

fn every_write() -> Outcome {
    let mut all = Outcome::default();
    for course in courses() {
        let some = course.all_crashed(course.crashes().into_iter().map(|it| vec![it]));
        all.runs += some.runs;
        all.kills += some.kills;
        all.violations.extend(some.violations);
        println!("{} runs, {} kills, {} violations", all.runs, all.kills, all.violations.len());
    }
    all
}

#[expect(clippy::disallowed_methods, reason = "how long it took is told to a person")]
fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|it| it == flag);
    let word = |flag: &str| arguments.iter().skip_while(|it| *it != flag).nth(1);
    let number = |flag: &str| word(flag).map(|it| it.parse().unwrap());
    if has("--list") {
        return println!("soak: test");
    }
    let began = Instant::now();
    let seed = number("--seed").unwrap_or_else(|| RandomState::new().hash_one(0));
    let outcome = if has("--all") {
        println!("killing each agent at each write");
        every_write()
    } else if let Some(runs) = number("--power") {
        println!("power lost on three nodes {runs} times, --seed {seed}");
        power(seed, runs)
    } else if let Some(runs) = number("--turns") {
        println!("three to five nodes told to reboot together, with troubles, {runs} times, --seed {seed}");
        let faketime = word("--faketime").map(Path::new);
        assert!(faketime.is_none_or(Path::exists), "--faketime names the library libfaketime.so.1");
        if has("--processes") { turns_of_processes(seed, runs, faketime) } else { turns(seed, runs) }
    } else {
        let kills = number("--kills").map_or(KILLS, |it| usize::try_from(it).unwrap());
        println!("killing agents {kills} times, --seed {seed}");
        soak(seed, kills)
    };
    let Outcome { runs, kills, violations } = outcome;
    println!(
        "runs {runs}, kills {kills}, violations {}, {} s, seed {seed}",
        violations.len(),
        began.elapsed().as_secs()
    );
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
}
