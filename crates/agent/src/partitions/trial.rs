//! For fuzzing and its corpus: parsers of disks and images.

use std::io;

use super::table::{GptTable, NotWritten, Sectors, Slot};
use super::{root_layer, squashfs};

/// Most writes for one changed sector of entries: header and entries of two copies, each written twice.
const MOST_WRITES: usize = 8;

/// A disk in memory that fails after so many writes.
struct Tried {
    bytes: Vec<u8>,
    written: Vec<(u64, u64)>,
    most: usize,
}

impl Tried {
    fn new(bytes: &[u8], most: usize) -> Self {
        Self { bytes: bytes.to_owned(), written: Vec::new(), most }
    }

    fn range(&mut self, at: u64, length: usize) -> io::Result<&mut [u8]> {
        let range = usize::try_from(at).ok().and_then(|at| at.checked_add(length).map(|end| at..end));
        range.and_then(|range| self.bytes.get_mut(range)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Sectors for Tried {
    fn bytes(&mut self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = self.range(at, into.len())?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.written.len() == self.most {
            return Err(io::ErrorKind::Other.into());
        }
        self.range(at, bytes.len())?.copy_from_slice(bytes);
        self.written.push((at, at + bytes.len() as u64));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes the partition table of this disk as a switch does, interrupted before each of its writes in turn.
/// Returns whether the whole change was made.
///
/// Errors: a broken promise: a write to the first sector or into a partition, or an interruption that leaves
/// no table or another one.
pub fn table(disk: &[u8]) -> Result<bool, String> {
    let Ok(before) = GptTable::read(&mut Tried::new(disk, 0)) else { return Ok(false) };
    let Some(first) = before.slots().into_iter().next() else { return Ok(false) };
    let mut most = 0;
    loop {
        let mut tried = Tried::new(disk, most);
        let ended = GptTable::write(&mut tried, &[(first.number, !first.word)]);
        for (from, to) in &tried.written {
            let hit =
                |it: &&Slot| it.bytes > 0 && *from < it.offset.saturating_add(it.bytes) && it.offset < *to;
            let hit = before.slots().iter().find(hit).map(|it| it.number);
            if *from < 512 || hit.is_some() {
                return Err(format!("{from} to {to} was written, partition {hit:?}"));
            }
        }
        let after = GptTable::read(&mut tried).map_err(|why| format!("after {most} writes: {why}"))?;
        let bare = |it: Slot| Slot { word: 0, ..it };
        if !before.slots().into_iter().map(bare).eq(after.slots().into_iter().map(bare)) {
            return Err(format!("after {most} writes there are other partitions"));
        }
        match ended {
            Ok(()) => return Ok(true),
            Err(NotWritten::Failed(_)) if tried.written.len() == most && most < MOST_WRITES => most += 1,
            Err(NotWritten::Failed(_) | NotWritten::NoPlace(_)) => return Ok(false),
        }
    }
}

pub fn document(document: &[u8], wanted: &str) -> Result<String, String> {
    root_layer::chosen(document, wanted)
}

pub fn root(head: &[u8]) -> Result<u64, String> {
    squashfs::length(head)
}
