//! Makes Kubernetes count the pods of a budget again when its numbers are behind.
//!
//! Not here: when to look (`engine`), counting in Kubernetes' place. Source: kubernetes
//! `pkg/controller/disruption/disruption.go` (`getPdbForPod`, `buildDisruptedPodMap`, `countHealthyPods`).

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{CLAIM_HOLDS, read};
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::slim::{Pod, is_ready};

/// How long the disruption controller counts a claim (its `DeletionTimeout`).
const CLAIM_COUNTS: SignedDuration = SignedDuration::from_secs(120);
/// The key of a claim for no pod: upper case, which no pod's name has.
const NO_POD: &str = "pillar-rs:COUNT-AGAIN";

/// Has Kubernetes count the pods of a budget again, if it counts fewer as healthy than are Ready among `pods`, all
/// that the budget selects; their number is then returned.
///
/// The disruption controller counts only one of the budgets of a pod again when the pod changes (kubernetes
/// `getPdbForPod`), so the others keep the numbers, and the claim, of a pod that is long gone and replaced: until the
/// claim's two minutes are over, or for ever. It counts when the budget itself changes. So claims of pods that are
/// gone are written again with a time past their two minutes, and where there is none, one for no pod: the controller
/// counts, and drops them itself. Nothing is counted here in its place.
/// Errors: those of [`ApiClient`]; a budget that has changed meanwhile is a conflict.
pub(crate) async fn recount(
    cluster: &ApiClient,
    namespace: &str,
    budget: &str,
    pods: &[Pod],
) -> Result<Option<i32>, Error> {
    let (budgets, now) = read(cluster, namespace).await?;
    let Some(budget) = budgets.into_iter().find(|it| it.facts.name == budget) else { return Ok(None) };
    if budget.uncounted() {
        return Ok(None);
    }
    let empty = BTreeMap::new();
    let claims = budget.claims().unwrap_or(&empty);
    // Whether the claim is for this very pod, which is still to be deleted.
    let is_pending = |pod: &Pod, Time(at): &Time| {
        let born = pod.metadata.creation_timestamp.as_ref().is_none_or(|Time(born)| born <= at);
        born && pod.metadata.deletion_timestamp.is_none() && now.duration_since(*at) < CLAIM_COUNTS
    };
    let claim = |pod: &Pod| claims.get(pod.metadata.name.as_deref().unwrap_or_default());
    let healthy = pods.iter().filter(|pod| counts(pod) && claim(pod).is_none_or(|at| !is_pending(pod, at)));
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    if healthy <= budget.facts.healthy {
        return Ok(None);
    }
    let over = |(name, at): &(&String, &Time)| {
        !pods.iter().any(|pod| pod.metadata.name.as_ref() == Some(*name) && is_pending(pod, at))
    };
    let mut names: Vec<String> = claims.iter().filter(over).map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        names.push(NO_POD.to_owned());
    }
    budget.write_claims(cluster, &names, now - CLAIM_COUNTS - CLAIM_HOLDS).await?;
    Ok(Some(healthy))
}

fn counts(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && is_ready(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{CLAIM_B, LIST, budget, dated, done};
    use super::*;
    use kubeapi::mock::{self, MockReply, RecordedCalls};

    /// Pods of the budget: name, created, Ready, ending.
    fn pods(all: &[(&str, &str, bool, bool)]) -> Vec<Pod> {
        let pod = |(name, created, ready, ending): &(&str, &str, bool, bool)| {
            json!({
                "metadata": {"namespace": "shop", "name": name, "creationTimestamp": created,
                    "deletionTimestamp": ending.then_some("2031-02-03T04:05:00Z")},
                "status": {"conditions": [{"type": "Ready", "status": if *ready { "True" } else { "False" }}]},
            })
        };
        all.iter().map(|it| serde_json::from_value(pod(it)).unwrap()).collect()
    }

    const NOW: &str = "Mon, 03 Feb 2031 04:06:00 GMT";
    const OLD: &str = "2031-02-01T00:00:00Z";

    async fn recounted(
        claims: Value,
        pods: &[Pod],
        last: MockReply,
    ) -> (Result<Option<i32>, Error>, RecordedCalls) {
        let mut budget = budget("b", "web", 0);
        budget["status"]["disruptedPods"] = claims;
        let (cluster, calls) = mock::cluster(vec![dated(NOW, &[budget]), last]);
        (recount(&cluster, "shop", "b", pods).await, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn d6_a_budget_behind_its_pods_is_counted_again_by_a_claim_past_its_time_and_by_nobody_else() {
        let four = pods(&[
            ("w", OLD, true, false),
            ("x", OLD, true, false),
            ("y", OLD, true, false),
            ("z", OLD, true, false),
        ]);
        let again = "2031-02-03T04:02:30Z";
        let born = pods(&[
            ("w", OLD, true, false),
            ("x", OLD, true, false),
            ("y", OLD, true, false),
            ("web-0", "2031-02-03T04:05:40Z", true, false),
        ]);
        let table = [
            (
                "the claim of a pod that is gone",
                json!({"web-7": "2031-02-03T04:05:30Z"}),
                &four,
                json!({"web-7": again}),
            ),
            (
                "of one that is back under its name",
                json!({"web-0": "2031-02-03T04:05:30Z"}),
                &born,
                json!({"web-0": again}),
            ),
            ("no claim", json!(null), &four, json!({NO_POD: again})),
        ];
        for (row, claims, pods, expected) in table {
            let (found, calls) = recounted(claims, pods, done()).await;
            assert_eq!(found.unwrap(), Some(4), "{row}");
            assert_eq!(calls.lines(), [LIST, CLAIM_B], "{row}");
            let body: Value = serde_json::from_str(&calls.all()[1].body).unwrap();
            assert_eq!(body["status"]["disruptedPods"], expected, "{row}");
            assert_eq!(body["status"]["disruptionsAllowed"], 0, "what it allows is the controller's to say");
            assert_eq!(body["metadata"]["resourceVersion"], "7");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d6_a_budget_whose_numbers_are_right_or_soon_will_be_is_left_alone() {
        let table = [
            (
                "as counted",
                json!(null),
                pods(&[("w", OLD, true, false), ("x", OLD, true, false), ("y", OLD, true, false)]),
            ),
            (
                "ending or not Ready",
                json!(null),
                pods(&[("w", OLD, true, true), ("x", OLD, false, false), ("y", OLD, true, false)]),
            ),
            (
                "a claim for a pod that is still to be deleted",
                json!({"z": "2031-02-03T04:05:30Z"}),
                pods(&[
                    ("w", OLD, true, false),
                    ("x", OLD, true, false),
                    ("y", OLD, true, false),
                    ("z", OLD, true, false),
                ]),
            ),
        ];
        for (row, claims, pods) in table {
            let (found, calls) = recounted(claims, &pods, MockReply::Silence).await;
            assert_eq!((found.unwrap(), calls.lines()), (None, vec![LIST.to_owned()]), "{row}");
        }
        let four = pods(&[
            ("w", OLD, true, false),
            ("x", OLD, true, false),
            ("y", OLD, true, false),
            ("z", OLD, true, false),
        ]);
        let (found, _) =
            recounted(json!(null), &four, mock::status(409, "the object has been modified")).await;
        assert!(found.unwrap_err().is_conflict());
        let (found, calls) = recounted(json!(null), &four, MockReply::Silence).await;
        assert!(found.is_err() && calls.lines().len() == 2);
    }
}
