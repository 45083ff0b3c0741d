//! Keys, certificates and blocks for tests. None was ever in use.
//!
//! The constants were made with OpenSSL, which also encrypted the block, and the TPM's bytes are those of a software
//! TPM (swtpm) that was given the same key. All else is made up in the tests, and encrypted as the controller does.

use std::io::Write as _;

use aes::Aes256;
use cfb_mode::Encryptor;
use cfb_mode::cipher::KeyIvInit as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::{PublicKey, SecretKey};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use topics::{Base64, CipherBlockStatus, CipherContext, ControllerCert, EdgeNodeCert};

use crate::token::block::key;

/// `openssl ecparam -name prime256v1 -genkey -noout`.
pub(in crate::token) const DEVICE_KEY: &str = include_str!("../../../tests/token/device-key.pem");
/// The same key: `openssl pkcs8 -topk8 -nocrypt`.
pub(in crate::token) const DEVICE_KEY_PKCS8: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgG5pzvm4m0cl6FW61
DGB8JwmUuZQzuYovlP8kzS6PYEqhRANCAASBiaJH81ZpsOBmdvyFR1ibwIL85T0n
32/LUXo4UQxFqKGrYdyjhVNYI3xiwFPvwdnkcqP8SGCzqHZnP03+S+iT
-----END PRIVATE KEY-----
";
pub(in crate::token) const DEVICE_CERT: &str = include_str!("../../../tests/token/device.pem");
/// A certificate of version 1, as `openssl x509 -req` makes it.
pub(in crate::token) const CONTROLLER_CERT: &str = include_str!("../../../tests/token/controller.pem");
/// A certificate for a key on P-384.
pub(in crate::token) const OTHER_CURVE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBrTCCATKgAwIBAgIUG9B52GvTqhacFruZTuRTMEe3MlYwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBbzAgFw0yNjExMjEyMjQ5MzZaGA8yMTI2MTAyODIyNDkzNlow
DDEKMAgGA1UEAwwBbzB2MBAGByqGSM49AgEGBSuBBAAiA2IABKFBbmA9wfZRgeeJ
k63ZbTWGgeYuxql9qy9U7qSP2okHwIJZQAhtxheSDrshNpcU6xOKs/A2DtJG43KX
Z7pgLzpwCRQ1m8YMbHAcpcd19SENyhAEIMpsofOKL54rv0QyraNTMFEwHQYDVR0O
BBYEFAZRDYsY/iMGsAXggQCUjSPG91NPMB8GA1UdIwQYMBaAFAZRDYsY/iMGsAXg
gQCUjSPG91NPMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDaQAwZgIxALWD
hsHm/3rW3CI5xJGLsJvV2oqHxgZA1dCuChUxxZLkCNgbIVg62Ft9Q48bucs6fwIx
AOqsBRRhfZcyLYHyJM6s7aAEdq7onqg3ME//vvApPzRNA/R+aALoivrV2A1dTiea
Xg==
-----END CERTIFICATE-----
";
/// `openssl enc -aes-256-cfb` with the SHA-256 of the shared point (`openssl pkeyutl -derive`) and 00 01 .. 0f.
pub(in crate::token) const SEALED: &str = include_str!("../../../tests/token/sealed.hex");
/// SHA-256 of the clear text.
pub(in crate::token) const SEALED_HASH: &str =
    "32da88ca1244aba9842265414d9af621ee83060b7f39dfd9a243714c10731557";
/// What a TPM with that key was asked.
pub(in crate::token) const COMMAND: &str = "800200000061000001548100000500000009400000090000000000004400205f111dc8c0f9a1a3c90cc4f758a138a146\
        5a4eb9b98487d84a09677dcc7280df00205778763ae28d06837ffbb4e03c3756212ab09b3318d781ef0d498450b74998\
        c9";
/// What it said: the same point as OpenSSL.
pub(in crate::token) const RESPONSE: &str = "8002000000590000000000000046004400207440b793699c1e2b8ff7a07b83752a783439c4473ba9e6a1c2f1e93b2817\
        6f7d00201ca12d38921273a7705d3e3e67f0046f959c6d317f8dbee530220a315dc1d7150000010000";
pub(in crate::token) const POINT: &str = "7440b793699c1e2b8ff7a07b83752a783439c4473ba9e6a1c2f1e93b28176f7d1ca12d38921273a7705d3e3e67f0046f\
        959c6d317f8dbee530220a315dc1d715";
pub(in crate::token) const TOKEN: &str = "s3cr3t<token>&\"x\"";
pub(in crate::token) const MANIFEST: &str = "kind: Registration\nname: cluster-a\n";

pub(in crate::token) fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

pub(in crate::token) fn secret_key(name: &str) -> SecretKey {
    SecretKey::from_slice(digest(&SHA256, name.as_bytes()).as_ref()).unwrap()
}

