//! The public key of a certificate, and the published certificates.
//!
//! Signatures are not checked here: the agents that publish certificates have done so. So one that TLS would
//! refuse, for its version or an extension, is accepted, as in the reference.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use p256::PublicKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use topics::{Base64, ControllerCert, EdgeNodeCert};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::{Decode as _, referenced::OwnedToRef as _};

/// By key.
#[derive(Debug, Default)]
pub(super) struct Certs {
    pub(super) controller: BTreeMap<String, ControllerCert>,
    pub(super) device: BTreeMap<String, EdgeNodeCert>,
}

/// The key of the certificate with this hash.
pub(super) fn key(hash: Option<&Base64>) -> String {
    hash.into_iter().flat_map(|it| &it.0).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// Of the first readable certificate in `pem`.
pub(super) fn public_key(pem: Option<&Base64>) -> Result<PublicKey, &'static str> {
    let pem = pem.map(|it| it.0.as_slice()).unwrap_or_default();
    let first = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .find_map(|der| CertificateInner::<Raw>::from_der(&der).ok())
        .ok_or("it holds no X.509 certificate")?;
    let info = first.tbs_certificate().subject_public_key_info();
    PublicKey::try_from(info.owned_to_ref()).ok().ok_or("its key is not on the curve P-256")
}
