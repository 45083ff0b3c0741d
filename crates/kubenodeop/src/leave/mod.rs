//! Taking our node out of its cluster for good: a cordon, the pods of applications, a drain where replicas of
//! volumes live here, and at the end the Node object, without which no node of that name can join again.
//!
//! A step that fails is tried so often and no longer; then the next one comes, and what failed is told: whoever
//! takes a node out of its cluster wants it out. Nothing is done to a node that is the only one of its cluster, as
//! the API of a device that has left already answers like that. A step that is done has nothing left to do when the
//! walk begins again. Not here: whether the node has to leave.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use step::Mono;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::calls::{pods, remove};
use crate::drain::{DrainOrder, drain};
use crate::engine::AttemptRules;
use crate::node;
use crate::progress::Progress;
use crate::storage;
use kubeapi::ApiClient;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::names::PodRef;
use kubeapi::reply::ReplyClass;
use kubeapi::slim::Pod;
use kubeapi::watch::WatchScope;
use kubeapi::{Error, nodes};
use topics::LeavePhase;

/// Pods deleted at the same time.
const AT_ONCE: usize = 8;

/// What leaves, in whose name, and how long each step may take.
#[derive(Debug, Clone)]
pub struct Leave {
    /// The one attempt to drain, but for its time.
    pub drain: DrainOrder,
    /// How long that attempt may last. The newest value counts, also in the middle of it.
    pub attempt: watch::Receiver<Duration>,
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

/// Where the node stands in the end, and why, a sentence: `left` without its Node object, `alone` as the only node of its
/// cluster, `not-reached` or `failed` with a Node object that a person has to delete.
pub type LeaveEnd = (LeavePhase, String);

/// Takes the node out. `told` always holds the newest state; the receiver may skip values.
///
/// Dropping the future ends all calls at once; what the server made of the last one is unknown. Begun again, it goes
/// on.
pub async fn leave(
    cluster: &ApiClient,
    order: &Leave,
    now: impl Fn() -> Mono + Send + Sync,
    told: &watch::Sender<LeaveState>,
) -> LeaveEnd {
    Walk { cluster, order, now, told }.walk().await
}

struct Walk<'a, F> {
    cluster: &'a ApiClient,
    order: &'a Leave,
    now: F,
    told: &'a watch::Sender<LeaveState>,
}

