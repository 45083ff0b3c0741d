//! Volumes of the real Longhorn with the applications that use them.

use serde_json::{Value, json};

use super::{RealLonghorn, at};

const SIZE: &str = "16777216";

impl RealLonghorn {
    /// A volume with a copy on each of these nodes, and a claim of this name.
    pub async fn add_volume(&self, namespace: &str, name: &str, nodes: &[String]) {
        for node in &self.nodes {
            let takes = json!({ "spec": { "allowScheduling": nodes.contains(node) } });
            self.merge(&at("nodes", node), &takes).await;
        }
        let spec = json!({
            "size": SIZE, "numberOfReplicas": nodes.len(), "frontend": "blockdev", "accessMode": "rwo",
            "dataEngine": "v1",
        });
        let mut volume = json!({ "metadata": { "name": name }, "spec": spec });
        volume["apiVersion"] = "longhorn.io/v1beta2".into();
        volume["kind"] = "Volume".into();
        self.make(&at("volumes", ""), &volume).await;
        let placed = async |it: &Self| {
            let replicas = it.all("replicas").await;
            let own = replicas.iter().filter(|it| it["spec"]["volumeName"] == name);
            let placed =
                own.filter(|it| nodes.iter().any(|node| it["spec"]["nodeID"] == node.as_str())).count();
            (placed == nodes.len()).then_some(())
        };
        self.until("a place for each copy", placed).await;
        for node in &self.nodes {
            self.merge(&at("nodes", node), &json!({ "spec": { "allowScheduling": true } })).await;
        }
        let mode = json!(["ReadWriteOnce"]);
        let size = json!({ "storage": SIZE });
        let held = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": size, "accessModes": mode, "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "", "claimRef": { "namespace": namespace, "name": name },
                "csi": { "driver": "driver.longhorn.io", "volumeHandle": name, "fsType": "ext4" },
            },
        });
        self.make("/api/v1/persistentvolumes", &held).await;
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": mode, "storageClassName": "", "volumeName": name,
                "resources": { "requests": size },
            },
        });
        self.make(&format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"), &claim).await;
    }

    /// An application of one pod with the claim of its name, on `node` if possible; waits until it runs there
    /// with all copies healthy.
    pub async fn add_application(&self, namespace: &str, name: &str, node: &str) {
        let place = json!([{
            "weight": 100,
            "preference": {
                "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }],
            },
        }]);
        let labels = json!({ "app": name });
        let pod = json!({
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": place } },
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "registry.k8s.io/pause:3.10" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        });
        let deployment = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        });
        self.make(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &deployment).await;
        let served = async |it: &Self| {
            let volume = it.get(&at("volumes", name)).await;
            (volume["status"]["robustness"] == "healthy" && it.runs_on(namespace, name).await == [node])
                .then_some(())
        };
        self.until("an application on its volume", served).await;
    }

    /// Nodes of an application's pods that are not terminating.
    pub async fn runs_on(&self, namespace: &str, name: &str) -> Vec<String> {
        let pods = self.get(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app={name}")).await;
        let runs =
            |it: &&Value| it["status"]["phase"] == "Running" && it["metadata"]["deletionTimestamp"].is_null();
        let node = |it: &Value| it["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        pods["items"].as_array().into_iter().flatten().filter(runs).map(node).collect()
    }

    /// Ends an application's pods, whose replacement runs anywhere.
    pub async fn replace_pod(&self, namespace: &str, name: &str) -> String {
        let all = format!("/api/v1/namespaces/{namespace}/pods");
        let pods = async |it: &Self| {
            let pods = it.get(&format!("{all}?labelSelector=app={name}")).await;
            pods["items"].as_array().cloned().unwrap_or_default()
        };
        let before = pods(self).await;
        for pod in &before {
            self.remove(&format!("{all}/{}", pod["metadata"]["name"].as_str().unwrap())).await;
        }
        let new = |it: &&Value| before.iter().all(|old| old["metadata"]["uid"] != it["metadata"]["uid"]);
        let placed = async |it: &Self| {
            let pods = pods(it).await;
            pods.iter().find(new)?["spec"]["nodeName"].as_str().map(str::to_owned)
        };
        self.until("another pod of the application", placed).await
    }

    pub async fn remove_application(&self, namespace: &str, name: &str) {
        self.remove(&format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")).await;
        let detached = async |it: &Self| {
            let all = it.get("/apis/storage.k8s.io/v1/volumeattachments").await;
            let of = |it: &Value| it["spec"]["source"]["persistentVolumeName"] == name;
            (!all["items"].as_array().unwrap().iter().any(of)).then_some(())
        };
        self.until("no attachment", detached).await;
        self.remove(&format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await;
        self.remove(&format!("/api/v1/persistentvolumes/{name}")).await;
        self.remove(&at("volumes", name)).await;
        self.until("no volume", async |it| it.get(&at("volumes", name)).await.is_null().then_some(())).await;
    }
}
