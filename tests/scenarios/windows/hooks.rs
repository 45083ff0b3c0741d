//! Hooks: called in their order before a drain, before the reboot and after the boot, and undone without one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use topics::{DrainPhase, DrainStatus, NodeDrainProgress};

use scenarios::{Agent, World};

/// What the hooks of a test write down.
const SAID: &str = "said";

/// A hook of this stage which writes down that it was called, and then does this.
fn hook(world: &World, stage: &str, name: &str, script: &str) {
    let path = format!("etc/zedbox/hooks/{stage}.d/{name}");
    let said = world.bus.path(SAID);
    world.put(&path, &format!("#!/bin/sh\necho \"{stage} {name} $1\" >> {}\n{script}\n", said.display()));
    fs::set_permissions(world.bus.path(&path), fs::Permissions::from_mode(0o700)).unwrap();
}

async fn until_said(world: &World, lines: &[&str]) {
    let all = |text: &str| text.lines().collect::<Vec<_>>() == lines;
    world.until_file(SAID, &lines.join(", "), |text| text.is_some_and(all)).await;
}

pub(crate) async fn u9_hooks_come_before_the_drain_before_the_reboot_and_after_the_boot(world: &mut World) {
    hook(world, "before-drain", "10-a", "");
    // It fails once, with its words shown.
    let once = "test -e $ZEDBOX_HOOK_STATE/tried || { touch $ZEDBOX_HOOK_STATE/tried; echo 'no backup yet' >&2; exit 1; }";
    hook(world, "before-drain", "20-b", once);
    hook(world, "before-drain", "30-c.optional", "exit 1");
    hook(world, "before-reboot", "10-a", "");
    hook(world, "after-boot", "10-a", "");
    hook(world, "after-boot", "20-b", "");
    world.limits["zedkube"]["drain_pause_ms"] = 3_000.into();
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    // The boot before has left nothing: what comes after a boot comes after each.
    until_said(world, &["after-boot 20-b run", "after-boot 10-a run"]).await;
    fs::remove_file(world.bus.path(SAID)).unwrap();
    world.ask_reboot(7);
    let failed =
        |it: &NodeDrainProgress| it.phase == DrainPhase::RunningHooks && it.reason.contains("no backup yet");
    world.until("zedkube", "the words of the hook", |it| it.is_some_and(failed)).await;
    assert!(!world.cluster.cordoned().await, "no cordon before its hooks");
    world.recorded_count(1).await;
    until_said(
        world,
        &[
            "before-drain 10-a run",
            "before-drain 20-b run",
            "before-drain 20-b run",
            "before-drain 30-c.optional run",
            "before-reboot 10-a run",
        ],
    )
    .await;
    let shown: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    assert!(shown.hooks.iter().any(|it| it.contains("30-c.optional")), "{:?}", shown.hooks);
    fs::remove_file(world.bus.path(SAID)).unwrap();
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    world.cluster.until_schedulable().await;
    until_said(world, &["after-boot 20-b run", "after-boot 10-a run"]).await;
}

pub(crate) async fn u9_a_drain_that_is_withdrawn_while_zedkube_is_down_is_undone_after_its_start(
    world: &mut World,
) {
    hook(world, "before-drain", "10-a", "");
    hook(world, "before-drain", "20-b", "");
    world.begin_blocked().await;
    until_said(world, &["before-drain 10-a run", "before-drain 20-b run"]).await;
    world.kill(Agent::Zedkube).await;
    world.ask_reboot(6);
    world.until_file(scenarios::PENDING, "nothing pending", |text| text.is_none()).await;
    world.start(Agent::Zedkube);
    world.cluster.until_schedulable().await;
    until_said(
        world,
        &[
            "before-drain 10-a run",
            "before-drain 20-b run",
            "before-drain 20-b undo",
            "before-drain 10-a undo",
        ],
    )
    .await;
    assert_eq!(world.recorded(), []);
}
