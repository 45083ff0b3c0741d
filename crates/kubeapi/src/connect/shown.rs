//! A TLS client for servers that no certificate authority stands for: the certificate that one shows is kept, or has to be one
//! that is known.

use std::sync::{Arc, Mutex, PoisonError};

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring::default_provider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

#[derive(Debug)]
pub struct ShownCertificate {
    provider: Arc<CryptoProvider>,
    /// In DER; `None` for whatever is shown.
    pinned: Option<Vec<u8>>,
    der: Mutex<Option<Vec<u8>>>,
}

impl ShownCertificate {
    /// Errors: the versions of TLS and the ciphers built in do not fit each other.
    pub fn client(pinned: Option<Vec<u8>>) -> Result<(Arc<Self>, Arc<ClientConfig>), Error> {
        let provider = Arc::new(default_provider());
        let shown = Arc::new(Self { provider: Arc::clone(&provider), pinned, der: Mutex::default() });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&shown) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        Ok((shown, Arc::new(config)))
    }

    /// What was shown last, in DER; also where the handshake has failed after it.
    pub fn der(&self) -> Option<Vec<u8>> {
        self.der.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for ShownCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.der.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.to_vec());
        if self.pinned.as_ref().is_none_or(|it| it == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
