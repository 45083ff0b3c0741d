//! The lines of an open watch, and the objects in lists and lines.
//!
//! Not generic, but for [`Objects`], which decodes from bytes for lists and watches alike: each further form
//! would compile the code of every kind once more. Not here: when to open a watch and what its end means.
//! Source: the Kubernetes page "API Concepts".

use std::error::Error as StdError;
use std::io;
use std::mem;

use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tower::BoxError;

use crate::error::CausedBody;

pub(super) trait ObjectSink: Send {
    fn keep(&mut self, object: &RawValue) -> Result<(), serde_json::Error>;
    fn clear(&mut self);
}

pub(super) struct Objects<K>(pub(super) Vec<K>);

impl<K: DeserializeOwned + Send> ObjectSink for Objects<K> {
    fn keep(&mut self, object: &RawValue) -> Result<(), serde_json::Error> {
        self.0.push(serde_json::from_slice(object.get().as_bytes())?);
        Ok(())
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListPage<'a> {
    metadata: Head,
    // Go writes an empty list as null.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// Metadata of a list or an object, as needed to follow it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Head {
    /// Start of the watch.
    pub(super) resource_version: Option<String>,
    /// Continue token.
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

/// Passes the objects of a page to `kind`.
pub(super) fn page(body: &[u8], kind: &mut dyn ObjectSink) -> Result<Head, serde_json::Error> {
    let ListPage { metadata, items } = serde_json::from_slice(body)?;
    for object in items.unwrap_or_default() {
        kind.keep(object)?;
    }
    Ok(Head { next: metadata.next.filter(|next| !next.is_empty()), ..metadata })
}

pub(super) fn version(object: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: Head,
    }
    let object: Object = serde_json::from_slice(object.get().as_bytes()).ok()?;
    object.metadata.resource_version
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum WatchVerb {
    Added,
    Modified,
    Deleted,
    /// No object; all up to this version was sent.
    Bookmark,
    /// No object but a `Status`: the watch has failed.
    Error,
}

#[derive(Deserialize)]
pub(super) struct WatchLine<'a> {
    #[serde(rename = "type")]
    pub(super) verb: WatchVerb,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

pub(super) struct Events {
    body: CausedBody,
    /// Received bytes; lines up to `next` were returned.
    come: Vec<u8>,
    next: usize,
}

impl Events {
    pub(super) fn new(body: CausedBody) -> Self {
        Self { body, come: Vec::new(), next: 0 }
    }

    /// The next whole line. `None` at the end, also within a line: the watch continues at the last known
    /// version. Dropping it loses nothing.
    pub(super) async fn next(&mut self) -> Option<Result<&[u8], BoxError>> {
        let mut looked = self.next;
        loop {
            if let Some(length) = self.come[looked..].iter().position(|it| *it == b'\n') {
                let begin = mem::replace(&mut self.next, looked + length + 1);
                return Some(Ok(&self.come[begin..looked + length]));
            }
            self.come.drain(..mem::take(&mut self.next));
            if self.come.is_empty() {
                self.come = Vec::new();
            }
            looked = self.come.len();
            match self.body.frame().await? {
                Ok(frame) => self.come.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(error) if is_end(error.as_ref()) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Whether the server closed the connection within an answer, as it does after a long watch.
fn is_end(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    // What an I/O error was made of is not among its sources.
    let source = io.and_then(io::Error::get_ref).map(|it| it as _).or_else(|| error.source());
    io.is_some_and(|it| it.kind() == io::ErrorKind::UnexpectedEof)
        || error.to_string().contains("unexpected EOF during chunk")
        || source.is_some_and(is_end)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use bytes::Bytes;
    use futures::stream::{self, StreamExt};
    use http::Response;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::Client;
    use kube::api::WatchParams;

    use super::*;
    use crate::ApiClient;

    type Piece = Result<&'static str, io::Error>;

    async fn events(pieces: Vec<Piece>) -> Events {
        let frames = stream::iter(pieces.into_iter().map(|it| it.map(|it| Frame::data(Bytes::from(it)))));
        let mut answer = Some(Response::new(StreamBody::new(frames.boxed())));
        let service = tower::service_fn(move |_| ready(answer.take().ok_or(BoxError::from("asked twice"))));
        let cluster = ApiClient::from_client(Client::new(service, "default"));
        let watch = kube::core::Request::new("/api/v1/nodes").watch(&WatchParams::default(), "1");
        Events::new(cluster.watch("watch nodes", watch).await.unwrap())
    }

    async fn lines(mut events: Events) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(line) = events.next().await {
            all.push(
                line.map_or_else(|it| format!("error {it}"), |it| String::from_utf8_lossy(it).into_owned()),
            );
        }
        all
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_are_cut_into_pieces() {
        let whole = "{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n{\"d";
        let expected = ["{\"a\":1}", "{\"b\":2}", "", "{\"c\":3}"];
        for at in 0..=whole.len() {
            for then in at..=whole.len() {
                let pieces = [&whole[..at], &whole[at..then], &whole[then..]];
                assert_eq!(lines(events(pieces.map(Ok).into()).await).await, expected, "{at} {then}");
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_closes_in_a_line_is_an_end_and_another_error_is_told() {
        let eof = || io::Error::new(io::ErrorKind::UnexpectedEof, "eof");
        assert_eq!(lines(events(vec![Ok("a\nb"), Err(eof())]).await).await, ["a"]);
        assert_eq!(lines(events(vec![Ok("a\n"), Err(io::Error::other(eof()))]).await).await, ["a"]);
        let told = lines(events(vec![Ok("a\nb"), Err(io::Error::other("reset"))]).await).await;
        assert!(matches!(&*told, [a, error] if a == "a" && error.contains("error")), "{told:?}");
    }

    #[test]
    fn a_list_with_no_items_is_empty_and_one_odd_object_spoils_it() {
        let mut kind = Objects::<u8>(Vec::new());
        for empty in [r#"{"items":null}"#, r#"{"metadata":{}}"#, r#"{"items":[]}"#] {
            page(empty.as_bytes(), &mut kind).unwrap();
        }
        assert!(kind.0.is_empty());
        let head =
            page(br#"{"items":[1,2],"metadata":{"continue":"","resourceVersion":"7"}}"#, &mut kind).unwrap();
        assert_eq!(
            (kind.0.as_slice(), head.next, head.resource_version.as_deref()),
            (&[1, 2][..], None, Some("7"))
        );
        assert!(page(br#"{"items":[3,"x"]}"#, &mut kind).is_err());
    }
}
