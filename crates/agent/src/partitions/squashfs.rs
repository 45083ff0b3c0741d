//! The superblock of a squashfs root file system.
//!
//! The boot loader of the reference also reads ext4, of which builds for development are made. No update is one: the
//! version of an image is read from a squashfs, by the reference as well as here.
//! Pure: no clock, no I/O, no task.
//! Source: Linux fs/squashfs (`squashfs_fs.h`, `super.c`); lf-edge/eve pkg/mkrootfs-squash, pkg/grub (its modules).

use super::table::number;

const BYTES: u64 = 96;
const MAGIC: &[u8] = b"hsqs";
/// Offsets of used fields: block size and its logarithm, version, total length, and the tables that every
/// squashfs has (identities, inodes, directories).
const BLOCK_SIZE: usize = 12;
const BLOCK_LOG: usize = 22;
const VERSION: [usize; 2] = [28, 30];
const LENGTH: usize = 40;
const TABLES: [usize; 3] = [48, 64, 72];
const TAR: (usize, &[u8]) = (257, b"ustar");
/// How much of something else is shown.
const SHOWN: usize = 16;

/// Total bytes of the squashfs that begins with `head`; else why it is none.
pub(super) fn length(head: &[u8]) -> Result<u64, String> {
    if head.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        return Err("it is a tar archive".to_owned());
    }
    let begins = head.get(..SHOWN).unwrap_or(head).escape_ascii();
    if !head.starts_with(MAGIC) || head.len() < usize::try_from(BYTES).unwrap_or(usize::MAX) {
        return Err(format!("it has no superblock of a squashfs but begins with `{begins}`"));
    }
    let [major, minor] = VERSION.map(|at| number(head, at, 2));
    if (major, minor) != (4, 0) {
        return Err(format!("it is a squashfs of version {major}.{minor}; no kernel mounts any but 4.0"));
    }
    let (size, log, length) =
        (number(head, BLOCK_SIZE, 4), number(head, BLOCK_LOG, 2), number(head, LENGTH, 8));
    let inside = TABLES.iter().all(|at| (BYTES..length).contains(&number(head, *at, 8)));
    if !(12..=20).contains(&log) || size != 1 << log || !inside {
        return Err(format!(
            "its superblock contradicts itself (blocks of {size} bytes, {length} bytes in all)"
        ));
    }
    Ok(length)
}
