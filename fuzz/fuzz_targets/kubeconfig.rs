//! Any bytes as a kubeconfig: refused with a reason, or understood. No client is made of it, so nothing that it names
//! is run.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().unwrap());

fuzz_target!(|bytes: &[u8]| {
    if let Err(refused) = RUNTIME.block_on(kubeapi::trial::kubeconfig(bytes)) {
        assert!(!refused.is_empty());
    }
});
