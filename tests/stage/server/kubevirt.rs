//! Real KubeVirt: virt-api and virt-controller of `KUBEVIRT_DIR`, on a real API server with the real
//! scheduler; started here, ended with the test.
//!
//! virt-api is a pod: the scheduler places it, and its process runs while its node lives. Not here: what
//! needs a machine, which is played ([`super::handlers`]).

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use k8s_openapi::ByteString;
use kube::Client;
use kube::client::Body;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use super::handlers::{self, Script};
use super::virt_api::VirtApi;
use super::{child, free_port};
use crate::cluster::Cluster;
use crate::real::Real;

const NAMESPACE: &str = "kubevirt";
pub(crate) const CORE: &str = "/api/v1/namespaces/kubevirt";
pub const GUESTS: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const PATIENCE: Duration = Duration::from_secs(180);
/// One at a time: each is eight processes.
static TURN: std::sync::LazyLock<Arc<tokio::sync::Mutex<()>>> = std::sync::LazyLock::new(Arc::default);

pub struct KubeVirtPrograms {
    folder: PathBuf,
    pub(crate) assets: PathBuf,
    address: String,
}

/// KubeVirt's programs, or why these scenarios are skipped.
pub fn kubevirt_programs() -> Result<KubeVirtPrograms, String> {
    let Some(folder) = std::env::var_os("KUBEVIRT_DIR").filter(|it| !it.is_empty()).map(PathBuf::from) else {
        return Err(
            "KUBEVIRT_DIR (a folder with virt-api, virt-controller and objects.json) is not set".to_owned()
        );
    };
    let Some(assets) = super::etcd::assets() else {
        return Err("KUBEBUILDER_ASSETS (with etcd, kube-apiserver and kube-scheduler) is not set".to_owned());
    };
    let wanted = ["virt-api", "virt-controller", "objects.json"].map(|it| folder.join(it));
    if let Some(missing) = wanted.into_iter().chain([assets.join("kube-scheduler")]).find(|it| !it.exists()) {
        return Err(format!("{} is missing", missing.display()));
    }
    // An endpoint needs an address that is not loopback. No packet is sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    match socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) {
        Ok(own) => Ok(KubeVirtPrograms { folder, assets, address: own.ip().to_string() }),
        Err(cause) => Err(format!("this machine has no address but the loopback one: {cause}")),
    }
}

/// The processes, and the players of nodes.
pub struct KubeVirt {
    client: Client,
    real: Arc<Real>,
    script: Arc<Mutex<Script>>,
    minor: u64,
    _players: JoinSet<()>,
    controller: Ended,
    _scheduler: Ended,
    _turn: OwnedMutexGuard<()>,
}

