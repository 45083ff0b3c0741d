//! Each layer of a report: well, not well, unreadable; without the API; in how many requests.

use std::collections::BTreeMap;

use kubeapi::ApiClient;
use kubeapi::mock::{self, MockReply, RecordedCall};
use serde_json::{Value, json};
use topics::VerifyResult::{Fail, Pass, Skipped, Unknown, Warn};

use super::*;
use crate::certificates;

const NOW: &str = "2026-11-23T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A healthy cluster: what each list answers, by the end of its path. Of the budgets one lets go, those of Longhorn and KubeVirt
/// never do, and one has no pods.
const SITE: &str = r#"{
"nodes": [
  {"metadata":{"name":"n1","labels":{"node-role.kubernetes.io/etcd":"true"}},"spec":{},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"EtcdIsVoter","status":"True"}]}},
  {"metadata":{"name":"n2","labels":{"node-role.kubernetes.io/etcd":"true"}},"spec":{},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"EtcdIsVoter","status":"True"}]}}],
"deployments": [
  {"metadata":{"namespace":"kube-system","name":"web"},"spec":{"replicas":2},"status":{"availableReplicas":2}},
  {"metadata":{"namespace":"shop","name":"web"},"spec":{"replicas":2},"status":{"availableReplicas":2}}],
"statefulsets": [{"metadata":{"namespace":"shop","name":"db"},"spec":{},"status":{"readyReplicas":1}}],
"daemonsets": [{"metadata":{"namespace":"longhorn-system","name":"m"},"status":{"desiredNumberScheduled":2,"numberReady":2}}],
"pods": [{"metadata":{"namespace":"shop","name":"a"},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}],
"leases": [{"metadata":{"namespace":"kube-system","name":"plndr-cp-lock"},"spec":{"holderIdentity":"n1","renewTime":"2026-11-23T11:59:58Z"}}],
"node-leases": [
  {"metadata":{"namespace":"kube-node-lease","name":"n1"},"spec":{"renewTime":"2026-11-23T11:59:58Z"}},
  {"metadata":{"namespace":"kube-node-lease","name":"n2"},"spec":{"renewTime":"2026-11-23T11:59:58Z"}}],
