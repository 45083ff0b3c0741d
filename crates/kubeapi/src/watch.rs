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
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use crate::client::{self, Cluster, Question};
use crate::error::Error;
use crate::pace::Pace;
use crate::reply::Reply;
use crate::settling::now;

/// How long the server is asked to keep one watch open. Short, since a dead connection is noticed only
/// [`MARGIN`] after it.
pub const SLOT: Duration = Duration::from_secs(30);
/// How much longer than its slot a watch may be silent before the connection is given up, but see [`QUIET`].
pub const MARGIN: Duration = Duration::from_secs(5);

/// After so long without anything heard all is listed again, however often the watch was opened meanwhile: servers send
/// a bookmark each minute and before the end of a slot. The connection is dead; or the store was restored from a
/// snapshot and has not reached the version yet from which on we hear.
pub const QUIET: Duration = Duration::from_secs(150);

/// Objects of one page of a list: of large pods it has a few megabytes.
const PAGE: u32 = 200;

/// What is followed.
#[derive(Debug, Clone)]
pub struct Scope {
    /// For errors and logs, as "pods of node n".
    pub what: String,
    /// The collection's path.
    pub path: String,
    /// Field selector.
    pub fields: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
}

impl Scope {
    /// All objects of the collection at `path`.
    pub fn all(what: impl Into<String>, path: String) -> Self {
        Self { what: what.into(), path, fields: None, labels: None }
    }

