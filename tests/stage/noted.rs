//! Records the agents' requests to the cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Notify;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Of agents that are tasks, in order.
#[derive(Clone, Default)]
pub(crate) struct Noted(Arc<Mutex<Notes>>);

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) asked: Vec<(String, String)>,
    pub(crate) evicted: Vec<String>,
    /// Writes except leases and the Node's report, and the one that is never answered.
    pub(crate) writes: usize,
    pub(crate) unanswered: Option<(usize, Arc<Notify>)>,
    /// Recording ends when this holds.
    pub(crate) until: Option<Box<dyn Fn() -> bool + Send>>,
}

impl Notes {
    fn note(&mut self, asked: (String, String)) {
        if !self.until.as_ref().is_some_and(|it| it()) {
            self.asked.push(asked);
        }
    }

    /// Counts a request; returns whom to notify for the unanswered one.
    fn count(&mut self, method: &str, uri: &str) -> Option<Arc<Notify>> {
        let beside = ["/leases", "/events", "/status?"].iter().any(|it| uri.contains(it));
        if method == "GET" || beside && !uri.contains("/poddisruptionbudgets") {
            return None;
        }
        self.writes += 1;
        self.unanswered.take_if(|(nth, _)| *nth == self.writes).map(|it| it.1)
    }
}

impl Noted {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `client` with every request recorded.
    pub(crate) fn on(&self, client: &Client) -> Client {
        let (client, noted) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, noted) = (client.clone(), noted.clone());
            async move {
                let asked = (request.method().to_string(), request.uri().to_string());
                let unanswered = noted.notes().count(&asked.0, &asked.1);
                noted.notes().note(asked);
                if let Some(carried_out) = unanswered {
                    drop(client.send(request).await?);
                    carried_out.notify_one();
                    return std::future::pending().await;
                }
                if !request.uri().path().ends_with("/eviction") {
                    return Ok::<_, BoxError>(client.send(request).await?);
                }
                let (head, body) = request.into_parts();
                let bytes = body.collect_bytes().await?.to_vec();
                let order: Value = serde_json::from_slice(&bytes).unwrap();
                let uid = order["deleteOptions"]["preconditions"]["uid"].as_str().unwrap().to_owned();
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
