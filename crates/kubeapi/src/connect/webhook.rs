//! An address that takes messages for people, as gateways of chats do: one POST of `{"text": "…"}`.
//!
//! Here for the TLS that clients of the cluster have. The address is a secret: whoever knows it may write there. No error
//! and no `Debug` holds more of it than its host.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::uri::{PathAndQuery, Scheme};
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
pub struct Webhook {
    uri: Uri,
    host: String,
}

impl FromStr for Webhook {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.trim().parse().map_err(|_quotes| "it is no address as https://host/path")?;
        let host = uri.host().unwrap_or_default().to_owned();
        let is_here = ["127.0.0.1", "[::1]", "localhost"].contains(&host.as_str());
        match uri.scheme().map(Scheme::as_str) {
            Some("https") if !host.is_empty() => Ok(Self { uri, host }),
            // A gateway on this machine; what leaves it is encrypted.
            Some("http") if is_here => Ok(Self { uri, host }),
            _ => Err("it is no address as https://host/path; http:// is for this machine alone (127.0.0.1)"),
        }
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.host)
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
        match tokio::time::timeout(LIMIT, self.exchange(text)).await {
            Ok(done) => done,
            Err(_elapsed) => Err(format!("no answer within {} s", LIMIT.as_secs())),
        }
    }

    async fn exchange(&self, text: &str) -> Result<(), String> {
        let is_tls = self.uri.scheme() == Some(&Scheme::HTTPS);
        let read = || AUTHORITIES.iter().map(Path::new).find(|it| it.exists()).map(read_file);
        let authorities = if is_tls {
            tokio::task::spawn_blocking(read).await.map_err(|it| it.to_string())?.transpose()?
        } else {
            None
        };
        let authority = self.uri.authority().map(ToString::to_string).unwrap_or_default();
        let server = format!("{}://{authority}", if is_tls { "https" } else { "http" });
        let access = Access { server, authorities: authorities.unwrap_or_default(), ..Access::default() };
        let request = Request::post(self.uri.path_and_query().map_or("/", PathAndQuery::as_str))
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(json!({ "text": text }).to_string().into_bytes()))
            .map_err(|it| it.to_string())?;
        let answer = client(&access).map_err(|it| it.to_string())?.send(request).await;
        let unsent = |it| {
            let (what, via) = ("post a message".to_owned(), self.host.clone());
            Error::Connection { what, via, source: cause(it) }.plain()
        };
        let status = answer.map_err(unsent)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

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
}
