//! The measurements, each a few seconds; the first of each pair of rounds changes from round to round.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pubsub::{Name, Publication, TopicRoot};

use crate::ROOT_OF_FLOOR;
use crate::floor::Writer;
use crate::process::{OtherProcess, number};
use crate::sample::{Sample, codec, encode, kept_name, name, now_nanos};
use crate::table::{Series, Table, Target};

/// Rounds of [`LATENCIES`] each.
const ROUNDS: u64 = 15;
const LATENCIES: u64 = 20;
const BURST: u64 = 10_000;
/// A burst comes in as many parts, ours and the floor's in turn.
const BURST_PARTS: u64 = 10;
const MANY_KEYS: u64 = 10_000;
const IDLE: Duration = Duration::from_secs(30);
const WAKES: u64 = 200;

struct Other(OtherProcess);

impl Other {
    fn start(part: &str, root: &Path, number: u64) -> Self {
        Self(OtherProcess::start(&[&part, &root, &number.to_string()]))
    }

    fn listener(part: &str, root: &Path) -> Self {
        let mut other = Self::start(part, root, 0);
        while other.0.line() != "ready" {}
        other
    }

    fn pair(&mut self) -> (u64, u64) {
        let line = self.0.line();
        let (first, second) = line.split_once(' ').unwrap();
        (first.parse().unwrap(), second.parse().unwrap())
    }

    /// How long the sample took to it, in microseconds.
    fn record(&mut self, number: u64) -> f64 {
        let (heard, nanos) = self.pair();
        assert_eq!(heard, number);
        micros(nanos)
    }

    /// How often its threads went to sleep, and its resident KiB.
    fn status(&self) -> (u64, u64) {
        let mut switches = 0;
        let mut resident = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.0.child.id())).unwrap() {
            let text = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            switches += number(&text, "voluntary_ctxt_switches:");
            switches += number(&text, "nonvoluntary_ctxt_switches:");
            resident = number(&text, "VmRSS:");
        }
        (switches, resident)
    }
}

#[expect(clippy::cast_precision_loss, reason = "times of a bench are far below 2^52 nanoseconds")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

fn publication(root: &Path, name: Name) -> Publication<Sample> {
    TopicRoot::open(root).unwrap().publication(name, codec()).unwrap()
}

fn in_turn(round: u64, mut ours: impl FnMut(), mut floor: impl FnMut()) {
    if round.is_multiple_of(2) {
        ours();
        floor();
    } else {
        floor();
        ours();
    }
}

/// From the call of publish to the handler in the other process, at three paces: processors that rest between
/// changes, as they do between real ones, take longer for each.
pub(crate) fn latency(table: &mut Table, medium: &str, root: &Path) {
    for (pace, pause) in [("at once", 0), ("1 ms apart", 1), ("20 ms apart", 20)] {
        let what = format!("publish → handler, {pace}, {medium}");
        let pause = Duration::from_millis(pause);
        compare(table, &what, root, "--listen", &name(), pause, Target::AtMost(1.3));
    }
}

/// The same where the former value is kept as a backup, which the floor does not do.
pub(crate) fn kept_latency(table: &mut Table, medium: &str, root: &Path) {
    let what = format!("publish → handler, persistent topic with its backup, {medium}");
    compare(table, &what, root, "--listen-kept", &kept_name(), Duration::ZERO, Target::None);
}

fn compare(
    table: &mut Table,
    what: &str,
    root: &Path,
    part: &str,
    name: &Name,
    pause: Duration,
    target: Target,
) {
    let mut publication = publication(root, name.clone());
    let mut writer = Writer::new(root.join(ROOT_OF_FLOOR));
    let mut listener = Other::listener(part, root);
    let mut floor_listener = Other::listener("--listen-floor", root);
    let (mut ours, mut floor) = (Series::default(), Series::default());
    for round in 0..ROUNDS {
        let numbers = || (1..=LATENCIES).map(move |number| round * LATENCIES + number);
        in_turn(
            round,
            || {
                for number in numbers() {
                    std::thread::sleep(pause);
                    publication.publish("global", &Sample::new(number, true)).unwrap();
                    ours.push(listener.record(number));
                }
            },
            || {
                for number in numbers() {
                    std::thread::sleep(pause);
                    writer.write("global", &Sample::new(number, true));
                    floor.push(floor_listener.record(number));
                }
            },
        );
    }
    table.ratio(what, "µs", &ours, &floor, target);
}

/// Writes one key as fast as possible beside a reader, until the last value arrives.
pub(crate) fn burst(table: &mut Table, medium: &str, root: &Path) {
    let mut publication = publication(root, name());
    let mut writer = Writer::new(root.join(ROOT_OF_FLOOR));
    let mut listener = Other::listener("--listen", root);
    let mut floor_listener = Other::listener("--listen-floor", root);
    let (mut ours, mut floor) = (Series::default(), Series::default());
    let part = BURST / BURST_PARTS;
    for round in 0..BURST_PARTS {
        let numbers = || (1..=part).map(move |number| round * part + number);
        let timed = |write: &mut dyn FnMut(&Sample)| {
            let begin = now_nanos();
            for number in numbers() {
                write(&Sample::new(number, number % part == 0));
            }
            micros(part * 1_000_000_000) / micros(now_nanos() - begin)
        };
        let last = (round + 1) * part;
        in_turn(
            round,
            || {
                ours.push(timed(&mut |sample| {
                    publication.publish("global", sample).unwrap();
                }));
                listener.record(last);
            },
            || {
                floor.push(timed(&mut |sample| writer.write("global", sample)));
                floor_listener.record(last);
            },
        );
    }
    let what = format!("burst of {BURST} on one key, {medium}");
    table.ratio(&what, "writes/s", &ours, &floor, Target::AtLeast(0.8));
}

