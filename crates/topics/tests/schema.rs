//! JSON Schemas of all topics, from their types.
//!
//! They describe what is written, and of topics that only other agents publish what is read. Unknown members are
//! allowed, as readers ignore them.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use topics::{Topic, every_topic};

/// JSON Schema 2020-12, sorted by name.
pub(crate) fn all() -> Vec<(&'static str, Value)> {
    every_topic!(schema)
}

/// Output of commands for programs, by command.
pub(crate) fn commands() -> Vec<(&'static str, Value)> {
    vec![("verify", of::<topics::VerifyReport>())]
}

/// Answers of the status server, by path.
pub(crate) fn served() -> Vec<(&'static str, Value)> {
    vec![("status.json", of::<topics::NodeStatus>()), ("drain", of::<topics::Headline>())]
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

/// Writes ranges in standard words, and leaves out defaults: each is Go's zero value.
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
