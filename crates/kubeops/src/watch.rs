//! Following a collection: one list, then a watch that survives what servers and networks do to it.
//!
//! Not here: what the objects mean. Sources: the Kubernetes page "API Concepts" (watch, 410, bookmarks); kube's
//! own watcher is not used because it hides replies and reads no Retry-After.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchParams};
use kube::core::{ObjectList, Request, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::client::{self, Cluster};
use crate::error::Error;
use crate::pace::Pace;
use crate::reply::Reply;

/// How long the server is asked to keep one watch open. Short, since a dead connection is noticed only
/// [`MARGIN`] after it.
const SLOT: Duration = Duration::from_secs(30);
/// How much longer than its slot a watch may be silent before the connection is given up.
const MARGIN: Duration = Duration::from_secs(5);

/// What is followed.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// For errors and logs, as "pods of node n".
    pub(crate) what: String,
    /// The collection's path.
    pub(crate) path: String,
    /// Field selector.
    pub(crate) fields: Option<String>,
    /// Label selector.
    pub(crate) labels: Option<String>,
}

impl Scope {
    /// A list that is read from the store and not from a cache of any age: no resource version.
    pub(crate) fn list(&self) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        Request::new(self.path.as_str()).list(&ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            ..ListParams::default()
        })
    }

    fn watch(&self, version: &str) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let how = WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: u32::try_from(SLOT.as_secs()).ok(),
            ..WatchParams::default()
        };
        Request::new(self.path.as_str()).watch(&how, version)
    }
}

/// What a follower hears.
#[derive(Debug)]
pub(crate) enum Heard<K> {
    /// Everything that is there; what was there before and is not in it is gone.
    Listed(Vec<K>),
    /// One object as it is now.
    Put(K),
    /// One object as it was when it went.
    Gone(K),
    /// A call failed; the follower tries again by itself.
    Trouble(Error),
}

enum At<K> {
    List,
    Resume { version: String },
    Open { version: String, events: BoxStream<'static, Result<WatchEvent<K>, Error>> },
}

struct Follower<K> {
    cluster: Cluster,
    scope: Scope,
    pace: Pace,
    /// Failures in a row.
    tries: u32,
    /// Wait before the next call.
    rest: Option<Duration>,
    at: At<K>,
}

/// Follows `scope` for as long as the stream is kept; it never ends. Dropping it closes the connection and loses
/// nothing, as a new one starts with a list.
pub(crate) fn follow<K>(cluster: Cluster, scope: Scope, seed: u64) -> impl Stream<Item = Heard<K>> + Send
where
    K: Object,
{
    let follower = Follower { cluster, scope, pace: Pace::new(seed), tries: 0, rest: None, at: At::List };
    stream::unfold(follower, |mut follower| async move {
        let heard = follower.next().await;
        Some((heard, follower))
    })
}

/// What the follower needs to know of an object.
pub(crate) trait Object: Clone + Debug + DeserializeOwned + Send + 'static {
    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;
}

impl<K> Object for K
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
}

