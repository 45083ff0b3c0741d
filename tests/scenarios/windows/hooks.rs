//! Hooks: called in order before a drain, before the reboot and after the boot, and undone without a boot.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;

use topics::{DrainPhase, NodeDrainProgress};

use scenarios::{Agent, World};

/// Written by a test's hooks.
const SAID: &str = "said";

/// A hook of this stage that records its call, and then runs `script`.
fn hook(world: &World, stage: &str, name: &str, script: &str) {
    let path = format!("etc/zedbox/hooks/{stage}.d/{name}");
    let said = world.topic_root.path(SAID);
    world.put(&path, &format!("#!/bin/sh\necho \"{stage} {name} $1\" >> {}\n{script}\n", said.display()));
    fs::set_permissions(world.topic_root.path(&path), fs::Permissions::from_mode(0o700)).unwrap();
}

async fn until_said(world: &World, lines: &[&str]) {
    let all = |text: &str| text.lines().collect::<Vec<_>>() == lines;
    world.until_file(SAID, &lines.join(", "), |text| text.is_some_and(all)).await;
}

pub(crate) async fn u9_hooks_come_before_the_drain_before_the_reboot_and_after_the_boot(world: &mut World) {
    hook(world, "before-drain", "10-a", "");
    // It fails once, with its output shown.
    let once = "test -e $ZEDBOX_HOOK_STATE/tried || { touch $ZEDBOX_HOOK_STATE/tried; echo 'no backup yet' >&2; exit 1; }";
    hook(world, "before-drain", "20-b", once);
    hook(world, "before-drain", "30-c.optional", "exit 1");
    hook(world, "before-reboot", "10-a", "");
    hook(world, "after-boot", "10-a", "");
    hook(world, "after-boot", "20-b", "");
    world.limits["zedkube"]["drain_retry_ms"] = 3_000.into();
    crate::starts(world).await;
    // The boot before left nothing: after-boot hooks run after each.
    until_said(world, &["after-boot 20-b run", "after-boot 10-a run"]).await;
    fs::remove_file(world.topic_root.path(SAID)).unwrap();
    world.ask_reboot(7);
    world
        .has("zedkube", "the words of the hook", |it: &NodeDrainProgress| {
            it.phase == DrainPhase::RunningHooks && it.reason.contains("no backup yet")
        })
        .await;
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
    fs::remove_file(world.topic_root.path(SAID)).unwrap();
    crate::comes_back(world, 7).await;
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

const SCALED: (&str, &str) = ("shop", "cache");
const KEPT: &str = "persist/status/zedbox/hooks/10-scale/replicas";
/// Stand-in for kubectl on a hook's path: a pipe for a question and one for its answer.
const PIPES: [&str; 2] = ["question", "answer"];

/// Answers `get` with the application's replicas, and `scale N` once it has N.
fn stand_in_for_kubectl(world: &World) {
    for pipe in PIPES {
        assert!(Command::new("mkfifo").arg(world.topic_root.path(pipe)).status().unwrap().success());
    }
    let (sim, [question, answer]) = (world.cluster.sim().clone(), PIPES.map(|it| world.topic_root.path(it)));
    let (namespace, name) = SCALED;
    // It ends with the world's folder.
    thread::spawn(move || {
        while let Ok(asked) = fs::read_to_string(&question) {
            if let Some(count) = asked.trim().strip_prefix("scale ") {
                let count: u64 = count.parse().unwrap();
                sim.edit("apps/deployments", namespace, name, |it| it["spec"]["replicas"] = count.into());
            }
            let replicas =
                sim.get("apps/deployments", namespace, name).unwrap()["spec"]["replicas"].to_string();
            File::options().write(true).open(&answer).unwrap().write_all(replicas.as_bytes()).unwrap();
        }
    });
}

/// A hook before a drain and after a boot, with this state: the count is kept, and set again.
fn scaling_hooks(world: &World) {
    let [question, answer] = PIPES.map(|it| world.topic_root.path(it).display().to_string());
    let ask =
        format!("ask() {{ echo \"$1\" > {question}; cat {answer}; }}\nkept=$ZEDBOX_HOOK_STATE/replicas\n");
    let back = "test ! -e $kept || { ask \"scale $(cat $kept)\" && rm $kept; }";
    // Called again, as after a crash, it keeps the first count.
    let down = "test -e $kept || { ask get > $kept.new && mv $kept.new $kept; }; ask 'scale 0'";
    hook(world, "before-drain", "10-scale", &format!("{ask}case $1 in run) {down} ;; undo) {back} ;; esac"));
    hook(world, "before-drain", "20-b", "");
    hook(world, "after-boot", "10-scale", &format!("{ask}{back}"));
    hook(world, "after-boot", "20-b", "");
}

fn replicas(world: &World) -> u64 {
    let (namespace, name) = SCALED;
    world.cluster.sim().get("apps/deployments", namespace, name).unwrap()["spec"]["replicas"]
        .as_u64()
        .unwrap()
}

fn kept(world: &World) -> bool {
    world.topic_root.path(KEPT).exists()
}

/// Embedded cluster only, like the hooks' stand-in for kubectl.
pub(crate) async fn what_a_hook_scales_down_is_up_again_after_the_boot(world: &mut World) {
    stand_in_for_kubectl(world);
    world.cluster.sim().add_deployment(SCALED.0, SCALED.1, 3);
    scaling_hooks(world);
    crate::starts(world).await;
    until_said(world, &["after-boot 20-b run", "after-boot 10-scale run"]).await;
    assert_eq!((replicas(world), kept(world)), (3, false));
    fs::remove_file(world.topic_root.path(SAID)).unwrap();
    world.ask_reboot(7);
    world.recorded_count(1).await;
    until_said(world, &["before-drain 10-scale run", "before-drain 20-b run"]).await;
    assert_eq!((replicas(world), kept(world)), (0, true));
    fs::remove_file(world.topic_root.path(SAID)).unwrap();
    crate::comes_back(world, 7).await;
    until_said(world, &["after-boot 20-b run", "after-boot 10-scale run"]).await;
    // The line comes before the hook's work.
    world.until_file(KEPT, "nothing left to scale", |text| text.is_none()).await;
    assert_eq!(replicas(world), 3);
}

pub(crate) async fn what_a_hook_scales_down_is_up_again_when_the_operation_is_withdrawn(world: &mut World) {
    stand_in_for_kubectl(world);
    world.cluster.sim().add_deployment(SCALED.0, SCALED.1, 3);
    scaling_hooks(world);
    fs::remove_dir_all(world.topic_root.path("etc/zedbox/hooks/after-boot.d")).unwrap();
    world.begin_blocked().await;
    until_said(world, &["before-drain 10-scale run", "before-drain 20-b run"]).await;
    assert_eq!((replicas(world), kept(world)), (0, true));
    world.ask_reboot(6);
    world.cluster.until_schedulable().await;
    let undone = ["before-drain 20-b undo", "before-drain 10-scale undo"];
    until_said(world, &["before-drain 10-scale run", "before-drain 20-b run", undone[0], undone[1]]).await;
    world.until_file(KEPT, "nothing left to scale", |text| text.is_none()).await;
    assert_eq!((replicas(world), world.recorded()), (3, Vec::new()));
}
