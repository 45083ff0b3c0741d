//! A GUID partition table, of which only attribute bits and checksums are changed.
//!
//! Two copies of a table lie on a disk, each a header and an array of entries with checksums of their own. A change is
//! a few sectors, each of which is old or new after a power cut. They are written in this order, each synced before
//! the next, so that a table is whole at every moment, and so that the boot loader of the reference finds it:
//!
//! | Written | Primary copy | Backup copy | What is read |
//! |---|---|---|---|
//! | header of the backup, then its entries | old | not whole, then new | old |
//! | header of the primary | not whole, its header equal to the backup's | new | new |
//! | entries of the primary | new | new | new |
//!
//! That boot loader (`grub_gpt_read` in lf-edge/eve pkg/grub) takes the backup only if the header of the primary is
//! broken or says the same checksum of the entries as the backup's. So the header goes first: the other way round
//! both copies would be refused until the second sector is written.
//! Where one of them is not whole to begin with, or not where the other says, it is first made so, in the same order,
//! with what the whole one says.
//!
//! A place that a disk names is not free because it is named. The backup is where the primary says only if one of the
//! same table is there; else it belongs to the last sectors. Nothing is written at all if a sector of either copy is the
//! first of the disk, past its end, or a partition's ([`NotWritten::NoPlace`]).
//!
//! Not here: what the bits mean.
//! Source: UEFI specification 2.10, section 5.3.

use std::io;
use std::ops::Range;
use std::path::Path;

/// One header, and offsets of its used fields.
const SIGNATURE: &[u8] = b"EFI PART\0\0\x01\0";
const HEADER_SIZE: usize = 12;
const HEADER_CRC: usize = 16;
const MY_LBA: usize = 24;
const OTHER_LBA: usize = 32;
const ENTRIES_LBA: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_SIZE: usize = 84;
const ENTRIES_CRC: usize = 88;
const LEAST_HEADER_BYTES: usize = 92;
const LAST_USABLE_LBA: usize = 48;
/// Fields that both headers share: identity, and places and sizes of all but the entries.
const SAME: [Range<usize>; 2] = [OTHER_LBA + 8..ENTRIES_LBA, ENTRY_COUNT..ENTRIES_CRC];
const GUID: usize = 16;
const FIRST_LBA: usize = 32;
const LAST_LBA: usize = 40;
/// The upper 16 of 64 attribute bits, specific to the type of partition.
const WORD: usize = 54;
const NAME: usize = 56;
const LEAST_ENTRY_BYTES: usize = 128;
const MOST_ENTRIES_BYTES: usize = 1 << 20;
const SECTORS: [usize; 2] = [512, 4096];
/// A partition that is shortened to end with the disk keeps more sectors than this: the second copy of the
/// table follows it.
const LEAST_SHORTENED: u64 = 64;
const PRIMARY_LBA: u64 = 1;

pub(super) trait Sectors {
    fn bytes(&mut self) -> io::Result<u64>;
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()>;
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns once all writes are on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sectors for std::fs::File {
    fn bytes(&mut self) -> io::Result<u64> {
        // The kernel gives the length of a block device only so.
        io::Seek::seek(self, io::SeekFrom::End(0))
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, into, at)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// From one.
    pub(super) number: usize,
    pub(super) label: String,
    /// Its type's GUID, in lower case.
    pub(super) kind: String,
    /// Its own GUID (PARTUUID), in lower case.
    pub(super) guid: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Attribute bits 48 to 63.
    pub(super) word: u16,
}

/// One whole copy of a table: its header sector and its entries, as on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copy {
    header: Vec<u8>,
    entries: Vec<u8>,
}

/// Where one copy is, or belongs.
#[derive(Debug, Clone, Copy)]
struct Place {
    lba: u64,
    entries: u64,
}

#[derive(Debug)]
pub(super) enum NotWritten {
    /// A copy has no free place; nothing was written.
    NoPlace(String),
    Failed(String),
}

#[derive(Debug, Clone)]
pub(super) struct GptTable {
    sector: usize,
    /// Of the disk.
    sectors: u64,
    /// The primary copy, or the backup where that is not whole.
    valid: Copy,
    pub(super) primary_is_whole: bool,
}

