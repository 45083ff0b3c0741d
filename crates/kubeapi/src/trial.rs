//! What fuzzing and its kept texts try: parsers of this crate without anything behind them.

use crate::kubeconfig;

/// Whether `bytes` are a kubeconfig; no file that it names is read.
pub fn kubeconfig(bytes: &[u8]) -> Result<(), String> {
    kubeconfig::understand(bytes)
}
