//! What we show a server, as far as it has an end, a certificate or the token of a service account, and a kubeconfig
//! with such a token or with the next one.
//!
//! Not here: where the file goes and who may read it. Sources: RFC 7519; the pages "Managing Service Accounts" and
//! "TokenRequest" of Kubernetes. Secrets: a token has no `Debug`, and no error quotes an answer in which one may be.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Resource as _;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Value, json};

use super::{ClusterEndpoint, read_file};
use crate::client::ApiClient;
use crate::error::Error;
use crate::names::NodeName;

/// What we show the server, where it has an end.
#[derive(Debug, Clone)]
pub enum Credential {
    /// PEM.
    Certificate(Vec<u8>),
    Token(TokenLife),
}

/// A service account, `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

impl std::str::FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("`{text}` is no service account; use NAMESPACE/NAME");
        let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
        let is_name = |it: &str| NodeName::parse(it).is_ok();
        if !is_name(namespace) || !is_name(name) {
            return Err(wrong());
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl Account {
    /// Its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Account and times in a token of a service account, as it says itself: only the server can judge that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLife {
    pub account: Account,
    pub starts: Timestamp,
    pub ends: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    exp: i64,
}

impl TokenLife {
    /// `None` for a token of another kind, and for one without an end.
    pub fn of(token: &str) -> Option<Self> {
        let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
        let Claims { sub, iat, exp } = serde_json::from_slice(&claims).ok()?;
        let account = sub.strip_prefix("system:serviceaccount:")?.replacen(':', "/", 1).parse().ok()?;
        let (starts, ends) = (Timestamp::from_second(iat).ok()?, Timestamp::from_second(exp).ok()?);
        (starts < ends).then_some(Self { account, starts, ends })
    }

    /// A third of it is left, or less.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.ends.duration_since(now) <= self.whole() / 3
    }

    pub fn whole(&self) -> SignedDuration {
        self.ends.duration_since(self.starts)
    }
}

/// Has no `Debug`: it is a secret.
pub struct ServiceAccountToken {
    pub text: String,
    /// Expiry as the server writes times; unknown for a token from a file.
    pub expires: Option<String>,
}

/// The content of the kubeconfig of `cluster` with a new token in place of one that [`TokenLife::is_due`], and the new one's
/// end as the server writes it. `None` while nothing is to be done, and for credentials that are renewed elsewhere:
/// certificates, other tokens, and tokens in files of their own.
///
/// Errors: as of [`token`]; 401 once the old one has ended. `text` of the result is a secret.
pub async fn renewed(cluster: &ApiClient, now: Timestamp) -> Result<Option<ServiceAccountToken>, Error> {
    let Some((file, old)) = cluster.inline_token()? else { return Ok(None) };
    let Some((before, after)) = file.split_once(&old) else { return Ok(None) };
    let Some(life) = TokenLife::of(&old).filter(|it| it.is_due(now)) else { return Ok(None) };
    let secs = u64::try_from(life.whole().as_secs()).unwrap_or_default();
    let new = token(cluster, &life.account, secs).await?;
    Ok(Some(ServiceAccountToken { text: format!("{before}{}{after}", new.text), ..new }))
}

/// Requests a token of `account` for `secs`; the server may grant less.
///
/// Errors: those of [`ApiClient`]; 404 where there is no such account.
pub async fn token(cluster: &ApiClient, account: &Account, secs: u64) -> Result<ServiceAccountToken, Error> {
    let what = format!("ask for a token of service account {}/{}", account.namespace, account.name);
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "expirationSeconds": secs },
    });
    let path = ServiceAccount::url_path(&(), Some(&account.namespace));
    let request = Request::post(format!("{path}/{}/token", account.name))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let answer = cluster.read(&what, request.map_err(kube::core::request::Error::BuildRequest)).await?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let member = |at| answer.pointer(at).and_then(Value::as_str).map(str::to_owned);
    let granted = |text| ServiceAccountToken { text, expires: member("/status/expirationTimestamp") };
    // The parser's error may quote the token.
    let none = || Error::Garbled { what, source: serde_json::Error::custom("it holds no token") };
    member("/status/token").filter(|it| !it.is_empty()).map(granted).ok_or_else(none)
}

