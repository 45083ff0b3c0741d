//! Both partitions as files under `<root>/persist/zboot/`, and a boot loader for them.
//!
//! | File | Content |
//! |---|---|
//! | `IMGA.json`, `IMGB.json` | state, versions, device name, size limit, what was written |
//! | `IMGA.img`, `IMGB.img` | the image |
//! | `current` | label of the partition that this boot runs from |
//! | `choice` | what the boot loader has chosen, for which boot; written before it is carried out |
//! | `boot-id` | identity of the boot whose choice has been carried out |
//!
//! Each file is replaced whole. The next call recovers from a crash between two of them.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pubsub::{TopicRoot, store};
use serde::{Deserialize, Serialize};

use super::source::ImageSource;
use super::{
    BootResult, ImageToWrite, Label, Partition, PartitionState, PartitionStore, PartitionWork, Partitions,
    Percent, StopOnDrop, done, refuse, settable,
};
use crate::Error;

pub const FOLDER: &str = "persist/zboot";
/// Prefix of the first line of an image that names its own version, like `/etc/eve-release` in a real one.
pub const VERSION_LINE: &str = "version: ";
/// Version of a fresh store, unless `etc/eve-release` under the root names one.
const FRESH_VERSION: &str = "0.0.0-k-amd64";
/// As the reference's installer makes them.
const SIZE_BYTES: u64 = 512 << 20;
const SMALL_BYTES: u64 = 64 << 10;
/// Size of a copied piece; a stop is noticed after each.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PartitionFile {
    label: Label,
    device: String,
    state: PartitionState,
    short_version: String,
    long_version: String,
    size_bytes: u64,
    content: String,
    /// The write under way; only that one may finish. A leftover name means that no image is whole.
    #[serde(default)]
    writing: String,
}

/// `choice`: a program killed while the boot loader runs must not choose again in the same boot, because the
/// states have changed by then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BootChoice {
    #[serde(rename = "BootID")]
    boot_id: String,
    runs: Label,
    boot: BootResult,
}

/// Copies share one lock, so that a write and a change of state do not mix.
#[derive(Debug, Clone)]
pub struct RecordStore {
    folder: PathBuf,
    turn: Arc<Mutex<()>>,
}

impl RecordStore {
    /// A fresh store has `IMGA` active and running, and `IMGB` unused.
    pub fn open(topic_root: &TopicRoot) -> Result<Self, Error> {
        let this = Self { folder: topic_root.path(FOLDER), turn: Arc::default() };
        if small(&this.folder.join("current"))?.is_none() {
            let release = small(&topic_root.path("etc/eve-release"))?;
            let version = release.filter(|text| !text.is_empty()).unwrap_or_else(|| FRESH_VERSION.to_owned());
            this.put(&fresh(Label::A, PartitionState::Active, version))?;
            this.put(&fresh(Label::B, PartitionState::Unused, String::new()))?;
            // Last: it shows that the other two exist.
            this.put_current(Label::A)?;
        }
        this.now()?;
        Ok(this)
    }

