//! Waiting until the server no longer refuses what it refused for good: a role was given, the kubeconfig renewed.
//!
//! No event says that, so the same calls are repeated as dry runs: one call each 1.8 s, in turn, and all at once when
//! the kubeconfig has changed. While the server is in trouble the pause grows up to 15 s. Not here: which calls
//! (`watched`), what follows.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use crate::changes::watched::{PermanentRefusal, RefusedCall};
use crate::machines::MachinePolicy;
use crate::machines::kubevirt::MachineReader;
use crate::plan::budget::GuardedPod;
use crate::{calls::pods, calls::remove, calls::remove::RemovalCall, node};
use kubeapi::ApiClient;
use kubeapi::names::NodeName;
use kubeapi::pace::Pace;
use kubeapi::reply::{Reply, ReplyClass};
use kubeapi::watch::jitter_seed;

/// Between two dry runs: a repair is noticed within 2 s, at little more than one call in that time.
const AGAIN: Duration = Duration::from_millis(1800);
/// So many calls are repeated: one for each kind of call, refuser and namespace.
const MOST_CALLS: usize = 8;

/// Ends when one of the calls is no longer refused, and says which. Dropping the future loses nothing.
pub(crate) async fn until_accepted(
    cluster: &ApiClient,
    node: &NodeName,
    refused: &[PermanentRefusal],
) -> String {
    let trials = choose(refused);
    if trials.is_empty() {
        return std::future::pending().await;
    }
    let mut pace = Pace::new(jitter_seed());
    let mut tries = 0;
    // The first time, and when the kubeconfig is another one, all are repeated at once.
    let mut at_once = trials.len();
    // Kept over the pauses: what changes while a call is under way counts too.
    let mut renewed = Box::pin(cluster.renewed());
    let mut next = 0;
    loop {
        next %= trials.len();
        let call = &trials[next].call;
        next += 1;
        let reply = rehearse(cluster, node, call).await;
        debug!(call = name(call), reply = reply.text(), "dry run of a refused call");
        let trouble = match reply.class() {
            ReplyClass::Permanent => false,
            // Admission comes after credentials and roles.
            ReplyClass::Done | ReplyClass::Budget | ReplyClass::Denied => {
                return format!("the server no longer refuses to {}", name(call));
            }
            ReplyClass::Transient | ReplyClass::Throttle => true,
        };
        tries = if trouble { tries + 1 } else { 0 };
        let pause = if trouble { pace.pause(tries, reply.retry_after()).max(AGAIN) } else { AGAIN };
        at_once = at_once.saturating_sub(1);
        if at_once > 0 && !trouble {
            continue;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut renewed => {
                renewed = Box::pin(cluster.renewed());
                tries = 0;
                at_once = trials.len();
            }
        }
    }
}

/// One call for each kind of call, refuser and namespace.
fn choose(refused: &[PermanentRefusal]) -> Vec<&PermanentRefusal> {
    let mut trials: Vec<&PermanentRefusal> = Vec::new();
    for one in refused {
        let is_like = |it: &&PermanentRefusal| it.by == one.by && kind(&it.call) == kind(&one.call);
        if trials.len() < MOST_CALLS && !trials.iter().any(is_like) {
            trials.push(one);
        }
    }
    trials
}

fn kind(call: &RefusedCall) -> (Discriminant<RefusedCall>, Option<(RemovalCall, &str)>) {
    let leave = match call {
        RefusedCall::Look | RefusedCall::Machines | RefusedCall::Cordon => None,
        RefusedCall::Leave(way, guarded) => Some((*way, guarded.pod.namespace.as_str())),
    };
    (discriminant(call), leave)
}

/// The call as it can follow "refuses to".
fn name(call: &RefusedCall) -> String {
    match call {
        RefusedCall::Look => "list the pods of this node".to_owned(),
        RefusedCall::Machines => "list the virtual machines of this node".to_owned(),
        RefusedCall::Cordon => "change this node".to_owned(),
        RefusedCall::Leave(way, GuardedPod { pod, .. }) => match way {
            RemovalCall::Evict | RemovalCall::Request => format!("evict pod {pod}"),
            RemovalCall::Remove | RemovalCall::Delete => format!("delete pod {pod}"),
        },
    }
}

