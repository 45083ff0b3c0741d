//! Any bytes as the settings file of an image: each line that cannot be used is named, or all options are.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = zedbox::settings_trial(bytes) {
        panic!("{broken}");
    }
});
