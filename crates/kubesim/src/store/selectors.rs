//! Label and field selectors.

use serde_json::Value;

/// A selector such as `app=web,tier!=db,x in (a,b),!old`.
pub(crate) fn labels_match(labels: &Value, selector: &str) -> bool {
    split(selector).iter().all(|term| term_matches(labels, term))
}

/// Splits at commas outside of brackets.
fn split(selector: &str) -> Vec<String> {
    let (mut terms, mut depth) = (vec![String::new()], 0_u32);
    for letter in selector.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(term) = terms.last_mut() {
            term.push(letter);
        }
    }
    terms.into_iter().map(|term| term.trim().to_owned()).filter(|term| !term.is_empty()).collect()
}

fn term_matches(labels: &Value, term: &str) -> bool {
    let value = |key: &str| labels.get(key.trim()).and_then(Value::as_str);
    let set = |list: &str| -> Vec<String> {
        list.trim().trim_matches(['(', ')']).split(',').map(|it| it.trim().to_owned()).collect()
    };
    if let Some((key, list)) = term.split_once(" notin ") {
        return value(key).is_none_or(|held| !set(list).iter().any(|it| it == held));
    }
    if let Some((key, list)) = term.split_once(" in ") {
        return value(key).is_some_and(|held| set(list).iter().any(|it| it == held));
    }
    if let Some((key, wanted)) = term.split_once("!=") {
        return value(key) != Some(wanted.trim());
    }
    if let Some((key, wanted)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return value(key) == Some(wanted.trim());
    }
    match term.strip_prefix('!') {
        Some(key) => value(key).is_none(),
        None => value(term).is_some(),
    }
}

/// Selectable fields besides name and namespace, with their defaults.
fn selectable(resource: &str) -> &'static [(&'static str, &'static str)] {
    match resource {
        "pods" => &[
            ("spec.nodeName", ""),
            ("spec.restartPolicy", "Always"),
            ("spec.schedulerName", "default-scheduler"),
            ("spec.serviceAccountName", ""),
            ("spec.hostNetwork", "false"),
            ("status.phase", ""),
            ("status.podIP", ""),
            ("status.nominatedNodeName", ""),
        ],
        "nodes" => &[("spec.unschedulable", "false")],
        "namespaces" => &[("status.phase", "")],
        "apps/replicasets" => &[("status.replicas", "0")],
        "events" => &[
            ("involvedObject.kind", ""),
            ("involvedObject.namespace", ""),
            ("involvedObject.name", ""),
            ("involvedObject.uid", ""),
            ("involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", ""),
            ("regarding.kind", ""),
            ("regarding.namespace", ""),
            ("regarding.name", ""),
            ("regarding.uid", ""),
            ("reason", ""),
            ("reportingComponent", ""),
            ("type", ""),
        ],
        _ => &[],
    }
}

/// Errors: the unknown field.
pub(crate) fn fields_match(resource: &str, object: &Value, selector: &str) -> Result<bool, String> {
    let mut all = true;
    for term in split(selector) {
        let (field, wanted, equal) = match (term.split_once("!="), term.split_once('=')) {
            (Some((field, wanted)), _) => (field, wanted, false),
            (None, Some((field, wanted))) => (field, wanted.trim_start_matches('='), true),
            (None, None) => return Err(term),
        };
        let always = [("metadata.name", ""), ("metadata.namespace", "")];
        let known = always.iter().chain(selectable(resource)).find(|(name, _)| *name == field.trim());
        let (name, default) = known.ok_or_else(|| field.trim().to_owned())?;
        // Events are stored as v1.
        let place = format!("/{}", name.replace("regarding.", "involvedObject.").replace('.', "/"));
        let value = match object.pointer(&place) {
            None | Some(Value::Null) => (*default).to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        all &= (value == wanted.trim()) == equal;
    }
    Ok(all)
}

pub(crate) fn spec_matches(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object();
    let exact = exact.is_none_or(|all| all.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let terms = selector["matchExpressions"].as_array();
    exact
        && terms.is_none_or(|all| {
            all.iter().all(|term| {
                let held = labels.get(term["key"].as_str().unwrap_or_default());
                let listed =
                    term["values"].as_array().is_some_and(|all| held.is_some_and(|it| all.contains(it)));
                match term["operator"].as_str().unwrap_or_default() {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => held.is_some(),
                    "DoesNotExist" => held.is_none(),
                    _ => false,
                }
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_read_as_the_server_reads_them() {
        let labels = json!({ "app": "web", "tier": "front" });
        for (selector, expected) in [
            ("app=web", true),
            ("app==web,tier!=db", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("app in (web, db)", true),
            ("app notin (web)", false),
            ("missing notin (x)", true),
            ("app,!missing", true),
            ("missing", false),
            ("", true),
        ] {
            assert_eq!(labels_match(&labels, selector), expected, "{selector}");
        }
    }

    #[test]
    fn field_selectors_know_their_fields_only() {
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n1" } });
        let node = json!({ "metadata": { "name": "n1" }, "spec": {} });
        let event = json!({ "involvedObject": { "name": "p" }, "reason": "Killing" });
        for (resource, object, selector, expected) in [
            ("pods", &pod, "spec.nodeName=n1,metadata.name!=q", Ok(true)),
            ("pods", &pod, "spec.nodeName=n2", Ok(false)),
            ("pods", &pod, "spec.hostNetwork==false", Ok(true)),
            ("pods", &pod, "spec.color=red", Err("spec.color".to_owned())),
            ("nodes", &node, "spec.unschedulable=false", Ok(true)),
            ("nodes", &node, "spec.nodeName=n1", Err("spec.nodeName".to_owned())),
            ("events", &event, "involvedObject.name=p,reason=Killing", Ok(true)),
            ("events", &event, "regarding.name=q", Ok(false)),
        ] {
            assert_eq!(fields_match(resource, object, selector), expected, "{resource} {selector}");
        }
    }
}
