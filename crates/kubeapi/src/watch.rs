//! Following a collection: one list, then a watch that survives failures of servers and networks.
//!
//! Not here: what the objects mean. Sources: the Kubernetes page "API Concepts" (watch, 410, bookmarks); kube's
//! own watcher is not used because it hides replies and reads no Retry-After.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::de::DeserializeOwned;
use step::{Inserted as _, LiteMap};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use crate::client::{self, ApiClient, BuiltRequest};
use crate::error::Error;
use crate::pace::Pace;
use crate::reply::{Reply, ReplyClass};
use crate::settling::now;

mod events;

use events::{Events, Head, ObjectSink, Objects, WatchLine, WatchVerb};

/// How long the server is asked to keep one watch open. Short, because a dead connection is noticed only
/// [`MARGIN`] later.
pub const SLOT: Duration = Duration::from_secs(30);
/// How long after its slot a silent watch is kept, but see [`QUIET`].
pub const MARGIN: Duration = Duration::from_secs(5);

/// After so long without any line everything is listed again, however often the watch was reopened: servers
/// send a bookmark each minute and before the end of a slot. So the connection is dead; or the store was
/// restored from a snapshot beside a server that did not end, and has not reached our version yet.
pub const QUIET: Duration = Duration::from_secs(150);

/// Objects per page of a list: the most pods that a kubelet usually takes; of large ones a few megabytes.
const PAGE: u32 = 250;

/// Differs between processes and calls; for jitter only.
pub fn jitter_seed() -> u64 {
    RandomState::new().hash_one("jitter")
}

#[derive(Debug, Clone)]
pub struct WatchScope {
    /// For errors and logs, as "pods of node n".
    pub what: String,
    pub path: String,
    pub fields: Option<String>,
    pub labels: Option<String>,
}

impl WatchScope {
    pub fn all(what: impl Into<String>, path: String) -> Self {
        Self { what: what.into(), path, fields: None, labels: None }
    }

    /// The object of this name.
    pub fn one(what: impl Into<String>, path: String, name: &str) -> Self {
        Self { fields: Some(format!("metadata.name={name}")), ..Self::all(what, path) }
    }

    /// All objects at one moment, read from the store in pages. When later pages have expired, everything is
    /// read in one call.
    pub async fn list_all<K>(&self, cluster: &ApiClient) -> Result<List<K>, Error>
    where
        K: DeserializeOwned + Send,
    {
        let mut objects = Objects(Vec::new());
        let version = self.pages(cluster, &mut objects).await?;
        Ok(List { items: objects.0, version })
    }

    /// The same for a kind that may not be installed: `None` where it is not.
    pub async fn list_installed<K>(&self, cluster: &ApiClient) -> Result<Option<Vec<K>>, Error>
    where
        K: DeserializeOwned + Send,
    {
        Ok(crate::found(self.list_all(cluster).await)?.map(|it| it.items))
    }

    /// In a box, so that its code is in the program once and not once for each crate that lists something.
    fn pages<'a>(
        &'a self,
        cluster: &'a ApiClient,
        kind: &'a mut dyn ObjectSink,
    ) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(self.each_page(cluster, kind))
    }

    async fn each_page(&self, cluster: &ApiClient, kind: &mut dyn ObjectSink) -> Result<String, Error> {
        let mut page = self.list(cluster, Some(PAGE), None, kind).await?;
        while let Some(next) = page.next.take() {
            match self.list(cluster, Some(PAGE), Some(next), kind).await {
                Ok(later) => page.next = later.next,
                Err(error) if error.reply() == Reply::Expired => {
                    debug!(scope = self.what, "a page is too old, all is listed at once");
                    kind.clear();
                    page = self.list(cluster, None, None, kind).await?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(page.resource_version.unwrap_or_default())
    }

    async fn list(
        &self,
        cluster: &ApiClient,
        limit: Option<u32>,
        next: Option<String>,
        kind: &mut dyn ObjectSink,
    ) -> Result<Head, Error> {
        let what = format!("list {}", self.what);
        let body = cluster.read(&what, self.page(limit, next)).await?;
        events::page(&body, kind).map_err(|source| Error::Garbled { what, source })
    }

    /// Read from the store and not from a stale cache: no resource version. At most `limit` objects, after
    /// the page that named `next`.
    fn page(&self, limit: Option<u32>, next: Option<String>) -> BuiltRequest {
        Request::new(self.path.as_str()).list(&ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            limit,
            continue_token: next,
            ..ListParams::default()
        })
    }

    fn watch(&self, version: &str, slot: Duration) -> BuiltRequest {
        let how = WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: u32::try_from(slot.as_secs()).ok(),
            ..WatchParams::default()
        };
        Request::new(self.path.as_str()).watch(&how, version)
    }
}

