//! Real processes, killed with SIGKILL at each step of a drained reboot and of an image update, and started again at
//! once: the end is the undisturbed one.
//!
//! Each write kills its writer once the file has appeared, and each step in the others' journals kills
//! zedkube. A story has [`KILLS`] of these, as far apart as possible; each agent at each write, one per
//! story: `cargo test -p zedbox --test soak -- --all`.

#![expect(clippy::print_stdout, reason = "a test that tries what it finds says how much that was")]

use std::path::Path;

use scenarios::{Agent, Course, Crash, Story, within};

const KILLS: usize = 6;
/// Files with an operation's steps.
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
    let crashes: Vec<Crash> = course.crashes().into_iter().filter(is_tried).collect();
    let tried = crashes.len();
    assert!(tried > 105, "{tried} writes only: {:#?}", course.written);
    let stories = tried.div_ceil(KILLS);
    let outcome = course.all_crashed(
        (0..stories).map(|first| crashes.iter().skip(first).step_by(stories).cloned().collect()),
    );
    println!("{story:?}: {} runs, {} of {tried} kills", outcome.runs, outcome.kills);
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    // The recorded run may have written something more often than others, for example reasons to wait.
    assert!(outcome.kills + tried / 10 >= tried, "{} of {tried} kills fell", outcome.kills);
}

#[test]
fn r1_a_reboot_with_an_agent_killed_at_each_write_ends_right() {
    killed_anywhere(Story::Reboot);
}

#[test]
fn r1_an_update_with_an_agent_killed_at_each_write_ends_right() {
    killed_anywhere(Story::Update);
}
