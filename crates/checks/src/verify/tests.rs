//! Each layer of a report: well, not well, unreadable; without the API; in how many requests.

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

fn node(name: &str, ready: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "node-role.kubernetes.io/etcd": "true" } }, "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": ready }, { "type": "EtcdIsVoter", "status": "True" }] } })
}

fn pod(name: &str, change: impl Fn(&mut Value)) -> Value {
    let mut pod = json!({ "metadata": { "namespace": "shop", "name": name }, "spec": { "nodeName": "n1" },
        "status": { "phase": "Running" } });
    change(&mut pod);
    pod
}

/// `[allowed, healthy, required, present]`.
fn budget(namespace: &str, name: &str, [allowed, healthy, needed, there]: [u32; 4]) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name }, "status": { "disruptionsAllowed": allowed,
        "currentHealthy": healthy, "desiredHealthy": needed, "expectedPods": there } })
}

/// A healthy cluster; `change` alters a collection, by the end of its path.
fn site(
    change: impl Fn(&str, &mut Vec<Value>) -> Option<MockReply> + Send + Sync + 'static,
) -> (ApiClient, mock::RecordedCalls) {
    mock::server(move |call: &RecordedCall| {
        let path = call.line.trim_start_matches("GET ").split('?').next().unwrap_or_default().to_owned();
        let kind = path.rsplit('/').next().unwrap_or_default();
        let kind = if path.contains("/kube-node-lease/") { format!("node-{kind}") } else { kind.to_owned() };
        let mut all = match path.as_str() {
            "/api/v1/nodes" => vec![node("n1", "True"), node("n2", "True")],
            "/apis/apps/v1/deployments" => ["kube-system", "shop"]
                .map(|namespace| {
                    json!({ "metadata": { "namespace": namespace, "name": "web" }, "spec": { "replicas": 2 },
                    "status": { "availableReplicas": 2 } })
                })
                .to_vec(),
            "/apis/apps/v1/statefulsets" => vec![json!({ "metadata": { "namespace": "shop", "name": "db" },
                "spec": {}, "status": { "readyReplicas": 1 } })],
            "/apis/apps/v1/daemonsets" => {
                vec![json!({ "metadata": { "namespace": "longhorn-system", "name": "m" },
                "status": { "desiredNumberScheduled": 2, "numberReady": 2 } })]
            }
            "/api/v1/pods" => vec![pod("a", |_| {})],
            path if path.ends_with("/leases") => {
                let lease = |namespace: &str, name: &str| {
                    json!({ "metadata": { "namespace": namespace, "name": name },
                        "spec": { "holderIdentity": "n1", "renewTime": "2026-11-23T11:59:58Z" } })
                };
                if path.contains("/kube-system/") {
                    vec![lease("kube-system", "plndr-cp-lock")]
                } else {
                    ["n1", "n2"].map(|it| lease("kube-node-lease", it)).to_vec()
                }
            }
            path if path.ends_with("/poddisruptionbudgets") => vec![budget("shop", "b0", [1, 2, 1, 2])],
            path if path.ends_with("/etcdsnapshotfiles") => vec![json!({ "status": { "readyToUse": true,
                "creationTime": "2026-11-23T06:00:00Z" } })],
            path if path.ends_with("/virtualmachines") => {
                vec![json!({ "metadata": { "namespace": "shop", "name": "vm" },
                "spec": { "runStrategy": "Always" }, "status": { "printableStatus": "Running" } })]
            }
            path if path.ends_with("/longhorn.io/v1beta2/namespaces/longhorn-system/volumes")
                || path.ends_with("/volumes") =>
            {
                vec![json!({ "metadata": { "name": "pvc-1" },
                "spec": { "numberOfReplicas": 2 }, "status": { "state": "attached", "robustness": "healthy" } })]
            }
            path if path.ends_with("/volumeattachments") => vec![json!({ "metadata": { "name": "va" },
                "spec": { "nodeName": "n1", "source": { "persistentVolumeName": "pvc-1" } },
                "status": { "attached": true } })],
            "/version" => {
                return change("version", &mut Vec::new()).unwrap_or_else(|| {
                    MockReply::Full(200, vec![], json!({ "gitVersion": "v1" }).to_string())
                });
            }
            _ => Vec::new(),
        };
        if let Some(answer) = change(&kind, &mut all) { answer } else { mock::list("9", &all) }
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

type Change = fn(&mut Vec<Value>);

#[expect(clippy::too_many_lines, reason = "one table")]
#[tokio::test(start_paused = true)]
async fn v1_each_thing_that_is_not_well_is_named_in_its_layer_with_the_next_step() {
    let rows: [(&str, &str, VerifyResult, &str, &str, Change); 21] = [
        (
            "poddisruptionbudgets",
            "budgets",
            Warn,
            "allow no disruption although all pods run; a drain waits for them until its time limit: shop/b2 (needs 2 of 2)",
            "kubectl -n shop describe pdb b2; require one pod less",
            |all| {
                // One that lets go, one that does not, those of Longhorn and KubeVirt, and one without pods.
                all.extend([budget("shop", "b1", [1, 2, 1, 2]), budget("shop", "b2", [0, 2, 2, 2])]);
                all.push(budget("longhorn-system", "instance-manager", [0, 1, 1, 1]));
                all.push(budget("shop", "vm", [0, 1, 1, 1]));
                all[4]["metadata"]["ownerReferences"] =
                    json!([{ "kind": "VirtualMachineInstance", "name": "vm" }]);
                all.push(budget("shop", "b3", [0, 0, 0, 0]));
            },
        ),
        (
            "poddisruptionbudgets",
            "budgets",
            Warn,
            "allow no disruption because too few pods are Ready: shop/b1 (1 Ready, needs 2)",
            "kubectl -n shop describe pdb b1; repair its pods first",
            |all| all.push(budget("shop", "b1", [0, 1, 2, 3])),
        ),
        ("nodes", "nodes", Fail, "not Ready: n2", "kubectl describe node n2", |all| {
            all[1] = node("n2", "Unknown");
        }),
        ("nodes", "nodes", Warn, "cordoned", "kubectl uncordon n1", |all| {
            all[0]["spec"]["unschedulable"] = true.into();
        }),
        ("nodes", "nodes", Warn, "versions: v1 on n1; v2 on n2", "kubectl get nodes", |all| {
            for (node, version) in all.iter_mut().zip(["v1", "v2"]) {
                node["status"]["nodeInfo"] = json!({ "kubeletVersion": version });
            }
        }),
        ("node-leases", "nodes", Warn, "n2 last renewed its lease 60 s ago", "log of its kubelet", |all| {
            all[1]["spec"]["renewTime"] = "2026-11-23T11:59:00Z".into();
        }),
        ("node-leases", "nodes", Warn, "of node n1 has no lease", "kubectl describe node n1", |all| {
            all.remove(0);
        }),
        ("nodes", "etcd", Fail, "not healthy voters: n1 (NotAVoter)", "repair", |all| {
            all[0]["status"]["conditions"][1] =
                json!({ "type": "EtcdIsVoter", "status": "False", "reason": "NotAVoter" });
        }),
        ("etcdsnapshotfiles", "etcd", Warn, "30 h old", "etcd-snapshot save", |all| {
            all[0]["status"]["creationTime"] = "2026-11-22T06:00:00Z".into();
        }),
        ("nodes", "taints", Fail, "unreachable:NoExecute", "kubectl taint node n1", |all| {
            all[0]["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
                { "key": "other", "effect": "NoSchedule" }]);
        }),
        (
            "leases",
            "network",
            Fail,
            "of n3: its holder is not a Ready node",
            "get lease plndr-cp-lock",
            |all| {
                all[0]["spec"]["holderIdentity"] = "n3".into();
            },
        ),
        ("leases", "network", Warn, "of n1: its holder has not renewed it for 180 s", "kube-vip", |all| {
            all[0]["spec"]["renewTime"] = "2026-11-23T11:57:00Z".into();
        }),
        ("volumes", "storage", Fail, "pvc-1: faulted", "kubectl -n longhorn-system", |all| {
            all[0]["status"]["robustness"] = "faulted".into();
        }),
        ("volumes", "storage", Warn, "pvc-1: degraded", "rebuilt", |all| {
            all[0]["status"]["robustness"] = "degraded".into();
        }),
        ("volumeattachments", "storage", Warn, "pvc-1 (node n9)", "start that node", |all| {
            all[0]["spec"]["nodeName"] = "n9".into();
        }),
        (
            "deployments",
            "system",
            Fail,
            "kube-system/web (pods ready: 0 of 2)",
            "-n kube-system describe deployment web",
            |all| {
                all[0]["status"] = json!({});
            },
        ),
        (
            "daemonsets",
            "system",
            Fail,
            "longhorn-system/m (pods ready: 1 of 2)",
            "describe daemonset m",
            |all| {
                all[0]["status"]["numberReady"] = 1.into();
            },
        ),
        (
            "statefulsets",
            "applications",
            Fail,
            "shop/db (pods ready: 0 of 1)",
            "describe statefulset db",
            |all| all[0]["status"] = json!({}),
        ),
        ("pods", "applications", Warn, "shop/a (CrashLoopBackOff)", "kubectl -n shop logs a", |all| {
            all[0]["status"]["containerStatuses"] =
                json!([{ "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
        }),
        ("pods", "applications", Warn, "shop/a (no room)", "kubectl -n shop describe pod a", |all| {
            all[0]["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                "message": "no room", "lastTransitionTime": "2026-11-23T11:50:00Z" }] });
        }),
        (
            "virtualmachines",
            "machines",
            Fail,
            "shop/vm (ErrorUnschedulable)",
            "-n shop describe vm vm",
            |all| {
                all[0]["status"]["printableStatus"] = "ErrorUnschedulable".into();
            },
        ),
    ];
    for (kind, name, result, text, next, change) in rows {
        let (cluster, _) = site(move |it, all| {
            if it == kind && !all.is_empty() {
                change(all);
            }
            None
        });
        let all = looked(&cluster).await;
        let layer = layer(&all, name);
        assert_eq!(layer.result, result, "{name}: {layer:?}");
        let found = &layer.findings[0];
        assert!(found.text.contains(text) && found.next_step.contains(next), "{name}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn v1_what_is_well_after_all_is_not_named() {
    let rows: [(&str, &str, Change); 5] = [
        ("virtualmachines", "machines", |all| {
            all[0]["spec"]["runStrategy"] = "Halted".into();
            all[0]["status"]["printableStatus"] = "Stopped".into();
        }),
        ("virtualmachines", "machines", |all| all[0]["status"]["printableStatus"] = "Migrating".into()),
        ("pods", "applications", |all| {
            all[0]["metadata"]["deletionTimestamp"] = "2026-11-23T11:58:00Z".into();
        }),
        ("pods", "applications", |all| {
            all[0]["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                "message": "no room", "lastTransitionTime": "2026-11-23T11:59:00Z" }] });
        }),
        ("leases", "network", |all| all.clear()),
    ];
    for (kind, name, change) in rows {
        let (cluster, _) = site(move |it, all| {
            if it == kind && !all.is_empty() {
                change(all);
            }
            None
        });
        let all = looked(&cluster).await;
        assert_eq!(layer(&all, name).result, Pass, "{name}: {:?}", layer(&all, name));
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