pub(crate) struct Ended(pub(crate) Vec<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl KubeVirt {
    /// Three nodes of a real API server with KubeVirt, once virt-api answers. Waits until no other test has one.
    pub async fn start(programs: &KubeVirtPrograms) -> (Cluster, Self) {
        let turn = TURN.clone().lock_owned().await;
        let (cluster, real) = Cluster::of_three(&programs.assets).await;
        let kubevirt = Self::install(programs, real, turn).await;
        (cluster, kubevirt)
    }

    async fn install(programs: &KubeVirtPrograms, real: Arc<Real>, turn: OwnedMutexGuard<()>) -> Self {
        let server = real.server();
        let client = server.unretried(None);
        let door = Door(client.clone());
        for node in real.nodes() {
            furnish(&door, node).await;
        }
        let dir = server.dir().to_owned();
        let scheduler = child(
            &programs.assets,
            "kube-scheduler",
            &[
                format!("--kubeconfig={}", server.kubeconfig_file("scheduler", super::TOKEN).display()),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
            ],
        );
        let minor = objects(&door, &programs.folder, &dir).await;
        let controller = child(
            &programs.folder,
            "virt-controller",
            &[
                format!(
                    "--kubeconfig={}",
                    server.kubeconfig_file("virt-controller", super::CONTROLLER).display()
                ),
                "--launcher-image=launcher".to_owned(),
                "--exporter-image=exporter".to_owned(),
                "--listen=127.0.0.1".to_owned(),
                // Longer than a test freezes it.
                "--leader-elect-lease-duration=300s".to_owned(),
                "--leader-elect-renew-deadline=200s".to_owned(),
                format!("--port={}", free_port()),
                format!("--prom-cert-file={}", dir.join("front.crt").display()),
                format!("--prom-key-file={}", dir.join("front.key").display()),
            ],
        );
        let script = Arc::new(Mutex::new(Script { virt_api: true, ..Script::default() }));
        let mut players = JoinSet::new();
        let virt_api = VirtApi {
            door: Door(client.clone()),
            folder: programs.folder.clone(),
            kubeconfig: server.kubeconfig_file("virt-api", super::VIRT_API),
            dir,
            address: programs.address.clone(),
            port: free_port(),
            made: 0,
            process: None,
        };
        players.spawn(virt_api.keep(script.clone()));
        players.spawn(handlers::play(Door(client.clone()), script.clone()));
        let own = Self {
            client,
            real,
            script,
            minor,
            _players: players,
            controller: Ended(vec![controller]),
            _scheduler: Ended(vec![scheduler]),
            _turn: turn,
        };
        own.virt_api(true).await;
        own
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn door(&self) -> Door {
        Door(self.client.clone())
    }

    pub const fn minor(&self) -> u64 {
        self.minor
    }

    pub fn peers(&self) -> &[String] {
        &self.real.nodes()[1..]
    }

    /// Takes virt-api away, or lets it run once a node takes its pod.
    pub fn allow_virt_api(&self, may_run: bool) {
        self.script().virt_api = may_run;
    }

    /// Takes virt-api away, or brings it back.
    pub async fn virt_api(&self, runs: bool) {
        self.allow_virt_api(runs);
        let (what, code) = if runs { ("virt-api to answer", 200) } else { ("virt-api to be away", 503) };
        let path = "/apis/subresources.kubevirt.io/v1/healthz";
        self.until(what, || async { self.door().call("GET", path, &Value::Null).await.0 == code }).await;
    }

    /// Freezes or continues virt-controller.
    pub fn freeze(&self, still: bool) {
        let signal = if still { Signal::STOP } else { Signal::CONT };
        for child in &self.controller.0 {
            kill_process(Pid::from_child(child), signal).unwrap();
        }
    }

    /// These nodes are down, which the cluster shows later; their pods are gone.
    pub async fn down(&self, nodes: &[String]) {
        self.script().down = nodes.iter().cloned().collect();
        for node in nodes {
            self.real.power(node, false).await;
            let taint = json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule" });
            let patch = json!({ "spec": { "taints": [taint] } });
            self.door().done("PATCH", &format!("/api/v1/nodes/{node}"), &patch).await;
        }
    }

    /// Migrations of these machines hang.
    pub fn hang(&self, guests: &[&str]) {
        self.script().hang = guests.iter().map(|it| (*it).to_owned()).collect();
    }

    pub async fn machine(&self, namespace: &str, name: &str, node: &str, movable: bool) {
        if !movable {
            self.script().fixed.insert(name.to_owned());
        }
        let here = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] });
        let near = json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "preference": here }] });
        let spec = json!({
            "architecture": "amd64", "evictionStrategy": "LiveMigrate", "terminationGracePeriodSeconds": 1, "affinity": { "nodeAffinity": near },
            "domain": {
                "cpu": { "model": "host-passthrough" }, "devices": {},
                "resources": { "requests": { "memory": "64Mi" } },
            },
        });
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name },
            "spec": { "runStrategy": "Always", "template": { "metadata": {}, "spec": spec } },
        });
        let all = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines");
        self.door().done("POST", &all, &machine).await;
        self.until(&format!("{name} to be up"), || async {
            let guest = self.guest(namespace, name).await;
            let up = guest["status"]["phase"] == "Running" && guest["status"]["nodeName"] == node;
            let ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            up && guest["status"]["conditions"].as_array().is_some_and(|it| it.iter().any(ready))
        })
        .await;
    }

    /// Null where there is none.
    pub async fn guest(&self, namespace: &str, name: &str) -> Value {
        let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}");
        let (code, it) = self.door().call("GET", &path, &Value::Null).await;
        if code == 200 { it } else { Value::Null }
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.door().list(path).await
    }

    pub async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        while !holds().await {
            assert!(clock.now() < end, "waited {} s for {what}: {}", PATIENCE.as_secs(), self.all().await);
            clock.sleep_until(Some(clock.now() + Duration::from_millis(100))).await;
        }
    }

    async fn all(&self) -> String {
        let mut all = Vec::new();
        for path in [GUESTS, "/apis/kubevirt.io/v1/virtualmachineinstancemigrations", "/api/v1/pods"] {
            for it in self.list(path).await {
                all.push(format!("{} {}", it["metadata"]["name"], it["status"]));
            }
        }
        all.join("\n")
    }
}

/// JSON requests with any client.
#[derive(Clone)]
pub struct Door(pub(crate) Client);

