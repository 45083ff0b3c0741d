//! Machines whose volumes are Longhorn's: rebuilds, IO errors, pauses that come and go.

use super::*;

const SPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const ENGINES: &str = "longhorn/engines";

/// A machine on n1 with a shared volume of Longhorn that has its copies on n1 and n2.
async fn with_disk() -> (Sim, ApiClient) {
    with_copies(&["n1", "n2"]).await
}

async fn with_copies(on: &[&str]) -> (Sim, ApiClient) {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_longhorn("always-allow");
        sim.add_longhorn_volume("shop", "data", "pvc-1", on);
        for (kind, space, name) in
            [("persistentvolumeclaims", "shop", "data"), ("persistentvolumes", "", "pvc-1")]
        {
            sim.edit(kind, space, name, |it| it["spec"]["accessModes"] = json!(["ReadWriteMany"]));
        }
        let mut spec = migratable();
        spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
        sim.add_machine_on("shop", "db", "Always", "n1", &spec);
    })
    .await;
    sim.until(VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    (sim, cluster)
}

/// So many copies are wanted of the volume, and they are made so.
fn rebuild(sim: &Sim, how: &'static str, wanted: u64) {
    sim.edit(VOLUMES, SPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/rebuild"] = how.into();
        it["spec"]["numberOfReplicas"] = wanted.into();
    });
}

/// A third copy is being made, and never comes to its end.
async fn hangs(sim: &Sim) {
    rebuild(sim, "hangs", 3);
    sim.until(ENGINES, |all| all[0]["status"]["replicaModeMap"].to_string().contains("WO")).await;
}

