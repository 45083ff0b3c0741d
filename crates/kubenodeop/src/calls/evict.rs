//! The eviction call: name *and* UID, and an answer that is a value.
//!
//! Not here: when to call, what follows from the answer. Sources: the Kubernetes page "API-initiated
//! Eviction". Not `kube::Api::evict`: it writes `delete_options` where the API reads `deleteOptions`, so the
//! server drops the UID without a word.

use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::core::Request;

use kubeapi::ApiClient;
use kubeapi::names::PodRef;
use kubeapi::reply::Reply;
use kubeapi::slim::Pod;

/// Evicts exactly this pod, with its own grace period; with `dry` only as a dry run, which changes nothing. Dropping
/// the future leaves open whether the server has carried it out.
pub async fn evict(cluster: &ApiClient, pod: &PodRef, dry: bool) -> Reply {
    match cluster.order(&format!("evict pod {pod}"), request(pod, dry)).await {
        Ok(()) => Reply::Done,
        Err(error) => error.reply(),
    }
}

fn request(pod: &PodRef, dry: bool) -> kubeapi::client::BuiltRequest {
    let exactly_this = Preconditions { uid: Some(pod.uid.to_string()), resource_version: None };
    let order = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions { preconditions: Some(exactly_this), ..DeleteOptions::default() }),
    };
    let body = serde_json::to_vec(&order).map_err(kube::core::request::Error::SerializeBody)?;
    Request::new(Pod::url_path(Some(&pod.namespace))).create_subresource(
        "eviction",
        &pod.name,
        &PostParams { dry_run: dry, ..PostParams::default() },
        body,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::tier::tests::pod;
    use kubeapi::mock::{self, AfterLines, MockReply};
    use kubeapi::reply::ReplyClass;

    #[tokio::test(start_paused = true)]
    async fn d1_the_eviction_names_the_uid_where_the_api_reads_it() {
        let (cluster, calls) = mock::cluster(vec![mock::status(201, "")]);
        assert_eq!(evict(&cluster, &pod("a").pod, false).await, Reply::Done);
        let call = calls.all().remove(0);
        assert_eq!(call.line, "POST /api/v1/namespaces/shop/pods/a/eviction?");
        assert_eq!(call.content_type, "application/json");
        let body = r#"{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"preconditions":{"uid":"uid-a"}},"metadata":{"name":"a","namespace":"shop"}}"#;
        assert_eq!(call.body, body);
    }

    fn with_cause(code: u16, cause: &str) -> MockReply {
        let details = serde_json::json!({"causes": [{"reason": cause, "message": "why"}]});
        let body = serde_json::json!({"kind": "Status", "message": "no", "code": code, "details": details});
        MockReply::Full(code, vec![], body.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn d2_each_reply_arrives_in_its_class() {
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let table = [
            (mock::status(200, ""), ReplyClass::Done),
            (mock::status(404, "pods \"a\" not found"), ReplyClass::Done),
            (
                mock::status(409, "the UID in the precondition (1) does not match the UID in record (2)"),
                ReplyClass::Done,
            ),
            (mock::status(409, "the object has been modified"), ReplyClass::Transient),
            (with_cause(429, "DisruptionBudget"), ReplyClass::Budget),
            (mock::status(429, "too many requests"), ReplyClass::Throttle),
            (
                MockReply::Full(429, vec![("retry-after", "7")], "Too many requests".to_owned()),
                ReplyClass::Throttle,
            ),
            (with_cause(403, "NamespaceTerminating"), ReplyClass::Transient),
            (mock::status(500, two), ReplyClass::Budget),
            (mock::status(500, "etcdserver: leader changed"), ReplyClass::Transient),
            (mock::status(503, ""), ReplyClass::Transient),
            (MockReply::Full(504, vec![], "<html>bad gateway</html>".to_owned()), ReplyClass::Transient),
            (MockReply::Lines(vec!["{".to_owned()], AfterLines::Cut), ReplyClass::Transient),
            (MockReply::Refused("connection refused"), ReplyClass::Transient),
            (MockReply::Silence, ReplyClass::Transient),
            (mock::status(401, "Unauthorized"), ReplyClass::Permanent),
            (mock::status(403, "pods \"a\" is forbidden"), ReplyClass::Permanent),
        ];
        for (number, (answer, class)) in table.into_iter().enumerate() {
            let (cluster, calls) = mock::cluster(vec![answer]);
            let reply = evict(&cluster, &pod("a").pod, false).await;
            assert_eq!(reply.class(), class, "row {number}: {reply:?}");
            assert_eq!(calls.lines().len(), 1, "row {number}: asked once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d3_the_retry_after_header_comes_through_also_on_a_body_that_is_no_status() {
        let busy = MockReply::Full(429, vec![("retry-after", "7")], "Too many requests".to_owned());
        let (cluster, _) = mock::cluster(vec![busy]);
        let reply = evict(&cluster, &pod("a").pod, false).await;
        assert_eq!(reply.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(reply.text(), "429: Too many requests");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up_at_the_limit() {
        let (cluster, _) = mock::cluster(vec![]);
        let cluster = cluster.with_call_limit(Duration::from_secs(3));
        let reply = evict(&cluster, &pod("a").pod, false).await;
        assert_eq!(reply.text(), "evict pod shop/a: no answer within 3 s");
    }
}
