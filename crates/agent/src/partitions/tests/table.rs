//! The table of a real disk, cut off at every write.

use std::collections::BTreeSet;
use std::io;
use std::process::Command;

use super::super::table::{GptTable, NotWritten, Sectors};
use super::*;

/// States before and after: the words of IMGA and IMGB.
pub(super) type Words = [u16; 2];
pub(super) const GOOD: Words = [0x102, 0];
pub(super) const UPDATING: Words = [0x102, 0x13];
const IN_TEST: Words = [0x102, 0x3];
const PASSED: Words = [0, 0x102];
const NUMBERS: [usize; 2] = [2, 3];

/// A disk that remembers each write since the last sync.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) bytes: Vec<u8>,
    sector: usize,
    /// The disk as a power cut may leave it: a set for each write under way and each sync.
    pub(super) left: BTreeSet<Vec<u8>>,
    open: Vec<(usize, Vec<u8>)>,
    pub(super) writes: usize,
}

impl Recorded {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { left: BTreeSet::from([bytes.clone()]), bytes, sector: 512, open: Vec::new(), writes: 0 }
    }

    /// All that may be there if power goes now: any of the sectors that are not synced, and none of the others.
    fn cut(&mut self) {
        assert!(self.open.len() <= 6, "more than the test can try");
        let synced = self.bytes.clone();
        for which in 0..1_u32 << self.open.len() {
            let mut left = synced.clone();
            for (nth, (at, sector)) in self.open.iter().enumerate() {
                if which >> nth & 1 == 1 {
                    left[*at..*at + sector.len()].copy_from_slice(sector);
                }
            }
            self.left.insert(left);
        }
    }
}

impl Sectors for Recorded {
    fn bytes(&mut self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        let range = at.checked_add(into.len()).map(|end| at..end);
        let from = range.and_then(|range| self.bytes.get(range)).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(from);
        for (open, sector) in &self.open {
            assert!(*open + sector.len() <= at || *open >= at + into.len(), "reads what is not synced");
        }
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        self.writes += 1;
        let sectors = bytes.chunks(self.sector).enumerate();
        self.open.extend(sectors.map(|(nth, it)| (at + nth * self.sector, it.to_vec())));
        self.cut();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        for (at, sector) in std::mem::take(&mut self.open) {
            self.bytes[at..at + sector.len()].copy_from_slice(&sector);
        }
        self.left.insert(self.bytes.clone());
        Ok(())
    }
}

pub(super) fn words(disk: &[u8]) -> Option<Words> {
    loader::words(disk, LABELS).map(|words| words.map(|word| u16::try_from(word).unwrap()))
}

pub(super) fn own_words(disk: &[u8]) -> Words {
    let slots = GptTable::read(&mut Recorded::new(disk.to_vec())).unwrap().slots();
    LABELS.map(|label| slots.iter().find(|slot| slot.label == label).unwrap().word)
}

pub(super) fn change(disk: &[u8], to: Words) -> Recorded {
    let mut recorded = Recorded::new(disk.to_vec());
    let words = [(NUMBERS[0], to[0]), (NUMBERS[1], to[1])];
    GptTable::write(&mut recorded, &words).unwrap();
    recorded
}

fn in_state(words: Words) -> Vec<u8> {
    change(&disk(), words).bytes
}

#[test]
fn a_table_that_sgdisk_made_is_read() {
    let slots = GptTable::read(&mut Recorded::new(disk())).unwrap().slots();
    let labels: Vec<&str> = slots.iter().map(|slot| slot.label.as_str()).collect();
    assert_eq!(labels, ["EFI System", "IMGA", "IMGB", "CONFIG", "P3"]);
    let imgb = &slots[2];
    assert_eq!((imgb.number, imgb.offset, imgb.bytes, imgb.word), (3, 704 * 512, PART_BYTES, 0));
    assert_eq!(imgb.guid, PARTUUIDS[1]);
    assert_eq!(slots[4].number, 9);
    assert_eq!(words(&disk()), Some(GOOD));
}

