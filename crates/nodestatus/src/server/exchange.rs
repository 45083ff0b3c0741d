//! Requests to other nodes: one request, the address of each, and their headlines.
//!
//! Not here: how often they are asked (`peers`, `node_list`).

use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubeapi::nodes::ReachableNode;
use step::{Inserted as _, LiteMap};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use topics::{Headline, cut_text, go_json};

use crate::identity::ClusterIdentity;

/// Parallel requests.
const AT_ONCE: usize = 8;
/// Limit of nodes.
const MOST: usize = 64;
/// Limit of a headline.
const HEADLINE_BYTES: usize = 4 << 10;
/// Shown of a sentence.
const SENTENCE_BYTES: usize = 200;
/// Limit of an answer's head.
const HEAD_BYTES: usize = 16 << 10;

/// Another node's headline, if it has answered, and its address.
#[derive(Debug, Clone)]
pub(super) struct NodeWord {
    pub(super) headline: Option<Headline>,
    pub(super) at: SocketAddr,
}

/// One address of each other node: the first in the family of `own`, else the first. Addresses that lead to
/// no node are left out, and so are loopback ones unless `own` is one.
pub(super) fn addresses(members: &[ReachableNode], own: IpAddr) -> Vec<IpAddr> {
    others(members, own).map(|(_, address)| address).collect()
}

/// With names.
fn others(members: &[ReachableNode], own: IpAddr) -> impl Iterator<Item = (&str, IpAddr)> {
    let fit = move |it: &&IpAddr| {
        !it.is_unspecified() && !it.is_multicast() && (!it.is_loopback() || own.is_loopback())
    };
    let others = members.iter().filter(move |it| !it.addresses.contains(&own));
    let one = move |member: &ReachableNode| {
        let mut all = member.addresses.iter().filter(fit);
        let first = all.clone().next();
        all.find(|it| it.is_ipv4() == own.is_ipv4()).or(first).copied()
    };
    others.filter_map(move |member| Some((member.name.as_str(), one(member)?))).take(MOST)
}

/// All other nodes, with the headlines of those that answer within `limit`; this node is `own`.
pub(super) async fn headlines(
    own: SocketAddr,
    members: &[ReachableNode],
    limit: Duration,
) -> LiteMap<String, NodeWord> {
    let others: Vec<_> = others(members, own.ip()).map(|(name, ip)| (name.to_owned(), ip)).collect();
    let others = others.into_iter().map(|(name, ip)| (name, SocketAddr::new(ip, own.port())));
    let others: LiteMap<String, SocketAddr> = others.into_lite();
    let asks = others.clone().into_iter();
    let asks = asks.map(|(name, at)| async move { Some((name, headline(at, limit).await?)) });
    let mut said: LiteMap<String, Headline> = within(limit, asks).await.into_iter().flatten().into_lite();
    let word = |(name, at)| (said.remove(&name), name, at);
    others.into_iter().map(word).map(|(headline, name, at)| (name, NodeWord { headline, at })).into_lite()
}

/// Answers to `asks` that come within `limit`; some are asked at a time.
pub(super) async fn within<T>(limit: Duration, asks: impl Iterator<Item: Future<Output = T>>) -> Vec<T> {
    let late = Box::pin(tokio::time::sleep(limit));
    stream::iter(asks).buffer_unordered(AT_ONCE).take_until(late).collect().await
}

async fn headline(to: SocketAddr, limit: Duration) -> Option<Headline> {
    let asked = exchange(Method::GET, "/drain", to, HEADLINE_BYTES, None);
    let body = tokio::time::timeout(limit, asked).await.ok()?.ok()?;
    let mut headline: Headline = go_json::from_slice(&body).ok()?;
    headline.text = cut_text(&headline.text, SENTENCE_BYTES);
    Some(headline)
}

pub(super) type PeerError = Box<dyn std::error::Error + Send + Sync>;

/// What a server says of its cluster, as `cluster:<uuid>`, asked plain and, if that fails, in TLS with `identity`.
/// Errors: no answer within `limit`, or another one than 200; in plain words.
pub async fn cluster_of(
    server: &str,
    identity: Option<&ClusterIdentity>,
    limit: Duration,
) -> Result<Bytes, String> {
    let asked = exchange(Method::GET, "/status", server, HEADLINE_BYTES, identity);
    match tokio::time::timeout(limit, asked).await {
        Ok(heard) => heard.map_err(|it| it.to_string()),
        Err(_elapsed) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// Sends a request and reads the body of a 200, at most `most` bytes: plain, and if that fails in TLS with `identity`.
pub(super) async fn exchange(
    method: Method,
    path: &str,
    to: impl ToSocketAddrs + ToString,
    most: usize,
    identity: Option<&ClusterIdentity>,
) -> Result<Bytes, PeerError> {
    let request = || Request::builder().method(method.clone()).uri(path).header(HOST, to.to_string());
    let plain = request().body(Empty::<Bytes>::new())?;
    let heard = transfer(TcpStream::connect(&to).await?, plain, most).await;
    let Some(identity) = identity.filter(|_| heard.is_err()) else { return heard };
    let known = request().header(AUTHORIZATION, identity.header()?).body(Empty::<Bytes>::new())?;
    transfer(identity.connect(TcpStream::connect(&to).await?).await?, known, most).await
}

async fn transfer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
    most: usize,
) -> Result<Bytes, PeerError> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    let mut exchange = Box::pin(async move {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answers {}", response.status()).into());
        }
        Limited::new(response.into_body(), most).collect().await.map(http_body_util::Collected::to_bytes)
    });
    tokio::select! {
        biased;
        done = &mut exchange => done,
        // The other side has closed; its answer is still to be read.
        _ = connection => exchange.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_node_is_asked_at_one_address_that_leads_to_it() {
        let member = |all: &[&str]| ReachableNode {
            addresses: all.iter().map(|it| it.parse().unwrap()).collect(),
            ..ReachableNode::default()
        };
        let members = [
            member(&["10.0.0.1", "fd00::1"]),
            member(&["fd00::2", "10.0.0.2"]),
            member(&["fd00::3"]),
            member(&["127.0.0.1", "0.0.0.0", "224.0.0.1"]),
            member(&[]),
        ];
        let told = |own: &str| {
            let all = addresses(&members, own.parse().unwrap());
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told("10.0.0.1"), "10.0.0.2 fd00::3");
        assert_eq!(told("fd00::1"), "fd00::2 fd00::3");
        assert_eq!(told("127.0.0.9"), "10.0.0.1 10.0.0.2 fd00::3 127.0.0.1");
        let crowd: Vec<ReachableNode> = (1..=200).map(|nth| member(&[&format!("10.0.1.{nth}")])).collect();
        assert_eq!(addresses(&crowd, "10.0.0.1".parse().unwrap()).len(), MOST);
    }
}
