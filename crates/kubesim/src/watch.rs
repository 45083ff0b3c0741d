//! Watches: the changes after a version, then each new one, as lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};

use crate::Shared;
use crate::path::Target;
use crate::selectors::{fields_match, labels_match};

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) target: Target,
    pub(crate) labels: String,
    pub(crate) fields: String,
}

impl Scope {
    /// Whether an object is in the scope.
    pub(crate) fn holds(&self, object: &Value) -> Result<bool, String> {
        let meta = &object["metadata"];
        let here = self.target.namespace.is_empty() || meta["namespace"] == self.target.namespace.as_str();
        Ok(here && labels_match(&meta["labels"], &self.labels) && fields_match(object, &self.fields)?)
    }

    fn event(&self, old: Option<Value>, new: Option<Value>) -> Option<Value> {
        let in_scope = |it: &Option<Value>| it.as_ref().is_some_and(|it| self.holds(it).unwrap_or(false));
        let (kind, object) = match (in_scope(&old), in_scope(&new)) {
            (false, false) => return None,
            (false, true) => ("ADDED", new),
            (true, true) => ("MODIFIED", new),
            (true, false) => match new {
                // It stopped matching: its last matching form, at the new version.
                Some(new) => {
                    let mut last = old.unwrap_or_default();
                    last["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"].clone();
                    ("DELETED", Some(last))
                }
                None => ("DELETED", old),
            },
        };
        Some(json!({ "type": kind, "object": self.dressed(object.unwrap_or_default()) }))
    }

    /// The object with its kind.
    pub(crate) fn dressed(&self, mut object: Value) -> Value {
        object["apiVersion"] = self.target.api_version.clone().into();
        object["kind"] = self.target.kind().into();
        object
    }
}

struct State {
    shared: Arc<Shared>,
    scope: Scope,
    version: u64,
    bookmarks: bool,
    ready: Vec<Value>,
    over: bool,
}

/// The lines of one watch. `first` are events that come before all others.
pub(crate) fn lines(
    shared: Arc<Shared>,
    scope: Scope,
    version: u64,
    bookmarks: bool,
    first: Vec<Value>,
    limit: Duration,
) -> impl Stream<Item = Bytes> {
    let end = Box::pin(tokio::time::sleep(limit));
    let state = State { shared, scope, version, bookmarks, ready: first, over: false };
    futures::stream::unfold((state, end), |(mut state, mut end)| async move {
        loop {
            if !state.ready.is_empty() {
                let mut text = String::new();
                for event in state.ready.drain(..) {
                    text.push_str(&event.to_string());
                    text.push('\n');
                }
                return Some((Bytes::from(text), (state, end)));
            }
            if state.over {
                return None;
            }
            let shared = Arc::clone(&state.shared);
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if state.advance() {
                continue;
            }
            tokio::select! {
                () = &mut changed => {}
                () = &mut end => {
                    if state.bookmarks {
                        let version = state.version;
                        state.ready.push(state.bookmark(version));
                    }
                    state.over = true;
                }
            }
        }
    })
}

impl State {
    /// Takes what has happened; whether there is something to say.
    fn advance(&mut self) -> bool {
        let changes = self.shared.store().since(self.version);
        let Some(changes) = changes else {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
                "message": format!("too old resource version: {}", self.version)
            });
            self.ready.push(json!({ "type": "ERROR", "object": status }));
            self.over = true;
            return true;
        };
        for change in changes {
            self.version = change.version;
            if change.resource == self.scope.target.resource {
                self.ready.extend(self.scope.event(change.old, change.new));
            }
        }
        !self.ready.is_empty()
    }

    fn bookmark(&self, version: u64) -> Value {
        json!({ "type": "BOOKMARK", "object": self.scope.dressed(json!({
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null }
        })) })
    }
}
