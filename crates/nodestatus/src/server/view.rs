//! What page and figures show, as it is on disk at this moment: this node's name and its drain (`sheet`), and what this
//! agent reports of the cluster. No config, so no secret, comes in here.

use agent::{Clock, wire};
use pubsub::{FILE_LIMIT_BYTES, TopicRoot, store};
use serde::Deserialize;
use sheet::DrainView;
use topics::{EdgeNodeInfo, KubeClusterInfo, KubeLeaderElectInfo, KubeNodeInfo, KubeStatsState, Topic};

use crate::{GLOBAL, NAME};

/// What is known; what is not there, or cannot be used, is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeView {
    /// Name of the Kubernetes node, or empty.
    pub(super) node: String,
    pub(super) drain: DrainView,
    pub(super) leader: Option<KubeLeaderElectInfo>,
    /// The nodes as this node reports them, while it leads.
    pub(super) nodes: Option<Vec<KubeNodeInfo>>,
    /// What is wrong with that report.
    pub(super) stats: Option<KubeStatsState>,
}

/// The one member of KubeClusterInfo that is shown. The others may be large, and are not even built.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Nodes {
    nodes: Option<Vec<KubeNodeInfo>>,
}

impl NodeView {
    /// Reads it all now.
    pub(super) fn read(topic_root: &TopicRoot, clock: Clock) -> Self {
        let leader: Option<KubeLeaderElectInfo> = peek(topic_root, NAME);
        let leads = leader.as_ref().is_some_and(|it| it.is_stats_leader);
        Self {
            node: peek(topic_root, "zedagent")
                .map_or_else(String::new, |info: EdgeNodeInfo| info.kube_name()),
            drain: DrainView::read(topic_root, clock),
            nodes: leads.then(|| nodes(topic_root)).flatten(),
            stats: if leads { peek(topic_root, NAME) } else { None },
            leader,
        }
    }
}

/// For display: what cannot be read now is there again at the next look.
fn peek<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Option<T> {
    wire::peek(topic_root, agent, GLOBAL).ok().flatten()
}

fn nodes(topic_root: &TopicRoot) -> Option<Vec<KubeNodeInfo>> {
    let bytes =
        store::read(&wire::path::<KubeClusterInfo>(topic_root, NAME, GLOBAL), FILE_LIMIT_BYTES).ok()??;
    serde_json::from_slice::<Nodes>(&bytes).ok()?.nodes
}
