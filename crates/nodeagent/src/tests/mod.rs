//! The whole agent on a root of its own: files in, files out, compared with the reference's samples.

mod course;
mod last_boot;
mod machine;
mod samples;

pub(crate) use machine::ScriptedDevice;

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use agent::device::{self, Device, DeviceChoice, MachineOperation};
use agent::{AgentContext, Clock, Error, Stopper};
use pubsub::{FileRule, FileState, TopicRoot, store};
use tokio::task::JoinSet;
use topics::{
    Answer, BootReason, ConfigGetStatus, DomainStatus, DrainStatus, GoTime, NodeAgentStatus,
    NodeDrainProgress, NodeDrainStatus, OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict,
    Requester, Topic, VolumeMgrStatus, ZbootConfig, ZbootStatus, ZedAgentStatus, go_json,
};

use crate::{Limits, journal, reasons};

/// Nothing here takes this long; a test that waits so long has failed.
const TOO_LONG: Duration = Duration::from_secs(60);
/// Touched by the loop of the agent.
const TOUCH: &str = "run/nodeagent.touch";
const STATUS: &str = "run/nodeagent/NodeAgentStatus/nodeagent.json";
/// The time in the reference's samples.
const SAMPLE_TIME: &str = "2026-03-14T09:26:53.589793238Z";
const REASON: &str = "NORMAL: controller reboot";
/// What stands before the time where it is stored; nothing says which image runs.
const STORED: &str = "NORMAL: controller reboot at EVE version Unknown at ";

