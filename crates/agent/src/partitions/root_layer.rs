//! From the documents of an image to the one layer that is its root.
//!
//! | Form | Where its documents begin |
//! |---|---|
//! | an OCI image layout | `index.json` |
//! | blobs of a content tree, as containerd or volumemgr keeps them | the index or manifest that none of the others names |
//! | a store of contents without either | the digest that is wanted |
//!
//! From there the way is the same: of an index the manifest of the digest that is wanted, else of this machine's
//! platform; of a manifest the layer whose role is the root. Every file on the way is checked against the digest that
//! names it, but for the layer itself: that is checked while it is written.
//!
//! Not here: bytes of the layer.
//! Source: OCI image specification 1.1 (image-layout, image-index, manifest); lf-edge/edge-containers docs/annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts;
use std::path::{Path, PathBuf};

use pubsub::store;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use step::Inserted as _;

use super::{hex, refuse};
use crate::Error;

const JSON_BYTES: u64 = 4 << 20;
/// The annotation for a layer's role, as the reference knows it, and two of its values. A disk beside the
/// root belongs in `/persist` where the reference splits an image in two; it is not installed here.
const ROLE: &str = "org.lfedge.eci.role";
const ROOT: &str = "disk-root";
const ADDITIONAL: &str = "disk-additional";
/// Builders put this beside a manifest to describe the build; it is no image.
const ATTESTATION: (&str, &str) = ("vnd.docker.reference.type", "attestation-manifest");
const NO_PLATFORM: &str = "unknown";
const DEPTH: usize = 4;

/// The media type is ignored: the reference calls a wrapped root file system a tar archive.
#[derive(Debug, Clone, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct Platform {
    os: String,
    architecture: String,
}

/// An index names manifests, a manifest names layers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    manifests: Vec<Descriptor>,
    layers: Vec<Descriptor>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) path: PathBuf,
    pub(super) sha256: String,
}

/// The root layer of the image in `folder`. `names` are the digests of its blobs where known, `wanted` is the
/// digest of its manifest, index or layer, or empty; both as [`digits`] returns them.
pub(super) fn root(folder: &Path, names: &[String], wanted: &str) -> Result<Blob, Error> {
    let (index, blobs) = (folder.join("index.json"), folder.join("blobs/sha256"));
    let blobs = if blobs.is_dir() { blobs } else { folder.to_owned() };
    let mut seen = BTreeSet::new();
    let (mut at, mut document) = if index.is_file() {
        (index.display().to_string(), json(&index, None)?)
    } else {
        let entry = entry(&blobs, names, wanted)?;
        let document = json(&entry.path, Some(&entry.sha256))?;
        seen.insert(entry.sha256);
        (entry.path.display().to_string(), document)
    };
    for _ in 0..DEPTH {
        let is_manifest = document.manifests.is_empty();
        let next = if is_manifest { layer(&document, &at) } else { manifest(&document, &at, wanted) };
        let next = blob(&blobs, next.map_err(refuse)?)?;
        seen.insert(next.sha256.clone());
        if is_manifest {
            if wanted.is_empty() || seen.contains(wanted) {
                return Ok(next);
            }
            return Err(refuse(format!("{} holds another image than sha256 {wanted}", folder.display())));
        }
        document = json(&next.path, Some(&next.sha256))?;
        at = next.path.display().to_string();
    }
    Err(refuse(format!("{} nests more than {DEPTH} indexes", folder.display())))
}

/// The first document of an image that consists of blobs only.
fn entry(blobs: &Path, names: &[String], wanted: &str) -> Result<Blob, Error> {
    let shown = blobs.display();
    if names.is_empty() {
        if wanted.is_empty() {
            return Err(refuse(format!("{shown} has no index.json, and no digest names the image in it")));
        }
        return blob(blobs, wanted);
    }
    let (mut documents, mut below) = (BTreeSet::new(), BTreeSet::new());
    for name in names {
        let one = blob(blobs, name)?;
        // Layers are longer or no JSON; a missing document is found later.
        if one.path.metadata().is_ok_and(|it| it.len() > JSON_BYTES) {
            continue;
        }
        let bytes = small(&one.path)?.unwrap_or_default();
        let document: Document = serde_json::from_slice(&bytes).unwrap_or_default();
        if document.manifests.is_empty() && document.layers.is_empty() {
            continue;
        }
        for manifest in document.manifests {
            below.insert(digits(&manifest.digest)?);
        }
        documents.insert(one.sha256);
    }
    let tops: Vec<&String> = documents.difference(&below).collect();
    match tops.as_slice() {
        [] => Err(refuse(format!(
            "none of the {} blobs of this content in {shown} is a manifest, so nothing says which of them is the root; \
             bring the image as an OCI image, or as the one file that FileLocation names",
            names.len()
        ))),
        [one] => blob(blobs, one),
        _ if documents.contains(wanted) => blob(blobs, wanted),
        several => Err(refuse(format!(
            "{} of the blobs of this content in {shown} are manifests of different images; name one as ContentSha256",
            several.len()
        ))),
    }
}

