//! The real Longhorn: a manager of the folder that `LONGHORN_DIR` names on each of three nodes without a machine, with all
//! its controllers and webhooks, beside a real API server, controller manager and scheduler.
//!
//! Played are what needs a machine: kubelets (`real`), processes of engines and replicas (`engines`), the CSI part
//! (`attacher`), iSCSI's tools and the program of the engine, of which a manager asks the version. A manager looks for these
//! in files and processes of its own machine, so each has a root file system, a network and processes of its own, on top of
//! those of this machine, which keeps none of it.

mod attacher;
mod engines;
mod volumes;
mod wire;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent::Clock;
use futures::stream::{BoxStream, StreamExt as _};
use kube::Client;
use kube::api::WatchEvent;
use pubsub::store;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::engines::Engines;
use super::{ApiServer, TOKEN, child};
use crate::cluster::{Cluster, Place, THREE};

pub const NO_LONGHORN: &str = "needed are LONGHORN_DIR (a folder with longhorn-manager and its crds.yaml), \
                               KUBEBUILDER_ASSETS (with etcd, kube-apiserver, kube-controller-manager and \
                               kube-scheduler), root, and the commands ip, unshare and openssl";
const INSIDE: &str = "PILLAR_SCENARIO_NETWORK";
const SPACE: &str = "longhorn-system";
/// Address of everything except nodes' pods: a bridge.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 254));
const PATIENCE: Duration = Duration::from_mins(3);
const WEBHOOK: &str = "longhorn-admission-webhook";
/// Name of the engine's image, and folder of its program.
const ENGINE: (&str, &str) = ("engine:played", "engine-played");
const MANAGER: &str = "longhorn-manager:real";
/// The engine program's answer for its version.
const VERSION: &str = r#"{"clientVersion":{"version":"played","cliAPIVersion":12,"cliAPIMinVersion":8,"controllerAPIVersion":6,"controllerAPIMinVersion":4,"dataFormatVersion":1,"dataFormatMinVersion":1}}"#;
/// A machine for a manager: a root file system on top of this one (`WORK`) with the files in `FILES`, where the folder of the
/// manager is `/mnt/lh`; a network that is ready when a line comes. A manager that ends is started again, as by a kubelet: one that
/// finds its webhooks not up to date ends.
const MACHINE: &str = r#"set -e
echo there; read -r ready
exec >>"$LOG" 2>&1
mount --make-rprivate /
mount -t tmpfs tmpfs "$WORK"
mkdir "$WORK/up" "$WORK/work" "$WORK/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$WORK/up,workdir=$WORK/work" "$WORK/root"
cd "$WORK/root"
mkdir -p host/proc mnt/old mnt/lh var/lib/longhorn
cp -r "$FILES/." .
cp "$(command -v sleep)" usr/local/bin/iscsid
mount --bind "$FOLDER" mnt/lh
mount -t proc proc proc
mount --bind proc host/proc
mount --rbind /dev dev
pivot_root . mnt/old
umount -l /mnt/old
ip link set lo up
ip addr add "$POD_IP/24" dev eth0
ip link set eth0 up
iscsid infinity &
until /mnt/lh/longhorn-manager daemon --engine-image "$ENGINE" --instance-manager-image instance-manager:played \
  --share-manager-image share-manager:played --backing-image-manager-image backing-image-manager:played \
  --support-bundle-manager-image support-bundle:played --manager-image "$MANAGER" --service-account longhorn; do sleep 1; done
"#;

/// The folders that the environment names, Longhorn's and that of Kubernetes, if all is there.
pub fn longhorn_folders() -> Option<(PathBuf, PathBuf)> {
    let folder = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let (longhorn, assets) = (folder("LONGHORN_DIR")?, folder("KUBEBUILDER_ASSETS")?);
    let found = |command: &str| Command::new(command).arg("--version").output().is_ok();
    let there = longhorn.join("longhorn-manager").exists()
        && longhorn.join("crds.yaml").exists()
        && assets.join("kube-scheduler").exists()
        && rustix::process::geteuid().is_root()
        && ["ip", "unshare", "openssl"].into_iter().all(found);
    there.then_some((longhorn, assets))
}

/// Whether this is the test `name` with a network of its own. If not, it is run so, and has passed.
pub fn has_own_network(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child", "--"])
        .arg(own)
        .args([name, "--exact", "--nocapture"])
        .env(INSIDE, "own")
        .status()
        .unwrap();
    assert!(status.success(), "{name} has failed in a network of its own");
    false
}

