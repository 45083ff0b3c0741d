//! Which other users could have written a file, a folder or a socket: the rule for everything that orders
//! something or is run.
//!
//! Not here: the consequence and its message.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

const OTHERS_WRITE: u32 = 0o022;

/// The owner, unless that is root or the user of this program.
pub fn foreign_owner(seen: &Metadata) -> Option<u32> {
    let owner = seen.uid();
    (owner != 0 && owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// Group or all others; of a folder: put files into it.
pub fn others_may_write(seen: &Metadata) -> bool {
    seen.mode() & OTHERS_WRITE != 0
}
