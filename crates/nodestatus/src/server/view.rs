//! What page and figures tell, as it is on disk at this moment: this node's name and topics of this agent. No config,
//! so no secret, comes in here.

use agent::wire;
use pubsub::{Bus, FILE_LIMIT_BYTES, store};
use serde::Deserialize;
use topics::{
    DrainHistory, EdgeNodeInfo, KubeClusterInfo, KubeLeaderElectInfo, KubeNodeInfo, KubeStatsState,
    NodeDrainProgress, Topic,
};

use crate::{GLOBAL, NAME};

/// What is known; what is not there, or cannot be used, is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// Name of the Kubernetes node, or empty.
    pub(super) node: String,
    pub(super) progress: Option<NodeDrainProgress>,
    pub(super) history: Option<DrainHistory>,
    pub(super) leader: Option<KubeLeaderElectInfo>,
    /// The nodes as this node reports them, while it leads.
    pub(super) nodes: Option<Vec<KubeNodeInfo>>,
    /// What is wrong with that report.
    pub(super) stats: Option<KubeStatsState>,
}

/// The one member of KubeClusterInfo that is told. The others may be large, and are not even built.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Nodes {
    nodes: Option<Vec<KubeNodeInfo>>,
}

impl View {
    /// Reads it all.
    pub(super) fn read(bus: &Bus) -> Self {
        let leader: Option<KubeLeaderElectInfo> = peek(bus, NAME, GLOBAL);
        let leads = leader.as_ref().is_some_and(|it| it.is_stats_leader);
        Self {
            node: peek(bus, "zedagent", GLOBAL)
                .map_or_else(String::new, |info: EdgeNodeInfo| info.kube_name()),
            progress: peek(bus, NAME, GLOBAL),
            history: peek(bus, NAME, GLOBAL),
            nodes: leads.then(|| nodes(bus)).flatten(),
            stats: if leads { peek(bus, NAME, GLOBAL) } else { None },
            leader,
        }
    }
}

/// For display: what cannot be read now is there again at the next look.
fn peek<T: Topic>(bus: &Bus, agent: &str, key: &str) -> Option<T> {
    wire::peek(bus, agent, key).ok().flatten()
}

fn nodes(bus: &Bus) -> Option<Vec<KubeNodeInfo>> {
    let bytes = store::read(&wire::path::<KubeClusterInfo>(bus, NAME, GLOBAL), FILE_LIMIT_BYTES).ok()??;
    serde_json::from_slice::<Nodes>(&bytes).ok()?.nodes
}
