//! Files of this node: topics that our agents publish or read, force files, reasons and stacks, settings.

use std::fs;
use std::path::Path;

use pubsub::store;
use serde_json::Value;
use step::{Inserted as _, LiteMap};
use topics::Reread;

use super::Contents;
use super::secrets::without;

const FILE_BYTES: u64 = 1 << 20;
const TREES: [&str; 2] = ["run", "persist/status"];
/// Left out: they hold what users give to their applications and to k3s.
const LEFT_OUT: [&str; 2] = ["AppInstanceConfig", "KubeConfig"];
/// Other files; of a long one the beginning.
const FILES: [&str; 15] = [
    topics::FORCE_FILE,
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

const LEFT_OUT_VALUE: &str = "(left out)";

pub(super) fn collect(root: &Path, contents: &mut Contents) {
    let topics = topics::readers().into_iter().filter(|it| !LEFT_OUT.contains(&it.0)).into_lite();
    for tree in TREES {
        walk(&root.join(tree), tree, &topics, contents);
    }
    for file in FILES {
        if let Ok(Some(mut bytes)) = store::read_start(&root.join(file), FILE_BYTES) {
            if let Some(address) =
                crate::args::settings::notify(root).filter(|_| file.ends_with(crate::args::settings::NAME))
            {
                bytes =
                    String::from_utf8_lossy(&bytes).replace(address.reveal(), LEFT_OUT_VALUE).into_bytes();
            }
            contents.add(format!("files/{file}"), bytes);
        }
    }
    if let Some(limits) = crate::args::settings::limits_of(root) {
        match store::read(&limits, FILE_BYTES) {
            Ok(bytes) => contents.add("files/limits.json", bytes.unwrap_or_default()),
            Err(error) => contents.add("files/limits.json.error", error.to_string()),
        }
    }
}

/// Reads `<tree>/<agent>/<Topic>/<key>.json`, with known members only, as others may hold users' contents.
fn walk(dir: &Path, shown: &str, topics: &LiteMap<&str, Reread>, contents: &mut Contents) {
    for agent in names(dir) {
        for topic in names(&dir.join(&agent)) {
            let Some(reread) = topics.get(topic.as_str()) else { continue };
            let folder = dir.join(&agent).join(&topic);
            for key in names(&folder)
                .into_iter()
                .filter(|it| Path::new(it).extension().is_some_and(|it| it == "json"))
            {
                let file = format!("files/{shown}/{agent}/{topic}/{key}");
                match store::read(&folder.join(&key), FILE_BYTES) {
                    Ok(bytes) => contents.add(file, shown_json(reread(&bytes.unwrap_or_default()))),
                    Err(error) => contents.add(format!("{file}.error"), error.to_string()),
                }
            }
        }
    }
}

/// In a folder that is no link; empty for an unreadable one.
fn names(dir: &Path) -> Vec<String> {
    let is_dir = fs::symlink_metadata(dir).is_ok_and(|it| it.is_dir());
    let entries = if is_dir { fs::read_dir(dir).ok() } else { None };
    entries.into_iter().flatten().flatten().filter_map(|it| it.file_name().into_string().ok()).collect()
}

/// Without secrets, formatted.
fn shown_json(value: Result<Value, topics::go_json::Error>) -> Vec<u8> {
    match value {
        Ok(value) => serde_json::to_vec_pretty(&without(value)).unwrap_or_default(),
        Err(_quotes) => b"it makes no sense as this topic; `zedbox check` says why\n".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 2-08: a report says by which settings the node went.
    #[test]
    fn the_settings_of_the_node_are_in_the_archive() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &Path, text: &str| store::replace(path, text.as_bytes()).unwrap();
        let limits = root.path().join("etc/zedbox/limits.json");
        put(&limits, r#"{"zedkube":{"drain_tries":3}}"#);
        let settings = format!("notify = \"https://h/s3cr3t\"\nlimits = \"{}\"\n", limits.display());
        put(&root.path().join("etc/zedbox/zedbox.toml"), &settings);
        put(
            &root.path().join("run/zedagent/ConfigItemValueMap/global.json"),
            r#"{"GlobalSettings":{"kubernetes.drain.timeout":{"Key":"kubernetes.drain.timeout","ItemType":1,"IntValue":7}}}"#,
        );
        let mut contents = Contents::default();
        collect(root.path(), &mut contents);
        for (file, part) in [
            ("files/etc/zedbox/zedbox.toml", "notify = \"(left out)\"\nlimits = "),
            ("files/limits.json", "drain_tries"),
            ("files/run/zedagent/ConfigItemValueMap/global.json", "kubernetes.drain.timeout"),
        ] {
            let held = contents.0.iter().find(|it| it.0 == file).map(|it| String::from_utf8_lossy(&it.1));
            assert!(held.is_some_and(|it| it.contains(part)), "{file}: {:?}", contents.0);
        }
    }
}
