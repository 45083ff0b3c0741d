//! Etcd is restored from a copy of each phase of a turn while the node that has it goes down: nobody else goes before
//! that one is back, or is known to be off.

use kubesim::EtcdSnapshot;

use super::*;

/// Three nodes, of which one that loses its power looks Ready for 40 s.
async fn cluster() -> Sim {
    let sim = Sim::new(SimConfig { not_ready_after: Duration::from_secs(40), ..SimConfig::default() });
    for nth in 0..3 {
        sim.add_node(&format!("n{nth}"), &format!("uuid-{nth}"));
    }
    sleep(Duration::from_secs(60)).await;
    sim
}

/// Takes what a keeper says until it has its turn, or for `patience`; whether it has it.
async fn has_turn(told: &mut Reports, patience: Duration) -> bool {
    tokio::time::timeout(patience, until_held(told)).await.is_ok()
}

/// `n2` has its turn and is cordoned; the copies of etcd before that, in between and then, by name.
async fn down(sim: &Sim, begun: Instant, before: EtcdSnapshot) -> Vec<(&'static str, EtcdSnapshot)> {
    let mut tasks = JoinSet::new();
    let (asks, mut told) = keeper(sim, 2, begun, &mut tasks);
    asks.send(reboot()).unwrap();
    let held = until_held(&mut told).await;
    let granted = sim.snapshot();
    cordon(sim, 2, Some(held));
    confirmed(&asks, &mut told).await;
    let cordoned = sim.snapshot();
    assert_eq!(look(&asks, &mut told, 1).await, Ok(()));
    tasks.shutdown().await;
    sim.power("n2", false);
    vec![("before its turn", before), ("granted", granted), ("cordoned", cordoned)]
}

#[tokio::test(start_paused = true)]
async fn t6_after_a_restore_of_etcd_nobody_goes_beside_a_node_that_has_just_gone_down() {
    for phase in 0..3 {
        for knows in [true, false] {
            let sim = cluster().await;
            let begun = start();
            let mut tasks = JoinSet::new();
            // Who has watched the Lease remembers; who starts after the restore does not.
            let mut early = knows.then(|| keeper(&sim, 1, begun, &mut tasks));
            if let Some((asks, _)) = &early {
                asks.send(Ask::Want(None)).unwrap();
            }
            sleep(Duration::from_secs(5)).await;
            let copies = down(&sim, begun, sim.snapshot()).await;
            let (what, copy) = &copies[phase];
            sleep(Duration::from_secs(1)).await;
            sim.restore(copy);
            let (asks, mut told) = early.take().unwrap_or_else(|| keeper(&sim, 1, begun, &mut tasks));
            asks.send(reboot()).unwrap();
            let goes = has_turn(&mut told, Duration::from_mins(30)).await;
            assert!(!goes, "{what}, {knows}: two nodes are down");
            // It is back, and its agent with it.
            sim.power("n2", true);
            sim.edit("nodes", "", "n2", |node| {
                node["spec"]["unschedulable"] = false.into();
                node["metadata"]["annotations"].as_object_mut().unwrap().remove("pillar-rs/cordon-owner");
            });
            let (back, _told) = keeper(&sim, 2, begun, &mut tasks);
            back.send(Ask::Want(None)).unwrap();
            back.send(Ask::Gate(true)).unwrap();
            assert!(has_turn(&mut told, Duration::from_mins(15)).await, "{what}, {knows}: it waits for ever");
        }
    }
}
