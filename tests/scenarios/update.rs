//! An OS image: written, drained for, switched to, booted; alone and together with a reboot.

use topics::{BaseOsStatus, DrainStatus, NodeDrainProgress, Requester};

use scenarios::{World, bring_image, reboot_config, with_image};

const VERSION: &str = "14.5.1-lts-kubevirt-amd64";

pub(crate) async fn an_image_is_switched_to_only_after_its_own_drain_and_then_booted(world: &mut World) {
    world.cluster.block().await;
    crate::starts(world).await;
    bring_image(world);
    world.config(&with_image(reboot_config(6)));
    let status = world.status(DrainStatus::Cordoned).await;
    assert_eq!(status.requested_by, Requester::Update);
    assert_eq!(world.recorded(), []);
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    let recorded = world.recorded();
    assert!(recorded[0].reason.contains("baseos-update"), "{recorded:?}");
    world.reboot().await;
    world.start_all();
    world
        .has::<BaseOsStatus>("baseosmgr", "the new image to run", |it| {
            it.activated && it.base_os_version == VERSION
        })
        .await;
    world.cluster.until_schedulable().await;
    assert_eq!(world.recorded().len(), 1);
}

pub(crate) async fn p5_two_requesters_get_one_drain_and_an_answer_each(world: &mut World) {
    world.cluster.block().await;
    crate::starts(world).await;
    bring_image(world);
    world.config(&with_image(reboot_config(7)));
    let both = |it: &NodeDrainProgress, status: DrainStatus| {
        let of = |by| it.answers.iter().any(|answer| answer.requested_by == by && answer.status == status);
        of(Requester::DeviceOp) && of(Requester::Update)
    };
    world.progress("both requests to be served", |it| both(it, DrainStatus::Cordoned)).await;
    world.cluster.unblock().await;
    world.progress("an answer for each", |it| both(it, DrainStatus::Complete)).await;
    world.recorded_count(1).await;
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    crate::comes_back(world, 7).await;
    assert_eq!(world.recorded().len(), 1);
}
