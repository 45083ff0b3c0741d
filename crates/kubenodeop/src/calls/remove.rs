//! The calls by which a pod is asked to leave: its eviction by name *and* UID, and the two that delete it without the
//! eviction API.
//!
//! Not here: when to take which, requests of its responders (`eviction_request`). Not `kube::Api::evict`: it writes
//! `delete_options` where the API reads `deleteOptions`, so the server drops the UID without a word. Source: the eviction
//! API's own order of work (Kubernetes page "API-initiated Eviction"): it claims a disruption on the budget's status, under
//! the version that it has read, and deletes the pod only then. It does so for one budget and refuses for more; [`remove`]
//! does the same for each of several.
//! Each deletion is marked as a disruption first, as there (`addConditionAndDeletePod`): a Job whose
//! `podFailurePolicy` passes over disruptions counts a pod without that condition as failed.
//!
//! Makes Kubernetes count the pods of a budget again when its numbers are behind. Source: kubernetes
//! `pkg/controller/disruption/disruption.go` (`getPdbForPod`, `buildDisruptedPodMap`, `countHealthyPods`).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta, Time};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectList, Request};
use kubeapi::client::BuiltRequest;
use kubeapi::names::PodRef;
use kubeapi::nodes::signed;
use kubeapi::reply::Reply;
use kubeapi::slim::{Pod, PodDisruptionBudget, is_ready};
use kubeapi::{ApiClient, Error};
use serde_json::{Value, json};
use step::SmallSort as _;

use crate::calls::budgets::facts as budget_facts;
use crate::plan::budget::{BudgetFacts, GuardedPod};

/// How long a claim of ours holds when the deletion after it failed. The disruption controller takes
/// claims back after two minutes; we trust ours for less.
const CLAIM_HOLDS: SignedDuration = SignedDuration::from_secs(90);
/// More claims than this at a time the eviction API does not make on one budget either.
const MOST_CLAIMS: usize = 2000;

/// By which call a pod is asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalCall {
    Evict,
    /// An EvictionRequest, which the pod's responders answer.
    Request,
    /// A claim on each of its budgets, then a deletion.
    Remove,
    /// A deletion, whatever its budgets say.
    Delete,
}

/// Asks exactly this pod to leave by this call, which is no request of its responders; with `dry` only as a dry run.
pub(crate) async fn ask(cluster: &ApiClient, way: RemovalCall, guarded: &GuardedPod, dry: bool) -> Reply {
    match way {
        RemovalCall::Evict | RemovalCall::Request => evict(cluster, &guarded.pod, dry).await,
        RemovalCall::Remove => remove(cluster, guarded, dry).await,
        RemovalCall::Delete => delete(cluster, &guarded.pod, dry).await,
    }
}

/// Evicts exactly this pod, with its own grace period; with `dry` only as a dry run, which changes nothing. Dropping
/// the future leaves open whether the server has carried it out.
pub async fn evict(cluster: &ApiClient, pod: &PodRef, dry: bool) -> Reply {
    match cluster.order(&format!("evict pod {pod}"), eviction(pod, dry)).await {
        Ok(()) => Reply::Done,
        Err(error) => error.reply(),
    }
}

fn eviction(pod: &PodRef, dry: bool) -> BuiltRequest {
    let exactly_this = meta::Preconditions { uid: Some(pod.uid.to_string()), resource_version: None };
    let order = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(meta::DeleteOptions {
            preconditions: Some(exactly_this),
            ..meta::DeleteOptions::default()
        }),
    };
    let body = serde_json::to_vec(&order).map_err(kube::core::request::Error::SerializeBody)?;
    Request::new(Pod::url_path(Some(&pod.namespace))).create_subresource(
        "eviction",
        &pod.name,
        &PostParams { dry_run: dry, ..PostParams::default() },
        body,
    )
}

