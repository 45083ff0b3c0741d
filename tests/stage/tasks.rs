//! Agents as tasks of the test's process.

use std::sync::Arc;

use agent::AgentContext;
use agent::device::DeviceChoice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::{AbortHandle, JoinSet};

use crate::Agent;

/// Starts `agent`; the handle ends it from any thread. What it writes at its end finds `root` there.
pub(crate) fn start(
    agent: Agent,
    context: AgentContext,
    limits: Value,
    cluster: kubeapi::ApiClient,
    root: Arc<TempDir>,
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
            panic!("{agent:?} failed: {}", agent::report::chain(&error));
        }
    });
    (task, handle)
}

fn limits_of<L: DeserializeOwned + Default>(all: &Value, agent: Agent) -> L {
    all.get(agent.name()).map_or_else(L::default, |own| serde_json::from_value(own.clone()).unwrap())
}
