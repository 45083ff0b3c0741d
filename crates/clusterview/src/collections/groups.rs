//! Which API groups the cluster serves: one small call answers for all kinds that it does not know.
//!
//! A watch of CustomResourceDefinitions would need one more permission and one more open connection; `GET /apis` is
//! allowed to everybody who is authenticated.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use tokio::sync::watch;
use tokio::time::sleep;

use kubeapi::ApiClient;

/// First and longest pause between two readings of the API groups while a resource is unknown: software that
/// brings such resources is installed now and then.
const ABSENT_PAUSES: (Duration, Duration) = (Duration::from_secs(120), Duration::from_mins(10));

/// As read last; copies share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    /// Number of waiting kinds.
    waiting: watch::Sender<usize>,
    /// `None` where the server does not answer.
    served: watch::Sender<Option<BTreeSet<String>>>,
}

/// A kind waits while this is kept.
struct FirstListWait<'a>(&'a watch::Sender<usize>);

impl Drop for FirstListWait<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Groups {
    /// Returns after the next reading that has the group of `path`, or that failed: then the caller tries by
    /// itself. The core group has no name.
    pub(super) async fn until_served(&self, path: &str) {
        let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        let is_served = |groups: &BTreeSet<String>| group.is_none_or(|group| groups.contains(group));
        let mut served = self.served.subscribe();
        self.waiting.send_modify(|count| *count += 1);
        let _waiting = FirstListWait(&self.waiting);
        while served.changed().await.is_ok() {
            if served.borrow_and_update().as_ref().is_none_or(is_served) {
                return;
            }
        }
    }

    /// Reads them at [`ABSENT_PAUSES`] while a kind waits.
    pub(super) async fn keep<T>(self, cluster: ApiClient) -> T {
        let mut waiting = self.waiting.subscribe();
        let (first, longest) = ABSENT_PAUSES;
        let mut same = 0_u32;
        while waiting.wait_for(|count| *count > 0).await.is_ok() {
            sleep(step::doubled(first, longest, same)).await;
            let request = http::Request::get("/apis").body(Vec::new());
            let request = request.map_err(kube::core::request::Error::BuildRequest);
            let answer = cluster.ask::<APIGroupList>("the API groups", request).await;
            // A server has some; an answer without one is of something else.
            let served = answer.ok().filter(|all| !all.groups.is_empty());
            let served = served.map(|all| all.groups.into_iter().map(|it| it.name).collect());
            let before = self.served.send_replace(served);
            same = if before == *self.served.borrow() { same.saturating_add(1) } else { 0 };
            if same == 0 {
                cluster.doubt_absent();
            }
        }
        std::future::pending().await
    }
}
