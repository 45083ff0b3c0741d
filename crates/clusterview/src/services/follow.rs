//! One collection kept up to date by a watch, reduced to facts.
//!
//! Not here: how a watch survives (`kubeapi::watch`). A collection is unknown before its first list, and
//! keeps its content while calls fail: a firewall does not close because an API server is away (D-V10,
//! D-V11).

use futures::stream::{BoxStream, StreamExt as _};
use kubeapi::ApiClient;
use kubeapi::watch::{FollowNews, Manner, Update, WatchScope, follow_in};
use tracing::{debug, info, warn};

use crate::collections::{FactItem, ObjectFact, ObjectTable, SLOT};

/// Dropping it closes the watch.
pub(super) struct FollowedTable<T> {
    what: String,
    known: Option<ObjectTable<T>>,
    stream: BoxStream<'static, FollowNews<FactItem<T>>>,
    failing: bool,
}

impl<T: ObjectFact> FollowedTable<T> {
    /// The first call is made by the first [`FollowedTable::changed`].
    pub(super) fn open(cluster: &ApiClient, scope: WatchScope, seed: u64) -> Self {
        let what = scope.what.clone();
        Self {
            what,
            known: None,
            stream: follow_in(cluster.clone(), scope, Manner { slot: SLOT, ..Manner::default() }, seed)
                .boxed(),
            failing: false,
        }
    }

    /// `None` before the first list.
    pub(super) const fn known(&self) -> Option<&ObjectTable<T>> {
        self.known.as_ref()
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Waits until the objects change, or cannot be read before the first list. Dropping it loses nothing.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(news) = self.stream.next().await else { std::future::pending().await };
            let changed = match news {
                FollowNews::Update(Update::Trouble(error)) => {
                    let (error, next_step) = (error.line(), error.next_step());
                    if self.failing {
                        debug!(error, "still cannot follow {}", self.what);
                    } else {
                        warn!(error, next_step, "cannot follow {}: what was published stays", self.what);
                    }
                    if !std::mem::replace(&mut self.failing, true) && self.known.is_none() {
                        return;
                    }
                    continue;
                }
                FollowNews::Recovered => false,
                FollowNews::Update(Update::Listed(all)) => {
                    let mut now = ObjectTable::new();
                    now.extend(all.into_iter().map(|it| (it.key, it.fact)));
                    step::update(&mut self.known, Some(now))
                }
                FollowNews::Update(Update::Put(one)) => {
                    let known = self.known.get_or_insert_default();
                    let changed = known.get(&one.key) != Some(&one.fact);
                    known.insert(one.key, one.fact);
                    changed
                }
                FollowNews::Update(Update::Gone(one)) => {
                    self.known.as_mut().is_some_and(|known| known.remove(&one.key).is_some())
                }
            };
            if std::mem::take(&mut self.failing) {
                info!("{}: followed again", self.what);
            }
            if changed {
                return;
            }
        }
    }
}
