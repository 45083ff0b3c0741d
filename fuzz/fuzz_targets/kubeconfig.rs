//! Any bytes as a kubeconfig: refused with a reason, or understood. No file that it names is read.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(refused) = kubeapi::trial::kubeconfig(bytes) {
        assert!(!refused.is_empty());
    }
});