/// A certificate for that key; its signature is not checked.
pub(in crate::token) fn cert(of: &PublicKey) -> Vec<u8> {
    let mut der = CertificateDer::from_pem_slice(DEVICE_CERT.as_bytes()).unwrap().to_vec();
    let point = of.to_sec1_point(false);
    let old = SecretKey::from_sec1_der(
        rustls_pki_types::PrivateSec1KeyDer::from_pem_slice(DEVICE_KEY.as_bytes()).unwrap().secret_sec1_der(),
    );
    let old = old.unwrap().public_key().to_sec1_point(false);
    let at = der.windows(65).position(|it| it == old.as_bytes()).unwrap();
    der[at..at + 65].copy_from_slice(point.as_bytes());
    pem("CERTIFICATE", &der)
}

pub(in crate::token) fn key_file(of: &SecretKey) -> Vec<u8> {
    pem("PRIVATE KEY", &of.to_sec1_der().unwrap())
}

fn pem(kind: &str, der: &[u8]) -> Vec<u8> {
    let text = serde_json::to_string(&Base64(der.to_vec())).unwrap();
    let mut lines = format!("-----BEGIN {kind}-----\n");
    for line in text.trim_matches('"').as_bytes().chunks(64) {
        lines.push_str(str::from_utf8(line).unwrap());
        lines.push('\n');
    }
    lines.push_str("-----END ");
    lines.push_str(kind);
    lines.push_str("-----\n");
    lines.into_bytes()
}

fn hash(pem: &[u8]) -> Base64 {
    Base64(digest(&SHA256, pem).as_ref()[..16].to_vec())
}

/// As zedagent publishes it, with its key.
pub(in crate::token) fn controller_cert(pem: &[u8]) -> (String, ControllerCert) {
    (key(Some(&hash(pem))), ControllerCert { cert: Some(Base64(pem.to_vec())) })
}

/// As tpmmgr publishes it, with its key.
pub(in crate::token) fn device_cert(pem: &[u8], is_tpm: bool) -> (String, EdgeNodeCert) {
    (key(Some(&hash(pem))), EdgeNodeCert { cert: Some(Base64(pem.to_vec())), is_tpm })
}

fn block(controller: &[u8], device: &[u8], start: &[u8], data: Vec<u8>, clear: &[u8]) -> CipherBlockStatus {
    let context = CipherContext {
        context_id: "ctx".to_owned(),
        hash_scheme: 1,
        key_exchange_scheme: 1,
        encryption_scheme: 1,
        controller_cert_hash: Some(hash(controller)),
        device_cert_hash: Some(hash(device)),
        ..CipherContext::default()
    };
    CipherBlockStatus {
        cipher_block_id: "block".to_owned(),
        cipher_context_id: "ctx".to_owned(),
        initial_value: Some(Base64(start.to_vec())),
        cipher_data: Some(Base64(data)),
        clear_text_hash: Some(Base64(clear.to_vec())),
        is_cipher: true,
        cipher_context: Some(context),
        ..CipherBlockStatus::default()
    }
}

pub(in crate::token) fn fixed() -> CipherBlockStatus {
    let start: Vec<u8> = (0..16).collect();
    block(CONTROLLER_CERT.as_bytes(), DEVICE_CERT.as_bytes(), &start, bytes(SEALED), &bytes(SEALED_HASH))
}

/// Encrypts as the controller does: it has its own key and the device's certificate.
pub(in crate::token) fn seal(controller: &SecretKey, device: &PublicKey, clear: &[u8]) -> CipherBlockStatus {
    let point = (device.to_projective() * *controller.to_nonzero_scalar()).to_affine();
    let cipher_key: [u8; 32] =
        digest(&SHA256, &point.to_sec1_point(false).as_bytes()[1..]).as_ref().try_into().unwrap();
    let start: [u8; 16] = digest(&SHA256, clear).as_ref()[..16].try_into().unwrap();
    let mut data = clear.to_vec();
    Encryptor::<Aes256>::new((&cipher_key).into(), (&start).into()).encrypt(&mut data);
    let hash = digest(&SHA256, clear);
    block(&cert(&controller.public_key()), &cert(device), &start, data, hash.as_ref())
}

pub(in crate::token) fn message(token: &str, manifest: &[u8]) -> Vec<u8> {
    let mut message = b"\x2a\x02ud".to_vec();
    for (tag, content) in [(0x42, token.as_bytes()), (0x6a, manifest)] {
        message.push(tag);
        let mut length = content.len();
        while length > 127 {
            message.push(u8::try_from(length & 127).unwrap() | 128);
            length >>= 7;
        }
        message.push(u8::try_from(length).unwrap());
        message.extend(content);
    }
    message
}

pub(in crate::token) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}
