//! Agents as tasks of the test's process, and the tree that any agents write in: at its end no file of it
//! contains a planted secret, except intended ones.

use std::path::Path;
use std::sync::Arc;

use agent::AgentContext;
use agent::device::DeviceChoice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};

use crate::Agent;

/// A secret in the device config, like its datastores' secrets.
pub(crate) const PASSWORD: &str = "planted-by-the-stage-password-7730";
/// The token in kubeconfigs of processes.
pub const PLANTED_TOKEN: &str = "planted-by-the-stage-token-5512";
const PLANTED: &[u8] = b"planted-by-the-stage-";
/// Files that may hold them: the device config as the controller and zedagent keep it, also beside and in the
/// image of a mounted disk, and the kubeconfig.
const MEANT: [&str; 5] =
    ["persist/config/", "persist/checkpoint/", "kubeconfig", "persist.before/config/", "persist.img"];

#[derive(Debug)]
pub(crate) struct DeviceRoot(TempDir);

impl DeviceRoot {
    /// In memory where possible: disks are tested elsewhere.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Other files below it with a secret.
    fn telling(&self) -> Vec<String> {
        let (mut telling, mut folders) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let name = path.strip_prefix(self.path()).unwrap().display().to_string();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() && !MEANT.iter().any(|it| name.starts_with(it)) {
                    let content = std::fs::read(&path).unwrap_or_default();
                    telling.extend(content.windows(PLANTED.len()).any(|it| it == PLANTED).then_some(name));
                }
            }
        }
        telling
    }
}

impl Drop for DeviceRoot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let telling = self.telling();
            assert!(telling.is_empty(), "a secret is told by {telling:#?}");
        }
    }
}

/// Starts `agent`; the handle ends it from any thread. `root` still exists for its last writes.
pub(crate) fn start(
    agent: Agent,
    context: AgentContext,
    limits: Value,
    cluster: kubeapi::ApiClient,
    root: Arc<DeviceRoot>,
) -> (JoinSet<()>, AbortHandle) {
    let mut task = JoinSet::new();
    let handle = task.spawn(async move {
        let _root = root;
        let ended = match agent {
            Agent::Zedagent => zedagent::run(context, limits_of(&limits, agent)).await,
            Agent::Baseosmgr => {
                let topic_root = context.topic_root.clone();
                let zboot = || agent::partitions::PartitionsChoice::Record.open(&topic_root, None);
                baseosmgr::run(context, limits_of(&limits, agent), zboot).await
            }
            Agent::Nodeagent => {
                let device = DeviceChoice::Record.open(&context.topic_root, context.clock);
                nodeagent::run(context, limits_of(&limits, agent), device).await
            }
            Agent::Zedkube => zedkube::run(context, limits_of(&limits, agent), cluster).await,
        };
        if let Err(error) = ended {
            panic!("{agent:?} failed: {error:?}");
        }
    });
    (task, handle)
}

fn limits_of<L: DeserializeOwned + Default>(all: &Value, agent: Agent) -> L {
    all.get(agent.name()).map_or_else(L::default, |own| serde_json::from_value(own.clone()).unwrap())
}
