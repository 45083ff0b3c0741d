//! What objects say of nodes and kubelets: power, network, taints, running containers.

use serde_json::Value;

pub(crate) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
pub(crate) const AWAY_TAINT: &str = "node.kubernetes.io/unreachable";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) fn has_power(node: &Value) -> bool {
    node["metadata"]["annotations"]["kubesim/power"] != "off"
}

/// Whether this node and the API are parted; other clients never are.
pub(crate) fn is_cut(node: &Value) -> bool {
    node["metadata"]["annotations"]["kubesim/network"] == "off"
}

/// Whether its kubelet runs and speaks with the API.
pub(crate) fn is_reachable(node: &Value) -> bool {
    has_power(node) && !is_cut(node)
}

/// With any value and effect.
pub(crate) fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(|it| it["key"] == key))
}

/// The kubelet of this boot does not know the pod.
pub(crate) fn is_left_behind(pod: &Value) -> bool {
    !pod["metadata"]["annotations"]["kubesim/left-behind"].is_null()
}

/// Its containers run, by what the API knows.
pub(crate) fn runs(pod: &Value) -> bool {
    let ended = pod["metadata"]["deletionGracePeriodSeconds"] == 0 || is_left_behind(pod);
    pod["status"]["phase"] == "Running" && !ended
}
