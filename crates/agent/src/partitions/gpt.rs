//! IMGA and IMGB in the GUID partition table of a disk, or of the image of a disk.
//!
//! | Attribute word | State | Priority, tries left, successful |
//! |---|---|---|
//! | `0x102` | `active` | 2, 0, 1 |
//! | `0x013` | `updating` | 3, 1, 0 |
//! | `0x003` | `inprogress` | 3, 0, 0 |
//! | `0x000` | `unused` | 0, 0, 0 |
//!
//! Not here: how the table is written (`table`), images (`contents`). Source: lf-edge/eve pkg/gpt-tools
//! `zboot`, pkg/grub `gptprio`.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use pubsub::TopicRoot;
use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::contents;
use super::table::{GptTable, NotWritten, Slot};
use super::target::PartitionTarget;
use super::{
    BootResult, ImageToWrite, Label, Partition, PartitionState, PartitionStore, PartitionWork, Partitions,
    Percent, StopOnDrop, blocking, booted, refuse, settable,
};
use crate::Error;

/// Under the root; the boot loader names the partition there.
const COMMAND_LINE: &str = "proc/cmdline";
const ROOT: &str = "root=PARTUUID=";
const COMMAND_LINE_BYTES: u64 = 64 << 10;
/// The kernel's disks, under the root. Counts in sectors of 512 bytes, for any disk.
const KNOWN: &str = "sys/class/block";
const KNOWN_SECTOR: u64 = 512;

const WORDS: [(PartitionState, u16); 4] = [
    (PartitionState::Active, 0x102),
    (PartitionState::Updating, 0x013),
    (PartitionState::Inprogress, 0x003),
    (PartitionState::Unused, 0x000),
];

fn word(state: PartitionState) -> u16 {
    WORDS.iter().find(|(known, _)| *known == state).map_or(0, |(_, word)| *word)
}

#[derive(Debug, Clone)]
pub struct GptStore {
    topic_root: TopicRoot,
    disk: PathBuf,
    running: Option<Label>,
}

struct GptEntry {
    slot: Slot,
    target: PartitionTarget,
    partition: Partition,
}

impl GptStore {
    /// Without `running`, the kernel's command line names the running partition by its PARTUUID.
    pub fn new(topic_root: &TopicRoot, disk: &Path, running: Option<Label>) -> Self {
        Self { topic_root: topic_root.clone(), disk: disk.to_owned(), running }
    }

    fn refuse(&self, reason: &dyn std::fmt::Display) -> Error {
        refuse(format!("{}: {reason}", self.disk.display()))
    }

    /// The disk, locked until it is dropped: another store of it waits.
    fn open(&self, write: bool) -> Result<File, Error> {
        let disk = OpenOptions::new().read(true).write(write).open(&self.disk);
        let disk = disk.map_err(|cause| self.refuse(&cause))?;
        flock(&disk, FlockOperation::LockExclusive).map_err(|cause| self.refuse(&cause))?;
        Ok(disk)
    }

    fn table(&self) -> Result<GptTable, Error> {
        GptTable::read(&mut self.open(false)?).map_err(|why| self.refuse(&why))
    }

    fn write(&self, words: &[(usize, u16)]) -> Result<(), Error> {
        GptTable::write(&mut self.open(true)?, words).map_err(|why| match why {
            NotWritten::NoPlace(why) => {
                self.refuse(&format!("{why}; nothing was written; type sgdisk -e {}", self.disk.display()))
            }
            NotWritten::Failed(why) => self.refuse(&why),
        })
    }

    fn now(&self) -> Result<(Partitions, [GptEntry; 2]), Error> {
        let table = self.table()?;
        let slots = table.slots();
        let mut pair = Vec::new();
        for label in Label::BOTH {
            let named: Vec<&Slot> = slots.iter().filter(|slot| slot.label == label.word()).collect();
            let [slot] = named.as_slice() else {
                let count = named.len();
                return Err(self.refuse(&format!(
                    "{count} partitions are named {label}; one IMGA and one IMGB are needed"
                )));
            };
            pair.push((label, (*slot).clone()));
        }
        let current = self.current(&pair)?;
        let mut found = Vec::new();
        for (label, slot) in pair {
            table.is_apart(&slot, label == current, &self.disk).map_err(|why| self.refuse(&why))?;
            found.push(self.partition(label, slot, current)?);
        }
        match <[GptEntry; 2]>::try_from(found) {
            Ok([a, b]) => {
                let now = Partitions { current, a: a.partition.clone(), b: b.partition.clone() };
                Ok((now, [a, b]))
            }
            Err(_) => Err(self.refuse(&"IMGA and IMGB were not found")),
        }
    }

    fn current(&self, pair: &[(Label, Slot)]) -> Result<Label, Error> {
        if let Some(label) = self.running {
            return Ok(label);
        }
        let path = self.topic_root.path(COMMAND_LINE);
        let mut line = String::new();
        // The kernel's file has no length, so the store cannot read it.
        let read = File::open(&path).and_then(|file| file.take(COMMAND_LINE_BYTES).read_to_string(&mut line));
        read.map_err(|source| Error::Read { path: path.clone(), source })?;
        let named = line.split_whitespace().filter_map(|word| word.strip_prefix(ROOT)).next_back();
        let is =
            |(_, slot): &&(Label, Slot)| named.is_some_and(|named| slot.guid.eq_ignore_ascii_case(named));
        pair.iter().find(is).map(|(label, _)| *label).ok_or_else(|| {
            let named = named.map_or_else(|| "no partition".to_owned(), |named| format!("PARTUUID {named}"));
            self.refuse(&format!(
                "{} names {named} as root, neither IMGA nor IMGB; type --current-partition IMGA (or IMGB)",
                path.display()
            ))
        })
    }

