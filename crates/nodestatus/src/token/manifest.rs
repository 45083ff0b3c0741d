//! The manifest by which the cluster is registered, on the node that starts it: unpacked and put where k3s finds it.
//!
//! Its calls may block.

use std::io::Read as _;

use flate2::bufread::MultiGzDecoder;
use pubsub::{TopicRoot, store};
use zeroize::Zeroizing;

use super::fault::TokenFault;

/// Below it are files that are encrypted with a key of the TPM.
const VAULT: &str = "persist/vault";
/// Where the manifest is looked for.
pub(super) const FILE: &str = "persist/vault/manifests/registration.yaml";
/// No manifest is longer, unpacked.
const LIMIT_BYTES: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    /// Nothing: there is none, or the file says it already.
    Unchanged,
    Written,
}

/// Puts the manifest in `packed` into its place. None is no error and removes none.
pub(super) fn put(topic_root: &TopicRoot, packed: &[u8]) -> Result<Manifest, TokenFault> {
    if packed.is_empty() {
        return Ok(Manifest::Unchanged);
    }
    let manifest = unpack(packed)?;
    let (vault, file) = (topic_root.path(VAULT), topic_root.path(FILE));
    let fault = |error: pubsub::Error| TokenFault::Place(error.to_string());
    // What was made before the vault is there would lie outside of it, in clear text.
    if !vault.is_dir() {
        return Err(TokenFault::Place(format!("there is no {}", vault.display())));
    }
    // One that cannot be read is replaced.
    let on_disk = store::read(&file, LIMIT_BYTES).ok().flatten().map(Zeroizing::new);
    if on_disk.is_some_and(|it| it == manifest) {
        return Ok(Manifest::Unchanged);
    }
    store::replace(&file, &manifest).map_err(fault)?;
    Ok(Manifest::Written)
}

/// Unpacks at most as much as a manifest may have.
fn unpack(packed: &[u8]) -> Result<Zeroizing<Vec<u8>>, TokenFault> {
    let mut manifest = Zeroizing::new(Vec::new());
    let mut reader = MultiGzDecoder::new(packed).take(LIMIT_BYTES + 1);
    reader.read_to_end(&mut manifest).map_err(|error| TokenFault::Manifest(error.to_string()))?;
    if u64::try_from(manifest.len()).is_ok_and(|bytes| bytes <= LIMIT_BYTES) {
        return Ok(manifest);
    }
    Err(TokenFault::Manifest(format!("it has more than {LIMIT_BYTES} bytes")))
}
