//! Requests and bytes that the statistics cost the API server in ten minutes, beside lists every 30 s:
//! `cargo bench -p clusterview --bench stats_costs`.
//!
//! Both run on a paused clock, each against a cluster of its own with the same events. Bytes are those of
//! answers' bodies, JSON without compression.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people, who see what went wrong"
)]

#[path = "../tests/stats/crowd.rs"]
mod crowd;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent::{Clock, Troubles};
use clusterview::leader::Leadership;
use clusterview::stats;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kubesim::{Sim, SimConfig};
use pubsub::TopicRoot;
use serde_json::{Value, json};
use tokio::sync::watch;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const TEN_MINUTES: Duration = Duration::from_mins(10);
const MANAGED_BYTES: usize = 4000;
/// Namespaces and how many pods they have, 300 in all with those of the DaemonSets.
const NAMESPACES: [(&str, usize); 7] = [
    ("cattle-system", 8),
    ("cdi", 5),
    ("default", 2),
    ("kube-system", 30),
    ("kubevirt", 15),
    ("longhorn-system", 51),
    ("shop", 60),
];
const APP_PODS: usize = 120;
const VOLUMES: usize = 20;
const STORAGE: &str = "longhorn-system";

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    println!("| Ten minutes of 3 nodes and 300 pods | Requests | of them lists | Bytes |");
    println!("|---|---|---|---|");
    let (opening, after) = ours().await;
    println!("| opening the watches, once for each term of a leader | {opening} |");
    println!("| watches, ten minutes after that | {after} |");
    println!("| lists every 30 s, ten minutes | {} |", reference().await);
}

#[derive(Clone, Default)]
struct Meter(Arc<Counts>);

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    lists: AtomicUsize,
    bytes: AtomicUsize,
}

impl Meter {
    fn on(&self, client: Client) -> Client {
        let meter = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, meter) = (client.clone(), meter.clone());
            async move {
                meter.0.requests.fetch_add(1, Ordering::Relaxed);
                let is_list = !request.uri().query().is_some_and(|query| query.contains("watch=true"));
                meter.0.lists.fetch_add(usize::from(is_list), Ordering::Relaxed);
                let answer = client.send(request).await?;
                Ok::<_, BoxError>(answer.map(|body| {
                    body.map_frame(move |frame| {
                        let data: Option<&[u8]> = frame.data_ref().map(AsRef::as_ref);
                        meter.0.bytes.fetch_add(data.map_or(0, <[u8]>::len), Ordering::Relaxed);
                        frame
                    })
                }))
            }
        });
        Client::new(service, "default")
    }

    /// The cells of a row; restarts the counts.
    fn row(&self) -> String {
        let Counts { requests, lists, bytes } = &*self.0;
        let [requests, lists, bytes] = [requests, lists, bytes].map(|it| it.swap(0, Ordering::Relaxed));
        format!("{requests} | {lists} | {:.2} MiB", f64::from(u32::try_from(bytes).unwrap()) / 1_048_576.0)
    }
}

async fn ours() -> (String, String) {
    let sim = cluster().await;
    let meter = Meter::default();
    let root = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(root.path()).unwrap();
    let clock = Clock::new();
    let (_leading, leading) =
        watch::channel(Leadership { until: Some(clock.now() + Duration::from_hours(1)) });
    let (_configs, config) = watch::channel(Some(Arc::default()));
    let cluster = kubeapi::ApiClient::from_client(meter.on(Client::new(sim.service(), "default")));
    let troubles = Troubles::open(&topic_root, clock, "zedkube");
    let task = stats::run(&troubles, cluster, clock, leading, config);
    let rows = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(topic_root.path("run/zedkube/KubeClusterInfo/global.json").exists());
        let opening = meter.row();
        life(&sim).await;
        (opening, meter.row())
    };
    tokio::select! {
        ended = task => unreachable!("it ends with its senders: {ended:?}"),
        rows = rows => rows,
    }
}

