//! What the server may tell: this node's name and three topics of this agent. No config, so no secret, comes in here.

use agent::{Station, Tasks, turn};
use pubsub::Change;
use tokio::sync::watch;
use topics::{DrainHistory, EdgeNodeInfo, KubeLeaderElectInfo, NodeDrainProgress, Topic};

use crate::NAME;

/// The newest facts; what has not been read is `None`.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Name of the Kubernetes node, or empty.
    pub(super) node: String,
    pub(super) progress: Option<NodeDrainProgress>,
    pub(super) history: Option<DrainHistory>,
    pub(super) leader: Option<KubeLeaderElectInfo>,
}

type Edit = Box<dyn FnOnce(&mut View) + Send>;

/// Keeps the view up to date. Dropping it leaves the view as it is.
pub(crate) async fn follow(station: Station, view: watch::Sender<View>) {
    let (outbox, mut inbox) = turn::inbox::<Edit>();
    let mut tasks = Tasks::new(outbox);
    tasks.follow::<EdgeNodeInfo>(&station.bus, "zedagent", |change| match change {
        Change::Put { value, .. } => Some(Box::new(move |view| view.node = value.kube_name())),
        Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
    });
    keep::<NodeDrainProgress>(&mut tasks, &station, |view, value| view.progress = value);
    keep::<DrainHistory>(&mut tasks, &station, |view, value| view.history = value);
    keep::<KubeLeaderElectInfo>(&mut tasks, &station, |view, value| view.leader = value);
    while let Some(edit) = inbox.recv().await {
        view.send_modify(edit);
    }
}

/// Keeps a topic of this agent in its place of the view.
fn keep<T: Topic>(tasks: &mut Tasks<Edit>, station: &Station, place: fn(&mut View, Option<T>)) {
    tasks.follow::<T>(&station.bus, NAME, move |change| match change {
        Change::Put { value, .. } => Some(Box::new(move |view| place(view, Some(value)))),
        Change::Gone { .. } => Some(Box::new(move |view| place(view, None))),
        Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
    });
}
