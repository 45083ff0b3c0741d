//! The seam to the two image partitions and to the boot loader that chooses between them.
//!
//! | Door | What it is |
//! |---|---|
//! | [`GptStore`] | attribute bits of IMGA and IMGB in the GUID partition table of a disk |
//! | [`ExecStore`] | a program with the words of the reference's `zboot` |
//! | [`RecordStore`] | files under the root that stand in for partitions, for the demo and for tests |
//!
//! Each must be asked for by name ([`PartitionsChoice`]), so that no device takes an image for booted that was only written
//! down. Not here: when an image is switched; baseosmgr decides that.
//! Source of the states: lf-edge/eve pkg/pillar/zboot and pkg/grub (partition attributes of gptprio).
//!
//! | State | Set by | What the boot loader does with it |
//! |---|---|---|
//! | `updating` | baseosmgr, to switch | boots it once, as `inprogress` |
//! | `inprogress` | the boot loader | passes it over: it had its one try |
//! | `active` | baseosmgr, after the test | boots it |
//! | `unused` | baseosmgr | passes it over |

mod choice;
mod contents;
mod exec;
mod gpt;
mod layout;
mod record;
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

/// One of the two image partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Label {
    /// `IMGA`.
    #[serde(rename = "IMGA")]
    A,
    /// `IMGB`.
    #[serde(rename = "IMGB")]
    B,
}

impl Label {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The label as files and topics spell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::A => "IMGA",
            Self::B => "IMGB",
        }
    }

    /// The partition that is not this one.
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

/// What the boot loader makes of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    Active,
    /// Booted once and not yet found good.
    Inprogress,
    /// To be booted next, once.
    Updating,
    /// Not to be booted.
    Unused,
}

impl PartitionState {
    /// The state as files and topics spell it.
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

/// One partition as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub label: Label,
    /// Device name, for display.
    pub device: String,
    /// What the boot loader makes of it.
    pub state: PartitionState,
    /// Version of the image in it; empty while there is no whole image.
    pub short_version: String,
    /// Always empty, as in the reference.
    pub long_version: String,
    /// An image may not be larger.
    pub size_bytes: u64,
    /// Name of the content that a whole image was written from, see [`ImageToWrite::content`]. Empty when that is not
    /// known, for example on a store that cannot remember it; such an image is written again before a switch.
    pub content: String,
}

/// Both partitions at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    /// The one that this boot runs from.
    pub current: Label,
    /// `IMGA`.
    pub a: Partition,
    /// `IMGB`.
    pub b: Partition,
}

impl Partitions {
    /// The partition `label`.
    pub const fn get(&self, label: Label) -> &Partition {
        match label {
            Label::A => &self.a,
            Label::B => &self.b,
        }
    }

    /// The partition that this boot runs from.
    pub const fn running(&self) -> &Partition {
        self.get(self.current)
    }

    /// The partition that a new image goes to.
    pub const fn spare(&self) -> &Partition {
        self.get(self.current.other())
    }
}

/// An image to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageToWrite {
    /// Names the content; kept with the partition once the image is whole.
    pub content: String,
    /// The version to be taken for an image that does not name its own, see [`VERSION_LINE`].
    pub version: String,
    /// Where its bytes are.
    pub bytes: Bytes,
    /// SHA-256 of the bytes, of their manifest or of their index, in hexadecimal digits with `sha256:` in front or
    /// without; empty where it is not known.
    pub sha256: String,
}

/// Where the bytes of an image are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// This file, plain or packed by gzip; of a folder, which is an OCI image layout or a store of contents, its
    /// root layer.
    Path(PathBuf),
    /// The root layer of an image whose blobs are in this folder.
    Blobs {
        /// Where a file is named by the SHA-256 of what is in it.
        folder: PathBuf,
        /// The digests of all blobs of the image, among them its index or its manifest.
        names: Vec<String>,
    },
    /// Here: a small stand-in that says which content it stands for.
    Inline(String),
}

/// Work on the partitions. A door may have done it by the time that this is returned; a real one does it off the
/// runtime when this is polled, and what has begun by then is carried out even if this is dropped.
pub type PartitionWork<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// How far a write is, in percent of its source.
pub type Percent = watch::Sender<u8>;

/// What a boot came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootResult {
    /// The boot loader has run for this boot already.
    Again,
    /// The partition that ran before runs again.
    Same,
    /// A new image has its one try.
    Tried,
    /// The image before did not pass its test; the active one runs.
    FellBack,
    /// No partition may be booted; the one that ran before runs again, as anything else would be the end.
    LastResort,
}

/// What can be done with the partitions.
pub trait PartitionStore: Send {
    /// Both partitions as they are now. Fails when they cannot be read, or are not as the reference makes them.
    fn read(&mut self) -> PartitionWork<Partitions>;

    /// Sets the partition that does not run to `updating`, which needs a whole image in it, or `unused`. Fails when
    /// it is the running one, holds no image, or the state cannot be written; a state that was not written whole
    /// reads as the old or the new one.
    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()>;

    /// Finds the running image good: it becomes `active` and the other one `unused`, so that there is an active one
    /// at every moment. A door that needs two steps may leave both active after a crash; call it again. Fails when
    /// the running one is neither `inprogress` nor `active`, or a state cannot be written.
    fn mark_current_active(&mut self) -> PartitionWork<()>;

    /// Writes `image` to the partition that does not run, and returns the version that is in it then. Before its
    /// first byte that partition is `unused` and without an image, so that no boot ever picks half of one; dropping
    /// the work, or writing again, leaves it so. Fails when it is the running one or mounted, when the bytes cannot
    /// be read, are not those of its digest or more than the partition holds, or cannot be written.
    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String>;

    /// What this boot came to. A real boot loader has chosen by the time that anything here runs; the stand-in
    /// chooses once for each boot identity. Takes a change to its end that a power cut left half done, or logs why it
    /// cannot, where the partitions can be read all the same.
    fn boot(&mut self, boot_id: &str) -> PartitionWork<BootResult>;
}

/// Work that is done.
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

/// Tells a thread to give up once nobody waits for it.
struct StopOnDrop(Arc<AtomicBool>);

impl StopOnDrop {
    /// Work off the runtime that looks at its argument now and then, and ends once that is true.
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

/// Whether a state may be set on the partition that does not run.
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

/// What the states say about the boot, where a real boot loader has chosen.
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
