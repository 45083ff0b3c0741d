//! Patches, by content type.

use serde_json::Value;
use tracing::debug;

use crate::failure::Failure;
use crate::path::ResourcePath;
use crate::strategic::{self, Unfit};

#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    pub(crate) fn read(target: &ResourcePath, content_type: &str, body: &[u8]) -> Result<Self, Failure> {
        let unread =
            |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json).map_err(unread),
            "application/merge-patch+json" => serde_json::from_slice(body).map(Self::Merge).map_err(unread),
            // The server has no merge keys for custom resources.
            "application/strategic-merge-patch+json" if target.known().is_some() => {
                serde_json::from_slice(body).map(Self::Strategic).map_err(unread)
            }
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(Failure::new(
                415,
                "UnsupportedMediaType",
                "kubesim does not serve server-side apply: send a strategic merge, merge or JSON patch, or use \
                 kubectl apply without --server-side",
            )),
            other => Err(Failure::new(
                415,
                "UnsupportedMediaType",
                format!(
                    "the body of the request was in an unknown format ({other}) - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json{}",
                    if target.known().is_some() { ", application/strategic-merge-patch+json" } else { "" }
                ),
            )),
        }
    }

    pub(crate) fn apply(&self, target: &ResourcePath, held: &Value) -> Result<Value, Failure> {
        match self {
            Self::Json(patch) => {
                let mut new = held.clone();
                // Like the API server, without the failed operation.
                json_patch::patch(&mut new, patch).map_err(|error| {
                    debug!(%error, "a JSON patch does not fit");
                    let text = "the server rejected our request due to an error in our request";
                    Failure::new(422, "Invalid", text)
                })?;
                Ok(new)
            }
            Self::Merge(patch) => {
                let mut new = held.clone();
                json_patch::merge(&mut new, patch);
                Ok(new)
            }
            Self::Strategic(patch) => {
                strategic::apply(&target.resource, held, patch).map_err(|unfit| match unfit {
                    Unfit::Form(why) => Failure::bad_request(why),
                    Unfit::Item(why) => Failure::new(500, "InternalError", why),
                })
            }
        }
    }
}
