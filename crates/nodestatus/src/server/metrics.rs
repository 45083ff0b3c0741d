//! The figures at `/metrics`, as docs/reference/metrics.md names them: what NodeDrainProgress and DrainHistory show.
//!
//! Labels are words of this file or of the code alone, never names of pods or texts: their number is bounded. Figures
//! of the history cover the drains that it keeps, so they may fall: those are gauges; the counters are of what has happened since zedkube started.
//! Pure: no clock, no I/O, no task.

use std::fmt::Write as _;

use serde::Serialize;
use step::{Inserted as _, LiteMap};
use topics::{
    DrainHistory, DrainRecord, DrainStatus, GoTime, NodeDrainProgress, RepairKind, SkipKind, StepWord,
};

use super::view::NodeView;

/// Layers of the gate after a boot that are warned of; any other is `other`.
const WARNED: [&str; 6] = ["clock", "network", "storage-pods", "system-pods", "machines", "repairs"];
pub(super) fn metrics(view: &NodeView, totals: &Totals, now: GoTime) -> String {
    let mut out = MetricsPage::default();
    out.one("pillar_up", "1 while zedkube runs", 1);
    totals.write(&mut out);
    if let Some(progress) = &view.drain.progress {
        present(&mut out, progress, totals.codes, now);
    }
    if let Some(history) = &view.drain.history {
        past(&mut out, history);
    }
    if let Some(leader) = &view.leader {
        let holds = u64::from(leader.is_stats_leader);
        out.one("pillar_stats_leader", "1 while this node holds the statistics lease", holds);
    }
    out.text()
}

fn present(out: &mut MetricsPage, progress: &NodeDrainProgress, codes: &[&'static str], now: GoTime) {
    let counts = progress.counts;
    let seconds = if progress.status.is_under_way() { between(progress.started_at, now) } else { 0 };
    let (mut pods, mut waits) = (LiteMap::new_vec(), LiteMap::new_vec());
    for blocker in &progress.blockers {
        let code = known(codes, &blocker.code);
        *pods.entry(code).or_insert(0) += 1;
        *waits.entry(code).or_insert(0) += between(blocker.since, now);
    }
    out.one("pillar_drain_status", "number of NodeDrainStatus", progress.status.number().into());
    out.many("pillar_drain_phase", "1 for the present phase", "phase", [(word(&progress.phase), 1)]);
    out.one("pillar_drain_attempt", "attempt of this drain, 0 before the first", progress.attempt.into());
    out.one("pillar_drain_seconds", "seconds since this drain began, 0 without one", seconds);
    let states = [
        ("gone", counts.gone),
        ("going", counts.going),
        ("waiting", counts.waiting),
        ("blocked", counts.blocked),
    ];
    let states = states.map(|(state, count)| (state, u64::from(count)));
    out.many("pillar_drain_pods", "pods of this attempt by state", "state", states);
    out.many("pillar_drain_blocked_pods", "pods that do not leave by code", "code", pods);
    out.many("pillar_drain_blocked_seconds", "how long they have been blocked, summed up", "code", waits);
    out.one("pillar_drain_evictions", "evictions accepted in this attempt", progress.evicted.into());
    let mut replies = LiteMap::new_vec();
    for (word, count) in &progress.replies {
        *replies.entry(known(&REPLIES, word)).or_insert(0) += u64::from(*count);
    }
    out.many("pillar_drain_eviction_replies", "answers to evictions in this attempt", "reply", replies);
    out.one(
        "pillar_drain_recordons",
        "times the cordon was put back in this attempt",
        progress.recordons.into(),
    );
    let warned = progress.gate.warnings.iter().filter(|it| it.failed);
    let warned: LiteMap<&str, u64> = warned.map(|it| (known(&WARNED, &it.layer), 1)).into_lite();
    out.many("pillar_gate_warnings", "layers of the gate after a boot that are warned of", "layer", warned);
    let mut repairs = LiteMap::new_vec();
    for (what, count) in &progress.repairs {
        *repairs.entry(RepairKind::of(what).word()).or_insert(0) += u64::from(*count);
    }
    out.many("pillar_repairs", "what zedkube removed after an outage since it started", "kind", repairs);
}

fn past(out: &mut MetricsPage, history: &DrainHistory) {
    let (mut ends, mut skips) = (LiteMap::new_vec(), LiteMap::new_vec());
    let mut repairs = [("recordon", 0_u64), ("restarted", 0), ("void", 0)].into_iter().into_lite();
    for drain in &history.drains {
        *ends.entry(end(drain)).or_insert(0) += 1;
        if !drain.skip.is_empty() {
            *skips.entry(drain.skip_kind.word()).or_insert(0) += 1;
        }
        *repairs.entry("recordon").or_insert(0) += u64::from(drain.recordons);
        for (kind, word) in [("restarted", StepWord::Restarted), ("void", StepWord::Void)] {
            let steps = drain.steps.iter().filter(|it| it.step == word).count();
            *repairs.entry(kind).or_insert(0) += u64::try_from(steps).unwrap_or(u64::MAX);
        }
    }
    let last = history.drains.iter().find(|it| !it.is_open()).map_or(0, |it| it.seconds);
    let evictions = history.drains.iter().map(|it| u64::from(it.evicted)).sum();
    out.one("pillar_drain_last_seconds", "seconds that the last ended drain took", last);
    out.many("pillar_drain_history_drains", "drains kept in the history by end", "end", ends);
    out.one("pillar_drain_history_evictions", "evictions accepted in them", evictions);
    out.many("pillar_drain_history_skips", "those left out by reason", "reason", skips);
    out.many("pillar_drain_history_repairs", "what zedkube repaired by itself in them", "kind", repairs);
}

fn end(drain: &DrainRecord) -> &'static str {
    if drain.is_open() {
        return "open";
    }
    if drain.status == DrainStatus::Complete {
        return if drain.skip.is_empty() { "complete" } else { "skipped" };
    }
    if !drain.status.is_failure() {
        return OTHER;
    }
    if drain.status == DrainStatus::FailedCordon { "failed-cordon" } else { "failed-drain" }
}

