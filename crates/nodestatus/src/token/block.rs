//! An encrypted block: what is needed before a key is used, and its content after that.
//!
//! Pure: no clock, no I/O, no task.
//!
//! The public key of a certificate, and the published certificates. Signatures are not checked here: the agents that
//! publish certificates have done so. So one that TLS would refuse, for its version or an extension, is accepted, as in
//! the reference.

use aes::Aes256;
use cfb_mode::Decryptor;
use cfb_mode::cipher::KeyIvInit as _;
use p256::PublicKey;
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use step::LiteMap;
use topics::{Base64, CipherBlockStatus, ControllerCert, EdgeNodeCert};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode as _;
use x509_cert::der::referenced::OwnedToRef as _;
use zeroize::Zeroizing;

use super::fault::TokenFault;
use crate::identity::hex;

/// ECDH.
const ECDH: i32 = 1;
/// AES-256 in CFB mode.
const AES_256_CFB: i32 = 1;
/// On P-256.
pub(super) const COORDINATE_BYTES: usize = 32;

/// The shared point of both keys: X and Y, padded with zeros at the left.
pub(super) type SharedPoint = Zeroizing<[u8; 2 * COORDINATE_BYTES]>;

pub(super) struct BlockRequest {
    /// The controller's key.
    pub(super) peer: PublicKey,
    /// The device's, from its certificate.
    pub(super) own: PublicKey,
    /// The certificate's key is in the TPM.
    pub(super) in_tpm: bool,
    start: [u8; 16],
    data: Vec<u8>,
    hash: Vec<u8>,
}

/// Checks that everything needed to open `block` is there.
pub(super) fn plan(block: &CipherBlockStatus, certs: &Certs) -> Result<BlockRequest, TokenFault> {
    if !block.error.is_empty() {
        return Err(TokenFault::NotReady(block.error.clone()));
    }
    let context = block.cipher_context.as_ref().ok_or(TokenFault::Lacks("cipher context"))?;
    let scheme = |what, number, known| {
        if number == known { Ok(()) } else { Err(TokenFault::Scheme { what, number, known }) }
    };
    scheme("key exchange scheme", context.key_exchange_scheme, ECDH)?;
    scheme("encryption scheme", context.encryption_scheme, AES_256_CFB)?;
    let bytes = |member: &Option<Base64>| member.as_ref().map(|it| it.0.clone()).filter(|it| !it.is_empty());
    let start = bytes(&block.initial_value).and_then(|it| it.try_into().ok());
    let start = start.ok_or(TokenFault::Lacks("initial value of 16 bytes"))?;
    let data = bytes(&block.cipher_data).ok_or(TokenFault::Lacks("data"))?;
    let hash = bytes(&block.clear_text_hash).ok_or(TokenFault::Lacks("hash of the clear text"))?;
    let named =
        |topic, next, at: String, pem: Option<&Option<Base64>>| match pem.map(|it| public_key(it.as_ref())) {
            None => Err(TokenFault::NoCert { topic, key: at, next }),
            Some(key) => key.map_err(|why| TokenFault::BadCert { topic, key: at, why, next }),
        };
    let at = key(context.controller_cert_hash.as_ref());
    let pem = certs.controller.get(&at).map(|it| &it.cert);
    let next = "check that zedagent has fetched the controller's certificates";
    let peer = named("ControllerCert", next, at, pem)?;
    let at = key(context.device_cert_hash.as_ref());
    let cert = certs.device.get(&at);
    let next = "check that tpmmgr has published the device's certificates";
    let own = named("EdgeNodeCert", next, at, cert.map(|it| &it.cert))?;
    let in_tpm = cert.is_some_and(|it| it.is_tpm);
    Ok(BlockRequest { peer, own, in_tpm, start, data, hash })
}

impl BlockRequest {
    /// Decrypts with the shared point.
    pub(super) fn open(&self, shared: &SharedPoint) -> Result<Zeroizing<Vec<u8>>, TokenFault> {
        let mut cipher_key = Zeroizing::new([0; 32]);
        cipher_key.copy_from_slice(digest(&SHA256, shared.as_slice()).as_ref());
        let mut clear = Zeroizing::new(self.data.clone());
        Decryptor::<Aes256>::new((&*cipher_key).into(), (&self.start).into()).decrypt(&mut clear);
        if digest(&SHA256, &clear).as_ref() != self.hash {
            return Err(TokenFault::Mismatch);
        }
        Ok(clear)
    }
}

/// By key.
#[derive(Debug, Default)]
pub(super) struct Certs {
    pub(super) controller: LiteMap<String, ControllerCert>,
    pub(super) device: LiteMap<String, EdgeNodeCert>,
}

/// The key of the certificate with this hash.
pub(super) fn key(hash: Option<&Base64>) -> String {
    hash.map(|it| hex(&it.0)).unwrap_or_default()
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
