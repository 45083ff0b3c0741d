//! Real agents on a real file system that is full, read-only, wiped, or written by a later version. That all
//! goes on within five seconds is held by the clock of `agent`'s effects.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pubsub::store;
use scenarios::{Agent, World, reboot_config};
use topics::{
    AgentTrouble, DrainStatus, NodeAgentStatus, NodeDrainRequest, NodeDrainStatus, Trouble, ZbootStatus,
    ZedAgentStatus,
};

use crate::drain_cmd::node::words;
use crate::skipped;

const REQUEST: &str = "run/zedagent/NodeDrainRequest/global.json";
const FALLBACK: &str = agent::force::FALLBACK;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Full,
    ReadOnly,
}

/// A small file system in the place of `persist`; the device config has one of its own, as a controller keeps
/// sending it.
struct Disk {
    persist: PathBuf,
    fault: Fault,
}

impl Disk {
    /// `None`, with the reason printed, where this process may not mount.
    fn under(world: &World, fault: Fault) -> Option<Self> {
        let disk = Self { persist: world.topic_root.path("persist"), fault };
        let counter = world.text("persist/status/rebootConfig").unwrap();
        for dir in [disk.persist.clone(), disk.persist.join("config")] {
            fs::create_dir_all(&dir).unwrap();
            if !mount(&dir) {
                return None;
            }
        }
        world.put("persist/status/rebootConfig", &counter);
        world.config(&reboot_config(6));
        Some(disk)
    }

    fn fail(&self) {
        match self.fault {
            Fault::Full => {
                let mut ballast = fs::File::create(self.persist.join("ballast")).unwrap();
                // A file written before the disk was full frees the room of its former content.
                let (mut written, mut grew) = (true, true);
                while written || grew {
                    (written, grew) = (self.is_writing(), false);
                    while ballast.write_all(&[0; 4096]).is_ok() {
                        grew = true;
                    }
                }
            }
            Fault::ReadOnly => self.remount("ro"),
        }
    }

    fn repair(&self) {
        match self.fault {
            Fault::Full => fs::remove_file(self.persist.join("ballast")).unwrap(),
            Fault::ReadOnly => self.remount("rw"),
        }
    }

    /// Whether a temporary file waits to replace one.
    fn is_writing(&self) -> bool {
        let mut find = Command::new("find");
        let found = find.arg(&self.persist).args(["-name", "tmp*", "-size", "+0"]).output().unwrap();
        !found.stdout.is_empty()
    }

    /// The system refuses it while an agent writes.
    fn remount(&self, how: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{how}")]).arg(&self.persist);
        assert!((0..1000).any(|_| mount.status().unwrap().success()), "remount {how}");
    }

    fn words(&self) -> &'static str {
        match self.fault {
            Fault::Full => "No space left on device",
            Fault::ReadOnly => "Read-only file system",
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for dir in [self.persist.join("config"), self.persist.clone()] {
            drop(Command::new("umount").arg("-l").arg(dir).status());
        }
    }
}

/// Puts a small file system there; says why it cannot.
fn mount(dir: &Path) -> bool {
    let why = match Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(dir).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => format!("no mount, run this as root: {}", String::from_utf8_lossy(&output.stderr)),
        Err(cause) => format!("mount cannot be called: {cause}"),
    };
    skipped(&why);
    false
}