/// Whole seconds, 0 when the first is not set or the clock went back.
pub(super) fn between(since: GoTime, now: GoTime) -> u64 {
    if since.is_zero() {
        return 0;
    }
    let secs = now.to_timestamp().as_second() - since.to_timestamp().as_second();
    u64::try_from(secs).unwrap_or_default()
}

/// The word of an enum as it is on disk.
pub(super) fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Answers to calls that ask pods to leave; any other is `other`.
pub(super) const REPLIES: [&str; 15] = [
    "accepted",
    "gone",
    "other-pod",
    "conflict",
    "expired",
    "budget",
    "moving",
    "cannot-move",
    "responding",
    "many-budgets",
    "throttled",
    "namespace-ending",
    "denied",
    "api-trouble",
    "refused",
];
pub(super) const OTHER: &str = "other";

/// A word that is known, or `other`.
pub(super) fn known(words: &[&'static str], word: &str) -> &'static str {
    words.iter().find(|it| **it == word).copied().unwrap_or(OTHER)
}

/// The text that Prometheus reads.
#[derive(Default)]
pub(super) struct MetricsPage(String);

impl MetricsPage {
    pub(super) fn text(self) -> String {
        self.0
    }

    /// A figure whose name ends in `_total` is a counter, any other a gauge.
    fn head(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
    }

    pub(super) fn one(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help);
        writeln!(self.0, "{name} {value}").unwrap_or_default();
    }

    pub(super) fn many<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help);
        for (word, value) in values {
            writeln!(self.0, "{name}{{{label}=\"{}\"}} {value}", word.as_ref()).unwrap_or_default();
        }
    }
}