#[test]
fn b1_nothing_but_attribute_bits_and_checksums_changes() {
    let before = disk();
    for state in [UPDATING, IN_TEST, PASSED] {
        let after = change(&before, state).bytes;
        assert_eq!(own_words(&after), state);
        let differ: BTreeSet<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        let sectors = before.len() / 512;
        let mut may = BTreeSet::new();
        for (header, entries) in [(1, 2), (sectors - 1, sectors - 33)] {
            may.extend((0..4).flat_map(|nth| [header * 512 + 16 + nth, header * 512 + 88 + nth]));
            may.extend(NUMBERS.iter().flat_map(|nth| {
                let word = entries * 512 + (nth - 1) * 128 + 54;
                [word, word + 1]
            }));
        }
        assert!(differ.is_subset(&may), "{:?}", differ.difference(&may).collect::<Vec<_>>());
        assert!(!differ.is_empty());
    }
}

#[test]
fn b1_a_cut_at_any_write_leaves_the_old_or_the_new_meaning() {
    let mut states = 0;
    for (from, to) in
        [(GOOD, UPDATING), (UPDATING, GOOD), (IN_TEST, PASSED), (IN_TEST, GOOD), ([0x3, 0x102], [0x102, 0])]
    {
        let begin = in_state(from);
        let done = change(&begin, to);
        assert_eq!(done.writes, 4, "a header and a sector of entries in each copy");
        for left in &done.left {
            let read =
                words(left).unwrap_or_else(|| panic!("no boot loader finds a table: {from:x?} to {to:x?}"));
            assert!(read == from || read == to, "{read:x?} between {from:x?} and {to:x?}");
            assert_eq!(own_words(left), read, "the boot loader and this program differ");
            states += 1;
            // What is half done is taken to its end, and cut off again.
            let mut healed = Recorded::new(left.clone());
            GptTable::write(&mut healed, &[]).unwrap();
            assert_eq!(words(&healed.bytes), Some(read));
            assert_eq!(in_state(read), healed.bytes, "both copies say the same, and nothing else changed");
            // Or something else is asked for meanwhile.
            for other in [from, to, [0x102, 0]] {
                for again in change(left, other).left.into_iter().chain(healed.left.clone()) {
                    let now = words(&again).expect("no boot loader finds a table after two cuts");
                    assert!(now == read || now == other, "{now:x?} from {read:x?} to {other:x?}");
                }
            }
        }
        assert_eq!(words(&done.bytes), Some(to));
        assert!(loader::is_primary_whole(&done.bytes));
        assert_eq!(change(&done.bytes, to).writes, 0, "what is so is not written again");
    }
    assert!(states >= 25, "only {states} states were tried");
}

#[test]
fn b1_the_kernel_misses_the_primary_copy_in_one_state_only() {
    let done = change(&in_state(GOOD), UPDATING);
    let missed: Vec<_> = done.left.iter().filter(|left| !loader::is_primary_whole(left)).collect();
    assert_eq!(missed.len(), 1);
    assert_eq!(words(missed[0]), Some(UPDATING));
    // The boot loader uses up a try, and writes both copies with that.
    let mut disk = missed[0].clone();
    assert_eq!(loader::boot(&mut disk).unwrap().label, "IMGB");
    assert!(loader::is_primary_whole(&disk));
    assert_eq!(own_words(&disk), IN_TEST);
}

#[test]
fn a_copy_that_is_lost_is_made_again_from_the_other() {
    let sectors = disk().len() / 512;
    let whole = in_state(UPDATING);
    for lost in [1..2, 2..34, 1..34, sectors - 1..sectors, sectors - 33..sectors - 1, sectors - 33..sectors] {
        let mut broken = disk();
        broken[lost.start * 512..lost.end * 512].fill(0xa5);
        let done = change(&broken, UPDATING);
        assert_eq!(done.bytes, whole, "{lost:?}");
        for left in &done.left {
            let read = own_words(left);
            assert!(read == GOOD || read == UPDATING, "{read:x?}, {lost:?} lost");
        }
    }
}

