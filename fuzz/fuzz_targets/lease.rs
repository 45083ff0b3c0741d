//! Any bytes as what others can write of turns. The first says what the rest is: the Lease, or the mark of a cordon.
//!
//! A Lease is refused, or read again as it is written, and its next grant has the next number.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outage::trial;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let tried = if which % 2 == 0 { trial::lease(rest) } else { trial::mark(rest) };
    if let Err(broken) = tried {
        panic!("{broken}");
    }
});
