//! What fuzzing and its kept texts try: parsers of this crate without anything behind them.

use crate::kubeconfig;

/// Whether `bytes` are a kubeconfig that a client can be made of; no client is made, so nothing that it names is run.
///
/// # Errors
/// Why not.
pub async fn kubeconfig(bytes: &[u8]) -> Result<(), String> {
    kubeconfig::understand(bytes).await.map_err(|wrong| wrong.to_string())
}
