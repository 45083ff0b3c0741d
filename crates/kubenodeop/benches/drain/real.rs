//! A case on a real API server: a namespace and two nodes without a machine, whose kubelet is this process.
//!
//! All is removed at the end. A node controller of that cluster takes a silent node for lost after 40 s; the pods
//! tolerate everything, and a case is over before that.

use std::path::Path;

use futures::stream::{self, FuturesUnordered};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::sleep;

use crate::case::{Case, DEVICE, NAMESPACE, NODE, OTHER, STOP};
use crate::floor::client;
use crate::process::said;

const AT_ONCE: usize = 32;

/// Builds the case, plays its kubelets, and removes it when a line comes.
pub(crate) async fn serve(case: Case, file: &Path) {
    let client = client(file).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    namespaces
        .create(&PostParams::default(), &read(json!({ "metadata": { "name": NAMESPACE } })))
        .await
        .unwrap();
    for (name, device) in [(NODE, DEVICE), (OTHER, "another")] {
        let labels = json!({ "node-uuid": device, "kubernetes.io/hostname": name });
        nodes
            .create(&PostParams::default(), &read(json!({ "metadata": { "name": name, "labels": labels } })))
            .await
            .unwrap();
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }
    let running =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let build = stream::iter(0..case.pods).map(|number| {
        let (pods, running) = (&pods, &running);
        async move {
            let name = format!("pod-{number}");
            pods.create(&PostParams::default(), &read(pod(&name))).await.unwrap();
            pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(running)).await.unwrap();
        }
    });
    build.buffer_unordered(AT_ONCE).collect::<()>().await;
    let cordon = json!({ "spec": { "unschedulable": true } });
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(cordon)).await.unwrap();
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap_or_default();
    said("ready");
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        () = kubelet(&client, &version) => {}
        line = lines.next_line() => drop(line.unwrap()),
    }
    let left = pods.list(&ListParams::default()).await.unwrap().items.len();
    said(format_args!("{left} uncounted"));
    for name in [NODE, OTHER] {
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await.unwrap();
    while namespaces.get_opt(NAMESPACE).await.unwrap().is_some() {
        sleep(STOP).await;
    }
    said("removed");
}

/// A pod that was asked to end is gone some time later.
async fn kubelet(client: &Client, version: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut changes = pods.watch(&WatchParams::default(), version).await.unwrap().boxed();
    let mut ending = FuturesUnordered::new();
    loop {
        tokio::select! {
            change = changes.try_next() => {
                let Some(WatchEvent::Modified(pod)) = change.unwrap() else { continue };
                if pod.metadata.deletion_timestamp.is_some() {
                    let pods = pods.clone();
                    ending.push(async move {
                        sleep(STOP).await;
                        // It may have been asked twice, or somebody else was faster.
                        drop(pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
                    });
                }
            }
            Some(()) = ending.next() => {}
        }
    }
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 30, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10" }],
            "tolerations": [{ "operator": "Exists" }],
        },
    })
}
