//! The facts of page and metrics, read from disk now: this node's name and drain (`sheet`), and this agent's
//! report of the cluster. No config, so no secret, is read.

use agent::{Clock, wire};
use pubsub::{FILE_LIMIT_BYTES, TopicRoot, store};
use serde::Deserialize;
use serde_json::value::RawValue;
use sheet::DrainView;
use topics::{
    EdgeNodeInfo, KubeClusterInfo, KubeLeaderElectInfo, KubeNodeInfo, KubeStatsState, Topic, go_json,
};

use crate::{GLOBAL, NAME};

/// No more is read of what the OS says of itself.
const WORD_BYTES: u64 = 4 << 10;

/// `None` for missing or invalid parts.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeView {
    /// Of the Kubernetes node; may be empty.
    pub(super) node: String,
    pub(super) drain: DrainView,
    pub(super) leader: Option<KubeLeaderElectInfo>,
    /// This node's report of the nodes, while it leads.
    pub(super) nodes: Option<Vec<KubeNodeInfo>>,
    /// What is wrong with that report.
    pub(super) stats: Option<KubeStatsState>,
    /// The OS that runs here, with its version; may be empty.
    pub(super) os: String,
}

/// The only shown member of KubeClusterInfo. The others may be large, and are not built.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Nodes<'a> {
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
}

impl NodeView {
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
            os: os(topic_root),
        }
    }
}

/// EVE's, or else what the OS says of itself.
fn os(topic_root: &TopicRoot) -> String {
    let read = |file| store::read_start(&topic_root.path(file), WORD_BYTES).ok().flatten();
    let text = |file| read(file).map(|it| String::from_utf8_lossy(&it).trim().to_owned());
    let name = |all: String| {
        let line = all.lines().find_map(|it| it.strip_prefix("PRETTY_NAME="))?;
        Some(line.trim_matches('"').to_owned())
    };
    let eve = text("run/eve-release").filter(|it| !it.is_empty()).map(|it| format!("EVE {it}"));
    eve.or_else(|| name(text("etc/os-release")?)).unwrap_or_default()
}

/// For display: an unreadable value is tried again at the next look.
fn peek<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Option<T> {
    wire::peek(topic_root, agent, GLOBAL).ok().flatten()
}

fn nodes(topic_root: &TopicRoot) -> Option<Vec<KubeNodeInfo>> {
    let bytes =
        store::read(&wire::path::<KubeClusterInfo>(topic_root, NAME, GLOBAL), FILE_LIMIT_BYTES).ok()??;
    go_json::from_slice(serde_json::from_slice::<Nodes<'_>>(&bytes).ok()?.nodes?.get().as_bytes()).ok()
}
