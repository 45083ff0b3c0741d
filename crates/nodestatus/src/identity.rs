//! How nodes of one cluster know each other: a certificate and a bearer token, both made of the cluster's join token, so that
//! each node has the same.
//!
//! Source: lf-edge/eve `pkg/pillar/cmd/zedkube/clusterstatusauth.go`, byte for byte. Not here: where the join token is from
//! (`token`), who is asked.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use agent::wire;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use kubeapi::connect::shown::ShownCertificate;
use pubsub::TopicRoot;
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{Error as TlsError, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};
use topics::EdgeNodeClusterStatus;

use crate::{GLOBAL, NAME};

const BEARER: &str = "eve-zedkube-cluster-status-token-v1";
const KEY: &str = "eve-zedkube-cluster-status-tls-key-v1";
const SERIAL: &str = "eve-zedkube-cluster-status-tls-serial-v1";
/// The only name in the certificate.
const SERVER: &str = "cluster-status.zedkube.eve";
/// In DER: the algorithm Ed25519, and the times 2026-01-01 and 9999-12-31T23:59:59Z.
const ALGORITHM: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const VALIDITY: &[u8] = b"\x30\x20\x17\x0d260101000000Z\x18\x0f99991231235959Z";
/// Extensions: signs and is a certificate authority, for servers.
const USES: &[u8] = b"\x30\x0e\x06\x03\x55\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x02\x84\
    \x30\x13\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01\
    \x30\x0f\x06\x03\x55\x1d\x13\x01\x01\xff\x04\x05\x30\x03\x01\x01\xff";
/// In PKCS #8: all before the seed of an Ed25519 key.
const PKCS8: &[u8] = &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 4;

/// A secret: it is never shown.
#[derive(Clone)]
pub struct ClusterIdentity {
    bearer: String,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for ClusterIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ClusterIdentity")
    }
}

impl ClusterIdentity {
    /// Made of the join token that zedkube has published; `None` without one.
    pub fn read(topic_root: &TopicRoot) -> Option<Self> {
        let status = wire::peek::<EdgeNodeClusterStatus>(topic_root, NAME, GLOBAL).ok()??;
        let token = status.encrypted_cluster_token;
        Self::of(token.reveal()).filter(|_| !token.reveal().is_empty())
    }

    pub(crate) fn of(token: &str) -> Option<Self> {
        let bearer = hex(&derived(token, BEARER)?);
        let seed = derived(token, KEY)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let certificate = certificate(&pair, &derived(token, SERIAL)?[..16]);
        Some(Self { bearer, certificate, key: [PKCS8, &seed].concat() })
    }

    pub(crate) fn header(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut header = HeaderValue::try_from(format!("Bearer {}", self.bearer))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Whether this is what a node of the cluster sends. Compared by digests, so that the time it takes gives nothing away.
    pub(crate) fn is_shown(&self, shown: Option<&HeaderValue>) -> bool {
        let wanted = self.header().ok();
        let of = |it: &HeaderValue| digest(&SHA256, it.as_bytes()).as_ref().to_vec();
        wanted.as_ref().map(of).is_some_and(|wanted| shown.map(of) == Some(wanted))
    }

    /// Errors: the certificate and its key do not fit.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)?;
        Ok(Arc::new(config).into())
    }

    /// A connection to a server that has this identity too. Dropping it closes the connection.
    pub(crate) async fn connect(&self, stream: TcpStream) -> std::io::Result<client::TlsStream<TcpStream>> {
        let pinned = Some(self.certificate.clone());
        let (_, config) = ShownCertificate::client(pinned).map_err(std::io::Error::other)?;
        let name = ServerName::try_from(SERVER).map_err(std::io::Error::other)?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// HKDF with SHA-256 and without salt.
fn derived(token: &str, what: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let key = Salt::new(HKDF_SHA256, &[]).extract(token.as_bytes());
    key.expand(&[what.as_bytes()], HKDF_SHA256).ok()?.fill(&mut out).ok()?;
    Some(out)
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|it| *it == 0).collect();
    let mut out = vec![tag];
    if content.len() > 0x7f {
        out.push(0x80 | u8::try_from(length.len()).unwrap_or_default());
    } else if content.is_empty() {
        out.push(0);
    }
    [out, length, content].concat()
}

/// Self-signed: `serial` is a positive number.
fn certificate(pair: &Ed25519KeyPair, serial: &[u8]) -> Vec<u8> {
    let public = pair.public_key().as_ref();
    let mut serial: Vec<u8> = serial.iter().copied().skip_while(|it| *it == 0).collect();
    if serial.first().is_none_or(|it| *it > 0x7f) {
        serial.insert(0, 0);
    }
    let name = der(SEQUENCE, &[&[6, 3, 0x55, 4, 3], &der(0x13, &[SERVER.as_bytes()])]);
    let name = der(SEQUENCE, &[&der(0x31, &[&name])]);
    let bits = |of: &[u8]| der(3, &[&[0], of]);
    let identifier = der(OCTETS, &[&digest(&SHA256, public).as_ref()[..20]]);
    let alternative = der(SEQUENCE, &[&der(0x82, &[SERVER.as_bytes()])]);
    let extension = |id: u8, value: &[u8]| der(SEQUENCE, &[&[6, 3, 0x55, 0x1d, id], &der(OCTETS, &[value])]);
    let extensions = der(SEQUENCE, &[USES, &extension(0x0e, &identifier), &extension(0x11, &alternative)]);
    let signed = der(
        SEQUENCE,
        &[
            &[0xa0, 3, 2, 1, 2],
            &der(2, &[&serial]),
            ALGORITHM,
            &name,
            VALIDITY,
            &name,
            &der(SEQUENCE, &[ALGORITHM, &bits(public)]),
            &der(0xa3, &[&extensions]),
        ],
    );
    der(SEQUENCE, &[&signed, ALGORITHM, &bits(pair.sign(&signed).as_ref())])
}

#[cfg(test)]
mod tests;
