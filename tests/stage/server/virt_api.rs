//! The process of virt-api, and the pod that decides whether it runs.
//!
//! The scheduler places the pod; ReplicaSet, kubelet and endpoints are played here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::child;
use super::handlers::Script;
use super::kubevirt::{CORE, Door, Ended};

pub(crate) struct VirtApi {
    pub(crate) door: Door,
    pub(crate) folder: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) made: usize,
    pub(crate) process: Option<(String, Ended)>,
}

impl VirtApi {
    pub(crate) async fn keep(mut self, script: Arc<Mutex<Script>>) {
        let mut often = tokio::time::interval(Duration::from_millis(200));
        let mut ready = true;
        loop {
            often.tick().await;
            let (wanted, down) = {
                let script = script.lock().unwrap_or_else(PoisonError::into_inner);
                (script.virt_api, script.down.clone())
            };
            let pods = self.door.list(&format!("{CORE}/pods?labelSelector=kubevirt.io%3Dvirt-api")).await;
            let mut home = None;
            let mut there = false;
            for pod in &pods {
                let at = format!("{CORE}/pods/{}", pod["metadata"]["name"].as_str().unwrap());
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
                if !wanted || down.contains(node) || !pod["metadata"]["deletionTimestamp"].is_null() {
                    drop(self.door.call("DELETE", &at, &json!({ "gracePeriodSeconds": 0 })).await);
                } else {
                    there = true;
                    if !node.is_empty() {
                        home = Some((at, pod["status"]["phase"] == "Running"));
                    }
                }
            }
            if wanted && !there {
                self.made += 1;
                let pod = virt_api_pod(self.made);
                drop(self.door.call("POST", &format!("{CORE}/pods"), &pod).await);
            }
            let runs = home.is_some() && self.runs(home.as_ref().map(|it| it.0.as_str()));
            if let Some((at, false)) = home.as_ref().filter(|_| runs) {
                let up = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
                drop(self.door.call("PATCH", &format!("{at}/status"), &up).await);
            }
            if home.is_none() {
                self.process = None;
            }
            if runs != ready {
                self.endpoints(runs).await;
                ready = runs;
            }
        }
    }

    /// Whether this pod's process takes calls. Starts it where there is none.
    fn runs(&mut self, pod: Option<&str>) -> bool {
        let Some(pod) = pod else { return false };
        if self.process.as_ref().is_none_or(|(of, _)| of != pod) {
            self.process = None;
            let at = |name: &str| self.dir.join(name).display().to_string();
            let own = child(
                &self.folder,
                "virt-api",
                &[
                    format!("--kubeconfig={}", self.kubeconfig.display()),
                    format!("--listen={}", self.address),
                    format!("--port={}", self.port),
                    format!("--tls-cert-file={}", at("front.crt")),
                    format!("--tls-key-file={}", at("front.key")),
                    format!("--handler-cert-file={}", at("front.crt")),
                    format!("--handler-key-file={}", at("front.key")),
                ],
            );
            self.process = Some((pod.to_owned(), Ended(vec![own])));
        }
        std::net::TcpStream::connect((self.address.as_str(), self.port)).is_ok()
    }

    async fn endpoints(&self, has: bool) {
        let endpoints = if has {
            json!([{ "addresses": [self.address], "conditions": { "ready": true } }])
        } else {
            json!([])
        };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": { "name": "virt-api", "labels": { "kubernetes.io/service-name": "virt-api" } },
            "ports": [{ "name": "", "port": self.port, "protocol": "TCP" }],
        });
        let all = "/apis/discovery.k8s.io/v1/namespaces/kubevirt/endpointslices";
        if self.door.call("PATCH", &format!("{all}/virt-api"), &slice).await.0 == 404 {
            self.door.done("POST", all, &slice).await;
        }
    }
}

fn virt_api_pod(nth: usize) -> Value {
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "virt-api", "uid": "7c0e7a52-43bf-4c1b-8f57-1e1c6d1f0001",
        "controller": true,
    }]);
    json!({
        "metadata": {
            "name": format!("virt-api-{nth}"), "labels": { "kubevirt.io": "virt-api" }, "ownerReferences": owner,
        },
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "virt-api", "image": "virt-api" }],
        },
    })
}
