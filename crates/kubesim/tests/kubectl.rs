//! The embedded cluster as `kubectl` sees it. Without a `kubectl` in the search path these tests say so and end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kubesim::{Sim, SimServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A state that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_secs(30);
const BUDGETS: &str = "policy/poddisruptionbudgets";

#[derive(Debug)]
struct Said {
    ok: bool,
    out: String,
    err: String,
}

struct Shop {
    sim: Sim,
    server: SimServer,
    folder: TempDir,
}

impl Shop {
    /// Three nodes, a Deployment behind a budget that lets nothing go, a StatefulSet, a DaemonSet, a bare pod.
    async fn open() -> Option<Self> {
        let found = Command::new("kubectl").args(["version", "--client"]).output();
        if let Err(error) = found {
            writeln!(
                std::io::stderr(),
                "skipped: kubectl cannot be run ({error}); install kubectl (1.32 is known to do) to try this"
            )
            .unwrap();
            return None;
        }
        let sim = Sim::of_nodes(3);
        sim.add_deployment("shop", "web", 3);
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 3 }));
        sim.add_stateful_set("shop", "db", 2);
        sim.add_daemon_set("kube-system", "agent");
        running(&sim, 8).await;
        sim.add_bare_pod("tools", "shell", "n1");
        running(&sim, 9).await;
        let server = sim.serve().await.unwrap();
        let shop = Self { sim, folder: tempfile::tempdir().unwrap(), server };
        shop.file("kubeconfig", &shop.server.kubeconfig());
        Some(shop)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, words: &str) -> Command {
        let folder = self.folder.path();
        let mut command = Command::new("kubectl");
        command.env("HOME", folder).env("KUBECONFIG", folder.join("kubeconfig")).current_dir(folder);
        command.arg("--request-timeout=20s").args(words.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, words: &str) -> Said {
        let mut command = self.command(words);
        let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    async fn ok(&self, words: &str) -> String {
        let said = self.run(words).await;
        assert!(said.ok, "kubectl {words}: {said:#?}");
        said.out
    }

    async fn fails(&self, words: &str) -> String {
        let said = self.run(words).await;
        assert!(!said.ok, "kubectl {words}: {said:#?}");
        said.err
    }

    fn node(&self) -> Value {
        self.sim.get("nodes", "", "n1").unwrap()
    }
}

async fn running(sim: &Sim, count: usize) {
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    tokio::select! {
        () = sim.until("pods", |pods| pods.len() == count && pods.iter().all(ready)) => {}
        () = tokio::time::sleep(PATIENCE) => panic!("no {count} pods run: {:#?}", sim.list("pods")),
    }
}

/// The rest of the row that begins with this word.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.into_iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("no {name} in\n{table}"))
}

#[tokio::test]
async fn get_and_describe_print_what_is_there() {
    let Some(shop) = Shop::open().await else { return };
    assert!(shop.ok("version").await.contains("kubesim"));
    let resources = shop.ok("api-resources").await;
    for name in ["leases", "events", "daemonsets", "volumeattachments", "priorityclasses", "pdb", "pvc"] {
        row(&resources, name);
    }
    assert_eq!(row(&shop.ok("get nodes").await, "n1")[..3], ["n1", "Ready", "control-plane"]);
    let pods = shop.ok("get pods -A -o wide").await;
    assert_eq!(pods.lines().count(), 10, "{pods}");
    assert_eq!(row(&pods, "shell")[..4], ["tools", "shell", "1/1", "Running"]);
    assert_eq!(row(&pods, "shell").last(), Some(&"n1"));
    assert_eq!(row(&shop.ok("get pdb -n shop").await, "web")[..4], ["web", "3", "N/A", "0"]);
    let workloads = shop.ok("get all -n shop").await;
    assert_eq!(row(&workloads, "deployment.apps/web")[1..4], ["3/3", "3", "3"]);
    assert_eq!(row(&workloads, "statefulset.apps/db")[1], "2/2");
    let on_n1 = shop.ok("get pods -A --field-selector spec.nodeName=n1 -l app=shell -o name").await;
    assert_eq!(on_n1, "pod/shell\n");
    assert!(shop.ok("get namespaces -o name").await.contains("namespace/shop"));
    assert_eq!(shop.ok("get pod -n tools shell -o jsonpath={.status.phase}").await, "Running");
    let node = shop.ok("describe node n1").await;
    assert!(node.contains("Unschedulable:      false"), "{node}");
    assert!(node.contains("kube-system") && node.contains("agent-n1") && node.contains("shell"), "{node}");
    assert!(shop.ok("describe pod -n tools shell").await.contains("Status:       Running"));
    assert!(shop.ok("describe pdb -n shop web").await.contains("Allowed disruptions:  0"));
    assert!(shop.fails("get pod -n tools nobody").await.contains("(NotFound): pods \"nobody\" not found"));
    // Documents that are not there are told in words that kubectl knows.
    let said = shop.fails("get --raw /openapi/v2").await;
    assert!(said.contains("could not find the requested resource"), "{said}");
}

