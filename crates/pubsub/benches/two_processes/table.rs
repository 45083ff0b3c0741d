//! Medians, 99th percentiles, verdicts, and the table of them.

use std::fmt::Write as _;

/// Numbers of one kind; at least one.
#[derive(Debug, Default, Clone)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    fn at(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, rounded")]
        #[expect(clippy::cast_precision_loss, reason = "a few thousand numbers")]
        let index = ((sorted.len() - 1) as f64 * part).round() as usize;
        sorted[index]
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    fn p99(&self) -> f64 {
        self.at(0.99)
    }
}

/// What a measured number must keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::None => true,
        }
    }

    fn text(self, unit: &str) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}{unit}"),
            Self::AtLeast(limit) => format!("≥ {limit}{unit}"),
            Self::None => "–".to_owned(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: String,
    missed: usize,
}

impl Table {
    /// Ours beside the floor; the ratio of the medians is what counts.
    pub(crate) fn ratio(&mut self, what: &str, unit: &str, ours: &Series, floor: &Series, target: Target) {
        let ratio = ours.median() / floor.median();
        let both = |series: &Series| text(series, unit);
        self.row(what, &both(ours), &both(floor), &format!("{ratio:.2}"), target, ratio, "");
    }

    /// One number by itself.
    pub(crate) fn alone(&mut self, what: &str, unit: &str, ours: &Series, target: Target) {
        self.row(what, &text(ours, unit), "–", "–", target, ours.median(), &format!(" {unit}"));
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of the table")]
    fn row(
        &mut self,
        what: &str,
        ours: &str,
        floor: &str,
        ratio: &str,
        target: Target,
        value: f64,
        unit: &str,
    ) {
        let verdict = match target {
            Target::None => "–",
            Target::AtMost(_) | Target::AtLeast(_) if target.met(value) => "met",
            Target::AtMost(_) | Target::AtLeast(_) => "MISSED",
        };
        self.missed += usize::from(!target.met(value));
        let target = target.text(unit);
        writeln!(self.rows, "| {what} | {ours} | {floor} | {ratio} | {target} | {verdict} |").unwrap();
        println!("{what}: {ours}, floor {floor}, ratio {ratio}, {target}: {verdict}");
    }

    pub(crate) fn all_met(&self) -> bool {
        self.missed == 0
    }

    pub(crate) fn print(&self) {
        println!();
        println!("| What, median (99th percentile) | Ours | Floor | Ratio | Target | Verdict |");
        println!("|---|---|---|---|---|---|");
        print!("{}", self.rows);
    }
}

fn text(series: &Series, unit: &str) -> String {
    format!("{:.1} ({:.1}) {unit}", series.median(), series.p99()).trim_end().to_owned()
}