    /// One change at a time. A panic of another holder leaves whole files, so poisoning is ignored.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, label: Label, ending: &str) -> PathBuf {
        self.folder.join(format!("{label}.{ending}"))
    }

    fn record(&self, label: Label) -> Result<PartitionFile, Error> {
        let path = self.path(label, "json");
        let text = small(&path)?.ok_or_else(|| refuse(format!("{} is missing", path.display())))?;
        serde_json::from_str(&text).map_err(|cause| {
            refuse(format!("{}: {cause}; write {label} again or restore the file", path.display()))
        })
    }

    fn put(&self, record: &PartitionFile) -> Result<(), Error> {
        let path = self.path(record.label, "json");
        let bytes =
            serde_json::to_vec(record).map_err(|cause| refuse(format!("{}: {cause}", path.display())))?;
        store::replace(&path, &bytes).map_err(Error::pubsub(path.display().to_string()))
    }

    fn put_current(&self, label: Label) -> Result<(), Error> {
        let path = self.folder.join("current");
        store::replace(&path, label.word().as_bytes()).map_err(Error::pubsub(path.display().to_string()))
    }

    fn running(&self) -> Result<Label, Error> {
        let path = self.folder.join("current");
        let text = small(&path)?.unwrap_or_default();
        text.parse().map_err(|cause| refuse(format!("{}: {cause}", path.display())))
    }

    /// The last choice. An invalid one is ignored: the next one is written whole.
    fn choice(&self) -> Result<Option<BootChoice>, Error> {
        let text = small(&self.folder.join("choice"))?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// As in gptprio: an untried image has the highest priority, then good ones.
    fn choose(&self, boot_id: &str) -> Result<BootChoice, Error> {
        let before = self.running()?;
        let (first, second) = (self.record(before.other())?, self.record(before)?);
        let (runs, boot) = if first.state == PartitionState::Updating {
            (first.label, BootResult::Tried)
        } else if second.state == PartitionState::Active {
            (before, BootResult::Same)
        } else if first.state == PartitionState::Active {
            (first.label, BootResult::FellBack)
        } else {
            (before, BootResult::LastResort)
        };
        let choice = BootChoice { boot_id: boot_id.to_owned(), runs, boot };
        let path = self.folder.join("choice");
        let bytes =
            serde_json::to_vec(&choice).map_err(|cause| refuse(format!("{}: {cause}", path.display())))?;
        store::replace(&path, &bytes).map_err(Error::pubsub(path.display().to_string()))?;
        Ok(choice)
    }

    /// The record of `label`; refuses the running one.
    fn spare(&self, label: Label) -> Result<PartitionFile, Error> {
        if self.running()? == label {
            return Err(refuse(format!("{label} is the partition that runs")));
        }
        self.record(label)
    }

    fn write(
        &self,
        label: Label,
        (image, percent): (&ImageToWrite, Percent),
        name: &str,
        stop: &AtomicBool,
    ) -> Result<String, Error> {
        let limit = self.record(label)?.size_bytes;
        let draft = self.path(label, &format!("img.tmp-{name}"));
        let source = ImageSource::open(image, percent)?;
        let drafted = draft_image(&draft, source, limit, stop);
        let done = drafted.and_then(|stated| self.commit(label, image, name, &draft, stated));
        if done.is_err() {
            // The reason matters more than a leftover draft.
            drop(std::fs::remove_file(&draft));
        }
        done
    }

    /// Makes the draft the image, unless another write has begun or the caller has given up.
    fn commit(
        &self,
        label: Label,
        image: &ImageToWrite,
        name: &str,
        draft: &Path,
        stated: Option<String>,
    ) -> Result<String, Error> {
        let _turn = self.turn();
        let mut record = self.record(label)?;
        if record.writing != name {
            return Err(refuse(format!("another write to {label} has begun")));
        }
        let whole = self.path(label, "img");
        let told = |cause| refuse(format!("{}: {cause}", whole.display()));
        std::fs::rename(draft, &whole).map_err(told)?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(told)?;
        record.short_version = stated.unwrap_or_else(|| image.version.clone());
        record.content.clone_from(&image.content);
        record.writing.clear();
        self.put(&record)?;
        Ok(record.short_version)
    }
}

impl RecordStore {
    fn now(&self) -> Result<Partitions, Error> {
        let _turn = self.turn();
        let partition = |label| {
            self.record(label).map(|it| Partition {
                label,
                device: it.device,
                state: it.state,
                short_version: it.short_version,
                long_version: it.long_version,
                size_bytes: it.size_bytes,
                content: it.content,
            })
        };
        Ok(Partitions { current: self.running()?, a: partition(Label::A)?, b: partition(Label::B)? })
    }

    fn set(&self, label: Label, state: PartitionState) -> Result<(), Error> {
        settable(label, state, &self.now()?)?;
        let _turn = self.turn();
        let mut record = self.record(label)?;
        record.state = state;
        self.put(&record)
    }

    fn mark(&self) -> Result<(), Error> {
        let _turn = self.turn();
        let label = self.running()?;
        let (mut running, mut spare) = (self.record(label)?, self.record(label.other())?);
        match running.state {
            PartitionState::Inprogress => {
                running.state = PartitionState::Active;
                self.put(&running)?;
            }
            PartitionState::Active => {}
            PartitionState::Updating | PartitionState::Unused => {
                return Err(refuse(format!("{label} is {}, not inprogress", running.state)));
            }
        }
        spare.state = PartitionState::Unused;
        self.put(&spare)
    }