impl<K: Object> Follower<K> {
    async fn next(&mut self) -> Heard<K> {
        loop {
            if let Some(rest) = self.rest.take() {
                sleep(rest).await;
            }
            match std::mem::replace(&mut self.at, At::List) {
                At::List => {
                    let what = format!("list {}", self.scope.what);
                    match self.cluster.ask::<ObjectList<K>>(&what, self.scope.list()).await {
                        Ok(list) => {
                            self.tries = 0;
                            self.at =
                                At::Resume { version: list.metadata.resource_version.unwrap_or_default() };
                            return Heard::Listed(list.items);
                        }
                        Err(error) => return self.trouble(error),
                    }
                }
                At::Resume { version } => {
                    let what = format!("watch {}", self.scope.what);
                    match self.cluster.watch::<K>(&what, self.scope.watch(&version)).await {
                        Ok(events) => self.at = At::Open { version, events },
                        Err(error) if error.reply() == Reply::Expired => self.list_again("too old"),
                        Err(error) => {
                            self.at = At::Resume { version };
                            return self.trouble(error);
                        }
                    }
                }
                At::Open { version, mut events } => match timeout(SLOT + MARGIN, events.next()).await {
                    Err(_elapsed) => self.list_again("silent"),
                    Ok(None) => {
                        // The end of a slot or a cut: both go on where they were, after a short rest, so that
                        // a server that closes at once is not asked in a circle.
                        self.rest = Some(self.pace.pause(1, None));
                        self.at = At::Resume { version };
                    }
                    Ok(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                        self.tries = 0;
                        self.at = At::Open { version: mark.metadata.resource_version, events };
                    }
                    Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                        self.keep(version, &object, events);
                        return Heard::Put(object);
                    }
                    Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                        self.keep(version, &object, events);
                        return Heard::Gone(object);
                    }
                    Ok(Some(Ok(WatchEvent::Error(status)))) => {
                        let error = client::from_library(&self.scope.what, "", kube::Error::Api(status));
                        if let Some(heard) = self.broken(version, error) {
                            return heard;
                        }
                    }
                    Ok(Some(Err(error))) => {
                        if let Some(heard) = self.broken(version, error) {
                            return heard;
                        }
                    }
                },
            }
        }
    }

    fn keep(&mut self, old: String, object: &K, events: BoxStream<'static, Result<WatchEvent<K>, Error>>) {
        self.tries = 0;
        let version = object.meta().resource_version.clone().unwrap_or(old);
        self.at = At::Open { version, events };
    }

    fn broken(&mut self, version: String, error: Error) -> Option<Heard<K>> {
        if error.reply() == Reply::Expired {
            self.list_again("too old");
            None
        } else {
            self.at = At::Resume { version };
            Some(self.trouble(error))
        }
    }

    fn list_again(&mut self, why: &'static str) {
        debug!(scope = self.scope.what, why, "list again");
        self.tries = self.tries.saturating_add(1);
        self.rest = Some(self.pace.pause(self.tries, None));
        self.at = At::List;
    }

    fn trouble(&mut self, error: Error) -> Heard<K> {
        self.tries = self.tries.saturating_add(1);
        self.rest = Some(self.pace.pause(self.tries, error.reply().retry_after()));
        Heard::Trouble(error)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};
    use step::Mono;

    use super::*;
    use crate::mock::{self, Answer, Calls, Then};

    fn map(name: &str, version: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}})
    }

    fn scope() -> Scope {
        Scope {
            what: "maps".to_owned(),
            path: "/api/v1/configmaps".to_owned(),
            fields: Some("metadata.name=a".to_owned()),
            labels: Some("app!=b".to_owned()),
        }
    }

    fn started(answers: Vec<Answer>) -> (BoxStream<'static, Heard<ConfigMap>>, Calls) {
        let (cluster, calls) = mock::cluster(answers);
        (follow(cluster, scope(), 7).boxed(), calls)
    }

    /// What is heard, in short.
    async fn hear(stream: &mut BoxStream<'static, Heard<ConfigMap>>) -> String {
        let name = |map: ConfigMap| map.metadata.name.unwrap_or_default();
        match stream.next().await.unwrap() {
            Heard::Listed(all) => {
                format!("listed {}", all.into_iter().map(name).collect::<Vec<_>>().join(" "))
            }
            Heard::Put(map) => format!("put {}", name(map)),
            Heard::Gone(map) => format!("gone {}", name(map)),
            Heard::Trouble(error) => error.line(),
        }
    }

    const LIST: &str = "GET /api/v1/configmaps?&fieldSelector=metadata.name%3Da&labelSelector=app%21%3Db";

    fn watch_line(version: &str) -> String {
        format!(
            "GET /api/v1/configmaps?&watch=true&timeoutSeconds=30&fieldSelector=metadata.name%3Da\
             &labelSelector=app%21%3Db&allowWatchBookmarks=true&resourceVersion={version}"
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_and_then_what_changes() {
        let lines = vec![
            mock::event("ADDED", &map("b", "6")),
            mock::event("MODIFIED", &map("b", "7")),
            mock::event("DELETED", &map("b", "8")),
        ];
        let (mut stream, calls) =
            started(vec![mock::list("5", &[map("a", "3")]), Answer::Lines(lines, Then::Silence)]);
        for expected in ["listed a", "put b", "put b", "gone b"] {
            assert_eq!(hear(&mut stream).await, expected);
        }
        assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_or_is_cut_goes_on_where_it_was() {
        for then in [Then::End, Then::Cut] {
            let bookmark =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "9"}});
            let (mut stream, calls) = started(vec![
                mock::list("5", &[]),
                Answer::Lines(vec![mock::event("ADDED", &map("b", "6"))], then),
                Answer::Lines(vec![mock::event("BOOKMARK", &bookmark)], then),
                Answer::Lines(vec![mock::event("ADDED", &map("c", "10"))], Then::Silence),
            ]);
            let mut heard = vec![];
            while heard.last().is_none_or(|last| last != "put c") {
                heard.push(hear(&mut stream).await);
            }
            let facts: Vec<&String> = heard.iter().filter(|text| !text.contains("reset by peer")).collect();
            assert_eq!(facts, ["listed ", "put b", "put c"]);
            assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), watch_line("6"), watch_line("9")]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_too_old_leads_to_a_new_list_however_it_is_said() {
        let gone =
            json!({"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "old"});
        let said =
            [mock::status(410, "old"), Answer::Lines(vec![mock::event("ERROR", &gone)], Then::Silence)];
        for answer in said {
            let (mut stream, calls) = started(vec![
                mock::list("5", &[]),
                answer,
                mock::list("50", &[map("a", "40")]),
                Answer::Lines(vec![], Then::Silence),
            ]);
            assert_eq!(hear(&mut stream).await, "listed ");
            assert_eq!(hear(&mut stream).await, "listed a");
            assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), LIST.to_owned()]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_asked_anew() {
        let now = mock::clock();
        let (mut stream, calls) = started(vec![
            mock::list("5", &[]),
            Answer::Lines(vec![], Then::Silence),
            mock::list("6", &[map("a", "6")]),
        ]);
        assert_eq!(hear(&mut stream).await, "listed ");
        assert_eq!(hear(&mut stream).await, "listed a");
        assert!(now() <= Mono::START + SLOT + MARGIN + Duration::from_secs(1));
        assert_eq!(calls.lines().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_never_opened_is_given_up_and_asked_for_again() {
        let (mut stream, calls) = started(vec![mock::list("5", &[]), Answer::Silence]);
        assert_eq!(hear(&mut stream).await, "listed ");
        assert_eq!(hear(&mut stream).await, "watch maps: no answer within 30 s");
        assert!(timeout(Duration::from_secs(2), stream.next()).await.is_err());
        assert_eq!(calls.lines(), [LIST.to_owned(), watch_line("5"), watch_line("5")]);
    }

    #[tokio::test(start_paused = true)]
    async fn d3_calls_that_fail_are_told_and_repeated_at_growing_distance() {
        let busy = Answer::Full(429, vec![("retry-after", "20")], "busy".to_owned());
        let (mut stream, _) = started(vec![
            Answer::Refused("refused"),
            mock::status(503, "starting"),
            busy,
            mock::list("5", &[]),
        ]);
        let now = mock::clock();
        let mut at = vec![];
        for expected in ["refused", "503: starting", "429: busy", "listed "] {
            let heard = hear(&mut stream).await;
            assert!(heard.ends_with(expected), "{heard}");
            at.push(now());
        }
        let waits: Vec<Duration> = at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(waits[0] <= Duration::from_secs(1) && waits[0] >= Duration::from_millis(500), "{waits:?}");
        assert!(waits[1] <= Duration::from_secs(2), "{waits:?}");
        assert!(waits[2] >= Duration::from_secs(20), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_closes_every_watch_at_once_is_not_asked_in_a_circle() {
        let mut answers = vec![mock::list("5", &[])];
        answers.extend((0..1000).map(|_| Answer::Lines(vec![], Then::End)));
        let (mut stream, calls) = started(answers);
        assert_eq!(hear(&mut stream).await, "listed ");
        assert!(timeout(Duration::from_secs(60), stream.next()).await.is_err());
        assert!(calls.lines().len() <= 122, "{}", calls.lines().len());
    }
}
