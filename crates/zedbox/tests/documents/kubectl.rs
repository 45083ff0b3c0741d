//! Lines of `kubectl`: each is run by `kubectl` on an embedded cluster with the named objects.

use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt as _;
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{Shown, shown, words};
use crate::drain_cmd::node::top;
use crate::is_here;

/// Placeholders in lines, and their objects in the cluster.
const FOR: [(&str, &str); 6] = [
    ("NODE", "edge-node-1"),
    ("NAMESPACE", "shop"),
    ("POD", "web-0"),
    ("SELECTOR", "app=db"),
    ("NAME", "db"),
    ("n2", "edge-node-2"),
];
/// A cluster that takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 4;

/// A node with everything that lines name: workloads and their pods, a budget, a machine, a volume, a lease.
async fn cluster() -> Sim {
    let sim = Sim::new(SimConfig::default());
    for nth in 1..=3 {
        sim.add_node(&format!("edge-node-{nth}"), &format!("uuid-{nth}"));
    }
    sim.add_deployment("shop", "web", 1);
    sim.add_stateful_set("shop", "web", 2);
    for budget in ["web", "db"] {
        sim.add_budget("shop", budget, "db", &json!({ "maxUnavailable": 1 }));
    }
    sim.add_longhorn("block-for-eviction-if-contains-last-replica");
    sim.add_longhorn_volume("shop", "data", "pvc-1", &["edge-node-1", "edge-node-2"]);
    sim.add_sharded_volume("shop", "parts", "pvc-2", &["edge-node-1", "edge-node-2", "edge-node-3"], 1);
    sim.add_eviction_requests(None, "");
    sim.add_mounting_pod("shop", "mounting", "edge-node-1", "data");
    sim.add_kubevirt("v1.7.3");
    sim.add_machine_on("shop", "db", "Always", "edge-node-1", &json!({ "evictionStrategy": "LiveMigrate" }));
    for namespace in ["shop", "kube-node-lease"] {
        sim.apply("namespaces", json!({ "metadata": { "name": namespace } }));
    }
    // A kubelet's, which renews it.
    let lease = json!({ "name": "edge-node-1", "namespace": "kube-node-lease" });
    sim.apply(
        "coordination/leases",
        json!({ "metadata": lease, "spec": { "holderIdentity": "edge-node-1" } }),
    );
    // Kinds that exist in the cluster while it has one such object.
    for (version, kind, namespace) in [
        ("kubevirt.io/v1", "VirtualMachineInstanceMigration", "shop"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", ""),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", ""),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", ""),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", ""),
        ("lifecycle.k8s.io/v1alpha1", "EvictionRequest", "shop"),
        ("lifecycle.k8s.io/v1alpha1", "Eviction", "shop"),
    ] {
        let metadata = json!({ "name": "one", "namespace": namespace });
        let one = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
        let plural = format!("{}s", kind.to_lowercase()).replace("ys", "ies");
        sim.apply(&format!("{version}/{plural}"), one);
    }
    let version = "nodemaintenance.medik8s.io/v1beta1";
    let fan = json!({ "apiVersion": version, "kind": "NodeMaintenance", "metadata": { "name": "new-fan" } });
    sim.apply("nodemaintenance/nodemaintenances", fan);
    let proved = json!([{ "type": "pillar-rs/Drained", "status": "True" }]);
    assert!(sim.edit("nodes", "", "edge-node-1", |node| {
        node["status"]["conditions"].as_array_mut().unwrap().extend(proved.as_array().unwrap().clone());
    }));
    let runs = |pod: &Value, name: &str| {
        pod["metadata"]["name"].as_str().unwrap().starts_with(name) && pod["status"]["phase"] == "Running"
    };
    let names = ["web-1", "virt-launcher-db", "mounting"];
    let ready = |pods: &[Value]| names.iter().all(|name| pods.iter().any(|pod| runs(pod, name)));
    let in_time = tokio::time::timeout(PATIENCE, sim.until("pods", ready)).await.is_ok();
    assert!(in_time, "the cluster is not there: {:#?}", sim.list("pods"));
    sim
}

/// Why the line fails, on a cluster of its own.
async fn refused(text: String) -> Option<String> {
    let sim = cluster().await;
    let server = sim.serve().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    pubsub::store::replace(&kubeconfig, server.kubeconfig().as_bytes()).unwrap();
    let mut command = Command::new("kubectl");
    command.env("HOME", folder.path()).env("KUBECONFIG", &kubeconfig).current_dir(top());
    command.stdin(Stdio::null()).arg("--request-timeout=20s");
    for word in &words(&text)[1..] {
        // `NODE`, and `spec.nodeName=NODE`.
        let (before, last) = word.split_at(word.rfind('=').map_or(0, |at| at + 1));
        let value = FOR.iter().find(|(placeholder, _)| last == *placeholder).map_or(last, |(_, value)| value);
        command.arg(format!("{before}{value}"));
    }
    let ended = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[tokio::test]
async fn every_kubectl_line_of_the_documents_works_on_a_cluster_that_has_what_it_names() {
    if !is_here("kubectl") {
        return;
    }
    let mut lines: Vec<Shown> = shown();
    // The program's name is no line, and equal lines are tried once.
    lines.retain(|it| it.is_of("kubectl") && it.text != "kubectl" && it.not_run().is_none());
    lines.sort_by(|one, other| one.text.cmp(&other.text));
    lines.dedup_by(|one, other| one.text == other.text);
    assert!(lines.len() > 30, "the documents show {} lines of kubectl", lines.len());
    let wrong: Vec<String> = futures::stream::iter(lines)
        .map(|it| async move { Some(format!("{it}: {}", refused(it.text.clone()).await?)) })
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_wrong_verb_flag_resource_or_name_is_refused() {
    if !is_here("kubectl") {
        return;
    }
    for wrong in [
        "kubectl uncordn NODE",
        "kubectl get nodez",
        "kubectl get nodes --wyde",
        "kubectl -n shop delete pdb other",
    ] {
        assert!(refused(wrong.to_owned()).await.is_some(), "{wrong}");
    }
}
