//! The seam to the two image partitions and to the boot loader that chooses between them.
//!
//! | Door | What it is |
//! |---|---|
//! | [`GptStore`] | attribute bits of IMGA and IMGB in the GUID partition table of a disk |
//! | [`ExecStore`] | a program with the words of the reference's `zboot` |
//! | [`RecordStore`] | files under the root that stand in for partitions, for the demo and for tests |
//!
//! Each must be chosen by name ([`PartitionsChoice`]), so that no device takes a recorded image for a booted
//! one. Not here: when an image is switched; baseosmgr decides that. Source of the states: lf-edge/eve
//! pkg/pillar/zboot and pkg/grub (partition attributes of gptprio).
//!
//! | State | Set by | What the boot loader does with it |
//! |---|---|---|
//! | `updating` | baseosmgr, to switch | boots it once, as `inprogress` |
//! | `inprogress` | the boot loader | skips it: it had its one try |
//! | `active` | baseosmgr, after the test | boots it |
//! | `unused` | baseosmgr | skips it |

mod choice;
mod contents;
mod exec;
mod gpt;
mod record;
mod root_layer;
mod source;
mod squashfs;
mod table;
mod target;
#[cfg(test)]
mod tests;
pub mod trial;

pub use choice::PartitionsChoice;
pub use exec::ExecStore;
pub use gpt::GptStore;
pub use record::{FOLDER, RecordStore, VERSION_LINE};

use std::fmt;
use std::future::{Future, ready};
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Label {
    #[serde(rename = "IMGA")]
    A,
    #[serde(rename = "IMGB")]
    B,
}

impl Label {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// As in files and topics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::A => "IMGA",
            Self::B => "IMGB",
        }
    }

    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::BOTH.into_iter().find(|label| label.word() == text);
        known.ok_or_else(|| format!("`{text}` is no partition; use IMGA or IMGB"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    Active,
    /// Booted once, not yet tested.
    Inprogress,
    /// To be booted next, once.
    Updating,
    /// Not to be booted.
    Unused,
}

impl PartitionState {
    /// As in files and topics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inprogress => "inprogress",
            Self::Updating => "updating",
            Self::Unused => "unused",
        }
    }
}

impl FromStr for PartitionState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Active, Self::Inprogress, Self::Updating, Self::Unused];
        let known = all.into_iter().find(|state| state.word() == text);
        known.ok_or_else(|| "it is no state; active, updating, inprogress or unused is needed".to_owned())
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub label: Label,
    /// For display.
    pub device: String,
    pub state: PartitionState,
    /// Of its image; empty while there is no whole one.
    pub short_version: String,
    /// Always empty, as in the reference.
    pub long_version: String,
    pub size_bytes: u64,
    /// Content that a whole image was written from, see [`ImageToWrite::content`]. Empty when unknown, for
    /// example on a store that cannot remember it; such an image is written again before a switch.
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    /// The one that this boot runs from.
    pub current: Label,
    pub a: Partition,
    pub b: Partition,
}

impl Partitions {
    pub const fn get(&self, label: Label) -> &Partition {
        match label {
            Label::A => &self.a,
            Label::B => &self.b,
        }
    }

    pub const fn running(&self) -> &Partition {
        self.get(self.current)
    }

