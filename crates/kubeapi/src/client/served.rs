//! Which API groups the cluster serves, so that missing kinds are not requested again and again.
//!
//! One small call (`GET /apis`, which every authenticated user may make) answers for all kinds of all groups.
//! It is made once a server does not know a kind, and again after a growing pause; until then a read of such
//! a kind is refused here, with the server's own text. A missing kind in an existing group is requested each
//! time. Not here: the calls (`client`).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use step::Inserted as _;
use tokio::time::Instant;

use crate::settling::now;

/// First and longest pause between two reads of the groups: software that brings kinds is installed now and
/// then.
const LOOKS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_mins(10));

/// The body of `GET /apis`.
#[derive(Debug, Deserialize)]
pub(crate) struct ServedGroupList {
    groups: Vec<ServedGroup>,
}

#[derive(Debug, Deserialize)]
struct ServedGroup {
    name: String,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` before the first look, and where the server does not answer.
    served: Option<BTreeSet<String>>,
    /// The last look, and how many in a row have found the same; `None` when one is due.
    looked: Option<(Instant, u32)>,
}

#[derive(Debug, Default)]
pub(crate) struct ServedGroups {
    known: Mutex<Known>,
    /// One look at a time: waiting tasks use its answer.
    pub(crate) looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadAdvice {
    Ask,
    /// Known to be missing: refuse.
    Absent,
    /// Was missing; to be checked again.
    Look,
}

/// `None` for the core group and for paths about the server.
pub(crate) fn group(path: &str) -> Option<&str> {
    let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
    rest.contains('/').then_some(group)
}

impl ServedGroups {
    pub(crate) fn advice(&self, group: &str) -> ReadAdvice {
        let known = self.known();
        match (&known.served, known.is_due()) {
            (None, _) => ReadAdvice::Ask,
            (Some(served), _) if served.contains(group) => ReadAdvice::Ask,
            (Some(_), false) => ReadAdvice::Absent,
            (Some(_), true) => ReadAdvice::Look,
        }
    }

    pub(crate) fn wants_look(&self, group: &str) -> bool {
        let known = self.known();
        known.is_due() && known.served.as_ref().is_none_or(|it| it.contains(group))
    }

    /// Takes the answer of a look; `None` without one.
    pub(crate) fn looked(&self, list: Option<ServedGroupList>) {
        let served = list.map(|it| it.groups.into_iter().map(|it| it.name).into_set());
        let mut known = self.known();
        let same =
            if known.served == served { known.looked.map_or(0, |it| it.1.saturating_add(1)) } else { 0 };
        *known = Known { served, looked: Some((now(), same)) };
    }

    /// Makes a look due.
    pub(crate) fn doubt(&self) {
        self.known().looked = None;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Written in one piece, so a panic of another task leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_due(&self) -> bool {
        let (first, longest) = LOOKS;
        let pause = |same: u32| first.saturating_mul(1 << same.min(8)).min(longest);
        self.looked.is_none_or(|(at, same)| now().duration_since(at) >= pause(same))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::ApiClient;
    use crate::error::{Error, found};
    use crate::mock::{self, MockReply, RecordedCall};
    use crate::reply::ApiAnswer;
    use crate::watch::WatchScope;

    const VOLUMES: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes";
    const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";

    fn server(extra: &'static Mutex<Vec<&'static str>>) -> (ApiClient, mock::RecordedCalls) {
        mock::server(move |call: &RecordedCall| {
            let held = extra.lock().unwrap().clone();
            let names: Vec<Value> =
                held.iter().chain(&["apps"]).map(|name| json!({ "name": name })).collect();
            match call.line.split([' ', '?']).nth(1).unwrap_or_default() {
                "/apis" => mock::object(&json!({ "kind": "APIGroupList", "groups": names })),
                path if group(path).is_none_or(|it| held.contains(&it) || it == "apps") => {
                    mock::list("1", &[])
                }
                _ => MockReply::Full(404, vec![], "404 page not found\n".to_owned()),
            }
        })
    }

    async fn listed(cluster: &ApiClient, path: &str) -> Result<Option<usize>, Error> {
        let list = WatchScope::all("things", path.to_owned()).list_all::<Value>(cluster).await;
        Ok(found(list)?.map(|it| it.items.len()))
    }

    #[tokio::test(start_paused = true)]
    async fn u10_kinds_that_are_not_there_are_asked_for_once_and_looked_at_again_ever_less() {
        static EXTRA: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let (cluster, calls) = server(&EXTRA);
        assert_eq!(listed(&cluster, VOLUMES).await.unwrap(), None);
        assert_eq!(calls.lines().len(), 2, "the kind, and the groups: {:?}", calls.lines());
        for path in [VOLUMES, MACHINES, VOLUMES] {
            assert_eq!(listed(&cluster, path).await.unwrap(), None);
        }
        assert_eq!(calls.lines().len(), 2, "one look answers for all groups");
        for _ in 0..360 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert_eq!(listed(&cluster, VOLUMES).await.unwrap(), None);
        }
        let looks = calls.lines().len() - 2;
        assert!((36..=42).contains(&looks), "{looks}");
        assert!(calls.lines().iter().filter(|it| it.contains("longhorn.io")).count() == 1);
        // Installed: found within ten minutes, at once where it is doubted.
        EXTRA.lock().unwrap().push("longhorn.io");
        cluster.doubt_absent();
        assert_eq!(listed(&cluster, VOLUMES).await.unwrap(), Some(0));
        assert_eq!(listed(&cluster, MACHINES).await.unwrap(), None);
        EXTRA.lock().unwrap().push("kubevirt.io");
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!(listed(&cluster, MACHINES).await.unwrap(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn many_reads_at_once_are_one_look_and_who_may_not_look_asks_for_each_kind() {
        static EXTRA: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let (cluster, calls) = server(&EXTRA);
        let five = [VOLUMES, MACHINES, VOLUMES, MACHINES, VOLUMES].map(|path| listed(&cluster, path));
        futures::future::join_all(five).await;
        let looks =
            || calls.lines().iter().filter(|it| it.starts_with("GET /apis?") || *it == "GET /apis").count();
        assert_eq!(looks(), 1, "{:?}", calls.lines());

        let (cluster, calls) = mock::server(|call: &RecordedCall| match call.line.as_str() {
            line if line.starts_with("GET /apis/") => {
                MockReply::Full(404, vec![], "404 page not found".to_owned())
            }
            _ => mock::status(403, "forbidden"),
        });
        for _ in 0..3 {
            assert_eq!(listed(&cluster, VOLUMES).await.unwrap(), None);
        }
        assert_eq!(calls.lines().len(), 4, "three kinds, one look: {:?}", calls.lines());
    }

    #[test]
    fn only_reads_of_kinds_have_a_group_and_only_the_servers_own_words_mean_that_it_is_not_there() {
        assert_eq!(group(VOLUMES), Some("longhorn.io"));
        for path in ["/api/v1/pods", "/apis", "/apis/apps", "/apis/apps/v1", "/version"] {
            assert_eq!(group(path), None, "{path}");
        }
        assert!(ApiAnswer::unknown_kind().is_unknown_kind());
        let gone =
            ApiAnswer { code: 404, message: "pods \"a\" not found".to_owned(), ..ApiAnswer::default() };
        assert!(!gone.is_unknown_kind());
        let message = "the server could not find the requested resource".to_owned();
        let of_1_38 = ApiAnswer { message, ..gone };
        assert!(of_1_38.is_unknown_kind());
        assert!(!ApiAnswer { code: 403, ..of_1_38 }.is_unknown_kind());
    }
}
