//! The facts of a cluster and the state of their parts, kept up to date.
//!
//! Not here: publication.

use std::borrow::Cow;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use step::Mono;

use super::facts::ClusterFacts;
use super::follow::{self, CollectionNews, NewsContent};
use super::parts::{Collection, Parts};
use kubeapi::ApiClient;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartUpdate {
    pub part: Collection,
    pub content: bool,
    pub state: bool,
}

/// Dropping it closes all watches.
pub struct Gathering {
    facts: ClusterFacts,
    pub parts: Parts,
    streams: SelectAll<BoxStream<'static, CollectionNews>>,
}

impl Gathering {
    /// Empty; the first call is made by the first [`Gathering::next`]. Different seeds do not ask in step.
    pub fn open(cluster: &ApiClient, seed: u64) -> Self {
        Self { facts: ClusterFacts::default(), parts: Parts::default(), streams: follow::all(cluster, seed) }
    }

    /// The facts without expired parts. These are kept all the same: a watch that continues after a long
    /// failure does not list again.
    pub fn facts(&self) -> Cow<'_, ClusterFacts> {
        let expired = self.parts.expired();
        if expired.is_empty() {
            return Cow::Borrowed(&self.facts);
        }
        let mut facts = self.facts.clone();
        for part in expired {
            follow::empty(&mut facts, *part);
        }
        Cow::Owned(facts)
    }

    /// Waits for the next update, and applies it. Nothing is received otherwise; dropping the wait loses
    /// nothing.
    pub async fn next(&mut self, now: impl Fn() -> Mono) -> PartUpdate {
        let Some(CollectionNews { part, what }) = self.streams.next().await else {
            std::future::pending().await
        };
        let was_expired = self.parts.expired().contains(&part);
        let (content, state) = match what {
            NewsContent::Content(change) => (change(&mut self.facts) || was_expired, self.parts.well(part)),
            NewsContent::Recovered => (was_expired, self.parts.well(part)),
            NewsContent::Absent => (follow::empty(&mut self.facts, part), self.parts.absent(part)),
            NewsContent::Failed { error, next_step } => {
                (false, self.parts.failed(part, now(), error, next_step))
            }
        };
        PartUpdate { part, content, state }
    }
}
