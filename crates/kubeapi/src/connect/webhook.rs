//! An address that takes messages for people, as gateways of chats do: one POST of `{"text": "…"}`.
//!
//! Here for the TLS that clients of the cluster have. The address is a secret: whoever knows it may write there. No error
//! and no `Debug` holds more of it than its host.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri};
use kube::client::Body;
use serde_json::json;

use super::{Access, client, read_file};
use crate::error::{Error, cause};

/// For everything: name, connection, TLS, answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Authorities of this machine, the first that is there: of Debian, of Red Hat, of Alpine.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Its `Display` is its host.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(Uri);

impl FromStr for Webhook {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.trim().parse().map_err(|_quotes| "it is no address as https://host/path")?;
        let host = uri.host().unwrap_or_default();
        let is_here = ["127.0.0.1", "[::1]", "localhost"].contains(&host);
        match uri.scheme().map(Scheme::as_str) {
            Some("https") if !host.is_empty() => Ok(Self(uri)),
            // A gateway on this machine; what leaves it is encrypted.
            Some("http") if is_here => Ok(Self(uri)),
            _ => Err("it is no address as https://host/path; http:// is for this machine alone (127.0.0.1)"),
        }
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0.host().unwrap_or_default())
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Webhook({self})")
    }
}

impl Webhook {
    /// Posts `text` once; takes 10 s at most. Dropping it may leave the message posted or not.
    ///
    /// Errors: why it was not, without the address.
    pub async fn post(&self, text: &str) -> Result<(), String> {
        let is_tls = self.0.scheme() == Some(&Scheme::HTTPS);
        let there = AUTHORITIES.iter().map(Path::new).find(|it| is_tls && it.exists());
        let exchange = async {
            let authorities = tokio::task::spawn_blocking(move || there.map(read_file))
                .await
                .map_err(|it| it.to_string())?;
            self.exchange(text, authorities.transpose()?.unwrap_or_default()).await
        };
        let late = |_| Err(format!("no answer within {} s", LIMIT.as_secs()));
        tokio::time::timeout(LIMIT, exchange).await.unwrap_or_else(late)
    }

    async fn exchange(&self, text: &str, authorities: Vec<u8>) -> Result<(), String> {
        let (scheme, at) = (self.0.scheme_str(), self.0.authority().map(Authority::as_str));
        let server = format!("{}://{}", scheme.unwrap_or_default(), at.unwrap_or_default());
        let access = Access { server, authorities, ..Access::default() };
        let request = Request::post(self.0.path_and_query().map_or("/", PathAndQuery::as_str))
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(json!({ "text": text }).to_string().into_bytes()))
            .map_err(|it| it.to_string())?;
        let answer = client(&access).map_err(|it| it.to_string())?.send(request).await;
        let unsent = |it| {
            let (what, via) = ("post a message".to_owned(), self.to_string());
            Error::Connection { what, via, source: cause(it) }.plain()
        };
        let status = answer.map_err(unsent)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_pki_types::PrivateKeyDer;
    use rustls_pki_types::pem::PemObject as _;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};

    const PATH: &str = "/services/T0/s3cr3t?key=s3cr3t";

    /// What one request to a gateway with this answer was; the answer of `post`.
    async fn posted(answer: &str) -> (String, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hook: Webhook = format!("http://{}{PATH}", listener.local_addr().unwrap()).parse().unwrap();
        let gateway = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"}") {
                heard.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(heard).unwrap()
        };
        tokio::join!(gateway, hook.post("n1 DrainBlocked: \"web\"\nno"))
    }

    #[tokio::test]
    async fn x3_a_message_is_posted_as_json_once_and_what_is_answered_counts() {
        let (heard, done) = posted("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        assert_eq!(done, Ok(()));
        assert!(heard.starts_with(&format!("POST {PATH} HTTP/1.1\r\n")), "{heard}");
        assert!(heard.contains("content-type: application/json\r\n"), "{heard}");
        assert!(heard.ends_with("\r\n\r\n{\"text\":\"n1 DrainBlocked: \\\"web\\\"\\nno\"}"), "{heard}");
        let (_, refused) = posted("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(refused, Err("it answered 404 Not Found".to_owned()));
        let (_, cut) = posted("").await;
        assert!(cut.is_err_and(|it| !it.contains("s3cr3t")));
    }

    #[tokio::test]
    async fn s2_only_the_host_of_an_address_is_ever_shown_and_it_is_https_or_here() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        for address in [format!("https://{nobody}{PATH}"), format!("http://{nobody}{PATH}")] {
            let hook: Webhook = address.parse().unwrap();
            let why = hook.post("x").await.unwrap_err();
            let shown = format!("{hook} {hook:?} {why}");
            assert!(
                shown.starts_with("127.0.0.1 Webhook(127.0.0.1) ") && !shown.contains("s3cr3t"),
                "{shown}"
            );
        }
        for wrong in ["http://10.0.0.1/s3cr3t", "ftp://a/s3cr3t", "hooks/s3cr3t", "https:///s3cr3t", ""] {
            assert!(wrong.parse::<Webhook>().is_err_and(|it| !it.contains("s3cr3t")), "{wrong}");
        }
    }
    #[tokio::test]
    async fn s2_a_message_goes_to_a_gateway_whose_authority_this_machine_knows_and_to_no_other() {
        let [own, other] =
            [(); 2].map(|()| rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap());
        let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(ring::default_provider().into());
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let gateway = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hook: Webhook = format!("https://{}{PATH}", listener.local_addr().unwrap()).parse().unwrap();
        for (authority, is_known) in [(&other, false), (&own, true)] {
            let served = async {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = gateway.accept(stream).await else { return false };
                let mut heard = Vec::new();
                while !heard.ends_with(b"}") {
                    heard.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                true
            };
            let (heard, done) = tokio::join!(served, hook.exchange("x", authority.cert.pem().into_bytes()));
            assert_eq!((heard, done.is_ok()), (is_known, is_known), "{done:?}");
            assert!(
                is_known
                    || done
                        .is_err_and(|it| it.contains("invalid peer certificate") && !it.contains("s3cr3t"))
            );
        }
    }
}