#[tokio::test]
async fn volumes_and_priority_classes_are_listed() {
    let Some(shop) = Shop::open().await else { return };
    shop.sim.add_claim("tools", "data", "pv-1");
    shop.sim.add_mounting_pod("tools", "import", "n2", "data");
    shop.sim.add_priority_class("high", 1000);
    running(&shop.sim, 10).await;
    let listed = shop.ok("get pv,pvc,volumeattachment -n tools").await;
    let volume = ["persistentvolume/pv-1", "1Gi", "RWO", "Delete", "Bound", "tools/data", "kubesim"];
    assert_eq!(row(&listed, "persistentvolume/pv-1")[..7], volume);
    let claim = row(&listed, "persistentvolumeclaim/data");
    assert_eq!(claim[1..6], ["Bound", "pv-1", "1Gi", "RWO", "kubesim"]);
    let attachment = row(&listed, "volumeattachment.storage.k8s.io/csi-pv-1-n2");
    assert_eq!(attachment[1..5], ["csi.kubesim", "pv-1", "n2", "true"]);
    assert_eq!(row(&shop.ok("get pc").await, "high")[1..3], ["1000", "false"]);
    assert!(shop.ok("describe pvc -n tools data").await.contains("Used By:       import"));
}

#[tokio::test]
async fn leases_and_events_are_created_from_files_and_listed() {
    let Some(shop) = Shop::open().await else { return };
    let lease = shop.file(
        "lease.yaml",
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: leader, namespace: shop}\n\
         spec: {holderIdentity: n2, leaseDurationSeconds: 300}\n",
    );
    let uid = shop.sim.get("pods", "tools", "shell").unwrap()["metadata"]["uid"].clone();
    let event = shop.file(
        "event.yaml",
        &format!(
            "apiVersion: v1\nkind: Event\nmetadata: {{name: e1, namespace: tools}}\nreason: Tested\n\
             involvedObject: {{kind: Pod, name: shell, namespace: tools, uid: {uid}}}\ntype: Normal\n\
             message: it works\n",
        ),
    );
    assert_eq!(shop.ok(&format!("create -f {lease}")).await, "lease.coordination.k8s.io/leader created\n");
    shop.ok(&format!("create -f {event}")).await;
    let again = shop.fails(&format!("create -f {lease}")).await;
    assert!(again.contains("(AlreadyExists)"), "{again}");
    assert_eq!(row(&shop.ok("get leases -A").await, "leader")[..3], ["shop", "leader", "n2"]);
    for events in ["events", "events.events.k8s.io"] {
        let events = shop.ok(&format!("get {events} -n tools")).await;
        assert_eq!(row(&events, "Tested")[1..], ["Normal", "Tested", "pod/shell", "it", "works"]);
    }
    let note = "get events.events.k8s.io -n tools -o jsonpath={.items[0].note}";
    assert_eq!(shop.ok(note).await, "it works");
    assert!(shop.ok("describe pod -n tools shell").await.contains("it works"));
}

