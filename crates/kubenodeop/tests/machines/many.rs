//! Twenty machines of which five may move at once: no slower than KubeVirt's own places allow.

use std::time::Duration;

use super::*;

async fn twenty() -> (Sim, Cluster) {
    cluster("v1.7.3", |sim| {
        sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
            it["spec"]["configuration"]["migrations"] =
                json!({ "parallelMigrationsPerCluster": 5, "parallelOutboundMigrationsPerNode": 5 });
        });
        for nth in 0..20 {
            sim.add_machine_on("shop", &format!("vm{nth}"), "Always", "n1", &migratable());
        }
    })
    .await
}

/// All launchers evicted at once, and nothing else: KubeVirt's own limits are what remains.
async fn floor() -> Duration {
    let (sim, cluster) = twenty().await;
    let now = clock();
    let pods = kubenodeop::pods::list(&cluster, &n1()).await.unwrap();
    for pod in pods.iter().filter(|it| it.pod.name.starts_with("virt-launcher")) {
        kubenodeop::calls::evict::evict(&cluster, &pod.pod, false).await;
    }
    let left = |it: &Value| it["status"]["nodeName"] == "n1";
    sim.until(GUESTS, |all| !all.iter().any(left)).await;
    now().since_start()
}

#[tokio::test(start_paused = true)]
async fn twenty_machines_of_which_five_may_move_at_once_take_at_most_a_tenth_longer_than_kubevirt_needs() {
    let floor = floor().await;
    let (sim, cluster) = twenty().await;
    let now = clock();
    let mut most = 0;
    let mut attempt = Attempt::start(&cluster);
    loop {
        tokio::select! {
            outcome = &mut attempt.future => {
                assert!(matches!(outcome, Outcome::Drained { .. }), "{outcome:?}");
                break;
            }
            changed = attempt.progress.changed() => {
                changed.unwrap();
                let running = |it: &&Value| matches!(it["status"]["phase"].as_str(),
                    Some("Scheduling" | "Scheduled" | "PreparingTarget" | "TargetReady" | "Running"));
                most = most.max(sim.list(MIGRATIONS).iter().filter(running).count());
            }
        }
    }
    let ours = now().since_start();
    // What proves the node empty comes after the last machine in any drain.
    let proof = Rules::default().proof_gap;
    assert_eq!((sim.list(MIGRATIONS).len(), most), (20, 5));
    assert!(
        (ours.saturating_sub(proof)).as_secs_f64() <= floor.as_secs_f64() * 1.1,
        "{ours:?} for the drain, {floor:?} for the floor"
    );
    let requests = sim.faults().seen().len();
    let told = format!("20 machines: drain {ours:?}, floor {floor:?}, {requests} requests in all\n");
    std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).unwrap();
}
