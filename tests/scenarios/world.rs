//! A device in a temporary root, a three-node cluster, and agents that can be started, killed and rebooted.

use std::time::Duration;

use agent::device::{self, Choice, Recorded};
use agent::{Clock, Station, Stop, Stopper, wire};
use pubsub::{Bus, Change, FileRule, FileState, store};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use topics::{DrainStatus, NodeDrainStatus, Topic, go_json};

use crate::cluster::Cluster;

/// A state that takes longer than this does not come: generous, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The four agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agent {
    Zedagent,
    Baseosmgr,
    Nodeagent,
    Zedkube,
}

impl Agent {
    pub(crate) const ALL: [Self; 4] = [Self::Zedagent, Self::Baseosmgr, Self::Nodeagent, Self::Zedkube];
}

/// Waits and counts of the agents in a test.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) zedagent: zedagent::Limits,
    pub(crate) baseosmgr: baseosmgr::Limits,
    pub(crate) nodeagent: nodeagent::Limits,
    pub(crate) zedkube: zedkube::Limits,
}

pub(crate) struct World {
    root: TempDir,
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) cluster: Cluster,
    pub(crate) limits: Limits,
    running: Vec<(Agent, Stopper, JoinSet<()>)>,
}

impl World {
    /// A device that has carried out reboot `6` and is a member of an idle cluster; no agent runs.
    pub(crate) async fn new() -> Self {
        Self::with(Cluster::shop().await)
    }

    pub(crate) fn with(cluster: Cluster) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        let world = Self { root, bus, clock: Clock::new(), cluster, limits: brisk(), running: Vec::new() };
        world.put("etc/eve-release", "14.5.0-lts-kubevirt-amd64");
        world.put("persist/status/rebootConfig", r#"{"Counter":6,"DesiredState":true,"OpsTime":""}"#);
        world.config(&reboot_config(6));
        world
    }

