//! The wanted network attachment, and the changes to an existing one.
//!
//! Pure: no clock, no I/O, no task.

use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::FIELD_MANAGER;
use kubeapi::objects::RawObject;
use serde_json::{Value, json};

const PREFIX: &str = "host-";
/// The label of objects that we may change and delete.
pub(super) const MANAGED: &str = "app.kubernetes.io/managed-by";
/// Annotation prefix, followed by the UUID of a device that needs the object.
const NEEDED: &str = "pillar-rs/needed-by-";
/// Linux's limit for names of interfaces.
const INTERFACE_BYTES: usize = 15;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttachmentWrite {
    Create(Value),
    Patch(Value),
    /// Only with this version.
    Delete(String),
}

/// The object's name for an interface; `None` for an invalid name. It goes into a path.
pub(super) fn name(interface: &str) -> Option<String> {
    let bytes = interface.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let known = |it: &u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'.');
    let good = bytes.len() <= INTERFACE_BYTES
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(known)
        && !interface.contains("..");
    good.then(|| format!("{PREFIX}{interface}"))
}

fn config(interface: &str) -> Value {
    json!({ "cniVersion": "0.3.1", "plugins": [{ "type": "host-device", "device": interface }] })
}

/// The reference's text: keys in this order.
fn config_text(interface: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","plugins":[{{"type":"host-device","device":"{interface}"}}]}}"#)
}

fn note(device: &str) -> String {
    format!("{NEEDED}{device}")
}

/// The change that makes the object of `interface` serve our node; `Err` says why it is left unchanged.
pub(super) fn needed(
    found: Option<&RawObject>,
    interface: &str,
    (node, device): (&str, &str),
) -> Result<Option<AttachmentWrite>, &'static str> {
    let text = config_text(interface);
    let Some(found) = found else {
        return Ok(Some(AttachmentWrite::Create(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {
                "name": format!("{PREFIX}{interface}"), "namespace": APP_NAMESPACE,
                "labels": { MANAGED: FIELD_MANAGER }, "annotations": { note(device): node },
            },
            "spec": { "config": text },
        }))));
    };
    let held = found.spec["config"].as_str().unwrap_or_default();
    let same = serde_json::from_str::<Value>(held).is_ok_and(|it| it == config(interface));
    if !is_ours(found) {
        return if same { Ok(None) } else { Err("somebody else made it, with another config") };
    }
    if same && found.metadata.annotations.get(note(device)).is_some() {
        return Ok(None);
    }
    Ok(Some(AttachmentWrite::Patch(json!({
        "metadata": { "resourceVersion": version(found), "annotations": { note(device): node } },
        "spec": { "config": text },
    }))))
}

/// The change when our node does not need the object any more.
pub(super) fn not_needed(found: &RawObject, device: &str) -> Option<AttachmentWrite> {
    let mine = note(device);
    if !is_ours(found) || found.metadata.annotations.get(&mine).is_none() {
        return None;
    }
    let version = version(found);
    let mut notes = found.metadata.annotations.as_object().into_iter().flatten();
    if notes.any(|(it, _)| it.starts_with(NEEDED) && *it != mine) {
        let meta = json!({ "resourceVersion": version, "annotations": { mine: null } });
        return Some(AttachmentWrite::Patch(json!({ "metadata": meta })));
    }
    Some(AttachmentWrite::Delete(version))
}

fn version(found: &RawObject) -> String {
    found.metadata.resource_version.clone().unwrap_or_default()
}

fn is_ours(found: &RawObject) -> bool {
    found.label(MANAGED) == FIELD_MANAGER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_v9_only_what_names_an_interface_and_an_object_is_taken() {
        for good in ["eth1", "enp3s0", "0", "eth1.100", "wan-1"] {
            assert_eq!(name(good), Some(format!("host-{good}")));
        }
        for bad in [
            "",
            "Eth1",
            "eth_1",
            "../nodes",
            "eth1/..",
            "a..b",
            "-a",
            "a-",
            "eth 1",
            "a\"b",
            "eth0123456789abc",
            "é",
        ] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_config_is_the_references_text() {
        let text = r#"{"cniVersion":"0.3.1","plugins":[{"type":"host-device","device":"eth1"}]}"#;
        assert_eq!(config_text("eth1"), text);
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), config("eth1"));
    }
}
