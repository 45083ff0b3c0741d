//! Refusals, and their Status objects.

use serde_json::{Value, json};

use crate::kinds;
use crate::path::ResourcePath;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Value,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), details: Value::Null }
    }

    /// 410: the list of this page is forgotten.
    pub(crate) fn old_page() -> Self {
        let text = "The provided continue parameter is too old to display a consistent list result. You can start a \
                    new list without the continue parameter.";
        Self::new(410, "Expired", text)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A field breaks a rule.
    pub(crate) fn invalid(target: &ResourcePath, name: &str, field: &str, why: &str) -> Self {
        let kind = match kinds::group(&target.api_version) {
            "" => target.kind().to_owned(),
            group => format!("{}.{group}", target.kind()),
        };
        let mut it = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {field}: {why}"));
        it.details = about(target, name);
        it.details["causes"] = json!([{ "reason": "FieldValueInvalid", "message": why, "field": field }]);
        it
    }

    pub(crate) fn not_found(target: &ResourcePath, name: &str) -> Self {
        let text = format!("{} \"{name}\" not found", target.qualified());
        Self { details: about(target, name), ..Self::new(404, "NotFound", text) }
    }

    pub(crate) fn already_exists(target: &ResourcePath, name: &str) -> Self {
        let text = format!("{} \"{name}\" already exists", target.qualified());
        Self { details: about(target, name), ..Self::new(409, "AlreadyExists", text) }
    }

    pub(crate) fn conflict(target: &ResourcePath, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", target.qualified());
        Self { details: about(target, name), ..Self::new(409, "Conflict", text) }
    }

    /// An unknown path, in the words that `kubectl` knows.
    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "reason": self.reason, "code": self.code, "message": self.message, "details": self.details,
        })
    }
}

pub(crate) fn about(target: &ResourcePath, name: &str) -> Value {
    json!({ "name": name, "group": kinds::group(&target.api_version), "kind": target.plural })
}
