//! EvictionRequests (KEP-4563, `lifecycle.k8s.io/v1alpha1`), by which the responders that a pod declares are asked to
//! evict it; how far they are; taking that back. All that is alpha in them is here.
//!
//! Not here: which pods are left to their responders and for how long (`engine`); whether a pod is gone, for which no word
//! of these objects counts. Source: kubernetes v1.37 `staging/src/k8s.io/api/lifecycle/v1alpha1/types.go`, served where the
//! gate `EvictionRequestAPI` and the group are switched on. Nothing removes an EvictionRequest but its requester.

use jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PostParams};
use kube::core::{Request, request};
use serde_json::{Value, json};
use tracing::{debug, info};

use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::client::BuiltRequest;
use kubeapi::found;
use kubeapi::names::{NodeName, PodRef};
use kubeapi::nodes::signed;
use kubeapi::objects::{condition, items, text, time};
use kubeapi::reply::{Reply, ReplyClass};
use kubeapi::watch::WatchScope;
use topics::cut_text;

const VERSION: &str = "lifecycle.k8s.io/v1alpha1";
/// Who asks, in each of ours.
const REQUESTER: &str = "pillar-rs.dev/drain";
/// On each of ours: the node that is drained.
const NODE_LABEL: &str = "pillar-rs/drain-node";
/// So much of what a responder says is shown.
const MESSAGE_BYTES: usize = 300;

fn requests(namespace: Option<&str>) -> Request {
    Request::new(path("evictionrequests", namespace))
}

fn path(plural: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/apis/{VERSION}/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{VERSION}/{plural}"),
    }
}

/// The name of ours for this pod, the same after a restart.
fn name(pod: &PodRef) -> String {
    format!("pillar-rs-{}", pod.uid)
}

/// Asks the responders of exactly this pod to evict it, or reads how far they are: [`Reply::Responding`], or the reply of a
/// call that failed and is worth another try. Errors: why no responder evicts it, or no longer.
pub(crate) async fn ask(cluster: &ApiClient, node: &NodeName, pod: &PodRef) -> Result<Reply, String> {
    match follow(cluster, node, pod).await {
        Ok(followed) => followed.map(|text| Reply::Responding { text }),
        Err(error) => match error.reply() {
            reply if matches!(reply.class(), ReplyClass::Transient | ReplyClass::Throttle) => Ok(reply),
            // No such group, no right, not admitted: without them the pod leaves as any other.
            _ => Err(error.line()),
        },
    }
}

/// How far the responders are, or why they evict it no longer.
async fn follow(cluster: &ApiClient, node: &NodeName, pod: &PodRef) -> Result<Result<String, String>, Error> {
    let (name, namespace) = (name(pod), pod.namespace.as_str());
    let what = |verb: &str| format!("{verb} EvictionRequest {namespace}/{name}");
    let read = requests(Some(namespace)).get(&name, &GetParams::default());
    let request = match cluster.ask::<Value>(&what("read"), read).await {
        Err(error) if error.is_not_found() && !error.is_unknown_kind() => {
            info!(%pod, uid = %pod.uid, name, "its responders are asked to evict it, by an EvictionRequest");
            cluster.order(&what("create"), create(node, pod)).await?;
            Value::Null
        }
        read => read?,
    };
    if let Some(why) = over(&request) {
        return Ok(Err(format!("EvictionRequest {namespace}/{name} {why}")));
    }
    let what = format!("list evictions of namespace {namespace}");
    let list = Request::new(path("evictions", Some(namespace))).list(&ListParams::default());
    let (evictions, now): (Value, _) = cluster.ask_dated(&what, list).await?;
    Ok(Ok(words(items(&evictions["items"]), pod, now)))
}

fn create(node: &NodeName, pod: &PodRef) -> BuiltRequest {
    let object = json!({
        "apiVersion": VERSION, "kind": "EvictionRequest",
        "metadata": { "name": name(pod), "namespace": pod.namespace, "labels": { NODE_LABEL: node.as_str() } },
        "spec": {
            "target": { "pod": { "name": pod.name, "uid": pod.uid.as_str() } },
            "requester": REQUESTER, "intent": "Eviction",
        },
    });
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    requests(Some(&pod.namespace)).create(&PostParams::default(), body)
}

/// Why no responder evicts the pod for this request any more, where that is so.
fn over(request: &Value) -> Option<String> {
    let is = |kind: &str| Some(condition(&request["status"], kind)).filter(|it| it["status"] == "True");
    if let Some(ended) = is("Failed").or_else(|| is("TargetEvicted")) {
        let [kind, reason, message] = ["type", "reason", "message"].map(|it| text(&ended[it]));
        return Some(format!("says {kind}, {reason}: {}", shown(&message)));
    }
    let intent = text(&request["spec"]["intent"]);
    let goes = intent == "Withdrawn" || !request["metadata"]["deletionTimestamp"].is_null();
    goes.then(|| "is being withdrawn".to_owned())
}

