//! The whole agent on a root of its own: files in, files out, compared with the reference's samples.
//!
//! Container images of a version: here before its drain, cleaned up after its test.
//!
//! A device without image partitions.
//!
//! Named partitions that are unreadable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::partitions::{
    BootResult, ImageToWrite, Label, PartitionState, PartitionStore, PartitionWork, Partitions,
    PartitionsChoice, Percent, RecordStore,
};
use agent::{AgentContext, Clock, Error, Stopper, wire};
use pubsub::{Change, FileRule, FileState, TopicRoot, store};
use tokio::task::JoinSet;
use topics::{
    Answer, BaseOSMgrStatus, BaseOsConfig, BaseOsStatus, ConfigGetStatus, ContentTreeStatus, DrainStatus,
    EdgeNodeClusterConfig, LeavePhase, NodeAgentStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus,
    NodeLeave, Requester, SwState, Topic, ZbootConfig, ZbootStatus, ZedAgentStatus, go_json,
};

use crate::Limits;

mod disk;

const KEY: &str = "2e1f0d3c-4b5a-4697-8897-a6b5c4d3e2f1";
const OLD: &str = "14.4.0-k-amd64";
/// Nothing here takes this long; a test that waits so long has failed.
const TOO_LONG: Duration = Duration::from_secs(60);

