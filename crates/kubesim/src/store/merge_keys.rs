//! How a strategic merge patch merges each list: the `patchStrategy` and `patchMergeKey` of the API types.
//!
//! Other lists are replaced as a whole, among them taints and tolerations.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    Replaced,
    /// Objects with the same value of this member are merged.
    ByKey(&'static str),
    /// Values are added if they are not there.
    AsSet,
}

use Merge::{AsSet, ByKey};

const OBJECT: [(&str, Merge); 2] =
    [("metadata.ownerReferences", ByKey("uid")), ("metadata.finalizers", AsSet)];

const NODE: [(&str, Merge); 3] =
    [("spec.podCIDRs", AsSet), ("status.conditions", ByKey("type")), ("status.addresses", ByKey("type"))];

/// Of a pod, and of a workload's template.
const POD: [(&str, Merge); 12] = [
    ("spec.volumes", ByKey("name")),
    ("spec.initContainers", ByKey("name")),
    ("spec.containers", ByKey("name")),
    ("spec.ephemeralContainers", ByKey("name")),
    ("spec.imagePullSecrets", ByKey("name")),
    ("spec.hostAliases", ByKey("ip")),
    ("spec.topologySpreadConstraints", ByKey("topologyKey")),
    ("spec.schedulingGates", ByKey("name")),
    ("spec.resourceClaims", ByKey("name")),
    ("status.conditions", ByKey("type")),
    ("status.podIPs", ByKey("ip")),
    ("status.hostIPs", ByKey("ip")),
];

/// Of each container in any list.
const CONTAINER: [(&str, Merge); 4] = [
    ("ports", ByKey("containerPort")),
    ("env", ByKey("name")),
    ("volumeMounts", ByKey("mountPath")),
    ("volumeDevices", ByKey("devicePath")),
];

const SERVICE: [(&str, Merge); 2] = [("spec.ports", ByKey("port")), ("status.conditions", ByKey("type"))];
const SERVICE_ACCOUNT: [(&str, Merge); 1] = [("secrets", ByKey("name"))];
const CONDITIONS: [(&str, Merge); 1] = [("status.conditions", ByKey("type"))];

/// The list at `path` (members joined by dots, list items left out) of a resource.
pub(crate) fn of_list(resource: &str, path: &str) -> Merge {
    let (resource, path) = inner(resource, path);
    let own: &[(&str, Merge)] = match resource {
        "nodes" => &NODE,
        "pods" => &POD,
        "services" => &SERVICE,
        "serviceaccounts" => &SERVICE_ACCOUNT,
        _ => &CONDITIONS,
    };
    let containers = ["spec.containers.", "spec.initContainers.", "spec.ephemeralContainers."];
    let in_container = containers.iter().find_map(|it| path.strip_prefix(it)).filter(|_| resource == "pods");
    let find = |table: &[(&str, Merge)], path: &str| {
        table.iter().find(|(listed, _)| *listed == path).map(|(_, merge)| *merge)
    };
    in_container
        .and_then(|path| find(&CONTAINER, path))
        .or_else(|| find(own, path))
        .or_else(|| find(&OBJECT, path))
        .unwrap_or(Merge::Replaced)
}

pub(crate) fn is_replaced(resource: &str, path: &str) -> bool {
    resource == "policy/poddisruptionbudgets" && path == "spec.selector"
}

/// A template is a pod.
fn inner<'a>(resource: &'a str, path: &'a str) -> (&'a str, &'a str) {
    match path.strip_prefix("spec.template.") {
        Some(path) if resource.starts_with("apps/") => ("pods", path),
        _ => (resource, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_merge_as_the_api_types_say() {
        for (resource, path, expected) in [
            ("nodes", "spec.taints", Merge::Replaced),
            ("nodes", "spec.podCIDRs", AsSet),
            ("nodes", "status.conditions", ByKey("type")),
            ("nodes", "status.addresses", ByKey("type")),
            ("nodes", "status.images", Merge::Replaced),
            ("nodes", "metadata.finalizers", AsSet),
            ("pods", "metadata.ownerReferences", ByKey("uid")),
            ("pods", "spec.tolerations", Merge::Replaced),
            ("pods", "spec.containers", ByKey("name")),
            ("pods", "spec.containers.env", ByKey("name")),
            ("pods", "spec.containers.args", Merge::Replaced),
            ("pods", "spec.initContainers.ports", ByKey("containerPort")),
            ("pods", "status.containerStatuses", Merge::Replaced),
            ("apps/deployments", "spec.template.spec.containers.volumeMounts", ByKey("mountPath")),
            ("apps/deployments", "spec.template.spec.volumes", ByKey("name")),
            ("apps/deployments", "spec.containers", Merge::Replaced),
            ("policy/poddisruptionbudgets", "status.conditions", ByKey("type")),
            ("services", "spec.ports", ByKey("port")),
        ] {
            assert_eq!(of_list(resource, path), expected, "{resource} {path}");
        }
        assert!(is_replaced("policy/poddisruptionbudgets", "spec.selector"));
        assert!(!is_replaced("apps/deployments", "spec.selector"));
    }
}
