//! What is asked and what is answered.
//!
//! Pure: no clock, no I/O, no task.

use topics::{CipherBlockStatus, EdgeNodeClusterConfig, Secret};

/// The cluster's token in clear text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ClusterToken {
    /// The config has none, or none that is encrypted.
    #[default]
    None,
    /// It is being decrypted.
    Pending,
    Clear(Secret),
    /// Why it cannot be decrypted, in the words of EdgeNodeClusterStatus.
    Failed(String),
}

/// A block that is to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) block: CipherBlockStatus,
    /// Whether this node starts the cluster, and so writes the manifest.
    pub(crate) bootstrap: bool,
}

impl Sealed {
    /// The block of a config that is valid and has one.
    pub(crate) fn of(config: &EdgeNodeClusterConfig) -> Option<Self> {
        (config.valid && config.cipher_token.is_cipher)
            .then(|| Self { block: config.cipher_token.clone(), bootstrap: config.bootstrap_node })
    }
}

/// What became of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockAnswer {
    pub(crate) of: Sealed,
    pub(crate) token: ClusterToken,
}
