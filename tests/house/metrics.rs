//! Alert rules and dashboard: they can be read, and each metric and label that they name is on the page of the metrics,
//! which another test compares with what zedkube serves.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::collections::BTreeSet;

use serde_json::Value;

const PAGE: &str = include_str!("../../docs/reference/metrics.md");
const ALERTS: &str = include_str!("../../docs/reference/alerts.yaml");
const DASHBOARD: &str = include_str!("../../docs/reference/dashboard.json");
const ADDED: [&str; 2] = ["instance", "job"];

fn named(text: &str) -> BTreeSet<&str> {
    let strange = |it: char| !it.is_ascii_lowercase() && it != '_';
    text.split(strange).filter(|it| it.starts_with("pillar_")).collect()
}

fn row(metric: &str) -> &'static str {
    PAGE.lines().find(|it| it.starts_with(&format!("| `{metric}` |"))).unwrap()
}

fn labels(text: &str) -> BTreeSet<&str> {
    let shown = text.split("{{").skip(1).filter_map(|it| it.split("}}").next());
    let shown = shown.map(|it| it.trim().trim_start_matches("$labels.")).filter(|it| !it.starts_with('$'));
    let grouped = text.split("by (").skip(1).filter_map(|it| it.split(')').next());
    shown.chain(grouped.flat_map(|it| it.split(", "))).collect()
}

/// Every name in `expr` and its words exists.
fn is_served(expr: &str, words: &str) {
    let metrics = named(expr);
    for metric in &metrics {
        // A label's value is one of the words of its row.
        for (label, value) in expr.split(&[',', '{', '}'][..]).filter_map(|it| it.split_once('=')) {
            let value = value.trim_start_matches(['=', '~']).trim_matches('"');
            if ADDED.contains(&label) || label.contains(' ') || !row(metric).contains(&format!("`{label}`")) {
                continue;
            }
            let known = |it: &str| row(metric).contains(&format!("`{it}`")) || label == "phase";
            assert!(value.split('|').all(known), "{expr}: {label} is never {value}");
        }
    }
    for label in labels(expr).into_iter().chain(labels(words)).filter(|it| !ADDED.contains(it)) {
        let has = |metric: &&str| row(metric).contains(&format!("`{label}`"));
        assert!(metrics.iter().any(has), "{expr}: no label {label}");
    }
}

#[test]
fn o4_every_metric_of_the_alert_rules_is_served() {
    assert!(named(ALERTS).is_subset(&named(PAGE)), "{:?}", named(ALERTS).difference(&named(PAGE)));
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let names: BTreeSet<&str> = rules.iter().map(|it| it["alert"].as_str().unwrap()).collect();
    assert_eq!(names.len(), rules.len());
    assert!(rules.len() >= 5);
    for rule in rules {
        let (expr, words) = (rule["expr"].as_str().unwrap(), &rule["annotations"]);
        assert!(["info", "warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()));
        assert!(words["summary"].is_string() && words["description"].is_string(), "{rule}");
        is_served(expr, words["summary"].as_str().unwrap());
        assert_eq!(expr.matches('(').count(), expr.matches(')').count(), "{expr}");
    }
}

#[test]
fn o4_every_metric_of_the_dashboard_is_served() {
    assert!(named(DASHBOARD).is_subset(&named(PAGE)), "{:?}", named(DASHBOARD).difference(&named(PAGE)));
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for target in panels.iter().flat_map(|it| it["targets"].as_array().unwrap()) {
        is_served(target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
    }
}