/// Ends when dropped.
pub struct RealLonghorn {
    client: Client,
    engines: Engines,
    nodes: Vec<String>,
    processes: Vec<Child>,
    dir: TempDir,
    _players: JoinSet<()>,
}

impl Drop for RealLonghorn {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn run(command: &str, words: &str) {
    let ended = Command::new(command).args(words.split(' ')).output().unwrap();
    assert!(ended.status.success(), "{command} {words}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Address of the `nth` node, and of what is played for it.
fn addresses(nth: u8) -> (IpAddr, IpAddr) {
    let at = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 77, 0, last));
    (at(1 + nth), at(101 + nth))
}

fn join_networks() {
    run("ip", "link set lo up");
    run("ip", "link add br0 type bridge");
    run("ip", "link set br0 up");
    for address in [HOST].into_iter().chain((0..3).map(|nth| addresses(nth).1)) {
        run("ip", &format!("addr add {address}/24 dev br0"));
    }
}

fn controllers(server: &mut ApiServer, assets: &Path) -> Vec<Child> {
    let kubeconfig = server.dir().join("kubeconfig");
    store::replace(&kubeconfig, server.kubeconfig().unwrap().as_bytes()).unwrap();
    server.has_controllers = true;
    let start = |name: &str| {
        child(
            assets,
            name,
            &[format!("--kubeconfig={}", kubeconfig.display()), "--leader-elect=false".to_owned()],
        )
    };
    vec![start("kube-controller-manager"), start("kube-scheduler")]
}

impl RealLonghorn {
    pub async fn with_nodes(assets: &Path, folder: &Path) -> (Cluster, Self) {
        join_networks();
        let mut server = ApiServer::listening_at(assets, HOST).await;
        let processes = controllers(&mut server, assets);
        let place = Place::new();
        let nodes = place.nodes(THREE).into_iter().map(|(name, _)| name).collect();
        let (port, dir) = (server.port(), server.dir().to_owned());
        let cluster = Cluster::at(server, place, THREE).await;
        let longhorn = Self::start(cluster.client.clone(), nodes, folder, (port, &dir), processes).await;
        (cluster, longhorn)
    }

