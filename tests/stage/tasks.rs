//! Agents as tasks of the test's process.

use agent::Station;
use agent::device::Choice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use crate::Agent;

/// Starts `agent`; the handle ends it from any thread.
pub(crate) fn start(
    agent: Agent,
    station: Station,
    limits: Value,
    cluster: kubeapi::Cluster,
) -> (JoinSet<()>, AbortHandle) {
    let mut task = JoinSet::new();
    let handle = task.spawn(async move {
        let ended = match agent {
            Agent::Zedagent => zedagent::run(station, limits_of(&limits, agent)).await,
            Agent::Baseosmgr => {
                let bus = station.bus.clone();
                let zboot = || agent::partitions::Choice::Record.open(&bus, None);
                baseosmgr::run(station, limits_of(&limits, agent), zboot).await
            }
            Agent::Nodeagent => {
                let device = Choice::Record.open(&station.bus, station.clock);
                nodeagent::run(station, limits_of(&limits, agent), device).await
            }
            Agent::Zedkube => zedkube::run(station, limits_of(&limits, agent), cluster).await,
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
