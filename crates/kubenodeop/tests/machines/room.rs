//! Where a machine can go: what the pods on the other nodes leave of them.

use super::*;

/// n2 and n3 of 4 GiB, with a pod of 3 GiB on each, and a machine of 2 GiB on n1.
async fn full(spec: Value) -> (Sim, ApiClient) {
    cluster("v1.7.3", |sim| {
        for node in ["n2", "n3"] {
            sim.edit("nodes", "", node, |it| {
                it["status"]["allocatable"] = json!({ "cpu": "8", "memory": "4Gi", "pods": "110" });
            });
            sim.add_bare_pod("shop", &format!("big-{node}"), node);
            sim.edit("pods", "shop", &format!("big-{node}"), |it| {
                it["metadata"]["labels"] = json!({ "app": "big" });
                it["spec"]["containers"] =
                    json!([{ "name": "c", "resources": { "requests": { "memory": "3Gi" } } }]);
            });
        }
        sim.add_machine_on("shop", "db", "Always", "n1", &spec);
    })
    .await
}

fn of(gibibytes: &str) -> Value {
    json!({ "evictionStrategy": "LiveMigrate", "domain": { "memory": { "guest": gibibytes } } })
}

fn lists_of_all_pods(sim: &Sim, after: usize) -> usize {
    let seen = sim.faults().requests();
    let all = seen.iter().skip(after).filter(|it| it.uri.starts_with("/api/v1/pods?"));
    all.filter(|it| !it.uri.contains("Selector") && !it.uri.contains("watch")).count()
}

#[tokio::test(start_paused = true)]
async fn d12_a_machine_is_not_asked_to_migrate_where_no_peer_has_room_and_is_once_one_has() {
    let (sim, cluster) = full(of("2Gi")).await;
    let mut attempt = Attempt::by(&cluster, by(MachinePolicy::MigrateOrHold));
    let seen = attempt.until(|it| !it.blockers.is_empty()).await;
    let reason = &seen.blockers[0].reason;
    assert!(
        reason.contains("node n2 has 1073741824 bytes of memory free, 2147483648 are requested"),
        "{reason}"
    );
    let plan = planned(&cluster, MachinePolicy::MigrateOrHold).await;
    assert_eq!(&plan.blockers[0].reason, reason, "the plan says the same");
    assert_eq!((evictions(&sim).len(), sim.list(MIGRATIONS).len()), (0, 0));
    sim.edit("pods", "shop", "big-n3", |it| it["status"]["phase"] = "Succeeded".into());
    attempt.drained().await;
    assert_eq!((node_of(&sim, "db").as_str(), sim.list(MIGRATIONS).len()), ("n3", 1));
}

#[tokio::test(start_paused = true)]
async fn d12_a_machine_migrates_once_a_pod_has_ended_that_took_the_room_and_is_shut_down_only_where_it_stays()
{
    for ends in [true, false] {
        let (sim, cluster) = full(of("2Gi")).await;
        let mut attempt = Attempt::start(&cluster);
        attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::NoOtherNode)).await;
        if ends {
            sim.edit("pods", "shop", "big-n3", |it| it["status"]["phase"] = "Succeeded".into());
        }
        attempt.drained().await;
        assert_eq!(sim.list(MIGRATIONS).len(), usize::from(ends));
        let strategy =
            sim.get("kubevirt/virtualmachines", "shop", "db").unwrap()["spec"]["runStrategy"].clone();
        assert_eq!(strategy, if ends { "Always" } else { "Halted" });
    }
}