impl GptTable {
    pub(super) fn read(disk: &mut impl Sectors) -> Result<Self, String> {
        let bytes = disk.bytes().map_err(|cause| format!("its size cannot be read: {cause}"))?;
        let mut whys = Vec::new();
        for sector in SECTORS {
            let sectors = bytes / wide(sector);
            match Copy::read(disk, sector, PRIMARY_LBA) {
                Ok(valid) => return Ok(Self { sector, sectors, valid, primary_is_whole: true }),
                Err(why) => whys.push(format!("primary copy at sectors of {sector} bytes: {why}")),
            }
            // A whole header names its backup even where its entries are not whole.
            let header = Copy::header(disk, sector, PRIMARY_LBA);
            let backup = header.map_or(sectors.saturating_sub(1), |it| number(&it, OTHER_LBA, 8));
            match Copy::read(disk, sector, backup) {
                Ok(valid) => return Ok(Self { sector, sectors, valid, primary_is_whole: false }),
                Err(why) => whys.push(format!("backup copy: {why}")),
            }
        }
        Err(format!("no GUID partition table is whole ({})", whys.join("; ")))
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        let size = count(&self.valid.header, ENTRY_SIZE);
        let used = |entry: &&[u8]| entry.iter().take(GUID).any(|byte| *byte != 0);
        let numbered = self.valid.entries.chunks_exact(size.max(1)).enumerate();
        numbered.filter(|(_, entry)| used(entry)).map(|(nth, entry)| self.slot(nth + 1, entry)).collect()
    }

    fn slot(&self, nth: usize, entry: &[u8]) -> Slot {
        let (first, last) = (number(entry, FIRST_LBA, 8), number(entry, LAST_LBA, 8));
        let units = entry.get(NAME..LEAST_ENTRY_BYTES).unwrap_or_default().chunks_exact(2);
        let units = units.map(|pair| u16::try_from(number(pair, 0, 2)).unwrap_or_default());
        let name: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
        let sector = wide(self.sector);
        Slot {
            number: nth,
            label: String::from_utf16_lossy(&name),
            kind: guid(entry.get(..GUID).unwrap_or_default()),
            guid: guid(entry.get(GUID..FIRST_LBA).unwrap_or_default()),
            offset: first.saturating_mul(sector),
            bytes: last.saturating_add(1).saturating_sub(first).saturating_mul(sector),
            word: u16::try_from(number(entry, WORD, 2)).unwrap_or_default(),
        }
    }

    /// Writes `words` for the partitions with these numbers into both copies, with all the rest unchanged.
    /// Without words, completes what a power cut interrupted.
    pub(super) fn write(disk: &mut impl Sectors, words: &[(usize, u16)]) -> Result<(), NotWritten> {
        let table = Self::read(disk).map_err(NotWritten::Failed)?;
        let size = count(&table.valid.header, ENTRY_SIZE);
        let mut entries = table.valid.entries.clone();
        for (nth, word) in words {
            let at = nth.saturating_sub(1) * size + WORD;
            let put = put(&mut entries, at, &word.to_le_bytes());
            put.ok_or_else(|| NotWritten::Failed(format!("it has no partition {nth}")))?;
        }
        let [primary, backup] = table.places(disk).map_err(NotWritten::NoPlace)?;
        let mut copy = |here, other, entries: &[u8]| table.put_copy(disk, (here, other), entries);
        // First both copies get the present contents: a change needs a second copy, and one that is found
        // through the first.
        for entries in [&table.valid.entries, &entries] {
            copy(backup, primary, entries).map_err(NotWritten::Failed)?;
            copy(primary, backup, entries).map_err(NotWritten::Failed)?;
        }
        let now = Self::read(disk).map_err(NotWritten::Failed)?;
        if now.primary_is_whole && now.valid.entries == entries {
            return Ok(());
        }
        Err(NotWritten::Failed("what was written is not what is read".to_owned()))
    }

    /// Whether no other partition shares its sectors, on this `disk`; else which one does, or what a person
    /// can do where it ends past the end of the disk. The running one cannot be shortened.
    pub(super) fn is_apart(&self, of: &Slot, runs: bool, disk: &Path) -> Result<(), String> {
        let sectors = self.sectors_of(of);
        if sectors.end > self.sectors {
            let others = self.slots().into_iter().filter(|it| it != of);
            let also = others.into_iter().find(|it| self.sectors_of(it).end > self.sectors);
            let also = also.map(|it| format!("{} ends past it as well; ", it.label)).unwrap_or_default();
            let way_out = match self.shortens(of).filter(|_| !runs && also.is_empty()) {
                Some(words) => format!(
                    "it does not run, so type sgdisk {} {}: it then ends with the disk, and what it holds is lost",
                    words.join(" "),
                    disk.display()
                ),
                None => format!("{also}install this device again, from an image for a disk of this size"),
            };
            return Err(format!(
                "{} ends at sector {}, and the disk has {}; {way_out}",
                of.label, sectors.end, self.sectors
            ));
        }
        match self.holder(sectors, Some(of.number)) {
            Some(other) => Err(format!("partitions {} ({}) and {other} overlap", of.number, of.label)),
            None => Ok(()),
        }
    }

