//! A kubeconfig for a service account, with its token or with the next one.
//!
//! Not here: where the file goes and who may read it. Sources: the pages "Managing Service Accounts" and "TokenRequest" of
//! Kubernetes. Secrets: a token has no `Debug`, and no error quotes an answer in which one may be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Resource as _;
use serde::de::Error as _;
use serde_json::{Value, json};

use super::credential::{Account, TokenLife};
use super::{ClusterEndpoint, read_file};
use crate::client::ApiClient;
use crate::error::Error;

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

    #[tokio::test]
    async fn s2_an_answer_that_is_none_is_not_quoted() {
        for answer in [
            json!({ "status": SECRET }),
            json!({ "status": { "token": [SECRET] } }),
            json!(SECRET),
            json!({}),
        ] {
            let (cluster, _) = mock::cluster(vec![mock::object(&answer)]);
            let Err(error) = token(&cluster, &Account::default(), 600).await else {
                panic!("{answer} is a token")
            };
            assert!(error.line().ends_with("it holds no token"), "{}", error.line());
        }
    }
}