    /// The target of a new image.
    pub const fn spare(&self) -> &Partition {
        self.get(self.current.other())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageToWrite {
    /// Identifies the content; kept with the partition once the image is whole.
    pub content: String,
    /// Used for an image that does not name its own, see [`VERSION_LINE`].
    pub version: String,
    pub bytes: Bytes,
    /// SHA-256 of the bytes, of their manifest or of their index, in hexadecimal digits with `sha256:` in
    /// front or without; empty when unknown.
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// A plain or gzip file; of a folder, which is an OCI image layout or a store of contents, its root
    /// layer.
    Path(PathBuf),
    /// The root layer of an image whose blobs are in this folder.
    Blobs {
        /// Files named by their SHA-256.
        folder: PathBuf,
        /// The digests of all blobs of the image, among them its index or its manifest.
        names: Vec<String>,
    },
    /// A small stand-in that names its content.
    Inline(String),
}

/// Work on the partitions. It may be done when this is returned; real partitions do it off the runtime when
/// this is polled, and work that has begun is completed even if this is dropped.
pub type PartitionWork<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Progress of a write, in percent of its source.
pub type Percent = watch::Sender<u8>;

/// The partition that a boot chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootResult {
    /// The boot loader has already run for this boot.
    Again,
    Same,
    Tried,
    FellBack,
    /// No partition is bootable; the former one runs again.
    LastResort,
}

pub trait PartitionStore: Send {
    /// Both partitions now. Fails when they cannot be read, or differ from the reference's layout.
    fn read(&mut self) -> PartitionWork<Partitions>;

    /// Sets the other partition to `updating`, which needs a whole image in it, or `unused`. Fails when it is
    /// the running one, holds no image, or the state cannot be written; a state that was not written whole
    /// reads as the old or the new one.
    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()>;

    /// Marks the running image `active` and the other one `unused`, with an active one at every moment. An
    /// implementation with two steps may leave both active after a crash; call it again. Fails when the
    /// running one is neither `inprogress` nor `active`, or a state cannot be written.
    fn mark_current_active(&mut self) -> PartitionWork<()>;

    /// Writes `image` to the other partition, and returns the version that is in it then. Before its first
    /// byte that partition is `unused` and without an image, so that no boot picks half of one; dropping the
    /// work, or writing again, leaves it so. Fails when it is the running one or mounted, when the bytes
    /// cannot be read, are not those of its digest or more than the partition holds, or cannot be written.
    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String>;

    /// The result of this boot. A real boot loader has chosen before anything here runs; the stand-in chooses
    /// once for each boot identity. Completes a change that a power cut interrupted, or logs why it cannot,
    /// where the partitions can be read all the same.
    fn boot(&mut self, boot_id: &str) -> PartitionWork<BootResult>;
}

fn done<T: Send + 'static>(outcome: Result<T, Error>) -> PartitionWork<T> {
    Box::pin(ready(outcome))
}

/// Work that may wait for a disk, off the runtime.
fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> PartitionWork<T> {
    Box::pin(async move {
        let ended = tokio::task::spawn_blocking(work).await;
        ended.map_err(|cause| refuse(format!("the work ended early: {cause}")))?
    })
}

struct StopOnDrop(Arc<AtomicBool>);

impl StopOnDrop {
    /// Work off the runtime that ends once its argument is true.
    fn over<T: Send + 'static>(
        work: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send + 'static,
    ) -> PartitionWork<T> {
        Box::pin(async move {
            let hold = Self(Arc::default());
            let stop = Arc::clone(&hold.0);
            blocking(move || work(&stop)).await
        })
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn refuse(reason: impl Into<String>) -> Error {
    Error::Effect { doing: "keep the image partitions", reason: reason.into() }
}

/// Whether a state may be set on the other partition.
fn settable(label: Label, state: PartitionState, now: &Partitions) -> Result<(), Error> {
    if label == now.current {
        return Err(refuse(format!("{label} is the partition that runs")));
    }
    match state {
        PartitionState::Updating if now.get(label).short_version.is_empty() => {
            Err(refuse(format!("{label} holds no whole image to boot")))
        }
        PartitionState::Updating | PartitionState::Unused => Ok(()),
        PartitionState::Active | PartitionState::Inprogress => {
            Err(refuse(format!("{label} does not run, so that nobody may find it {state}")))
        }
    }
}

/// The result of the boot, from the states that a real boot loader left.
fn booted(now: &Partitions) -> BootResult {
    match (now.running().state, now.spare().state) {
        (PartitionState::Inprogress, _) => BootResult::Tried,
        (PartitionState::Active, PartitionState::Inprogress) => BootResult::FellBack,
        (PartitionState::Active, _) => BootResult::Same,
        (PartitionState::Updating | PartitionState::Unused, _) => BootResult::LastResort,
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}
