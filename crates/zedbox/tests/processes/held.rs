//! Real agents beside blocking files: a stopped reader of their output, a hanging disk, a pipe as kubeconfig.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use scenarios::{Agent, World};
use topics::{AgentTrouble, DrainStatus, NodeDrainProgress, NodeDrainRequest, Requester, go_json};

use crate::{KilledChild, TOO_LONG, in_time, skipped};

const END: Duration = Duration::from_secs(5);
const REQUEST: &str = "run/zedagent/NodeDrainRequest/global.json";

struct Pipe(File);

impl Pipe {
    fn new(path: &Path) -> Self {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        Self(File::options().read(true).write(true).custom_flags(flags).open(path).unwrap())
    }

    fn fill(&mut self) {
        for some in [4096, 1] {
            while self.0.write(&vec![b'.'; some]).is_ok() {}
        }
    }

    fn read(&mut self) -> String {
        let (mut all, mut some) = (Vec::new(), vec![0; 65_536]);
        loop {
            match self.0.read(&mut some) {
                Ok(bytes) => all.extend_from_slice(&some[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}

struct Process(KilledChild);

impl Process {
    fn start(world: &World, stdout: Stdio, stderr: Stdio) -> Self {
        world.put("limits.json", &world.limits.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.arg("run").arg("--root").arg(world.topic_root.path(""));
        for (word, file) in [("--kubeconfig", "kubeconfig"), ("--limits", "limits.json")] {
            command.arg(word).arg(world.topic_root.path(file));
        }
        command.args(["--log", "trace", "--partitions", "record"]).env("ZEDBOX_SHORT_WAITS", "1");
        Self(KilledChild(command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap()))
    }

    /// Ends it as a service manager does, which does not wait for long.
    async fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let ended = in_time(END, || self.0.try_wait().unwrap().is_some()).await;
        assert!(ended, "it has not ended in {END:?}");
    }
}

/// Each agent has a turn after `before`.
async fn have_turns(world: &World, before: [SystemTime; 4]) {
    for (agent, before) in Agent::ALL.into_iter().zip(before) {
        assert!(in_time(TOO_LONG, || touched(world, agent) > before).await, "{agent:?} had no turn");
    }
}

fn touched(world: &World, agent: Agent) -> SystemTime {
    fs::metadata(world.topic_root.path(&format!("run/{}.touch", agent.name()))).unwrap().modified().unwrap()
}

#[tokio::test]
async fn t7_nobody_reads_standard_error_and_output_and_all_agents_go_on_and_end_when_told_to() {
    let world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let [mut out, mut err] = ["out", "err"].map(|it| Pipe::new(&world.topic_root.path(it)));
    out.fill();
    err.fill();
    let end =
        |name: &str| Stdio::from(File::options().write(true).open(world.topic_root.path(name)).unwrap());
    world.cluster.block().await;
    let process = Process::start(&world, end("out"), end("err"));
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.status(DrainStatus::Cordoned).await;
    let before = Agent::ALL.map(|it| touched(&world, it));
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    have_turns(&world, before).await;
    // The reader continues: lost lines are counted in a line of their own.
    let mut said = String::new();
    let is_counted = in_time(TOO_LONG, || {
        said += &err.read();
        said.contains("lines; nobody read standard error for a time")
    });
    assert!(is_counted.await, "not said in {} bytes", said.len());
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    err.fill();
    process.end().await;
}

/// A freezable file system in the place of `persist`.
struct Frozen {
    persist: PathBuf,
}

impl Frozen {
    /// `None`, with the reason printed, where this process may not.
    fn under(world: &World) -> Option<Self> {
        let (image, persist) = (world.topic_root.path("persist.img"), world.topic_root.path("persist"));
        let moved = world.topic_root.path("persist.before");
        let text = format!(
            "truncate -s 16M {0} && mkfs.ext4 -q -F {0} && mv {1} {2} && mkdir {1} && mount -o loop {0} {1} && \
             cp -a {2}/. {1} && fsfreeze -f {1} && fsfreeze -u {1}",
            image.display(),
            persist.display(),
            moved.display()
        );
        let made = Command::new("sh").args(["-c", &text]).output().unwrap();
        let this = Self { persist };
        if made.status.success() {
            return Some(this);
        }
        let why = String::from_utf8_lossy(&made.stderr);
        skipped(&format!("no disk to freeze, run this as root: {why}"));
        None
    }

    fn freeze(&self, how: &str) {
        assert!(Command::new("fsfreeze").arg(how).arg(&self.persist).status().unwrap().success());
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(Command::new("fsfreeze").arg("-u").arg(&self.persist).stderr(Stdio::null()).status());
        drop(Command::new("umount").arg("-l").arg(&self.persist).stderr(Stdio::null()).status());
    }
}

#[tokio::test]
async fn t7_a_disk_that_hangs_holds_what_waits_for_its_record_and_nothing_else_and_one_row_says_since_when() {
    let clock = agent::Clock::new();
    let mut world = World::of_one_process(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let Some(disk) = Frozen::under(&world) else { return };
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    disk.freeze("-f");
    // The device config is there too, so the controller cannot send one: a person's order is in memory.
    let request = NodeDrainRequest {
        requested_at: clock.wall(),
        requested_by: Requester::Operator,
        context: "operator field: disk".to_owned(),
    };
    world.put(agent::operator::FILE, &String::from_utf8(go_json::to_vec(&request).unwrap()).unwrap());
    let hangs = format!("{} does not answer", disk.persist.display());
    let says = |it: Option<&AgentTrouble>| {
        it.is_some_and(|it| it.troubles.iter().any(|it| it.error == hangs && !it.since.is_zero()))
    };
    world.until::<AgentTrouble>("zedkube", "the disk that hangs", says).await;
    // All of them have turns; memory is read and written.
    let before = Agent::ALL.map(|it| touched(&world, it));
    have_turns(&world, before).await;
    assert!(!world.cluster.cordoned().await, "cordoned before the journal says so");
    disk.freeze("-u");
    world.until::<AgentTrouble>("zedkube", "no trouble any more", |it| it.is_none()).await;
    world.status(DrainStatus::Complete).await;
    world.no_agent_ended();
    world.kill_all().await;
}

/// State of its first thread, as `R`, `S` or `Z`; `Z` as well once the process is gone.
fn first_thread(process: &Process) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.0.id())).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('Z')
}

#[tokio::test]
async fn t7_an_end_while_the_disk_hangs_comes_within_its_limit_names_the_disk_and_loses_nothing_of_the_drain()
{
    let world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    let Some(disk) = Frozen::under(&world) else { return };
    world.cluster.block().await;
    let log = world.topic_root.path("err");
    let start = || {
        Process::start(
            &world,
            Stdio::null(),
            File::options().create(true).append(true).open(&log).unwrap().into(),
        )
    };
    let mut process = start();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.status(DrainStatus::Cordoned).await;
    let begun =
        |it: Option<&NodeDrainProgress>| it.is_some_and(|it| it.attempt == 1 && !it.started_at.is_zero());
    world.until::<NodeDrainProgress>("zedkube", "the first attempt", begun).await;
    let before = progress(&world);
    disk.freeze("-f");
    // COMPLETE waits for its record.
    world.cluster.unblock().await;
    let hangs = format!("{} does not answer", disk.persist.display());
    let says =
        |it: Option<&AgentTrouble>| it.is_some_and(|it| it.troubles.iter().any(|it| it.error == hangs));
    world.until::<AgentTrouble>("zedkube", "the disk that hangs", says).await;
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    // Only a thread within a kernel call is left.
    let ended = in_time(END, || first_thread(&process) == 'Z').await;
    assert!(ended, "it has not ended in {END:?}");
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.lines().any(|it| it.contains(&hangs) && it.contains("done by the next start")), "{said}");
    assert_ne!(progress(&world).status, DrainStatus::Complete);
    disk.freeze("-u");
    assert!(process.0.wait().unwrap().success());
    let _next = start();
    world.recorded_count(1).await;
    let after = progress(&world);
    assert_eq!((after.attempt, after.started_at), (1, before.started_at), "it is the same attempt");
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
}

fn progress(world: &World) -> NodeDrainProgress {
    let text = world.text("run/zedkube/NodeDrainProgress/global.json").unwrap();
    go_json::from_slice(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn t7_a_kubeconfig_that_becomes_a_pipe_holds_no_agent() {
    let mut world = World::of_one_process(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    let (file, kept) = (world.topic_root.path("kubeconfig"), world.topic_root.path("kubeconfig.kept"));
    fs::rename(&file, &kept).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    world.ask_reboot(7);
    world.until::<NodeDrainRequest>("zedagent", "the request", |it| it.is_some()).await;
    world.until_logged("log/001-zedagent", &["it is no regular file"]).await;
    assert!(world.text(REQUEST).is_some());
    fs::rename(&kept, &file).unwrap();
    world.recorded_count(1).await;
    world.kill_all().await;
}
