//! Objects with only the members that are read.
//!
//! Members of a wrong type count as missing: one odd object must not take its whole collection with it.
//! Source: the Kubernetes API reference. Pure: no clock, no I/O, no task.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Unread members, such as `managedFields`, are not built.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawObject {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
    /// Of a `ConfigMap` an object of texts.
    pub data: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// `None` for an object of the cluster.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub resource_version: Option<String>,
    /// As the server writes it.
    pub creation_timestamp: Value,
    /// An object of texts.
    pub labels: Value,
    /// An object of texts.
    pub annotations: Value,
}

impl RawObject {
    pub fn created(&self) -> Option<Timestamp> {
        time(&self.metadata.creation_timestamp)
    }

    /// Empty without it.
    pub fn label(&self, name: &str) -> String {
        text(&self.metadata.labels[name])
    }
}

/// Empty where it is no text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A part of an object in its type, by way of its text: to read it from a `Value` compiles each type a second time, which
/// costs an image some 100 KB.
pub fn typed<T: DeserializeOwned>(part: &Value) -> serde_json::Result<T> {
    serde_json::from_slice(&serde_json::to_vec(part)?)
}

/// An object for a person: `shop/web`, and `n1` without a namespace.
pub fn named(object: &Value) -> String {
    let meta = &object["metadata"];
    match text(&meta["namespace"]) {
        namespace if namespace.is_empty() => text(&meta["name"]),
        namespace => format!("{namespace}/{}", text(&meta["name"])),
    }
}

pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Empty where it is no list.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether condition Ready of an object is True.
pub fn is_ready(object: &Value) -> bool {
    condition(&object["status"], "Ready")["status"] == "True"
}

/// Null where there is none.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    items(&status["conditions"]).iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}
