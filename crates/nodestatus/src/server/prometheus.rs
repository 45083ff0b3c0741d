//! The text that Prometheus reads, and the words of its labels.
//!
//! Not here: the figures (`metrics`, `totals`). Pure: no clock, no I/O, no task.

use std::fmt::Write as _;

/// Answers to calls that ask pods to leave; any other is `other`.
pub(super) const REPLIES: [&str; 14] = [
    "accepted",
    "gone",
    "other-pod",
    "conflict",
    "expired",
    "budget",
    "moving",
    "cannot-move",
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

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
    }

    pub(super) fn one(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        writeln!(self.0, "{name} {value}").unwrap_or_default();
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        writeln!(self.0, "{name} {value}").unwrap_or_default();
    }

    pub(super) fn many<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help, "gauge");
        self.values(name, label, values);
    }

    pub(super) fn counters<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, help, "counter");
        self.values(name, label, values);
    }

    fn values<L: AsRef<str>>(&mut self, name: &str, label: &str, values: impl IntoIterator<Item = (L, u64)>) {
        for (word, value) in values {
            writeln!(self.0, "{name}{{{label}=\"{}\"}} {value}", word.as_ref()).unwrap_or_default();
        }
    }
}
