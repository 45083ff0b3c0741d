//! What page and figures tell, as it is on disk at this moment: this node's name and topics of this agent, and of others
//! what is asked of it and held up. No config, so no secret, comes in here.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use agent::{operator, wire};
use pubsub::{FILE_LIMIT_BYTES, FileState, TopicRoot, store};
use serde::Deserialize;
use topics::{
    AgentTrouble, DeviceOp, DeviceOpPending, DrainHistory, DrainPreflight, EdgeNodeInfo, GoTime,
    KubeClusterInfo, KubeLeaderElectInfo, KubeNodeInfo, KubeStatsState, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, OutageQuestion, Requester, Topic, Trouble, go_json,
};

use crate::{GLOBAL, NAME};

/// Who asks for drains by a topic; a person does by a file.
const REQUESTERS: [&str; 3] = ["zedagent", "baseosmgr", NAME];
/// Who has troubles to tell.
const AGENTS: [&str; 4] = ["zedagent", "baseosmgr", "nodeagent", NAME];

/// What is known; what is not there, or cannot be used, is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeView {
    /// Name of the Kubernetes node, or empty.
    pub(super) node: String,
    pub(super) status: Option<NodeDrainStatus>,
    pub(super) progress: Option<NodeDrainProgress>,
    /// The progress was written in another boot.
    pub(super) earlier_boot: bool,
    /// The drain half of zedkube had no turn for so long; `None` where that is not known.
    pub(super) silent: Option<Duration>,
    /// The requests that exist now.
    pub(super) requests: Vec<NodeDrainRequest>,
    pub(super) preflight: Option<DrainPreflight>,
    /// Reboots and shutdowns that are not yet carried out.
    pub(super) pending: Vec<DeviceOpPending>,
    /// Why nodeagent holds the machine at the last moment.
    pub(super) last_look: Option<OutageQuestion>,
    /// A request, an operation or that question is there and cannot be used: what is asked for is not known.
    pub(super) blind: bool,
    /// The first trouble with a file that something waits for.
    pub(super) trouble: Option<Trouble>,
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

impl NodeView {
    /// Reads it all at `now`; `boot_id` is empty where it is not known.
    pub(super) fn read(topic_root: &TopicRoot, boot_id: &str, now: GoTime) -> Self {
        let leader: Option<KubeLeaderElectInfo> = peek(topic_root, NAME, GLOBAL);
        let leads = leader.as_ref().is_some_and(|it| it.is_stats_leader);
        // zedkube writes the progress before its status: a COMPLETE that is read here has its answers.
        let status = peek(topic_root, NAME, GLOBAL);
        let progress: Option<NodeDrainProgress> = peek(topic_root, NAME, GLOBAL);
        let of_other_boot =
            |it: &NodeDrainProgress| !boot_id.is_empty() && !it.boot_id.is_empty() && it.boot_id != boot_id;
        let by_topic =
            REQUESTERS.iter().filter_map(|agent| peek::<NodeDrainRequest>(topic_root, agent, GLOBAL));
        let ops = [DeviceOp::Reboot, DeviceOp::Shutdown];
        let troubles = AGENTS.iter().filter_map(|agent| peek::<AgentTrouble>(topic_root, agent, GLOBAL));
        Self {
            node: peek(topic_root, "zedagent", GLOBAL)
                .map_or_else(String::new, |info: EdgeNodeInfo| info.kube_name()),
            status,
            earlier_boot: progress.as_ref().is_some_and(of_other_boot),
            progress,
            silent: since_touch(topic_root, now),
            requests: by_topic.chain(persons(topic_root)).collect(),
            preflight: peek(topic_root, NAME, GLOBAL),
            pending: ops.iter().filter_map(|op| peek(topic_root, "zedagent", op.word())).collect(),
            blind: REQUESTERS.iter().any(|agent| unread::<NodeDrainRequest>(topic_root, agent, GLOBAL))
                || ops.iter().any(|op| unread::<DeviceOpPending>(topic_root, "zedagent", op.word()))
                || unread::<OutageQuestion>(topic_root, "nodeagent", GLOBAL),
            last_look: peek(topic_root, "nodeagent", GLOBAL)
                .filter(|it: &OutageQuestion| !it.held.is_empty()),
            trouble: troubles.flat_map(|it| it.troubles).find(|it| !it.holds.is_empty()),
            history: peek(topic_root, NAME, GLOBAL),
            nodes: leads.then(|| nodes(topic_root)).flatten(),
            stats: if leads { peek(topic_root, NAME, GLOBAL) } else { None },
            leader,
        }
    }
}

/// For display: what cannot be read now is there again at the next look.
fn peek<T: Topic>(topic_root: &TopicRoot, agent: &str, key: &str) -> Option<T> {
    wire::peek(topic_root, agent, key).ok().flatten()
}

/// Whether a value is there that cannot be used.
fn unread<T: Topic>(topic_root: &TopicRoot, agent: &str, key: &str) -> bool {
    let there = wire::path::<T>(topic_root, agent, key).symlink_metadata();
    let absent = there.is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound);
    !absent && peek::<T>(topic_root, agent, key).is_none()
}

/// The request of a person, by the rule that zedkube goes by.
fn persons(topic_root: &TopicRoot) -> Option<NodeDrainRequest> {
    let Ok(FileState::Present(bytes)) = FileState::now(&topic_root.path(operator::FILE), operator::RULE)
    else {
        return None;
    };
    let request = go_json::from_slice(&bytes).ok()?;
    Some(NodeDrainRequest { requested_by: Requester::Operator, ..request })
}

/// How long ago zedkube's drain half had its last turn: it touches a file at each.
fn since_touch(topic_root: &TopicRoot, now: GoTime) -> Option<Duration> {
    let touched =
        topic_root.path(&format!("run/{NAME}.touch")).symlink_metadata().and_then(|it| it.modified()).ok()?;
    let nanos = i128::try_from(touched.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
    let at = GoTime::from_unix_nanos(nanos)?;
    Some(if at < now { now.apart(at) } else { Duration::ZERO })
}

fn nodes(topic_root: &TopicRoot) -> Option<Vec<KubeNodeInfo>> {
    let bytes =
        store::read(&wire::path::<KubeClusterInfo>(topic_root, NAME, GLOBAL), FILE_LIMIT_BYTES).ok()??;
    serde_json::from_slice::<Nodes>(&bytes).ok()?.nodes
}