/// The call as a dry run: it changes nothing.
async fn rehearse(cluster: &ApiClient, node: &NodeName, call: &RefusedCall) -> Reply {
    let result = match call {
        RefusedCall::Leave(way, guarded) => return remove::ask(cluster, *way, guarded, true).await,
        RefusedCall::Machines => {
            let policy = MachinePolicy::MigrateOrHold;
            MachineReader::new(node.clone(), policy).look(cluster).await.map(drop)
        }
        RefusedCall::Cordon => node::rehearse_patch(cluster, node).await,
        RefusedCall::Look => match pods::list(cluster, node).await {
            Ok(_) => node::read(cluster, node, "").await.map(drop),
            Err(error) => Err(error),
        },
    };
    // That the node belongs to another device is no refusal.
    match result {
        Err(error) if !error.is_of_another() => error.reply(),
        Ok(()) | Err(_) => Reply::Done,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::plan::tier::tests::pod;
    use kubeapi::mock::{self, MockReply, RecordedCall, RecordedCalls};
    use kubeapi::reply;

    const LONG: Duration = Duration::from_secs(300);
    const MARK: &str = "PATCH /api/v1/namespaces/shop/pods/a/status?&dryRun=All";
    const ROLE: &str = "pods \"a\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in \
                        the namespace \"shop\"";

    fn refused(call: RefusedCall, code: u16, message: &str) -> PermanentRefusal {
        let answer = reply::ApiAnswer { code, message: message.to_owned(), ..reply::ApiAnswer::default() };
        PermanentRefusal { call, by: answer.refused_by() }
    }

    fn evicts(name: &str) -> RefusedCall {
        RefusedCall::Leave(RemovalCall::Evict, pod(name).guarded())
    }

    fn eviction(code: u16, message: &str) -> PermanentRefusal {
        refused(evicts("a"), code, message)
    }

    /// A server that refuses with this until the flag is set.
    fn server(code: u16, message: &'static str) -> (ApiClient, RecordedCalls, Arc<AtomicBool>) {
        let open = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&open);
        let (cluster, calls) = mock::server(move |call: &RecordedCall| {
            if !flag.load(Ordering::SeqCst) {
                return mock::status(code, message);
            }
            match call.line.as_str() {
                one if one.starts_with("GET /api/v1/nodes/") => {
                    mock::object(&json!({"metadata": {"name": "n1", "labels": {"node-uuid": "another"}}}))
                }
                list if list.starts_with("GET") => mock::list("9", &[]),
                mark if mark.starts_with("PATCH") => mock::object(&json!({})),
                _ => mock::status(201, ""),
            }
        });
        (cluster, calls, open)
    }

    async fn said(cluster: &ApiClient, refused: &[PermanentRefusal]) -> Option<String> {
        let node = NodeName::parse("n1").unwrap();
        timeout(LONG, until_accepted(cluster, &node, refused)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn d16_the_end_of_a_refusal_is_noticed_within_two_seconds_by_dry_runs_alone() {
        let table = [(401, "Unauthorized"), (403, ROLE), (405, "not allowed")];
        for (code, message) in table {
            let now = mock::clock();
            let (cluster, calls, open) = server(code, message);
            let refused = [eviction(code, message)];
            let wait = said(&cluster, &refused);
            let repair = async {
                sleep(Duration::from_secs(120)).await;
                open.store(true, Ordering::SeqCst);
                now()
            };
            let (said, repaired) = tokio::join!(async { (wait.await, now()) }, repair);
            assert_eq!(said.0.as_deref(), Some("the server no longer refuses to evict pod shop/a"), "{code}");
            let late = said.1.since(repaired);
            assert!(late <= Duration::from_secs(2), "{code}: {late:?}");
            let lines = calls.lines();
            assert!(lines.iter().all(|it| it.contains("dryRun=All")), "{lines:?}");
            // In 120 s.
            assert!((60..=70).contains(&lines.len()), "no busy loop: {}", lines.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d16_a_refusal_that_stays_wakes_nobody_nor_does_trouble_with_the_server() {
        let (cluster, _, _) = server(403, "pods is forbidden");
        assert_eq!(said(&cluster, &[eviction(403, "forbidden")]).await, None);
        let (cluster, _) = mock::server(|_: &RecordedCall| MockReply::Refused("refused"));
        assert_eq!(said(&cluster, &[eviction(401, "")]).await, None);
        let (cluster, _) = mock::server(|_: &RecordedCall| mock::status(429, "busy"));
        assert_eq!(said(&cluster, &[eviction(403, "")]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_that_denies_the_dry_run_shows_that_the_role_was_given() {
        let denied = "admission webhook \"guard.example.com\" denied the request: not now";
        let (cluster, _) = mock::server(move |_: &RecordedCall| mock::status(403, denied));
        let told = said(&cluster, &[eviction(403, ROLE)]).await;
        assert_eq!(told.as_deref(), Some("the server no longer refuses to evict pod shop/a"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_call_is_repeated_as_itself_and_changes_nothing() {
        let calls = [
            (RefusedCall::Look, "list the pods of this node", vec!["GET /api/v1/pods?"]),
            (RefusedCall::Cordon, "change this node", vec!["PATCH /api/v1/nodes/n1?&dryRun=All"]),
            (
                RefusedCall::Leave(RemovalCall::Remove, pod("a").guarded()),
                "delete pod shop/a",
                vec!["GET /apis/policy/v1/namespaces/shop/poddisruptionbudgets?", MARK, "DELETE"],
            ),
            (
                RefusedCall::Leave(RemovalCall::Delete, pod("a").guarded()),
                "delete pod shop/a",
                vec![MARK, "DELETE"],
            ),
        ];
        for (call, words, expected) in calls {
            let (cluster, calls, open) = server(403, "forbidden");
            open.store(true, Ordering::SeqCst);
            let said = said(&cluster, &[refused(call, 403, "forbidden")]).await;
            let Some(said) = said else { panic!("{words}: {:?}", calls.lines()) };
            assert_eq!(said, format!("the server no longer refuses to {words}"));
            for (call, expected) in calls.all().iter().zip(expected) {
                assert!(call.line.starts_with(expected), "{}", call.line);
                let in_body = call.body.contains(r#""dryRun":["All"]"#);
                assert!(
                    !call.line.starts_with("DELETE") || in_body,
                    "a DELETE reads its body alone: {call:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_kinds_of_refusals_are_repeated_in_turn_and_cost_no_more() {
        let mut all = vec![eviction(403, ROLE), eviction(405, "not allowed"), eviction(401, "")];
        all.push(refused(RefusedCall::Leave(RemovalCall::Delete, pod("a").guarded()), 403, "forbidden"));
        let (cluster, calls, _) = server(403, "forbidden");
        assert_eq!(said(&cluster, &all).await, None);
        let each = LONG.as_secs() / 2;
        let (most, some) = (usize::try_from(each).unwrap() * 6 / 5, calls.lines().len());
        assert!((100..=most).contains(&some), "{some} calls in {} s", LONG.as_secs());
        // Each begins with its mark.
        let deletes = calls.lines().iter().filter(|it| it.starts_with(MARK)).count();
        assert!(deletes >= some / 5, "{deletes} of {some}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_in_trouble_is_asked_ever_less() {
        let (cluster, calls) = mock::server(|_: &RecordedCall| mock::status(503, "busy"));
        assert_eq!(said(&cluster, &[eviction(403, "")]).await, None);
        assert!(calls.lines().len() < 45, "{}", calls.lines().len());
    }

    #[test]
    fn one_call_speaks_for_all_of_its_kind_refuser_and_namespace() {
        let mut all: Vec<PermanentRefusal> =
            ["a", "b", "c"].map(|name| refused(evicts(name), 403, "")).into();
        let mut elsewhere = pod("d").guarded();
        elsewhere.pod.namespace = "tools".to_owned();
        all.push(refused(RefusedCall::Leave(RemovalCall::Evict, elsewhere), 403, ""));
        all.push(eviction(401, ""));
        assert_eq!(choose(&all).len(), 3);
    }
}