/// The active responder of this pod, what it says, the age of its last word and when it expects to be done.
fn words(evictions: &[Value], pod: &PodRef, now: Timestamp) -> String {
    let named = |list: &Value, member: &str, is: &str| {
        items(list).iter().find(|it| it[member] == is).cloned().unwrap_or_default()
    };
    let ours = evictions.iter().filter(|it| it["spec"]["target"]["pod"]["uid"] == pod.uid.as_str());
    let active = ours.map(|it| (named(&it["status"]["targetResponders"], "state", "Active"), it));
    let Some((name, eviction)) =
        active.map(|(active, it)| (text(&active["name"]), it)).find(|it| !it.0.is_empty())
    else {
        return "none of them is active yet".to_owned();
    };
    let said = named(&eviction["status"]["responders"], "name", &name);
    let message = match shown(&text(&said["message"])) {
        message if message.is_empty() => "it says nothing".to_owned(),
        message => message,
    };
    let heard = time(&said["heartbeatTime"]).map_or_else(
        || "no heartbeat yet".to_owned(),
        |at| format!("last heartbeat {} s ago", now.duration_since(at).as_secs().max(0)),
    );
    let end = time(&said["expectedCompletionTime"]);
    let end = end.map_or_else(|| "no expected end".to_owned(), |at| format!("expected end {at}"));
    format!("{name} is active: {message}; {heard}, {end}")
}

/// What others wrote, in one line and bounded.
fn shown(text: &str) -> String {
    cut_text(&text.replace(char::is_control, " "), MESSAGE_BYTES)
}

/// Withdraws the request for this pod, so that its responders stop, and deletes it.
pub(crate) async fn withdraw(cluster: &ApiClient, pod: &PodRef) -> Result<(), Error> {
    withdraw_one(cluster, &pod.namespace, &name(pod)).await
}

/// The same for all requests of drains of `node`. What is in the way of one does not keep the others from being done; the
/// first error is returned. Dropping it leaves the rest for the next call.
pub async fn withdraw_all(cluster: &ApiClient, node: &NodeName) -> Result<(), Error> {
    let all = WatchScope::all("EvictionRequests of drains", path("evictionrequests", None));
    let ours = WatchScope { labels: Some(format!("{NODE_LABEL}={node}")), ..all };
    let left = ours.list_installed::<Value>(cluster).await?.unwrap_or_default();
    let mut done = Ok(());
    for it in left.iter().filter(|it| it["spec"]["requester"] == REQUESTER) {
        let meta = &it["metadata"];
        let one = withdraw_one(cluster, &text(&meta["namespace"]), &text(&meta["name"])).await;
        done = done.and(one);
    }
    done
}

