//! A node with an embedded cluster and real files, on a clock that stands still.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use agent::{AgentContext, Clock, Stopper, Troubles};
use kube::Client;
use kubeapi::{ApiClient, NodeName, OwnNode};
use kubesim::{Sim, SimConfig};
use pubsub::{TopicRoot, store};
use serde_json::Value;
use step::Mono;
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;

pub(crate) const APPS: &str = "eve-kube-app";
/// A state that takes longer on the paused clock does not come.
const PATIENCE: Duration = Duration::from_mins(20);
const LOOK: Duration = Duration::from_millis(100);

/// What is logged in this thread. Every test listens: what a test without a listener says first would be left out in all.
pub(crate) struct Lines {
    file: tempfile::NamedTempFile,
    _ear: DefaultGuard,
}

impl Lines {
    fn open() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_writer(file.reopen().unwrap()).with_ansi(false).finish();
        Self { file, _ear: tracing::subscriber::set_default(log) }
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(self.file.path()).unwrap()
    }
}

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) context: AgentContext,
    pub(crate) troubles: Troubles,
    pub(crate) lines: Lines,
    pub(crate) patience: Duration,
    _stopper: Stopper,
    _root: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::on(Sim::new(SimConfig::default()))
    }

    pub(crate) fn on(sim: Sim) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let troubles = Troubles::open(&topic_root, context.clock, "zedkube");
        let lines = Lines::open();
        Self { sim, context, troubles, lines, patience: PATIENCE, _stopper: stopper, _root: root }
    }

    pub(crate) fn cluster(&self) -> ApiClient {
        ApiClient::from_client(Client::new(self.sim.service(), "default"))
    }

    pub(crate) fn write(&self, path: &str, value: &Value) {
        store::replace(&self.context.topic_root.path(path), value.to_string().as_bytes()).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.context.topic_root.path(path)).ok()
    }

    /// Changes when the file is replaced.
    pub(crate) fn inode(&self, path: &str) -> Option<u64> {
        std::fs::metadata(self.context.topic_root.path(path)).ok().map(|it| it.ino())
    }

    pub(crate) fn now(&self) -> Mono {
        self.context.clock.now()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.context.clock.sleep_until(Some(self.now() + time)).await;
    }

    /// Waits until it is as wanted; returns the time.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) -> Duration {
        let began = self.now();
        while !wanted(self) {
            assert!(self.now() < began + self.patience, "waited for {what}: {}", self.lines.text());
            self.pass(LOOK).await;
        }
        self.now().since(began)
    }

    /// Requests so far whose path holds `path`, and how many of them were no watch.
    pub(crate) fn requests(&self, path: &str) -> (usize, usize) {
        let seen = self.sim.faults().requests().into_iter().filter(|it| it.uri.contains(path));
        seen.fold((0, 0), |(all, lists), it| (all + 1, lists + usize::from(!it.uri.contains("watch=true"))))
    }
}

pub(crate) fn own_node(node: &str) -> OwnNode {
    let own_node = OwnNode::default();
    own_node.set(NodeName::parse(node).unwrap(), format!("device-of-{node}"));
    own_node
}

/// A sample of the reference.
pub(crate) fn golden(topic: &str, sample: &str) -> String {
    let path = format!("{}/../../tests/golden/{topic}/{sample}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}
