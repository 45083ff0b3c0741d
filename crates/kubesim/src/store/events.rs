//! Validation of Events: the looser rules of core/v1, and those of events.k8s.io/v1.
//!
//! Objects are in their stored form, core/v1. Source: Kubernetes, validation of Events.

use serde_json::Value;

use crate::failure::Failure;
use crate::kinds;
use crate::path::ResourcePath;

/// Longest reason, action and instance; longest message of an Event with an event time.
const WORD_CHARS: usize = 128;
const NOTE_CHARS: usize = 1024;
/// Immutable members of an events.k8s.io Event; only its series changes.
const FIXED: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Refuses an invalid Event; `held` is the one that it replaces.
pub(crate) fn admit(target: &ResourcePath, event: &Value, held: Option<&Value>) -> Result<(), Failure> {
    let broken = broken(event).or_else(|| match (kinds::group(&target.api_version), held) {
        ("events.k8s.io", None) => strange(event),
        ("events.k8s.io", Some(held)) => changed(event, held),
        (_, _) => None,
    });
    let name = event["metadata"]["name"].as_str().unwrap_or_default();
    broken.map_or(Ok(()), |(field, why)| Err(Failure::invalid(target, name, field, &why)))
}

type Broken = Option<(&'static str, String)>;

fn text<'a>(event: &'a Value, member: &str) -> &'a str {
    event[member].as_str().unwrap_or_default()
}

/// Rules of both forms.
fn broken(event: &Value) -> Broken {
    let namespace = text(&event["metadata"], "namespace");
    let about = text(&event["involvedObject"], "namespace");
    let timed = !event["eventTime"].is_null();
    let fits = match (about, timed) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (about, false) => about == namespace,
        (_, true) => true,
    };
    if !fits {
        let why = format!("Invalid value: \"{about}\": does not match event.namespace");
        return Some(("involvedObject.namespace", why));
    }
    if !timed {
        return None;
    }
    for member in ["reportingComponent", "reportingInstance", "action", "reason"] {
        if text(event, member).is_empty() {
            return Some((member, "Required value".to_owned()));
        }
    }
    let limits = [
        ("reportingInstance", WORD_CHARS),
        ("action", WORD_CHARS),
        ("reason", WORD_CHARS),
        ("message", NOTE_CHARS),
    ];
    let long = limits.into_iter().find(|(member, most)| text(event, member).len() > *most);
    long.map(|(member, most)| (member, format!("Invalid value: \"\": can have at most {most} characters")))
}

/// Additional rules of events.k8s.io.
fn strange(event: &Value) -> Broken {
    if event["eventTime"].is_null() {
        return Some(("eventTime", "Required value".to_owned()));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        return Some(("type", format!("Invalid value: \"\": has invalid value: {kind}")));
    }
    let unset = ["firstTimestamp", "lastTimestamp", "count", "source"];
    let set = unset.into_iter().find(|it| !event[*it].is_null());
    set.map(|it| (it, "Invalid value: \"\": needs to be unset".to_owned()))
}

fn changed(event: &Value, held: &Value) -> Broken {
    let series = &event["series"];
    if !series.is_null() && *series != held["series"] && series["count"].as_u64().is_none_or(|it| it < 2) {
        return Some(("series.count", "Invalid value: \"\": should be at least 2".to_owned()));
    }
    let other = FIXED.into_iter().find(|it| event[*it] != held[*it]);
    other.map(|it| (it, format!("Invalid value: {}: field is immutable", event[it])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OLD: &str = "/api/v1/namespaces/default/events";
    const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

    fn said(path: &str, event: &Value, held: Option<&Value>) -> Result<(), String> {
        admit(&ResourcePath::parse(path).unwrap(), event, held).map_err(|it| it.message)
    }

    fn old() -> Value {
        json!({
            "metadata": { "name": "n1.1", "namespace": "default" }, "involvedObject": { "kind": "Node", "name": "n1" },
            "reason": "DrainStarted", "message": "m", "type": "Normal", "count": 1, "source": { "component": "c" },
        })
    }

    fn new() -> Value {
        json!({
            "metadata": { "name": "n1.1", "namespace": "default" }, "involvedObject": { "kind": "Node", "name": "n1" },
            "reason": "DrainStarted", "message": "m", "type": "Normal", "eventTime": "2026-03-14T09:26:53.000000Z",
            "action": "Drain", "reportingComponent": "c", "reportingInstance": "n1",
        })
    }

    fn with(mut event: Value, change: &Value) -> Value {
        json_patch::merge(&mut event, change);
        event
    }

    #[test]
    fn each_form_of_an_event_has_its_rules() {
        for (path, event, expected) in [
            (OLD, old(), ""),
            (NEW, new(), ""),
            (OLD, new(), ""),
            (NEW, old(), "eventTime: Required value"),
            (
                OLD,
                with(old(), &json!({ "metadata": { "namespace": "shop" } })),
                "does not match event.namespace",
            ),
            (
                NEW,
                with(new(), &json!({ "metadata": { "namespace": "shop" } })),
                "does not match event.namespace",
            ),
            (OLD, with(old(), &json!({ "involvedObject": { "namespace": "shop" } })), "does not match"),
            (NEW, with(new(), &json!({ "action": null })), "action: Required value"),
            (NEW, with(new(), &json!({ "reportingInstance": null })), "reportingInstance: Required value"),
            (NEW, with(new(), &json!({ "type": "Odd" })), "has invalid value: Odd"),
            (NEW, with(new(), &json!({ "count": 1 })), "count: Invalid value: \"\": needs to be unset"),
            (NEW, with(new(), &json!({ "message": "m".repeat(1025) })), "at most 1024 characters"),
            (OLD, with(old(), &json!({ "message": "m".repeat(1025) })), ""),
        ] {
            let said = said(path, &event, None).err().unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{event}: {said}");
        }
    }

    #[test]
    fn only_core_events_are_counted_up_in_place() {
        let again = |event: Value| with(event, &json!({ "count": 2, "message": "m2" }));
        assert_eq!(said(OLD, &again(old()), Some(&old())), Ok(()));
        assert!(said(NEW, &again(new()), Some(&new())).unwrap_err().contains("message: Invalid value"));
        let series =
            |count: u32| with(new(), &json!({ "series": { "count": count, "lastObservedTime": "t" } }));
        assert_eq!(said(NEW, &series(2), Some(&new())), Ok(()));
        assert!(said(NEW, &series(1), Some(&new())).unwrap_err().contains("should be at least 2"));
    }
}
