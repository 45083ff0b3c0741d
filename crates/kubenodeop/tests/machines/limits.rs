//! KubeVirt's limits as they are set in the cluster, in plan and drain.

use super::*;

#[tokio::test(start_paused = true)]
async fn d12_the_plan_and_the_drain_take_kubevirts_live_limits_and_call_the_estimate_one() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        sim.edit("kubevirt/kubevirts", "kubevirt", "kubevirt", |it| {
            it["spec"]["configuration"]["migrations"] =
                json!({ "bandwidthPerMigration": "64Mi", "parallelOutboundMigrationsPerNode": 1 });
        });
        let mut spec = migratable();
        spec["domain"]["memory"]["guest"] = "2Gi".into();
        sim.add_machine_on("shop", "db", "Always", "n1", &spec);
        sim.add_machine_on("shop", "web", "Always", "n1", &spec);
        sim.script_migrations("shop", "db", "hang");
        sim.script_migrations("shop", "web", "hang");
        sim.edit(GUESTS, "shop", "web", |it| it["metadata"]["labels"]["size"] = "big".into());
        sim.apply(
            "migrations/migrationpolicies",
            json!({ "metadata": { "name": "slow" }, "spec": { "bandwidthPerMigration": "32Mi", "allowAutoConverge": true,
                "selectors": { "virtualMachineInstanceSelector": { "size": "big" } } } }),
        );
    })
    .await;
    let plan = planned(&cluster, AttemptRules::default().machines).await;
    let fate = |name: &str| plan.machines.iter().find(|it| it.name == name).unwrap().fate.clone();
    assert!(fate("shop/db").contains("estimated 32 s for 2048 MiB at 64 MiB/s"), "{}", fate("shop/db"));
    let web = fate("shop/web");
    assert!(
        web.contains("auto-converge; estimated 64 s") && web.contains("limits of MigrationPolicy slow"),
        "{web}"
    );
    let note = "virtual machines to migrate: 2, at most 1 at the same time: estimated 96 s, by memory, disks and bandwidth";
    assert!(plan.notes.iter().any(|it| it == note), "{:?}", plan.notes);
    let mut attempt = Attempt::start(&cluster);
    let moving = |it: &Progress| it.machines.iter().any(|it| it.reason.contains("phase Running"));
    let seen = attempt.until(moving).await;
    let began = step::Mono::of_ms(seen.marks.attempt_ms).unwrap();
    let left = seen.estimate.unwrap().since(began).as_secs();
    assert!((96..=110).contains(&left), "{left} s: 96 s in all, one after the other");
    let running = seen.machines.iter().find(|it| it.reason.contains("phase Running")).unwrap();
    assert!(running.reason.contains("limits of its migration"), "{running:?}");
    // Its own limits hold, and no longer those of the settings.
    let name = running.name.trim_start_matches("shop/").to_owned();
    sim.edit(GUESTS, "shop", &name, |it| {
        it["status"]["migrationState"]["migrationConfiguration"]["bandwidthPerMigration"] = "1Mi".into();
    });
    let slow = attempt.until(|it| it.machines.iter().any(|it| it.reason.contains("at 1 MiB/s"))).await;
    assert!(slow.estimate.unwrap() > seen.estimate.unwrap());
    sim.script_migrations("shop", "db", "succeed");
    sim.script_migrations("shop", "web", "succeed");
    attempt.drained().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_of_the_bandwidth_there_is_no_estimate_and_it_is_said() {
    let (sim, cluster) = cluster("v1.7.3", |sim| {
        let mut spec = migratable();
        spec["domain"]["memory"]["guest"] = "1Gi".into();
        sim.add_machine_on("shop", "db", "Always", "n1", &spec);
        sim.script_migrations("shop", "db", "hang");
        sim.edit(GUESTS, "shop", "db", |it| it["metadata"]["annotations"]["kubesim/block"] = "yes".into());
    })
    .await;
    sim.until(GUESTS, |all| all[0]["status"]["migrationMethod"] == "BlockMigration").await;
    let plan = planned(&cluster, AttemptRules::default().machines).await;
    assert!(
        plan.notes.iter().any(|it| it.contains("no estimate, as their bandwidth has no limit")),
        "{plan:?}"
    );
    assert!(plan.machines[0].fate.contains("block migration, pre-copy"), "{plan:?}");
    let mut attempt = Attempt::start(&cluster);
    let seen = attempt.until(|it| it.machines.iter().any(|it| it.reason.contains("phase Running"))).await;
    assert_eq!(seen.estimate, None);
}