/// Deletes exactly this pod, with its own grace period, once each budget that guards it has given room for it. Budgets
/// are claimed in the order of their names, but for those that let the pod pass, as the eviction API passes them. While
/// one has no room nothing is written, and the reply is [`Reply::Budget`] with the names and numbers of all. Another
/// writer's change in between is [`Reply::Conflict`]; claims made by then hold for the next call.
///
/// Dropping the future leaves open what the server has carried out; a claim without deletion lapses by itself. With `dry`
/// the same calls are dry runs, which change nothing.
async fn remove(cluster: &ApiClient, guarded: &GuardedPod, dry: bool) -> Reply {
    let pod = &guarded.pod;
    let (budgets, now) = match read(cluster, &pod.namespace).await {
        Ok(read) => read,
        Err(error) => return of_budget(error.reply()),
    };
    let budgets: Vec<GuardingBudget> =
        budgets.into_iter().filter(|budget| budget.facts.guards(&guarded.labels)).collect();
    let (passed, asked): (Vec<&GuardingBudget>, Vec<&GuardingBudget>) =
        budgets.iter().partition(|budget| budget.facts.passes(guarded.ready));
    let open: Vec<&GuardingBudget> =
        asked.into_iter().filter(|budget| !budget.claimed_for(pod, now)).collect();
    if open.iter().any(|budget| !budget.gives_room()) {
        let lines: Vec<String> = budgets.iter().map(GuardingBudget::line).collect();
        return Reply::Budget { text: lines.join("; "), retry_after: None };
    }
    for budget in open {
        if let Err(reply) = budget.claim(cluster, pod, now, dry).await {
            return reply;
        }
    }
    marked_and_deleted(cluster, pod, dry, !passed.is_empty()).await
}

/// Deletes exactly this pod, with its own grace period, whatever its budgets say; with `dry` only as a dry run.
pub async fn delete(cluster: &ApiClient, pod: &PodRef, dry: bool) -> Reply {
    marked_and_deleted(cluster, pod, dry, false).await
}

/// Marks the pod and deletes it, where it is `sick` only if it is still not Ready.
async fn marked_and_deleted(cluster: &ApiClient, pod: &PodRef, dry: bool, sick: bool) -> Reply {
    let marked = match mark(cluster, pod, dry).await {
        Ok(marked) => marked,
        Err(error) => return error.reply(),
    };
    if sick && is_ready(&marked) {
        return Reply::Conflict { text: format!("pod {pod} is Ready now, and its budgets guard it") };
    }
    // Nor does it become Ready in between.
    let version = marked.metadata.resource_version.filter(|_| sick && !dry);
    ordered(cluster, pod, version, DeleteParams { dry_run: dry, ..DeleteParams::default() }).await
}

/// Writes the condition `DisruptionTarget` of exactly this pod, by the reason of the eviction API, and returns the pod
/// as it is then; with `dry` only as a dry run. Another pod of this name is a conflict on the UID.
async fn mark(cluster: &ApiClient, pod: &PodRef, dry: bool) -> Result<Pod, Error> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "its node is being drained", "lastTransitionTime": Time(Timestamp::now()),
    });
    // By `type`: the other conditions stay as they are.
    let change = json!({ "metadata": { "uid": pod.uid.as_str() }, "status": { "conditions": [condition] } });
    let how = PatchParams { dry_run: dry, ..signed() };
    let pods = Request::new(Pod::url_path(Some(&pod.namespace)));
    let request = pods.patch_subresource("status", &pod.name, &how, &Patch::Strategic(change));
    cluster.ask(&format!("mark pod {pod} as disrupted"), request).await
}

/// Deletes the object of exactly this pod at once, without waiting for its kubelet: only for a pod of which no container
/// lives.
pub(crate) async fn delete_now(cluster: &ApiClient, pod: &PodRef) -> Reply {
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    ordered(cluster, pod, None, at_once).await
}

async fn ordered(cluster: &ApiClient, pod: &PodRef, version: Option<String>, how: DeleteParams) -> Reply {
    let exactly_this = Preconditions { uid: Some(pod.uid.to_string()), resource_version: version };
    let how = DeleteParams { preconditions: Some(exactly_this), ..how };
    let request = Request::new(Pod::url_path(Some(&pod.namespace))).delete(&pod.name, &how);
    match cluster.order(&format!("delete pod {pod}"), request).await {
        Ok(()) => Reply::Done,
        Err(error) => error.reply(),
    }
}

