//! Objects of which little is read, whatever else is in them.
//!
//! Members of a wrong type count as left out: one odd object must not take its whole collection with it. Source: the
//! Kubernetes API reference.
//! Pure: no clock, no I/O, no task.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// An object of which little is kept. What nobody reads, as `managedFields`, is not even built.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawObject {
    pub metadata: Meta,
    /// What is wanted of it, as it is.
    pub spec: Value,
    /// What it is, as it is.
    pub status: Value,
    /// What it holds, of a `ConfigMap` an object of texts.
    pub data: Value,
}

/// Metadata of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its namespace; `None` for an object of the cluster.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub resource_version: Option<String>,
    /// When it was made, as the server writes it.
    pub creation_timestamp: Value,
    /// Its labels, an object of texts.
    pub labels: Value,
    /// Its annotations, an object of texts.
    pub annotations: Value,
}

impl RawObject {
    /// When it was made.
    pub fn created(&self) -> Option<Timestamp> {
        time(&self.metadata.creation_timestamp)
    }

    /// The value of a label, empty without it.
    pub fn label(&self, name: &str) -> String {
        text(&self.metadata.labels[name])
    }
}

/// A text, empty where it is none.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An object for a person: `shop/web`, and `n1` without a namespace.
pub fn named(object: &Value) -> String {
    let meta = &object["metadata"];
    match text(&meta["namespace"]) {
        namespace if namespace.is_empty() => text(&meta["name"]),
        namespace => format!("{namespace}/{}", text(&meta["name"])),
    }
}

/// A time of RFC 3339.
pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The items of a list, none where it is none.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The condition of this type, null where there is none.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    items(&status["conditions"]).iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}
