//! A node with an embedded cluster, on which one duty runs.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use agent::{AgentContext, Clock, Stopper, Troubles};
use kube::Client;
use kubeapi::ApiClient;
use kubesim::{Sim, SimConfig};
use pubsub::{TopicRoot, store};
use serde_json::Value;
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;

use crate::stats::Lines;

/// A state that takes longer on the paused clock does not come.
const PATIENCE: Duration = Duration::from_mins(20);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) context: AgentContext,
    pub(crate) troubles: Troubles,
    pub(crate) lines: Lines,
    _ear: DefaultGuard,
    _stopper: Stopper,
    _root: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (lines, ear) = Lines::open();
        let (stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let troubles = Troubles::open(&topic_root, context.clock, "zedkube");
        let sim = Sim::new(SimConfig::default());
        Self { sim, context, troubles, lines, _ear: ear, _stopper: stopper, _root: root }
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

    pub(crate) async fn pass(&self, time: Duration) {
        self.context.clock.sleep_until(Some(self.context.clock.now() + time)).await;
    }

    /// Waits until it is as wanted; returns the time.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) -> Duration {
        let began = self.context.clock.now();
        while !wanted(self) {
            let so_far = self.context.clock.now().since(began);
            assert!(so_far < PATIENCE, "waited for {what}: {}", self.lines.text());
            self.pass(LOOK).await;
        }
        self.context.clock.now().since(began)
    }

    /// Requests so far whose path holds `path`: lists, and watches.
    pub(crate) fn requests(&self, path: &str) -> (usize, usize) {
        let seen: Vec<_> =
            self.sim.faults().requests().into_iter().filter(|it| it.uri.contains(path)).collect();
        let watches = seen.iter().filter(|it| it.uri.contains("watch=true")).count();
        (seen.len() - watches, watches)
    }
}

/// Runs `duty` for as long as `course` lasts.
pub(crate) async fn beside<T>(duty: impl Future<Output = T>, course: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = course => {}
        _ = duty => unreachable!("the duty has ended"),
    }
}