    fn partition(&self, label: Label, slot: Slot, current: Label) -> Result<GptEntry, Error> {
        let Some((state, _)) = WORDS.iter().find(|(_, word)| *word == slot.word) else {
            // The running one may be the only one that boots.
            let (what, right) = if label == current {
                ("runs", PartitionState::Active)
            } else {
                ("does not run", PartitionState::Unused)
            };
            return Err(self.refuse(&format!(
                "{label} has the attribute word {:#x}, which is no state (0x102 active, 0x13 updating, 0x3 \
                 inprogress, 0 unused); it {what}, so type cgpt add -i {} -A {:#x} {}",
                slot.word,
                slot.number,
                word(right),
                self.disk.display()
            )));
        };
        let target = self.target(&slot).map_err(|why| self.refuse(&why))?;
        let (short_version, content) = if label == current {
            (contents::running_version(&self.topic_root)?, String::new())
        } else {
            contents::of(&self.topic_root, label, &target)?
        };
        let partition = Partition {
            label,
            device: target.device(),
            state: *state,
            short_version,
            long_version: String::new(),
            size_bytes: slot.bytes,
            content,
        };
        Ok(GptEntry { slot, target, partition })
    }

    /// The partition's own device, or its part of the image of a disk.
    fn target(&self, slot: &Slot) -> Result<PartitionTarget, String> {
        let disk = self.disk.canonicalize().map_err(|cause| cause.to_string())?;
        let about = disk.metadata().map_err(|cause| cause.to_string())?;
        if !about.file_type().is_block_device() {
            return Ok(PartitionTarget { path: disk, offset: slot.offset, bytes: slot.bytes });
        }
        let path = device_of(&disk, slot.number);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (about, bytes) in [("start", slot.offset), ("size", slot.bytes)] {
            let path = self.topic_root.path(KNOWN).join(&name).join(about);
            let known =
                std::fs::read_to_string(&path).map_err(|cause| format!("{}: {cause}", path.display()))?;
            if known.trim().parse::<u64>().ok().map(|it| it.saturating_mul(KNOWN_SECTOR)) != Some(bytes) {
                return Err(format!(
                    "the kernel has another table in use: {} says {}; restart the machine",
                    path.display(),
                    known.trim()
                ));
            }
        }
        Ok(PartitionTarget { path, offset: 0, bytes: slot.bytes })
    }

    /// Sets these states in one change of the table.
    fn put(&self, states: &[(&GptEntry, PartitionState)]) -> Result<(), Error> {
        let words: Vec<(usize, u16)> =
            states.iter().map(|(found, state)| (found.slot.number, word(*state))).collect();
        self.write(&words)
    }

    fn set(&self, label: Label, state: PartitionState) -> Result<(), Error> {
        let (now, found) = self.now()?;
        settable(label, state, &now)?;
        self.put(&[(of(&found, label), state)])
    }

    fn mark(&self) -> Result<(), Error> {
        let (now, found) = self.now()?;
        let running = now.running();
        match running.state {
            PartitionState::Inprogress | PartitionState::Active => self.put(&[
                (of(&found, running.label), PartitionState::Active),
                (of(&found, running.label.other()), PartitionState::Unused),
            ]),
            PartitionState::Updating | PartitionState::Unused => {
                Err(refuse(format!("{} is {}, not inprogress", running.label, running.state)))
            }
        }
    }
}

fn of(found: &[GptEntry; 2], label: Label) -> &GptEntry {
    let [a, b] = found;
    match label {
        Label::A => a,
        Label::B => b,
    }
}

/// The kernel's names: a number after a letter, `p` and a number after a digit.
fn device_of(disk: &Path, number: usize) -> PathBuf {
    let name = disk.to_string_lossy();
    let between = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{between}{number}"))
}

impl PartitionStore for GptStore {
    fn read(&mut self) -> PartitionWork<Partitions> {
        let this = self.clone();
        blocking(move || this.now().map(|(now, _)| now))
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()> {
        let this = self.clone();
        blocking(move || this.set(label, state))
    }

    fn mark_current_active(&mut self) -> PartitionWork<()> {
        let this = self.clone();
        blocking(move || this.mark())
    }

    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String> {
        let this = self.clone();
        StopOnDrop::over(move |stop| {
            let (now, found) = this.now()?;
            settable(label, PartitionState::Unused, &now)?;
            let found = of(&found, label);
            let opened = contents::open(label, &found.target, &image, percent)?;
            this.put(&[(found, PartitionState::Unused)])?;
            contents::write(&this.topic_root, (label, &found.target), &image, opened, stop)
        })
    }

    fn boot(&mut self, _boot_id: &str) -> PartitionWork<BootResult> {
        let this = self.clone();
        blocking(move || {
            let (now, _) = this.now()?;
            if let Err(cause) = this.write(&[]) {
                if !this.table()?.primary_is_whole {
                    return Err(cause);
                }
                // The next write reports it again.
                warn!(error = step::chain(&cause), "the copies of the partition table stay as they are");
            }
            Ok(booted(&now))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_disk_are_named_as_the_kernel_names_them() {
        for (disk, partition) in [
            ("/dev/sda", "/dev/sda3"),
            ("/dev/nvme0n1", "/dev/nvme0n1p3"),
            ("/dev/mmcblk0", "/dev/mmcblk0p3"),
        ] {
            assert_eq!(device_of(Path::new(disk), 3), PathBuf::from(partition));
        }
    }
}
