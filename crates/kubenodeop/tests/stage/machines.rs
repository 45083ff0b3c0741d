//! Twenty machines on n1 of which five may move at once: what the drain takes, and what KubeVirt's own places allow. On a
//! paused clock.

use std::time::Duration;

use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, Progress, drain, node};
use kubesim::Sim;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::order::{DEVICE, clock, n1, order, owner};

const GUESTS: &str = "kubevirt/virtualmachineinstances";
const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";

pub(crate) struct Ours {
    pub(crate) took: Duration,
    /// Migrations in all, and the most that ran at the same time.
    pub(crate) migrations: (usize, usize),
    pub(crate) requests: usize,
}

async fn twenty() -> Result<(Sim, ApiClient), kubeapi::Error> {
    let sim = Sim::of_nodes(3);
    sim.add_kubevirt("v1.7.3");
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    sim.until("nodes", |all| all.iter().all(schedulable)).await;
    sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
        it["spec"]["configuration"]["migrations"] =
            json!({ "parallelMigrationsPerCluster": 5, "parallelOutboundMigrationsPerNode": 5 });
    });
    for nth in 0..20 {
        let template = json!({ "evictionStrategy": "LiveMigrate" });
        sim.add_machine_on("shop", &format!("vm{nth}"), "Always", "n1", &template);
    }
    let runs = |it: &Value| it["status"]["phase"] == "Running" && !it["status"]["conditions"].is_null();
    sim.until(GUESTS, |all| all.len() == 20 && all.iter().all(runs)).await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    node::cordon(&cluster, &n1(), DEVICE, &owner()).await?;
    Ok((sim, cluster))
}

/// All launchers evicted at once, and nothing else: KubeVirt's own limits are what remains.
pub(crate) async fn floor() -> Result<Duration, kubeapi::Error> {
    let (sim, cluster) = twenty().await?;
    let now = clock();
    for pod in kubenodeop::pods::list(&cluster, &n1()).await? {
        if pod.pod.name.starts_with("virt-launcher") {
            kubenodeop::calls::remove::evict(&cluster, &pod.pod, false).await;
        }
    }
    sim.until(GUESTS, |all| !all.iter().any(|it| it["status"]["nodeName"] == "n1")).await;
    Ok(now().since_start())
}

/// The drain, with the proof that the node is empty.
pub(crate) async fn ours() -> Result<Ours, kubeapi::Error> {
    let (sim, cluster) = twenty().await?;
    let (now, before) = (clock(), sim.faults().requests().len());
    let (sender, mut progress) = watch::channel(Progress::default());
    let order = order(AttemptRules::default());
    let attempt = drain(&cluster, &order, clock(), &sender);
    tokio::pin!(attempt);
    let mut most = 0;
    loop {
        tokio::select! {
            outcome = &mut attempt => {
                assert!(outcome.is_ok(), "{outcome:?}");
                break;
            }
            Ok(()) = progress.changed() => {
                let running = |it: &&Value| matches!(it["status"]["phase"].as_str(),
                    Some("Scheduling" | "Scheduled" | "PreparingTarget" | "TargetReady" | "Running"));
                most = most.max(sim.list(MIGRATIONS).iter().filter(running).count());
            }
        }
    }
    let took = now().since_start();
    let requests = sim.faults().requests().len() - before;
    Ok(Ours { took, migrations: (sim.list(MIGRATIONS).len(), most), requests })
}