    /// The arguments of sgdisk, before the disk, that make a partition end with the disk; `None` where too
    /// little of it remains.
    pub(super) fn shortens(&self, of: &Slot) -> Option<Vec<String>> {
        let Slot { number, label, kind, guid, .. } = of;
        let first = self.sectors_of(of).start;
        let words = format!(
            "-a 1 -d {number} -e -n {number}:{first}:0 -t {number}:{kind} -u {number}:{guid} -c {number}:{label}"
        );
        let is_left = first.saturating_add(LEAST_SHORTENED) < self.sectors;
        is_left.then(|| words.split(' ').map(str::to_owned).collect())
    }

    fn sectors_of(&self, of: &Slot) -> Range<u64> {
        let size = wide(self.sector);
        of.offset / size..of.offset.saturating_add(of.bytes) / size
    }

    /// Another partition than `but` with some of these sectors.
    fn holder(&self, sectors: Range<u64>, but: Option<usize>) -> Option<String> {
        let has = |it: &Slot| {
            let its = self.sectors_of(it);
            Some(it.number) != but && its.start < sectors.end && sectors.start < its.end
        };
        self.slots().iter().find(|it| has(it)).map(|it| format!("{} ({})", it.number, it.label))
    }

    /// Where primary and backup are to be written, after a check that nothing else is there.
    fn places(&self, disk: &mut impl Sectors) -> Result<[Place; 2], String> {
        let last = self.sectors.saturating_sub(1);
        let (own, named) = (number(&self.valid.header, MY_LBA, 8), number(&self.valid.header, OTHER_LBA, 8));
        let backup = if !self.primary_is_whole {
            own
        } else if named > PRIMARY_LBA && self.twin(disk, named).is_some() {
            named
        } else {
            last
        };
        let length = wide(self.valid.entries.len().div_ceil(self.sector));
        let places = [(PRIMARY_LBA, PRIMARY_LBA + 1), (backup, backup.saturating_sub(length))];
        let places = places.map(|(lba, usual)| {
            let there = if lba == own { Some(self.valid.header.clone()) } else { self.twin(disk, lba) };
            Place { lba, entries: there.map_or(usual, |it| number(&it, ENTRIES_LBA, 8)) }
        });
        let [_, Place { lba, entries }] = places;
        let usable = number(&self.valid.header, LAST_USABLE_LBA, 8);
        if lba.min(entries) <= usable {
            return Err(format!(
                "its table is made for a disk of another size: it gives sectors up to {usable} to partitions, and its \
                 second copy belongs to sector {} and on",
                lba.min(entries)
            ));
        }
        let mut taken: Vec<Range<u64>> = Vec::new();
        for (Place { lba, entries }, name) in places.into_iter().zip(["first", "second"]) {
            for sectors in [lba..lba.saturating_add(1), entries..entries.saturating_add(length)] {
                let shown = format!(
                    "the {name} copy of its table belongs to sectors {} to {}",
                    sectors.start,
                    sectors.end.saturating_sub(1)
                );
                if sectors.start < PRIMARY_LBA || sectors.end > self.sectors {
                    return Err(format!("{shown}; the disk has {}", self.sectors));
                }
                if let Some(holder) = self.holder(sectors.clone(), None) {
                    return Err(format!("{shown}, where partition {holder} is"));
                }
                if taken.iter().any(|it| it.start < sectors.end && sectors.start < it.end) {
                    return Err(format!("{shown}, where the table itself is"));
                }
                taken.push(sectors);
            }
        }
        Ok(places)
    }

    /// The header at `lba`, if it is this table's other copy.
    fn twin(&self, disk: &mut impl Sectors, lba: u64) -> Option<Vec<u8>> {
        let there = Copy::header(disk, self.sector, lba).ok()?;
        let same = |range: &Range<usize>| there.get(range.clone()) == self.valid.header.get(range.clone());
        let names = lba == PRIMARY_LBA || number(&there, OTHER_LBA, 8) == PRIMARY_LBA;
        (names && SAME.iter().all(same)).then_some(there)
    }