    fn begin(
        &self,
        label: Label,
        image: ImageToWrite,
        percent: Percent,
    ) -> Result<PartitionWork<String>, Error> {
        let _turn = self.turn();
        let mut record = self.spare(label)?;
        record.state = PartitionState::Unused;
        record.short_version.clear();
        record.content.clear();
        record.writing = uuid::Uuid::new_v4().to_string();
        self.put(&record)?;
        self.forget_drafts(label);
        let (this, name) = (self.clone(), record.writing);
        Ok(StopOnDrop::over(move |stop| this.write(label, (&image, percent), &name, stop)))
    }

    fn choose_once(&self, boot_id: &str) -> Result<BootResult, Error> {
        let _turn = self.turn();
        let path = self.folder.join("boot-id");
        if small(&path)?.as_deref() == Some(boot_id) {
            return Ok(BootResult::Again);
        }
        let choice = match self.choice()? {
            Some(made) if made.boot_id == boot_id => made,
            Some(_) | None => self.choose(boot_id)?,
        };
        if choice.boot == BootResult::Tried {
            self.put(&PartitionFile { state: PartitionState::Inprogress, ..self.record(choice.runs)? })?;
        }
        if self.running()? != choice.runs {
            self.put_current(choice.runs)?;
        }
        // Last: a power cut before this leaves the choice to the next boot, as with a real boot loader.
        store::replace(&path, boot_id.as_bytes()).map_err(Error::pubsub(path.display().to_string()))?;
        Ok(choice.boot)
    }

    fn forget_drafts(&self, label: Label) {
        let start = format!("{label}.img.tmp-");
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&start))
        {
            // A leftover draft only costs room.
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

impl PartitionStore for RecordStore {
    fn read(&mut self) -> PartitionWork<Partitions> {
        done(self.now())
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()> {
        done(self.set(label, state))
    }

    fn mark_current_active(&mut self) -> PartitionWork<()> {
        done(self.mark())
    }

    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String> {
        self.begin(label, image, percent).unwrap_or_else(|cause| done(Err(cause)))
    }

    fn boot(&mut self, boot_id: &str) -> PartitionWork<BootResult> {
        done(self.choose_once(boot_id))
    }
}

fn fresh(label: Label, state: PartitionState, short_version: String) -> PartitionFile {
    let device = match label {
        Label::A => "/dev/sda2",
        Label::B => "/dev/sda3",
    };
    PartitionFile {
        label,
        device: device.to_owned(),
        state,
        short_version,
        long_version: String::new(),
        size_bytes: SIZE_BYTES,
        content: String::new(),
        writing: String::new(),
    }
}

fn small(path: &Path) -> Result<Option<String>, Error> {
    let bytes = store::read(path, SMALL_BYTES).map_err(Error::pubsub(path.display().to_string()))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
}

/// Writes the bytes to `draft` and returns the version in them, if any. An image is too large for
/// `store::replace`.
fn draft_image(
    draft: &Path,
    mut source: ImageSource,
    limit: u64,
    stop: &AtomicBool,
) -> Result<Option<String>, Error> {
    let told = |cause: std::io::Error| refuse(format!("{}: {cause}", draft.display()));
    let mut target = File::create(draft).map_err(told)?;
    let (mut piece, mut written, mut head) = (vec![0; PIECE_BYTES], 0_u64, None);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(refuse("the write was given up"));
        }
        let count = source.fill(&mut piece)?;
        let bytes = piece.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            source.finish()?;
            target.sync_all().map_err(told)?;
            return Ok(head.flatten());
        }
        if head.is_none() {
            head = Some(stated_version(bytes));
        }
        written += u64::try_from(count).unwrap_or(u64::MAX);
        if written > limit {
            return Err(refuse(format!("the image is larger than its partition of {limit} bytes")));
        }
        target.write_all(bytes).map_err(told)?;
    }
}

fn stated_version(head: &[u8]) -> Option<String> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let version = line.strip_prefix(VERSION_LINE.as_bytes())?;
    Some(String::from_utf8_lossy(version).trim().to_owned())
}
