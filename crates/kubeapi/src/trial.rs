//! For fuzzing and its corpus: parsers of this crate.

use crate::kubeconfig;

/// Whether `bytes` are a kubeconfig; reads no file that it names.
pub fn kubeconfig(bytes: &[u8]) -> Result<(), String> {
    kubeconfig::understand(bytes)
}