#[tokio::test(start_paused = true)]
async fn d12_required_affinity_between_pods_and_the_count_of_pods_of_a_peer_hold_for_a_target() {
    let mut spec = of("1Gi");
    let far = json!([{ "labelSelector": { "matchLabels": { "app": "big" } }, 
        "topologyKey": "kubernetes.io/hostname" }]);
    spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = far;
    let (sim, cluster) = full(spec).await;
    for node in ["n1", "n2", "n3"] {
        sim.edit("nodes", "", node, |it| it["metadata"]["labels"]["kubernetes.io/hostname"] = node.into());
    }
    sim.edit("pods", "shop", "big-n3", |it| it["metadata"]["labels"] = json!({}));
    sim.edit("nodes", "", "n3", |it| it["status"]["allocatable"]["pods"] = "1".into());
    let reason = Attempt::by(&cluster, by(MachinePolicy::Fail)).failed().await.reason;
    assert!(reason.contains("node n2 runs pod shop/big-n2, with which it has anti-affinity"), "{reason}");
    assert!(reason.contains("node n3 has its 1 pod already"), "{reason}");
    sim.edit("nodes", "", "n3", |it| it["status"]["allocatable"]["pods"] = "110".into());
    Attempt::by(&cluster, by(MachinePolicy::Fail)).drained().await;
    assert_eq!(node_of(&sim, "db"), "n3");
}

#[tokio::test(start_paused = true)]
async fn all_pods_are_listed_once_for_a_forecast_and_not_where_no_machine_needs_a_target() {
    let (sim, cluster) = full(of("1Gi")).await;
    let before = sim.faults().requests().len();
    Attempt::start(&cluster).drained().await;
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
    let lists = lists_of_all_pods(&sim, before);
    assert!(
        (1..=2).contains(&lists),
        "{lists}: once when it is marked, and once when it is asked at the most"
    );
    let (sim, cluster) = full(of("1Gi")).await;
    let before = sim.faults().requests().len();
    Attempt::by(&cluster, by(MachinePolicy::Shutdown)).drained().await;
    assert_eq!(lists_of_all_pods(&sim, before), 0);
}

#[tokio::test(start_paused = true)]
async fn d16_room_that_becomes_free_on_a_peer_wakes_the_next_attempt() {
    let (sim, cluster) = full(of("2Gi")).await;
    let watched = Attempt::by(&cluster, by(MachinePolicy::Fail)).failed().await.watched;
    let ends = || {
        sim.edit("pods", "shop", "big-n3", |it| it["status"]["phase"] = "Succeeded".into());
    };
    let what = woken(&cluster, &watched, 200, ends, 2).await;
    assert!(what.contains("virtual machine shop/db has changed: is asked to migrate"), "{what}");
}

/// n2 has room for one of two machines that leave together, and n3 for none.
#[tokio::test(start_paused = true)]
async fn d12_o5_machines_that_leave_together_are_set_off_against_each_other() {
    let (sim, cluster) = full(of("2Gi")).await;
    sim.edit("pods", "shop", "big-n2", |it| it["status"]["phase"] = "Succeeded".into());
    sim.add_machine_on("shop", "large", "Always", "n1", &of("3Gi"));
    sim.until(GUESTS, |all| {
        all.len() == 2 && all.iter().all(|it| runs(it) && !it["status"]["conditions"].is_null())
    })
    .await;
    let plan = planned(&cluster, MachinePolicy::MigrateOrHold).await;
    let foretold: Vec<(String, &str)> =
        plan.blockers.iter().map(|it| (it.pod.clone(), it.code.as_str())).collect();
    assert_eq!(foretold, [("virtual machine shop/db".to_owned(), "cannot-move")]);
    let mut attempt = Attempt::by(&cluster, by(MachinePolicy::MigrateOrHold));
    let waits = |it: &Progress| {
        it.machines
            .iter()
            .any(|it| it.name == "shop/db" && it.reason.starts_with("waits for those that leave before it"))
    };
    let seen = attempt.until(waits).await;
    assert_eq!(seen.blockers, [], "the other one may take less than it asks for");
    let left = |it: &Progress| it.machines.iter().any(|it| it.name == "shop/large" && it.state == "gone");
    let seen = attempt.until(|it| left(it) && !it.blockers.is_empty()).await;
    assert_eq!((seen.blockers.len(), seen.blockers[0].code.as_str()), (1, "cannot-move"));
    assert_eq!((node_of(&sim, "large").as_str(), node_of(&sim, "db").as_str()), ("n2", "n1"));
    assert_eq!(sim.list(MIGRATIONS).len(), 1, "the other one was never asked");
}
