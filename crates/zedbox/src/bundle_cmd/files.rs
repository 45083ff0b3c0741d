//! Files of this node: the topics that agents of ours publish or read, force files, reasons and stacks, settings.

use std::fs;
use std::path::Path;

use pubsub::store;
use serde_json::Value;

use super::Contents;
use super::secrets::without;

/// Nothing of ours is longer.
const FILE_BYTES: u64 = 1 << 20;
/// Where topics are, below the root.
const TREES: [&str; 3] = ["run", "persist/status", "persist/kube-status"];
/// Topics that are left out as a whole: what users give to their applications and to k3s.
const LEFT_OUT: [&str; 2] = ["AppInstanceConfig", "KubeConfig"];
/// Other files, whole or their end.
const FILES: [&str; 14] = [
    "persist/reboot-reason",
    "persist/boot-reason",
    "persist/reboot-image",
    "persist/reboot-stack",
    "persist/log/reboot-reason.log",
    "persist/log/reboot-stack.log",
    "persist/device/recorded.jsonl",
    "run/zedbox/device-order.json",
    "run/zedbox/window-pass.json",
    "run/zedbox/force-NodeDrainStatus-global.json",
    "run/eve-hv-type",
    "run/eve-release",
    "etc/eve-release",
    "etc/zedbox/zedbox.toml",
];

/// Adds them all below `files`.
pub(super) fn collect(root: &Path, contents: &mut Contents) {
    let topics: Vec<&str> = topics::readers().into_iter().map(|it| it.0).collect();
    for tree in TREES {
        walk(&root.join(tree), tree, &topics, contents);
    }
    for file in FILES {
        if let Ok(Some(bytes)) = store::read_start(&root.join(file), FILE_BYTES) {
            contents.add(format!("files/{file}"), bytes);
        }
    }
    if let Some(limits) = crate::args::settings::limits(&root.join("etc/zedbox/zedbox.toml")) {
        match store::read(&limits, FILE_BYTES) {
            Ok(bytes) => contents.add("files/limits.json", bytes.unwrap_or_default()),
            Err(error) => contents.add("files/limits.json.error", error.to_string()),
        }
    }
}

fn walk(dir: &Path, shown: &str, topics: &[&str], contents: &mut Contents) {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return contents.add(format!("files/{shown}.error"), error.to_string()),
    };
    let topic = dir.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    let is_topic = topics.contains(&topic) && !LEFT_OUT.contains(&topic);
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, shown) = (entry.path(), format!("{shown}/{name}"));
        let is_json = path.extension().is_some_and(|it| it == "json");
        let is_force = topic == "kube-status";
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            walk(&path, &shown, topics, contents);
        } else if is_json && (is_topic || is_force) {
            match store::read(&path, FILE_BYTES) {
                Ok(bytes) => contents.add(format!("files/{shown}"), shown_json(&bytes.unwrap_or_default())),
                Err(error) => contents.add(format!("files/{shown}.error"), error.to_string()),
            }
        }
    }
}

/// The value without its secrets, for reading; a text that is no JSON is not taken, as nothing is known of it.
fn shown_json(bytes: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => serde_json::to_vec_pretty(&without(value)).unwrap_or_default(),
        Err(error) => format!("no JSON, {} bytes: {error}\n", bytes.len()).into_bytes(),
    }
}