const ENDS: [&str; 5] = ["complete", "skipped", "forced", "failed", "withdrawn"];
/// Why a drain was skipped.
const REASONS: [&str; 3] = [SkipKind::ApiUnreachable.word(), SkipKind::Forced.word(), SkipKind::Other.word()];
const REPAIRS: [&str; 3] = [RepairKind::Taint.word(), RepairKind::Cordon.word(), RepairKind::Pod.word()];
/// Counts since zedkube started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    drains: LiteMap<&'static str, u64>,
    skips: LiteMap<&'static str, u64>,
    replies: LiteMap<&'static str, u64>,
    repairs: LiteMap<&'static str, u64>,
    events: LiteMap<&'static str, u64>,
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

    pub fn event(&mut self, reason: &'static str) {
        *self.events.entry(reason).or_default() += 1;
    }

    pub(super) fn write(&self, out: &mut MetricsPage) {
        let build = [(env!("CARGO_PKG_VERSION"), 1)];
        out.many("pillar_build_info", "1, with the version of this program", "version", build);
        out.many("pillar_drains_total", "drains that ended", "end", all(&ENDS, &self.drains));
        out.one("pillar_drain_seconds_total", "seconds of drains that were completed", self.drain_seconds);
        out.many("pillar_skips_total", "drains left out by reason", "reason", all(&REASONS, &self.skips));
        out.one("pillar_evictions_total", "evictions accepted", self.evictions);
        let replies = self.replies.iter().map(|(word, count)| (*word, *count));
        out.many("pillar_eviction_replies_total", "answers to evictions", "reply", replies);
        let repairs = all(&REPAIRS, &self.repairs).chain([("recordon", self.recordons)]);
        out.many("pillar_repairs_total", "what zedkube repaired by itself", "kind", repairs);
        out.one("pillar_stalls_total", "how often a drain made no progress for the set time", self.stalls);
        out.one("pillar_drain_stalled", "1 while a drain makes no progress", self.stalled.into());
        let events = self.events.iter().map(|(reason, count)| (*reason, *count));
        out.many("pillar_events_total", "Events written about the Node", "reason", events);
        out.one("pillar_events_left_out_total", "Events that were not sent", self.events_left_out);
    }
}

