//! A device in a temporary root, a cluster, and agents that can be started, killed and rebooted: as tasks of
//! this process, or as processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::device::{self, DeviceChoice, Recorded};
use agent::{AgentContext, Clock, Stopper, wire};
use kubesim::SimServer;
use pubsub::{Change, FileRule, FileState, TopicRoot, store};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use topics::{DrainStatus, NodeDrainProgress, NodeDrainStatus, Topic, go_json};

use crate::Cluster;
use crate::failing::{Tracing, trace_of};
use crate::process::{Halt, How, LIMITS, Processes, WrongClock};
use crate::tasks;
use crate::writes::{self, Writes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    Zedagent,
    Baseosmgr,
    Nodeagent,
    Zedkube,
}

impl Agent {
    pub const ALL: [Self; 4] = [Self::Zedagent, Self::Baseosmgr, Self::Nodeagent, Self::Zedkube];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Zedagent => "zedagent",
            Self::Baseosmgr => "baseosmgr",
            Self::Nodeagent => "nodeagent",
            Self::Zedkube => "zedkube",
        }
    }
}

enum Running {
    Task(Stopper, JoinSet<()>),
    Process,
}

/// The program of the agents' processes, and their API over HTTP.
struct Program {
    path: PathBuf,
    whole: bool,
    clock: Option<WrongClock>,
    _api: SimServer,
}

pub struct World {
    // First, as it ends before its files.
    writes: Option<Writes>,
    pub processes: Processes,
    halt: Halt,
    pub(crate) root: Arc<tasks::DeviceRoot>,
    pub topic_root: TopicRoot,
    pub(crate) clock: Clock,
    pub cluster: Cluster,
    /// For agents started from now on, as a limits file.
    pub limits: Value,
    /// Log filter of processes started from now on, when not the default.
    pub filter: Option<&'static str>,
    /// A state that takes longer does not come: generous for busy machines.
    pub patience: Duration,
    program: Option<Program>,
    /// Traced agent, all for `None`, and strace's task.
    pub(crate) tracing: Option<(Option<Agent>, Tracing)>,
    pub(crate) starts: usize,
    running: Vec<(Agent, Running)>,
}

impl World {
    /// A device after reboot `6`, member of an idle embedded cluster; no agent runs. Agents are tasks.
    pub async fn new() -> Self {
        Self::on(Cluster::embedded().await)
    }

