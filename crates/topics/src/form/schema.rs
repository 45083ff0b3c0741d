//! JSON Schemas of all topics, out of the types that read and write them.
//!
//! They describe what is written, and of topics that only other agents publish what is read. Unknown members are
//! allowed, as readers ignore them. There is one for the form on disk and one for the form on a socket,
//! where an empty list is `null` and a large member is the path of a file. Pure: no clock, no I/O, no task.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::Topic;
use crate::go_json::{FILE, LARGE, rest_of};

/// Every topic by name with its schema, JSON Schema 2020-12, in the order of the names.
pub fn all() -> Vec<(&'static str, Value)> {
    crate::every_topic!(schema)
}

/// The same for values as they go over a socket.
pub fn all_wire() -> Vec<(&'static str, Value)> {
    let mut all = all();
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
    rest_of(name, LARGE).map(|rest| format!("{FILE}{rest}"))
}

fn path_of_a_file() -> Value {
    json!({
        "type": "string", "pattern": "^\"/.+\"$",
        "description": "Absolute path, in JSON quotes of its own, of a file that holds the member under its large name.",
    })
}

/// What commands print for programs, by the name of the command.
pub fn commands() -> Vec<(&'static str, Value)> {
    vec![("verify", of::<crate::VerifyReport>())]
}

/// What the status server answers, by path.
pub fn served() -> Vec<(&'static str, Value)> {
    vec![("status.json", of::<crate::NodeStatus>()), ("drain", of::<crate::Headline>())]
}

fn schema<T: Topic>() -> (&'static str, Value) {
    (T::NAME, of::<T>())
}

fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(plain))
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Says ranges in words that every validator knows, and leaves out defaults: each is Go's zero value.
fn plain(schema: &mut Schema) {
    schema.remove("default");
    let range: Option<(Value, Value)> = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => Some((u8::MIN.into(), u8::MAX.into())),
        Some("uint16") => Some((u16::MIN.into(), u16::MAX.into())),
        Some("uint32") => Some((u32::MIN.into(), u32::MAX.into())),
        Some("uint64") => Some((u64::MIN.into(), u64::MAX.into())),
        Some("int32") => Some((i32::MIN.into(), i32::MAX.into())),
        Some("int64") => Some((i64::MIN.into(), i64::MAX.into())),
        _ => None,
    };
    if let Some((least, most)) = range {
        schema.remove("format");
        schema.insert("minimum".to_owned(), least);
        schema.insert("maximum".to_owned(), most);
    }
}
