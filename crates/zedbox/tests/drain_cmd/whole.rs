//! `zedbox drain` beside the four agents as processes and a cluster: a person's commands and their results.

use std::path::Path;
use std::process::{Command, Stdio};

use scenarios::{Agent, At, World};
use tokio::task::{JoinHandle, spawn_blocking};
use topics::{DrainStatus, FORCE_FILE, NodeDrainProgress, NodeDrainRequest, Requester};

use crate::drain_cmd::node::{Ended, PROGRESS, REQUEST};
use crate::skipped;

/// Starts the program beside this test, whose cluster must continue meanwhile.
fn start(world: &World, words: &str) -> JoinHandle<Ended> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
    command.args(words.split_whitespace()).arg("--root").arg(world.topic_root.root());
    command.env_clear().env("SUDO_USER", "field").stdin(Stdio::null());
    spawn_blocking(move || Ended::of(&mut command))
}

async fn drain(world: &World, words: &str) -> Ended {
    start(world, words).await.unwrap()
}

/// Whether zedkube runs, as `status` in another PID namespace says; `None`, with the reason printed, where there is none.
fn from_another_pid_namespace(world: &World) -> Option<bool> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_zedbox"), "status", "--root"]);
    command.arg(world.topic_root.root()).args(["-o", "json"]);
    let told = command.output().map(Ended::from).map_err(|cause| cause.to_string());
    match told.and_then(|it| if it.err.contains("unshare") { Err(it.err) } else { Ok(it) }) {
        Ok(told) => told.json()["Live"]["Running"].as_bool(),
        Err(why) => {
            skipped(&format!("no PID namespace can be made: {why}; run this as root, with util-linux"));
            None
        }
    }
}

/// A device of processes with a drain blocked by a budget.
async fn held() -> World {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.prepare(At::Status(DrainStatus::Cordoned)).await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world
}

async fn blocked(world: &World) {
    world
        .until::<NodeDrainProgress>("zedkube", "a pod that blocks", |it| {
            it.is_some_and(|it| !it.blockers.is_empty() && it.status == DrainStatus::Cordoned)
        })
        .await;
    world.status(DrainStatus::Cordoned).await;
}

#[tokio::test]
async fn a_person_drains_the_node_works_on_it_and_gives_it_free_again() {
    let mut world = held().await;
    let waiting = start(&world, "drain --reason disk --wait");
    blocked(&world).await;
    drain(&world, "status --all").await.ends(4).says(&[
        "by operator field: disk",
        "\nblocked    [",
        "\nzedkube    running",
    ]);
    assert_ne!(from_another_pid_namespace(&world), Some(false));
    world.release().await;
    waiting.await.unwrap().ends(0).says(&["complete: drained"]);
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert!(world.cluster.cordoned().await);
    assert_eq!(world.recorded().len(), 0, "a person's drain reboots nothing");
    let request: NodeDrainRequest = world.read(REQUEST).unwrap();
    let progress: NodeDrainProgress = world.read(PROGRESS).unwrap();
    let answer = progress.answer(request.id()).unwrap();
    assert_eq!((answer.requested_by, answer.status), (Requester::Operator, DrainStatus::Complete));
    drain(&world, "status").await.ends(0);
    drain(&world, "undrain").await.ends(0);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    world.kill_all().await;
}

#[tokio::test]
async fn a_drain_that_is_cancelled_ends_those_who_watch_it_and_gives_the_cordon_back() {
    let mut world = held().await;
    drain(&world, "drain --reason disk").await.ends(0);
    blocked(&world).await;
    let watching = start(&world, "watch -o json");
    drain(&world, "undrain").await.ends(0);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    // A watch that began after the end waits for the next drain.
    drain(&world, "drain --reason again").await.ends(0);
    blocked(&world).await;
    drain(&world, "undrain").await.ends(0);
    watching.await.unwrap().ends(8).warns(&["NOT DRAINED: the request was withdrawn"]);
    world.kill_all().await;
}

#[tokio::test]
async fn a_forced_reboot_goes_ahead_beside_a_zedkube_that_hangs_in_the_middle_of_its_drain() {
    let mut world = held().await;
    world.ask_reboot(7);
    blocked(&world).await;
    world.processes.hold(Agent::Zedkube, true);
    drain(&world, "drain force complete --for reboot --reason x").await.ends(0);
    world.recorded_count(1).await;
    assert!(world.topic_root.path(FORCE_FILE).exists(), "zedkube has not heard of it; a boot takes it away");
    world.kill_all().await;
}
