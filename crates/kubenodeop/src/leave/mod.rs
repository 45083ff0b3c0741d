//! Taking our node out of its cluster for good: a cordon, the pods of applications, a drain where replicas of
//! volumes live here, and at the end the Node object, without which no node of that name can join again.
//!
//! A step that fails is tried so often and no longer; then the next one comes, and what failed is told: whoever
//! takes a node out of its cluster wants it out. Nothing is done to a node that is the only one of its cluster, as
//! the API of a device that has left already answers like that. A step that is done has nothing left to do when the
//! walk begins again. Not here: whether the node has to leave. Source: spec/agents.md 4.8.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use step::Mono;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::calls::{pods, remove};
use crate::containers::RuntimeQuery;
use crate::drain::{DrainOrder, drain};
use crate::engine::AttemptRules;
use crate::node;
use crate::progress::Progress;
use crate::storage;
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::names::{NodeName, PodRef};
use kubeapi::nodes::CordonAnnotation;
use kubeapi::reply::ReplyClass;
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{Error, nodes};
use topics::{DrainMarks, LeavePhase};

/// Pods deleted at the same time.
const AT_ONCE: usize = 8;

/// What leaves, in whose name, and how long each step may take.
#[derive(Debug, Clone)]
pub struct Leave {
    pub node: NodeName,
    /// Our device: a Node object with another one's UUID is not touched.
    pub device_uuid: String,
    pub owner: CordonAnnotation,
    /// Limits of the one attempt to drain, but for its time.
    pub rules: AttemptRules,
    /// How long that attempt may last. The newest value counts, also in the middle of it.
    pub attempt: watch::Receiver<Duration>,
    /// Where that attempt stood, should it have been cut off in this boot.
    pub marks: DrainMarks,
    /// Tries of each step between finding the cluster and deleting the Node object.
    pub tries: u32,
    pub pause: Duration,
    /// How long the cluster may be out of reach, at the beginning and at the end.
    pub reach: Duration,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LeaveState {
    pub stage: LeavePhase,
    /// Why the step is not done yet, or empty.
    pub trouble: String,
    /// What failed in the steps before, and was passed over.
    pub passed_over: Vec<String>,
    pub drain: Option<Box<Progress>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveEnd {
    Left,
    /// There was none any more.
    Gone,
    /// The node is the only one of its cluster.
    Alone,
    /// The Node object of our name is another device's, in words.
    NotOurs(String),
    /// The cluster was out of reach all the time, in words.
    NotReached(String),
    /// The Node object could not be deleted, in words.
    Stays(String),
}

/// Takes the node out. `told` always holds the newest state; the receiver may skip values.
///
/// Dropping the future ends all calls at once; what the server made of the last one is unknown. Begun again, it goes
/// on.
pub async fn leave(
    cluster: &ApiClient,
    order: &Leave,
    now: impl Fn() -> Mono + Send + Sync,
    told: &watch::Sender<LeaveState>,
) -> (LeaveEnd, Vec<String>) {
    let walk = Walk { cluster, order, now, told };
    let end = walk.walk().await.unwrap_or_else(|end| end);
    (end, told.borrow().passed_over.clone())
}

struct Walk<'a, F> {
    cluster: &'a ApiClient,
    order: &'a Leave,
    now: F,
    told: &'a watch::Sender<LeaveState>,
}

impl<F: Fn() -> Mono + Send + Sync> Walk<'_, F> {
    /// The steps; one that ends it all comes back as an error.
    async fn walk(&self) -> Result<LeaveEnd, LeaveEnd> {
        self.reach().await?;
        self.cordon().await?;
        self.remove_apps().await;
        if self.has_replicas().await {
            self.drain().await;
        }
        self.delete().await
    }

    fn enter(&self, stage: LeavePhase) {
        info!(node = %self.order.node, ?stage, "leaving the cluster");
        self.told.send_modify(|state| {
            state.stage = stage;
            state.trouble.clear();
        });
    }

    fn trouble(&self, trouble: &str) {
        self.told.send_if_modified(|state| {
            let other = state.trouble != trouble;
            if other {
                warn!(node = %self.order.node, stage = ?state.stage, error = trouble, "leaving the cluster: tried again");
                trouble.clone_into(&mut state.trouble);
            }
            other
        });
    }

    fn pass_over(&self, what: String) {
        warn!(node = %self.order.node, error = what, "leaving the cluster: passed over");
        self.told.send_modify(|state| {
            state.trouble.clear();
            state.passed_over.push(what);
        });
    }

    async fn reach(&self) -> Result<(), LeaveEnd> {
        self.enter(LeavePhase::Reaching);
        let began = (self.now)();
        loop {
            match node::others(self.cluster, &self.order.node).await {
                Ok(others) if others.is_empty() => return Err(LeaveEnd::Alone),
                Ok(_) => return Ok(()),
                Err(error) if (self.now)().since(began) >= self.order.reach => {
                    return Err(LeaveEnd::NotReached(error.advice()));
                }
                Err(error) => self.trouble(&error.advice()),
            }
            sleep(self.order.pause).await;
        }
    }

    /// What an error about our Node object ends, if anything.
    fn ends(error: &Error) -> Option<LeaveEnd> {
        if error.is_of_another() {
            Some(LeaveEnd::NotOurs(error.advice()))
        } else {
            error.is_not_found().then_some(LeaveEnd::Gone)
        }
    }