/// The digest of the manifest in `index` (at `at`) that is `wanted`, or for this machine.
fn manifest<'a>(index: &'a Document, at: &str, wanted: &str) -> Result<&'a str, String> {
    let images: Vec<&Descriptor> = index.manifests.iter().filter(|it| !it.is_attestation()).collect();
    let such = |is: &dyn Fn(&Descriptor) -> bool| -> Vec<&'a Descriptor> {
        images.iter().copied().filter(|it| is(it)).collect()
    };
    let here = here();
    let is_wanted = |it: &Descriptor| !wanted.is_empty() && digits(&it.digest).is_ok_and(|it| it == wanted);
    // One without a platform is for any.
    let ways = [
        such(&is_wanted),
        such(&|it| it.platform.as_ref() == Some(&here)),
        such(&|it| it.platform.is_none()),
    ];
    let fit = ways.into_iter().find(|fit| !fit.is_empty()).unwrap_or_default();
    let fits = |it: &&&Descriptor| it.platform.as_ref().is_none_or(|platform| *platform == here);
    let Some(one) = fit.iter().find(fits) else {
        let others = if fit.is_empty() { &images } else { &fit };
        let others = others.iter().filter_map(|it| it.platform.as_ref()).map(Platform::shown).into_set();
        let others: Vec<String> = others.into_iter().collect();
        let (wanted, others) = (if fit.is_empty() { "" } else { wanted }, others.join(", "));
        return Err(format!("the index {at} has no image {wanted} for {}, but for: {others}", here.shown()));
    };
    if fit.iter().any(|it| it.digest != one.digest) {
        let digests: Vec<&str> = fit.iter().map(|it| it.digest.as_str()).collect();
        return Err(format!(
            "the index {at} has {} images for {}; name one as ContentSha256: {}",
            fit.len(),
            here.shown(),
            digests.join(", ")
        ));
    }
    Ok(&one.digest)
}

/// The digest of the root layer of `manifest` (at `at`): the one with that role, or the only one.
fn layer<'a>(manifest: &'a Document, at: &str) -> Result<&'a str, String> {
    let role = |it: &Descriptor| it.annotations.get(ROLE).cloned().unwrap_or_default();
    let layers = &manifest.layers;
    if layers.iter().any(|it| role(it).starts_with(ADDITIONAL)) {
        return Err(format!(
            "the manifest {at} has a layer with {ROLE} = {ADDITIONAL}: an image in two parts, of which only the root \
             would be written; give an image whose root is all of it"
        ));
    }
    let roots: Vec<&Descriptor> = layers.iter().filter(|it| role(it) == ROOT).collect();
    match (roots.as_slice(), layers.as_slice()) {
        ([one], _) => Ok(&one.digest),
        ([], [only]) if role(only).is_empty() => Ok(&only.digest),
        (roots, layers) => Err(format!(
            "the manifest {at} has layers: {}, of them with {ROLE} = {ROOT}: {}; give an image with exactly one",
            layers.len(),
            roots.len()
        )),
    }
}

impl Descriptor {
    fn is_attestation(&self) -> bool {
        let said = self.annotations.get(ATTESTATION.0).is_some_and(|it| it == ATTESTATION.1);
        said || self.platform.as_ref().is_some_and(|it| it.architecture == NO_PLATFORM)
    }
}

impl Platform {
    fn shown(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }
}

/// In Go's words, which images use.
fn here() -> Platform {
    let architecture = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        same => same,
    };
    Platform { os: consts::OS.to_owned(), architecture: architecture.to_owned() }
}

/// The hexadecimal digits of a SHA-256, with `sha256:` in front or without. Safe as the name of a file.
pub(super) fn digits(text: &str) -> Result<String, Error> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    if digits.len() != 64 || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        return Err(refuse(format!("`{text}` is no sha256 digest")));
    }
    Ok(digits.to_lowercase())
}

fn blob(blobs: &Path, digest: &str) -> Result<Blob, Error> {
    let sha256 = digits(digest)?;
    Ok(Blob { path: blobs.join(&sha256), sha256 })
}

fn small(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    store::read(path, JSON_BYTES).map_err(Error::pubsub(path.display().to_string()))
}

fn json(path: &Path, sha256: Option<&str>) -> Result<Document, Error> {
    let told = |cause: &str| refuse(format!("{}: {cause}", path.display()));
    let bytes = small(path)?.ok_or_else(|| told("is missing"))?;
    if sha256.is_some_and(|sha256| hex(digest(&SHA256, &bytes).as_ref()) != sha256) {
        return Err(told("is not what its digest says; bring the image again"));
    }
    serde_json::from_slice(&bytes).map_err(|cause| told(&cause.to_string()))
}

/// For fuzzing: `bytes` as an index or a manifest, and what is chosen of it for `wanted`.
pub(super) fn chosen(bytes: &[u8], wanted: &str) -> Result<String, String> {
    let document: Document = serde_json::from_slice(bytes).map_err(|cause| cause.to_string())?;
    let chosen = if document.manifests.is_empty() {
        layer(&document, "tried")
    } else {
        manifest(&document, "tried", wanted)
    };
    chosen.map(str::to_owned)
}
