//! Who else could have written a file, a folder or a socket: the rule for all that orders something, or is run.
//!
//! Not here: what follows, and in which words.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Whoever else may write: the group and all others.
const OTHERS_WRITE: u32 = 0o022;

/// The user whose it is, unless that is root or whoever runs this program.
pub fn foreign_owner(seen: &Metadata) -> Option<u32> {
    let owner = seen.uid();
    (owner != 0 && owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// Whether others than its owner may write it, or put files into it.
pub fn others_may_write(seen: &Metadata) -> bool {
    seen.mode() & OTHERS_WRITE != 0
}
