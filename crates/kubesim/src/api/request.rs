//! A parsed request, and the response.
//!
//! Not here: routing (`api`), transport (`server`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::failure::Failure;
use crate::table::Include;
use crate::watch::PendingWatch;

pub(crate) struct SimRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) body: Vec<u8>,
}

impl SimRequest {
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|it| !it.is_empty())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.given(name), Some("true" | "1"))
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, Failure> {
        let read = |text: &str| {
            let bad = |_| Failure::bad_request(format!("{name}: {text:?} is no number"));
            text.parse().map_err(bad)
        };
        self.given(name).map(read).transpose()
    }

    pub(super) fn table(&self) -> Option<Include> {
        Include::wanted(&self.accept, self.given("includeObject"))
    }

    pub(crate) fn json(&self) -> Result<Value, Failure> {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        if !matches!(kind, "" | "application/json") {
            let text = format!(
                "the body of the request was in an unknown format ({kind}) - accepted media types include: application/json"
            );
            return Err(Failure::new(415, "UnsupportedMediaType", text));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))
    }
}

pub(crate) enum SimResponse {
    Json(u16, Value),
    Text(u16, String),
    Watch(Box<PendingWatch>),
}