#[tokio::test]
async fn files_are_checked_and_applied_by_the_client_and_not_by_the_server() {
    let Some(shop) = Shop::open().await else { return };
    let map = |data: &str| {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: shop}}\n{data}\n");
        shop.file("map.yaml", &text)
    };
    let file = map("dta: {a: one}");
    let said = shop.fails(&format!("create -f {file}")).await;
    assert!(said.contains("unknown field \"dta\""), "{said}");
    map("data: {a: one}");
    let said = shop.fails(&format!("apply --server-side -f {file}")).await;
    assert!(said.contains("kubesim does not serve server-side apply"), "{said}");
    assert!(shop.sim.get("configmaps", "shop", "c").is_none());
    shop.ok(&format!("apply --dry-run=server -f {file}")).await;
    assert!(shop.sim.get("configmaps", "shop", "c").is_none());
    assert_eq!(shop.ok(&format!("apply -f {file}")).await, "configmap/c created\n");
    map("data: {b: two}");
    assert_eq!(shop.ok(&format!("apply -f {file}")).await, "configmap/c configured\n");
    assert_eq!(shop.sim.get("configmaps", "shop", "c").unwrap()["data"], json!({ "b": "two" }));
    assert_eq!(shop.ok(&format!("apply -f {file}")).await, "configmap/c unchanged\n");
}

