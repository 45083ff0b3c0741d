//! Kubernetes' own objects turned into facts.
//!
//! Members of a wrong type count as missing: one odd object must not break its collection. Sources: the
//! Kubernetes API reference. Pure: no clock, no I/O, no task.

use jiff::Timestamp;
use kubeapi::names::{APP_NAMESPACE, STORAGE_NAMESPACE};
use kubeapi::objects::{RawObject, condition, items, text, time};
use serde_json::Value;

use super::facts::{ClaimFact, DaemonSet, Detail, PodFact};

/// Time since when Ready is true; `None` while it is not.
pub(super) fn ready_since(status: &Value) -> Option<Timestamp> {
    let ready = condition(status, "Ready");
    time(&ready["lastTransitionTime"]).filter(|_| ready["status"] == "True")
}

pub(super) fn pod(raw: &RawObject) -> PodFact {
    let detail = match raw.metadata.namespace.as_deref() {
        Some(APP_NAMESPACE) => {
            let containers = items(&raw.status["containerStatuses"]);
            let restarts =
                containers.iter().filter_map(|it| i32::try_from(it["restartCount"].as_i64()?).ok());
            let ended = |it: &Value| time(&it["lastState"]["terminated"]["finishedAt"]);
            Detail::App {
                restarts: restarts.fold(0, i32::saturating_add),
                restarted: containers.iter().filter_map(ended).max(),
                created: raw.created(),
                ip: text(&raw.status["podIP"]),
                node: text(&raw.spec["nodeName"]),
            }
        }
        Some(STORAGE_NAMESPACE) => {
            Detail::Storage { app: raw.label("app"), ready_since: ready_since(&raw.status) }
        }
        Some(_) | None => Detail::Counted,
    };
    PodFact { phase: text(&raw.status["phase"]), detail }
}

pub(super) fn claim(raw: &RawObject) -> ClaimFact {
    let requested = &raw.spec["resources"]["requests"]["storage"];
    ClaimFact {
        volume: text(&raw.spec["volumeName"]),
        phase: text(&raw.status["phase"]),
        created: raw.created(),
        requested_bytes: requested.as_u64().unwrap_or_else(|| whole(&text(requested))),
    }
}

pub(super) fn daemon_set(raw: &RawObject) -> DaemonSet {
    DaemonSet {
        app: text(&raw.spec["selector"]["matchLabels"]["app"]),
        desired: raw.status["desiredNumberScheduled"].as_u64().unwrap_or_default(),
        ready: raw.status["numberReady"].as_u64().unwrap_or_default(),
    }
}

/// 0 for none, a negative one, and an invalid text.
pub(super) fn whole(text: &str) -> u64 {
    parse(text.trim()).unwrap_or_default()
}

fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (units, parts) = number.split_once('.').unwrap_or((number, ""));
    let parts = parts.get(..parts.len().min(12))?;
    let digits: u128 = format!("{units}{parts}").parse().ok()?;
    let places = i32::try_from(parts.len()).ok()?;
    let (factor, power) = scale(suffix)?;
    let power = power - places;
    let tens = 10_u128.checked_pow(power.unsigned_abs())?;
    let scaled = digits.checked_mul(factor)?;
    let whole = if power < 0 { scaled.div_ceil(tens) } else { scaled.checked_mul(tens)? };
    u64::try_from(whole).ok()
}

/// Factor and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let binary = |power: u32| Some((1_u128 << (10 * power), 0));
    match suffix {
        "" => Some((1, 0)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-18..=18).contains(&power).then_some((1, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T>(object: Value, read: impl Fn(&RawObject) -> T) -> T {
        read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn restarts_are_summed_over_containers_and_the_last_end_counts() {
        let ended = |at: &str| json!({ "terminated": { "finishedAt": at } });
        let object = json!({
            "metadata": { "namespace": APP_NAMESPACE, "name": "a", "creationTimestamp": "2026-03-14T09:00:00Z" },
            "spec": { "nodeName": "n1" },
            "status": { "phase": "Running", "podIP": "10.42.0.15", "containerStatuses": [
                { "restartCount": 2, "lastState": ended("2026-03-14T09:30:00Z") },
                { "restartCount": 1, "lastState": ended("2026-03-14T09:10:00Z") },
                { "restartCount": 4, "lastState": {} },
            ] },
        });
        let Detail::App { restarts, restarted, created, ip, node } = read(object, pod).detail else {
            unreachable!("not an application's")
        };
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        assert_eq!((restarts, restarted), (7, at("2026-03-14T09:30:00Z")));
        assert_eq!(created, at("2026-03-14T09:00:00Z"));
        assert_eq!((ip.as_str(), node.as_str()), ("10.42.0.15", "n1"));
    }

    #[test]
    fn of_other_pods_nothing_but_the_phase_is_kept() {
        let mut object = json!({
            "metadata": { "namespace": "shop", "name": "a", "labels": { "app": "x" } },
            "status": { "phase": "Pending", "conditions": [
                { "type": "Ready", "status": "True", "lastTransitionTime": "2026-03-14T09:30:00Z" },
            ] },
        });
        assert_eq!(
            read(object.clone(), pod),
            PodFact { phase: "Pending".to_owned(), detail: Detail::Counted }
        );
        object["metadata"]["namespace"] = STORAGE_NAMESPACE.into();
        let ready_since = Some("2026-03-14T09:30:00Z".parse().unwrap());
        assert_eq!(read(object, pod).detail, Detail::Storage { app: "x".to_owned(), ready_since });
    }

    #[test]
    fn a_claims_request_may_be_a_number() {
        for (storage, bytes) in [(json!("10Gi"), 10 << 30), (json!(5), 5), (json!(null), 0)] {
            let object = json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
            assert_eq!(read(object, claim).requested_bytes, bytes);
        }
    }

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        for (text, number) in [
            ("10Gi", 10 << 30),
            ("10737418240", 10 << 30),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("1.5k", 1500),
            ("12e6", 12_000_000),
            ("12E-3", 1),
            ("100m", 1),
            ("+5", 5),
            ("7Ei", 7 << 60),
            ("0", 0),
            ("", 0),
            ("-5Gi", 0),
            ("five", 0),
            ("5 Gi", 0),
            ("1e99", 0),
            ("99Ei", 0),
            (".", 0),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
    }
}