fn golden(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sample<T: Topic>(file: &str) -> T {
    go_json::from_slice(&golden(&format!("{}/{file}.json", T::NAME))).unwrap()
}

/// A device with its agent and the files of all others.
struct Device {
    dir: tempfile::TempDir,
    topic_root: TopicRoot,
    clock: Clock,
    boots: u32,
    limits: Limits,
    partitions: PartitionsChoice,
    agent: Option<(Stopper, JoinSet<Result<(), Error>>)>,
}

impl Device {
    /// A clustered node that runs [`OLD`], zedkube idle, the agent running.
    fn new() -> Self {
        let mut device = Self::at_rest();
        device.cluster();
        device.start();
        device
    }

    /// An image is wanted, and its content is there.
    fn asking() -> Self {
        let device = Self::new();
        device.want();
        device.loaded();
        device
    }

    fn at_rest() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(dir.path()).unwrap();
        store::replace(&topic_root.path("etc/eve-release"), OLD.as_bytes()).unwrap();
        let limits = Limits { again_first_ms: 1, again_longest_ms: 1, ..Limits::default() };
        let (clock, partitions) = (Clock::new().off_by(0), PartitionsChoice::Record);
        Self { dir, topic_root, clock, boots: 1, limits, partitions, agent: None }
    }

    fn cluster(&self) {
        let config =
            EdgeNodeClusterConfig { initialized: true, valid: true, ..EdgeNodeClusterConfig::default() };
        self.put("zedagent", "global", &config);
        self.zedkube(DrainStatus::NotRequested, Requester::None);
    }

    fn start(&mut self) {
        let (topic_root, partitions) = (self.topic_root.clone(), self.partitions.clone());
        self.start_with(move || partitions.open(&topic_root, None));
    }

    fn start_with(
        &mut self,
        zboot: impl FnMut() -> Result<Option<Box<dyn PartitionStore>>, Error> + Send + 'static,
    ) {
        let boot_id = format!("boot-{}", self.boots);
        let (stopper, context) = AgentContext::alone(&self.topic_root, self.clock, &boot_id);
        let mut running = JoinSet::new();
        running.spawn(crate::run(context, self.limits.clone(), zboot));
        self.agent = Some((stopper, running));
    }

    async fn stop(&mut self) {
        let (stopper, mut running) = self.agent.take().unwrap();
        stopper.stop();
        running.join_next().await.unwrap().unwrap().unwrap();
    }

    async fn kill(&mut self) {
        let (_stopper, mut running) = self.agent.take().unwrap();
        running.shutdown().await;
    }

    /// The machine restarts: what is volatile goes.
    async fn boot(&mut self) {
        self.kill().await;
        std::fs::remove_dir_all(self.dir.path().join("run")).unwrap();
        self.boots += 1;
        self.cluster();
        self.start();
    }

    fn put<T: Topic>(&self, agent: &str, key: &str, value: &T) {
        agent::publication::<T>(&self.topic_root, agent).unwrap().publish(key, value).unwrap();
    }

    fn zedkube(&self, status: DrainStatus, requested_by: Requester) {
        self.put("zedkube", "global", &NodeDrainStatus { status, requested_by });
    }

    async fn answer(&self, status: DrainStatus) -> NodeDrainRequest {
        self.answer_as(status, false).await
    }

    async fn answer_as(&self, status: DrainStatus, forced: bool) -> NodeDrainRequest {
        let request = self.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
        let answer = Answer {
            requested_by: request.requested_by,
            requested_at: request.requested_at,
            context: request.context.clone(),
            status,
            skip_kind: if forced { topics::SkipKind::Forced } else { topics::SkipKind::None },
            ..Answer::default()
        };
        self.put(
            "zedkube",
            "global",
            &NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() },
        );
        self.zedkube(status, Requester::Update);
        request
    }

    fn want(&self) {
        self.put("zedagent", KEY, &sample::<BaseOsConfig>("activate"));
    }

    fn loaded(&self) {
        self.put("volumemgr", KEY, &sample::<ContentTreeStatus>("loaded"));
    }

    async fn until<T: Topic>(&self, agent: &str, key: &str, such: impl Fn(&T) -> bool) -> T {
        let mut subscription = self.topic_root.subscription::<T>(&wire::name::<T>(agent), wire::codec());
        let found = async {
            loop {
                if let Change::Put { key: found, value, .. } = subscription.next().await
                    && found == key
                    && such(&value)
                {
                    return value;
                }
            }
        };
        tokio::time::timeout(TOO_LONG, found).await.unwrap_or_else(|_| panic!("no such {} {key}", T::NAME))
    }

    /// Waits until `key` is not published.
    async fn until_gone<T: Topic>(&self, agent: &str, key: &str) {
        let mut subscription = self.topic_root.subscription::<T>(&wire::name::<T>(agent), wire::codec());
        let gone = async {
            loop {
                match subscription.next().await {
                    Change::Gone { key: gone, .. } if gone == key => return,
                    Change::Synced if subscription.get(key).is_none() => return,
                    Change::Put { .. }
                    | Change::Gone { .. }
                    | Change::Synced
                    | Change::Restarted(_)
                    | Change::Bad(_) => {}
                }
            }
        };
        tokio::time::timeout(TOO_LONG, gone).await.unwrap_or_else(|_| panic!("{} {key} stays", T::NAME));
    }

    /// Waits for the value of a sample and compares the bytes with it.
    async fn until_golden<T: Topic>(&self, key: &str, file: &str) {
        self.until::<T>("baseosmgr", key, |value| *value == sample::<T>(file)).await;
        let bytes = std::fs::read(self.file::<T>(key)).unwrap();
        let sample = golden(&format!("{}/{file}.json", T::NAME));
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&sample), "{file}");
    }

    async fn until_file(&self, path: &str, text: &str) {
        self.until_state(path, &FileState::Present(text.as_bytes().to_vec())).await;
    }

    async fn until_state(&self, path: &str, state: &FileState) {
        let mut watch =
            self.topic_root.file(self.topic_root.path(path), FileRule { limit_bytes: 1 << 10, order: false });
        let such = async { while watch.next().await != *state {} };
        tokio::time::timeout(TOO_LONG, such).await.unwrap_or_else(|_| panic!("{path} is never {state:?}"));
    }

    fn file<T: Topic>(&self, key: &str) -> PathBuf {
        wire::name::<T>("baseosmgr").dir(self.dir.path()).join(format!("{key}.json"))
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.topic_root.path(path)).unwrap_or_default()
    }
}

