//! The seam to the two image partitions and to the boot loader that chooses between them.
//!
//! [`FileStore`] is the one implementation: files under the root, no disk is ever written. It must be asked for by
//! name ([`Choice`]), so that no device takes an image for booted that was only written down.
//! Not here: when an image is switched; baseosmgr decides that.
//! Source of the states: lf-edge/eve pkg/pillar/zboot and pkg/grub (partition attributes of gptprio).
//!
//! | State | Set by | What the boot loader does with it |
//! |---|---|---|
//! | `updating` | baseosmgr, to switch | boots it once, as `inprogress` |
//! | `inprogress` | the boot loader | passes it over: it had its one try |
//! | `active` | baseosmgr, after the test | boots it |
//! | `unused` | baseosmgr | passes it over |

mod files;
#[cfg(test)]
mod tests;

pub use files::{FOLDER, FileStore, VERSION_LINE};

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;

use pubsub::Bus;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Which partitions are used, as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// `none`: there are none, and OS updates are refused.
    #[default]
    None,
    /// `record`: files under `<root>/persist/zboot` that stand in for partitions.
    Record,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "record" => Ok(Self::Record),
            _ => Err(format!("`{text}` does not name partitions; use none or record")),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::None => "none",
            Self::Record => "record",
        })
    }
}

impl Choice {
    /// The partitions themselves, if there are any.
    ///
    /// # Errors
    /// Their records can neither be read nor be made.
    pub fn open(self, bus: &Bus) -> Result<Option<Box<dyn Zboot>>, Error> {
        match self {
            Self::None => Ok(None),
            Self::Record => Ok(Some(Box::new(FileStore::open(bus)?))),
        }
    }
}

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
    /// Both, in order.
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
    /// Tested and good.
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

impl fmt::Display for PartitionState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

/// One partition as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Which one.
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
    /// Name of the content that a whole image was written from, see [`Image::content`]. Empty when that is not
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
pub struct Image {
    /// Names the content; kept with the partition once the image is whole.
    pub content: String,
    /// The version to be taken for an image that does not name its own, see [`VERSION_LINE`].
    pub version: String,
    /// Where its bytes are.
    pub bytes: Bytes,
}

/// Where the bytes of an image are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// In this file.
    File(PathBuf),
    /// Here: a small stand-in that says which content it stands for.
    Inline(String),
}

/// A write under way, which ends with the version that is in the partition then; see [`Zboot::write_image`].
pub type Writing = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// What a boot came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boot {
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

/// What can be done with the partitions. Calls are short but for the future of [`Zboot::write_image`].
pub trait Zboot: Send {
    /// Both partitions as they are now.
    ///
    /// # Errors
    /// A record cannot be read.
    fn read(&self) -> Result<Partitions, Error>;

    /// Sets the state of the partition that does not run. `updating` needs a whole image in it.
    ///
    /// # Errors
    /// It is the running one, it holds no image, or the record cannot be written; nothing has changed.
    fn set_state(&mut self, label: Label, state: PartitionState) -> Result<(), Error>;

    /// Finds the running image good: it becomes `active` and the other one `unused`, in this order, so that
    /// there is an active one at every moment. After a crash in between, both are active; call it again.
    ///
    /// # Errors
    /// The running one is neither `inprogress` nor `active`, or a record cannot be written.
    fn mark_current_active(&mut self) -> Result<(), Error>;

    /// Prepares to write `image` to the partition that does not run: at once that is `unused` and without an
    /// image, so that no boot ever picks half of one. The returned future does the long work.
    ///
    /// Dropping the future, or calling this again, leaves the partition `unused` and without an image.
    ///
    /// # Errors
    /// It is the running one, or the record cannot be written. The future fails when the bytes cannot be read,
    /// are more than the partition holds, or cannot be written.
    fn write_image(&mut self, label: Label, image: Image) -> Result<Writing, Error>;

    /// Does what the boot loader does, once for each boot identity. A real boot loader has done it by the time
    /// that anything here runs.
    ///
    /// # Errors
    /// A record cannot be read or written.
    fn boot(&mut self, boot_id: &str) -> Result<Boot, Error>;

    /// The partition that this boot runs from.
    ///
    /// # Errors
    /// A record cannot be read.
    fn current(&self) -> Result<Label, Error> {
        Ok(self.read()?.current)
    }

    /// The partition `label`.
    ///
    /// # Errors
    /// A record cannot be read.
    fn partition(&self, label: Label) -> Result<Partition, Error> {
        Ok(self.read()?.get(label).clone())
    }
}
