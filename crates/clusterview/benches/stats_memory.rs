//! Resident memory of the statistics with 100 nodes and 1,000 pods:
//! `cargo bench -p clusterview --bench stats_memory`.
//!
//! The API server is a process of its own, over HTTP. The other process does nothing but the statistics: watches,
//! fold, two publications with their sockets. A pod has the size that pods on a node have, most of it managedFields.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for people, who see what went wrong"
)]

#[path = "../tests/stats/crowd.rs"]
mod crowd;
#[path = "../../pubsub/benches/two_processes/process.rs"]
mod process;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use agent::{Clock, Troubles, wire};
use clusterview::leader::Leadership;
use clusterview::stats;
use kubesim::{Sim, SimConfig};
use pubsub::{Change, TopicRoot};
use serde_json::json;
use tokio::sync::watch;
use topics::KubeClusterInfo;

const NODES: usize = 100;
const PODS: usize = 1000;
const MANAGED_BYTES: usize = 6000;
/// Publications to wait for: 30 s apart, as a pod changes each second.
const ROUNDS: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args_os().skip(1).filter(|it| it != "--bench");
    match (arguments.next(), arguments.next()) {
        (Some(role), Some(file)) if role == "--as-server" => serve(Path::new(&file)).await,
        _ => measure().await,
    }
}

async fn serve(file: &Path) {
    let sim = Sim::new(SimConfig::default());
    crowd::crowd(&sim, NODES, PODS);
    for resource in ["nodes", "pods"] {
        for object in sim.list(resource) {
            let name = |member: &str| object["metadata"][member].as_str().unwrap_or_default().to_owned();
            sim.edit(resource, &name("namespace"), &name("name"), |it| {
                it["metadata"]["managedFields"] = json!([{ "manager": "k3s", "fieldsV1": managed() }]);
            });
        }
    }
    let server = sim.serve().await.unwrap();
    std::fs::File::create(file).unwrap().write_all(server.kubeconfig().as_bytes()).unwrap();
    process::said("ready");
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let mut second = 0_u64;
    loop {
        seconds.tick().await;
        second += 1;
        let name = format!("application-{:05}-0-abcde", second % 1000);
        sim.edit("pods", crowd::APPS, &name, |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] = second.into();
        });
    }
}

fn managed() -> serde_json::Value {
    (0..MANAGED_BYTES / 20).map(|at| (format!("f:member-{at:04}"), json!({}))).collect()
}

async fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut server = process::OtherProcess::start(&[&"--as-server", &kubeconfig]);
    assert_eq!(server.line(), "ready");
    println!("before: {}", resident());
    let topic_root = TopicRoot::open(folder.path()).unwrap();
    let clock = Clock::new();
    let (_leading, leading) =
        watch::channel(Leadership { until: Some(clock.now() + Duration::from_hours(1)) });
    let (_configs, config) = watch::channel(Some(std::sync::Arc::default()));
    let troubles = Troubles::open(&topic_root, clock, "zedkube");
    let cluster = kubeapi::ApiClient::from_kubeconfig(&kubeconfig);
    let mut seen =
        topic_root.subscription(&wire::name::<KubeClusterInfo>("zedkube"), wire::codec::<KubeClusterInfo>());
    let rounds = async {
        let mut round = 0;
        while round < ROUNDS {
            let Change::Put { value, .. } = seen.next().await else { continue };
            let count = |length: Option<usize>| length.unwrap_or_default();
            let nodes = count(value.nodes.map(|it| it.len()));
            let pods = count(value.app_pods.map(|it| it.len()));
            round += 1;
            println!("publication {round}: {nodes} nodes, {pods} pods: {}", resident());
        }
    };
    tokio::select! {
        ended = stats::run(&troubles, cluster, clock, leading, config) => ended.unwrap(),
        () = rounds => {}
    }
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    #[expect(clippy::cast_precision_loss, reason = "memory of a process, in KiB")]
    let mib = |name: &str| process::number(&status, name) as f64 / 1024.0;
    format!(
        "{:.1} MiB resident, {:.1} MiB at its peak, {:.1} MiB of its own",
        mib("VmRSS:"),
        mib("VmHWM:"),
        mib("RssAnon:")
    )
}
