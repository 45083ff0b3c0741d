//! Watches: the changes after a version, then each new one, as lines of JSON.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::{Interval, interval, sleep};

use crate::SimShared;
use crate::path::ResourcePath;
use crate::selectors::{fields_match, labels_match};
use crate::table::{Include, table};

#[derive(Debug, Clone)]
pub(crate) struct SelectedObjects {
    pub(crate) target: ResourcePath,
    pub(crate) labels: String,
    pub(crate) fields: String,
}

impl SelectedObjects {
    pub(crate) fn holds(&self, object: &Value) -> Result<bool, String> {
        let meta = &object["metadata"];
        let here = self.target.namespace.is_empty() || meta["namespace"] == self.target.namespace.as_str();
        Ok(here
            && labels_match(&meta["labels"], &self.labels)
            && fields_match(&self.target.resource, object, &self.fields)?)
    }

    fn event(&self, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
        let in_scope = |it: Option<&Value>| it.is_some_and(|it| self.holds(it).unwrap_or(false));
        let (kind, object) = match (in_scope(old), in_scope(new)) {
            (false, false) => return None,
            (false, true) => ("ADDED", new.cloned()),
            (true, true) => ("MODIFIED", new.cloned()),
            (true, false) => match new {
                // It no longer matches: its last matching form, at the new version.
                Some(new) => {
                    let mut last = old.cloned().unwrap_or_default();
                    last["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"].clone();
                    ("DELETED", Some(last))
                }
                None => ("DELETED", old.cloned()),
            },
        };
        Some(json!({ "type": kind, "object": self.target.outward(object.unwrap_or_default()) }))
    }

    /// In the form that the client wants.
    fn shown(&self, mut event: Value, include: Option<Include>) -> Value {
        if let (Some(include), true) = (include, event["type"] != "ERROR") {
            let object = event["object"].take();
            let meta = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
            event["object"] = table(&self.target, &[object], &meta, include);
        }
        event
    }

    /// Carries only the version; `ends_start` after the initial objects.
    pub(crate) fn bookmark(&self, version: u64, ends_start: bool) -> Value {
        let mut meta = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        if ends_start {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        json!({ "type": "BOOKMARK", "object": self.target.outward(json!({ "metadata": meta })) })
    }
}

pub(crate) struct PendingWatch {
    pub(crate) shared: Arc<SimShared>,
    pub(crate) scope: SelectedObjects,
    /// It starts after this version.
    pub(crate) version: u64,
    /// As tables of one row.
    pub(crate) table: Option<Include>,
    /// Between bookmarks, if wanted.
    pub(crate) bookmarks: Option<Duration>,
    /// Initial events.
    pub(crate) first: Vec<Value>,
    /// Its duration.
    pub(crate) limit: Duration,
}

struct WatchState {
    shared: Arc<SimShared>,
    scope: SelectedObjects,
    version: u64,
    /// Number of etcd's restores at its start.
    restores: u64,
    ready: Vec<Value>,
    over: bool,
}

impl PendingWatch {
    pub(crate) fn lines(self) -> impl Stream<Item = io::Result<Bytes>> {
        let end = Box::pin(sleep(self.limit));
        let beat = self.bookmarks.map(|every| {
            let mut beat = interval(every);
            beat.reset();
            beat
        });
        let Self { shared, scope, version, first, table, .. } = self;
        let restores = shared.restores.load(Ordering::Relaxed);
        let state = WatchState { shared, scope, version, restores, ready: first, over: false };
        futures::stream::unfold((state, end, beat), move |(mut state, mut end, mut beat)| async move {
            loop {
                if !state.ready.is_empty() {
                    let mut text = String::new();
                    for event in std::mem::take(&mut state.ready) {
                        text.push_str(&state.scope.shown(event, table).to_string());
                        text.push('\n');
                    }
                    return Some((Ok(Bytes::from(text)), (state, end, beat)));
                }
                if state.over {
                    return None;
                }
                let shared = Arc::clone(&state.shared);
                let changed = shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if state.shared.restores.load(Ordering::Relaxed) != state.restores {
                    state.over = true;
                    return Some((Err(io::ErrorKind::ConnectionReset.into()), (state, end, beat)));
                }
                if state.advance() {
                    continue;
                }
                tokio::select! {
                    biased;
                    () = &mut changed => {}
                    () = &mut end => {
                        if beat.is_some() {
                            state.bookmark();
                        }
                        state.over = true;
                    }
                    () = tick(beat.as_mut()) => state.bookmark(),
                }
            }
        })
    }
}

async fn tick(beat: Option<&mut Interval>) {
    match beat {
        Some(beat) => drop(beat.tick().await),
        None => std::future::pending().await,
    }
}

impl WatchState {
    /// Takes in new changes; returns whether there is an event.
    fn advance(&mut self) -> bool {
        if self.is_ahead() {
            return false;
        }
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
                self.ready.extend(self.scope.event(change.old.as_deref(), change.new.as_deref()));
            }
        }
        !self.ready.is_empty()
    }

    /// A server is silent about a version that its restored store has not reached.
    fn is_ahead(&self) -> bool {
        self.version > self.shared.store().version()
    }

    fn bookmark(&mut self) {
        if self.is_ahead() {
            return;
        }
        self.ready.push(self.scope.bookmark(self.version, false));
    }
}
