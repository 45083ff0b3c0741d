//! What an image partition holds, and how an image is written into it, for real partitions.
//!
//! The head of an image is written last, once its digest is verified and the rest is on disk. Until then no
//! boot loader or kernel finds a file system in the partition, after any power cut. A note of what was
//! written, with the digest of that head, is kept under `<root>/persist/partitions/`: it no longer matches
//! once another program has written there.
//!
//! Not here: states of partitions. Source: lf-edge/eve pkg/pillar/zboot (`getVersion`, `WriteToPartition`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pubsub::{TopicRoot, store};
use ring::digest::{SHA256, digest};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::source::ImageSource;
use super::squashfs;
use super::table::{Sectors, wide};
use super::target::{HEAD_BYTES, PAUSE, PartitionTarget, when_free};
use super::{Bytes, ImageToWrite, Label, Percent, hex, refuse};
use crate::Error;

const NOTES: &str = "persist/partitions";
/// Where the other partition is mounted to read its version, under the root.
const MOUNT: &str = "run/baseosmgr/tmpmnt";
/// The kernel's list of mounts, under the root.
const MOUNTS: &str = "proc/self/mountinfo";
/// Versions: of the running image, and inside of an image.
const RUNNING: [&str; 2] = ["run/eve-release", "etc/eve-release"];
const INSIDE: &str = "etc/eve-release";
const SMALL_BYTES: u64 = 64 << 10;
/// Size of a copied piece; a stop is noticed after each.
const PIECE_BYTES: usize = 1 << 20;

/// One write at a time: an abandoned one may still write its last piece.
static WRITING: Mutex<()> = Mutex::new(());

/// An image with a valid root file system head.
pub(super) struct OpenedImage {
    head: Vec<u8>,
    /// By its own superblock.
    length: u64,
    source: ImageSource,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContentNote {
    content: String,
    version: String,
    head_sha256: String,
}

fn note(topic_root: &TopicRoot, label: Label) -> PathBuf {
    topic_root.path(NOTES).join(format!("{label}.json"))
}

pub(super) fn running_version(topic_root: &TopicRoot) -> Result<String, Error> {
    for path in RUNNING {
        if let Some(version) = small(&topic_root.path(path))? {
            return Ok(version);
        }
    }
    Err(refuse(format!("neither {} nor {} names the version that runs", RUNNING[0], RUNNING[1])))
}

/// Version and content of the other partition; both empty where it holds no image.
pub(super) fn of(
    topic_root: &TopicRoot,
    label: Label,
    target: &PartitionTarget,
) -> Result<(String, String), Error> {
    let told = |cause: io::Error| refuse(format!("{}: {cause}", target.device()));
    let head = target.head().map_err(told)?;
    let path = note(topic_root, label);
    let noted = store::read(&path, SMALL_BYTES).map_err(Error::pubsub(path.display().to_string()))?;
    // An invalid note is ignored: the image is written again.
    let known = noted.and_then(|bytes| serde_json::from_slice::<ContentNote>(&bytes).ok());
    if let Some(known) = known.filter(|known| known.head_sha256 == sha256(&head)) {
        return Ok((known.version, known.content));
    }
    let blank = head.iter().all(|byte| *byte == 0);
    if blank || !target.is_device().map_err(told)? {
        return Ok(Default::default());
    }
    // As in the reference: there may be no file system in it.
    let version =
        inside(topic_root, target).inspect_err(|why| warn!(partition = %label, why, "has no version"));
    Ok((version.unwrap_or_default(), String::new()))
}

/// Writes `image` for `label` into `target`. Returns the version that is there then.
pub(super) fn write(
    topic_root: &TopicRoot,
    (label, target): (Label, &PartitionTarget),
    image: &ImageToWrite,
    opened: OpenedImage,
    stop: &AtomicBool,
) -> Result<String, Error> {
    let told = |cause: io::Error| refuse(format!("{}: {cause}", target.device()));
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = target.open(&topic_root.path(MOUNTS)).map_err(refuse)?;
    let path = note(topic_root, label);
    store::remove(&path).map_err(Error::pubsub(path.display().to_string()))?;
    copy(&mut file, (label, target), opened, stop)?;
    // Else no kernel could mount it.
    drop(file);
    let version = if target.is_device().map_err(told)? {
        inside(topic_root, target).map_err(refuse)?
    } else {
        image.version.clone()
    };
    let head_sha256 = sha256(&target.head().map_err(told)?);
    let note = ContentNote { content: image.content.clone(), version: version.clone(), head_sha256 };
    let bytes = serde_json::to_vec(&note).map_err(|cause| refuse(format!("{}: {cause}", path.display())))?;
    store::replace(&path, &bytes).map_err(Error::pubsub(path.display().to_string()))?;
    Ok(version)
}

/// Copies `image` into `target`, which is open as `disk`: its head is erased first and written last.
pub(super) fn copy(
    disk: &mut impl Sectors,
    (label, target): (Label, &PartitionTarget),
    image: OpenedImage,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let told = |cause: io::Error| refuse(format!("{}: {cause}", target.device()));
    let OpenedImage { head, length, mut source } = image;
    disk.write_at(target.offset, &[0; HEAD_BYTES]).map_err(told)?;
    disk.sync().map_err(told)?;
    let (mut piece, mut done) = (vec![0; PIECE_BYTES], head.len());
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(refuse("the write was given up"));
        }
        // Up to the next whole piece, so that no sector is split.
        let room = piece.get_mut(done % PIECE_BYTES..).unwrap_or_default();
        let count = source.fill(room)?;
        if count == 0 {
            break;
        }
        let at = target.offset + wide(done);
        done += count;
        if wide(done) > target.bytes {
            return Err(too_large(&source, label, None, target.bytes));
        }
        disk.write_at(at, room.get(..count).unwrap_or_default()).map_err(told)?;
    }
    is_whole(&source, wide(done), length)?;
    source.finish()?;
    disk.sync().map_err(told)?;
    disk.write_at(target.offset, &head).map_err(told)?;
    disk.sync().map_err(told)
}