    /// Installs Longhorn in a cluster with these nodes, on a server at [`HOST`], and waits until it can serve.
    async fn start(
        client: Client,
        nodes: Vec<String>,
        folder: &Path,
        (port, server): (u16, &Path),
        processes: Vec<Child>,
    ) -> Self {
        let engines = Engines::new();
        let mut players = JoinSet::new();
        for nth in 0..3 {
            engines.serve(addresses(nth).1, &mut players).await;
        }
        players.spawn(attacher::play(client.clone()));
        let dir = tempfile::tempdir().unwrap();
        let mut longhorn = Self { client, engines, nodes, processes, dir, _players: players };
        for (nth, node) in (0..).zip(longhorn.nodes.clone()) {
            let played = addresses(nth).1;
            let annotation = json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
            let labels = json!({ "kubernetes.io/hostname": node });
            let meta = json!({ "metadata": { "annotations": annotation, "labels": labels } });
            longhorn.merge(&format!("/api/v1/nodes/{node}"), &meta).await;
            let room = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
            let address = json!([{ "type": "InternalIP", "address": played }]);
            let status = json!({ "status": { "capacity": room, "allocatable": room, "addresses": address } });
            longhorn.merge(&format!("/api/v1/nodes/{node}/status"), &status).await;
        }
        longhorn.install(folder).await;
        longhorn.lay_out(server);
        for (nth, node) in (0..).zip(longhorn.nodes.clone()) {
            let pod = longhorn.until("a pod of the manager", async |it| it.pod_of(&node).await).await;
            let manager = longhorn.manager(nth, &node, &pod, folder, port);
            longhorn.processes.push(manager);
            // The first one serves the webhooks, which the others need.
            longhorn
                .until("a manager", async |it| (!it.get(&at("nodes", &node)).await.is_null()).then_some(()))
                .await;
        }
        longhorn.until("Longhorn that can serve", async |it| it.serves().await.then_some(())).await;
        longhorn
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let body = body.map(|it| serde_json::to_vec(it).unwrap()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        self.client.request(request.body(body).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Value {
        match self.ask("GET", path, "application/json", None).await {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            Err(cause) => panic!("GET {path}: {cause}"),
        }
    }

    async fn make(&self, path: &str, object: &Value) {
        let made = self.ask("POST", path, "application/json", Some(object)).await;
        made.unwrap_or_else(|cause| panic!("POST {path} {object}: {cause}"));
    }

    pub async fn merge(&self, path: &str, change: &Value) {
        let done = self.ask("PATCH", path, "application/merge-patch+json", Some(change)).await;
        done.unwrap_or_else(|cause| panic!("PATCH {path} {change}: {cause}"));
    }

    /// Objects of this kind as they change from version `since` on, with whether each is gone.
    pub async fn follow(&self, plural: &str, since: &str) -> BoxStream<'static, (bool, Value)> {
        let uri = format!("{}?watch=true&resourceVersion={since}", at(plural, ""));
        let request = http::Request::builder().uri(uri).body(Vec::new()).unwrap();
        let events = self.client.request_events::<Value>(request).await.unwrap();
        let event = async |event| match event {
            Ok(WatchEvent::Added(it) | WatchEvent::Modified(it)) => Some((false, it)),
            Ok(WatchEvent::Deleted(it)) => Some((true, it)),
            Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => None,
        };
        events.filter_map(event).boxed()
    }

    pub async fn version(&self, plural: &str) -> String {
        self.get(&at(plural, "")).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    pub async fn remove(&self, path: &str) {
        self.ask("DELETE", path, "application/json", None)
            .await
            .unwrap_or_else(|cause| panic!("{path}: {cause}"));
    }

    pub async fn all(&self, plural: &str) -> Vec<Value> {
        let list = self.get(&at(plural, "")).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until `found` returns something.
    pub async fn until<T>(&self, what: &str, found: impl AsyncFn(&Self) -> Option<T>) -> T {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        loop {
            if let Some(found) = found(self).await {
                return found;
            }
            assert!(clock.now() < end, "{what} has not come; logs in {}", self.keep_logs());
            clock.sleep_until(Some(clock.now() + Duration::from_millis(200))).await;
        }
    }

    /// Ends rebuilds, or holds those that begin from now on at 42 %.
    pub fn let_rebuilds_end(&self, may: bool) {
        self.engines.let_rebuilds_end(may);
    }

    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    fn keep_logs(&self) -> String {
        let kept = tempfile::tempdir().unwrap().keep();
        for node in &self.nodes {
            let name = format!("{node}.log");
            drop(std::fs::copy(self.dir.path().join(&name), kept.join(&name)));
        }
        kept.display().to_string()
    }

    /// What `kubectl apply` of Longhorn's file makes, except other pods than the manager.
    async fn install(&self, folder: &Path) {
        let crds = std::fs::read_to_string(folder.join("crds.yaml")).unwrap();
        // Labels contain a line of Helm.
        let plain = crds.lines().map(|it| it.split("{{").next().unwrap()).collect::<Vec<_>>().join("\n");
        for text in plain.split("\n---").filter(|it| it.contains("kind: CustomResourceDefinition")) {
            let crd: Value = serde_saphyr::from_str(text).unwrap();
            self.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
        }
        self.make("/api/v1/namespaces", &json!({ "metadata": { "name": SPACE } })).await;
        let critical = json!({ "metadata": { "name": "longhorn-critical" }, "value": 1_000_000_000 });
        self.make("/apis/scheduling.k8s.io/v1/priorityclasses", &critical).await;
        let core = format!("/api/v1/namespaces/{SPACE}");
        for (name, key, value) in [
            ("longhorn-default-setting", "default-setting.yaml", "priority-class: longhorn-critical\n"),
            ("longhorn-default-resource", "default-resource.yaml", ""),
            ("longhorn-storageclass", "storageclass.yaml", ""),
        ] {
            let map = json!({ "metadata": { "name": name }, "data": { key: value } });
            self.make(&format!("{core}/configmaps"), &map).await;
        }
        self.make(&format!("{core}/serviceaccounts"), &json!({ "metadata": { "name": "longhorn" } })).await;
        let port = json!([{ "name": "https", "port": 9502 }]);
        let service = json!({ "metadata": { "name": WEBHOOK }, "spec": { "ports": port } });
        self.make(&format!("{core}/services"), &service).await;
        let slice = json!({
            "metadata": { "name": WEBHOOK, "labels": { "kubernetes.io/service-name": WEBHOOK } },
            "addressType": "IPv4", "ports": port,
            "endpoints": [{ "addresses": [addresses(0).0], "conditions": { "ready": true } }],
        });
        self.make(&format!("/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices"), &slice).await;
        let labels = json!({ "app": "longhorn-manager" });
        let own = json!({ "name": "longhorn", "mountPath": "/var/lib/longhorn/", "mountPropagation": "Bidirectional" });
        let container = json!({
            "name": "longhorn-manager", "image": MANAGER, "securityContext": { "privileged": true },
            "volumeMounts": [own],
        });
        let pod = json!({
            "tolerations": [{ "operator": "Exists" }], "containers": [container],
            "volumes": [{ "name": "longhorn", "hostPath": { "path": "/var/lib/longhorn/" } }],
        });
        let daemons = json!({
            "metadata": { "name": "longhorn-manager", "labels": labels },
            "spec": {
                "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        });
        self.make(&format!("/apis/apps/v1/namespaces/{SPACE}/daemonsets"), &daemons).await;
    }

    fn lay_out(&self, server: &Path) {
        let files = self.dir.path().join("files");
        let put = |path: &str, text: &str| {
            let path = files.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            store::replace(&path, text.as_bytes()).unwrap();
            path
        };
        let secrets = "run/secrets/kubernetes.io/serviceaccount";
        put(&format!("{secrets}/token"), TOKEN);
        put(&format!("{secrets}/namespace"), SPACE);
        let ca = std::fs::read_to_string(server.join("certs/apiserver.crt")).unwrap();
        put(&format!("{secrets}/ca.crt"), &ca);
        put("etc/hosts", &format!("127.0.0.1 localhost\n{} {WEBHOOK}.{SPACE}.svc\n", addresses(0).0));
        for (program, says) in [
            ("usr/local/bin/iscsiadm".to_owned(), "iscsiadm version 2.1"),
            (format!("var/lib/longhorn/engine-binaries/{}/longhorn", ENGINE.1), VERSION),
        ] {
            let at = put(&program, &format!("#!/bin/sh\necho '{says}'\n"));
            run("chmod", &format!("0755 {}", at.display()));
        }
    }

    async fn pod_of(&self, node: &str) -> Option<String> {
        let pods =
            self.get(&format!("/api/v1/namespaces/{SPACE}/pods?labelSelector=app=longhorn-manager")).await;
        let here = |it: &&Value| it["spec"]["nodeName"] == node && it["status"]["phase"] == "Running";
        let pod = pods["items"].as_array()?.iter().find(here)?;
        pod["metadata"]["name"].as_str().map(str::to_owned)
    }

    fn manager(&self, nth: u8, node: &str, pod: &str, folder: &Path, port: u16) -> Child {
        let work = self.dir.path().join(node);
        std::fs::create_dir(&work).unwrap();
        let mut machine = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MACHINE])
            .env("LOG", self.dir.path().join(format!("{node}.log")))
            .env("WORK", &work)
            .env("FILES", self.dir.path().join("files"))
            .env("FOLDER", folder)
            .envs([("ENGINE", ENGINE.0), ("MANAGER", MANAGER), ("NODE_NAME", node), ("POD_NAME", pod)])
            .envs([("POD_NAMESPACE", SPACE), ("KUBERNETES_SERVICE_PORT", &port.to_string())])
            .env("POD_IP", addresses(nth).0.to_string())
            .env("KUBERNETES_SERVICE_HOST", HOST.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(machine.stdout.take().unwrap()).read_line(&mut line).unwrap();
        run("ip", &format!("link add node{nth} type veth peer name eth0 netns {}", machine.id()));
        run("ip", &format!("link set node{nth} master br0 up"));
        machine.stdin.take().unwrap().write_all(b"\n").unwrap();
        machine
    }

    async fn serves(&self) -> bool {
        let ready = |all: Vec<Value>, is: fn(&Value) -> bool| all.iter().filter(|it| is(it)).count();
        let disks = ready(self.all("nodes").await, |it| {
            let all = it["status"]["diskStatus"].as_object();
            all.is_some_and(|it| it.values().any(|it| it["storageAvailable"].as_u64() > Some(0)))
        });
        let managers =
            ready(self.all("instancemanagers").await, |it| it["status"]["currentState"] == "running");
        let engines = ready(self.all("engineimages").await, |it| it["status"]["state"] == "deployed");
        let budgets = self.get(&format!("/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets")).await;
        let budgets = budgets["items"].as_array().map_or(0, Vec::len);
        (disks, managers, engines) == (3, 3, 1) && budgets >= 3
    }
}

pub fn at(plural: &str, name: &str) -> String {
    let one = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("/apis/longhorn.io/v1beta2/namespaces/{SPACE}/{plural}{one}")
}
