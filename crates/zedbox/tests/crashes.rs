//! Real processes, killed with SIGKILL at every third write of a drained reboot and of an image update, and started
//! again at once: the end is the undisturbed one (goals R1, R7).
//!
//! These are the writes at which the writer of the file is killed when it has appeared, and zedkube at the steps of the
//! others' journals; an update ends in a reboot, which is killed at others than a reboot alone. Each agent at each write is
//! tried by `cargo test -p zedbox --test soak -- --all`.

#![expect(clippy::print_stdout, reason = "a test that tries what it finds says how much that was")]

use std::path::Path;

use scenarios::{Agent, Course, Crash, Story, within};

/// Steps of an operation, and what others are told of it.
const STEPS: [&str; 5] = [
    "DeviceOpPending/reboot.json",
    "DrainJournal/global.json",
    "journal.json",
    "zboot/IMGB.json",
    "NodeDrain",
];

fn is_tried(crash: &Crash) -> bool {
    let is_step = STEPS.iter().any(|step| crash.path.contains(step)) && !crash.path.contains("Progress");
    crash.is_of_writer() || is_step && crash.agent == Agent::Zedkube && !crash.path.contains(".bak")
}

fn killed_anywhere(story: Story) {
    let course = within(Course::of(story, Path::new(env!("CARGO_BIN_EXE_zedbox"))));
    let first = usize::from(story == Story::Update);
    let crashes: Vec<Crash> = course.crashes().into_iter().filter(is_tried).skip(first).step_by(3).collect();
    let tried = crashes.len();
    assert!(tried > 35, "{tried} writes only: {:#?}", course.written);
    let outcome = course.all_crashed(crashes);
    println!("{story:?}: {} runs, {} kills", outcome.runs, outcome.kills);
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    // The run that was listened to may have written something more often than any other: for whom it waited, say.
    assert!(outcome.kills + tried / 10 >= tried, "{} of {tried} kills fell", outcome.kills);
}

#[test]
fn r1_a_reboot_with_an_agent_killed_at_every_third_write_ends_right() {
    killed_anywhere(Story::Reboot);
}

#[test]
fn r1_an_update_with_an_agent_killed_at_every_third_write_ends_right() {
    killed_anywhere(Story::Update);
}
