//! What can be known before a drain begins and would keep it from ever being done: asked as dry runs, so that a node finds
//! it before it takes the turn of the cluster.
//!
//! Only credentials and roles count for a dry run as for the call itself: what an admission says to it is a warning, as
//! a webhook may decide another way about the call (`sideEffects: NoneOnDryRun`), or later. With it, whether the other
//! nodes have room for what leaves. Not here: what passes by itself, as a budget without room does; when it is asked,
//! and what follows (zedkube). Source: kubereboot/kured#792. Dropping the future loses nothing.

use checks::{Finding, Severity};
use futures::stream::{self, StreamExt};
use kubeapi::slim::NodeObject;
use step::{LiteMap, Mono, SmallSort as _};

use crate::calls::{pods, remove};
use crate::engine::{AttemptRules, Limit, LimitAction};
use crate::node;
use crate::plan::placement::peer;
use crate::plan::residents::room_of;
use crate::plan::{PodClass, PodFacts};
use crate::progress::{self, BlockCode};
use kubeapi::names::{NodeName, listed};
use kubeapi::reply::{RefusedBy, Reply};
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use topics::Blocker;

/// So many workloads are asked for, one of each namespace first: on a node with more, the drain meets the rest.
const DRY_RUNS: usize = 4;
/// What the server says for a webhook that knows no dry runs: that says nothing about the real call.
const NO_DRY_RUN: &str = "does not support dry run";
/// The code of findings about dry runs.
const EVICTIONS: &str = "evictions";

/// Why it cannot be looked, or more than single pods stands in the way.
#[derive(Debug)]
pub enum PreflightError {
    /// The node cannot be read, or may not be changed: no cordon.
    Node(Error),
    Pods(Error),
}

