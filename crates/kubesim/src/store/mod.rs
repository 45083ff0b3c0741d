//! Objects with their versions, changes for watches, patches and selectors.
//!
//! Not here: HTTP (`api`).

pub(crate) mod events;
pub(crate) mod merge_keys;
pub(crate) mod node_state;
pub(crate) mod patch;
pub(crate) mod seed;
pub(crate) mod selectors;
pub(crate) mod strategic;
pub(crate) mod watch;
pub(crate) mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::Resource;
use crate::path::ResourcePath;

/// `(resource, namespace, name)`.
pub(crate) type ObjectKey = (String, String, String);

/// `(namespace, name)`.
pub(crate) type ObjectName = (String, String);

#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) version: u64,
    pub(crate) resource: String,
    /// Before; `None` for a new object.
    pub(crate) old: Option<Arc<Value>>,
    /// After; `None` for a removed object.
    pub(crate) new: Option<Arc<Value>>,
}

impl Changed {
    /// Old and new form, if they exist.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new).map(AsRef::as_ref)
    }

    pub(crate) fn place(&self) -> ObjectName {
        self.forms().next().map(place).unwrap_or_default()
    }
}

#[derive(Clone)]
pub(crate) struct ObjectStore {
    version: u64,
    objects: BTreeMap<String, BTreeMap<ObjectName, Arc<Value>>>,
    /// Objects by the owner's UID.
    owned: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Pods by node.
    on_node: BTreeMap<String, BTreeSet<ObjectName>>,
    /// By node: pods that the API has removed and of which the containers still run, by UID.
    pub(crate) strays: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    /// By node: UIDs of pods that ended with its power, until its kubelet starts containers again.
    pub(crate) ended: BTreeMap<String, BTreeSet<String>>,
    history: VecDeque<Changed>,
    keep: usize,
}

impl ObjectStore {
    pub(crate) fn new(keep: usize) -> Self {
        Self {
            version: 1,
            objects: BTreeMap::new(),
            owned: BTreeMap::new(),
            on_node: BTreeMap::new(),
            strays: BTreeMap::new(),
            ended: BTreeMap::new(),
            history: VecDeque::new(),
            keep,
        }
    }

    pub(crate) fn api_versions(&self) -> BTreeSet<&str> {
        let some = self.objects.values().filter_map(|objects| objects.values().next());
        some.filter_map(|object| object["apiVersion"].as_str()).collect()
    }