#[derive(Debug)]
pub struct List<K> {
    pub items: Vec<K>,
    /// The collection's version then, of the first page where there were several.
    pub version: String,
}

#[derive(Debug)]
pub enum Update<K> {
    /// Everything that exists; earlier objects that are missing are gone.
    Listed(Vec<K>),
    /// One object as it is now.
    Put(K),
    /// One object as it was when it went.
    Gone(K),
    /// A call failed; the follower retries by itself.
    Trouble(Error),
}

impl<K> Update<K> {
    /// Applies it to `table`; `keep` gives the name of an object and what is kept of it. Returns whether the table changed.
    /// Errors: the trouble in it; the table stays as it is.
    pub fn into_table<N: Ord, V: PartialEq>(
        self,
        table: &mut LiteMap<N, V>,
        keep: impl Fn(K) -> (N, Option<V>),
    ) -> Result<bool, Error> {
        let kept = |(name, kept): (N, Option<V>)| Some((name, kept?));
        Ok(match self {
            Self::Listed(all) => step::update(table, all.into_iter().map(keep).filter_map(kept).into_lite()),
            Self::Put(one) => match keep(one) {
                (name, Some(kept)) => {
                    let changed = table.get(&name) != Some(&kept);
                    table.insert(name, kept);
                    changed
                }
                (name, None) => table.remove(&name).is_some(),
            },
            Self::Gone(one) => table.remove(&keep(one).0).is_some(),
            Self::Trouble(error) => return Err(error),
        })
    }

    /// The one object that is followed, as it is now; `None` if it does not exist.
    /// Errors: the trouble in it.
    pub fn one(self, is: impl Fn(&K) -> bool) -> Result<Option<K>, Error> {
        match self {
            Self::Listed(all) => Ok(all.into_iter().find(is)),
            Self::Put(one) => Ok(Some(one)),
            Self::Gone(_) => Ok(None),
            Self::Trouble(error) => Err(error),
        }
    }
}

/// How a collection is followed.
#[derive(Debug, Clone)]
pub struct Manner {
    /// The version that the caller has read: the follower starts without a list.
    pub from: Option<String>,
    pub slot: Duration,
    /// Objects of one list call.
    pub page: u32,
}

impl Default for Manner {
    fn default() -> Self {
        Self { from: None, slot: SLOT, page: PAGE }
    }
}

#[derive(Debug)]
pub enum FollowNews<K> {
    Update(Update<K>),
    /// The watch works again; nothing was missed.
    Recovered,
}

enum FollowEvent {
    Listed,
    Put,
    Gone,
    Trouble(Error),
    Recovered,
}

struct Pages {
    /// Continue token.
    next: String,
    /// The version of the first page: the watch reports all later changes, whatever later pages held.
    version: String,
}

enum FollowStep {
    List(Option<Pages>),
    Resume { version: String },
    Open { version: String, events: Events },
}

struct Follower {
    cluster: ApiClient,
    scope: WatchScope,
    manner: Manner,
    pace: Pace,
    /// Trouble was reported, and no recovery since.
    troubled: bool,
    tries: u32,
    rest: Option<Duration>,
    /// [`QUIET`] after the last line.
    quiet: Instant,
    opened: Instant,
    at: FollowStep,
}

/// Follows `scope` until it is dropped; it never ends. Dropping it closes the connection and loses nothing,
/// because a new one starts with a list.
pub fn follow<K: DeserializeOwned + Send + 'static>(
    cluster: ApiClient,
    scope: WatchScope,
    seed: u64,
) -> impl Stream<Item = Update<K>> + Send {
    follow_from(cluster, scope, Manner::default(), seed)
}

pub fn follow_from<K: DeserializeOwned + Send + 'static>(
    cluster: ApiClient,
    scope: WatchScope,
    manner: Manner,
    seed: u64,
) -> impl Stream<Item = Update<K>> + Send {
    follow_in(cluster, scope, manner, seed).filter_map(|news| {
        std::future::ready(match news {
            FollowNews::Update(heard) => Some(heard),
            FollowNews::Recovered => None,
        })
    })
}

pub fn follow_in<K: DeserializeOwned + Send + 'static>(
    cluster: ApiClient,
    scope: WatchScope,
    manner: Manner,
    seed: u64,
) -> impl Stream<Item = FollowNews<K>> + Send {
    stream::unfold(Followed::new(cluster, scope, manner, seed), |mut followed| async move {
        Some((followed.next().await, followed))
    })
}

/// A table of what is kept of the objects of a collection, kept up to date by a watch. It keeps its content while calls fail.
/// Dropping it closes the watch.
pub struct ObjectMirror<K, N, V> {
    known: Option<LiteMap<N, V>>,
    keep: Box<dyn Fn(K) -> (N, Option<V>) + Send + Sync>,
    news: BoxStream<'static, FollowNews<K>>,
    troubled: bool,
}

