//! Objects with their versions, and the changes that watches replay.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::Resource;
use crate::path::Target;

/// `(resource, namespace, name)`.
pub(crate) type Key = (String, String, String);

/// What happened to an object.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) version: u64,
    pub(crate) resource: String,
    /// Before; `None` for a new object.
    pub(crate) old: Option<Value>,
    /// After; `None` for a removed object, whose last form is in `old`.
    pub(crate) new: Option<Value>,
}

/// All objects.
#[derive(Clone)]
pub(crate) struct Store {
    version: u64,
    objects: BTreeMap<Key, Value>,
    history: VecDeque<Changed>,
    keep: usize,
}

impl Store {
    pub(crate) fn new(keep: usize) -> Self {
        Self { version: 1, objects: BTreeMap::new(), history: VecDeque::new(), keep }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(resource.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// The object `name` where `target` looks for it, or the failure that a client is told.
    pub(crate) fn held(&self, target: &Target, name: &str) -> Result<Value, Failure> {
        let held = self.get(&target.resource, &target.namespace, name).cloned();
        held.ok_or_else(|| Failure::not_found(target, name))
    }

    pub(crate) fn list<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |((held, _, _), _)| held == resource).map(|(_, object)| object)
    }

    /// Changes after `version`, or `None` when they are no longer known.
    pub(crate) fn since(&self, version: u64) -> Option<Vec<Changed>> {
        let oldest = self.history.front().map_or(self.version, |first| first.version - 1);
        (version >= oldest).then(|| self.history.iter().filter(|it| it.version > version).cloned().collect())
    }

    /// Forgets all changes: watches that ask for older ones get 410.
    pub(crate) fn expire(&mut self) {
        self.version += 1;
        self.history.clear();
    }

    /// Puts an object there and fills in what the server fills in.
    pub(crate) fn put(&mut self, resource: &str, mut object: Value) -> Value {
        let key = key(resource, &object);
        let old = self.objects.get(&key).cloned();
        if let Some(known) = Resource::stored(resource) {
            object["apiVersion"] = known.api_version.into();
            object["kind"] = known.kind.into();
        }
        let meta = &mut object["metadata"];
        if meta["uid"].is_null() {
            meta["uid"] = old.as_ref().map_or_else(
                || uuid::Uuid::new_v4().to_string().into(),
                |old| old["metadata"]["uid"].clone(),
            );
        }
        if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = stamp(0).into();
        }
        meta["resourceVersion"] = Value::Null;
        if let Some(old) = &old {
            let mut same = old.clone();
            same["metadata"]["resourceVersion"] = Value::Null;
            if same == object {
                return old.clone();
            }
        }
        if old.is_none() {
            self.room_for(&key.1);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(key, object.clone());
        self.note(resource, old, Some(object.clone()));
        object
    }

    pub(crate) fn edit(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let Some(mut object) = self.get(resource, namespace, name).cloned() else { return false };
        change(&mut object);
        self.put(resource, object);
        true
    }

    pub(crate) fn remove(&mut self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut old = self.objects.remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()))?;
        self.version += 1;
        old["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.note(resource, Some(old.clone()), None);
        Some(old)
    }

    /// A namespace comes with the first object in it.
    fn room_for(&mut self, namespace: &str) {
        if !namespace.is_empty() && self.get("namespaces", "", namespace).is_none() {
            let name = json!({ "name": namespace, "labels": { "kubernetes.io/metadata.name": namespace } });
            self.put("namespaces", json!({ "metadata": name, "status": { "phase": "Active" } }));
        }
    }

    /// Removes all that is in a namespace.
    pub(crate) fn empty(&mut self, namespace: &str) {
        let inside: Vec<Key> = self.objects.keys().filter(|it| it.1 == namespace).cloned().collect();
        for (resource, namespace, name) in inside {
            self.remove(&resource, &namespace, &name);
        }
    }

    /// Asks an object to end: a pod that runs gets `grace` seconds, one with finalizers waits for them, any other
    /// goes at once. The object as it is then, or as it was last.
    pub(crate) fn retire(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Option<Value> {
        let held = self.get(resource, namespace, name).cloned()?;
        let runs = resource == "pods" && !held["spec"]["nodeName"].is_null() && grace != Some(0);
        if !runs && !is_held_back(&held) {
            self.remove(resource, namespace, name);
            if resource == "namespaces" {
                self.empty(name);
            }
            return Some(held);
        }
        let grace = match (runs, grace) {
            (false, _) => 0,
            (true, Some(grace)) => grace,
            (true, None) => held["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30),
        };
        if held["metadata"]["deletionTimestamp"].is_null() || !runs {
            self.edit(resource, namespace, name, |it| {
                it["metadata"]["deletionTimestamp"] = stamp(grace).into();
                if resource == "pods" {
                    it["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                }
            });
        }
        self.get(resource, namespace, name).cloned()
    }

    fn note(&mut self, resource: &str, old: Option<Value>, new: Option<Value>) {
        self.history.push_back(Changed { version: self.version, resource: resource.to_owned(), old, new });
        while self.history.len() > self.keep {
            self.history.pop_front();
        }
    }
}

fn key(resource: &str, object: &Value) -> Key {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), text("namespace"), text("name"))
}

/// Whether something has still to be done before the object may go.
pub(crate) fn is_held_back(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn namespace(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Copies of all objects of a resource, to be looked at while they are changed.
pub(crate) fn all(store: &Store, resource: &str) -> Vec<Value> {
    store.list(resource).cloned().collect()
}

/// The wall time in `ahead` seconds, as the API writes it.
pub(crate) fn stamp(ahead: u64) -> String {
    let ahead = SignedDuration::from_secs(i64::try_from(ahead).unwrap_or(i64::MAX));
    let now = Timestamp::now();
    now.checked_add(ahead).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a condition of a node or pod is true.
pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

/// Conditions with one of them set.
pub(crate) fn condition(kind: &str, status: bool) -> Value {
    json!({ "type": kind, "status": if status { "True" } else { "False" }, "lastTransitionTime": stamp(0) })
}
