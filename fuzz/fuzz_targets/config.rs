//! Any bytes as a device config: refused as a whole, or read with a bounded list of what is wrong in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(config) = zedagent::device_config::parse(bytes) {
        assert!(config.faults.len() <= zedagent::device_config::MOST_FAULTS + 1);
    }
});
