//! Reads and writes the lease. Every call has a deadline; a dropped call may have been carried out.
//!
//! Not here: when, and what an answer means for the election (`election`).

use k8s_openapi::jiff::Timestamp;
use kube::api::GetParams;
use kubeapi::slim::NodeObject;

use super::NAME;
use super::record::{ElectionWrite, LeaseSnapshot};
use kubeapi::lease::{self, CALL_LIMIT};
use kubeapi::nodes;
use kubeapi::{ApiClient, Error};
use step::WriteOutcome;

/// `None` when there is none.
pub async fn read(cluster: &ApiClient) -> Result<Option<Box<LeaseSnapshot>>, Error> {
    Ok(lease::read(cluster, NAME).await?.map(|lease| Box::new(LeaseSnapshot::new(lease))))
}

/// Writes `order`; `wall` is our wall clock. No node starts to hold the lease of a cluster that lacks its
/// Node: after leaving it would report on a foreign cluster.
pub async fn write(
    cluster: &ApiClient,
    order: &ElectionWrite,
    wall: Timestamp,
) -> WriteOutcome<LeaseSnapshot> {
    if let Some(node) = order.newcomer()
        && let Err(error) = known(cluster, node).await
    {
        return WriteOutcome::Unknown(if error.is_not_found() {
            format!("this cluster has no node {node}, which therefore does not lead it")
        } else {
            error.advice()
        });
    }
    let verb = match order {
        ElectionWrite::Create { .. } => "create",
        ElectionWrite::Hold { .. } => "hold",
        ElectionWrite::Release { .. } => "release",
    };
    lease::write(cluster, NAME, verb, &order.object(wall))
        .await
        .read(|lease| Ok(Box::new(LeaseSnapshot::new(lease))))
}