#[tokio::test]
async fn an_update_goes_its_whole_way_through_the_files_of_the_reference() {
    let mut device = Device::new();
    device.until_golden::<ZbootStatus>("IMGB", "imgb-unused").await;
    let config = BaseOsConfig { activate: false, ..sample("activate") };
    device.put("zedagent", KEY, &config);
    let tree = ContentTreeStatus { state: SwState::Downloading, ..sample("loaded") };
    device.put("volumemgr", KEY, &tree);
    device.until_golden::<BaseOsStatus>(KEY, "downloading").await;
    device.loaded();
    device.until_golden::<BaseOsStatus>(KEY, "loaded").await;

    device.want();
    let request = device.answer(DrainStatus::Cordoned).await;
    assert_eq!((request.requested_by, request.context.as_str()), (Requester::Update, KEY));
    assert!(device.text("persist/zboot/IMGB.img").contains(KEY));
    device.answer(DrainStatus::Complete).await;
    device.until_golden::<ZbootStatus>("IMGB", "imgb-updating").await;
    device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
    assert!(device.file::<NodeDrainRequest>("global").exists(), "the node stays drained until the reboot");

    device.boot().await;
    device.want();
    let in_test = device.until::<ZbootStatus>("baseosmgr", "IMGB", |_| true).await;
    assert_eq!((in_test.partition_state.as_str(), in_test.current_partition), ("inprogress", true));
    let passed: ZbootConfig = sample("imgb-testcomplete");
    device.put("nodeagent", "IMGB", &passed);
    device.until_golden::<BaseOsStatus>(KEY, "installed-active").await;
    device
        .until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.test_complete && it.partition_state == "active")
        .await;
    device.until::<ZbootStatus>("baseosmgr", "IMGA", |it| it.partition_state == "unused").await;
    device.put("nodeagent", "IMGB", &ZbootConfig { test_complete: false, ..passed });
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| !it.test_complete).await;
}

#[tokio::test]
async fn a_machine_that_starts_on_its_way_out_of_the_cluster_asks_before_it_switches() {
    let leave = |phase| NodeLeave { phase, ..NodeLeave::default() };
    let mut device = Device::new();
    device.kill().await;
    std::fs::remove_dir_all(device.dir.path().join("run")).unwrap();
    let config = EdgeNodeClusterConfig { initialized: true, ..EdgeNodeClusterConfig::default() };
    device.put("zedagent", "global", &config);
    device.put("zedkube", "global", &leave(LeavePhase::Draining));
    device.want();
    device.loaded();
    device.start();
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| !it.short_version.is_empty()).await;
    // zedkube speaks only now.
    device.zedkube(DrainStatus::NotRequested, Requester::None);
    device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
    device.put("zedkube", "global", &leave(LeavePhase::Left));
    device.zedkube(DrainStatus::NotSupported, Requester::None);
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "updating").await;
}

#[tokio::test]
async fn partitions_are_said_to_be_ready_at_each_start_and_counted_anew() {
    let mut device = Device::new();
    let path = "run/baseosmgr/ZbootStatus/restarted";
    device.until_file(path, "1").await;
    for label in ["IMGA", "IMGB"] {
        assert!(device.file::<ZbootStatus>(label).exists(), "{label} comes before");
    }
    device.kill().await;
    store::replace(&device.topic_root.path(path), b"7").unwrap();
    device.start();
    device.until_file(path, "1").await;
}

#[tokio::test]
async fn an_agent_that_is_killed_in_the_middle_of_a_drain_keeps_its_request_and_goes_on() {
    let mut device = Device::asking();
    let request = device.answer(DrainStatus::Cordoned).await;
    device.kill().await;
    device.zedkube(DrainStatus::DrainRetrying, Requester::Update);
    device.start();
    device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.partition_label == "IMGB").await;
    assert_eq!(device.answer(DrainStatus::Complete).await, request);
    device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
}

#[tokio::test]
async fn an_agent_that_is_told_to_leave_leaves_what_it_will_go_on_from() {
    let mut device = Device::asking();
    let request = device.answer(DrainStatus::Cordoned).await;
    device.stop().await;
    let kept = go_json::from_slice::<NodeDrainRequest>(
        &std::fs::read(device.file::<NodeDrainRequest>("global")).unwrap(),
    );
    assert_eq!(kept.unwrap(), request);
}

