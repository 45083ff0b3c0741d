//! Any bytes as an answer of a container runtime: refused with a reason, or read.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for outcome in agent::runtime::trial(bytes) {
        assert!(outcome.is_ok() || outcome.is_err_and(|why| !why.is_empty()));
    }
});