#[tokio::test]
async fn a_node_is_labelled_annotated_tainted_and_patched_in_three_ways() {
    let Some(shop) = Shop::open().await else { return };
    shop.ok("label node n1 zone=east").await;
    let said = shop.fails("label node n1 zone=west").await;
    assert!(said.contains("already has a value"), "{said}");
    shop.ok("annotate node n1 note=hello").await;
    shop.ok("taint node n1 disk=old:NoSchedule").await;
    shop.ok("taint node n1 disk=old:NoExecute").await;
    let node = shop.node();
    assert_eq!(node["metadata"]["labels"]["zone"], "east");
    assert_eq!(node["metadata"]["annotations"]["note"], "hello");
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 2, "{}", node["spec"]);
    shop.ok("taint node n1 disk-").await;
    shop.ok("label node n1 zone-").await;
    assert!(shop.node()["spec"]["taints"].as_array().is_none_or(Vec::is_empty));
    assert!(shop.node()["metadata"]["labels"]["zone"].is_null());
    let node = json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } });
    shop.ok(&format!("patch node n1 -p {node}")).await;
    let condition = json!({ "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }] } });
    shop.ok(&format!("patch node n1 --subresource=status -p {condition}")).await;
    assert_eq!(shop.node()["status"]["conditions"].as_array().unwrap().len(), 2, "one more condition");
    let labels = json!({ "metadata": { "labels": { "by": "merge" } } });
    shop.ok(&format!("patch node n1 --type=merge -p {labels}")).await;
    let steps = |old: &str| {
        json!([
            { "op": "test", "path": "/metadata/labels/by", "value": old },
            { "op": "replace", "path": "/metadata/labels/by", "value": "json" },
        ])
    };
    let said = shop.fails(&format!("patch node n1 --type=json -p {}", steps("nobody"))).await;
    assert!(said.contains("The request is invalid"), "{said}");
    assert_eq!(shop.node()["metadata"]["labels"]["by"], "merge");
    shop.ok(&format!("patch node n1 --type=json -p {}", steps("merge"))).await;
    assert_eq!(shop.node()["metadata"]["labels"]["by"], "json");
}

#[tokio::test]
async fn a_deployment_is_scaled_and_rolled_out() {
    let Some(shop) = Shop::open().await else { return };
    let file = shop.file(
        "deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: new, namespace: shop}\n\
         spec: {replicas: 1, selector: {matchLabels: {app: new}}, template: {metadata: {labels: {app: new}}, \
         spec: {containers: [{name: c, image: i}]}}}\n",
    );
    shop.ok(&format!("create -f {file}")).await;
    shop.ok("rollout status -n shop deployment/new --timeout=20s").await;
    running(&shop.sim, 10).await;
    assert_eq!(shop.ok("scale -n shop deployment/new --replicas=3").await, "deployment.apps/new scaled\n");
    running(&shop.sim, 12).await;
    shop.ok("delete -n shop deployment/new").await;
    running(&shop.sim, 9).await;
}

#[tokio::test]
async fn a_cordon_keeps_pods_away_until_the_uncordon() {
    let Some(shop) = Shop::open().await else { return };
    shop.ok("cordon n1 --dry-run=server").await;
    assert_ne!(shop.node()["spec"]["unschedulable"], true);
    assert_eq!(shop.ok("cordon n1").await, "node/n1 cordoned\n");
    assert_eq!(row(&shop.ok("get nodes").await, "n1")[1], "Ready,SchedulingDisabled");
    assert_eq!(shop.ok("cordon n1").await, "node/n1 already cordoned\n");
    assert_eq!(shop.ok("uncordon n1").await, "node/n1 uncordoned\n");
    assert_eq!(row(&shop.ok("get nodes").await, "n1")[1], "Ready");
}

#[tokio::test]
async fn a_pod_is_deleted_with_and_without_grace() {
    let Some(shop) = Shop::open().await else { return };
    shop.ok("delete pod -n tools shell --dry-run=server").await;
    assert!(shop.sim.get("pods", "tools", "shell").is_some());
    // A node without power ends no pod.
    shop.sim.power("n1", false);
    shop.ok("delete pod -n tools shell --grace-period=0 --force --timeout=10s").await;
    assert!(shop.sim.get("pods", "tools", "shell").is_none());
    shop.sim.power("n1", true);
    let old = shop.sim.get("pods", "shop", "db-0").unwrap()["metadata"]["uid"].clone();
    // This one waits for the pod to end; its set brings it back.
    shop.ok("delete pod -n shop db-0").await;
    running(&shop.sim, 8).await;
    assert_ne!(shop.sim.get("pods", "shop", "db-0").unwrap()["metadata"]["uid"], old);
    shop.ok("wait --for=condition=Ready pod -n shop db-0 --timeout=20s").await;
}

/// Reads a child's output until a line contains `wanted`; returns the lines.
fn read_until(child: &mut Child, wanted: &str) -> (Vec<String>, BufReader<std::process::ChildStderr>) {
    let mut from = BufReader::new(child.stderr.take().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(from.read_line(&mut line).unwrap(), 0, "no {wanted:?} in {lines:#?}");
        lines.push(line);
        if lines.last().is_some_and(|line| line.contains(wanted)) {
            return (lines, from);
        }
    }
}

#[tokio::test]
async fn a_drain_waits_for_the_budget_and_ends_when_it_opens() {
    let Some(shop) = Shop::open().await else { return };
    let flags = "--ignore-daemonsets --delete-emptydir-data --force";
    let said = shop.fails("drain n1").await;
    assert!(said.contains("cannot delete DaemonSet-managed Pods"), "{said}");
    let mut child = shop.command(&format!("drain n1 {flags} --timeout=60s")).spawn().unwrap();
    // The budget refuses, kubectl announces a retry.
    let (mut child, _from) = spawn_blocking(move || {
        let (_, from) = read_until(&mut child, "will retry after");
        (child, from)
    })
    .await
    .unwrap();
    let left = |pods: &[Value]| pods.iter().filter(|pod| pod["spec"]["nodeName"] == "n1").count();
    assert!(left(&shop.sim.list("pods")) >= 2, "the guarded pod has gone");
    assert_eq!(shop.node()["spec"]["unschedulable"], true);
    assert!(shop.sim.edit(BUDGETS, "shop", "web", |budget| budget["spec"]["minAvailable"] = 2.into()));
    let status = spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(status.success());
    let pods = shop.sim.list("pods");
    assert_eq!(left(&pods), 1, "only the DaemonSet's pod stays");
    assert!(shop.sim.get("pods", "tools", "shell").is_none());
    shop.ok("uncordon n1").await;
}