#[tokio::test]
async fn a_complete_that_came_while_the_agent_was_down_is_heard_at_its_start() {
    let mut device = Device::asking();
    device.answer(DrainStatus::Cordoned).await;
    device.kill().await;
    device.answer(DrainStatus::Complete).await;
    device.start();
    device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
}

#[tokio::test]
async fn a_force_file_releases_the_update_and_is_removed_once_zedkube_has_answered_by_it() {
    let device = Device::asking();
    device.answer(DrainStatus::Cordoned).await;
    let path = device.topic_root.path(topics::FORCE_FILE);
    store::replace(&path, br#"{"Status":9}"#).unwrap();
    store::replace(&path, br#"{"Status":9,"RequestedBy":3}"#).unwrap();
    device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
    device.answer_as(DrainStatus::Complete, true).await;
    device.until_state(topics::FORCE_FILE, &FileState::Absent).await;
}

#[tokio::test]
async fn counters_are_kept_in_the_files_of_the_reference() {
    let device = Device::new();
    let config = BaseOsConfig { retry_update_counter: 3, ..sample("activate") };
    device.put("zedagent", KEY, &config);
    device.until_golden::<BaseOSMgrStatus>("global", "counter-3").await;
    assert_eq!(device.text("persist/status/current_retry_update_counter"), "3");
    assert_eq!(device.text("persist/status/config_retry_update_counter"), "3");
    device.put(
        "zedagent",
        "zedagent",
        &ZedAgentStatus {
            force_fallback_counter: 6,
            config_get_status: ConfigGetStatus::Success,
            ..ZedAgentStatus::default()
        },
    );
    device.loaded();
    device.answer(DrainStatus::Complete).await;
    device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
    device.until_file("persist/checkpoint/forceFallbackCounter", "6").await;
}

#[tokio::test]
async fn the_file_that_the_content_names_is_written_and_a_missing_one_is_told() {
    let device = Device::new();
    device.want();
    let tree = ContentTreeStatus { file_location: "/persist/images/new".to_owned(), ..sample("loaded") };
    device.put("volumemgr", KEY, &tree);
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    assert!(status.error.contains("persist/images/new"), "{}", status.error);
    store::replace(&device.topic_root.path("persist/images/new"), b"the image").unwrap();
    device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
    assert_eq!(device.text("persist/zboot/IMGB.img"), "the image");
}

/// A program that records its arguments, and whose pull succeeds once the file `here` exists.
fn program(device: &Device) -> PathBuf {
    let dir = device.dir.path().display();
    let lines = format!(
        "#!/bin/sh\necho \"$@\" >>{dir}/calls\n[ $1 = clean ] || [ -e {dir}/here ] || {{ echo shop/web:2 >&2; exit 1; }}\n"
    );
    let path = device.dir.path().join("images");
    // By another process: a child of another test may still hold a file that this one wrote, and then it is busy.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#])
        .arg(&path)
        .arg(lines)
        .status();
    assert!(written.unwrap().success());
    path
}

#[tokio::test]
async fn an_image_is_written_and_its_drain_asked_for_only_once_its_container_images_are_here() {
    let mut device = Device::at_rest();
    device.cluster();
    device.limits.image_program = program(&device).display().to_string();
    device.start();
    device.want();
    device.loaded();
    let missing = |it: &BaseOsStatus| it.error.contains("are not here") && it.error.contains("shop/web:2");
    device.until::<BaseOsStatus>("baseosmgr", KEY, missing).await;
    assert!(!device.file::<NodeDrainRequest>("global").exists(), "a drain was asked for");
    assert!(!device.topic_root.path("persist/zboot/IMGB.img").exists(), "an image was written");
    store::replace(&device.dir.path().join("here"), b"").unwrap();
    device.answer(DrainStatus::Complete).await;
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "updating").await;
    let calls = || std::fs::read_to_string(device.dir.path().join("calls")).unwrap();
    assert!(calls().lines().all(|it| it == "pull 14.5.0-k-amd64"), "{}", calls());
    device.boot().await;
    device.put("nodeagent", "IMGB", &sample::<ZbootConfig>("imgb-testcomplete"));
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |it| it.partition_state == "active").await;
    let cleaned = async {
        while !std::fs::read_to_string(device.dir.path().join("calls")).unwrap().contains("clean") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TOO_LONG, cleaned).await.expect("nothing is cleaned up");
    let calls = std::fs::read_to_string(device.dir.path().join("calls")).unwrap();
    assert_eq!(calls.lines().last(), Some("clean 14.5.0-k-amd64"));
}