async fn known(cluster: &ApiClient, node: &str) -> Result<(), Error> {
    let request = nodes::api().get(node, &GetParams::default());
    cluster.ask_within::<NodeObject>(CALL_LIMIT, &format!("look for node {node}"), request).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubeapi::names::APP_NAMESPACE;
    use serde_json::json;

    use super::*;
    use kubeapi::mock::{self, MockReply};

    const WALL: &str = "2026-03-14T09:26:53.5Z";

    fn wall() -> Timestamp {
        WALL.parse().unwrap()
    }

    fn lease(version: &str, holder: &str) -> serde_json::Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": APP_NAMESPACE, "resourceVersion": version, "uid": "u1",
                          "labels": { "kept": "yes" } },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 300, "leaseTransitions": 4,
                      "acquireTime": "2026-03-14T08:00:00.000001Z", "renewTime": "2026-03-14T09:00:00.000002Z" },
        })
    }

    fn held(version: &str, holder: &str) -> Box<LeaseSnapshot> {
        Box::new(LeaseSnapshot::new(serde_json::from_value(lease(version, holder)).unwrap()))
    }

    fn node() -> MockReply {
        mock::object(&json!({ "metadata": { "name": "n1" } }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_the_cluster_does_not_know_takes_no_lease_and_keeps_none_of_another() {
        let lease_time = Duration::from_secs(300);
        let take = ElectionWrite::Hold { on: held("8", "n2"), identity: "n1".to_owned(), lease: lease_time };
        let make = ElectionWrite::Create { identity: "n1".to_owned(), lease: lease_time };
        for (order, answer, says) in [
            (&take, mock::status(404, "nodes \"n1\" not found"), "has no node n1"),
            (&make, mock::status(404, "nodes \"n1\" not found"), "has no node n1"),
            (&take, mock::status(503, "busy"), "look for node n1"),
        ] {
            let (cluster, calls) = mock::cluster(vec![answer]);
            let WriteOutcome::Unknown(why) = write(&cluster, order, wall()).await else {
                panic!("{order:?}")
            };
            assert!(why.contains(says), "{why}");
            assert_eq!(calls.lines(), ["GET /api/v1/nodes/n1"], "nothing is written");
        }
    }

    const URL: &str = "/apis/coordination.k8s.io/v1/namespaces/eve-kube-app/leases";

    #[tokio::test(start_paused = true)]
    async fn l1_each_write_is_the_one_of_client_go() {
        let lease_time = Duration::from_secs(300);
        let identity = "n1".to_owned();
        let now = "2026-03-14T09:26:53.500000Z";
        let whole = |version: &str, spec: serde_json::Value| {
            let mut object = lease(version, "");
            object["spec"] = spec;
            object
        };
        let table = [
            (
                ElectionWrite::Create { identity: identity.clone(), lease: lease_time },
                format!("POST {URL}?&fieldManager=pillar-rs"),
                json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": { "name": NAME, "namespace": APP_NAMESPACE },
                    "spec": { "holderIdentity": "n1", "leaseDurationSeconds": 300, "leaseTransitions": 0,
                              "acquireTime": now, "renewTime": now },
                }),
            ),
            (
                ElectionWrite::Hold { on: held("7", "n1"), identity: identity.clone(), lease: lease_time },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "7",
                    json!({ "holderIdentity": "n1", "leaseDurationSeconds": 300, "leaseTransitions": 4,
                            "acquireTime": "2026-03-14T08:00:00.000001Z", "renewTime": now }),
                ),
            ),
            (
                ElectionWrite::Hold { on: held("8", "n2"), identity, lease: Duration::from_millis(1_500) },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "8",
                    json!({ "holderIdentity": "n1", "leaseDurationSeconds": 2, "leaseTransitions": 5,
                            "acquireTime": now, "renewTime": now }),
                ),
            ),
            (
                ElectionWrite::Release { on: held("9", "n1") },
                format!("PUT {URL}/{NAME}?&fieldManager=pillar-rs"),
                whole(
                    "9",
                    json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4,
                            "acquireTime": now, "renewTime": now }),
                ),
            ),
        ];
        for (order, line, body) in table {
            let newcomer = order.newcomer().is_some();
            let answers = newcomer.then(node).into_iter().chain([mock::object(&lease("10", "n1"))]).collect();
            let (cluster, calls) = mock::cluster(answers);
            let WriteOutcome::Done(now) = write(&cluster, &order, wall()).await else { panic!("{order:?}") };
            assert_eq!((now.version(), now.holder()), ("10", "n1"));
            let mut all = calls.all();
            if newcomer {
                assert_eq!(all.remove(0).line, "GET /api/v1/nodes/n1");
            }
            let call = all.remove(0);
            assert_eq!(call.line, line);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&call.body).unwrap(), body, "{order:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_to_a_write_is_told_apart() {
        let create = || ElectionWrite::Create { identity: "n1".to_owned(), lease: Duration::from_secs(300) };
        let hold = || ElectionWrite::Hold {
            on: held("7", "n1"),
            identity: "n1".to_owned(),
            lease: Duration::from_secs(300),
        };
        let table: [(ElectionWrite, MockReply, bool); 8] = [
            (create(), mock::status(409, "already exists"), true),
            (hold(), mock::status(409, "the object has been modified"), true),
            (hold(), mock::status(404, "not found"), true),
            (ElectionWrite::Release { on: held("7", "n1") }, mock::status(404, "not found"), true),
            (create(), mock::status(404, "namespaces \"eve-kube-app\" not found"), false),
            (hold(), mock::status(403, "forbidden"), false),
            (hold(), mock::status(503, "busy"), false),
            (hold(), MockReply::Silence, false),
        ];
        for (number, (order, answer, outdated)) in table.into_iter().enumerate() {
            let answers = order.newcomer().map(|_| node()).into_iter().chain([answer]).collect();
            let (cluster, _) = mock::cluster(answers);
            match write(&cluster, &order, wall()).await {
                WriteOutcome::Outdated => assert!(outdated, "row {number}"),
                WriteOutcome::Unknown(why) => {
                    assert!(!outdated && why.contains("lease eve-kube-app/"), "{why}");
                }
                WriteOutcome::Done(_) => panic!("row {number}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_lease_is_an_answer_and_silence_is_none() {
        let (cluster, calls) =
            mock::cluster(vec![mock::status(404, "not found"), mock::object(&lease("3", "n2"))]);
        assert_eq!(read(&cluster).await.unwrap(), None);
        assert_eq!(calls.lines(), [format!("GET {URL}/{NAME}")]);
        let held = read(&cluster).await.unwrap().unwrap();
        assert_eq!((held.version(), held.holder(), held.transitions()), ("3", "n2", 4));
        assert_eq!(held.duration(), Some(Duration::from_secs(300)));
        let error = read(&cluster).await.unwrap_err();
        assert!(error.line().contains("no answer within 10 s"), "{}", error.line());
    }
}
