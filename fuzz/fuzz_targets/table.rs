//! Any bytes as a disk with a partition table: a change of it, cut off before each of its writes, writes no partition
//! and leaves a table.

#![no_main]

use agent::partitions::trial;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = trial::table(bytes) {
        panic!("{broken}");
    }
});