async fn withdraw_one(cluster: &ApiClient, namespace: &str, name: &str) -> Result<(), Error> {
    let what = |verb: &str| format!("{verb} EvictionRequest {namespace}/{name}");
    let body = Patch::Merge(json!({ "spec": { "intent": "Withdrawn" } }));
    let told =
        cluster.order(&what("withdraw"), requests(Some(namespace)).patch(name, &signed(), &body)).await;
    // To delete it withdraws it too.
    told.unwrap_or_else(|error| debug!(error = error.line(), "an EvictionRequest is deleted as it is"));
    let delete = requests(Some(namespace)).delete(name, &DeleteParams::default());
    found(cluster.order(&what("delete"), delete).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tier::tests::pod;
    use kubeapi::mock::{self, MockReply};

    fn n1() -> NodeName {
        NodeName::parse("n1").unwrap()
    }

    /// An Eviction of pod `a` as the controller of 1.37 writes it, with its first responder in this state.
    fn eviction(state: &str, said: &Value) -> Value {
        let mut first = json!({ "name": "example.com/copier" });
        first.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        json!({
            "spec": { "target": { "pod": { "name": "a", "uid": "uid-a" } } },
            "status": {
                "targetResponders": [
                    { "name": "example.com/copier", "priority": 2000, "state": state },
                    { "name": "imperative-eviction.k8s.io/evictor", "priority": 100, "state": "Inactive" },
                ],
                "responders": [first, { "name": "imperative-eviction.k8s.io/evictor" }],
            },
        })
    }

    #[test]
    fn j2_the_active_responder_its_word_the_age_of_its_heartbeat_and_its_end_are_shown() {
        let now: Timestamp = "2026-11-28T08:00:00Z".parse().unwrap();
        let said = json!({
            "message": "copying\n40 %", "heartbeatTime": "2026-11-28T07:59:20Z",
            "expectedCompletionTime": "2026-11-28T08:05:00Z",
        });
        let active = eviction("Active", &said);
        let ended = eviction("Interrupted", &said);
        let other = {
            let mut other = active.clone();
            other["spec"]["target"]["pod"]["uid"] = "another".into();
            other
        };
        let all = "example.com/copier is active: copying 40 %; last heartbeat 40 s ago, expected end 2026-11-28T08:05:00Z";
        let silent = "example.com/copier is active: it says nothing; no heartbeat yet, no expected end";
        let none = "none of them is active yet";
        for (evictions, expected) in [
            (vec![ended.clone(), active], all),
            (vec![eviction("Active", &json!({}))], silent),
            (vec![ended, other], none),
            (vec![], none),
            (vec![json!({ "status": "odd" })], none),
        ] {
            assert_eq!(words(&evictions, &pod("a").pod, now), expected);
        }
        let long = eviction("Active", &json!({ "message": "x".repeat(4000) }));
        assert!(words(&[long], &pod("a").pod, now).len() < 500);
    }

    #[test]
    fn j2_a_request_that_has_failed_or_is_withdrawn_is_over_and_one_that_waits_is_not() {
        let request = |kind: &str, status: &str, reason: &str| {
            let condition = json!({ "type": kind, "status": status, "reason": reason, "message": "why" });
            json!({ "spec": { "intent": "Eviction" }, "status": { "conditions": [condition] } })
        };
        for (object, expected) in [
            (json!({ "spec": { "intent": "Eviction" } }), None),
            (Value::Null, None),
            (request("Failed", "False", "AwaitingEviction"), None),
            (request("Failed", "True", "NoFurtherResponder"), Some("says Failed, NoFurtherResponder: why")),
            (request("Failed", "True", "EvictionInvalid"), Some("says Failed, EvictionInvalid: why")),
            (request("TargetEvicted", "True", "PodTerminal"), Some("says TargetEvicted, PodTerminal: why")),
            (json!({ "spec": { "intent": "Withdrawn" } }), Some("is being withdrawn")),
            (
                json!({ "metadata": { "deletionTimestamp": "t" }, "spec": { "intent": "Eviction" } }),
                Some("is being withdrawn"),
            ),
        ] {
            assert_eq!(over(&object).as_deref(), expected, "{object}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn j2_the_request_is_as_the_released_types_have_it() {
        let absent = mock::status(404, "evictionrequests.lifecycle.k8s.io \"pillar-rs-uid-a\" not found");
        let evictions = json!({ "items": [eviction("Active", &json!({}))] });
        let (cluster, calls) = mock::cluster(vec![absent, mock::status(201, ""), mock::object(&evictions)]);
        let reply = ask(&cluster, &n1(), &pod("a").pod).await.unwrap();
        assert!(
            matches!(&reply, Reply::Responding { text } if text.starts_with("example.com/copier is active"))
        );
        let create = calls.all().remove(1);
        assert_eq!(create.line, "POST /apis/lifecycle.k8s.io/v1alpha1/namespaces/shop/evictionrequests?");
        let expected = json!({
            "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": "pillar-rs-uid-a", "namespace": "shop", "labels": { "pillar-rs/drain-node": "n1" },
            },
            "spec": {
                "target": { "pod": { "name": "a", "uid": "uid-a" } },
                "requester": "pillar-rs.dev/drain", "intent": "Eviction",
            },
        });
        assert_eq!(serde_json::from_str::<Value>(&create.body).unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn j2_what_only_time_cures_is_asked_again_and_without_group_or_right_the_pod_leaves_as_any_other() {
        let ours = || mock::status(404, "evictionrequests.lifecycle.k8s.io \"pillar-rs-uid-a\" not found");
        let unknown = || MockReply::Full(404, vec![], "404 page not found".to_owned());
        for (number, (answers, again)) in [
            (vec![unknown(), mock::object(&json!({ "groups": [] }))], false),
            (
                vec![mock::status(403, "forbidden: User \"u\" cannot get resource \"evictionrequests\"")],
                false,
            ),
            (vec![ours(), mock::status(422, "metadata.labels: Invalid value")], false),
            (vec![ours(), mock::status(409, "already exists")], true),
            (vec![mock::status(429, "too many requests")], true),
            (vec![mock::status(503, "")], true),
            (vec![MockReply::Silence], true),
        ]
        .into_iter()
        .enumerate()
        {
            let (cluster, _) = mock::cluster(answers);
            let answer = ask(&cluster, &n1(), &pod("a").pod).await;
            assert_eq!(answer.is_ok(), again, "row {number}: {answer:?}");
        }
    }
}