impl Door {
    /// One request, with a merge patch for `PATCH`: code and answer, a text where it is no JSON.
    pub async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.call_as(None, method, path, body).await
    }

    pub async fn call_as(&self, node: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = match (method, body) {
            ("PATCH", Value::Array(_)) => "application/json-patch+json",
            ("PATCH", _) if path.ends_with("/status") => "application/strategic-merge-patch+json",
            ("PATCH", _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        if let Some(node) = node {
            request = request
                .header("impersonate-user", "system:serviceaccount:kubevirt:kubevirt-handler")
                .header("impersonate-group", "system:masters")
                .header("impersonate-extra-authentication.kubernetes.io%2fnode-name", node);
        }
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match self.0.send(request.body(Body::from(bytes)).unwrap()).await {
            Ok(response) => {
                let code = response.status().as_u16();
                let bytes =
                    response.into_body().collect_bytes().await.map(|it| it.to_vec()).unwrap_or_default();
                let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
                (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
            }
            Err(cause) => (0, cause.to_string().into()),
        }
    }

    pub async fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    /// Empty where the path cannot be read.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.call("GET", path, &Value::Null).await.1["items"].as_array().cloned().unwrap_or_default()
    }
}

async fn furnish(door: &Door, node: &str) {
    let labels = json!({
        "kubernetes.io/hostname": node, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubevirt.io/schedulable": "true", "machine-type.node.kubevirt.io/q35": "true",
    });
    let node = format!("/api/v1/nodes/{node}");
    // A new node has a taint until a controller sees it Ready.
    door.done("PATCH", &node, &json!({ "metadata": { "labels": labels }, "spec": { "taints": null } })).await;
    let room = json!({
        "cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi", "devices.kubevirt.io/kvm": "100",
        "devices.kubevirt.io/tun": "100", "devices.kubevirt.io/vhost-net": "100",
    });
    let status = json!({ "status": { "capacity": room, "allocatable": room } });
    door.done("PATCH", &format!("{node}/status"), &status).await;
}

/// Installs what virt-operator installs, from the list in the folder: kinds, webhooks and the aggregated API,
/// with this stage's certificate; and the settings object. Returns its minor version.
async fn objects(door: &Door, folder: &Path, dir: &Path) -> u64 {
    let list: Value = serde_json::from_slice(&std::fs::read(folder.join("objects.json")).unwrap()).unwrap();
    let bundle = serde_json::to_value(ByteString(std::fs::read(dir.join("front.crt")).unwrap())).unwrap();
    door.done("POST", "/api/v1/namespaces", &json!({ "metadata": { "name": NAMESPACE } })).await;
    let service = json!({ "metadata": { "name": "virt-api" }, "spec": { "ports": [{ "port": 443 }] } });
    door.done("POST", &format!("{CORE}/services"), &service).await;
    for mut object in list["items"].as_array().unwrap().clone() {
        let name = object["metadata"]["name"].clone();
        object["metadata"] = json!({ "name": name });
        object.as_object_mut().unwrap().remove("status");
        let own = |service: &Value| service["name"] == "virt-api";
        let kind = object["kind"].as_str().unwrap().to_owned();
        let all = match kind.as_str() {
            "CustomResourceDefinition"
                if object["spec"]["group"].as_str().unwrap().ends_with("kubevirt.io") =>
            {
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            }
            "APIService" if own(&object["spec"]["service"]) => {
                object["spec"]["caBundle"] = bundle.clone();
                object["spec"]["service"]["namespace"] = NAMESPACE.into();
                "/apis/apiregistration.k8s.io/v1/apiservices"
            }
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
                let all = object["webhooks"].as_array_mut().unwrap();
                all.retain(|it| own(&it["clientConfig"]["service"]));
                for it in &mut *all {
                    it["clientConfig"]["caBundle"] = bundle.clone();
                    it["clientConfig"]["service"]["namespace"] = NAMESPACE.into();
                }
                if all.is_empty() {
                    continue;
                }
                &format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase())
            }
            _ => continue,
        };
        door.done("POST", all, &object).await;
    }
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    let all = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts");
    let own = list["items"].as_array().unwrap().iter().find(|it| it["kind"] == "KubeVirt");
    let version =
        &own.expect("objects.json without the KubeVirt object")["status"]["observedKubeVirtVersion"];
    let settings = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "configuration": {} },
    });
    while door.call("POST", &all, &settings).await.0 != 201 {
        assert!(clock.now() < end, "the kinds of KubeVirt are not served");
        clock.sleep_until(Some(clock.now() + Duration::from_millis(100))).await;
    }
    // Settings count only when deployed.
    let deployed = json!([{ "op": "add", "path": "/status", "value": { "phase": "Deployed", "observedKubeVirtVersion": version } }]);
    door.done("PATCH", &format!("{all}/kubevirt/status"), &deployed).await;
    version.as_str().unwrap().split('.').nth(1).unwrap().parse().unwrap()
}
