//! The schema of a topic's form on a socket, out of that of its form on disk: an empty list is `null`, a large member
//! is the path of a file.

use serde_json::{Value, json};

/// Every topic by name with the schema of its form on a socket.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let mut all = crate::schema::all();
    for (_, schema) in &mut all {
        on_the_wire(schema);
    }
    all
}

/// Turns a schema of the form on disk into one of the form on a socket.
fn on_the_wire(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(on_the_wire),
        Value::Object(parts) => {
            if let Some(kind) = parts.get("type").cloned()
                && (kind == "array"
                    || kind.as_array().is_some_and(|kinds| kinds.iter().any(|it| it == "array")))
            {
                parts.insert("type".to_owned(), json!(["array", "null"]));
                parts.insert("minItems".to_owned(), 1.into());
            }
            if let Some(members) = parts.get_mut("properties").and_then(Value::as_object_mut) {
                *members = std::mem::take(members)
                    .into_iter()
                    .map(|(name, part)| match in_a_file(&name) {
                        Some(file) => (file, path_of_a_file()),
                        None => (name, part),
                    })
                    .collect();
            }
            for name in parts.get_mut("required").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(other) = name.as_str().and_then(in_a_file) {
                    *name = other.into();
                }
            }
            parts.values_mut().for_each(on_the_wire);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The name of a large member on a socket; `None` for any other member.
fn in_a_file(name: &str) -> Option<String> {
    name.strip_prefix("pubsub-large-").map(|rest| format!("pubsub-file-{rest}"))
}

fn path_of_a_file() -> Value {
    json!({
        "type": "string", "pattern": "^\"/.+\"$",
        "description": "Absolute path, in JSON quotes of its own, of a file that holds the member under its large name.",
    })
}
