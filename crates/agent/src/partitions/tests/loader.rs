//! A stand-in for the reference's boot loader: which copy of a partition table it reads, which partition it
//! boots, what it writes. It shares no code with the tested code.
//!
//! Source: lf-edge/eve pkg/grub, `grub_gpt_read` and `gptprio.next`; `cgpt` of Chromium OS for the bits.

const SECTOR: usize = 512;
/// Partitions that may be booted have this type (5dfbf5f4-2848-4bac-aa5e-0d9a20b745a6).
const BOOTS: [u8; 16] =
    [0xf4, 0xf5, 0xfb, 0x5d, 0x48, 0x28, 0xac, 0x4b, 0xaa, 0x5e, 0x0d, 0x9a, 0x20, 0xb7, 0x45, 0xa6];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booted {
    pub label: String,
    pub partuuid: String,
}

/// One copy of a table: where its header is, and what the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    at: usize,
    other: usize,
    usable: (usize, usize),
    entries: usize,
    count: usize,
    size: usize,
    crc: u32,
}

struct Taken {
    entries: Vec<u8>,
    size: usize,
    primary_is_whole: bool,
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |sum, byte| (sum << 8) + usize::from(*byte))
}

fn header(disk: &[u8], at: usize) -> Option<Header> {
    let sector = disk.get(at * SECTOR..(at + 1) * SECTOR)?;
    let size = number(sector, 12, 4);
    if !sector.starts_with(b"EFI PART\0\0\x01\0") || !(92..=SECTOR).contains(&size) {
        return None;
    }
    let mut summed = sector[..size].to_vec();
    summed[16..20].fill(0);
    let header = Header {
        at: number(sector, 24, 8),
        other: number(sector, 32, 8),
        usable: (number(sector, 40, 8), number(sector, 48, 8)),
        entries: number(sector, 72, 8),
        count: number(sector, 80, 4),
        size: number(sector, 84, 4),
        crc: u32::try_from(number(sector, 88, 4)).unwrap(),
    };
    (number(sector, 16, 4) == crc32(&summed) as usize).then_some(header)
}

fn entries(disk: &[u8], header: &Header) -> Option<Vec<u8>> {
    let entries = disk.get(header.entries * SECTOR..)?.get(..header.count * header.size)?;
    (crc32(entries) == header.crc).then(|| entries.to_vec())
}

/// The primary copy, or the backup where that is broken and the header of the primary does not contradict it.
fn take(disk: &[u8]) -> Option<Taken> {
    let primary = header(disk, 1).filter(|it| it.at == 1 && it.entries > 1 && it.other > it.usable.1);
    if let Some(primary) = &primary
        && let Some(entries) = entries(disk, primary)
    {
        return Some(Taken { entries, size: primary.size, primary_is_whole: true });
    }
    let at = primary.as_ref().map_or(disk.len() / SECTOR - 1, |it| it.other);
    let backup = header(disk, at).filter(|it| it.at == at && it.other == 1 && it.entries > it.usable.1)?;
    let agrees =
        |it: Header| Header { at: backup.at, other: backup.other, entries: backup.entries, ..it } == backup;
    if !primary.is_none_or(agrees) {
        // "backup GPT out of sync"
        return None;
    }
    Some(Taken { entries: entries(disk, &backup)?, size: backup.size, primary_is_whole: false })
}

fn word(entry: &[u8]) -> usize {
    number(entry, 54, 2)
}

fn label(entry: &[u8]) -> String {
    entry[56..128].iter().step_by(2).take_while(|it| **it != 0).map(|it| char::from(*it)).collect()
}

/// The attribute words of the partitions with these names, as a boot loader reads them; `None` where it finds no table.
pub fn words<const N: usize>(disk: &[u8], labels: [&str; N]) -> Option<[usize; N]> {
    let taken = take(disk)?;
    Some(labels.map(|of| taken.entries.chunks(taken.size).find(|it| label(it) == of).map(word).unwrap()))
}

/// Whether a kernel finds the table, which looks at the primary copy alone.
pub fn is_primary_whole(disk: &[u8]) -> bool {
    take(disk).is_some_and(|it| it.primary_is_whole)
}

/// Boots from `disk`: the highest priority of all that were successful or have a try left. A try is used up, and then
/// both copies of the table are written.
pub fn boot(disk: &mut [u8]) -> Option<Booted> {
    let Taken { mut entries, size, .. } = take(disk)?;
    let mut best: Option<(usize, usize)> = None;
    for (nth, entry) in entries.chunks(size).enumerate() {
        let (priority, tries, successful) = (word(entry) & 15, word(entry) >> 4 & 15, word(entry) >> 8 & 1);
        let better = best.is_none_or(|(_, before)| priority > before) && priority > 0;
        if entry.starts_with(&BOOTS) && better && (tries > 0 || successful > 0) {
            best = Some((nth, priority));
        }
    }
    let at = best?.0 * size;
    if entries[at + 54] >> 4 > 0 {
        entries[at + 54] -= 16;
        let whole = header(disk, 1).or_else(|| header(disk, disk.len() / SECTOR - 1)).unwrap();
        for at in [1, whole.at.max(whole.other)] {
            let array =
                header(disk, at).map_or(if at == 1 { 2 } else { whole.usable.1 + 1 }, |it| it.entries);
            disk[array * SECTOR..][..entries.len()].copy_from_slice(&entries);
            let sum = crc32(&entries);
            let sector = &mut disk[at * SECTOR..][..SECTOR];
            sector[88..92].copy_from_slice(&sum.to_le_bytes());
            sector[16..20].fill(0);
            let sum = crc32(&sector[..number(sector, 12, 4)]);
            sector[16..20].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let entry = &entries[at..at + size];
    let part = |from: usize, length: usize| -> String {
        let digits = entry[16 + from..][..length].iter();
        let ordered: Vec<&u8> = if from < 8 { digits.rev().collect() } else { digits.collect() };
        ordered.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    };
    let partuuid = [part(0, 4), part(4, 2), part(6, 2), part(8, 2), part(10, 6)].join("-");
    Some(Booted { label: label(entry), partuuid })
}