#[test]
fn where_run_and_persist_are_full_status_and_orders_say_where_to_make_room() {
    let root = tempfile::tempdir().unwrap();
    let persist = root.path().join("persist");
    fs::create_dir(&persist).unwrap();
    if !mount(root.path()) {
        return;
    }
    let disk = Disk { persist: persist.clone(), fault: Fault::Full };
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../run-fixtures/cluster-idle/.");
    assert!(Command::new("cp").args(["-r", fixture]).arg(root.path()).status().unwrap().success());
    disk.fail();
    let run = |line: &str| {
        let mut zedbox = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        let output = zedbox.args(line.split(' ')).arg("--root").arg(root.path()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        words(&String::from_utf8(text).unwrap())
    };
    let at_top = |top: &str| format!("make room: `du -xah {}", root.path().join(top).display());
    let said = run("status --all");
    let full = format!("; zedbox cannot use {}", persist.display());
    assert!(said.starts_with("IN SERVICE: no drain is requested") && said.contains(&full), "{said}");
    assert!(
        said.contains(&at_top("run")) && said.contains(&at_top("persist")) && !said.contains("0001"),
        "{said}"
    );
    for (line, top) in [("pause --reason x", "persist"), ("drain --reason x", "run")] {
        let said = run(line);
        assert!(said.contains(&at_top(top)) && said.contains(disk.words()), "{line}: {said}");
    }
    disk.repair();
    assert!(!run("status").contains("cannot use"));
    drop(Command::new("umount").arg("-l").arg(root.path()).status());
}

/// Waits until `agent` reports that `held` waits, and returns the trouble.
async fn trouble(world: &World, disk: &Disk, agent: Agent, held: &str) -> Trouble {
    let find = |it: &AgentTrouble| {
        let holds = |it: &&Trouble| it.holds.iter().any(|words| words.contains(held));
        it.troubles.iter().find(holds).cloned()
    };
    let what = format!("{held} to wait");
    world.until::<AgentTrouble>(agent.name(), &what, |it| it.is_some_and(|it| find(it).is_some())).await;
    let file = format!("run/{}/AgentTrouble/global.json", agent.name());
    let trouble = world.read::<AgentTrouble>(&file).as_ref().and_then(find).unwrap();
    assert!(trouble.path.starts_with(disk.persist.to_str().unwrap()), "{trouble:?}");
    assert!(trouble.error.contains(disk.words()), "{trouble:?}");
    assert!(trouble.next_step.contains(disk.persist.to_str().unwrap()), "{trouble:?}");
    assert!(!trouble.since.is_zero(), "{trouble:?}");
    trouble
}

async fn no_trouble(world: &World) {
    for agent in Agent::ALL {
        // A boot empties /run, and no nim makes its folder again: the status server waits for its address then.
        let over = |it: Option<&AgentTrouble>| {
            it.is_none_or(|it| it.troubles.iter().all(|it| it.what == "status server"))
        };
        world.until::<AgentTrouble>(agent.name(), "no trouble any more", over).await;
    }
}

async fn a_reboot_beside(fault: Fault) {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let Some(disk) = Disk::under(&world, fault) else { return };
    world.cluster.block().await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    // No request without its record.
    disk.fail();
    world.ask_reboot(7);
    trouble(&world, &disk, Agent::Zedagent, "the request for a drain").await;
    assert!(world.text(REQUEST).is_none());
    disk.repair();
    world.until::<NodeDrainRequest>("zedagent", "the request", |it| it.is_some()).await;
    no_trouble(&world).await;
    // No COMPLETE without its record.
    world.status(DrainStatus::Cordoned).await;
    disk.fail();
    world.cluster.unblock().await;
    trouble(&world, &disk, Agent::Zedkube, "COMPLETE").await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    let said: NodeDrainStatus = world.read("run/zedkube/NodeDrainStatus/global.json").unwrap();
    assert_ne!(said.status, DrainStatus::Complete);
    assert_eq!(world.recorded(), []);
    disk.repair();
    world.status(DrainStatus::Complete).await;
    world.recorded_count(1).await;
    // The next boot finds the disk in trouble; no agent has ended before.
    world.reboot().await;
    disk.fail();
    world.start(Agent::Zedagent);
    world
        .until::<AgentTrouble>("zedagent", "the counter to wait", |it| {
            it.is_some_and(|it| it.troubles.iter().any(|it| it.what.contains("counter")))
        })
        .await;
    world.start(Agent::Baseosmgr);
    trouble(&world, &disk, Agent::Baseosmgr, "OS updates").await;
    world.start(Agent::Zedkube);
    // It removes the reasons of the last boot, which frees room.
    world.start(Agent::Nodeagent);
    disk.repair();
    world.executed(7).await;
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    no_trouble(&world).await;
    assert_eq!(world.recorded().len(), 1, "{:?}", world.recorded());
    assert_eq!(world.cluster.evicted_twice(), [""; 0]);
    world.no_agent_ended();
    world.kill_all().await;
}

/// A machine's very first start: its disk has no file of ours, and takes none.
async fn a_first_start_beside(fault: Fault) {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let Some(disk) = Disk::under(&world, fault) else { return };
    world.remove_folder("persist/status");
    disk.fail();
    world.start_all();
    trouble(&world, &disk, Agent::Baseosmgr, "OS updates").await;
    // Its start where no directory can be made, else the counter of its first config.
    world.until::<AgentTrouble>("zedagent", "a trouble", |it| it.is_some()).await;
    disk.repair();
    no_trouble(&world).await;
    world.until::<ZbootStatus>("baseosmgr", "the partitions", |it| it.is_some()).await;
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.recorded_count(1).await;
    world.no_agent_ended();
    world.kill_all().await;
}

#[tokio::test]
async fn k2_on_a_fresh_machine_with_persist_full_each_agent_starts_says_what_it_waits_for_and_goes_on() {
    a_first_start_beside(Fault::Full).await;
}

#[tokio::test]
async fn k2_on_a_fresh_machine_with_persist_read_only_each_agent_starts_says_what_it_waits_for_and_goes_on() {
    a_first_start_beside(Fault::ReadOnly).await;
}

#[tokio::test]
async fn k2_with_persist_full_no_agent_ends_and_a_reboot_goes_on_once_there_is_room() {
    a_reboot_beside(Fault::Full).await;
}

#[tokio::test]
async fn k2_with_persist_read_only_no_agent_ends_and_a_reboot_goes_on_once_it_can_be_written() {
    a_reboot_beside(Fault::ReadOnly).await;
}

#[tokio::test]
async fn k2_a_reboot_that_a_person_forces_goes_ahead_although_nothing_can_be_written() {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let Some(disk) = Disk::under(&world, Fault::ReadOnly) else { return };
    world.cluster.block().await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    disk.fail();
    world.ask_reboot(7);
    trouble(&world, &disk, Agent::Zedagent, "the request for a drain").await;
    world.put(FALLBACK, r#"{"Status":9,"RequestedBy":2}"#);
    let commanded = |it: Option<&ZedAgentStatus>| it.is_some_and(|it| it.reboot_cmd);
    world.until::<ZedAgentStatus>("zedagent", "the command to reboot", commanded).await;
    let goes_down = |it: Option<&NodeAgentStatus>| it.is_some_and(|it| it.device_reboot);
    world.until::<NodeAgentStatus>("nodeagent", "the reboot to be under way", goes_down).await;
    // The stand-in writes to the same disk; the command is recorded by then.
    disk.repair();
    world.recorded_count(1).await;
    no_trouble(&world).await;
    world.until_file(FALLBACK, "the force file to be used up", |text| text.is_none()).await;
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    assert_eq!(world.recorded().len(), 1, "{:?}", world.recorded());
    world.no_agent_ended();
    world.kill_all().await;
}

/// A device that loses power during a drain: our cordon is on its node.
async fn cordoned_and_off() -> World {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.begin_blocked().await;
    assert!(world.cluster.cordoned().await);
    world.reboot().await;
    world
}

/// No agent ends, none asks the device, and the cordon is removed.
async fn comes_back(mut world: World) {
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    assert_eq!(world.recorded(), []);
    world.no_agent_ended();
    world.kill_all().await;
}

#[tokio::test]
async fn after_persist_was_wiped_with_our_cordon_standing_each_agent_starts_and_the_node_ends_schedulable() {
    let mut world = cordoned_and_off().await;
    fs::remove_dir_all(world.topic_root.path("persist")).unwrap();
    // The controller sends its config again; the device no longer knows what it has carried out.
    world.ask_reboot(7);
    world.start_all();
    world
        .until_file("persist/status/rebootConfig", "the counter to be taken as the first one", |text| {
            text.is_some_and(|it| it.contains("\"Counter\":7,"))
        })
        .await;
    comes_back(world).await;
}

#[tokio::test]
async fn after_a_downgrade_with_our_cordon_standing_each_agent_starts_and_the_node_ends_schedulable() {
    let mut world = cordoned_and_off().await;
    // Every file of an agent has another shape, as from a later version; no backup helps.
    let mut files = scenarios::files_below(&world.topic_root.path("persist/status"));
    files.retain(|it| it.extension().is_none_or(|ext| ext != "lock"));
    for path in &files {
        store::replace(path, br#"{"Format":9,"Counter":{"Of":"later"},"Status":"drained","Phase":[]}"#)
            .unwrap();
    }
    assert!(files.len() >= 4, "{files:?}");
    world.ask_reboot(7);
    world.start_all();
    comes_back(world).await;
}
