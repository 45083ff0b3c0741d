//! Requests for a block, and answers.
//!
//! Pure: no clock, no I/O, no task.

use topics::{CipherBlockStatus, EdgeNodeClusterConfig, Secret};

/// The cluster's token in clear text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ClusterToken {
    /// The config has none, or none that is encrypted.
    #[default]
    None,
    Pending,
    Clear(Secret),
    /// With the text for EdgeNodeClusterStatus.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) block: CipherBlockStatus,
    /// This node starts the cluster, so it writes the manifest.
    pub(crate) bootstrap: bool,
}

impl Sealed {
    /// From a valid config with a block.
    pub(crate) fn of(config: &EdgeNodeClusterConfig) -> Option<Self> {
        (config.valid && config.cipher_token.is_cipher)
            .then(|| Self { block: config.cipher_token.clone(), bootstrap: config.bootstrap_node })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockAnswer {
    pub(crate) of: Sealed,
    pub(crate) token: ClusterToken,
}