impl<K, N, V> ObjectMirror<K, N, V>
where
    K: DeserializeOwned + Send + 'static,
    N: Ord + Send + Sync + 'static,
    V: PartialEq + Send + Sync + 'static,
{
    /// The first call is made when [`ObjectMirror::changed`] is first polled. `keep` as in [`Update::into_table`].
    pub fn open(
        cluster: &ApiClient,
        scope: WatchScope,
        manner: Manner,
        seed: u64,
        keep: impl Fn(K) -> (N, Option<V>) + Send + Sync + 'static,
    ) -> Self {
        let news = follow_in(cluster.clone(), scope, manner, seed).boxed();
        Self { known: None, keep: Box::new(keep), news, troubled: false }
    }

    /// `None` before the first list.
    pub const fn known(&self) -> Option<&LiteMap<N, V>> {
        self.known.as_ref()
    }

    /// Waits for the next news. Returns whether the table changed, or was read again after trouble; false when a watch merely
    /// continues. Dropping the wait loses nothing.
    /// Errors: the trouble of the watch; the next wait tries again.
    pub async fn changed(&mut self) -> Result<bool, Error> {
        let Some(news) = self.news.next().await else { std::future::pending().await };
        let update = match news {
            FollowNews::Recovered => return Ok(false),
            FollowNews::Update(Update::Trouble(error)) => {
                self.troubled = true;
                return Err(error);
            }
            FollowNews::Update(update) => update,
        };
        let first = self.known.is_none() || std::mem::take(&mut self.troubled);
        Ok(update.into_table(self.known.get_or_insert_default(), &self.keep)? || first)
    }

    /// What `show` makes of the table at each change, and each trouble. The stream never ends.
    pub fn changes<T, S>(self, show: S) -> BoxStream<'static, Result<T, Error>>
    where
        T: Send + 'static,
        S: Fn(&LiteMap<N, V>) -> T + Send + Sync + 'static,
    {
        let next = |(mut mirror, show): (Self, S)| async move {
            loop {
                let item = match mirror.changed().await {
                    Ok(false) => continue,
                    Ok(true) => Ok(show(mirror.known.get_or_insert_default())),
                    Err(error) => Err(error),
                };
                return Some((item, (mirror, show)));
            }
        };
        stream::unfold((self, show), next).boxed()
    }
}

/// A follower of objects of one kind.
struct Followed<K> {
    follower: Follower,
    objects: Objects<K>,
}

impl<K: DeserializeOwned + Send> Followed<K> {
    fn new(cluster: ApiClient, scope: WatchScope, mut manner: Manner, seed: u64) -> Self {
        let from = manner.from.take().filter(|it| !it.is_empty());
        let follower = Follower {
            cluster,
            scope,
            manner,
            pace: Pace::new(seed),
            troubled: false,
            tries: 0,
            rest: None,
            quiet: now() + QUIET,
            opened: now(),
            at: from.map_or(FollowStep::List(None), |version| FollowStep::Resume { version }),
        };
        Self { follower, objects: Objects(Vec::new()) }
    }

    async fn next(&mut self) -> FollowNews<K> {
        loop {
            let heard = self.follower.next(&mut self.objects).await;
            let mut objects = std::mem::take(&mut self.objects.0);
            let update = match heard {
                FollowEvent::Listed => Some(Update::Listed(objects)),
                FollowEvent::Put => objects.pop().map(Update::Put),
                FollowEvent::Gone => objects.pop().map(Update::Gone),
                FollowEvent::Trouble(error) => Some(Update::Trouble(error)),
                FollowEvent::Recovered => return FollowNews::Recovered,
            };
            if let Some(update) = update {
                return FollowNews::Update(update);
            }
        }
    }
}

impl Follower {
    /// In a box, so that its code is in the program once and not once for each crate that follows something.
    fn next<'a>(&'a mut self, kind: &'a mut dyn ObjectSink) -> BoxFuture<'a, FollowEvent> {
        Box::pin(self.step(kind))
    }

