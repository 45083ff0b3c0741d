//! Reading why a budget has no room: the pods that it selects and does not count as healthy.
//!
//! Not here: what is said about them (`unhealthy`). Source: the disruption controller's count, see there.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::calls::pods::pod_ref;
use crate::calls::remove;
use crate::plan::held::{Inspected, UnhealthyPod, UnhealthyReason};
use kube::core::Selector;
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::slim::{Condition, Pod, ready_of_pod};
use kubeapi::watch::WatchScope;
use step::SmallSort as _;

/// As many are named; the first by name.
const NAMED: usize = 10;

/// What keeps the budget of this name and `selector` in `namespace` from having room. One list call; where the budget
/// guards pods that others guard too (`shared`), it is also counted again if its numbers are behind.
pub async fn inspect(
    cluster: &ApiClient,
    namespace: &str,
    budget: &str,
    selector: &Selector,
    shared: bool,
) -> Result<Inspected, Error> {
    let what = format!("pods of a budget in namespace {namespace}");
    let labels = Some(selector.to_string()).filter(|text| !text.is_empty());
    let scope = WatchScope { labels, ..WatchScope::all(what, Pod::url_path(Some(namespace))) };
    let pods = scope.list_all::<Pod>(cluster).await?;
    let now = Timestamp::now();
    let mut found: Vec<UnhealthyPod> = pods.items.iter().filter_map(|pod| hindrance(pod, now)).collect();
    found.order();
    found.truncate(NAMED);
    let ready = if shared { remove::recount(cluster, namespace, budget, &pods.items).await? } else { None };
    Ok(Inspected { hindrances: found, ready })
}

/// What is wrong with `pod`, if anything. A finished pod counts neither as healthy nor as expected.
pub(crate) fn hindrance(pod: &Pod, now: Timestamp) -> Option<UnhealthyPod> {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let (why, since) = if let Some(Time(gone_by)) = pod.metadata.deletion_timestamp.as_ref() {
        // The time stamp is the end of the grace period.
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        (UnhealthyReason::Ending, gone_by.checked_sub(grace).ok())
    } else if matches!(status.and_then(|it| it.phase.as_deref()), Some("Succeeded" | "Failed")) {
        return None;
    } else if node.is_empty() {
        let placed = conditions.iter().find(|it| it.type_ == "PodScheduled");
        let sentence = placed.and_then(|it| it.message.clone()).unwrap_or_default();
        (UnhealthyReason::Unplaced(sentence), changed(placed).or_else(|| created(pod)))
    } else {
        let ready = ready_of_pod(pod);
        if ready.is_some_and(|it| it.status == "True") {
            return None;
        }
        (UnhealthyReason::NotReady, changed(ready).or_else(|| created(pod)))
    };
    let since = since.map(|since| time_of_day(since, now)).unwrap_or_default();
    Some(UnhealthyPod { pod: pod_ref(pod).to_string(), node, since, why })
}

fn changed(condition: Option<&Condition>) -> Option<Timestamp> {
    Some(condition?.last_transition_time.as_ref()?.0)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    Some(pod.metadata.creation_timestamp.as_ref()?.0)
}