#[test]
fn without_a_whole_copy_nothing_is_written() {
    let mut broken = Recorded::new(disk_bytes(|disk| {
        let last = disk.len() - 1;
        disk[600] ^= 1;
        disk[2 * 512] ^= 1;
        disk[last - 500] ^= 1;
    }));
    let before = broken.bytes.clone();
    let refused = GptTable::write(&mut broken, &[(3, 0x13)]).unwrap_err();
    let NotWritten::Failed(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("no GUID partition table is whole"), "{why}");
    assert_eq!((broken.bytes, broken.writes), (before, 0));
    let mut small = Recorded::new(vec![0; 100]);
    assert!(GptTable::read(&mut small).is_err());
}

#[test]
fn the_table_of_a_disk_with_sectors_of_4096_bytes_is_changed_too() {
    // The same table, spread: what lay in sectors of 512 bytes lies in larger ones.
    let old = disk();
    let (sector, sectors) = (4096, old.len() / 512);
    let mut wide = vec![0; sectors * sector];
    let last = sectors - 1;
    for (header, entries, new) in [(1, 2, 2), (last, sectors - 33, last - 4)] {
        let mut bytes = old[header * 512..(header + 1) * 512].to_vec();
        bytes[72..80].copy_from_slice(&(new as u64).to_le_bytes());
        bytes[16..20].fill(0);
        let crc = crc32fast::hash(&bytes[..92]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        wide[header * sector..][..512].copy_from_slice(&bytes);
        wide[new * sector..][..32 * 512].copy_from_slice(&old[entries * 512..][..32 * 512]);
    }
    assert_eq!(own_words(&wide), GOOD);
    let mut done = Recorded { sector, ..Recorded::new(wide) };
    GptTable::write(&mut done, &[(3, 0x13)]).unwrap();
    assert_eq!((own_words(&done.bytes), done.writes), (UPDATING, 4));
    assert!(done.left.iter().all(|left| [GOOD, UPDATING].contains(&own_words(left))));
}

#[test]
fn b1_sgdisk_and_cgpt_agree_with_every_state() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk.img");
    let [has_sgdisk, has_cgpt] = ["sgdisk", "cgpt"].map(is_there);
    let said = |program: &str, words: &[&str]| {
        let out = Command::new(program).args(words).arg(&file).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
    };
    for (from, to) in [(GOOD, UPDATING), (IN_TEST, PASSED)] {
        let done = change(&in_state(from), to);
        for left in &done.left {
            store::replace(&file, left).unwrap();
            let expected = words(left).unwrap();
            for (nth, word) in NUMBERS.iter().zip(expected) {
                if has_cgpt {
                    // As the reference's zboot asks.
                    let shown = said("cgpt", &["show", "-i", &nth.to_string(), "-A"]);
                    let shown =
                        shown.lines().find_map(|line| line.trim().strip_prefix("0x").map(str::to_owned));
                    let shown = shown.unwrap_or_else(|| "0".to_owned());
                    assert_eq!(shown, format!("{word:x}"), "{from:x?} to {to:x?}");
                }
                if has_sgdisk {
                    let shown = said("sgdisk", &["-i", &nth.to_string()]);
                    let flags = format!("Attribute flags: {word:04X}000000000000");
                    assert!(shown.contains(&flags), "{flags} is not in {shown}");
                }
            }
            let whole = *left == done.bytes || *left == in_state(from);
            if has_sgdisk && whole {
                let verified = said("sgdisk", &["-v"]);
                assert!(verified.contains("No problems found"), "{verified}");
            }
        }
    }
}
