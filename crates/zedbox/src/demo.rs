//! The demo: one drained reboot on an embedded three-node cluster, from the controller's command to the uncordon.
//!
//! Everything is real but the machine and the cluster: the same agents, the same files, the ordinary Kubernetes
//! client over HTTP on loopback. The reboot is a stand-in: `/run` is wiped, the node goes away, the agents start
//! again with a new boot identity.

mod cluster;
mod drill;
mod stage;
mod teller;

use std::fs;
use std::path::{Path, PathBuf};

use agent::{Clock, device, partitions};
use anyhow::{Context as _, bail};
use pubsub::{Bus, store};

use crate::args::DemoOptions;
use crate::limits::Limits;
use crate::supervisor::{Agent, Crew, Setting};
use cluster::Cluster;
pub(crate) use drill::{DrillOptions, run as drill};
use stage::Stage;
use teller::Teller;

/// The controller's command of the reference: reboot counter 7.
const REBOOT: &str = include_str!("../../../tests/golden/EdgeDevConfig/cluster-reboot.json");
/// A tree with this file may be wiped by the next demo.
const MARK: &str = ".zedbox-demo";

/// Runs the demo in `options.dir` and leaves the tree there.
pub(crate) async fn run(options: &DemoOptions) -> anyhow::Result<()> {
    let root = fresh_root(&options.dir)?;
    let clock = Clock::new();
    let bus = Bus::open(&root).with_context(|| format!("open the root {}", root.display()))?;
    let tell = Teller::new(clock);
    Teller::head(&options.dir);

    let cluster = Cluster::start(clock).await.context("start the embedded cluster")?;
    let kubeconfig = bus.path("run/.kube/k3s/k3s.yaml");
    store::replace(&kubeconfig, cluster.kubeconfig().as_bytes())?;
    tell.say("demo", "three nodes, a Deployment of 3 behind a budget, a StatefulSet, a DaemonSet, bare pods");

    // The gate after a boot looks for it.
    store::replace(&bus.path("dev/kmsg"), b"")?;
    // The device has carried out reboot 6 before: the first counter it ever sees is recorded, not executed.
    feed(&bus, &REBOOT.replace("\"counter\":  7", "\"counter\":  6"))?;
    let crew = Crew::start(&Agent::ALL, &setting(&bus, clock, &kubeconfig)?);
    let stage = Stage::open(&bus, clock);
    let show = tell.follow(&bus);
    stage.idle_with_counter(6).await?;

    tell.say(
        "demo",
        "the controller asks for a reboot: counter 6 becomes 7 in persist/config/edge-dev-config.json",
    );
    feed(&bus, REBOOT)?;
    stage.blocked().await?;
    tell.say("demo", "an operator makes room: the budget shop/web wants 2 of 3 from now on");
    cluster.open_budget();
    stage.recorded_reboot().await?;
    tell.say("demo", "stand-in reboot: the node goes away, run/ is wiped, a new boot begins");
    crew.stop().await;
    drop(show);
    cluster.node_down();
    fs::remove_dir_all(bus.path("run")).context("wipe run/ as a reboot does")?;

    let bus = Bus::open(&root)?;
    store::replace(&kubeconfig, cluster.kubeconfig().as_bytes())?;
    cluster.node_up();
    let crew = Crew::start(&Agent::ALL, &setting(&bus, clock, &kubeconfig)?);
    let stage = Stage::open(&bus, clock);
    let show = tell.follow(&bus);
    stage.idle_with_counter(7).await?;
    cluster.schedulable().await?;
    stage.settled().await?;
    tell.say("demo", "the node is back, healthy and schedulable; reboot 7 counts as executed");
    crew.stop().await;
    drop(show);
    Teller::end(&options.dir);
    Ok(())
}

/// Puts `config` where the controller's config is read.
fn feed(bus: &Bus, config: &str) -> anyhow::Result<()> {
    store::replace(&bus.path("persist/config/edge-dev-config.json"), config.as_bytes())
        .context("write the device config")
}

fn setting(bus: &Bus, clock: Clock, kubeconfig: &Path) -> anyhow::Result<Setting> {
    let device = device::Choice::Record;
    Ok(Setting {
        boot_id: device.boot_id(bus)?,
        cluster: kubeapi::Cluster::from_kubeconfig(kubeconfig.to_owned()),
        limits: brisk(),
        bus: bus.clone(),
        clock,
        device,
        partitions: partitions::Choice::Record,
        current_partition: None,
    })
}

/// The waits of a device, shortened so that the demo ends within half a minute. Rules and counts stay.
fn brisk() -> Limits {
    let mut limits = Limits::default();
    limits.nodeagent.min_reboot_delay_ms = 1_000;
    limits.zedkube.uncordon_poll_ms = 500;
    limits.zedkube.gate_hold_ms = 500;
    limits.zedkube.gate_clock_limit_ms = 5_000;
    limits
}

/// Makes `dir` anew. Only an empty directory or the tree of a former demo is wiped.
fn fresh_root(dir: &Path) -> anyhow::Result<PathBuf> {
    let mark = dir.join(MARK);
    let occupied = dir.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !mark.exists() {
        bail!("use {}: it holds other files; give an empty directory with --dir", dir.display());
    }
    if occupied {
        fs::remove_dir_all(dir).with_context(|| format!("wipe the former demo in {}", dir.display()))?;
    }
    store::replace(&mark, b"").with_context(|| format!("make {}", dir.display()))?;
    dir.canonicalize().with_context(|| format!("find {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_former_demo_is_wiped() {
        let dir = tempfile::tempdir().unwrap();
        let root = fresh_root(&dir.path().join("demo")).unwrap();
        store::replace(&root.join("persist/x"), b"1").unwrap();
        fresh_root(&root).unwrap();
        assert!(!root.join("persist/x").exists());
        store::replace(&dir.path().join("mine/x"), b"1").unwrap();
        let refused = fresh_root(&dir.path().join("mine")).unwrap_err().to_string();
        assert!(refused.contains("--dir"), "{refused}");
        assert!(dir.path().join("mine/x").exists());
    }

    #[test]
    fn the_first_config_differs_from_the_command_by_its_counter() {
        assert_ne!(REBOOT.replace("\"counter\":  7", "\"counter\":  6"), REBOOT);
    }
}
