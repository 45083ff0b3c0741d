//! The floor: the fewest calls that empty the node, by hand. One list, one watch, evictions 32 at a time; behind a
//! budget also a watch of it, and an eviction whenever it has room. No cordon is looked after, nothing is proved.

use std::collections::BTreeSet;
use std::path::Path;

use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ObjectList, Request, WatchEvent};
use kube::{Client, Config, Resource as _};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::case::{Case, NAMESPACE, NODE};
use crate::server::took;

const AT_ONCE: usize = 32;

/// As much of a pod as is needed.
#[derive(Clone, Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl Named {
    fn name(&self) -> String {
        self.metadata.name.clone().unwrap()
    }
}

/// A client of this kubeconfig.
pub(crate) async fn client(file: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(file).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a bench is its own door to the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) async fn drain(case: Case, file: &Path) {
    let begin = now();
    let client = client(file).await;
    let here = format!("spec.nodeName={NODE}");
    let pods = Request::new(Pod::url_path(&(), Some(NAMESPACE)));
    let list = pods.list(&ListParams::default().fields(&here)).unwrap();
    let all: ObjectList<Named> = client.request(list).await.unwrap();
    assert_eq!(all.items.len(), case.pods);
    let version = all.metadata.resource_version.unwrap();
    let watch = pods.watch(&WatchParams::default().fields(&here), &version).unwrap();
    let mut gone = client.request_events::<Named>(watch).await.unwrap().boxed();
    let mut left: BTreeSet<String> = all.items.iter().map(Named::name).collect();
    let until_gone = async {
        while !left.is_empty() {
            if let Some(WatchEvent::Deleted(pod)) = gone.try_next().await.unwrap() {
                left.remove(&pod.name());
            }
        }
    };
    if case.guarded {
        tokio::join!(one_by_one(&client, &all.items), until_gone);
    } else {
        let evictions = stream::iter(&all.items).map(|pod| evict(&client, pod));
        let evicted = evictions.buffer_unordered(AT_ONCE).for_each(|done| async move { assert!(done) });
        tokio::join!(evicted, until_gone);
    }
    took(begin.elapsed());
}

/// Whenever the budget has room, the next pod.
async fn one_by_one(client: &Client, pods: &[Named]) {
    let budgets = Request::new(PodDisruptionBudget::url_path(&(), Some(NAMESPACE)));
    let watch = budgets.watch(&WatchParams::default(), "0").unwrap();
    let mut changes = client.request_events::<PodDisruptionBudget>(watch).await.unwrap().boxed();
    let mut next = pods.iter();
    let mut waiting = next.next();
    while waiting.is_some() {
        let change = changes.try_next().await.unwrap().unwrap();
        let (WatchEvent::Added(budget) | WatchEvent::Modified(budget)) = change else { continue };
        if budget.status.and_then(|it| it.disruptions_allowed).unwrap_or(0) > 0
            && let Some(pod) = waiting
        {
            // Refused when the news was old; asked again at the next.
            if evict(client, pod).await {
                waiting = next.next();
            }
        }
    }
}

async fn evict(client: &Client, pod: &Named) -> bool {
    let order = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": pod.name(), "namespace": NAMESPACE },
        "deleteOptions": { "preconditions": { "uid": pod.metadata.uid } },
    });
    let request = Request::new(Pod::url_path(&(), Some(NAMESPACE)));
    let body = serde_json::to_vec(&order).unwrap();
    let request = request.create_subresource("eviction", &pod.name(), &PostParams::default(), body).unwrap();
    client.request_text(request).await.is_ok()
}