/// Puts the first `count` keys there, as a publisher that has run for long.
fn fill(dir: &Path, count: u64) {
    fs::create_dir_all(dir).unwrap();
    for number in 0..count {
        #[expect(clippy::disallowed_methods, reason = "nobody reads yet, and nothing must survive")]
        fs::write(dir.join(format!("key-{number}.json")), encode(&Sample::new(number, false))).unwrap();
    }
}

/// Opens until the first reading has ended, beside listing, reading and decoding the same files.
pub(crate) fn late_joiner(table: &mut Table, medium: &str, root: &Path) {
    let of_keys = |keys: u64, rounds: u64| {
        fill(&name().dir(root), keys);
        let (mut ours, mut floor) = (Series::default(), Series::default());
        let mut joiner = Other::start("--join", root, rounds);
        for _ in 0..rounds {
            let (floor_nanos, our_nanos) = joiner.pair();
            floor.push(micros(floor_nanos) / 1_000.0);
            ours.push(micros(our_nanos) / 1_000.0);
        }
        (ours, floor)
    };
    let (few, few_floor) = of_keys(MANY_KEYS / 10, 15);
    let (many, many_floor) = of_keys(MANY_KEYS, 15);
    let what = |keys| format!("late joiner, {keys} keys, {medium}");
    table.ratio(&what(MANY_KEYS / 10), "ms", &few, &few_floor, Target::None);
    table.ratio(&what(MANY_KEYS), "ms", &many, &many_floor, Target::AtMost(1.5));
    let growth = |many: &Series, few: &Series| {
        let mut series = Series::default();
        series.push(many.median() / few.median());
        series
    };
    let what = format!("late joiner, time for ten times the keys, {medium}");
    let (ours, floor) = (growth(&many, &few), growth(&many_floor, &few_floor));
    table.ratio(&what, "×", &ours, &floor, Target::AtMost(1.2));
}

/// One change beside many keys, and beside none.
pub(crate) fn beside_many(table: &mut Table, medium: &str, root: &Path) {
    let (many_root, one_root) = (root.join("many"), root.join("one"));
    fill(&name().dir(&many_root), MANY_KEYS);
    let mut sides = [many_root, one_root].map(|root| {
        let publication = publication(&root, name());
        (publication, Other::listener("--listen", &root), Series::default())
    });
    for round in 0..ROUNDS {
        for (publication, listener, series) in &mut sides {
            for number in (1..=LATENCIES).map(|number| round * LATENCIES + number) {
                publication.publish("global", &Sample::new(number, true)).unwrap();
                series.push(listener.record(number));
            }
        }
    }
    let [(_, _, many), (_, _, one)] = sides;
    let what = format!("one change beside {MANY_KEYS} keys, beside none as floor, {medium}");
    table.ratio(&what, "µs", &many, &one, Target::AtMost(1.5));
}

/// From the start of a new publisher process, after the last one was killed, to the handler.
pub(crate) fn restart(table: &mut Table, medium: &str, root: &Path) {
    let mut listener = Other::listener("--listen", root);
    let mut series = Series::default();
    for number in 1..=ROUNDS {
        let begin = now_nanos();
        let publisher = Other::start("--serve", root, number);
        listener.record(number);
        series.push(micros(now_nanos() - begin) / 1_000.0);
        drop(publisher);
    }
    let what = format!("killed publisher: start of the next one → handler, {medium}");
    table.alone(&what, "ms", &series, Target::AtMost(100.0));
}

/// How often the threads of a listener go to sleep for each change.
pub(crate) fn wakes(table: &mut Table, medium: &str, root: &Path) {
    let mut publication = publication(root, name());
    let mut writer = Writer::new(root.join(ROOT_OF_FLOOR));
    let mut listener = Other::listener("--listen", root);
    let mut floor_listener = Other::listener("--listen-floor", root);
    let (mut ours, mut floor) = (Series::default(), Series::default());
    for round in 0..WAKES {
        in_turn(
            round,
            || {
                let before = listener.status().0;
                publication.publish("global", &Sample::new(round + 1, true)).unwrap();
                listener.record(round + 1);
                ours.push(micros((settled(&listener) - before) * 1_000));
            },
            || {
                let before = floor_listener.status().0;
                writer.write("global", &Sample::new(round + 1, true));
                floor_listener.record(round + 1);
                floor.push(micros((settled(&floor_listener) - before) * 1_000));
            },
        );
    }
    let what = format!("context switches of a listener for one change, {medium}");
    table.ratio(&what, "", &ours, &floor, Target::None);
}

fn settled(other: &Other) -> u64 {
    loop {
        let before = other.status().0;
        std::thread::sleep(Duration::from_millis(5));
        if other.status().0 == before {
            return before;
        }
    }
}

/// A process with one publication and one subscription that has nothing to do.
pub(crate) fn idle(table: &mut Table, medium: &str, root: &Path) {
    let agent = Other::listener("--idle", root);
    let before = settled(&agent);
    std::thread::sleep(IDLE);
    let (switches, resident_kib) = agent.status();
    let one = |number: u64, divisor: f64| {
        let mut series = Series::default();
        series.push(micros(number * 1_000) / divisor);
        series
    };
    let what =
        format!("context switches in {} s, one publication, one subscription, {medium}", IDLE.as_secs());
    table.alone(&what, "", &one(switches - before, 1.0), Target::AtMost(0.0));
    table.alone("resident memory of the same", "MiB", &one(resident_kib, 1_024.0), Target::AtMost(4.0));
}