    /// Writes the differences of one copy: its header, then sectors of its entries.
    fn put_copy(
        &self,
        disk: &mut impl Sectors,
        (here, other): (Place, Place),
        entries: &[u8],
    ) -> Result<(), String> {
        let failed = |cause: io::Error| format!("the copy at sector {} cannot be written: {cause}", here.lba);
        let mut header = self.valid.header.clone();
        for (field, value) in [(MY_LBA, here.lba), (OTHER_LBA, other.lba), (ENTRIES_LBA, here.entries)] {
            put(&mut header, field, &value.to_le_bytes());
        }
        let size = count(&header, HEADER_SIZE);
        put(&mut header, ENTRIES_CRC, &crc32fast::hash(entries).to_le_bytes());
        put(&mut header, HEADER_CRC, &[0; 4]);
        let crc = crc32fast::hash(header.get(..size).unwrap_or_default());
        put(&mut header, HEADER_CRC, &crc.to_le_bytes());
        let place = |lba: u64| lba.saturating_mul(wide(self.sector));
        let mut write = |at: u64, bytes: &[u8]| -> io::Result<()> {
            let mut there = vec![0; bytes.len()];
            disk.read_at(at, &mut there)?;
            if there != bytes {
                disk.write_at(at, bytes)?;
                disk.sync()?;
            }
            Ok(())
        };
        write(place(here.lba), &header).map_err(failed)?;
        let begin = place(here.entries);
        for (nth, bytes) in entries.chunks(self.sector).enumerate() {
            write(begin + wide(nth * self.sector), bytes).map_err(failed)?;
        }
        Ok(())
    }
}

impl Copy {
    fn header(disk: &mut impl Sectors, sector: usize, lba: u64) -> Result<Vec<u8>, String> {
        let mut header = vec![0; sector];
        let read = disk.read_at(lba.saturating_mul(wide(sector)), &mut header);
        read.map_err(|cause| format!("sector {lba} cannot be read: {cause}"))?;
        if !header.starts_with(SIGNATURE) {
            return Err(format!("sector {lba} holds no header"));
        }
        let size = count(&header, HEADER_SIZE);
        let mut summed = header.get(..size).unwrap_or_default().to_vec();
        put(&mut summed, HEADER_CRC, &[0; 4]);
        let crc = u64::from(crc32fast::hash(&summed));
        if summed.len() < LEAST_HEADER_BYTES || number(&header, HEADER_CRC, 4) != crc {
            return Err(format!("the checksum of the header at sector {lba} is wrong"));
        }
        if number(&header, MY_LBA, 8) != lba {
            return Err(format!("the header at sector {lba} is of another one"));
        }
        Ok(header)
    }

    fn read(disk: &mut impl Sectors, sector: usize, lba: u64) -> Result<Self, String> {
        let header = Self::header(disk, sector, lba)?;
        let (size, entries) = (count(&header, ENTRY_SIZE), count(&header, ENTRY_COUNT));
        let bytes = size.saturating_mul(entries);
        if size < LEAST_ENTRY_BYTES || bytes > MOST_ENTRIES_BYTES {
            return Err(format!("{entries} entries of {size} bytes each make no sense"));
        }
        let mut entries = vec![0; bytes];
        let at = number(&header, ENTRIES_LBA, 8).saturating_mul(wide(sector));
        let read = disk.read_at(at, &mut entries);
        read.map_err(|cause| format!("the entries cannot be read: {cause}"))?;
        if u64::from(crc32fast::hash(&entries)) != number(&header, ENTRIES_CRC, 4) {
            return Err(format!(
                "the checksum of the entries that the header at sector {lba} names is wrong"
            ));
        }
        Ok(Self { header, entries })
    }
}

/// As text: its first three groups are little-endian.
fn guid(bytes: &[u8]) -> String {
    uuid::Uuid::from_slice_le(bytes).map(|it| it.to_string()).unwrap_or_default()
}

/// The little-endian number at `at`; 0 where there is none.
pub(super) fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn count(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number(bytes, at, 4)).unwrap_or(usize::MAX)
}

pub(super) fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + field.len())?.copy_from_slice(field);
    Some(())
}