pub fn token_of(file: &std::path::Path) -> Result<ServiceAccountToken, String> {
    let bytes = read_file(file)?;
    let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_graphic()) {
        return Err(format!("{}: it holds no token in one line", file.display()));
    }
    Ok(ServiceAccountToken { text: text.to_owned(), expires: None })
}

/// JSON, which is YAML too.
pub fn kubeconfig(place: &ClusterEndpoint, user: &str, token: &ServiceAccountToken) -> String {
    let mut cluster = json!({
        "server": place.server,
        "certificate-authority-data": STANDARD.encode(&place.authorities),
    });
    if let Some(name) = &place.server_name {
        cluster["tls-server-name"] = json!(name);
    }
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cluster", "cluster": cluster }],
        "users": [{ "name": user, "user": { "token": token.text } }],
        "contexts": [{ "name": "pillar-rs", "context": { "cluster": "cluster", "user": user } }],
        "current-context": "pillar-rs",
    });
    format!("{file:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock;

    const SECRET: &str = "eyJ.tok3n.sig";

    fn account() -> Account {
        "kube-system/pillar-rs".parse().unwrap()
    }

    #[tokio::test]
    async fn x4_a_token_is_asked_for_by_name_and_for_a_time() {
        let granted = json!({ "status": { "token": SECRET, "expirationTimestamp": "2027-03-14T00:00:00Z" } });
        let (cluster, calls) = mock::cluster(vec![mock::object(&granted)]);
        let token = token(&cluster, &account(), 600).await.unwrap();
        assert_eq!((token.text.as_str(), token.expires.as_deref()), (SECRET, Some("2027-03-14T00:00:00Z")));
        let call = &calls.all()[0];
        assert_eq!(call.line, "POST /api/v1/namespaces/kube-system/serviceaccounts/pillar-rs/token");
        assert_eq!(call.content_type, "application/json");
        assert!(call.body.contains(r#""kind":"TokenRequest""#), "{}", call.body);
        assert!(call.body.contains(r#""expirationSeconds":600"#), "{}", call.body);
    }

    #[tokio::test]
    async fn s2_an_answer_that_is_none_is_not_quoted() {
        for answer in [
            json!({ "status": SECRET }),
            json!({ "status": { "token": [SECRET] } }),
            json!(SECRET),
            json!({}),
        ] {
            let (cluster, _) = mock::cluster(vec![mock::object(&answer)]);
            let Err(error) = token(&cluster, &account(), 600).await else { panic!("{answer} is a token") };
            assert!(error.line().ends_with("it holds no token"), "{}", error.line());
        }
    }

    #[test]
    fn seed_2_31_a_token_says_whose_it_is_and_when_it_ends_and_is_due_with_a_third_left() {
        let token = |claims: Value| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let user = account().user();
        let life = TokenLife::of(&token(json!({ "sub": user, "iat": 0, "exp": 900 }))).unwrap();
        let at = |secs| Timestamp::from_second(secs).unwrap();
        assert_eq!((&life.account, life.ends), (&account(), at(900)));
        assert_eq!([599, 600, 901].map(|it| life.is_due(at(it))), [false, true, true]);
        for other in [
            token(json!({ "sub": "edge", "iat": 0, "exp": 900 })),
            token(json!({ "sub": "system:serviceaccount:a/../b:c", "iat": 0, "exp": 900 })),
            token(json!({ "sub": user })),
            token(json!({ "sub": user, "iat": 900, "exp": 900 })),
            "opaque".to_owned(),
        ] {
            assert_eq!(TokenLife::of(&other), None, "{other}");
        }
    }

    #[test]
    fn an_account_has_a_namespace_and_a_name() {
        assert_eq!(account().user(), "system:serviceaccount:kube-system:pillar-rs");
        for wrong in ["pillar-rs", "/", "a/", "A/b", "a/b/c", "a/b?x=1"] {
            assert!(wrong.parse::<Account>().unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
    }
}