fn golden(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All waits as short as they can be, but for the one that ends the agent.
fn brisk() -> Limits {
    Limits {
        min_reboot_delay_ms: 1,
        domain_halt_step_ms: 1,
        domain_halt_limit_ms: 60_000,
        refused_retry_ms: 1,
        ..Limits::default()
    }
}

/// A device with its agent and the files of all others.
struct World {
    dir: tempfile::TempDir,
    topic_root: TopicRoot,
    clock: Clock,
    limits: Limits,
    agent: Option<(Stopper, JoinSet<Result<(), Error>>)>,
}

impl World {
    /// A device that runs good image A, as baseosmgr publishes it; nobody runs yet.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        let world = Self { dir, topic_root, clock: Clock::new().off_by(0), limits: brisk(), agent: None };
        world.partitions("active", "unused");
        world
    }

    async fn started() -> Self {
        let mut world = Self::new();
        world.start();
        world.status(|_| true).await;
        world
    }

    /// The last boot as the reference's samples tell it.
    fn as_in_the_samples(number: &str) -> Self {
        let world = Self::new();
        world.write(agent::reasons::REASON, &format!("NORMAL: First boot of device - at {SAMPLE_TIME}"));
        world.write(agent::reasons::NUMBER, number);
        world.write(reasons::COUNTER, "1");
        let at: GoTime = SAMPLE_TIME.parse().unwrap();
        let file = File::options().write(true).open(world.topic_root.path(agent::reasons::NUMBER)).unwrap();
        file.set_modified(SystemTime::from(at.to_timestamp())).unwrap();
        world
    }

    fn start(&mut self) {
        self.start_with(DeviceChoice::Record.open(&self.topic_root, Clock::new()));
    }

    fn start_with(&mut self, device: Box<dyn Device>) {
        let boot_id = DeviceChoice::Record.boot_id(&self.topic_root).unwrap();
        let (stopper, context) = AgentContext::alone(&self.topic_root, self.clock, &boot_id);
        let mut running = JoinSet::new();
        running.spawn(crate::run(context, self.limits, device));
        self.agent = Some((stopper, running));
    }

    async fn kill(&mut self) {
        let (_stopper, mut running) = self.agent.take().unwrap();
        running.shutdown().await;
    }

    /// Starts the agent again and waits until it has taken up what was left, which no published file shows.
    async fn start_again(&mut self) {
        std::fs::remove_file(self.topic_root.path(TOUCH)).unwrap();
        self.start();
        self.until(TOUCH, |_| true).await;
    }

    /// The machine restarts: what is volatile goes.
    async fn boot(&mut self) {
        self.kill().await;
        std::fs::remove_dir_all(self.dir.path().join("run")).unwrap();
        self.partitions("active", "unused");
        self.start();
    }

    fn write(&self, file: &str, text: &str) {
        store::replace(&self.topic_root.path(file), text.as_bytes()).unwrap();
    }

    fn text(&self, file: &str) -> Option<String> {
        let bytes = store::read(&self.topic_root.path(file), 1 << 20).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    fn put<T: Topic>(&self, agent: &str, key: &str, value: &T) {
        let path = agent::wire::path::<T>(&self.topic_root, agent, key);
        store::replace(&path, &go_json::to_vec(value).unwrap()).unwrap();
    }

    fn partitions(&self, a: &str, b: &str) {
        for (label, state) in [("IMGA", a), ("IMGB", b)] {
            let status = ZbootStatus {
                partition_label: label.into(),
                partition_state: state.into(),
                short_version: "14.5.0-k".into(),
                current_partition: label == "IMGA",
                ..ZbootStatus::default()
            };
            self.put("baseosmgr", label, &status);
        }
    }

    fn drain(&self, status: DrainStatus) {
        self.put("zedkube", "global", &NodeDrainStatus { status, requested_by: Requester::DeviceOp });
    }

    /// What a zedkube says that answers by request, on a node that takes no turns.
    fn answers(&self, status: DrainStatus) {
        self.put("zedkube", "global", &OutageAnswer { role: OutageRole::None, ..OutageAnswer::default() });
        self.answers_by_request(status);
    }

    fn answers_by_request(&self, status: DrainStatus) {
        let answer = Answer { requested_by: Requester::DeviceOp, status, ..Answer::default() };
        let progress = NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() };
        self.put("zedkube", "global", &progress);
        self.drain(status);
    }

    fn zedagent(&self, change: impl FnOnce(&mut ZedAgentStatus)) {
        let mut status = ZedAgentStatus {
            name: "zedagent".into(),
            config_get_status: ConfigGetStatus::Success,
            ..ZedAgentStatus::default()
        };
        change(&mut status);
        self.put("zedagent", "zedagent", &status);
    }

    fn command_reboot(&self) {
        self.zedagent(|it| {
            it.reboot_cmd = true;
            it.requested_reboot_reason = REASON.into();
            it.requested_boot_reason = BootReason::RebootCmd;
        });
    }

    fn recorded(&self) -> Vec<(MachineOperation, String)> {
        device::recorded(&self.topic_root).unwrap().into_iter().map(|it| (it.operation, it.reason)).collect()
    }

    /// Waits until `file` is as wanted, and returns its text.
    async fn until(&self, file: &str, wanted: impl Fn(&str) -> bool) -> String {
        let rule = FileRule { limit_bytes: 1 << 20, order: false };
        let mut watch = self.topic_root.file(self.topic_root.path(file), rule);
        let mut last = String::new();
        let seen = async {
            loop {
                if let FileState::Present(bytes) = watch.next().await {
                    last = String::from_utf8(bytes).unwrap();
                    if wanted(&last) {
                        return;
                    }
                }
            }
        };
        let in_time = tokio::time::timeout(TOO_LONG, seen).await.is_ok();
        assert!(in_time, "{file} stays\n{last}");
        last
    }

    async fn status(&self, wanted: impl Fn(&NodeAgentStatus) -> bool) -> NodeAgentStatus {
        let parse = |text: &str| go_json::from_slice::<NodeAgentStatus>(text.as_bytes()).unwrap();
        parse(&self.until(STATUS, |text| wanted(&parse(text))).await)
    }

    async fn until_recorded(&self) -> Vec<(MachineOperation, String)> {
        self.until(device::RECORD, |_| true).await;
        self.recorded()
    }

    async fn until_journal(&self, word: &str) {
        self.until(journal::PATH, |text| text.contains(word)).await;
    }

    async fn ended(&mut self) -> Result<(), Error> {
        let (_stopper, mut running) = self.agent.take().unwrap();
        let ended = tokio::time::timeout(TOO_LONG, running.join_next()).await;
        ended.expect("the agent goes on").unwrap().unwrap()
    }
}
