//! An OCI image layout with one layer: the program and its licences. Source: the OCI image specification 1.1
//! (image-layout, manifest, config).

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::archive::{Entry, digest, gzip, tar};
use crate::facts::{BuildTarget, Workspace};

const FOLDER: &str = "oci";

pub(crate) fn layout(
    workspace: &Workspace,
    target: &BuildTarget,
    program: &[u8],
    notices: &[u8],
) -> anyhow::Result<Vec<Entry>> {
    let files = [
        Entry::file("usr/bin/zedbox", 0o755, program),
        Entry::file("usr/share/doc/zedbox/copyright", 0o644, notices),
    ];
    let plain = tar(&files, &[], workspace.epoch)?;
    let layer = gzip(&plain)?;
    let seconds = i64::try_from(workspace.epoch).context("use the time of the commit")?;
    let created = Timestamp::from_second(seconds).context("use the time of the commit")?.to_string();
    let (architecture, variant) = target.oci;
    let mut platform = json!({ "architecture": architecture, "os": "linux" });
    if let Some(variant) = variant {
        platform["variant"] = json!(variant);
    }
    let mut config = platform.clone();
    config["created"] = json!(created);
    config["config"] = json!({ "Entrypoint": ["/usr/bin/zedbox"] });
    config["rootfs"] = json!({ "type": "layers", "diff_ids": [format!("sha256:{}", digest(&plain))] });
    config["history"] = json!([{ "created": created, "created_by": "cargo run -p xtask -- dist" }]);
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
        "annotations": {
            "org.opencontainers.image.title": "zedbox",
            "org.opencontainers.image.version": workspace.version,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = platform;
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": workspace.version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let at = |path: &str, bytes: Vec<u8>| Entry::file(&format!("{FOLDER}/{path}"), 0o644, bytes);
    let blob = |bytes: Vec<u8>| at(&format!("blobs/sha256/{}", digest(&bytes)), bytes);
    Ok(vec![
        at("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes()),
        at("index.json", index.to_string().into_bytes()),
        blob(config),
        blob(layer),
        blob(manifest),
    ])
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{}", digest(bytes)), "size": bytes.len() })
}
