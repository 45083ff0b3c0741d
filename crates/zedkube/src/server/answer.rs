//! Which path answers what. Every answer is whole, is not to be kept, and fits the request's time.
//!
//! Source: spec/agents.md 4.7 for `/status`; the other paths are ours. Paths of the reference that are not served
//! (`/app`, `/cluster-app`) are unknown here.

use std::sync::Arc;

use agent::Clock;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::watch;

use super::joined::Joined;
use super::view::View;
use super::{metrics, page};
use crate::status::Place;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
/// The form that Prometheus reads.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Nothing from elsewhere, no script, no form, no frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// What is served.
#[derive(Clone, Copy)]
enum Leaf {
    Status,
    Page,
    Metrics,
    Alive,
    Ready,
}

/// Answers requests.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) view: watch::Receiver<View>,
    pub(crate) joined: Arc<Joined>,
    pub(crate) clock: Clock,
}

impl Desk {
    /// The answer to one request at `place`. It waits for the API at most as long as `joined` does.
    pub(super) async fn answer(&self, place: Place, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let leaf = match path {
            "/status" => Leaf::Status,
            "/" => Leaf::Page,
            "/metrics" => Leaf::Metrics,
            "/healthz" => Leaf::Alive,
            "/readyz" => Leaf::Ready,
            _ => return respond(StatusCode::NOT_FOUND, TEXT, "404 - Not Found\n".to_owned()),
        };
        if method != Method::GET {
            let refused = "405 - Method Not Allowed".to_owned();
            let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, refused);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match leaf {
            Leaf::Status => {
                let server = self.joined.is_server().await;
                let body = if server { format!("cluster:{}", place.cluster) } else { String::new() };
                respond(StatusCode::OK, TEXT, body)
            }
            Leaf::Page => respond(StatusCode::OK, HTML, page::page(&self.view.borrow(), self.clock.wall())),
            Leaf::Metrics => {
                respond(StatusCode::OK, METRICS, metrics::metrics(&self.view.borrow(), self.clock.wall()))
            }
            Leaf::Alive => respond(StatusCode::OK, TEXT, "ok\n".to_owned()),
            Leaf::Ready => match waits_for(&self.view.borrow()) {
                None => respond(StatusCode::OK, TEXT, "ok\n".to_owned()),
                Some(what) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {what}\n")),
            },
        }
    }
}

/// What has to be known before drains of this node can be told.
fn waits_for(view: &View) -> Option<&'static str> {
    if view.node.is_empty() {
        return Some("the name of this node is not known yet");
    }
    view.progress.is_none().then_some("nothing is known of this node's drain yet")
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
