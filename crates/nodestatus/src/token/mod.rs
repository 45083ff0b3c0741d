//! The cluster's token: decrypted with the key of this device, which is in the TPM or in a file.
//!
//! The controller encrypts it for a certificate of the device with one of its own: the shared point of both
//! keys on P-256, its SHA-256 as key, AES-256-CFB. The content is the token and, for the node that starts the
//! cluster, a packed manifest. Not here: when a status is published (`cluster_status`). Nothing of it is ever
//! shown. Source: lf-edge/eve pkg/pillar/{cipher,evetpm,cmd/zedkube}.

mod block;
mod fault;
mod fields;
mod follow;
mod keys;
mod manifest;
#[cfg(test)]
mod tests;
mod token_state;
mod tpm;

pub(crate) use fault::{BlockAnswer, ClusterToken, Sealed};
pub(crate) use follow::follow;
pub(crate) use keys::TokenKeys;
