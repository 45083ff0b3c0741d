//! Speed and size of publishing from one process to another, beside a floor without our library.
//!
//! `cargo bench -p pubsub --bench two_processes` prints a Markdown table. No harness: this program is the
//! publisher and, started by itself, the other process. The floor and ours take turns within each round.

#![expect(clippy::unwrap_used, reason = "a bench: a panic is its way to fail")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod child;
mod floor;
mod measure;
mod process;
mod sample;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::thread::{CpuSet, sched_setaffinity};
use table::Table;

const ROOT_OF_FLOOR: &str = "floor";

type Measure = fn(&mut Table, &str, &Path);

const PARTS: [(&str, Measure); 6] = [
    ("latency", measure::latency),
    ("kept", measure::kept_latency),
    ("burst", measure::burst),
    ("join", measure::late_joiner),
    ("beside", measure::beside_many),
    ("restart", measure::restart),
];
/// What has nothing to do with the medium.
const PARTS_IN_MEMORY: [(&str, Measure); 2] = [("wakes", measure::wakes), ("idle", measure::idle)];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [part, root, number] = &arguments[..]
        && part != "--bench"
    {
        stay_on(1);
        child::run(part, Path::new(root), number.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|it| it == "--bench") {
        println!("skipped: measured only by `cargo bench -p pubsub --bench two_processes`");
        return ExitCode::SUCCESS;
    }
    stay_on(0);
    let mut table = Table::default();
    // `-- burst` measures bursts only.
    let only: Vec<&String> = arguments.iter().filter(|it| !it.starts_with("--")).collect();
    let wanted = |part: &str| only.is_empty() || only.iter().any(|it| *it == part);
    let both: [(&str, PathBuf); 2] = [("tmpfs", "/dev/shm".into()), ("disk", env::temp_dir())];
    for (part, measure) in PARTS {
        for (medium, place) in both.iter().filter(|_| wanted(part)) {
            measure(&mut table, medium, tempfile::tempdir_in(place).unwrap().path());
        }
    }
    for (part, measure) in PARTS_IN_MEMORY {
        if wanted(part) {
            measure(&mut table, "tmpfs", tempfile::tempdir_in("/dev/shm").unwrap().path());
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("load of this machine: {}; beside other work the numbers are about that", load.trim());
    table.print();
    if table.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Keeps this process on one processor: two processes on the same one and on different ones differ in speed,
/// and chance would choose for each pair of them.
fn stay_on(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    if sched_setaffinity(None, &one).is_err() {
        eprintln!("there is no processor {processor} for this process; it shares one");
    }
}
