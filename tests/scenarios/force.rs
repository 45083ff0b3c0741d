//! Statuses forced by a person with a shell.

use topics::DrainStatus;

use scenarios::World;

const FORCE: &str = "persist/kube-status/force-NodeDrainStatus-global.json";

pub(crate) async fn a_forced_complete_releases_the_waiting_reboot_and_is_used_up(world: &mut World) {
    world.begin_blocked().await;
    world.put(FORCE, r#"{"Status":9,"RequestedBy":2}"#);
    world.recorded_count(1).await;
    world.until_said("WITHOUT A PROVED DRAIN: reboot goes ahead, a person has forced it").await;
    world.until_file(FORCE, "the force file to be used up", |text| text.is_none()).await;
    assert_eq!(world.recorded().len(), 1);
}

pub(crate) async fn a_forced_complete_for_the_update_does_not_release_the_reboot(world: &mut World) {
    world.begin_blocked().await;
    world.put(FORCE, r#"{"Status":9,"RequestedBy":3}"#);
    world
        .progress("the force file to be seen", |it| {
            it.next_step.contains("force") || it.reason.contains("force")
        })
        .await;
    assert_eq!(world.recorded(), []);
    assert!(world.cluster.cordoned().await);
}

pub(crate) async fn a_refused_force_file_changes_nothing_and_is_explained(world: &mut World) {
    world.begin_blocked().await;
    world.put(FORCE, "{}");
    world
        .progress("the refusal to be explained", |it| {
            it.next_step.contains("force") || it.reason.contains("force")
        })
        .await;
    assert_eq!(world.recorded(), []);
    assert_eq!(world.text(FORCE).as_deref(), Some("{}"));
}

pub(crate) async fn a_forced_not_supported_lets_the_reboot_go_ahead(world: &mut World) {
    world.cluster.block().await;
    crate::starts(world).await;
    world.put(FORCE, r#"{"Status":1,"RequestedBy":1}"#);
    world.status(DrainStatus::NotSupported).await;
    world.ask_reboot(7);
    world.recorded_count(1).await;
    assert_eq!(world.cluster.evictions(), 0);
}