impl<F: Fn() -> Mono + Send + Sync> Walk<'_, F> {
    async fn walk(&self) -> LeaveEnd {
        let (cluster, order) = (self.cluster, self.order);
        let others =
            || async { node::others(cluster, &order.drain.node).await.map_err(|error| error.advice()) };
        match self.repeat(LeavePhase::Reaching, true, others).await {
            Ok(others) if others.is_empty() => {
                let why = "it is the only node that its cluster's API knows: there is nothing to leave";
                return (LeavePhase::Alone, why.to_owned());
            }
            Ok(_) => {}
            Err(why) => return (LeavePhase::NotReached, format!("its cluster was out of reach: {why}")),
        }
        let cordon = || async {
            match node::cordon(cluster, &order.drain.node, &order.drain.device_uuid, &order.drain.owner).await
            {
                Ok(_) => Ok(None),
                Err(error) => ends(&error).map(Some).ok_or_else(|| error.advice()),
            }
        };
        match self.repeat(LeavePhase::Cordoning, false, cordon).await {
            Ok(Some(end)) => return end,
            Ok(None) => {}
            Err(last) => self.pass_over(format!("the node could not be cordoned: {last}")),
        }
        if let Err(last) = self.repeat(LeavePhase::RemovingApps, false, || self.remove_apps()).await {
            self.pass_over(format!("pods of applications could not be deleted: {last}"));
        }
        let replicas =
            || async { storage::count(cluster, &order.drain.node).await.map_err(|error| error.advice()) };
        let replicas = self.repeat(LeavePhase::CheckingReplicas, false, replicas).await;
        if let Err(last) = &replicas {
            self.pass_over(format!("replicas could not be looked for, the node is drained: {last}"));
        }
        // Where that cannot be found out, replicas of volumes may live here.
        if replicas != Ok(0) {
            self.drain().await;
        }
        let delete = || async {
            match self.delete().await {
                Ok(()) => Ok((LeavePhase::Left, "its Node object is deleted".to_owned())),
                Err(error) => ends(&error).ok_or_else(|| error.advice()),
            }
        };
        let stays = |why| (LeavePhase::Failed, format!("its Node object could not be deleted: {why}"));
        self.repeat(LeavePhase::Deleting, true, delete).await.unwrap_or_else(stays)
    }

    /// Repeats a step until it comes to something. Given up, and why, after so many tries; with `long` only once the cluster
    /// may be out of reach no longer.
    async fn repeat<T, Step: Future<Output = Result<T, String>>>(
        &self,
        stage: LeavePhase,
        long: bool,
        step: impl Fn() -> Step,
    ) -> Result<T, String> {
        self.enter(stage);
        let (began, mut tries) = ((self.now)(), 0);
        loop {
            let trouble = match step().await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            tries += 1;
            let is_over =
                if long { (self.now)().since(began) >= self.order.reach } else { tries >= self.order.tries };
            if is_over {
                return Err(trouble);
            }
            self.trouble(&trouble);
            sleep(self.order.pause).await;
        }
    }

    fn enter(&self, stage: LeavePhase) {
        info!(node = %self.order.drain.node, ?stage, "leaving the cluster");
        self.told.send_modify(|state| {
            state.stage = stage;
            state.trouble.clear();
        });
    }

    fn trouble(&self, trouble: &str) {
        self.told.send_if_modified(|state| {
            let other = state.trouble != trouble;
            if other {
                warn!(node = %self.order.drain.node, stage = ?state.stage, error = trouble, "leaving the cluster: tried again");
                trouble.clone_into(&mut state.trouble);
            }
            other
        });
    }

    fn pass_over(&self, what: String) {
        warn!(node = %self.order.drain.node, error = what, "leaving the cluster: passed over");
        self.told.send_modify(|state| {
            state.trouble.clear();
            state.passed_over.push(what);
        });
    }

    async fn remove_apps(&self) -> Result<(), String> {
        let scope = WatchScope {
            what: format!("pods of namespace {APP_NAMESPACE} on node {}", self.order.drain.node),
            path: Pod::url_path(Some(APP_NAMESPACE)),
            fields: Some(format!("spec.nodeName={}", self.order.drain.node)),
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

    /// One attempt. Another limit for it takes it up where it stands.
    async fn drain(&self) {
        self.enter(LeavePhase::Draining);
        let (mut marks, mut limit) = (self.order.drain.marks.clone(), self.order.attempt.clone());
        let outcome = loop {
            let attempt = *limit.borrow_and_update();
            // A leave must come to an end, whatever a drain may do.
            let rules = AttemptRules { attempt, ..self.order.drain.rules.clone() };
            let order = DrainOrder { rules, marks: marks.clone(), ..self.order.drain.clone() };
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
                info!(node = %self.order.drain.node, evicted = done.evicted, "leaving the cluster: drained");
            }
            Err(failure) => self.pass_over(format!("the node could not be drained: {}", failure.reason)),
        }
    }

    /// Exactly the object that was read, by its UID.
    async fn delete(&self) -> Result<(), Error> {
        let (name, uuid) = (&self.order.drain.node, &self.order.drain.device_uuid);
        let (object, _) = node::read_whole(self.cluster, name, uuid).await?;
        nodes::delete(self.cluster, name, object.metadata.uid).await
    }
}

/// What an error about our Node object ends, if anything.
fn ends(error: &Error) -> Option<LeaveEnd> {
    if error.is_of_another() {
        return Some((LeavePhase::Failed, format!("its Node object is not touched: {}", error.advice())));
    }
    let gone = || (LeavePhase::Left, "its Node object had been deleted already".to_owned());
    error.is_not_found().then(gone)
}

/// Returns when `limit` is another than `now`; never once its sender is gone.
async fn other(limit: &mut watch::Receiver<Duration>, now: Duration) {
    if limit.wait_for(|it| *it != now).await.is_err() {
        std::future::pending::<()>().await;
    }
}