/// The guard of last copies asks for volumes also where there is no replica.
fn asked_for_longhorn(sim: &Sim, after: usize) -> Vec<String> {
    let seen = sim.faults().requests();
    let all = seen.iter().skip(after).map(|it| path(it).to_owned());
    all.filter(|it| it.ends_with("/engines")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_the_rebuild_of_its_volume_and_then_moves_once() {
    let (sim, cluster) = with_disk().await;
    hangs(&sim).await;
    let mut attempt = Attempt::start(&cluster);
    let seen = attempt.until(|it| !it.blockers.is_empty()).await;
    let blocker = &seen.blockers[0];
    assert_eq!((blocker.code.as_str(), seen.machines[0].state.as_str()), ("volume-rebuilding", "waiting"));
    assert!(blocker.reason.contains("volume shop/data (pvc-1) is degraded and being rebuilt"), "{blocker:?}");
    assert!(blocker.next_step.contains("pillar-rs/drain-rebuilding=migrate"), "{}", blocker.next_step);
    assert_eq!((evictions(&sim).len(), sim.list(MIGRATIONS).len()), (0, 0));
    rebuild(&sim, "", 3);
    attempt.until(|it| it.machines.iter().any(|it| it.state == "moving")).await;
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn t3_a_machine_is_shut_down_once_its_volume_has_another_copy_or_the_limit_of_that_is_over() {
    for after in [None, Some(Duration::from_secs(60))] {
        let (sim, cluster) = with_copies(&["n1"]).await;
        let rebuild = |how: &'static str| {
            sim.edit(VOLUMES, SPACE, "pvc-1", |it| {
                it["metadata"]["annotations"]["kubesim/rebuild"] = how.into();
            });
        };
        rebuild("hangs");
        let last_copy = Limit { after, then: LimitAction::GetPast };
        let rules = AttemptRules { machines: MachinePolicy::Shutdown, last_copy, ..AttemptRules::default() };
        let now = clock();
        let mut attempt = Attempt::by(&cluster, rules);
        let seen =
            attempt.until(|it| it.storage.iter().any(|it| it.reason.contains("is being rebuilt"))).await;
        assert_eq!((seen.blockers[0].code.as_str(), seen.machines[0].state.as_str()), ("copying", "held"));
        assert_eq!(sim.list(VOLUMES)[0]["spec"]["numberOfReplicas"], 2);
        let still = tokio::time::timeout(Duration::from_secs(50), &mut attempt.future).await.is_err();
        assert!(still && runs(&sim.get(GUESTS, "shop", "db").unwrap()));
        assert_eq!(sim.get(MACHINES, "shop", "db").unwrap()["spec"]["runStrategy"], "Always");
        if after.is_none() {
            rebuild("");
        }
        let left = attempt.left().await;
        let named =
            left.iter().any(|it| it.contains("its last healthy copy is here after 60 s, the limit for it"));
        assert_eq!(named, after.is_some(), "{left:?}");
        assert!(
            after.is_none() || now() < step::Mono::from_start(Duration::from_secs(90)),
            "the limit ran twice"
        );
        assert_eq!(sim.get(MACHINES, "shop", "db").unwrap()["spec"]["runStrategy"], "Halted");
    }
}

#[tokio::test(start_paused = true)]
async fn d16_the_end_of_the_rebuild_wakes_the_next_attempt() {
    let (sim, cluster) = with_disk().await;
    hangs(&sim).await;
    let rules = AttemptRules { attempt: Duration::from_secs(60), ..AttemptRules::default() };
    let watched = Attempt::by(&cluster, rules).failed().await.watched;
    let what = woken(&cluster, &watched, 200, || rebuild(&sim, "", 3), 300).await;
    sim.until(VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    assert!(what.contains("virtual machine shop/db has changed: is asked to migrate"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_annotation_says_so_moves_while_its_volume_is_rebuilt() {
    let (sim, cluster) = with_disk().await;
    hangs(&sim).await;
    sim.edit(MACHINES, "shop", "db", |it| {
        it["metadata"]["annotations"]["pillar-rs/drain-rebuilding"] = "migrate".into();
    });
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.machines.iter().any(|it| it.state == "moving")).await;
    assert_eq!(sim.list(MIGRATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_an_io_error_has_paused_is_named_as_such_with_its_volume() {
    let (sim, cluster) = with_disk().await;
    sim.edit(GUESTS, "shop", "db", |it| {
        let paused = json!({ "type": "Paused", "status": "True", "reason": "PausedIOError",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        it["status"]["conditions"].as_array_mut().unwrap().push(paused);
    });
    let mut attempt = Attempt::by(&cluster, by(MachinePolicy::MigrateOrHold));
    let seen = attempt.until(|it| !it.blockers.is_empty()).await;
    let reason = &seen.blockers[0].reason;
    let said = "cannot move: PausedIOError: an IO error of a disk has paused it; volume shop/data (pvc-1) is healthy";
    assert!(reason.contains(said) && reason.contains("discard"), "{reason}");
    assert_eq!(seen.blockers[0].code, BlockCode::CannotMove);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_paused_and_resumed_again_and_again_stays_although_kubevirt_would_move_it() {
    let (sim, cluster) = with_disk().await;
    sim.script_migrations("shop", "db", "hang");
    let mut attempt = Attempt::by(&cluster, by(MachinePolicy::MigrateOrHold));
    attempt.until(|it| it.machines.iter().any(|it| it.reason.contains("phase Running"))).await;
    for nth in 0..4 {
        sim.edit(GUESTS, "shop", "db", |it| {
            let all = it["status"]["conditions"].as_array_mut().unwrap();
            all.retain(|it| it["type"] != "Paused");
            if nth % 2 == 0 {
                all.push(json!({ "type": "Paused", "status": "True", "reason": "PausedIOError",
                    "lastTransitionTime": format!("2026-01-01T00:00:0{nth}Z") }));
            }
        });
        tokio::select! {
            outcome = &mut attempt.future => panic!("{outcome:?}"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    let seen = attempt.until(|it| it.machines.iter().any(|it| it.state == "held")).await;
    let reason = &seen.blockers[0].reason;
    assert!(
        reason.contains("paused and resumed 4 times") && reason.contains("volume shop/data (pvc-1) is"),
        "{reason}"
    );
    assert_eq!((node_of(&sim, "db").as_str(), launchers_on_n1(&sim)), ("n1", 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_longhorn_is_read_for_a_machine_without_a_volume_of_it() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.add_longhorn("always-allow");
        sim.add_machine_on("shop", "db", "Always", "n1", &migratable());
        sim.script_migrations("shop", "db", "hang");
    })
    .await;
    let before = sim.faults().requests().len();
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.machines.iter().any(|it| it.state == "moving")).await;
    assert_eq!(asked_for_longhorn(&sim, before), [""; 0]);
    let (sim, cluster) = with_disk().await;
    sim.script_migrations("shop", "db", "hang");
    let before = sim.faults().requests().len();
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.machines.iter().any(|it| it.state == "moving")).await;
    assert!(!asked_for_longhorn(&sim, before).is_empty());
}