/// A clustered node with an image to switch to, and an agent without partitions.
async fn without_partitions() -> Device {
    let mut device = Device::new();
    // This run's stand-in partitions must not stay.
    device.until::<ZbootStatus>("baseosmgr", "IMGB", |_| true).await;
    device.kill().await;
    device.want();
    device.loaded();
    device.start_with(|| Ok(None));
    device
}

#[tokio::test]
async fn b5_without_partitions_an_update_is_refused_with_the_reason_and_nobody_is_asked_for_a_drain() {
    let mut device = without_partitions().await;
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    assert!(status.error.contains("14.5.0-k-amd64 refused"), "{}", status.error);
    assert!(status.error.contains("no image partitions"), "{}", status.error);
    assert!(!status.error_time.is_zero() && !status.error_retry_condition.is_empty());
    assert_eq!((status.state, status.activated), (SwState::Loaded, false));
    assert_eq!((status.partition_label.as_str(), status.partition_state.as_str()), ("", ""));
    device.until_gone::<ZbootStatus>("baseosmgr", "IMGA").await;
    device.until_gone::<ZbootStatus>("baseosmgr", "IMGB").await;

    // A whole update: a COMPLETE, a passed test, the running version. None of it matters.
    device.zedkube(DrainStatus::Complete, Requester::Update);
    device.put("nodeagent", "IMGA", &ZbootConfig { partition_label: "IMGA".into(), test_complete: true });
    let running = BaseOsConfig { base_os_version: OLD.to_owned(), ..sample("activate") };
    device.put("zedagent", KEY, &running);
    let refused = |it: &BaseOsStatus| it.base_os_version == OLD && !it.error.is_empty();
    let status = device.until::<BaseOsStatus>("baseosmgr", KEY, refused).await;
    assert_ne!(status.state, SwState::Installed);
    assert!(!status.activated);
    device.stop().await;
    assert!(!device.file::<NodeDrainRequest>("global").exists(), "a drain was asked for");
    assert!(!device.topic_root.path("persist/zboot/IMGB.img").exists(), "an image was written");
}

#[tokio::test]
async fn b5_others_learn_that_there_are_no_partitions_and_an_image_that_is_not_wanted_any_more_goes() {
    let device = without_partitions().await;
    let mut partitions =
        device.topic_root.subscription::<ZbootStatus>(&wire::name::<ZbootStatus>("baseosmgr"), wire::codec());
    let told = async {
        let mut ready = false;
        while !ready || partitions.iter().count() > 0 {
            if let Change::Restarted(count) = partitions.next().await {
                ready = count > 0;
            }
        }
    };
    tokio::time::timeout(TOO_LONG, told).await.expect("nobody is told that all partitions are published");
    let retries = device.until::<BaseOSMgrStatus>("baseosmgr", "global", |_| true).await;
    assert_eq!(retries.current_retry_update_counter, 0);
    device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    agent::publication::<BaseOsConfig>(&device.topic_root, "zedagent").unwrap().unpublish(KEY).unwrap();
    device.until_gone::<BaseOsStatus>("baseosmgr", KEY).await;
}

#[tokio::test]
async fn b5_a_request_of_a_run_that_had_partitions_goes_unless_the_machine_is_going_down_for_it() {
    for going_down in [false, true] {
        let mut device = Device::asking();
        device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
        device.kill().await;
        let status = NodeAgentStatus { device_reboot: going_down, ..NodeAgentStatus::default() };
        device.put("nodeagent", "nodeagent", &status);
        device.start_with(|| Ok(None));
        device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.error.contains("no image partitions")).await;
        if going_down {
            device.stop().await;
            assert!(device.file::<NodeDrainRequest>("global").exists(), "the node is no longer drained");
        } else {
            device.until_gone::<NodeDrainRequest>("baseosmgr", "global").await;
        }
    }
}

