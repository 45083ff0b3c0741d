//! The certificate of the API server: from an authority of its own, with dates that its user chooses and renews.

#![expect(clippy::unwrap_used, reason = "keys and names are its own: none of these steps depends on a user")]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

pub(crate) struct Tls {
    issuer: Issuer<'static, KeyPair>,
    authority: String,
    shown: Arc<ServedCertificate>,
}

#[derive(Debug)]
struct ServedCertificate(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    pub(crate) fn new(dates: Range<SystemTime>) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let shown = Arc::new(ServedCertificate(Mutex::new(leaf(&issuer, dates))));
        Self { issuer, authority, shown }
    }

    pub(crate) fn renew(&self, dates: Range<SystemTime>) {
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = leaf(&self.issuer, dates);
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        TlsAcceptor::from(Arc::new(
            config.with_cert_resolver(Arc::clone(&self.shown) as Arc<dyn ResolvesServerCert>),
        ))
    }

    /// For a kubeconfig.
    pub(crate) fn authority(&self) -> String {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(&self.authority))
    }
}

fn leaf(issuer: &Issuer<'_, KeyPair>, dates: Range<SystemTime>) -> Arc<CertifiedKey> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (dates.start.into(), dates.end.into());
    let certificate = params.signed_by(&key, issuer).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![certificate], key))
}
