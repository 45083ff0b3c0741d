//! What the agents ask of the cluster, noted on its way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::client::Body;
use serde_json::Value;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Requests of agents that are tasks of this process, in order.
#[derive(Clone, Default)]
pub(crate) struct Noted(Arc<Mutex<Notes>>);

#[derive(Default)]
pub(crate) struct Notes {
    /// Method, path and query.
    pub(crate) asked: Vec<(String, String)>,
    /// UIDs in the evictions that were accepted.
    pub(crate) evicted: Vec<String>,
}

impl Noted {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `client` with every request noted.
    pub(crate) fn on(&self, client: &Client) -> Client {
        let (client, noted) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, noted) = (client.clone(), noted.clone());
            async move {
                let asked = (request.method().to_string(), request.uri().to_string());
                noted.notes().asked.push(asked);
                if !request.uri().path().ends_with("/eviction") {
                    return Ok::<_, BoxError>(client.send(request).await?);
                }
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await?.to_vec();
                let uid = uid_of(&bytes);
                let (method, uri) = (head.method.to_string(), head.uri.to_string());
                let asked = kubesim::ApiRequest { method, uri, body: bytes.clone() };
                let answer = client.send(http::Request::from_parts(head, Body::from(bytes))).await?;
                if answer.status().is_success() && !asked.is_dry() {
                    noted.notes().evicted.push(uid);
                }
                Ok(answer)
            }
        });
        Client::new(service, "default")
    }
}

fn uid_of(eviction: &[u8]) -> String {
    let eviction: Value = serde_json::from_slice(eviction).unwrap();
    eviction["deleteOptions"]["preconditions"]["uid"].as_str().unwrap().to_owned()
}