/// The reference's way: nodes, pods of applications, machines, namespaces, the pods of each namespace, and
/// the lists of the storage, each once in 30 s. Its further reads for each claim are left out.
async fn reference() -> String {
    let sim = cluster().await;
    let meter = Meter::default();
    let client = meter.on(Client::new(sim.service(), "default"));
    let mut paths = vec![
        "/api/v1/nodes".to_owned(),
        format!("/api/v1/namespaces/{}/pods", crowd::APPS),
        format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances", crowd::APPS),
        format!("/api/v1/namespaces/{}/persistentvolumeclaims", crowd::APPS),
        format!("/apis/apps/v1/namespaces/{STORAGE}/daemonsets"),
        "/api/v1/namespaces".to_owned(),
    ];
    for plural in ["volumes", "replicas", "engines", "snapshots", "nodes"] {
        paths.push(format!("/apis/longhorn.io/v1beta2/namespaces/{STORAGE}/{plural}"));
    }
    for namespace in sim.list("namespaces") {
        let name = namespace["metadata"]["name"].as_str().unwrap();
        paths.push(format!("/api/v1/namespaces/{name}/pods"));
    }
    let rounds = async {
        let mut rounds = tokio::time::interval(Duration::from_secs(30));
        loop {
            rounds.tick().await;
            for path in &paths {
                let request = http::Request::get(path).body(Body::empty()).unwrap();
                let answer = client.send(request).await.unwrap();
                assert!(answer.status().is_success(), "{path}");
                answer.into_body().collect().await.unwrap();
            }
        }
    };
    tokio::select! {
        () = rounds => {}
        () = life(&sim) => {}
    }
    meter.row()
}

/// Three nodes, 300 pods, twenty machines with a volume of three replicas each.
async fn cluster() -> Sim {
    let sim = Sim::new(SimConfig { history: 100_000, ..SimConfig::default() });
    crowd::crowd(&sim, 3, APP_PODS);
    for set in ["engine-image", "longhorn-csi-plugin", "longhorn-manager"] {
        sim.add_daemon_set(STORAGE, set);
    }
    for (namespace, pods) in NAMESPACES {
        for at in 0..pods {
            sim.add_bare_pod(namespace, &format!("{namespace}-{at}"), &format!("edge-node-{:04}", at % 3));
        }
    }
    for at in 0..VOLUMES {
        let volume = format!("pvc-{at:04}");
        sim.add_claim(crowd::APPS, &format!("{at:04}-pvc-0"), &volume);
        custom(&sim, "kubevirt/virtualmachineinstances", crowd::APPS, &format!("machine-{at:04}"));
        custom(&sim, "longhorn/volumes", STORAGE, &volume);
        custom(&sim, "longhorn/engines", STORAGE, &format!("{volume}-e-0"));
        for part in 0..3 {
            custom(&sim, "longhorn/replicas", STORAGE, &format!("{volume}-r-{part}"));
            custom(&sim, "longhorn/snapshots", STORAGE, &format!("{volume}-s-{part}"));
        }
    }
    for at in 0..3 {
        custom(&sim, "longhorn/nodes", STORAGE, &format!("edge-node-{at:04}"));
    }
    let runs = |pods: &[Value]| pods.len() == 300 && pods.iter().all(|it| it["status"]["phase"] == "Running");
    sim.until("pods", runs).await;
    for resource in ["nodes", "pods", "persistentvolumeclaims", "apps/daemonsets"] {
        for object in sim.list(resource) {
            let name = |member: &str| object["metadata"][member].as_str().unwrap_or_default().to_owned();
            sim.edit(resource, &name("namespace"), &name("name"), |it| {
                it["metadata"]["managedFields"] = managed();
            });
        }
    }
    sim
}

fn custom(sim: &Sim, resource: &str, namespace: &str, name: &str) {
    let meta = json!({ "name": name, "namespace": namespace, "managedFields": managed() });
    sim.apply(resource, json!({ "metadata": meta, "spec": {}, "status": {} }));
}

fn managed() -> Value {
    let fields: Value = (0..MANAGED_BYTES / 20).map(|at| (format!("f:member-{at:04}"), json!({}))).collect();
    json!([{ "manager": "k3s", "fieldsV1": fields }])
}

/// Ten minutes: each node posts its status once a minute, a pod changes every five seconds, each volume and
/// its engine change once a minute, Longhorn's nodes every 30 s.
async fn life(sim: &Sim) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.tick().await;
    for second in 0..TEN_MINUTES.as_secs() {
        let now = |it: &mut Value| it["status"]["at"] = second.into();
        if second % 20 == 0 {
            let node = format!("edge-node-{:04}", second / 20 % 3);
            assert!(sim.edit("nodes", "", &node, now));
        }
        if second % 5 == 0 {
            let pod = format!("application-{:05}-0-abcde", second / 5 % 120);
            assert!(sim.edit("pods", crowd::APPS, &pod, now));
        }
        if second % 3 == 0 {
            let volume = format!("pvc-{:04}", second / 3 % 20);
            assert!(sim.edit("longhorn/volumes", STORAGE, &volume, now));
            assert!(sim.edit("longhorn/engines", STORAGE, &format!("{volume}-e-0"), now));
        }
        if second % 10 == 0 {
            let node = format!("edge-node-{:04}", second / 10 % 3);
            assert!(sim.edit("longhorn/nodes", STORAGE, &node, now));
        }
        seconds.tick().await;
    }
}
