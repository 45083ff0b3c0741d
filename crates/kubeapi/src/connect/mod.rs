//! A client made of an address and credentials: TLS by ring, HTTP/1.1, one pool of connections.
//!
//! The library's own way from a kubeconfig to a client is not used: it brings login programs of cloud
//! providers, with a regular-expression engine and a reader of YAML for each of their types, and looks at the
//! environment. Not here: which files (`kubeconfig`), deadlines of calls (`client`). Source:
//! docs/decisions.md.

pub mod account;
pub mod credential;
pub mod endpoint;
pub mod shown;
pub mod webhook;

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri};
use http_body_util::BodyExt as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::Body;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error as TlsError, InconsistentKeys, RootCertStore, crypto::ring,
};

use crate::error::{CausedBody, cause};

const CONNECT_LIMIT: Duration = Duration::from_secs(30);

const PROGRAM: &str = concat!("zedbox/", env!("CARGO_PKG_VERSION"));

/// Larger files are refused.
const LIMIT_BYTES: u64 = 1 << 20;

/// Address of a cluster, and the certificates for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEndpoint {
    /// `https://host:port`.
    pub server: String,
    /// Name in its certificate, where it is not the host.
    pub server_name: Option<String>,
    /// Certificates of authorities, PEM.
    pub authorities: Vec<u8>,
}

impl ClusterEndpoint {
    /// The address of this server, with its authorities from the file `ca`.
    pub fn new(server: String, ca: &Path) -> Result<Self, String> {
        let authorities = read_file(ca)?;
        let first = CertificateDer::pem_slice_iter(&authorities).next();
        if !matches!(first, Some(Ok(_))) {
            return Err(format!("{}: it holds no certificate as PEM", ca.display()));
        }
        Ok(Self { server, server_name: None, authorities })
    }
}

/// Address of a server and our credentials. It has no `Debug`: it holds secrets.
#[derive(Default)]
pub struct Access {
    /// `https://host:port` or `http://host:port`, optionally with a path prefix.
    pub server: String,
    /// Name in the server's certificate, where it is not the host of [`Access::server`].
    pub server_name: Option<String>,
    /// Certificates of authorities, PEM. Without one no TLS server is accepted.
    pub authorities: Vec<u8>,
    /// Our certificate chain and key, both PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The value of the header `authorization`.
    pub authorization: Option<String>,
}

/// Why no client can be made; contains no secret.
#[derive(Debug)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

fn unusable(what: &str, why: impl fmt::Display) -> Unusable {
    Unusable(format!("{what}: {why}"))
}

/// Opens no connection yet, and retries nothing.
///
/// Errors: [`Unusable`] names the part that is wrong.
pub fn client(access: &Access) -> Result<Client, Unusable> {
    let base: Uri = access.server.parse().map_err(|why| unusable("cluster url", why))?;
    let (Some(scheme), Some(authority)) = (base.scheme().cloned(), base.authority().cloned()) else {
        return Err(unusable("cluster url", "it is no http:// or https:// address"));
    };
    let tls = tls(access, scheme == Scheme::HTTPS)?;
    let authorization = match &access.authorization {
        None => None,
        Some(text) => {
            let mut value = HeaderValue::from_str(text).map_err(|why| unusable("token or password", why))?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_LIMIT));
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &access.server_name {
        let name = ServerName::try_from(name.clone()).map_err(|why| unusable("tls-server-name", why))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = builder.enable_http1().wrap_connector(connector);
    let pool: Pool<_, CausedBody> = Pool::builder(TokioExecutor::new()).build(connector);
    let prefix = base.path().trim_end_matches('/').to_owned();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let asked = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let whole = Uri::builder()
            .scheme(scheme.clone())
            .authority(authority.clone())
            .path_and_query(format!("{prefix}{asked}"))
            .build();
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(PROGRAM));
        if let Some(value) = &authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let pool = pool.clone();
        async move {
            *request.uri_mut() = whole?;
            let request = request.map(|body| body.map_err(cause as _));
            Ok::<_, tower::BoxError>(pool.request(request).await?)
        }
    });
    Ok(Client::new(service, "default"))
}

fn tls(access: &Access, wanted: bool) -> Result<ClientConfig, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("certificate-authority", &access.authorities)? {
        roots.add(certificate).map_err(|why| unusable("certificate-authority", why))?;
    }
    if wanted && roots.is_empty() {
        return Err(unusable("certificate-authority", "the cluster has none, so no server can be believed"));
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable("TLS", why))?
        .with_root_certificates(roots);
    let Some((chain, key)) = &access.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("client-certificate", chain)?;
    // The parser's error may quote the key.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_quotes| unusable("client-key", "it is no PEM of a private key"))?;
    let key = ring::default_provider()
        .key_provider
        .load_private_key(key)
        .map_err(|why| unusable("client-key", why))?;
    let own = CertifiedKey::new(chain, key);
    match own.keys_match() {
        // For example version 1, which openssl makes without extensions: only the server judges our
        // certificate.
        Ok(())
        | Err(
            TlsError::InconsistentKeys(InconsistentKeys::Unknown)
            | TlsError::InvalidCertificate(CertificateError::Other(_)),
        ) => Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))),
        Err(why) => Err(unusable("client-certificate", why)),
    }
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|why| unusable(what, why))
}

pub(crate) fn short_enough(bytes: u64) -> Result<(), String> {
    let fits = bytes <= LIMIT_BYTES;
    fits.then_some(()).ok_or_else(|| format!("it has {bytes} bytes; it may have {LIMIT_BYTES} at the most"))
}

/// Reads a login's file. A pipe is refused, as reading it could wait for a writer. The error names the file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let mut bytes = Vec::new();
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(|it| wrong(&it))?.is_file() {
        return Err(wrong(&"it is no regular file; put a regular file there"));
    }
    let file = fs::File::open(path).map_err(|it| wrong(&it))?;
    file.take(LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(|it| wrong(&it))?;
    short_enough(bytes.len() as u64).map_err(|it| wrong(&it))?;
    Ok(bytes)
}