    pub fn on(cluster: Cluster) -> Self {
        let root = Arc::new(tasks::DeviceRoot::new());
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let world = Self {
            writes: None,
            processes: Processes::default(),
            halt: Halt::default(),
            root,
            topic_root,
            clock: Clock::new(),
            cluster,
            limits: brisk(),
            filter: None,
            patience: Duration::from_mins(1),
            program: None,
            tracing: None,
            starts: 0,
            running: Vec::new(),
        };
        world.put("dev/kmsg", "");
        std::fs::create_dir_all(world.topic_root.path("run/nim")).unwrap(); // nim is there, and publishes no ports
        world.put("etc/eve-release", "14.5.0-lts-kubevirt-amd64");
        world.put("persist/status/rebootConfig", r#"{"Counter":6,"DesiredState":true,"OpsTime":""}"#);
        world.config(&reboot_config(6));
        world
    }

    /// The same with a process of `zedbox` per agent.
    pub async fn of_processes(zedbox: &Path) -> Self {
        let mut world = Self::new().await;
        world.becomes_processes(zedbox, None).await;
        world
    }

    /// Agents started from now on are processes of `zedbox`, with an optional wrong clock.
    pub(crate) async fn becomes_processes(&mut self, zedbox: &Path, clock: Option<WrongClock>) {
        let api = self.cluster.sim().serve_to(self.cluster.device_name()).await.unwrap();
        self.put(
            "kubeconfig",
            &api.kubeconfig().replace("token: any", &format!("token: {}", tasks::PLANTED_TOKEN)),
        );
        self.limits["zedkube"]["uncordon_poll_ms"] = 50.into(); // Their time is real.
        self.program = Some(Program { path: zedbox.to_owned(), whole: false, clock, _api: api });
    }

    /// The same with one process of `zedbox` for all agents; it counts as zedagent.
    pub async fn of_one_process(zedbox: &Path) -> Self {
        let mut world = Self::of_processes(zedbox).await;
        world.program.as_mut().unwrap().whole = true;
        world
    }

    pub fn put(&self, path: &str, text: &str) {
        store::replace(&self.topic_root.path(path), text.as_bytes()).unwrap();
    }

    pub fn remove_folder(&self, path: &str) {
        std::fs::remove_dir_all(self.topic_root.path(path)).unwrap();
    }

    pub fn text(&self, path: &str) -> Option<String> {
        store::read(&self.topic_root.path(path), 1 << 20).unwrap().map(|it| String::from_utf8(it).unwrap())
    }

    pub fn config(&self, config: &Value) {
        let mut config = config.clone();
        config["deviceName"] = self.cluster.device_name().into();
        config["id"]["uuid"] = self.cluster.device_uuid().into();
        config["datastores"] = json!([{ "password": tasks::PASSWORD }]);
        let longhorn = json!([{ "key": "storage.longhorn.node-drain-policy", "value": "" }]);
        config.as_object_mut().unwrap().entry("configItems").or_insert(longhorn);
        self.put("persist/config/edge-dev-config.json", &config.to_string());
    }

    pub fn ask_reboot(&self, counter: u32) {
        self.config(&reboot_config(counter));
    }

    pub fn start(&mut self, agent: Agent) {
        if self.program.is_some() {
            self.start_process(agent, None);
        } else {
            self.starts += 1;
            let boot = DeviceChoice::Record.boot_id(&self.topic_root).unwrap();
            let (stopper, context) = AgentContext::alone(&self.topic_root, self.clock, &boot);
            let (limits, cluster) = (self.limits.clone(), self.cluster.handle());
            let (task, halt) = tasks::start(agent, context, limits, cluster, self.root.clone());
            self.halt.add(halt);
            self.running.push((agent, Running::Task(stopper, task)));
        }
    }

    /// Starts an agent's process, with at most so many descriptors until [`World::unlimit`]. Returns its log file.
    pub fn start_process(&mut self, agent: Agent, descriptors: Option<u64>) -> String {
        self.starts += 1;
        let log = format!("log/{:03}-{}", self.starts, agent.name());
        let program = &self.program.as_ref().unwrap().path;
        self.put(LIMITS, &self.limits.to_string());
        let whole = self.program.as_ref().unwrap().whole;
        let traced = self.tracing.as_ref().filter(|(of, _)| of.is_none_or(|of| of == agent));
        let how = How {
            word: whole.then_some("run"),
            descriptors,
            filter: self.filter,
            clock: self.program.as_ref().unwrap().clock.as_ref(),
            tracing: traced.map(|(_, tracing)| (tracing, self.topic_root.path(&trace_of(&log)))),
        };
        self.processes.start(agent, program, &self.topic_root, &log, &how);
        self.running.push((agent, Running::Process));
        log
    }

    pub fn descriptors(&self, agent: Agent) -> u64 {
        self.processes.descriptors(agent)
    }

    /// Ends the limit of [`World::start_process`].
    pub fn unlimit(&self, agent: Agent) {
        self.processes.unlimit(agent);
    }

    /// Waits until the log contains all of these words.
    pub async fn until_logged(&self, log: &str, words: &[&str]) {
        // A growing log causes no event before its writer ends.
        let seen = async {
            while !self.text(log).is_some_and(|text| words.iter().all(|word| text.contains(word))) {
                self.clock.sleep_until(Some(self.clock.now() + Duration::from_millis(20))).await;
            }
        };
        self.patiently(&format!("{words:?} in {log}"), seen).await;
    }

    pub fn start_all(&mut self) {
        let whole = self.program.as_ref().is_some_and(|it| it.whole);
        for agent in Agent::ALL.into_iter().take(if whole { 1 } else { Agent::ALL.len() }) {
            self.start(agent);
        }
    }

    /// Ends `agent` at any point, as a kill would.
    ///
    /// A real process gets SIGKILL.
    pub async fn kill(&mut self, agent: Agent) {
        let at = self.running.iter().position(|(running, _)| *running == agent).unwrap();
        match self.running.remove(at).1 {
            Running::Task(stopper, mut task) => {
                task.abort_all();
                while let Some(ended) = task.join_next().await {
                    assert!(
                        ended.is_err_and(|cause| cause.is_cancelled()),
                        "{agent:?} had ended before it was killed"
                    );
                }
                drop(stopper);
            }
            Running::Process => {
                let ended = self.processes.end(agent);
                assert!(
                    ended.is_ok(),
                    "{agent:?} had ended before it was killed: {ended:?}\n{}",
                    self.logs()
                );
            }
        }
    }

    /// Whether any agent does.
    pub const fn runs(&self) -> bool {
        !self.running.is_empty()
    }

    pub async fn kill_all(&mut self) {
        while let Some((agent, ..)) = self.running.last() {
            let agent = *agent;
            self.kill(agent).await;
        }
    }

    /// A reboot: all processes end, `/run` is emptied, with another boot identity and the boot loader's
    /// choice made again. The node is away for that time.
    pub async fn reboot(&mut self) {
        self.kill_all().await;
        self.cluster.power(false).await;
        self.empty_run();
        self.topic_root = TopicRoot::open(self.root.path()).unwrap();
        self.cluster.power(true).await;
    }

    /// The same for a machine without power, after its agents have ended.
    pub fn lose_run(&mut self) {
        self.empty_run();
        self.topic_root = TopicRoot::open(self.root.path()).unwrap();
    }

    /// Where writes are followed, the directories of the volatile tree stay, because they are watched.
    fn empty_run(&self) {
        let run = self.root.path().join("run");
        let Some(writes) = &self.writes else { return std::fs::remove_dir_all(run).unwrap() };
        writes.counts(false);
        for dir in writes::folders(&run).into_iter().map(|it| run.join(it)).chain([run.clone()]) {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if !entry.file_type().unwrap().is_dir() {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
        }
        writes.counts(true);
    }

    /// Directories in which agents write, see [`World::follow_writes`].
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut all = writes::folders(self.root.path());
        all.retain(|it| it.starts_with("run") || it.starts_with("persist"));
        all
    }

    /// Calls `hear` with every write in `folders` from now on, and with `None` after a quiet time: on a
    /// thread of its own, with the processes.
    pub fn follow_writes(
        &mut self,
        folders: &[PathBuf],
        mut hear: impl FnMut(Option<&str>, &Processes) + Send + 'static,
    ) {
        let processes = self.processes.clone();
        let hear = move |path: Option<&str>| hear(path, &processes);
        self.writes = Some(Writes::follow(self.root.path(), folders, hear));
    }

    pub(crate) async fn heard_all(&self) {
        if let Some(writes) = &self.writes {
            writes.heard_all().await;
        }
    }

    pub(crate) fn halt(&self) -> Halt {
        self.halt.clone()
    }

    /// Stops following. Fails where `hear` has failed.
    pub fn unfollow_writes(&mut self) {
        if let Some(writes) = self.writes.take() {
            writes.end();
        }
    }

    pub fn recorded(&self) -> Vec<Recorded> {
        device::recorded(&self.topic_root).unwrap()
    }

    /// Waits for the `count`th operation of the stand-in device.
    pub async fn recorded_count(&self, count: usize) {
        let rule = FileRule { limit_bytes: 1 << 20, order: false };
        let mut watch = self.topic_root.file(self.topic_root.path(device::RECORD), rule);
        let seen = async {
            while self.recorded().len() < count {
                watch.next().await;
            }
        };
        self.patiently(&format!("operation number {count} of the device"), seen).await;
    }

    /// Waits until `file` is as wanted, or absent for `None`.
    pub async fn until_file(&self, file: &str, what: &str, wanted: impl Fn(Option<&str>) -> bool) {
        let rule = FileRule { limit_bytes: 1 << 20, order: false };
        let mut watch = self.topic_root.file(self.topic_root.path(file), rule);
        let seen = async {
            loop {
                let holds = match watch.next().await {
                    FileState::Absent => wanted(None),
                    FileState::Present(bytes) => wanted(Some(&String::from_utf8(bytes).unwrap())),
                    FileState::Bad(_) => false,
                };
                if holds {
                    return;
                }
            }
        };
        self.patiently(what, seen).await;
    }

    /// Waits until `agent`'s only value of topic `T`, or its absence, is as wanted, and returns it.
    pub async fn until<T: Topic>(
        &self,
        agent: &str,
        what: &str,
        wanted: impl Fn(Option<&T>) -> bool,
    ) -> Option<T> {
        let mut subscription = self.topic_root.subscription(&wire::name::<T>(agent), wire::codec::<T>());
        let seen = async {
            let mut synced = false;
            loop {
                let change = subscription.next().await;
                synced |= matches!(change, Change::Synced);
                let now = subscription.iter().next().map(|(_, value)| value.clone());
                if synced && wanted(now.as_ref()) {
                    return now;
                }
            }
        };
        self.patiently(what, seen).await
    }

    /// The same of a value that is there.
    pub async fn has<T: Topic>(&self, agent: &str, what: &str, wanted: impl Fn(&T) -> bool) -> T {
        self.until(agent, what, |it| it.is_some_and(&wanted)).await.unwrap()
    }

    /// Waits until zedkube's NodeDrainProgress is as wanted, and returns it.
    pub async fn progress(
        &self,
        what: &str,
        wanted: impl Fn(&NodeDrainProgress) -> bool,
    ) -> NodeDrainProgress {
        self.has("zedkube", what, wanted).await
    }

    /// Records requests from now on, until `status` is published, which is checked at each request.
    pub fn note_until(&self, status: DrainStatus) {
        let (file, wanted) = (
            self.topic_root.path("run/zedkube/NodeDrainStatus/global.json"),
            format!("\"Status\":{},", status.number()),
        );
        let mut notes = self.cluster.noted.notes();
        notes.asked.clear();
        notes.until =
            Some(Box::new(move || std::fs::read_to_string(&file).is_ok_and(|it| it.contains(&wanted))));
    }

    pub async fn status(&self, status: DrainStatus) -> NodeDrainStatus {
        let what = format!("NodeDrainStatus {status:?}");
        self.has("zedkube", &what, |it: &NodeDrainStatus| it.status == status).await
    }

    /// Waits until reboot `counter` counts as executed and nothing is pending.
    pub async fn executed(&self, counter: u32) {
        let wanted = format!("\"Counter\":{counter},");
        let what = format!("reboot {counter} to count as executed");
        self.until_file("persist/status/rebootConfig", &what, |text| {
            text.is_some_and(|it| it.contains(&wanted))
        })
        .await;
        self.until_file(PENDING, "nothing pending", |text| text.is_none()).await;
    }

    /// For agents started from now on.
    pub fn clock_off_by(&mut self, secs: i64) {
        self.clock = Clock::new().off_by(secs);
    }

    pub fn read<T: Topic>(&self, path: &str) -> Option<T> {
        let bytes = store::read(&self.topic_root.path(path), 1 << 20).unwrap()?;
        Some(go_json::from_slice(&bytes).unwrap())
    }

    fn logs(&self) -> String {
        Processes::said(&self.root.path().join("log"))
    }

    pub(crate) async fn patiently<T>(&self, what: &str, wait: impl Future<Output = T>) -> T {
        tokio::select! {
            seen = wait => seen,
            () = self.clock.sleep_until(Some(self.clock.now() + self.patience)) => {
                panic!(
                    "waited {} s for {what}\nprogress: {:?}\nstatus: {:?}\npending: {:?}\nimage: {:?}\nrecorded: {:?}\n{}",
                    self.patience.as_secs(),
                    self.text("run/zedkube/NodeDrainProgress/global.json"),
                    self.text("run/zedkube/NodeDrainStatus/global.json"),
                    self.text(PENDING),
                    self.text("run/baseosmgr/BaseOsStatus/5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01.json"),
                    self.recorded(),
                    self.logs(),
                )
            }
        }
    }
}

pub const PENDING: &str = "persist/status/zedagent/DeviceOpPending/reboot.json";

pub fn reboot_config(counter: u32) -> Value {
    let mut config: Value =
        serde_json::from_str(include_str!("../golden/EdgeDevConfig/cluster-reboot.json")).unwrap();
    config["reboot"]["counter"] = counter.into();
    config
}

/// A device's waits, except those that only cost time.
fn brisk() -> Value {
    json!({
        "zedagent": { "ask_again_first_ms": 1_000 }, "nodeagent": { "min_reboot_delay_ms": 20 },
        "zedkube": {
            "uncordon_poll_ms": 1_000, "cordon_retry_ms": 20, "drain_retry_ms": 200, "gate_hold_ms": 50, "gate_clock_limit_ms": 100,
            "stale_taints_ms": 500, "leave_notice_ms": 2_000,
        },
    })
}
