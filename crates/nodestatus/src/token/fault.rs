//! Why a token cannot be decrypted, with the text for EdgeNodeClusterStatus: the thing, what is wrong with it, the next
//! step.
//!
//! Nothing decrypted, and nothing of a key, is ever in it. Pure: no clock, no I/O, no task.
//!
//! Requests for a block, and answers.

use topics::{CipherBlockStatus, EdgeNodeClusterConfig, Secret};

/// The reference's prefix of its errors.
const BEGINNING: &str = "decryptClusterTokenAndManifest: failed to decrypt cluster token: ";

#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFault {
    /// The controller could not make the block.
    #[error("the block is not ready: {0}; look at the cluster's token at the controller")]
    NotReady(String),
    /// A member is missing, or has a wrong size.
    #[error("the block has no {0}; give the cluster its token again at the controller")]
    Lacks(&'static str),
    /// An unknown method.
    #[error("{what} {number} is not known here, {known} is; look at the cipher context at the controller")]
    Scheme { what: &'static str, number: i32, known: i32 },
    #[error("no such cert: {topic} {key} is not published; {next}")]
    NoCert { topic: &'static str, key: String, next: &'static str },
    #[error("{topic} {key} cannot be used: {why}; {next}")]
    BadCert { topic: &'static str, key: String, why: &'static str, next: &'static str },
    #[error("key file {path}: {why}; it is made by tpmmgr with the device's certificates")]
    KeyFile { path: String, why: String },
    #[error("{path}: {why}; check that this machine's TPM is there and switched on")]
    Device { path: String, why: String },
    #[error(
        "{path}: the TPM refuses to use key 0x{key:08x}, rc=0x{code:08x}; check that tpmmgr has made that key"
    )]
    Refused { path: String, key: u32, code: u32 },
    /// An invalid response of the TPM.
    #[error(
        "{path}: the TPM's response makes no sense: {why}; it is asked again, restart the machine if that lasts"
    )]
    Response { path: String, why: &'static str },
    #[error("{0}; it is asked again, restart the machine if that lasts")]
    Late(&'static str),
    /// Wrong key or wrong data.
    #[error(
        "hash mismatch: what was decrypted is not what the controller encrypted; have it encrypt the token again for the \
         present certificate of this device"
    )]
    Mismatch,
    /// The decrypted content is invalid.
    #[error("what was decrypted cannot be read: {0}; give the cluster its token again at the controller")]
    Content(&'static str),
    #[error("the manifest cannot be unpacked: {0}; give the cluster its manifest again at the controller")]
    Manifest(String),
    #[error("{0}; it is tried again, check that the vault is unlocked and has room")]
    Place(String),
}

impl TokenFault {
    /// For EdgeNodeClusterStatus.
    pub(super) fn status_text(&self) -> String {
        format!("{BEGINNING}{self}")
    }

    /// Whether it may pass without a new config or certificate.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::KeyFile { .. }
                | Self::Device { .. }
                | Self::Refused { .. }
                | Self::Response { .. }
                | Self::Late(_)
                | Self::Place(_)
        )
    }
}

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
