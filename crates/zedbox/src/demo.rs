//! The demo: an embedded three-node cluster with a drained reboot or another scenario; with `--keep` it stays
//! to be tried.
//!
//! Everything is real but the machines and the cluster: the same agents, the same files, the ordinary
//! Kubernetes client over HTTP on loopback. A reboot is a stand-in: `/run` is wiped, the node goes away, the
//! agents start again with a new boot identity.

mod cluster;
mod drill;
mod keep;
mod machine;
pub(crate) mod nodes;
mod scenarios;
mod stage;
mod teller;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use agent::Clock;
use anyhow::{Context as _, bail};
use pubsub::store;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{DemoOptions, Scenario};
use cluster::DemoCluster;
pub(crate) use drill::run as drill;
pub(crate) use keep::agent;
use machine::DemoMachine;
use scenarios::DemoWorld;
use teller::Narrator;

/// Marks a tree that the next demo may wipe.
const MARK: &str = ".zedbox-demo";
const YEAR: Duration = Duration::from_hours(365 * 24);
const HISTORY: &str = "persist/status/zedkube/DrainHistory/global.json";

pub(crate) async fn run(options: &DemoOptions) -> anyhow::Result<()> {
    let root = fresh_root(&options.dir)?;
    let clock = Clock::new();
    let tell = Narrator::new(clock, options.verbose);
    let dir = quoted(&options.dir);
    let nodes = usize::from(options.nodes);
    if options.scenario == Scenario::MovingMachines && nodes < 2 {
        bail!("show moving-machines: a machine moves to another node; use --nodes 2 or more");
    }
    tell.explain(&format!(
        "zedbox demo: nothing of this machine is touched, a reboot is only written down. Its files are in {dir}."
    ));
    let cluster = DemoCluster::start(clock, nodes).await.context("start the embedded cluster")?;
    // For a person, over TLS as a real one; the agents are of the same cluster.
    let now = SystemTime::from(clock.wall().to_timestamp());
    let server = cluster.sim.serve_tls(now - YEAR..now + YEAR).await.context("start the server")?;
    store::replace(&root.join("kubeconfig"), server.kubeconfig().as_bytes())?;
    link(&root)?;
    let machines =
        (0..nodes).map(|at| DemoMachine::new(&root, at, nodes)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut place = DemoWorld { clock, tell, cluster, machines, root };
    let (mut end, early) = tokio::select! {
        shown = Box::pin(place.show(options.scenario)) => (shown, false),
        asked = interrupted() => (asked, true),
    };
    for machine in &mut place.machines {
        machine.stop().await;
    }
    let kept = options.keep && !early && end.is_ok();
    if kept {
        end = Box::pin(keep::run(&mut place, options.scenario)).await;
    }
    if early || kept {
        place.tell.say("Stopped; what was written last stays where it is.");
    }
    leave(&place, &dir).await?;
    end
}

/// Prints what is left, how to continue, and the past drains.
async fn leave(place: &DemoWorld, dir: &str) -> anyhow::Result<()> {
    let node = format!("{dir}/{}", place.machines[0].name());
    place.tell.show(&format!(
        "\nLeft for a look:\n  {dir}/bin/zedbox status --root {node}\n  jq . {node}/persist/status/rebootConfig\n  \
         jq . {node}/persist/device/recorded.jsonl\nTo continue, with a new cluster that stays:\n  {dir}/bin/zedbox demo \
         --keep --dir {dir}\n"
    ));
    for machine in place.machines.iter().filter(|it| it.topic_root.path(HISTORY).exists()) {
        place.tell.show(&format!("\n$ zedbox history --root {dir}/{}\n", machine.name()));
        machine.typed(&["history"], Stdio::inherit()).await?;
    }
    Ok(())
}

/// Returns when a person ends this program.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Links this program under the name that printed lines use.
fn link(root: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let folder = root.join("bin");
    fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
    symlink(program, folder.join("zedbox")).context("link to this program")
}

/// For a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+,@%".contains(it);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Only an empty directory or the tree of a former demo is wiped.
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
    fn a_path_is_one_word_of_a_shell() {
        for (path, word) in [("./run/demo", "./run/demo"), ("/a b", "'/a b'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
