//! From a content tree to the bytes of an image.
//!
//! Not here: when it is written. Source of the members: lf-edge/eve pkg/pillar/types (`ContentTreeStatus`).

use std::path::{Component, Path, PathBuf};

use agent::zboot::{Bytes, Image, VERSION_LINE};
use pubsub::Bus;
use topics::ContentTreeStatus;

use crate::core::Write;

/// Where volumemgr keeps blobs once they are verified, under the root.
const BLOBS: &str = "persist/vault/verifier/verified";

/// The image that `write` asks for: the file that `tree` names, else its largest blob, else a few lines that say
/// which content it stands for.
///
/// # Errors
/// A file is named and is not there, or lies outside the root.
pub(crate) fn of(bus: &Bus, write: &Write, tree: &ContentTreeStatus) -> Result<Image, String> {
    let bytes = if tree.file_location.is_empty() {
        match largest_blob(bus, tree) {
            Some(blob) => Bytes::File(blob),
            None => Bytes::Inline(stand_in(write, tree)),
        }
    } else {
        Bytes::File(named_file(bus, &tree.file_location)?)
    };
    Ok(Image { content: write.content.clone(), version: write.version.clone(), bytes })
}

fn named_file(bus: &Bus, location: &str) -> Result<PathBuf, String> {
    let climbs = Path::new(location).components().any(|part| part == Component::ParentDir);
    if climbs {
        return Err(format!("the content tree's FileLocation {location} leaves the root"));
    }
    let path = bus.path(location);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("the content tree's FileLocation {} is no file; see that volumemgr keeps it", path.display()))
}

fn largest_blob(bus: &Bus, tree: &ContentTreeStatus) -> Option<PathBuf> {
    let names = tree.blobs.iter().flatten().filter(|name| !name.contains('/') && !name.contains(".."));
    let files = names.map(|name| bus.path(&format!("{BLOBS}/{name}")));
    let sized = files.filter_map(|path| {
        path.metadata().ok().filter(std::fs::Metadata::is_file).map(|it| (it.len(), path))
    });
    sized.max().map(|(_, path)| path)
}

fn stand_in(write: &Write, tree: &ContentTreeStatus) -> String {
    format!(
        "{VERSION_LINE}{}\ncontent: {}\nname: {}\nurl: {}\nsha256: {}\n",
        write.version, write.tree, tree.display_name, tree.relative_url, tree.content_sha256
    )
}
