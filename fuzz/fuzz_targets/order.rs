//! Any bytes as a person's order, pause or pass on a node: refused with a reason, or read with words and an end.

#![no_main]

#[path = "../../crates/topics/tests/orders.rs"]
mod orders;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = orders::trial(bytes) {
        panic!("{broken}");
    }
});