/// Opens what is to be written to a real partition, and refuses before any change what is no root file
/// system, is larger than the partition, or is shorter than its own superblock says.
pub(super) fn open(
    label: Label,
    target: &PartitionTarget,
    image: &ImageToWrite,
    percent: Percent,
) -> Result<OpenedImage, Error> {
    if let Bytes::Inline(_) = image.bytes {
        return Err(refuse(format!(
            "the content of {} is not on this device; volumemgr has named neither a file nor blobs",
            image.version
        )));
    }
    let mut source = ImageSource::open(image, percent)?;
    let mut head = vec![0; HEAD_BYTES];
    let count = source.fill(&mut head)?;
    head.truncate(count);
    let length = squashfs::length(&head)
        .map_err(|why| refuse(format!("{} is no root file system: {why}", source.name())))?;
    let bytes = source.bytes();
    if bytes.unwrap_or_default().max(length) > target.bytes {
        return Err(too_large(&source, label, Some(bytes.unwrap_or(length)), target.bytes));
    }
    is_whole(&source, bytes.unwrap_or(length), length)?;
    Ok(OpenedImage { head, length, source })
}

fn is_whole(source: &ImageSource, bytes: u64, length: u64) -> Result<(), Error> {
    if bytes >= length {
        return Ok(());
    }
    Err(refuse(format!(
        "{} is cut off: it has {bytes} bytes, and {length} by its own superblock; bring the image again",
        source.name()
    )))
}

fn too_large(source: &ImageSource, label: Label, bytes: Option<u64>, limit: u64) -> Error {
    let bytes = bytes.map(|bytes| format!(" of {bytes} bytes")).unwrap_or_default();
    refuse(format!("the image {}{bytes} is larger than {label} of {limit} bytes", source.name()))
}

/// The image's version, read as the reference does.
fn inside(topic_root: &TopicRoot, target: &PartitionTarget) -> Result<String, String> {
    let place = topic_root.path(MOUNT);
    let told = |cause: &dyn std::fmt::Display| format!("{}: {cause}", target.device());
    std::fs::create_dir_all(&place).map_err(|cause| told(&cause))?;
    let free = || unmount(&place, UnmountFlags::DETACH);
    // A killed run may have left a mount.
    while free().is_ok() {}
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    when_free(PAUSE, || Ok(mount(&target.path, &place, "squashfs", flags, None)?))
        .map_err(|cause| told(&format!("no squashfs can be mounted from it: {cause}")))?;
    let version = small(&place.join(INSIDE));
    free().map_err(|cause| told(&format!("{} cannot be unmounted: {cause}", place.display())))?;
    match version.map_err(|cause| told(&step::chain(&cause)))? {
        Some(version) => Ok(version),
        None => Err(told(&format!("its image has no {INSIDE}"))),
    }
}

fn small(path: &Path) -> Result<Option<String>, Error> {
    let bytes = store::read(path, SMALL_BYTES).map_err(Error::pubsub(path.display().to_string()))?;
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}