/// Each word, with 0 for what has not happened: a counter that appears with its first count has no increase.
fn all<'a>(
    words: &'a [&'static str],
    counts: &'a LiteMap<&'static str, u64>,
) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    words.iter().map(|it| (*it, counts.get(it).copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sheet::DrainView;

    fn at(text: &str) -> GoTime {
        text.parse().unwrap()
    }

    /// What no label may be.
    const EVIL: &str = "\"}\nevil 1";

    fn view() -> NodeView {
        let progress = json!({
            "Phase": "draining", "Status": 5, "Attempt": 2, "Evicted": 4, "Recordons": 1,
            "StartedAt": "2026-03-14T09:29:00Z",
            "Counts": { "Total": 9, "Gone": 3, "Going": 1, "Waiting": 2, "Blocked": 3 },
            "Blockers": [
                { "Pod": "shop/\"web\"", "Code": "budget", "Since": "2026-03-14T09:30:00Z" },
                { "Pod": "shop/\"web\"", "Code": "budget", "Since": "2026-03-14T09:30:30Z" },
                { "Pod": "shop/\"web\"", "Code": EVIL, "Since": "2026-03-14T09:31:10Z" },
            ],
            "Replies": { "accepted": 4, "budget": 9, EVIL: 2, "another": 1 },
            // One that is within its limit is no warning yet.
            "Gate": { "Warnings": [
                { "Layer": "clock", "Failed": true }, { "Layer": EVIL, "Failed": true }, { "Layer": "machines" },
            ] },
            "Repairs": {
                "node.kubernetes.io/unreachable:NoExecute": 2, "node.kubernetes.io/not-ready:NoSchedule": 1,
                "own cordon of an earlier boot": 1, EVIL: 4,
            },
        });
        let drain = |status: u8, skip: &str, kind: &str, seconds: u64, steps: &[&str]| {
            let steps: Vec<_> = steps.iter().map(|it| json!({ "Step": it })).collect();
            json!({
                "StartedAt": "2026-03-14T08:00:00Z", "EndedAt": "2026-03-14T08:01:00Z", "Status": status,
                "Skip": skip, "SkipKind": kind, "Seconds": seconds, "Evicted": 5, "Recordons": 2, "Steps": steps,
            })
        };
        let history = json!({ "Drains": [
            { "StartedAt": "2026-03-14T09:29:00Z" },
            drain(9, "", "none", 61, &["taken", "restarted", "void"]),
            drain(9, "why", "forced", 7, &[]),
            drain(8, "", "none", 900, &["restarted"]),
        ] });
        let progress = serde_json::from_value(progress).unwrap();
        let history = serde_json::from_value(history).unwrap();
        let drain = DrainView { progress, history, ..DrainView::default() };
        NodeView { drain, ..NodeView::default() }
    }

    /// Those have a test of their own.
    fn is_of_totals(line: &str) -> bool {
        let name = line.split(['{', ' ']).next().unwrap();
        name.ends_with("_total") || ["pillar_build_info", "pillar_drain_stalled"].contains(&name)
    }

    #[test]
    fn o4_figures_are_those_of_the_topics_and_a_strange_code_is_other() {
        let totals = Totals { codes: &["budget"], ..Totals::default() };
        let text = metrics(&view(), &totals, at("2026-03-14T09:31:10Z"));
        let is_gauge = |it: &&str| !it.starts_with('#') && !is_of_totals(it);
        let lines: Vec<&str> = text.lines().filter(is_gauge).collect();
        let expected = "pillar_up 1
pillar_drain_status 5
pillar_drain_phase{phase=\"draining\"} 1
pillar_drain_attempt 2
pillar_drain_seconds 130
pillar_drain_pods{state=\"gone\"} 3
pillar_drain_pods{state=\"going\"} 1
pillar_drain_pods{state=\"waiting\"} 2
pillar_drain_pods{state=\"blocked\"} 3
pillar_drain_blocked_pods{code=\"budget\"} 2
pillar_drain_blocked_pods{code=\"other\"} 1
pillar_drain_blocked_seconds{code=\"budget\"} 110
pillar_drain_blocked_seconds{code=\"other\"} 0
pillar_drain_evictions 4
pillar_drain_eviction_replies{reply=\"accepted\"} 4
pillar_drain_eviction_replies{reply=\"budget\"} 9
pillar_drain_eviction_replies{reply=\"other\"} 3
pillar_drain_recordons 1
pillar_gate_warnings{layer=\"clock\"} 1
pillar_gate_warnings{layer=\"other\"} 1
pillar_repairs{kind=\"cordon\"} 1
pillar_repairs{kind=\"taint\"} 7
pillar_drain_last_seconds 61
pillar_drain_history_drains{end=\"complete\"} 1
pillar_drain_history_drains{end=\"failed-drain\"} 1
pillar_drain_history_drains{end=\"open\"} 1
pillar_drain_history_drains{end=\"skipped\"} 1
pillar_drain_history_evictions 15
pillar_drain_history_skips{reason=\"forced\"} 1
pillar_drain_history_repairs{kind=\"recordon\"} 6
pillar_drain_history_repairs{kind=\"restarted\"} 2
pillar_drain_history_repairs{kind=\"void\"} 1";
        assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    }

    #[test]
    fn o4_every_figure_is_on_its_page_and_nothing_else_is() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let named = |text: &str| -> std::collections::BTreeSet<String> {
            let strange = |it: char| !it.is_ascii_lowercase() && it != '_';
            text.split(strange).filter(|it| it.starts_with("pillar_")).map(str::to_owned).collect()
        };
        let leader = Some(topics::KubeLeaderElectInfo::default());
        assert_eq!(
            named(&metrics(&NodeView { leader, ..view() }, &Totals::default(), GoTime::ZERO)),
            named(page)
        );
    }

    #[test]
    fn o4_every_reply_to_an_eviction_is_known_by_name() {
        use kubeapi::Reply;
        let (text, retry_after) = (String::new(), None);
        let all = [
            Reply::Done,
            Reply::NotFound { text: text.clone() },
            Reply::UidChanged,
            Reply::Conflict { text: text.clone() },
            Reply::Expired,
            Reply::Budget { text: text.clone(), retry_after },
            Reply::Moving { text: text.clone() },
            Reply::CannotMove { text: text.clone() },
            Reply::Responding { text: text.clone() },
            Reply::ManyBudgets { text: text.clone() },
            Reply::Throttle { text: text.clone(), retry_after },
            Reply::NamespaceEnding { text: text.clone() },
            Reply::Denied { text: text.clone(), by: kubeapi::reply::DeniedBy::Webhook, retry_after },
            Reply::Transient { text: text.clone(), retry_after },
            Reply::Permanent { text, by: kubeapi::reply::RefusedBy::Other },
        ];
        assert_eq!(all.map(|it| it.word()), REPLIES);
    }

    #[test]
    fn o4_counters_begin_at_zero_and_a_strange_word_is_other() {
        let mut totals = Totals { evictions: 4, recordons: 2, drain_seconds: 61, ..Totals::default() };
        totals.ended("complete");
        totals.skipped(SkipKind::Forced);
        totals.skipped(SkipKind::Other);
        totals.reply("budget", 9);
        totals.reply(EVIL, 2);
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