    /// Writes a file as the machine or a person would.
    pub(crate) fn put(&self, path: &str, text: &str) {
        store::replace(&self.bus.path(path), text.as_bytes()).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = store::read(&self.bus.path(path), 1 << 20).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn config(&self, config: &Value) {
        self.put("persist/config/edge-dev-config.json", &config.to_string());
    }

    /// The controller asks for reboot `counter`.
    pub(crate) fn ask_reboot(&self, counter: u32) {
        self.config(&reboot_config(counter));
    }

    pub(crate) fn start(&mut self, agent: Agent) {
        let (stopper, stop) = Stop::new();
        let boot_id = Choice::Record.boot_id(&self.bus).unwrap();
        let station = Station { bus: self.bus.clone(), clock: self.clock, stop, boot_id };
        let (limits, cluster) = (self.limits.clone(), self.cluster.handle());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let ended = match agent {
                Agent::Zedagent => zedagent::run(station, limits.zedagent).await,
                Agent::Baseosmgr => {
                    let zboot = agent::zboot::FileStore::open(&station.bus).unwrap();
                    baseosmgr::run(station, limits.baseosmgr, Box::new(zboot)).await
                }
                Agent::Nodeagent => {
                    let device = Choice::Record.open(&station.bus, station.clock);
                    nodeagent::run(station, limits.nodeagent, device).await
                }
                Agent::Zedkube => zedkube::run(station, limits.zedkube, cluster).await,
            };
            if let Err(error) = ended {
                panic!("{agent:?} failed: {}", agent::report::chain(&error));
            }
        });
        self.running.push((agent, stopper, task));
    }

    pub(crate) fn start_all(&mut self) {
        for agent in Agent::ALL {
            self.start(agent);
        }
    }

    /// Ends `agent` at once, wherever it is, as a kill would: nothing is tidied up.
    pub(crate) async fn kill(&mut self, agent: Agent) {
        let at = self.running.iter().position(|(running, ..)| *running == agent).unwrap();
        let (_, stopper, mut task) = self.running.remove(at);
        task.abort_all();
        while let Some(ended) = task.join_next().await {
            assert!(
                ended.is_err_and(|cause| cause.is_cancelled()),
                "{agent:?} had ended before it was killed"
            );
        }
        drop(stopper);
    }

    pub(crate) async fn kill_all(&mut self) {
        while let Some((agent, ..)) = self.running.last() {
            let agent = *agent;
            self.kill(agent).await;
        }
    }

    /// What the machine does on a reboot: all processes gone, `/run` empty, another boot identity, the boot
    /// loader's choice of partition made anew. The node is away for that time.
    pub(crate) async fn reboot(&mut self) {
        self.kill_all().await;
        self.cluster.node_down();
        std::fs::remove_dir_all(self.root.path().join("run")).unwrap();
        self.bus = Bus::open(self.root.path()).unwrap();
        self.cluster.node_up();
    }

    /// Operations that the stand-in device was asked for.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        device::recorded(&self.bus).unwrap()
    }

    /// Waits until the stand-in device was asked for its `count`th operation.
    pub(crate) async fn recorded_count(&self, count: usize) {
        let mut watch =
            self.bus.file(self.bus.path(device::RECORD), FileRule { limit_bytes: 1 << 20, order: false });
        let seen = async {
            while self.recorded().len() < count {
                watch.next().await;
            }
        };
        self.patiently(&format!("operation number {count} of the device"), seen).await;
    }

    /// Waits until `file` holds a text that is as wanted, or is absent for `None`.
    pub(crate) async fn until_file(&self, file: &str, what: &str, wanted: impl Fn(Option<&str>) -> bool) {
        let rule = FileRule { limit_bytes: 1 << 20, order: false };
        let mut watch = self.bus.file(self.bus.path(file), rule);
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

    /// Waits until the one value of `agent`'s topic `T`, or its absence, is as wanted, and returns it.
    pub(crate) async fn until<T: Topic>(
        &self,
        agent: &str,
        what: &str,
        wanted: impl Fn(Option<&T>) -> bool,
    ) -> Option<T> {
        let mut subscription = self.bus.subscription(&wire::name::<T>(agent), wire::codec::<T>());
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

    /// Waits until NodeDrainStatus is `status`.
    pub(crate) async fn status(&self, status: DrainStatus) -> NodeDrainStatus {
        let what = format!("NodeDrainStatus {status:?}");
        self.until::<NodeDrainStatus>("zedkube", &what, |it| it.is_some_and(|it| it.status == status))
            .await
            .unwrap()
    }

    /// Waits until reboot `counter` counts as executed and nothing is pending.
    pub(crate) async fn executed(&self, counter: u32) {
        let wanted = format!("\"Counter\":{counter},");
        let what = format!("reboot {counter} to count as executed");
        self.until_file("persist/status/rebootConfig", &what, |text| {
            text.is_some_and(|it| it.contains(&wanted))
        })
        .await;
        self.until_file(PENDING, "nothing pending", |text| text.is_none()).await;
    }

    /// The value of a topic file right now.
    pub(crate) fn read<T: Topic>(&self, path: &str) -> Option<T> {
        let bytes = store::read(&self.bus.path(path), 1 << 20).unwrap()?;
        Some(go_json::from_slice(&bytes).unwrap())
    }

    async fn patiently<T>(&self, what: &str, wait: impl Future<Output = T>) -> T {
        tokio::select! {
            seen = wait => seen,
            () = self.clock.sleep_until(Some(self.clock.now() + PATIENCE)) => {
                panic!(
                    "waited {} s for {what}\nprogress: {:?}\nstatus: {:?}\npending: {:?}\nimage: {:?}\nrecorded: {:?}",
                    PATIENCE.as_secs(),
                    self.text("run/zedkube/NodeDrainProgress/global.json"),
                    self.text("run/zedkube/NodeDrainStatus/global.json"),
                    self.text(PENDING),
                    self.text("run/baseosmgr/BaseOsStatus/5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01.json"),
                    self.recorded(),
                )
            }
        }
    }
}

/// The pending reboot.
pub(crate) const PENDING: &str = "persist/status/zedagent/DeviceOpPending/reboot.json";

/// The reference's reboot command with another counter.
pub(crate) fn reboot_config(counter: u32) -> Value {
    let mut config: Value =
        serde_json::from_str(include_str!("../golden/EdgeDevConfig/cluster-reboot.json")).unwrap();
    config["reboot"]["counter"] = counter.into();
    config
}

fn brisk() -> Limits {
    let mut limits = Limits {
        zedagent: zedagent::Limits::default(),
        baseosmgr: baseosmgr::Limits::default(),
        nodeagent: nodeagent::Limits::default(),
        zedkube: zedkube::Limits::default(),
    };
    limits.nodeagent.min_reboot_delay_ms = 20;

    limits.zedkube.uncordon_poll_ms = 50;
    limits
}