impl PreflightError {
    #[must_use]
    pub const fn error(&self) -> &Error {
        match self {
            Self::Node(error) | Self::Pods(error) => error,
        }
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct PreflightFindings {
    pub blockers: Vec<Blocker>,
    /// Room on the other nodes, and what dry runs were answered that stops nothing.
    pub findings: Vec<Finding>,
}

/// The pods that would not leave, one of each of a few workloads, and the room for what leaves. `now` is since when they count as held.
/// Errors: [`PreflightError`]; the caller says what follows.
pub async fn preflight(
    cluster: &ApiClient,
    node: &NodeName,
    device_uuid: &str,
    rules: &AttemptRules,
    now: Mono,
) -> Result<PreflightFindings, PreflightError> {
    let (nodes, all) =
        (WatchScope::all("nodes", NodeObject::url_path(None)), WatchScope::all("pods", Pod::url_path(None)));
    let (nodes, all) = tokio::join!(nodes.list_all::<NodeObject>(cluster), all.list_all::<Pod>(cluster));
    let known = nodes.as_ref().ok().into_iter().flat_map(|it| &it.items);
    match known.into_iter().find(|it| it.metadata.name.as_deref() == Some(node.as_str())) {
        Some(own) => node::owned(cluster, own, device_uuid).map(drop).map_err(PreflightError::Node)?,
        // Why there is none is said by its own reading.
        None => node::read(cluster, node, device_uuid).await.map(drop).map_err(PreflightError::Node)?,
    }
    let cordon = match node::rehearse_patch(cluster, node).await {
        Err(error) => passes(error).map_err(PreflightError::Node)?,
        Ok(()) => None,
    };
    let mut findings = match (nodes, &all) {
        (Ok(nodes), Ok(all)) => {
            let others = nodes.items.iter().filter(|it| it.metadata.name.as_deref() != Some(node.as_str()));
            room_of(node, &all.items, &others.map(peer).collect::<Vec<_>>())
        }
        (Err(error), _) => vec![Finding::unreadable("room", &error).with(Severity::Warns)],
        (_, Err(error)) => vec![Finding::unreadable("room", error).with(Severity::Warns)],
    };
    findings.extend(cordon);
    let here = |it: &&Pod| it.spec.as_ref().and_then(|it| it.node_name.as_deref()) == Some(node.as_str());
    let own = match all {
        Ok(all) => all.items.iter().filter(here).map(pods::facts).collect(),
        // What only warns of room stops nothing.
        Err(_) => pods::list(cluster, node).await.map_err(PreflightError::Pods)?,
    };
    let blockers = if ends_otherwise(&rules.pod) {
        Vec::new()
    } else {
        let (asked, rest) = samples(own);
        findings.extend(not_tried(&rest));
        let asked = stream::iter(asked)
            .map(|it| async move { (remove::evict(cluster, &it.pod, true).await, it) })
            .buffered(DRY_RUNS);
        let mut blockers = Vec::new();
        for (reply, pod) in asked.collect::<Vec<_>>().await {
            match judged(&pod, &reply, now) {
                Some(Ok(blocker)) => blockers.push(blocker),
                Some(Err(finding)) => findings.push(finding),
                None => {}
            }
        }
        blockers
    };
    Ok(PreflightFindings { blockers, findings })
}

/// That evictions of these are not asked for as dry runs; code `evictions`.
fn not_tried(rest: &[PodFacts]) -> Option<Finding> {
    let names: Vec<String> = rest.iter().map(|it| it.pod.to_string()).collect();
    (!names.is_empty()).then(|| {
        let text = format!(
            "evictions of {DRY_RUNS} workloads were tried as dry runs; those of {} more were not: {}",
            names.len(),
            listed(&names, ", ")
        );
        let next = "nothing to do: if a webhook or a role refuses one of them, the drain reports it";
        Finding::new(EVICTIONS, text, next).with(Severity::Hint)
    })
}

/// One pod of each of at most [`DRY_RUNS`] workloads that leave, of as many namespaces as there are: a role and a webhook
/// are often for one namespace. And one of each of the others.
fn samples(own: Vec<PodFacts>) -> (Vec<PodFacts>, Vec<PodFacts>) {
    let mut workloads: LiteMap<(String, String), PodFacts> = LiteMap::new();
    for pod in own.into_iter().filter(|it| it.class() == PodClass::Leave) {
        let workload = if pod.workload.is_empty() { &pod.pod.name } else { &pod.workload };
        workloads.entry((pod.pod.namespace.clone(), workload.clone())).or_insert(pod);
    }
    let mut seen: LiteMap<String, usize> = LiteMap::new();
    let mut ranked: Vec<(usize, PodFacts)> = Vec::new();
    for (_, pod) in workloads {
        let nth = seen.entry(pod.pod.namespace.clone()).or_default();
        ranked.push((*nth, pod));
        *nth += 1;
    }
    ranked.order_by_key(|(nth, _)| *nth);
    let mut asked: Vec<PodFacts> = ranked.into_iter().map(|(_, pod)| pod).collect();
    let rest = asked.split_off(DRY_RUNS.min(asked.len()));
    (asked, rest)
}

/// A pod that is refused is deleted after its limit.
fn ends_otherwise(limit: &Limit) -> bool {
    limit.after.is_some() && limit.then == LimitAction::GetPast
}

/// What the dry run of the cordon says that stops nothing: an admission may decide another way about the cordon itself, one
/// that knows no dry runs says nothing, and another writer is faster now and then.
fn passes(error: Error) -> Result<Option<Finding>, Error> {
    let line = error.line();
    if line.contains(NO_DRY_RUN) || error.is_conflict() {
        return Ok(None);
    }
    if !matches!(error.reply(), Reply::Denied { .. } | Reply::Permanent { by: RefusedBy::Other, .. }) {
        return Err(error);
    }
    let text =
        format!("{line}: the drain begins all the same, and the node is cordoned once that is admitted");
    Ok(Some(Finding::new(EVICTIONS, text, error.next_step()).with(Severity::Warns)))
}

/// What the dry run of an eviction says: `Ok` what stops the drain, a refusal by credentials or a role; `Err` what may be
/// admitted when it is asked for itself. Nothing, where it passes by itself.
fn judged(pod: &PodFacts, reply: &Reply, since: Mono) -> Option<Result<Blocker, Finding>> {
    let (code, text) = (BlockCode::of(reply), reply.text());
    let stops = matches!(reply, Reply::Permanent { by: RefusedBy::Credentials | RefusedBy::Role, .. });
    let denied = matches!(reply, Reply::Permanent { .. } | Reply::Denied { .. });
    if !denied || text.contains(NO_DRY_RUN) {
        return None;
    }
    let reason = format!("pod {} cannot be evicted: {text}", pod.pod);
    let blocker = progress::blocker(&pod.pod.clone().into(), code, reason, since);
    if stops {
        return Some(Ok(blocker));
    }
    let next = format!("nothing, if the drain gets past it; else {}", blocker.next_step);
    let text = format!(
        "{} (a dry run); the drain begins all the same, and asks for the eviction itself",
        blocker.reason
    );
    Some(Err(Finding::new(EVICTIONS, text, next).with(Severity::Warns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::mock::{self, MockReply, RecordedCall};
    use serde_json::{Value, json};

    fn pod(name: &str, owner: Option<&str>) -> Value {
        let owner = owner.map(|it| {
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": it, "uid": it,
            "controller": true }])
        });
        json!({ "metadata": { "namespace": "shop", "name": name, "uid": name, "ownerReferences": owner },
            "spec": { "nodeName": "n1", "containers": [] }, "status": { "phase": "Running" } })
    }

    /// A node with two pods of a set and one alone; what an eviction and a change of the node are answered.
    fn site(
        evict: impl Fn(&str) -> MockReply + Send + Sync + 'static,
        patch: impl Fn() -> MockReply + Send + Sync + 'static,
    ) -> (ApiClient, mock::RecordedCalls) {
        mock::server(move |call: &RecordedCall| {
            let line = call.line.as_str();
            if line.starts_with("PATCH") {
                patch()
            } else if line.contains("/eviction") {
                evict(line)
            } else if line.contains("/nodes?") {
                mock::list("9", &[])
            } else if line.contains("/nodes/") {
                let node = json!({ "metadata": { "name": "n1", "labels": { "node-uuid": "u" }, "resourceVersion": "1" } });
                MockReply::Full(200, vec![], node.to_string())
            } else {
                mock::list("9", &[pod("web-0", Some("web")), pod("web-1", Some("web")), pod("solo", None)])
            }
        })
    }

    async fn look(
        evict: fn(&str) -> MockReply,
        patch: fn() -> MockReply,
        rules: &AttemptRules,
    ) -> (Result<Vec<Blocker>, PreflightError>, Vec<String>) {
        let (cluster, calls) = site(evict, patch);
        let node = NodeName::parse("n1").unwrap();
        let found = preflight(&cluster, &node, "u", rules, Mono::START).await;
        (found.map(|it| it.blockers), calls.lines())
    }

    #[tokio::test(start_paused = true)]
    async fn u6_room_that_cannot_be_read_is_named_and_stops_nothing_that_can_be_looked_at() {
        let rules = AttemptRules::default();
        let node = NodeName::parse("n1").unwrap();
        for (kind, words) in [("/nodes?", "nodes"), ("/pods?", "pods")] {
            let (cluster, _) = mock::server(move |call: &RecordedCall| {
                let line = call.line.as_str();
                // The pods of this node alone may be read.
                if line.contains(kind) && !line.contains("spec.nodeName") {
                    mock::status(403, "not for you")
                } else if line.contains("/nodes/") {
                    let node = json!({ "metadata": { "name": "n1", "labels": { "node-uuid": "u" }, "resourceVersion": "1" } });
                    MockReply::Full(200, vec![], node.to_string())
                } else if line.contains("/nodes?") {
                    mock::list("9", &[])
                } else {
                    mock::list("9", &[pod("solo", None)])
                }
            });
            let looked = preflight(&cluster, &node, "u", &rules, Mono::START).await.unwrap();
            let [room] = looked.findings.as_slice() else { panic!("{kind}: {looked:?}") };
            assert_eq!((room.code.as_str(), room.severity), ("room", Severity::Warns), "{kind}: {room:?}");
            assert!(
                room.unread && room.text.contains(words) && room.text.contains("403"),
                "{kind}: {room:?}"
            );
            assert!(room.next.contains("role"), "{kind}: {room:?}");
        }
    }

    fn fine() -> MockReply {
        mock::status(200, "")
    }

    #[tokio::test(start_paused = true)]
    async fn one_pod_of_each_workload_is_asked_for_as_a_dry_run_and_what_passes_by_itself_is_no_finding() {
        let full =
            |_: &str| mock::status(429, "Cannot evict pod as it would violate the pod's disruption budget.");
        let (found, lines) = look(full, fine, &AttemptRules::default()).await;
        assert_eq!(found.unwrap(), []);
        let raced = || {
            mock::status(409, "the object has been modified; please apply your changes to the latest version")
        };
        assert_eq!(look(full, raced, &AttemptRules::default()).await.0.unwrap(), []);
        let evictions: Vec<&String> = lines.iter().filter(|it| it.contains("/eviction")).collect();
        assert_eq!(evictions.len(), 2, "{lines:?}");
        assert!(
            lines.iter().filter(|it| !it.starts_with("GET")).all(|it| it.contains("dryRun=All")),
            "{lines:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_refused_is_named_with_its_code_and_the_next_step() {
        let refused = |line: &str| {
            if line.contains("/solo/") { mock::status(403, ROLE) } else { fine() }
        };
        let (found, _) = look(refused, fine, &AttemptRules::default()).await;
        let found = found.unwrap();
        assert_eq!((found.len(), found[0].code.as_str(), found[0].pod.as_str()), (1, "refused", "shop/solo"));
        assert!(found[0].reason.contains("forbidden") && found[0].next_step.contains("role"), "{found:?}");
        // Where a limit has it deleted, the drain gets past it.
        let lenient = AttemptRules {
            pod: Limit { after: Some(std::time::Duration::from_secs(60)), then: LimitAction::GetPast },
            ..AttemptRules::default()
        };
        assert_eq!(look(refused, fine, &lenient).await.0.unwrap(), []);
    }

    const ROLE: &str = "pods \"solo\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" \
                        in the namespace \"shop\"";
    const NODE_ROLE: &str = "nodes \"n1\" is forbidden: User \"u\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope";

    #[tokio::test(start_paused = true)]
    async fn t14_of_the_answers_to_dry_runs_only_401_and_rbacs_own_403_stop_a_drain() {
        let webhook = "admission webhook \"guard.example.com\" denied the request: not now";
        let policy =
            "pods \"solo\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no";
        let quota = "pods \"solo\" is forbidden: exceeded quota: q";
        let table = [
            (401, "Unauthorized", true),
            (403, ROLE, true),
            (403, webhook, false),
            (401, webhook, false),
            (404, webhook, false),
            (422, webhook, false),
            (400, webhook, false),
            (403, policy, false),
            (422, policy, false),
            (403, quota, false),
            (403, "Forbidden", false),
            (405, "not allowed", false),
        ];
        let rules = AttemptRules::default();
        let node = NodeName::parse("n1").unwrap();
        for (code, message, stops) in table {
            let (cluster, _) = site(move |_| mock::status(code, message), fine);
            let found = preflight(&cluster, &node, "u", &rules, Mono::START).await.unwrap();
            let warnings: Vec<&Finding> = found.findings.iter().filter(|it| it.code == EVICTIONS).collect();
            let of_pods = if stops { (2, 0) } else { (0, 2) };
            assert_eq!((found.blockers.len(), warnings.len()), of_pods, "{code} {message}: {found:?}");
            assert!(warnings.iter().all(|it| it.severity == Severity::Warns && it.text.contains(message)));
            // The cordon's own dry run, by the same rule.
            let (cluster, _) = site(|_| fine(), move || mock::status(code, message));
            let found = preflight(&cluster, &node, "u", &rules, Mono::START).await;
            match found {
                Err(PreflightError::Node(error)) => assert!(stops, "{code}: {}", error.line()),
                Ok(found) => {
                    let warnings = found.findings.iter().filter(|it| it.code == EVICTIONS).count();
                    assert!(!stops && found.blockers.is_empty() && warnings == 1, "{code}: {found:?}");
                }
                Err(PreflightError::Pods(error)) => panic!("{}", error.line()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_may_not_be_changed_is_an_error_and_a_webhook_without_dry_runs_is_nothing() {
        let (found, _) = look(|_| fine(), || mock::status(403, NODE_ROLE), &AttemptRules::default()).await;
        assert!(matches!(found, Err(PreflightError::Node(error)) if error.line().contains("as a dry run")));
        let without = || mock::status(400, "admission webhook \"a.b\" does not support dry run");
        let (found, _) = look(
            |_| mock::status(400, "admission webhook \"a.b\" does not support dry run"),
            without,
            &AttemptRules::default(),
        )
        .await;
        assert_eq!(found.unwrap(), []);
    }
}
