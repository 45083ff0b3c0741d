//! From an OCI image layout to the one layer that is the root of an OS image.
//!
//! Two forms: a layout with its `index.json`, and a store of contents as containerd keeps it, which has blobs only and
//! is entered by the digest of a manifest. Every file on the way is checked against the digest that names it, but for
//! the layer itself: that is checked while it is written.
//!
//! Not here: bytes of the layer.
//! Source: OCI image specification 1.1 (image-layout, manifest); lf-edge/edge-containers pkg/registry (`Pull`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pubsub::store;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{hex, refuse};
use crate::Error;

/// An index or a manifest is never longer.
const JSON_BYTES: u64 = 4 << 20;
/// The annotation by which the reference knows the root among several layers.
const ROLE: (&str, &str) = ("org.lfedge.eci.role", "disk-root");
/// An index may name an index; nobody nests them deeper.
const DEPTH: usize = 4;

/// The media type says nothing: the reference calls a root file system a tar archive when it wraps one.
#[derive(Debug, Clone, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// An index names manifests, a manifest names layers.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// The root layer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootLayer {
    pub(super) path: PathBuf,
    /// In hexadecimal digits.
    pub(super) sha256: String,
}

/// Whether `folder` is a layout or a store of contents.
pub fn is_one(folder: &Path) -> bool {
    folder.join("blobs/sha256").is_dir()
}

/// The root layer of the image in `folder`. `wanted` is the digest of its manifest, index or layer, or empty.
pub(super) fn layer(folder: &Path, wanted: &str) -> Result<RootLayer, Error> {
    let index = folder.join("index.json");
    let mut seen = Vec::new();
    let mut document: Document = if index.exists() {
        json(&index, None)?
    } else if wanted.is_empty() {
        return Err(refuse(format!("{} is missing, and no digest names the image", index.display())));
    } else {
        seen.push(wanted.to_owned());
        json(&blob(folder, &format!("sha256:{wanted}"))?.path, Some(wanted))?
    };
    for _ in 0..DEPTH {
        let from = seen.last().map_or_else(|| index.display().to_string(), |it| format!("blob {it}"));
        let is_manifest = document.manifests.is_empty();
        let all = if is_manifest { document.layers } else { document.manifests };
        let next = blob(folder, &only(all, &from)?.digest)?;
        seen.push(next.sha256.clone());
        if is_manifest {
            if wanted.is_empty() || seen.iter().any(|it| it == wanted) {
                return Ok(next);
            }
            return Err(refuse(format!("{} holds another image than sha256 {wanted}", folder.display())));
        }
        document = json(&next.path, Some(&next.sha256))?;
    }
    Err(refuse(format!("{} nests more than {DEPTH} indexes", folder.display())))
}

/// The only one; of several layers the one that is named as the root.
fn only(mut all: Vec<Descriptor>, from: &str) -> Result<Descriptor, Error> {
    if all.len() > 1 {
        let is_root = |it: &Descriptor| it.annotations.get(ROLE.0).is_some_and(|role| role == ROLE.1);
        all.retain(is_root);
    }
    match <[Descriptor; 1]>::try_from(all) {
        Ok([one]) => Ok(one),
        Err(others) => Err(refuse(format!(
            "{from}: {} candidates for the one root layer; give an image with exactly one ({} = {})",
            others.len(),
            ROLE.0,
            ROLE.1
        ))),
    }
}

/// A digest is a name of a file, and nothing that leads elsewhere.
fn blob(folder: &Path, digest: &str) -> Result<RootLayer, Error> {
    let sha256 = digest.strip_prefix("sha256:").unwrap_or_default();
    if sha256.len() != 64 || !sha256.bytes().all(|it| it.is_ascii_hexdigit()) {
        return Err(refuse(format!("`{digest}` is no sha256 digest")));
    }
    Ok(RootLayer { path: folder.join("blobs/sha256").join(sha256), sha256: sha256.to_lowercase() })
}

fn json<T: DeserializeOwned>(path: &Path, sha256: Option<&str>) -> Result<T, Error> {
    let told = |cause: &str| refuse(format!("{}: {cause}", path.display()));
    let bytes = store::read(path, JSON_BYTES).map_err(Error::pubsub(path.display().to_string()))?;
    let bytes = bytes.ok_or_else(|| told("is missing"))?;
    if sha256.is_some_and(|sha256| hex(digest(&SHA256, &bytes).as_ref()) != sha256) {
        return Err(told("is not what its digest says; bring the image again"));
    }
    serde_json::from_slice(&bytes).map_err(|cause| told(&cause.to_string()))
}
