//! Any bytes as an index or a manifest of an image, and as the head of a root file system: refused with a reason, or one
//! layer and a length.

#![no_main]

use agent::partitions::trial;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for wanted in ["", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        if let Err(refused) = trial::document(bytes, wanted) {
            assert!(!refused.is_empty());
        }
    }
    match trial::root(bytes) {
        Ok(length) => assert!(length > 96),
        Err(refused) => assert!(!refused.is_empty()),
    }
});