    pub(crate) fn samples<'a>(&'a self, version: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let all = self.objects.iter().filter_map(|(key, all)| Some((key, all.values().next()?.as_ref())));
        all.filter(move |(_, it)| it["apiVersion"] == version)
            .map(|(key, it)| (key.rsplit('/').next().unwrap_or(key), it))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.found(resource, namespace, name).map(AsRef::as_ref)
    }

    /// As `get`, shared.
    pub(crate) fn found(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(resource)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The object, or the client's failure.
    pub(crate) fn held(&self, target: &ResourcePath, name: &str) -> Result<Value, Failure> {
        let held = self.get(&target.resource, &target.namespace, name).cloned();
        held.ok_or_else(|| Failure::not_found(target, name))
    }

    pub(crate) fn list(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.objects.get(resource).into_iter().flat_map(BTreeMap::values).map(AsRef::as_ref)
    }

    /// At a version; `None` once that is forgotten.
    pub(crate) fn list_at(&self, resource: &str, version: u64) -> Option<BTreeMap<ObjectName, Arc<Value>>> {
        let mut all = self.objects.get(resource).cloned().unwrap_or_default();
        for change in self.since(version)?.into_iter().rev().filter(|it| it.resource == resource) {
            match (change.old, change.new) {
                (Some(old), _) => drop(all.insert(place(&old), old)),
                (None, Some(new)) => drop(all.remove(&place(&new))),
                (None, None) => {}
            }
        }
        Some(all)
    }

    pub(crate) fn list_in(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Value> {
        let first = (namespace.to_owned(), String::new());
        let from = self.objects.get(resource).into_iter().flat_map(move |all| all.range(first.clone()..));
        from.take_while(move |((held, _), _)| held == namespace).map(|(_, object)| object.as_ref())
    }

    /// By the UID of the first owner.
    pub(crate) fn owned(&self, resource: &str, owner: &str) -> Vec<Arc<Value>> {
        let keys = self.owned.get(owner).into_iter().flatten().filter(|(held, _, _)| held == resource);
        keys.filter_map(|(_, namespace, name)| self.found(resource, namespace, name).cloned()).collect()
    }

    pub(crate) fn pods_on(&self, node: &str) -> impl ExactSizeIterator<Item = &ObjectName> {
        static NONE: BTreeSet<ObjectName> = BTreeSet::new();
        self.on_node.get(node).unwrap_or(&NONE).iter()
    }

    /// Pods with a running container on this node, also those that the API no longer has.
    pub(crate) fn executing(&self, node: &Value) -> Vec<&Value> {
        let named = name(node);
        if !node_state::has_power(node) {
            return Vec::new();
        }
        let ended = self.ended.get(&named);
        let runs = |it: &&Value| node_state::runs(it) && !ended.is_some_and(|all| all.contains(&uid(it)));
        let here = self.pods_on(&named).filter_map(|it| self.get("pods", &it.0, &it.1)).filter(runs);
        let strays = self.strays.get(&named).into_iter().flat_map(BTreeMap::values);
        here.chain(strays.map(AsRef::as_ref)).collect()
    }

    /// `None` when they are no longer known, or not yet, after a restore.
    pub(crate) fn since(&self, version: u64) -> Option<Vec<Changed>> {
        let oldest = self.history.front().map_or(self.version, |first| first.version - 1);
        let start = self.history.partition_point(|it| it.version <= version);
        (oldest..=self.version).contains(&version).then(|| self.history.range(start..).cloned().collect())
    }

    /// Forgets all changes: watches from older versions get 410.
    pub(crate) fn expire(&mut self) {
        self.version += 1;
        self.history.clear();
    }

    /// Creates or replaces an object, with the server's members filled in.
    pub(crate) fn put(&mut self, resource: &str, mut object: Value) -> Value {
        let place = place(&object);
        let old = self.found(resource, &place.0, &place.1).cloned();
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
        if resource == "apps/deployments" {
            let before = old.as_ref().map(|it| (it["metadata"]["generation"].as_u64(), &it["spec"]));
            let (generation, spec) = before.unwrap_or((None, &Value::Null));
            let more = u64::from(*spec != object["spec"]);
            object["metadata"]["generation"] = (generation.unwrap_or_default() + more).into();
        }
        if let Some(old) = &old {
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            if **old == object {
                return object;
            }
        }
        if old.is_none() {
            self.room_for(&place.0);
            if resource == "pods" {
                self.prioritise(&mut object);
            }
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        self.objects.entry(resource.to_owned()).or_default().insert(place, Arc::clone(&object));
        self.note(resource, old, Some(Arc::clone(&object)));
        Value::clone(&object)
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
        let place = (namespace.to_owned(), name.to_owned());
        let mut old = Arc::unwrap_or_clone(self.objects.get_mut(resource)?.remove(&place)?);
        self.version += 1;
        old["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.note(resource, Some(Arc::new(old.clone())), None);
        let is_left = |all: &BTreeMap<ObjectName, _>| all.keys().any(|it| it.0 == namespace);
        if self.is_ending(namespace) && !self.objects.values().any(is_left) {
            self.remove("namespaces", "", namespace);
        }
        Some(old)
    }

    /// From the pod's priority class, if known.
    fn prioritise(&self, pod: &mut Value) {
        let Some(class) = pod["spec"]["priorityClassName"].as_str() else { return };
        let value = match class {
            "system-node-critical" => 2_000_001_000.into(),
            "system-cluster-critical" => 2_000_000_000.into(),
            class => self
                .get("scheduling/priorityclasses", "", class)
                .map_or(Value::Null, |it| it["value"].clone()),
        };
        if pod["spec"]["priority"].is_null() && !value.is_null() {
            pod["spec"]["priority"] = value;
        }
    }

    /// A namespace is made with its first object.
    fn room_for(&mut self, namespace: &str) {
        if !namespace.is_empty() && self.get("namespaces", "", namespace).is_none() {
            let name = json!({ "name": namespace, "labels": { "kubernetes.io/metadata.name": namespace } });
            self.put("namespaces", json!({ "metadata": name, "status": { "phase": "Active" } }));
        }
    }

    /// Removes all objects of a namespace without finalizers; returns whether it is empty then.
    fn empty(&mut self, namespace: &str) -> bool {
        let keys = |(resource, all): (&String, &BTreeMap<ObjectName, _>)| -> Vec<ObjectKey> {
            let inside = all.keys().filter(|it| it.0 == namespace);
            inside.map(|it| (resource.clone(), it.0.clone(), it.1.clone())).collect()
        };
        let inside: Vec<ObjectKey> = self.objects.iter().flat_map(keys).collect();
        let mut is_empty = true;
        for (resource, namespace, name) in inside {
            if self.get(&resource, &namespace, &name).is_some_and(is_held_back) {
                self.retire(&resource, &namespace, &name, Some(0));
                is_empty = false;
            } else {
                self.remove(&resource, &namespace, &name);
            }
        }
        is_empty
    }

    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.get("namespaces", "", namespace).is_some_and(|it| it["status"]["phase"] == "Terminating")
    }

    /// Deletes an object: a running pod gets `grace` seconds, one with finalizers waits for them, any other
    /// goes at once. Returns its present or last form.
    pub(crate) fn retire(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Option<Value> {
        let held = self.get(resource, namespace, name).cloned()?;
        let own = || held["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        let is_bound = resource == "pods" && !held["spec"]["nodeName"].is_null();
        let grace = if is_bound { grace.unwrap_or_else(own) } else { 0 };
        let runs = grace > 0;
        if resource == "namespaces" && !self.empty(name) {
            self.edit(resource, namespace, name, |it| {
                it["metadata"]["deletionTimestamp"] = stamp(0).into();
                it["status"]["phase"] = "Terminating".into();
            });
            return self.get(resource, namespace, name).cloned();
        }
        if !runs && !is_held_back(&held) {
            self.remove(resource, namespace, name);
            return Some(held);
        }
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

    pub(crate) fn mark_disrupted(&mut self, namespace: &str, pod: &str, reason: &str, message: &str) {
        let mut disrupted = condition("DisruptionTarget", true);
        disrupted["reason"] = reason.into();
        disrupted["message"] = message.into();
        self.edit("pods", namespace, pod, |it| {
            let mut conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|it| it["type"] != disrupted["type"]);
            conditions.push(disrupted);
            it["status"]["conditions"] = conditions.into();
        });
    }

    fn note(&mut self, resource: &str, old: Option<Arc<Value>>, new: Option<Arc<Value>>) {
        if resource == "pods"
            && let Some(old) = old.as_deref().filter(|it| node_state::runs(it))
        {
            let there = self.get("nodes", "", node_name(old));
            let is_unaware =
                there.is_some_and(|it| node_state::has_power(it) && !node_state::is_reachable(it));
            let has_ended = self.ended.get(node_name(old)).is_some_and(|all| all.contains(&uid(old)));
            if is_unaware && !has_ended && !new.as_deref().is_some_and(node_state::runs) {
                self.strays
                    .entry(node_name(old).to_owned())
                    .or_default()
                    .insert(uid(old), Arc::new(old.clone()));
            }
        }
        let indexed = |it: &Value| (owner_uid(it).to_owned(), node_name(it).to_owned());
        if old.as_deref().map(indexed) != new.as_deref().map(indexed) {
            for (object, is_there) in [(&old, false), (&new, true)] {
                let Some(object) = object else { continue };
                let (namespace, name) = place(object);
                let key = (resource.to_owned(), namespace, name);
                keep_in(&mut self.owned, owner_uid(object), key, is_there);
                if resource == "pods" {
                    keep_in(&mut self.on_node, node_name(object), place(object), is_there);
                }
            }
        }
        self.history.push_back(Changed { version: self.version, resource: resource.to_owned(), old, new });
        while self.history.len() > self.keep {
            self.history.pop_front();
        }
    }
}

/// Adds or removes `key` under `name`, except for an empty name.
fn keep_in<K: Ord>(index: &mut BTreeMap<String, BTreeSet<K>>, name: &str, key: K, is_there: bool) {
    if name.is_empty() {
        return;
    }
    if is_there {
        index.entry(name.to_owned()).or_default().insert(key);
    } else if let Some(held) = index.get_mut(name) {
        held.remove(&key);
        if held.is_empty() {
            index.remove(name);
        }
    }
}

fn owner_uid(object: &Value) -> &str {
    object["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default()
}

fn node_name(object: &Value) -> &str {
    object["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// Its key among objects of its resource.
pub(crate) fn place(object: &Value) -> ObjectName {
    (namespace(object), name(object))
}

/// Whether finalizers hold the object.
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

/// Copies, so that they can be changed meanwhile.
pub(crate) fn all(store: &ObjectStore, resource: &str) -> Vec<Arc<Value>> {
    store.objects.get(resource).into_iter().flat_map(BTreeMap::values).cloned().collect()
}

/// Now plus `ahead` seconds, as the API writes times.
pub(crate) fn stamp(ahead: u64) -> String {
    let ahead = SignedDuration::from_secs(i64::try_from(ahead).unwrap_or(i64::MAX));
    let now = Timestamp::now();
    now.checked_add(ahead).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

pub(crate) fn condition(kind: &str, status: bool) -> Value {
    json!({ "type": kind, "status": if status { "True" } else { "False" }, "lastTransitionTime": stamp(0) })
}
