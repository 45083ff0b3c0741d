//! The object of a URL, and its form there.

use serde_json::Value;

use crate::kinds::{self, Resource};

/// `/api/v1/...` and `/apis/<group>/<version>/...`, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// `v1`, `policy/v1`.
    pub(crate) api_version: String,
    /// `pods`, `policy/poddisruptionbudgets`: the name in the store.
    pub(crate) resource: String,
    /// `poddisruptionbudgets`: the name in the URL.
    pub(crate) plural: String,
    /// Empty for cluster-wide objects and for lists over all namespaces.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) sub: Option<String>,
}

/// Members of a v1 Event and their names in events.k8s.io.
const EVENT_MEMBERS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

impl ResourcePath {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (api_version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, resource, more @ ..] if !matches!(*resource, "status" | "finalize") => {
                let mut whole = vec![*resource];
                whole.extend(more);
                ((*namespace).to_owned(), whole)
            }
            rest => (String::new(), rest.to_vec()),
        };
        let plural = (*rest.first()?).to_owned();
        Some(Self {
            resource: kinds::key(&api_version, &plural),
            api_version,
            plural,
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
            sub: rest.get(2..).map(|sub| sub.join("/")).filter(|sub| !sub.is_empty()),
        })
    }

    pub(crate) fn known(&self) -> Option<&'static Resource> {
        Resource::served(&self.api_version, &self.plural)
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.known().map_or("Object", |it| it.kind)
    }

    /// As in messages: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        match kinds::group(&self.api_version) {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Converts a stored object to the form of this URL.
    pub(crate) fn outward(&self, mut object: Value) -> Value {
        if kinds::group(&self.api_version) == "events.k8s.io" {
            rename(&mut object, |(core, new)| (core, new));
        }
        object["apiVersion"] = self.api_version.clone().into();
        if self.known().is_some() || object["kind"].is_null() {
            object["kind"] = self.kind().into();
        }
        object
    }

    /// Converts an object of this URL to the stored form.
    pub(crate) fn inward(&self, mut object: Value) -> Value {
        if kinds::group(&self.api_version) == "events.k8s.io" {
            rename(&mut object, |(core, new)| (new, core));
        }
        object
    }
}

fn rename(object: &mut Value, way: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(members) = object.as_object_mut() else { return };
    for (from, to) in EVENT_MEMBERS.map(way) {
        if let Some(value) = members.remove(from) {
            members.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn urls_name_their_objects() {
        let target = |path: &str| {
            let it = ResourcePath::parse(path).unwrap();
            format!("{} {} {} {:?} {:?}", it.api_version, it.resource, it.namespace, it.name, it.sub)
        };
        assert_eq!(target("/api/v1/nodes/n1"), "v1 nodes  Some(\"n1\") None");
        assert_eq!(target("/api/v1/namespaces/shop"), "v1 namespaces  Some(\"shop\") None");
        assert_eq!(
            target("/api/v1/namespaces/a/pods/p/eviction"),
            "v1 pods a Some(\"p\") Some(\"eviction\")"
        );
        assert_eq!(
            target("/apis/policy/v1/poddisruptionbudgets"),
            "policy/v1 policy/poddisruptionbudgets  None None"
        );
        assert!(ResourcePath::parse("/version").is_none());
    }

    #[test]
    fn an_event_has_two_forms_and_one_place() {
        let old = ResourcePath::parse("/api/v1/namespaces/a/events").unwrap();
        let new = ResourcePath::parse("/apis/events.k8s.io/v1/namespaces/a/events").unwrap();
        assert_eq!(old.resource, new.resource);
        let held = new.inward(json!({ "note": "gone", "regarding": { "name": "p" } }));
        assert_eq!(held, json!({ "message": "gone", "involvedObject": { "name": "p" } }));
        assert_eq!(new.outward(held)["note"], "gone");
    }
}
