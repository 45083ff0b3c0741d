//! The kinds that the API knows by name. Others are stored unchanged, like custom resources.

#[derive(Debug)]
pub(crate) struct Resource {
    /// `v1`, `policy/v1`.
    pub(crate) api_version: &'static str,
    /// `pods`.
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    /// `po`; empty for none.
    pub(crate) short: &'static str,
    pub(crate) namespaced: bool,
    /// Its status can be written at `/status` only.
    pub(crate) status: bool,
}

const fn kind(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static str,
    namespaced: bool,
    status: bool,
) -> Resource {
    Resource { api_version, plural, kind, short, namespaced, status }
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const FLOWS: &str = "flowcontrol.apiserver.k8s.io/v1";

/// No controller handles those of the last four groups.
pub(crate) const KINDS: [Resource; 32] = [
    kind("v1", "nodes", "Node", "no", false, true),
    kind("v1", "pods", "Pod", "po", true, true),
    kind("v1", "namespaces", "Namespace", "ns", false, true),
    kind("v1", "events", "Event", "ev", true, false),
    kind("v1", "configmaps", "ConfigMap", "cm", true, false),
    kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", true, true),
    kind("v1", "persistentvolumes", "PersistentVolume", "pv", false, true),
    kind("v1", "services", "Service", "svc", true, true),
    kind("v1", "serviceaccounts", "ServiceAccount", "sa", true, false),
    kind("apps/v1", "deployments", "Deployment", "deploy", true, true),
    kind("apps/v1", "replicasets", "ReplicaSet", "rs", true, true),
    kind("apps/v1", "statefulsets", "StatefulSet", "sts", true, true),
    kind("apps/v1", "daemonsets", "DaemonSet", "ds", true, true),
    kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", true, true),
    kind("coordination.k8s.io/v1", "leases", "Lease", "", true, false),
    kind("events.k8s.io/v1", "events", "Event", "ev", true, false),
    kind("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", "", false, false),
    kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", "", false, false),
    kind("rbac.authorization.k8s.io/v1", "roles", "Role", "", true, false),
    kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", "", true, false),
    kind("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc", false, false),
    kind("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", "", false, true),
    kind("storage.k8s.io/v1", "storageclasses", "StorageClass", "sc", false, false),
    kind("batch/v1", "jobs", "Job", "", true, true),
    kind("batch/v1", "cronjobs", "CronJob", "cj", true, true),
    kind("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", "", false, false),
    kind(ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", false, true),
    kind(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        "",
        false,
        false,
    ),
    kind(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "", false, false),
    kind(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "", false, false),
    kind(FLOWS, "flowschemas", "FlowSchema", "", false, true),
    kind(FLOWS, "prioritylevelconfigurations", "PriorityLevelConfiguration", "", false, true),
];

/// Short names of custom resources, by plural and API version.
const CUSTOM: [(&str, &str, &[&str]); 10] = [
    ("virtualmachines", "kubevirt.io/v1", &["vm", "vms"]),
    ("virtualmachineinstances", "kubevirt.io/v1", &["vmi", "vmis"]),
    ("virtualmachineinstancemigrations", "kubevirt.io/v1", &["vmim", "vmims"]),
    ("kubevirts", "kubevirt.io/v1", &["kv", "kvs"]),
    ("volumes", "longhorn.io/v1beta2", &["lhv"]),
    ("engines", "longhorn.io/v1beta2", &["lhe"]),
    ("replicas", "longhorn.io/v1beta2", &["lhr"]),
    ("settings", "longhorn.io/v1beta2", &["lhs"]),
    ("shards", "longhorn.io/v1beta2", &["lhsd"]),
    ("shardgroups", "longhorn.io/v1beta2", &["lhsg"]),
];

/// Short names of a custom resource.
pub(crate) fn short_names(api_version: &str, plural: &str) -> &'static [&'static str] {
    CUSTOM.iter().find(|it| (it.0, it.1) == (plural, api_version)).map_or(&[], |it| it.2)
}

impl Resource {
    pub(crate) fn served(api_version: &str, plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|it| it.api_version == api_version && it.plural == plural)
    }

    pub(crate) fn stored(resource: &str) -> Option<&'static Self> {
        KINDS.iter().find(|it| key(it.api_version, it.plural) == resource)
    }
}

/// Name in the store: `pods`, `policy/poddisruptionbudgets`. Groups are named by their first part; events of
/// both groups are the same objects.
pub(crate) fn key(api_version: &str, plural: &str) -> String {
    match api_version.split_once('/') {
        None | Some(("events.k8s.io", _)) => plural.to_owned(),
        Some((group, _)) => format!("{}/{plural}", group.split('.').next().unwrap_or(group)),
    }
}

/// `policy` of `policy/v1`; empty for `v1`.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
