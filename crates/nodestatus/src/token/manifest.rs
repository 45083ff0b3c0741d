//! The manifest that registers the cluster, on the node that starts it: unpacked and written where k3s reads
//! it.
//!
//! Its calls may block.

use std::io::Read as _;

use flate2::bufread::MultiGzDecoder;
use pubsub::{TopicRoot, store};
use zeroize::Zeroizing;

use super::fault::TokenFault;

/// Its files are encrypted with a key of the TPM.
const VAULT: &str = "persist/vault";
pub(super) const FILE: &str = "persist/vault/manifests/registration.yaml";
/// Unpacked.
const LIMIT_BYTES: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    /// There is none, or the file is up to date.
    Unchanged,
    Written,
}

/// Writes the manifest in `packed`. None is no error and removes none.
pub(super) fn put(topic_root: &TopicRoot, packed: &[u8]) -> Result<Manifest, TokenFault> {
    if packed.is_empty() {
        return Ok(Manifest::Unchanged);
    }
    let manifest = unpack(packed)?;
    let (vault, file) = (topic_root.path(VAULT), topic_root.path(FILE));
    let fault = |error: pubsub::Error| TokenFault::Place(error.to_string());
    // Before the vault exists the file would be outside of it, in clear text.
    if !vault.is_dir() {
        return Err(TokenFault::Place(format!("there is no {}", vault.display())));
    }
    // An unreadable one is replaced.
    let on_disk = store::read(&file, LIMIT_BYTES).ok().flatten().map(Zeroizing::new);
    if on_disk.is_some_and(|it| it == manifest) {
        return Ok(Manifest::Unchanged);
    }
    store::replace(&file, &manifest).map_err(fault)?;
    Ok(Manifest::Written)
}

/// At most [`LIMIT_BYTES`].
fn unpack(packed: &[u8]) -> Result<Zeroizing<Vec<u8>>, TokenFault> {
    let mut manifest = Zeroizing::new(Vec::new());
    let mut reader = MultiGzDecoder::new(packed).take(LIMIT_BYTES + 1);
    reader.read_to_end(&mut manifest).map_err(|error| TokenFault::Manifest(error.to_string()))?;
    if u64::try_from(manifest.len()).is_ok_and(|bytes| bytes <= LIMIT_BYTES) {
        return Ok(manifest);
    }
    Err(TokenFault::Manifest(format!("it has more than {LIMIT_BYTES} bytes")))
}