/// `14:03 UTC`, or with the date when it is longer ago than a day.
fn time_of_day(at: Timestamp, now: Timestamp) -> String {
    let shape = if now.duration_since(at) < SignedDuration::from_hours(24) {
        "%H:%M UTC"
    } else {
        "%Y-%m-%d %H:%M UTC"
    };
    at.to_zoned(TimeZone::UTC).strftime(shape).to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Expression;
    use serde_json::{Value, json};

    use super::*;
    use kubeapi::mock;

    const NOW: &str = "2025-11-21T16:00:00Z";

    fn pod(name: &str, node: &str, conditions: &Value) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "creationTimestamp": "2025-11-21T09:00:00Z"},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running", "conditions": conditions},
        })
    }

    fn ready(status: &str, since: &str) -> Value {
        json!([{"type": "Ready", "status": status, "lastTransitionTime": since}])
    }

    fn said(value: &Value) -> Option<String> {
        let now: Timestamp = NOW.parse().unwrap();
        hindrance(&serde_json::from_value(value.clone()).unwrap(), now).map(|it| it.to_string())
    }

    #[test]
    fn only_pods_that_the_controller_does_not_count_as_healthy_are_named() {
        let mut ending = pod("a", "n2", &ready("True", NOW));
        ending["metadata"]["deletionTimestamp"] = json!("2025-11-21T15:30:30Z");
        ending["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let mut finished = pod("a", "n2", &ready("False", NOW));
        finished["status"]["phase"] = json!("Succeeded");
        let mut unplaced = pod(
            "a",
            "",
            &json!([{"type": "PodScheduled", "status": "False",
            "lastTransitionTime": "2025-11-21T14:03:59Z", "message": "0/2 nodes are available"}]),
        );
        unplaced["status"]["phase"] = json!("Pending");
        let table = [
            (pod("a", "n2", &ready("True", NOW)), None),
            (finished, None),
            (
                pod("a", "n2", &ready("False", "2025-11-21T14:03:59Z")),
                Some("pod shop/a on node n2 is not Ready since 14:03 UTC"),
            ),
            (
                pod("a", "n2", &ready("Unknown", "2025-11-20T15:59:59Z")),
                Some("pod shop/a on node n2 is not Ready since 2025-11-20 15:59 UTC"),
            ),
            (pod("a", "n2", &json!([])), Some("pod shop/a on node n2 is not Ready since 09:00 UTC")),
            (unplaced, Some("pod shop/a has no node since 14:03 UTC (0/2 nodes are available)")),
            (ending, Some("pod shop/a on node n2 is ending since 15:30 UTC")),
        ];
        for (value, expected) in table {
            assert_eq!(said(&value).as_deref(), expected, "{value}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_list_names_the_first_ten_of_the_budgets_selector() {
        let pods: Vec<Value> =
            (0..12).rev().map(|number| pod(&format!("web-{number:02}"), "n2", &json!([]))).collect();
        let (cluster, calls) = mock::cluster(vec![mock::list("5", &pods)]);
        let selector = Selector::from_iter([
            Expression::Equal("app".to_owned(), "web".to_owned()),
            Expression::In("a".to_owned(), ["x".to_owned(), "y".to_owned()].into()),
            Expression::NotIn("b".to_owned(), ["x".to_owned()].into()),
            Expression::Exists("c".to_owned()),
            Expression::DoesNotExist("d".to_owned()),
        ]);
        let found = inspect(&cluster, "shop", "web", &selector, false).await.unwrap().hindrances;
        let names: Vec<&str> = found.iter().map(|it| it.pod.as_str()).collect();
        assert_eq!((names.len(), names[0], names[9]), (10, "shop/web-00", "shop/web-09"));
        assert_eq!(
            calls.lines(),
            [
                "GET /api/v1/namespaces/shop/pods?&labelSelector=app%3Dweb%2Ca+in+%28x%2Cy%29%2Cb+notin+%28x%29%2Cc%2C%21d&limit=250"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_selector_of_everything_is_no_selector_and_failures_come_through() {
        let (cluster, calls) =
            mock::cluster(vec![mock::list("5", &[]), mock::status(403, "pods is forbidden")]);
        let all = Selector::default();
        assert_eq!(inspect(&cluster, "shop", "web", &all, false).await.unwrap(), Inspected::default());
        assert_eq!(calls.lines(), ["GET /api/v1/namespaces/shop/pods?&limit=250"]);
        let error = inspect(&cluster, "shop", "web", &all, false).await.unwrap_err();
        assert_eq!(
            error.line(),
            "list pods of a budget in namespace shop: the server answered 403: pods is forbidden"
        );
    }
}
