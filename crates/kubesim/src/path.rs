//! Which object a URL is about.

/// `/api/v1/...` and `/apis/<group>/<version>/...` taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `v1`, `policy/v1`.
    pub(crate) api_version: String,
    /// `pods`, `policy/poddisruptionbudgets`: the name in the store.
    pub(crate) resource: String,
    /// Empty for cluster-wide objects and for lists over all namespaces.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) sub: Option<String>,
}

impl Target {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
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
        let resource = (*rest.first()?).to_owned();
        Some(Self {
            api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
            resource: if group.is_empty() { resource } else { format!("{}/{resource}", short(group)) },
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
            sub: rest.get(2).map(|sub| (*sub).to_owned()),
        })
    }

    /// The kind of the objects.
    pub(crate) fn kind(&self) -> String {
        kind(&self.resource)
    }
}

/// Groups are named by their first part in the store.
fn short(group: &str) -> &str {
    group.split('.').next().unwrap_or(group)
}

pub(crate) fn kind(resource: &str) -> String {
    let known = [
        ("nodes", "Node"),
        ("pods", "Pod"),
        ("namespaces", "Namespace"),
        ("events", "Event"),
        ("configmaps", "ConfigMap"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("apps/deployments", "Deployment"),
        ("apps/replicasets", "ReplicaSet"),
        ("apps/statefulsets", "StatefulSet"),
        ("apps/daemonsets", "DaemonSet"),
        ("policy/poddisruptionbudgets", "PodDisruptionBudget"),
        ("coordination/leases", "Lease"),
        ("storage/volumeattachments", "VolumeAttachment"),
        ("scheduling/priorityclasses", "PriorityClass"),
    ];
    known
        .iter()
        .find(|(name, _)| *name == resource)
        .map_or_else(|| "Object".to_owned(), |(_, kind)| (*kind).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_objects() {
        let target = |path: &str| {
            let it = Target::parse(path).unwrap();
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
        assert!(Target::parse("/version").is_none());
    }
}