#[tokio::test]
async fn k4_the_time_of_an_error_follows_a_clock_that_is_set() {
    let device = without_partitions().await;
    let before = device.until::<BaseOsStatus>("baseosmgr", KEY, |it| !it.error.is_empty()).await;
    let booted_at = device.clock.booted_at();
    for off_by in [300_000_000, -300_000_000] {
        device.clock.jump_to_off_by(off_by);
        let right = before.error_time.moved(booted_at, device.clock.booted_at());
        let is_near = |it: &BaseOsStatus| it.error_time.apart(right) < Duration::from_secs(2);
        let now = device.until::<BaseOsStatus>("baseosmgr", KEY, is_near).await;
        assert_eq!(BaseOsStatus { error_time: before.error_time, ..now }, before);
    }
}

/// Partitions that hang, or fail, until the test changes that.
struct Late {
    inner: RecordStore,
    answers: Arc<AtomicBool>,
    fails: bool,
}

impl PartitionStore for Late {
    fn read(&mut self) -> PartitionWork<Partitions> {
        self.inner.read()
    }

    fn set_state(&mut self, label: Label, state: PartitionState) -> PartitionWork<()> {
        self.inner.set_state(label, state)
    }

    fn mark_current_active(&mut self) -> PartitionWork<()> {
        self.inner.mark_current_active()
    }

    fn write_image(&mut self, label: Label, image: ImageToWrite, percent: Percent) -> PartitionWork<String> {
        self.inner.write_image(label, image, percent)
    }

    fn boot(&mut self, boot_id: &str) -> PartitionWork<BootResult> {
        if self.answers.load(Ordering::Relaxed) {
            return self.inner.boot(boot_id);
        }
        if self.fails {
            let reason = "/usr/bin/zboot curpart ended with exit status: 3".to_owned();
            return Box::pin(std::future::ready(Err(Error::Effect { doing: "keep", reason })));
        }
        Box::pin(std::future::pending())
    }
}

/// A device with an image to switch to and a drained node, whose agent restarts with unreadable partitions.
async fn with_late_partitions(fails: bool) -> (Device, Arc<AtomicBool>) {
    let mut device = Device::asking();
    device.answer(DrainStatus::Cordoned).await;
    device.kill().await;
    let answers = Arc::new(AtomicBool::new(false));
    let (topic_root, held) = (device.topic_root.clone(), answers.clone());
    device.start_with(move || {
        let inner = RecordStore::open(&topic_root)?;
        Ok(Some(Box::new(Late { inner, answers: held.clone(), fails })))
    });
    (device, answers)
}

#[tokio::test(start_paused = true)]
async fn b2_partitions_that_hang_or_fail_hold_nothing_up_but_the_update_and_are_tried_again() {
    for (fails, why) in [(false, "no answer within 5 s"), (true, "curpart ended with exit status: 3")] {
        let (device, answers) = with_late_partitions(fails).await;
        let refused = |it: &BaseOsStatus| it.error.contains("the image partitions cannot be read");
        let status = device.until::<BaseOsStatus>("baseosmgr", KEY, refused).await;
        assert!(status.error.contains(why), "{}", status.error);
        assert_eq!((status.activated, status.state), (false, SwState::Loaded));
        // Other agents that wait for the partitions at their start continue.
        device.until_file("run/baseosmgr/ZbootStatus/restarted", "1").await;
        // Unreadable partitions are no reason to give anything up.
        let request = device.until::<NodeDrainRequest>("baseosmgr", "global", |_| true).await;
        assert!(device.file::<ZbootStatus>("IMGA").exists());
        answers.store(true, Ordering::Relaxed);
        device.until::<BaseOsStatus>("baseosmgr", KEY, |it| it.error.is_empty()).await;
        assert_eq!(device.answer(DrainStatus::Complete).await, request);
        device.until_golden::<BaseOsStatus>(KEY, "installed-updating").await;
    }
}
