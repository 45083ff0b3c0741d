//! The device's key: in the TPM, or in a file on devices without one. Its calls may block.
//!
//! Source: lf-edge/eve pkg/pillar/evetpm: a device with a certificate and without its key file uses its TPM,
//! and a certificate says whether its key is there.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::{AffinePoint, SecretKey};
use pubsub::{TopicRoot, store};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use super::block::{BlockRequest, COORDINATE_BYTES, SharedPoint};
use super::fault::TokenFault;
use super::tpm::{self, No};

/// On devices without a TPM.
const KEY_FILE: &str = "persist/certs/ecdh.key.pem";
const KEY_FILE_BYTES: u64 = 64 << 10;
const DEVICE_CERT_FILE: &str = "config/device.cert.pem";
/// On devices without a TPM.
const DEVICE_KEY_FILE: &str = "config/device.key.pem";
/// Through the kernel's resource manager.
const TPM: &str = "dev/tpmrm0";

/// Takes one command at a time.
pub(super) trait Tpm: Send {
    /// Sends a command and returns the response. May hang.
    ///
    /// Errors: the device is unavailable, or the kernel gives up.
    fn ask(&mut self, command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>>;
}

struct KernelDevice(PathBuf);

impl Tpm for KernelDevice {
    fn ask(&mut self, command: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
        let mut device = OpenOptions::new().read(true).write(true).open(&self.0)?;
        // The driver takes a command, and gives a response, in one piece.
        if device.write(command)? != command.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut response = Zeroizing::new(vec![0; tpm::RESPONSE_LIMIT_BYTES]);
        let bytes = device.read(&mut response)?;
        response.truncate(bytes);
        Ok(response)
    }
}

#[derive(Clone)]
pub(crate) struct TokenKeys {
    topic_root: TopicRoot,
    tpm: Arc<Mutex<dyn Tpm>>,
    turn: Arc<Semaphore>,
}

impl TokenKeys {
    /// Waits until none of our threads uses a key: a second thread must not join a hanging one. To be held
    /// while a key is used; dropping it loses nothing.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    pub(crate) fn new(topic_root: &TopicRoot) -> Self {
        Self::with(topic_root, KernelDevice(topic_root.path(TPM)))
    }

    pub(super) fn with(topic_root: &TopicRoot, tpm: impl Tpm + 'static) -> Self {
        Self {
            topic_root: topic_root.clone(),
            tpm: Arc::new(Mutex::new(tpm)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The shared point of our key and the controller's. Blocks.
    pub(super) fn shared(&self, order: &BlockRequest) -> Result<SharedPoint, TokenFault> {
        let there = |path| self.topic_root.path(path).exists();
        if order.in_tpm && there(DEVICE_CERT_FILE) && !there(DEVICE_KEY_FILE) {
            self.by_tpm(order)
        } else {
            self.by_file(order)
        }
    }

    fn by_file(&self, order: &BlockRequest) -> Result<SharedPoint, TokenFault> {
        let path = self.topic_root.path(KEY_FILE);
        let fault = |why: String| TokenFault::KeyFile { path: path.display().to_string(), why };
        let read = store::read(&path, KEY_FILE_BYTES).map_err(|error| fault(error.to_string()))?;
        let pem = Zeroizing::new(read.ok_or_else(|| fault("there is none".to_owned()))?);
        // Causes are left out: they may reveal the key.
        let no_key = || fault("it holds no private key on the curve P-256".to_owned());
        let der = PrivateKeyDer::from_pem_slice(&pem).ok().ok_or_else(no_key)?;
        let key = SecretKey::from_der(der.secret_der()).ok().ok_or_else(no_key)?;
        if key.public_key() != order.own {
            return Err(fault("it is not the key of the device's certificate".to_owned()));
        }
        let point = (order.peer.to_projective() * *key.to_nonzero_scalar()).to_affine();
        Ok(coordinates(&point))
    }

    fn by_tpm(&self, order: &BlockRequest) -> Result<SharedPoint, TokenFault> {
        let path = || self.topic_root.path(TPM).display().to_string();
        let peer = coordinates(order.peer.as_affine());
        let (x, y) = peer.split_at(COORDINATE_BYTES);
        let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) else {
            return Err(TokenFault::Lacks("point of the controller"));
        };
        let mut tpm = self.tpm.lock().unwrap_or_else(PoisonError::into_inner);
        let response = tpm
            .ask(&tpm::command(x, y))
            .map_err(|error| TokenFault::Device { path: path(), why: error.to_string() })?;
        tpm::point(&response).map_err(|no| match no {
            No::Refused(code) => TokenFault::Refused { path: path(), key: tpm::KEY, code },
            No::Garbled(why) => TokenFault::Response { path: path(), why },
        })
    }
}

/// Zeros for the point at infinity, which no valid keys produce.
fn coordinates(point: &AffinePoint) -> SharedPoint {
    let mut shared = Zeroizing::new([0; 2 * COORDINATE_BYTES]);
    let encoded = Zeroizing::new(point.to_sec1_point(false).as_bytes().to_vec());
    if let Some(bytes) = encoded.get(1..).filter(|it| it.len() == shared.len()) {
        shared.copy_from_slice(bytes);
    }
    shared
}

#[cfg(test)]
mod tests;
