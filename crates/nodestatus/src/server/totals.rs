//! What has happened since zedkube started, as counters of the metrics.
//!
//! Labels are words of the code alone. Not here: who counts (`zedkube`). Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use topics::{RepairKind, SkipKind};

use super::prometheus::{MetricsPage, REPLIES, known};

/// Ends of a drain.
const ENDS: [&str; 5] = ["complete", "skipped", "forced", "failed", "withdrawn"];
/// Why a drain was skipped.
const REASONS: [&str; 3] = [SkipKind::ApiUnreachable.word(), SkipKind::Forced.word(), SkipKind::Other.word()];
const REPAIRS: [&str; 3] = [RepairKind::Taint.word(), RepairKind::Cordon.word(), RepairKind::Pod.word()];
/// Counts since zedkube started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    drains: BTreeMap<&'static str, u64>,
    skips: BTreeMap<&'static str, u64>,
    replies: BTreeMap<&'static str, u64>,
    repairs: BTreeMap<&'static str, u64>,
    events: BTreeMap<&'static str, u64>,
    /// Codes of blockers that are told by name; any other is `other`.
    pub codes: &'static [&'static str],
    /// Seconds of drains that were completed.
    pub drain_seconds: u64,
    /// Evictions that the server has accepted.
    pub evictions: u64,
    /// Cordons that somebody removed in a drain and that were set again.
    pub recordons: u64,
    /// How often nothing progressed for the set time.
    pub stalls: u64,
    pub stalled: bool,
    /// Events that were not sent.
    pub events_left_out: u64,
}

impl Totals {
    /// A drain ended: `complete`, `skipped`, `forced`, `failed` or `withdrawn`.
    pub fn ended(&mut self, end: &'static str) {
        *self.drains.entry(end).or_default() += 1;
    }

    /// One was skipped.
    pub fn skipped(&mut self, kind: SkipKind) {
        *self.skips.entry(kind.word()).or_default() += 1;
    }

    /// Calls that ask pods to leave were answered so, by the word of `Replies`.
    pub fn reply(&mut self, word: &str, count: u64) {
        *self.replies.entry(known(&REPLIES, word)).or_default() += count;
    }

    /// Something was repaired after an outage.
    pub fn repair(&mut self, kind: RepairKind, count: u64) {
        *self.repairs.entry(kind.word()).or_default() += count;
    }

    /// An Event was written.
    pub fn event(&mut self, reason: &'static str) {
        *self.events.entry(reason).or_default() += 1;
    }

    pub(super) fn write(&self, out: &mut MetricsPage) {
        let build = [(env!("CARGO_PKG_VERSION"), 1)];
        out.many("pillar_build_info", "1, with the version of this program", "version", build);
        out.counters("pillar_drains_total", "drains that ended", "end", all(&ENDS, &self.drains));
        out.counter(
            "pillar_drain_seconds_total",
            "seconds of drains that were completed",
            self.drain_seconds,
        );
        out.counters("pillar_skips_total", "drains left out by reason", "reason", all(&REASONS, &self.skips));
        out.counter("pillar_evictions_total", "evictions accepted", self.evictions);
        let replies = self.replies.iter().map(|(word, count)| (*word, *count));
        out.counters("pillar_eviction_replies_total", "answers to evictions", "reply", replies);
        let repairs = all(&REPAIRS, &self.repairs).chain([("recordon", self.recordons)]);
        out.counters("pillar_repairs_total", "what zedkube repaired by itself", "kind", repairs);
        out.counter(
            "pillar_stalls_total",
            "how often a drain made no progress for the set time",
            self.stalls,
        );
        out.one("pillar_drain_stalled", "1 while a drain makes no progress", self.stalled.into());
        let events = self.events.iter().map(|(reason, count)| (*reason, *count));
        out.counters("pillar_events_total", "Events written about the Node", "reason", events);
        out.counter("pillar_events_left_out_total", "Events that were not sent", self.events_left_out);
    }
}

/// Each word, with 0 for what has not happened: a counter that appears with its first count has no increase.
fn all<'a>(
    words: &'a [&'static str],
    counts: &'a BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    words.iter().map(|it| (*it, counts.get(it).copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o4_counters_begin_at_zero_and_a_strange_word_is_other() {
        let mut totals = Totals { evictions: 4, recordons: 2, drain_seconds: 61, ..Totals::default() };
        totals.ended("complete");
        totals.skipped(SkipKind::Forced);
        totals.skipped(SkipKind::Other);
        totals.reply("budget", 9);
        totals.reply("\"}\nevil 1", 2);
        totals.repair(RepairKind::Taint, 2);
        totals.repair(RepairKind::Pod, 1);
        totals.event("DrainStarted");
        let mut out = MetricsPage::default();
        totals.write(&mut out);
        let text = out.text();
        for line in [
            "pillar_build_info{version=\"0.1.0\"} 1",
            "# TYPE pillar_drains_total counter",
            "pillar_drains_total{end=\"complete\"} 1",
            "pillar_drains_total{end=\"failed\"} 0",
            "pillar_drain_seconds_total 61",
            "pillar_skips_total{reason=\"forced\"} 1",
            "pillar_skips_total{reason=\"other\"} 1",
            "pillar_skips_total{reason=\"api-unreachable\"} 0",
            "pillar_evictions_total 4",
            "pillar_eviction_replies_total{reply=\"budget\"} 9",
            "pillar_eviction_replies_total{reply=\"other\"} 2",
            "pillar_repairs_total{kind=\"taint\"} 2",
            "pillar_repairs_total{kind=\"cordon\"} 0",
            "pillar_repairs_total{kind=\"pod\"} 1",
            "pillar_repairs_total{kind=\"recordon\"} 2",
            "# TYPE pillar_drain_stalled gauge",
            "pillar_events_total{reason=\"DrainStarted\"} 1",
            "pillar_events_left_out_total 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }
}
