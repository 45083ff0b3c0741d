//! Hooks before a reboot: real programs, and a loop that goes round while they run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use topics::AgentTrouble;

use super::*;

/// A device about to reboot, with this hook.
fn rebooting(script: &str, limits: Limits) -> World {
    let mut world = World::new();
    world.limits = limits;
    let path = "etc/zedbox/hooks/before-reboot.d/10-a";
    world.write(path, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(world.topic_root.path(path), fs::Permissions::from_mode(0o700)).unwrap();
    world.answers(DrainStatus::Complete);
    world.start();
    world.command_reboot();
    world
}

#[tokio::test]
async fn u9_a_hook_runs_before_the_device_is_asked_and_is_called_once() {
    let said = tempfile::NamedTempFile::new().unwrap();
    let script =
        format!("echo \"$1 $ZEDBOX_HOOK_OPERATION $ZEDBOX_HOOK_STAGE\" >> {}", said.path().display());
    let world = rebooting(&script, brisk());
    assert_eq!(world.until_recorded().await.len(), 1);
    assert_eq!(fs::read_to_string(said.path()).unwrap(), "run reboot before-reboot\n");
}

#[tokio::test]
async fn u9_a_hook_that_hangs_is_ended_shown_and_waited_for_no_longer_while_the_loop_goes_round() {
    let limits = Limits { hook_limit_ms: 1_000, hooks_limit_ms: 4_000, ..brisk() };
    let world = rebooting("echo starts; sleep 600", limits);
    let shown = |text: &str| {
        let all = go_json::from_slice::<AgentTrouble>(text.as_bytes()).unwrap().troubles;
        all.iter()
            .any(|it| it.what == "hooks before the reboot" && it.error.contains("did not end within 1 s"))
    };
    world.until("run/nodeagent/AgentTrouble/global.json", shown).await;
    assert_eq!(world.recorded(), [], "it is blocking");
    // The loop touches this while the hook is waited for.
    fs::remove_file(world.topic_root.path(TOUCH)).unwrap();
    world.until_recorded().await;
    let log = world.text(agent::reasons::LOG).unwrap();
    assert!(log.contains("hooks before the reboot were waited for no longer after 4 s"), "{log}");
}

#[tokio::test]
async fn u9_a_hook_that_somebody_removes_holds_nothing_up_and_an_optional_one_neither() {
    let world = rebooting("exit 1", Limits { hooks_limit_ms: 600_000, ..brisk() });
    let failed = |text: &str| text.contains("hooks before the reboot");
    world.until("run/nodeagent/AgentTrouble/global.json", failed).await;
    let folder = world.topic_root.path("etc/zedbox/hooks/before-reboot.d");
    fs::rename(folder.join("10-a"), folder.join("10-a.optional")).unwrap();
    assert_eq!(world.until_recorded().await.len(), 1);
}