    async fn cordon(&self) -> Result<(), LeaveEnd> {
        self.enter(LeavePhase::Cordoning);
        let order = self.order;
        let mut last = String::new();
        for tried in 1..=order.tries.max(1) {
            match node::cordon(self.cluster, &order.node, &order.device_uuid, &order.owner).await {
                Ok(_) => return Ok(()),
                Err(error) => match Self::ends(&error) {
                    Some(end) => return Err(end),
                    None => last = error.advice(),
                },
            }
            if tried < order.tries {
                self.trouble(&last);
                sleep(order.pause).await;
            }
        }
        self.pass_over(format!("the node could not be cordoned: {last}"));
        Ok(())
    }

    async fn remove_apps(&self) {
        self.enter(LeavePhase::RemovingApps);
        let mut last = String::new();
        for tried in 1..=self.order.tries.max(1) {
            match self.remove_apps_once().await {
                Ok(()) => return,
                Err(trouble) => last = trouble,
            }
            if tried < self.order.tries {
                self.trouble(&last);
                sleep(self.order.pause).await;
            }
        }
        self.pass_over(format!("pods of applications could not be deleted: {last}"));
    }

    async fn remove_apps_once(&self) -> Result<(), String> {
        let scope = WatchScope {
            what: format!("pods of namespace {APP_NAMESPACE} on node {}", self.order.node),
            path: Pod::url_path(Some(APP_NAMESPACE)),
            fields: Some(format!("spec.nodeName={}", self.order.node)),
            labels: None,
        };
        let list = scope.list_all::<Pod>(self.cluster).await.map_err(|error| error.advice())?;
        let remaining = list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let remaining: Vec<PodRef> = remaining.map(|pod| pods::facts(pod).pod).collect();
        let deleted = stream::iter(remaining).map(|pod| async move {
            let reply = remove::delete(self.cluster, &pod, false).await;
            if reply.class() == ReplyClass::Done {
                Ok(())
            } else {
                Err(format!("pod {pod}: {}", reply.text()))
            }
        });
        let failed: Vec<String> =
            deleted.buffer_unordered(AT_ONCE).filter_map(|it| async { it.err() }).collect().await;
        match failed.first() {
            None => Ok(()),
            Some(first) => Err(format!("{} of them, as {first}", failed.len())),
        }
    }

    /// Whether replicas of volumes live on the node. Where that cannot be found out, they may.
    async fn has_replicas(&self) -> bool {
        self.enter(LeavePhase::CheckingReplicas);
        let mut last = String::new();
        for tried in 1..=self.order.tries.max(1) {
            match storage::count(self.cluster, &self.order.node).await {
                Ok(here) => {
                    info!(node = %self.order.node, replicas = here, "leaving the cluster");
                    return here > 0;
                }
                Err(error) => last = error.advice(),
            }
            if tried < self.order.tries {
                self.trouble(&last);
                sleep(self.order.pause).await;
            }
        }
        self.pass_over(format!("replicas could not be looked for, the node is drained: {last}"));
        true
    }

    /// One attempt. Another limit for it takes it up where it stands.
    async fn drain(&self) {
        self.enter(LeavePhase::Draining);
        let (mut marks, mut limit) = (self.order.marks.clone(), self.order.attempt.clone());
        let outcome = loop {
            let attempt = *limit.borrow_and_update();
            let order = DrainOrder {
                seen: None,
                runtime: RuntimeQuery::default(),
                node: self.order.node.clone(),
                device_uuid: self.order.device_uuid.clone(),
                owner: self.order.owner.clone(),
                // A leave must come to an end, whatever a drain may do.
                rules: AttemptRules { attempt, ..self.order.rules.clone() },
                marks: marks.clone(),
            };
            let (sender, mut progress) = watch::channel(Progress { marks, ..Progress::default() });
            let tell = async {
                while progress.changed().await.is_ok() {
                    let newest = progress.borrow_and_update().clone();
                    self.told.send_modify(|state| state.drain = Some(Box::new(newest)));
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                outcome = drain(self.cluster, &order, || (self.now)(), &sender) => break outcome,
                () = other(&mut limit, attempt) => {}
                () = tell => {}
            }
            marks = sender.borrow().marks.clone();
        };
        self.told.send_modify(|state| state.drain = None);
        match outcome {
            Ok(done) => {
                info!(node = %self.order.node, evicted = done.evicted, "leaving the cluster: drained");
            }
            Err(failure) => self.pass_over(format!("the node could not be drained: {}", failure.reason)),
        }
    }

    async fn delete(&self) -> Result<LeaveEnd, LeaveEnd> {
        self.enter(LeavePhase::Deleting);
        let began = (self.now)();
        loop {
            let error = match self.delete_once().await {
                Ok(()) => return Ok(LeaveEnd::Left),
                Err(error) => error,
            };
            if let Some(end) = Self::ends(&error) {
                return Ok(end);
            }
            if (self.now)().since(began) >= self.order.reach {
                return Ok(LeaveEnd::Stays(error.advice()));
            }
            self.trouble(&error.advice());
            sleep(self.order.pause).await;
        }
    }

    /// Exactly the object that was read, by its UID.
    async fn delete_once(&self) -> Result<(), Error> {
        let (name, uuid) = (&self.order.node, &self.order.device_uuid);
        let (object, _) = node::read_whole(self.cluster, name, uuid).await?;
        nodes::delete(self.cluster, name, object.metadata.uid).await
    }
}

/// Returns when `limit` is another than `now`; never when nobody sets it any more.
async fn other(limit: &mut watch::Receiver<Duration>, now: Duration) {
    if limit.wait_for(|it| *it != now).await.is_err() {
        std::future::pending::<()>().await;
    }
}