/// One budget that guards the pod.
struct GuardingBudget {
    /// As the server gave it, members that we do not know included: it is written back whole.
    object: Value,
    parsed: PodDisruptionBudget,
    facts: BudgetFacts,
}

/// The budgets of the namespace, by name, and the server's time: claims are stamped and judged by it, as the
/// disruption controller compares them with a clock of the control plane and not with this device's.
async fn read(cluster: &ApiClient, namespace: &str) -> Result<(Vec<GuardingBudget>, Timestamp), Error> {
    let what = format!("list disruption budgets of namespace {namespace}");
    let list = collection(namespace).list(&ListParams::default());
    let (found, now): (ObjectList<Value>, _) = cluster.ask_dated(&what, list).await?;
    let mut guards = Vec::new();
    for mut object in found.items {
        let parsed: PodDisruptionBudget = kubeapi::objects::typed(&object)
            .map_err(|source| Error::Garbled { what: what.clone(), source })?;
        let facts = budget_facts(&parsed);
        // Items of a list do not carry these.
        object["apiVersion"] = json!("policy/v1");
        object["kind"] = json!("PodDisruptionBudget");
        guards.push(GuardingBudget { object, parsed, facts });
    }
    guards.order_by(|one, other| one.facts.name.cmp(&other.facts.name));
    Ok((guards, now))
}

impl GuardingBudget {
    fn claims(&self) -> Option<&BTreeMap<String, Time>> {
        self.parsed.status.as_ref()?.disrupted_pods.as_ref()
    }

    /// As `shop/web`.
    fn name(&self) -> String {
        format!("{}/{}", self.facts.namespace, self.facts.name)
    }

    /// A claim for this pod stands, and the numbers have it in them already.
    fn claimed_for(&self, pod: &PodRef, now: Timestamp) -> bool {
        let claim = self.claims().and_then(|claims| claims.get(&pod.name));
        claim.is_some_and(|Time(at)| now.duration_since(*at).abs() < CLAIM_HOLDS)
    }

    /// The numbers are those of a budget that has changed since.
    fn uncounted(&self) -> bool {
        let counted = self.parsed.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        counted < self.parsed.metadata.generation.unwrap_or(0)
    }

    fn gives_room(&self) -> bool {
        self.facts.has_room() && !self.uncounted() && self.claims().map_or(0, BTreeMap::len) < MOST_CLAIMS
    }

    fn line(&self) -> String {
        if self.uncounted() {
            format!("{}, not counted again since its change", self.facts)
        } else {
            self.facts.to_string()
        }
    }

    /// Takes one disruption in the name of `pod`, if the budget is as it was read.
    async fn claim(&self, cluster: &ApiClient, pod: &PodRef, now: Timestamp, dry: bool) -> Result<(), Reply> {
        let mut object = self.object.clone();
        object["status"]["disruptionsAllowed"] = json!(self.facts.allowed - 1);
        let what = format!("claim a disruption of budget {} for pod {pod}", self.name());
        let written = self.write(cluster, &what, object, std::slice::from_ref(&pod.name), now, dry).await;
        written.map_err(|error| of_budget(error.reply()))
    }

    /// Writes `object` in its place, with claims for these pods of this time.
    async fn write(
        &self,
        cluster: &ApiClient,
        what: &str,
        mut object: Value,
        pods: &[String],
        at: Timestamp,
        dry: bool,
    ) -> Result<(), Error> {
        let claims = &mut object["status"]["disruptedPods"];
        if !claims.is_object() {
            *claims = json!({});
        }
        for pod in pods {
            claims[pod] = json!(Time(at));
        }
        let BudgetFacts { namespace, name, .. } = &self.facts;
        let body = serde_json::to_vec(&object).map_err(kube::core::request::Error::SerializeBody);
        let request = body.and_then(|body| {
            let how = PostParams { dry_run: dry, ..PostParams::default() };
            collection(namespace).replace_subresource("status", name, &how, body)
        });
        cluster.order(what, request).await
    }
}

