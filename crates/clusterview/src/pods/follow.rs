//! Follows the pods of applications.
//!
//! Not here: how a watch survives (`watch`). One watch is open for 30 s, so that a silently lost API server
//! is noticed soon: a status must say within minutes that it cannot be reached.

use std::collections::BTreeMap;

use futures::stream::{BoxStream, StreamExt};

use super::pod::{AppPod, AppPodItem};
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::watch::{FollowNews, Manner, SLOT, Update, WatchScope, follow_in};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodsUpdate {
    /// The pods are up to date.
    Known,
    /// A call failed; it is retried without end.
    Failing { error: String, next_step: String },
}

/// Dropping it closes the watch.
pub struct Pods {
    known: BTreeMap<String, AppPod>,
    stream: BoxStream<'static, FollowNews<AppPodItem>>,
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pods").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Pods {
    /// Empty; the first call is made by the first [`Pods::next`].
    pub fn open(cluster: &ApiClient, seed: u64) -> Self {
        let scope = WatchScope {
            what: "pods of applications".to_owned(),
            path: format!("/api/v1/namespaces/{APP_NAMESPACE}/pods"),
            fields: None,
            labels: None,
        };
        let manner = Manner { slot: SLOT, ..Manner::default() };
        Self { known: BTreeMap::new(), stream: follow_in(cluster.clone(), scope, manner, seed).boxed() }
    }

    /// Waits for the next update, and applies it. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> PodsUpdate {
        let Some(news) = self.stream.next().await else { std::future::pending().await };
        match news {
            FollowNews::Recovered => {}
            FollowNews::Update(Update::Listed(all)) => {
                self.known.clear();
                self.known.extend(all.into_iter().map(|it| (it.pod.name.clone(), it.pod)));
            }
            FollowNews::Update(Update::Put(one)) => {
                self.known.insert(one.pod.name.clone(), one.pod);
            }
            FollowNews::Update(Update::Gone(one)) => {
                self.known.remove(&one.pod.name);
            }
            FollowNews::Update(Update::Trouble(error)) => {
                return PodsUpdate::Failing { error: error.line(), next_step: error.next_step() };
            }
        }
        PodsUpdate::Known
    }

    /// As last received.
    pub fn known(&self) -> impl Iterator<Item = &AppPod> {
        self.known.values()
    }
}