    /// All objects of one moment, read from the store page by page. When later pages have become too old meanwhile,
    /// everything is read in one call.
    ///
    /// # Errors
    /// Those of [`Cluster`].
    pub async fn list_all<K>(&self, cluster: &Cluster) -> Result<ObjectList<K>, Error>
    where
        K: Clone + DeserializeOwned,
    {
        let what = format!("list {}", self.what);
        let mut all: ObjectList<K> = cluster.ask(&what, self.page(Some(PAGE), None)).await?;
        while let Some(next) = all.metadata.continue_.take().filter(|next| !next.is_empty()) {
            match cluster.ask::<ObjectList<K>>(&what, self.page(Some(PAGE), Some(next))).await {
                Ok(page) => {
                    all.items.extend(page.items);
                    all.metadata.continue_ = page.metadata.continue_;
                }
                Err(error) if error.reply() == Reply::Expired => {
                    debug!(scope = self.what, "a page is too old, all is listed at once");
                    return cluster.ask(&what, self.page(None, None)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// A list that is read from the store and not from a cache of any age: no resource version. At most `limit`
    /// objects, after those of the page that named `next`.
    fn page(&self, limit: Option<u32>, next: Option<String>) -> Question {
        Request::new(self.path.as_str()).list(&ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            limit,
            continue_token: next,
            ..ListParams::default()
        })
    }

    fn watch(&self, version: &str, slot: Duration) -> Question {
        let how = WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: u32::try_from(slot.as_secs()).ok(),
            ..WatchParams::default()
        };
        Request::new(self.path.as_str()).watch(&how, version)
    }
}

/// What a follower hears.
#[derive(Debug)]
pub enum Update<K> {
    /// Everything that is there; what was there before and is not in it is gone.
    Listed(Vec<K>),
    /// One object as it is now.
    Put(K),
    /// One object as it was when it went.
    Gone(K),
    /// A call failed; the follower tries again by itself.
    Trouble(Error),
}

/// How a collection is followed.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How long the server is asked to keep one watch open.
    pub slot: Duration,
    /// Objects of one list call.
    pub page: u32,
}

impl Default for Manner {
    fn default() -> Self {
        Self { slot: SLOT, page: PAGE }
    }
}

/// What a follower tells that is asked about its calls as well.
#[derive(Debug)]
pub enum News<K> {
    /// What every follower hears.
    Update(Update<K>),
    /// The watch that was in trouble continues; nothing was missed.
    Recovered,
}

/// The pages of a list so far.
struct Pages<K> {
    objects: Vec<K>,
    /// What the next page is asked by.
    next: String,
    /// The version of the first page: what changed since then is told by the watch, whatever later pages held.
    version: String,
}

enum At<K> {
    List(Option<Pages<K>>),
    Resume { version: String },
    Open { version: String, events: BoxStream<'static, Result<WatchEvent<K>, Error>> },
}

struct Follower<K> {
    cluster: Cluster,
    scope: Scope,
    manner: Manner,
    pace: Pace,
    /// Trouble was told, and nothing good since.
    troubled: bool,
    /// Failures in a row.
    tries: u32,
    /// Wait before the next call.
    rest: Option<Duration>,
    /// [`QUIET`] after anything was heard of the collection.
    quiet: Instant,
    at: At<K>,
}

/// Follows `scope` for as long as the stream is kept; it never ends. Dropping it closes the connection and loses
/// nothing, as a new one starts with a list.
pub fn follow<K>(cluster: Cluster, scope: Scope, seed: u64) -> impl Stream<Item = Update<K>> + Send
where
    K: Object,
{
    follow_in(cluster, scope, Manner::default(), seed).filter_map(|news| {
        std::future::ready(match news {
            News::Update(heard) => Some(heard),
            News::Recovered => None,
        })
    })
}

/// [`follow`] in another manner, with news of the calls themselves.
pub fn follow_in<K>(
    cluster: Cluster,
    scope: Scope,
    manner: Manner,
    seed: u64,
) -> impl Stream<Item = News<K>> + Send
where
    K: Object,
{
    let follower = Follower {
        cluster,
        scope,
        manner,
        pace: Pace::new(seed),
        troubled: false,
        tries: 0,
        rest: None,
        quiet: now() + QUIET,
        at: At::List(None),
    };
    stream::unfold(follower, |mut follower| async move {
        let news = follower.next().await;
        Some((news, follower))
    })
}

/// What the follower needs to know of an object.
pub trait Object: Clone + Debug + DeserializeOwned + Send + 'static {
    /// Its version, if it has one.
    fn version(&self) -> Option<&str>;
}

impl<K> Object for K
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    fn version(&self) -> Option<&str> {
        self.metadata().resource_version.as_deref()
    }
}

impl<K: Object> Follower<K> {
    async fn next(&mut self) -> News<K> {
        loop {
            if let Some(rest) = self.rest.take() {
                sleep(rest).await;
            }
            match std::mem::replace(&mut self.at, At::List(None)) {
                At::List(pages) => {
                    if let Some(heard) = self.page(pages).await {
                        return News::Update(heard);
                    }
                }
                At::Resume { version } => {
                    let what = format!("watch {}", self.scope.what);
                    let request = self.scope.watch(&version, self.manner.slot);
                    match self.cluster.watch::<K>(&what, request).await {
                        Ok(events) => {
                            self.at = At::Open { version, events };
                            if std::mem::take(&mut self.troubled) {
                                // An error is no silence: what has changed meanwhile is still to come.
                                self.quiet = now() + QUIET;
                                return News::Recovered;
                            }
                        }
                        Err(error) if error.reply() == Reply::Expired => self.list_again("too old"),
                        Err(error) => {
                            self.at = At::Resume { version };
                            return News::Update(self.trouble(error));
                        }
                    }
                }
                At::Open { version, mut events } => {
                    let until = self.quiet.min(now() + self.manner.slot + MARGIN);
                    match timeout_at(until, events.next()).await.ok() {
                        None => self.list_again("silent"),
                        Some(None) => {
                            // The end of a slot or a cut: both continue where they were, after a short rest, so that
                            // a server that closes at once is not asked in a circle.
                            self.rest = Some(self.pace.pause(1, None));
                            self.at = At::Resume { version };
                        }
                        Some(Some(Ok(WatchEvent::Bookmark(mark)))) => {
                            self.hears();
                            self.at = At::Open { version: mark.metadata.resource_version, events };
                        }
                        Some(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => {
                            self.keep(version, &object, events);
                            return News::Update(Update::Put(object));
                        }
                        Some(Some(Ok(WatchEvent::Deleted(object)))) => {
                            self.keep(version, &object, events);
                            return News::Update(Update::Gone(object));
                        }
                        Some(Some(Ok(WatchEvent::Error(status)))) => {
                            let error = client::from_library(&self.scope.what, "", kube::Error::Api(status));
                            if let Some(heard) = self.broken(version, error) {
                                return News::Update(heard);
                            }
                        }
                        Some(Some(Err(error))) => {
                            if let Some(heard) = self.broken(version, error) {
                                return News::Update(heard);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Asks for the first page or for the one after `pages`; something is heard after the last one.
    async fn page(&mut self, pages: Option<Pages<K>>) -> Option<Update<K>> {
        let what = format!("list {}", self.scope.what);
        let (mut objects, next, version) = match pages {
            Some(Pages { objects, next, version }) => (objects, Some(next), Some(version)),
            None => (Vec::new(), None, None),
        };
        let later = next.is_some();
        match self.cluster.ask::<ObjectList<K>>(&what, self.scope.page(Some(self.manner.page), next)).await {
            Ok(list) => {
                objects.extend(list.items);
                let version = version.or(list.metadata.resource_version).unwrap_or_default();
                if let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) {
                    self.at = At::List(Some(Pages { objects, next, version }));
                    return None;
                }
                self.hears();
                self.troubled = false;
                self.at = At::Resume { version };
                Some(Update::Listed(objects))
            }
            Err(error) if later && error.reply() == Reply::Expired => {
                self.list_again("too old");
                None
            }
            Err(error) => Some(self.trouble(error)),
        }
    }

    /// Something of the collection was heard.
    fn hears(&mut self) {
        self.tries = 0;
        self.quiet = now() + QUIET;
    }

    fn keep(&mut self, old: String, object: &K, events: BoxStream<'static, Result<WatchEvent<K>, Error>>) {
        self.hears();
        let version = object.version().map_or(old, str::to_owned);
        self.at = At::Open { version, events };
    }

    fn broken(&mut self, version: String, error: Error) -> Option<Update<K>> {
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
        self.at = At::List(None);
    }

    fn trouble(&mut self, error: Error) -> Update<K> {
        self.troubled = true;
        self.tries = self.tries.saturating_add(1);
        self.rest = Some(self.pace.pause(self.tries, error.reply().retry_after()));
        Update::Trouble(error)
    }
}

#[cfg(test)]
mod tests;