/// What an answer about a budget means for the pod: that the budget is not there, or is another one now, is no
/// word on the pod.
fn of_budget(reply: Reply) -> Reply {
    if let Reply::NotFound { text } = reply {
        return Reply::Conflict { text };
    }
    let is_another = matches!(reply, Reply::UidChanged | Reply::Expired | Reply::Done);
    if is_another { Reply::Conflict { text: "the budget is another one now".to_owned() } } else { reply }
}

fn collection(namespace: &str) -> Request {
    Request::new(PodDisruptionBudget::url_path(Some(namespace)))
}

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
    let (what, object) = (format!("have budget {} counted again", budget.name()), budget.object.clone());
    budget.write(cluster, &what, object, &names, now - CLAIM_COUNTS - CLAIM_HOLDS, false).await?;
    Ok(Some(healthy))
}

fn counts(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && is_ready(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PodFacts;
    use crate::plan::tier::tests::pod;
    use kubeapi::mock::{self, AfterLines, MockReply, RecordedCalls};
    use kubeapi::reply::ReplyClass;
    use serde_json::{Value, json};
    use std::time::Duration;

    const LIST: &str = "GET /apis/policy/v1/namespaces/shop/poddisruptionbudgets?";
    const EVICT: &str = "POST /api/v1/namespaces/shop/pods/web-0/eviction?";
    const CLAIM_A: &str = "PUT /apis/policy/v1/namespaces/shop/poddisruptionbudgets/a/status?";
    const CLAIM_B: &str = "PUT /apis/policy/v1/namespaces/shop/poddisruptionbudgets/b/status?";
    const MARK: &str = "PATCH /api/v1/namespaces/shop/pods/web-0/status?&fieldManager=pillar-rs";
    const DELETE: &str = "DELETE /api/v1/namespaces/shop/pods/web-0?";

    fn budget(name: &str, app: &str, allowed: i32) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": "7", "generation": 2, "uid": "u"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}, "tomorrow": true},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 4,
                "observedGeneration": 2, "disruptedPods": {"web-9": "2025-01-01T00:00:00Z"}},
        })
    }

    fn done() -> MockReply {
        mock::object(&json!({}))
    }

    fn lines(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    async fn remove(answers: Vec<MockReply>) -> (Reply, RecordedCalls) {
        let (cluster, calls) = mock::cluster(answers);
        let pod = pod("web-0");
        (super::remove(&cluster, &pod.guarded(), false).await, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn d6_all_budgets_are_claimed_as_they_were_read_and_the_pod_goes_by_its_uid() {
        let listed = [budget("b", "web", 1), budget("x", "other", 0), budget("a", "web", 2)];
        let (reply, calls) = remove(vec![mock::list("9", &listed), done(), done(), done(), done()]).await;
        assert_eq!(reply, Reply::Done);
        assert_eq!(calls.lines(), [LIST, CLAIM_A, CLAIM_B, MARK, DELETE]);
        let calls = calls.all();
        for (call, name, left) in [(&calls[1], "a", 1), (&calls[2], "b", 0)] {
            let mut body: Value = serde_json::from_str(&call.body).unwrap();
            let claimed = body["status"]["disruptedPods"]["web-0"].take();
            let age = Timestamp::now().duration_since(claimed.as_str().unwrap().parse().unwrap());
            assert!(age.abs() < SignedDuration::from_mins(5), "{claimed}");
            let mut expected = budget(name, "web", left);
            expected["apiVersion"] = json!("policy/v1");
            expected["kind"] = json!("PodDisruptionBudget");
            expected["status"]["disruptedPods"]["web-0"] = Value::Null;
            assert_eq!(body, expected, "all but the claim as it was, the version named");
        }
        let mut mark: Value = serde_json::from_str(&calls[3].body).unwrap();
        assert!(mark["status"]["conditions"][0]["lastTransitionTime"].take().is_string());
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "its node is being drained", "lastTransitionTime": null});
        let status = json!({"conditions": [condition]});
        assert_eq!(mark, json!({"metadata": {"uid": "uid-web-0"}, "status": status}));
        assert_eq!(calls[3].content_type, "application/strategic-merge-patch+json");
        assert_eq!(calls[4].body, r#"{"preconditions":{"uid":"uid-web-0"}}"#);
    }

    #[tokio::test(start_paused = true)]
    async fn d6_while_one_budget_has_no_room_nothing_is_written_and_all_are_named() {
        let mut changed = budget("b", "web", 1);
        changed["metadata"]["generation"] = json!(3);
        let mut never = budget("b", "web", 1);
        never["status"] = json!(null);
        let held = "PodDisruptionBudget shop/b allows no disruption: 3 of 4 pods healthy, 2 required; a disruption that was \
                 granted and not used is counted for web-9 until 00:02:00 UTC";
        let table = [
            (budget("b", "web", 0), held),
            (budget("b", "web", -1), held),
            (
                changed,
                "PodDisruptionBudget shop/b allows 1 disruption: 3 of 4 pods healthy, 2 required, not counted again since its change",
            ),
            (
                never,
                "PodDisruptionBudget shop/b allows no disruption: 0 of 0 pods healthy, 0 required, not counted again since its change",
            ),
        ];
        for (closed, words) in table {
            let (reply, calls) = remove(vec![mock::list("9", &[closed, budget("a", "web", 1)])]).await;
            let text = format!(
                "PodDisruptionBudget shop/a allows 1 disruption: 3 of 4 pods healthy, 2 required; {words}"
            );
            assert_eq!(reply, Reply::Budget { text, retry_after: None });
            assert_eq!(calls.lines(), [LIST]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d6_a_claim_of_ours_holds_for_the_next_call_and_an_old_one_does_not() {
        let claimed = |age: SignedDuration| {
            let mut budget = budget("a", "web", 0);
            budget["status"]["disruptedPods"]["web-0"] = json!(Time(Timestamp::now() - age));
            budget
        };
        let fresh = [claimed(SignedDuration::from_secs(5)), budget("b", "web", 1)];
        let (reply, calls) = remove(vec![mock::list("9", &fresh), done(), done(), done()]).await;
        assert_eq!((reply, calls.lines()), (Reply::Done, lines(&[LIST, CLAIM_B, MARK, DELETE])));

        let old = [claimed(SignedDuration::from_secs(600)), budget("b", "web", 1)];
        let (reply, calls) = remove(vec![mock::list("9", &old)]).await;
        assert_eq!((reply.class(), calls.lines()), (ReplyClass::Budget, vec![LIST.into()]));
    }

    /// A list as a server answers it whose clock is not ours.
    fn dated(date: &'static str, items: &[Value]) -> MockReply {
        let MockReply::Full(code, _, body) = mock::list("9", items) else { panic!() };
        MockReply::Full(code, vec![("date", date)], body)
    }

    #[tokio::test(start_paused = true)]
    async fn d6_claims_bear_the_time_of_the_server_and_are_judged_by_it() {
        let mut claimed = budget("a", "web", 0);
        claimed["status"]["disruptedPods"]["web-0"] = json!("2031-02-03T04:05:00Z");
        let listed = [claimed, budget("b", "web", 1)];
        let (reply, calls) =
            remove(vec![dated("Mon, 03 Feb 2031 04:06:00 GMT", &listed), done(), done(), done()]).await;
        assert_eq!((reply, calls.lines()), (Reply::Done, lines(&[LIST, CLAIM_B, MARK, DELETE])));
        let body: Value = serde_json::from_str(&calls.all()[1].body).unwrap();
        assert_eq!(body["status"]["disruptedPods"]["web-0"], "2031-02-03T04:06:00Z");
        let (reply, calls) = remove(vec![dated("Mon, 03 Feb 2031 04:07:00 GMT", &listed)]).await;
        assert_eq!((reply.class(), calls.lines()), (ReplyClass::Budget, vec![LIST.into()]), "too old for us");
    }

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
        let details = json!({"causes": [{"reason": cause, "message": "why"}]});
        let body = json!({"kind": "Status", "message": "no", "code": code, "details": details});
        MockReply::Full(code, vec![], body.to_string())
    }

    /// What a server may answer, and what that means for the pod that it is about.
    fn answers() -> Vec<(MockReply, ReplyClass)> {
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let busy = MockReply::Full(429, vec![("retry-after", "7")], "Too many requests".to_owned());
        let status = mock::status;
        vec![
            (status(404, "pods \"web-0\" not found"), ReplyClass::Done),
            (
                status(409, "the UID in the precondition (1) does not match the UID in record (2)"),
                ReplyClass::Done,
            ),
            (
                status(409, "Precondition failed: UID in precondition: 1, UID in object meta: 2"),
                ReplyClass::Done,
            ),
            (status(409, "the object has been modified"), ReplyClass::Transient),
            (with_cause(429, "DisruptionBudget"), ReplyClass::Budget),
            (status(429, "too many requests"), ReplyClass::Throttle),
            (busy, ReplyClass::Throttle),
            (with_cause(403, "NamespaceTerminating"), ReplyClass::Transient),
            (status(500, two), ReplyClass::Budget),
            (status(500, "etcdserver: leader changed"), ReplyClass::Transient),
            (status(503, ""), ReplyClass::Transient),
            (MockReply::Full(504, vec![], "<html>bad gateway</html>".to_owned()), ReplyClass::Transient),
            (MockReply::Lines(vec!["{".to_owned()], AfterLines::Cut), ReplyClass::Transient),
            (MockReply::Refused("connection refused"), ReplyClass::Transient),
            (MockReply::Silence, ReplyClass::Transient),
            (status(401, "Unauthorized"), ReplyClass::Permanent),
            (status(403, "pods \"web-0\" is forbidden"), ReplyClass::Permanent),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn d2_each_reply_to_an_eviction_a_mark_or_a_deletion_arrives_in_its_class() {
        let table: [(RemovalCall, usize, &[&str]); 3] = [
            (RemovalCall::Evict, 0, &[EVICT]),
            (RemovalCall::Delete, 1, &[MARK, DELETE]),
            // Without the mark nothing is deleted.
            (RemovalCall::Delete, 0, &[MARK]),
        ];
        for (way, before, expected) in table {
            for (number, (answer, class)) in answers().into_iter().enumerate() {
                let row = format!("{way:?} after {before}, row {number}");
                let done = (0..before).map(|_| done());
                let (cluster, calls) = mock::cluster(done.chain([answer]).collect());
                let reply = ask(&cluster, way, &pod("web-0").guarded(), false).await;
                assert_eq!((reply.class(), calls.lines()), (class, lines(expected)), "{row}: {reply:?}");
                if reply.text() == "429: Too many requests" {
                    assert_eq!(reply.retry_after(), Some(Duration::from_secs(7)), "{row}");
                }
            }
        }
        for code in [200, 201, 202] {
            for (way, mark) in [(RemovalCall::Evict, None), (RemovalCall::Delete, Some(done()))] {
                let answers = mark.into_iter().chain([mock::status(code, "")]).collect();
                let reply = ask(&mock::cluster(answers).0, way, &pod("web-0").guarded(), false).await;
                assert_eq!(reply, Reply::Done, "{way:?} {code}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d6_no_answer_about_a_budget_ever_reads_as_if_the_pod_were_gone() {
        let two = || mock::list("9", &[budget("a", "web", 1), budget("b", "web", 1)]);
        for (before, expected) in [(None, vec![LIST]), (Some(()), vec![LIST, CLAIM_A])] {
            for (number, (answer, class)) in answers().into_iter().enumerate() {
                let class = if class == ReplyClass::Done { ReplyClass::Transient } else { class };
                let (reply, calls) =
                    remove(before.map(|()| two()).into_iter().chain([answer]).collect()).await;
                let found = (reply.class(), calls.lines());
                assert_eq!(found, (class, lines(&expected)), "{expected:?}, row {number}");
            }
        }
        let listed = mock::list("9", &[budget("a", "web", 1)]);
        let (reply, _) = remove(vec![listed, mock::status(409, "the object has been modified")]).await;
        assert_eq!(reply, Reply::Conflict { text: "409: the object has been modified".to_owned() });
        let (reply, _) = remove(vec![mock::list("9", &[json!({"metadata": 7})])]).await;
        assert_eq!(reply.class(), ReplyClass::Transient, "{reply:?}");
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

    #[tokio::test(start_paused = true)]
    async fn k3_budgets_that_let_a_sick_pod_pass_are_neither_asked_nor_claimed() {
        let lenient = || {
            let mut budget = budget("b", "web", 0);
            budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
            budget["status"]["currentHealthy"] = json!(1);
            budget
        };
        let sick = PodFacts { ready: false, ..pod("web-0") }.guarded();
        let answered = |ready: &str| {
            json!({"metadata": {"resourceVersion": "12"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        // `a` has enough healthy pods without it, `b` is told to let it pass.
        let listed = || mock::list("9", &[lenient(), budget("a", "web", 0)]);
        let (cluster, calls) = mock::cluster(vec![listed(), mock::object(&answered("False")), done()]);
        assert_eq!(super::remove(&cluster, &sick, false).await, Reply::Done);
        assert_eq!(calls.lines(), [LIST, MARK, DELETE]);
        let body = r#"{"preconditions":{"resourceVersion":"12","uid":"uid-web-0"}}"#;
        assert_eq!(calls.all()[2].body, body, "it is still the pod that was not Ready");
        // It has become Ready meanwhile.
        let (cluster, calls) = mock::cluster(vec![listed(), mock::object(&answered("True"))]);
        assert_eq!(super::remove(&cluster, &sick, false).await.class(), ReplyClass::Transient);
        assert_eq!(calls.lines(), [LIST, MARK]);
        // A third one has no room, and its others are too few.
        let mut third = budget("c", "web", 0);
        third["status"]["currentHealthy"] = json!(1);
        let (cluster, calls) = mock::cluster(vec![mock::list("9", &[lenient(), third])]);
        assert_eq!(super::remove(&cluster, &sick, false).await.class(), ReplyClass::Budget);
        assert_eq!(calls.lines(), [LIST]);
        // Of one that is Ready each asks for its own disruption.
        let (reply, _) = remove(vec![listed()]).await;
        assert_eq!(reply.class(), ReplyClass::Budget);
    }

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

    /// Old pods that are Ready, a letter the name of one.
    fn healthy(names: &str) -> Vec<Pod> {
        let names: Vec<String> = names.chars().map(String::from).collect();
        pods(&names.iter().map(|it| (it.as_str(), OLD, true, false)).collect::<Vec<_>>())
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
        let four = healthy("wxyz");
        let again = "2031-02-03T04:02:30Z";
        let back = pods(&[("web-0", "2031-02-03T04:05:40Z", true, false)]);
        let born = [healthy("wxy"), back].concat();
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
            ("as counted", json!(null), healthy("wxy")),
            (
                "ending or not Ready",
                json!(null),
                pods(&[("w", OLD, true, true), ("x", OLD, false, false), ("y", OLD, true, false)]),
            ),
            (
                "a claim for a pod that is still to be deleted",
                json!({"z": "2031-02-03T04:05:30Z"}),
                healthy("wxyz"),
            ),
        ];
        for (row, claims, pods) in table {
            let (found, calls) = recounted(claims, &pods, MockReply::Silence).await;
            assert_eq!((found.unwrap(), calls.lines()), (None, vec![LIST.to_owned()]), "{row}");
        }
        let four = healthy("wxyz");
        let (found, _) =
            recounted(json!(null), &four, mock::status(409, "the object has been modified")).await;
        assert!(found.unwrap_err().is_conflict());
        let (found, calls) = recounted(json!(null), &four, MockReply::Silence).await;
        assert!(found.is_err() && calls.lines().len() == 2);
    }
}