    async fn step(&mut self, kind: &mut dyn ObjectSink) -> FollowEvent {
        loop {
            if let Some(rest) = self.rest.take() {
                sleep(rest).await;
            }
            match std::mem::replace(&mut self.at, FollowStep::List(None)) {
                FollowStep::List(pages) => {
                    if let Some(heard) = self.page(pages, kind).await {
                        return heard;
                    }
                }
                FollowStep::Resume { version } => {
                    let what = format!("watch {}", self.scope.what);
                    let request = self.scope.watch(&version, self.manner.slot);
                    match self.cluster.watch(&what, request).await {
                        Ok(body) => {
                            self.opened = now();
                            self.at = FollowStep::Open { version, events: Events::new(body) };
                            if std::mem::take(&mut self.troubled) {
                                // An error is no silence: later changes are still to come.
                                self.quiet = now() + QUIET;
                                return FollowEvent::Recovered;
                            }
                        }
                        Err(error) if error.reply() == Reply::Expired => self.list_again("too old"),
                        Err(error) => return self.trouble(error, Some(version)),
                    }
                }
                FollowStep::Open { version, mut events } => {
                    let until = self.quiet.min(now() + self.manner.slot + MARGIN);
                    let read = match timeout_at(until, events.next()).await.ok() {
                        None => {
                            self.list_again("silent");
                            continue;
                        }
                        Some(None) => {
                            // The end of a slot or a cut: both continue where they were, after a short rest
                            // where it was early, so that a server that closes at once is not asked in a
                            // loop.
                            let lasted = now().duration_since(self.opened) >= self.manner.slot / 2;
                            self.rest = (!lasted).then(|| self.pace.pause(1, None));
                            self.at = FollowStep::Resume { version };
                            continue;
                        }
                        Some(Some(Ok(line))) => self.line(line, kind),
                        Some(Some(Err(cut))) => Err(self.cluster.cut(&self.what(), cut)),
                    };
                    match read {
                        Ok((newer, heard)) => {
                            self.tries = 0;
                            self.quiet = now() + QUIET;
                            self.at = FollowStep::Open { version: newer.unwrap_or(version), events };
                            if let Some(heard) = heard {
                                return heard;
                            }
                        }
                        Err(error) if error.reply() == Reply::Expired => self.list_again("too old"),
                        Err(error) => return self.trouble(error, Some(version)),
                    }
                }
            }
        }
    }

    fn what(&self) -> String {
        format!("watch {}", self.scope.what)
    }

    fn line(
        &self,
        line: &[u8],
        kind: &mut dyn ObjectSink,
    ) -> Result<(Option<String>, Option<FollowEvent>), Error> {
        let garbled = |source| Error::Garbled { what: self.what(), source };
        let WatchLine { verb, object } = serde_json::from_slice(line).map_err(garbled)?;
        let heard = match verb {
            WatchVerb::Bookmark => None,
            WatchVerb::Added | WatchVerb::Modified => Some(FollowEvent::Put),
            WatchVerb::Deleted => Some(FollowEvent::Gone),
            WatchVerb::Error => return Err(client::failure(&self.what(), object.get())),
        };
        if heard.is_some() {
            kind.keep(object).map_err(garbled)?;
        }
        Ok((events::version(object), heard))
    }

    /// Requests the first page or the one after `pages`; an event follows the last one.
    async fn page(&mut self, pages: Option<Pages>, kind: &mut dyn ObjectSink) -> Option<FollowEvent> {
        let (next, version) = match pages {
            Some(Pages { next, version }) => (Some(next), Some(version)),
            None => (None, None),
        };
        let later = next.is_some();
        match self.scope.list(&self.cluster, Some(self.manner.page), next, kind).await {
            Ok(list) => {
                let version = version.or(list.resource_version).unwrap_or_default();
                if let Some(next) = list.next {
                    self.at = FollowStep::List(Some(Pages { next, version }));
                    return None;
                }
                self.tries = 0;
                self.quiet = now() + QUIET;
                self.troubled = false;
                self.at = FollowStep::Resume { version };
                Some(FollowEvent::Listed)
            }
            Err(error) => {
                kind.clear();
                if later && error.reply() == Reply::Expired {
                    self.list_again("too old");
                    return None;
                }
                Some(self.trouble(error, None))
            }
        }
    }

    fn list_again(&mut self, why: &'static str) {
        debug!(scope = self.scope.what, why, "list again");
        self.tries = self.tries.saturating_add(1);
        self.rest = Some(self.pace.pause(self.tries, None));
        self.at = FollowStep::List(None);
    }

    /// Continues from `version` where a server refuses us or has too much to do. Else all is listed: the server was away,
    /// or has just begun (which `reach` does not say), and its store may have been restored, which a watch never reports
    /// once that has caught up. Or a line cannot be read: it would come again though its object may have changed.
    fn trouble(&mut self, error: Error, version: Option<String>) -> FollowEvent {
        self.troubled = true;
        let reply = error.reply();
        let is_there = error.is_refused() || reply.class() == ReplyClass::Throttle;
        if let Some(version) = version.filter(|_| is_there) {
            self.at = FollowStep::Resume { version };
        }
        self.tries = self.tries.saturating_add(1);
        self.rest = Some(self.pace.pause(self.tries, reply.retry_after()));
        FollowEvent::Trouble(error)
    }
}

#[cfg(test)]
mod tests;
