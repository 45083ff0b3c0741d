//! What objects say of nodes and kubelets: power, network, taints, running containers.

use serde_json::Value;

pub(crate) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
pub(crate) const AWAY_TAINT: &str = "node.kubernetes.io/unreachable";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) fn has_power(node: &Value) -> bool {
    node["metadata"]["annotations"]["kubesim/power"] != "off"
}

/// What the node sends to the API.
pub(crate) const REQUESTS: &str = "requests";
/// What the API sends to the node.
pub(crate) const ANSWERS: &str = "answers";

/// Whether this is lost between the node and the API; of other clients nothing ever is.
pub(crate) fn loses(node: &Value, what: &str) -> bool {
    let network = &node["metadata"]["annotations"]["kubesim/network"];
    network == "off" || network == what
}

/// Whether its kubelet runs and speaks with the API.
pub(crate) fn is_reachable(node: &Value) -> bool {
    let is_stopped = node["metadata"]["annotations"]["kubesim/kubelet"] == "off";
    has_power(node) && !is_stopped && !loses(node, REQUESTS) && !loses(node, ANSWERS)
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
