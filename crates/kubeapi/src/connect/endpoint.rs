//! A server of the same machine that is not the API server, asked through the same door: etcd's metrics, which need no
//! login, and its JSON calls, which need a client certificate.
//!
//! Not here: what is asked and what an answer means. Nothing is kept between readings: files that were renewed are
//! read again with the next [`Endpoint::new`].

use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use kube::core::request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Access, client, read_file};
use crate::client::ApiClient;
use crate::error::Error;

/// Where the files of a login with a client certificate are, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateLogin {
    /// Certificate of the authority that signed the server's certificate.
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug)]
pub struct Endpoint(ApiClient);

impl Endpoint {
    /// The server at `address`, as `https://127.0.0.1:2382`. Each call may take `limit`, each answer may have
    /// `largest_bytes`. No variable of the environment is looked at, and no call is repeated.
    /// Errors: the address is none, or a file, which is named, cannot be used. Quotes no content of a file.
    pub fn new(
        address: &str,
        login: Option<&CertificateLogin>,
        limit: Duration,
        largest_bytes: usize,
    ) -> Result<Self, String> {
        let mut access = Access { server: address.to_owned(), ..Access::default() };
        if let Some(CertificateLogin { ca, certificate, key }) = login {
            access.authorities = read_file(ca)?;
            access.identity = Some((read_file(certificate)?, read_file(key)?));
        }
        let client = client(&access).map_err(|why| match login {
            None => format!("{address}: {why}"),
            Some(login) => format!("{address} with {}: {why}", login.certificate.display()),
        })?;
        let door = ApiClient::from_client_at(client, address);
        Ok(Self(door.with_call_limit(limit).with_answer_limit(largest_bytes)))
    }

    /// The answer to a GET, as it is.
    pub async fn get(&self, what: &str, path: &str) -> Result<Vec<u8>, Error> {
        let request = Request::get(path).body(vec![]).map_err(request::Error::BuildRequest);
        self.0.read(what, request).await
    }

    /// The answer to a POST of JSON, decoded. Whether a call without an answer was carried out is unknown.
    /// Errors: no answer, another one than 2xx, or not the object asked for.
    pub async fn post<T: DeserializeOwned>(&self, what: &str, path: &str, body: &Value) -> Result<T, Error> {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).map_err(request::Error::BuildRequest);
        self.0.ask(what, request).await
    }
}
