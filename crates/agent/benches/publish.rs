//! What one call of publish costs beside its floor: the same value encoded, a temporary file, fsync, rename, fsync.
//!
//! `cargo bench -p agent --bench publish` prints a Markdown table. The topics are real ones, with their socket, as
//! agents publish them; the floor and ours take turns within each round, in memory, where the calls of the system
//! hide least.

#![expect(clippy::unwrap_used, reason = "a bench: a panic is its way to fail")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pubsub::{Published, TopicRoot};
use topics::{NodeDrainProgress, NodeDrainStatus, Topic, go_json};

const ROUNDS: usize = 200;
const CALLS: usize = 50;
/// The ratio of the medians that a call keeps to.
const AT_MOST: f64 = 1.2;

fn main() -> ExitCode {
    if !std::env::args().any(|it| it == "--bench") {
        println!("skipped: measured only by `cargo bench -p agent --bench publish`");
        return ExitCode::SUCCESS;
    }
    // The socket of a topic belongs to a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    println!("| Publish call, tmpfs, median | Ours | Floor | Ratio | Target |");
    println!("|---|---|---|---|---|");
    let progress = fs::read("../topics/tests/filled/NodeDrainProgress.json").unwrap();
    let progress: NodeDrainProgress = go_json::from_slice(&progress).unwrap();
    let status = NodeDrainStatus::default();
    let met = [
        measure(|number| NodeDrainStatus {
            requested_by: u8::try_from(number % 200).unwrap().into(),
            ..status
        }),
        measure(|number| NodeDrainProgress { attempt: u32::try_from(number).unwrap(), ..progress.clone() }),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a row; returns whether the target is met.
fn measure<T: Topic + Clone + PartialEq>(value: impl Fn(usize) -> T) -> bool {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let topic_root = TopicRoot::open(root.path()).unwrap();
    let mut publication = agent::publication::<T>(&topic_root, "bench").unwrap();
    let floor_dir = root.path().join("floor");
    fs::create_dir(&floor_dir).unwrap();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let values: Vec<T> = (0..CALLS).map(|call| value(1 + round * CALLS + call)).collect();
        let mut time_ours = || {
            for value in &values {
                ours.push(timed(|| {
                    assert_eq!(publication.publish("global", value).unwrap(), Published::Written);
                }));
            }
        };
        let mut time_floor = || {
            for value in &values {
                floor.push(timed(|| write(&floor_dir, value)));
            }
        };
        if round % 2 == 0 {
            time_ours();
            time_floor();
        } else {
            time_floor();
            time_ours();
        }
    }
    let (ours, floor) = (median(ours), median(floor));
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!("| {} | {:.1} µs | {:.1} µs | {ratio:.2} | ≤ {AT_MOST} |", T::NAME, micros(ours), micros(floor));
    ratio <= AT_MOST
}

fn write<T: Topic>(dir: &Path, value: &T) {
    let temp = dir.join("tmp1");
    let mut file = File::create_new(&temp).unwrap();
    file.write_all(&value.encode().unwrap()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(&temp, dir.join("global.json")).unwrap();
    File::open(dir).unwrap().sync_all().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn timed(call: impl FnOnce()) -> Duration {
    let begin = std::time::Instant::now();
    call();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
