//! The affinity of a replica set, and what turns the one that there is into it.
//!
//! Source: spec/eve-rest.md 3.8. Pure: no clock, no I/O, no task.

use serde_json::{Map, Value, json};
use topics::Affinity;

/// `None` for an unknown number.
pub(super) fn wanted(node: &str, how: Affinity) -> Option<Value> {
    let here = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }]);
    let of = |name: &str, value: Value| Some(json!({ "nodeAffinity": { name: value } }));
    match how {
        Affinity::Preferred => of(
            "preferredDuringSchedulingIgnoredDuringExecution",
            json!([{ "weight": 100, "preference": { "matchExpressions": here } }]),
        ),
        Affinity::Required => of(
            "requiredDuringSchedulingIgnoredDuringExecution",
            json!({ "nodeSelectorTerms": [{ "matchExpressions": here }] }),
        ),
        Affinity::Stranger(_) => None,
    }
}

/// Merge patch from `now` to `wanted`: extra members are null. `None` where they are equal.
pub(super) fn change(now: &Value, wanted: &Value) -> Option<Value> {
    if now == wanted {
        return None;
    }
    let (Some(old), Some(new)) = (now.as_object(), wanted.as_object()) else { return Some(wanted.clone()) };
    let mut patch: Map<String, Value> =
        old.keys().filter(|it| !new.contains_key(*it)).map(|it| (it.clone(), Value::Null)).collect();
    for (name, value) in new {
        if let Some(part) = change(old.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), part);
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affinity_is_the_references() {
        let here = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"] }]);
        let preferred = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution":
            [{ "weight": 100, "preference": { "matchExpressions": here } }] } });
        let required = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
            { "nodeSelectorTerms": [{ "matchExpressions": here }] } } });
        assert_eq!(wanted("n1", Affinity::Preferred), Some(preferred.clone()));
        assert_eq!(wanted("n1", Affinity::Required), Some(required.clone()));
        assert_eq!(wanted("n1", Affinity::from(2)), None);
        assert_eq!(change(&required, &required), None);
        assert_eq!(change(&Value::Null, &required), Some(required.clone()));
        let pods = json!({ "podAffinity": { "a": 1 }, "nodeAffinity": preferred["nodeAffinity"] });
        let patch = change(&pods, &required).unwrap();
        assert_eq!(patch["podAffinity"], Value::Null);
        assert!(patch.as_object().unwrap().contains_key("podAffinity"));
        let node = patch["nodeAffinity"].as_object().unwrap();
        assert_eq!(node["preferredDuringSchedulingIgnoredDuringExecution"], Value::Null);
        assert_eq!(
            node["requiredDuringSchedulingIgnoredDuringExecution"],
            required["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        );
    }
}
