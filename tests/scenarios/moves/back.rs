//! Machines that do not come back with their node: named, with their start and a command.

use scenarios::within_still;

use super::*;

/// After a power cut one guest hangs while starting; another one finds no node.
async fn hangs() {
    let mut world = world(SimConfig::default(), "v1.7.3").await;
    let (sim, clock) = (world.cluster.sim().clone(), agent::Clock::new());
    for name in ["db", "fine"] {
        sim.add_machine_on("shop", name, "Always", NODE, &migratable());
    }
    up(&sim, 2).await;
    crate::starts(&mut world).await;
    world.reboot().await;
    sim.add_machine_on("shop", "lost", "Always", "", &migratable());
    let phase = |name: &str, phase: &str| {
        sim.edit(GUESTS, "shop", name, |it| it["status"]["phase"] = phase.into());
    };
    sim.edit(GUESTS, "shop", "lost", |it| it["spec"]["nodeSelector"] = json!({ "rack": "none" }));
    phase("db", "Scheduling");
    phase("lost", "Scheduling");
    crate::starts(&mut world).await;
    world.cluster.until_schedulable().await;
    let began = clock.now();
    let shown = world
        .progress("machines that are not up", |it| it.reason.contains("virtual machines are not up: "))
        .await;
    let took = clock.now().since(began).as_secs();
    assert!((270..=330).contains(&took), "{took} s");
    let says = |words: &str| assert!(shown.reason.contains(words), "{shown:?}");
    says("shop/db (not up since ");
    says("phase Scheduling");
    says("shop/lost (not up since ");
    says("no node has taken it");
    assert!(!shown.reason.contains("shop/fine"), "{shown:?}");
    assert!(shown.next_step.starts_with("`kubectl -n shop describe vmi db`"), "{shown:?}");
    assert!(page(&world).await.contains(&shown.reason));
    phase("db", "Running");
    phase("lost", "Running");
    world.progress("no more machines that are not up", |it| it.reason == "no drain requested").await;
    world.kill_all().await;
}

#[test]
fn machines_that_are_not_up_five_minutes_after_a_power_cut_are_named_until_they_are() {
    within_still(Box::pin(hangs()));
}
