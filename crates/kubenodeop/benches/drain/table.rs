//! Medians with the least and the most of them, verdicts, and the table.

use crate::case::{Case, Way};
use crate::server::Sample;

/// Ours may take as many times the floor.
const RATIO: f64 = 1.25;
/// And this for the proof, or for the last pod's way behind a budget.
const PROOF_SECS: f64 = 1.0;
/// Resident memory of a drain of 2,000 pods.
const MEMORY_MIB: f64 = 40.0;

/// A case and what was measured.
pub(crate) struct Row {
    case: Case,
    floor: Vec<Sample>,
    ours: Vec<Sample>,
}

impl Row {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, floor: Vec::new(), ours: Vec::new() }
    }

    pub(crate) fn push(&mut self, way: Way, sample: Sample) {
        match way {
            Way::Floor => self.floor.push(sample),
            Way::Ours => self.ours.push(sample),
        }
    }
}

fn spread(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> (f64, f64, f64) {
    let mut all: Vec<f64> = samples.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
fn requests(samples: &[Sample]) -> Option<(f64, f64, f64)> {
    samples
        .iter()
        .all(|it| it.requests.is_some())
        .then(|| spread(samples, |it| it.requests.map_or(0.0, |it| it as f64)))
}

pub(crate) fn print(rows: &[Row]) {
    println!();
    println!("| What, median (least to most) | Floor | Ours | Target | Verdict |");
    println!("|---|---|---|---|---|");
    for Row { case, floor, ours } in rows {
        let (floor_time, our_time) = (spread(floor, |it| it.secs), spread(ours, |it| it.secs));
        let target = RATIO * floor_time.1 + PROOF_SECS;
        let met = verdict(our_time.1 <= target);
        let secs =
            |(least, median, most): (f64, f64, f64)| format!("{median:.2} s ({least:.2} to {most:.2})");
        println!("| {} | {} | {} | ≤ {target:.2} s | {met} |", case.what, secs(floor_time), secs(our_time));
        let cpu = |samples: &[Sample]| {
            let (least, median, most) = spread(samples, |it| it.cpu_secs);
            format!("{median:.2} s ({least:.2} to {most:.2})")
        };
        println!("| of it on a processor | {} | {} | – | – |", cpu(floor), cpu(ours));
        if let (Some(floor), Some(ours)) = (requests(floor), requests(ours)) {
            let count = |(least, median, most): (f64, f64, f64)| format!("{median} ({least} to {most})");
            let (target, met) = case.requests().map_or(("–".to_owned(), "–"), |target| {
                (format!("≤ {target}"), verdict(ours.1 <= f64::from(u32::try_from(target).unwrap())))
            });
            println!("| requests of it | {} | {} | {target} | {met} |", count(floor), count(ours));
        }
        let mib = |samples: &[Sample]| {
            let (least, peak, most) = spread(samples, |it| it.peak_mib);
            let own = spread(samples, |it| it.own_mib).1;
            format!("{peak:.1} MiB ({least:.1} to {most:.1}), {own:.1} of its own")
        };
        let met = verdict(spread(ours, |it| it.peak_mib).2 <= MEMORY_MIB);
        println!(
            "| resident memory of it at its peak | {} | {} | ≤ {MEMORY_MIB} MiB | {met} |",
            mib(floor),
            mib(ours)
        );
    }
}
