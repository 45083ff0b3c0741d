//! `zedbox drain` beside the four agents as processes and a cluster: a person's commands and their results.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use scenarios::{Agent, At, World};
use tokio::task::{JoinHandle, spawn_blocking};
use topics::{DrainStatus, FORCE_FILE, NodeDrainProgress, NodeDrainRequest, Requester};

use crate::drain_cmd::node::Ended;

const FILE: &str = "run/zedbox/NodeDrainRequest/global.json";

/// Starts the program beside this test, whose cluster must continue meanwhile.
fn start(world: &World, words: &str) -> JoinHandle<Ended> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
    command.args(words.split_whitespace()).arg("--root").arg(world.topic_root.root());
    command.env_clear().env("SUDO_USER", "field").stdin(Stdio::null());
    spawn_blocking(move || Ended::of(command.output().unwrap()))
}

async fn drain(world: &World, words: &str) -> Ended {
    start(world, words).await.unwrap()
}

/// `status` in another PID namespace; `None`, with the reason printed, where there is none.
fn from_another_pid_namespace(world: &World) -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_zedbox"), "status", "--root"]);
    command.arg(world.topic_root.root()).args(["-o", "json"]);
    let told = match command.output() {
        Ok(output) => Ended::of(output),
        Err(cause) => {
            writeln!(
                std::io::stderr(),
                "skipped: unshare cannot be called: {cause}; run this as root where util-linux is installed"
            )
            .unwrap();
            return None;
        }
    };
    if told.err.contains("unshare") {
        writeln!(
            std::io::stderr(),
            "skipped: no PID namespace can be made: {}; run this as root",
            told.err.trim()
        )
        .unwrap();
        return None;
    }
    let running = if told.json()["Live"]["Running"] == true { "running" } else { "not running" };
    Some(format!("zedkube {running}"))
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
    let told = drain(&world, "status --all").await;
    assert_eq!(told.code, 4, "{told:?}");
    assert!(told.out.contains("by operator field: disk"), "{}", told.out);
    assert!(told.out.contains("\nblocked    [") && told.out.contains("\nzedkube    running"), "{}", told.out);
    assert_eq!(from_another_pid_namespace(&world).as_deref().unwrap_or("zedkube running"), "zedkube running");
    world.release().await;
    let waited = waiting.await.unwrap();
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(waited.out.contains("complete: drained"), "{}", waited.out);
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    assert!(world.cluster.cordoned().await);
    assert_eq!(world.recorded().len(), 0, "a person's drain reboots nothing");
    let request: NodeDrainRequest = world.read(FILE).unwrap();
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    let answer = progress.answer(request.id()).unwrap();
    assert_eq!((answer.requested_by, answer.status), (Requester::Operator, DrainStatus::Complete));
    assert_eq!(drain(&world, "status").await.code, 0);
    let told = drain(&world, "undrain").await;
    assert_eq!(told.code, 0, "{told:?}");
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    world.kill_all().await;
}

#[tokio::test]
async fn a_drain_that_is_cancelled_ends_those_who_watch_it_and_gives_the_cordon_back() {
    let mut world = held().await;
    assert_eq!(drain(&world, "drain --reason disk").await.code, 0);
    blocked(&world).await;
    let watching = start(&world, "watch -o json");
    let told = drain(&world, "undrain").await;
    assert_eq!(told.code, 0, "{told:?}");
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    // A watch that began after the end waits for the next drain.
    assert_eq!(drain(&world, "drain --reason again").await.code, 0);
    blocked(&world).await;
    assert_eq!(drain(&world, "undrain").await.code, 0);
    let watched = watching.await.unwrap();
    assert_eq!(watched.code, 8, "{watched:?}");
    assert!(watched.err.contains("NOT DRAINED: the request was withdrawn"), "{}", watched.err);
    world.kill_all().await;
}

#[tokio::test]
async fn a_forced_reboot_goes_ahead_beside_a_zedkube_that_hangs_in_the_middle_of_its_drain() {
    let mut world = held().await;
    world.ask_reboot(7);
    blocked(&world).await;
    world.processes.hold(Agent::Zedkube, true);
    assert_eq!(drain(&world, "drain force complete --for reboot --reason x").await.code, 0);
    world.recorded_count(1).await;
    assert!(world.topic_root.path(FORCE_FILE).exists(), "zedkube has not heard of it; a boot takes it away");
    world.kill_all().await;
}