"poddisruptionbudgets": [
  {"metadata":{"namespace":"shop","name":"b0"},"status":{"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}},
  {"metadata":{"namespace":"longhorn-system","name":"im"},"status":{"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}},
  {"metadata":{"namespace":"shop","name":"vm","ownerReferences":[{"kind":"VirtualMachineInstance","name":"vm"}]},"status":{"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}},
  {"metadata":{"namespace":"shop","name":"b3"},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}}],
"etcdsnapshotfiles": [{"status":{"readyToUse":true,"creationTime":"2026-11-23T06:00:00Z"}}],
"virtualmachines": [{"metadata":{"namespace":"shop","name":"vm"},"spec":{"runStrategy":"Always"},"status":{"printableStatus":"Running"}}],
"volumes": [{"metadata":{"name":"pvc-1"},"spec":{"numberOfReplicas":2},"status":{"state":"attached","robustness":"healthy"}}],
"volumeattachments": [{"metadata":{"name":"va"},"spec":{"nodeName":"n1","source":{"persistentVolumeName":"pvc-1"}},"status":{"attached":true}}]
}"#;

/// [`SITE`]; `change` alters a collection, by the end of its path.
fn site(
    change: impl Fn(&str, &mut Vec<Value>) -> Option<MockReply> + Send + Sync + 'static,
) -> (ApiClient, mock::RecordedCalls) {
    let healthy: BTreeMap<String, Vec<Value>> = serde_json::from_str(SITE).unwrap();
    mock::server(move |call: &RecordedCall| {
        let path = call.line.trim_start_matches("GET ").split('?').next().unwrap_or_default();
        let kind = path.rsplit('/').next().unwrap_or_default();
        let kind = if path.contains("/kube-node-lease/") { format!("node-{kind}") } else { kind.to_owned() };
        // Longhorn's own have the same name.
        let known = healthy.get(&kind).filter(|_| !path.ends_with("longhorn-system/nodes"));
        let mut all = known.cloned().unwrap_or_default();
        let version = || MockReply::Full(200, vec![], r#"{"gitVersion":"v1"}"#.to_owned());
        let is_version = kind == "version";
        change(&kind, &mut all).unwrap_or_else(|| if is_version { version() } else { mock::list("9", &all) })
    })
}

async fn looked(cluster: &ApiClient) -> Vec<VerifyLayer> {
    look(cluster, now).await
}

fn layer<'a>(all: &'a [VerifyLayer], name: &str) -> &'a VerifyLayer {
    all.iter().find(|it| it.layer == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn v1_a_cluster_in_which_all_is_well_passes_with_what_was_read_in_a_dozen_requests() {
    let (cluster, calls) = site(|_, _| None);
    let all = looked(&cluster).await;
    for it in &all {
        let expected = if it.layer == "clock" { Warn } else { Pass };
        assert_eq!((it.result, it.findings.len()), (expected, usize::from(expected == Warn)), "{it:?}");
    }
    assert_eq!(layer(&all, "nodes").read, "2 nodes, 2 leases");
    assert_eq!(layer(&all, "etcd").read, "2 nodes, 2 of them members of etcd, 1 snapshot");
    let order: Vec<&str> = all.iter().map(|it| it.layer.as_str()).collect();
    let expected: Vec<&str> =
        LAYERS.into_iter().filter(|it| !["devices", "turns", "probes"].contains(it)).collect();
    assert_eq!(order, expected);
    assert_eq!(calls.lines().len(), 15, "{:?}", calls.lines());
}

/// What is read, its layer, the result, words of the finding and of the next step, and what is changed.
const ROWS: &str = r#"
poddisruptionbudgets | budgets | Warn | allow no disruption although all pods run; a drain waits for them until its time limit: shop/b0 (needs 1 of 2) | kubectl -n shop describe pdb b0; require one pod less | 0/status/disruptionsAllowed=0
poddisruptionbudgets | budgets | Warn | allow no disruption because too few pods are Ready: shop/b0 (0 Ready, needs 1) | kubectl -n shop describe pdb b0; repair its pods first | 0/status/disruptionsAllowed=0 | 0/status/currentHealthy=0
nodes | nodes | Fail | not Ready: n2 | kubectl describe node n2 | 1/status/conditions/0/status=Unknown
nodes | nodes | Warn | cordoned | kubectl uncordon n1 | 0/spec/unschedulable=true
nodes | nodes | Warn | versions: v1 on n1; v2 on n2 | kubectl get nodes | 0/status/nodeInfo/kubeletVersion=v1 | 1/status/nodeInfo/kubeletVersion=v2
node-leases | nodes | Warn | n2 last renewed its lease 60 s ago | log of its kubelet | 1/spec/renewTime=2026-11-23T11:59:00Z
node-leases | nodes | Warn | of node n1 has no lease | kubectl describe node n1 | 0/metadata/name=n9
nodes | etcd | Fail | not healthy voters: n1 (NotAVoter) | repair | 0/status/conditions/1/status=False | 0/status/conditions/1/reason=NotAVoter
etcdsnapshotfiles | etcd | Warn | 30 h old | etcd-snapshot save | 0/status/creationTime=2026-11-22T06:00:00Z
nodes | taints | Fail | unreachable:NoExecute | kubectl taint node n1 | 0/spec/taints=[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"},{"key":"other","effect":"NoSchedule"}]
leases | network | Fail | of n3: its holder is not a Ready node | get lease plndr-cp-lock | 0/spec/holderIdentity=n3
leases | network | Warn | of n1: its holder has not renewed it for 180 s | kube-vip | 0/spec/renewTime=2026-11-23T11:57:00Z
leases | network | Pass | | | 0/metadata/name=another
volumes | storage | Fail | pvc-1: faulted | kubectl -n longhorn-system | 0/status/robustness=faulted
volumes | storage | Warn | pvc-1: degraded | rebuilt | 0/status/robustness=degraded
volumeattachments | storage | Warn | pvc-1 (node n9) | start that node | 0/spec/nodeName=n9
deployments | system | Fail | kube-system/web (pods ready: 0 of 2) | -n kube-system describe deployment web | 0/status={}
daemonsets | system | Fail | longhorn-system/m (pods ready: 1 of 2) | describe daemonset m | 0/status/numberReady=1
statefulsets | applications | Fail | shop/db (pods ready: 0 of 1) | describe statefulset db | 0/status={}
pods | applications | Warn | shop/a (CrashLoopBackOff) | kubectl -n shop logs a | 0/status/containerStatuses=[{"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]
pods | applications | Warn | shop/a (no room) | kubectl -n shop describe pod a | UNPLACED | 0/status/conditions/0/lastTransitionTime=2026-11-23T11:50:00Z
pods | applications | Pass | | | UNPLACED | 0/status/conditions/0/lastTransitionTime=2026-11-23T11:59:00Z
pods | applications | Pass | | | 0/metadata/deletionTimestamp=2026-11-23T11:58:00Z
virtualmachines | machines | Fail | shop/vm (ErrorUnschedulable) | -n shop describe vm vm | 0/status/printableStatus=ErrorUnschedulable
virtualmachines | machines | Pass | | | 0/spec/runStrategy=Halted | 0/status/printableStatus=Stopped
virtualmachines | machines | Pass | | | 0/status/printableStatus=Migrating
"#;
const UNPLACED: &str = r#"0/status={"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","message":"no room"}]}"#;

/// Makes one change: the place of the object, that of its member, and the value.
fn set(all: &mut [Value], change: &str) {
    let (path, value) = change.split_once('=').unwrap();
    let (at, members) = path.split_once('/').unwrap();
    let mut place = &mut all[at.parse::<usize>().unwrap()];
    for member in members.split('/') {
        place = match member.parse::<usize>() {
            Ok(at) => &mut place[at],
            Err(_) => &mut place[member],
        };
    }
    *place = serde_json::from_str(value).unwrap_or_else(|_| value.into());
}

#[tokio::test(start_paused = true)]
async fn v1_each_thing_that_is_not_well_is_named_in_its_layer_with_the_next_step_and_nothing_that_is_well() {
    for row in ROWS.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [kind, name, result, text, next, changes @ ..] = cells.as_slice() else { panic!("{row}") };
        let (kind, changes) = (*kind, changes.to_vec());
        let (cluster, _) = site(move |it, all| {
            if it == kind && !all.is_empty() {
                for it in &changes {
                    set(all, if *it == "UNPLACED" { UNPLACED } else { it });
                }
            }
            None
        });
        let all = looked(&cluster).await;
        let layer = layer(&all, name);
        assert_eq!(format!("{:?}", layer.result), *result, "{row}: {layer:?}");
        let found = layer.findings.first().cloned().unwrap_or_default();
        assert!(found.text.contains(text) && found.next_step.contains(next), "{row}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn v1_what_may_not_be_read_is_unknown_in_its_layer_alone() {
    for (kind, names) in [
        ("nodes", ["nodes", "taints"]),
        ("pods", ["system", "applications"]),
        ("volumeattachments", ["storage", "storage"]),
        ("events", ["certificates", "certificates"]),
        ("leases", ["network", "network"]),
    ] {
        let (cluster, _) = site(move |it, _| (it == kind).then(|| mock::status(403, "not for you")));
        let all = looked(&cluster).await;
        let unknown: Vec<&str> =
            all.iter().filter(|it| it.result == Unknown).map(|it| it.layer.as_str()).collect();
        for name in names {
            let layer = layer(&all, name);
            assert!(
                layer.result == Unknown && layer.findings[0].next_step.contains("role"),
                "{kind}: {layer:?}"
            );
        }
        assert!(unknown.iter().all(|it| names.contains(it) || *it == "storage"), "{kind}: {unknown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn v1_without_the_api_nothing_else_is_asked_and_who_may_not_ask_has_seen_nothing() {
    for (answer, result) in [(503, Fail), (401, Unknown)] {
        let (cluster, calls) = site(move |it, _| (it == "version").then(|| mock::status(answer, "no")));
        let all = looked(&cluster).await;
        assert_eq!(layer(&all, "api").result, result, "{:?}", layer(&all, "api"));
        assert!(all.iter().all(|it| it.layer == "api" || it.result == Unknown));
        assert_eq!(calls.lines().len(), 1);
    }
}

#[test]
fn v1_the_worst_finding_is_the_result_of_a_layer() {
    let found = [Severity::Hint, Severity::Blocks, Severity::Warns]
        .map(|it| Finding::new("a", it.text(), "b").with(it));
    let layer = LayerCheck::default().read("x").found(found).layer("api");
    assert_eq!(layer.result, Fail);
    assert_eq!(layer.findings.iter().map(|it| it.result).collect::<Vec<_>>(), [Fail, Warn, Pass]);
    assert_eq!(LayerCheck::default().layer("api").result, Skipped);
}

/// Row 2-30.
#[tokio::test(start_paused = true)]
async fn whether_harvester_renews_certificates_by_itself_is_shown_in_words() {
    let setting = |value: &str, default: &str| json!({ "value": value, "default": default });
    let off = r#"{"enable":false,"expiringInHours":240}"#;
    let on = r#"{"enable":true,"expiringInHours":72}"#;
    let rows = [
        (vec![], None),
        (vec![setting("", off)], Some("off")),
        (vec![setting(on, off)], Some("on, 72 h before they end; it restarts rke2 without a turn")),
        (vec![setting(r#"{"enable":true}"#, off)], Some("on; it restarts rke2 without a turn")),
        (vec![setting("yes", off)], Some("not known (yes)")),
    ];
    for (settings, words) in rows {
        let shown = words.map(|it| format!("rotation by auto-rotate-rke2-certs: {it}"));
        assert_eq!(certificates::rotation(&settings), shown);
    }
    let (cluster, calls) = site(move |kind, all| {
        if kind == "settings" {
            all.push(json!({ "metadata": { "name": certificates::ROTATION }, "value": on }));
        }
        None
    });
    let read = rotation(&cluster).await.unwrap().unwrap();
    assert_eq!(
        read,
        "rotation by auto-rotate-rke2-certs: on, 72 h before they end; it restarts rke2 without a turn"
    );
    let asked = calls.lines().into_iter().find(|it| it.contains("/settings")).unwrap();
    assert!(asked.contains("fieldSelector=metadata.name%3Dauto-rotate-rke2-certs"), "{asked}");
}
