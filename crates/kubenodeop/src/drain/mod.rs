//! One attempt to empty a node, carried out: the calls that `engine` asks for, and the watches it hears.
//!
//! Not here: any decision, the number of attempts and the pauses between them (zedkube). The log has the words of the reference.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, FuturesUnordered, SelectAll, StreamExt};
use jiff::Timestamp;
use step::{Core, Mono};
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::engine::containers::{self, RuntimeQuery};
use crate::engine::{AttemptOutcome, AttemptRules, CallFailure, Effect, Engine, Event};
use crate::machines::kubevirt::{MachineChange, changes};
use crate::machines::kubevirt::{MachineReader, perform};
use crate::machines::rules::{Action, DrainIdentity};
use crate::machines::undo::next_step;
use crate::node::{Cordoned, NodeFacts};
use crate::plan::budget::GuardedPod;
use crate::progress::Progress;
use crate::storage;
use crate::{
    calls::eviction_request, calls::pods, calls::remove, calls::remove::RemovalCall, calls::surge,
    calls::unhealthy_pods, changes::streams, node,
};
use kubeapi::ApiClient;
use kubeapi::names::{NodeName, PodRef, PodUid};
use kubeapi::nodes::CordonAnnotation;
use kubeapi::reply::Reply;
use kubeapi::slim::Pod;
use kubeapi::watch::jitter_seed;
use topics::{CordonOwner, DrainMarks};

/// Least time between two states that are told; of those in between the newest is.
const TOLD_APART: Duration = Duration::from_millis(50);

/// How long an attempt waits, at its start and at its end, until its EvictionRequests are withdrawn.
const WITHDRAW: Duration = Duration::from_secs(30);

/// What to empty, in whose name, by which rules.
#[derive(Debug, Clone)]
pub struct DrainOrder {
    pub node: NodeName,
    /// Our device: a node that carries another one's UUID is not touched.
    pub device_uuid: String,
    /// Who owns the cordon, should it have to be renewed.
    pub owner: CordonAnnotation,
    /// The container runtime of our node.
    pub runtime: RuntimeQuery,
    pub rules: AttemptRules,
    /// Where an attempt of this boot stood that was cut off, or what an earlier attempt learned.
    pub marks: DrainMarks,
    /// Our node as it was seen last; where that has our cordon, it is not read again at the start.
    pub seen: Option<NodeFacts>,
}

/// Empties the node: one attempt. The node must have been cordoned; if somebody uncordons it, it is cordoned
/// again and the proof starts over.
///
/// `now` is the clock in whose terms [`crate::progress::blocker`] is given times. `progress` always holds the
/// newest state; the receiver may skip values.
///
/// Dropping the future ends all watches and starts no new call. Those that ask a pod to leave, and are under way, come to
/// their end all the same ([`ApiClient::to_its_end`]): budgets have counted them. The cordon stays.
pub async fn drain(
    cluster: &ApiClient,
    order: &DrainOrder,
    now: impl Fn() -> Mono + Send,
    progress: &watch::Sender<Progress>,
) -> AttemptOutcome {
    // What is not installed may have been since: a drain believes no old word on it.
    cluster.doubt_absent();
    // A run that was cut off may have left some.
    withdraw_requests(cluster, order).await;
    let owner = &order.owner;
    let identity = DrainIdentity {
        node: order.node.to_string(),
        request: format!("request {} of {}", owner.requested_by, owner.requested_at),
    };
    let mut engine = Engine::new(identity, order.rules.clone(), &order.marks, now(), jitter_seed());
    let mut executor = DrainExecutor::new(cluster, order);
    // When the state that was not told yet may be told, and when the next one may.
    let (mut untold, mut next) = (None::<Mono>, now());
    loop {
        let at = now();
        let event = match engine.next_wake().into_iter().chain(untold).min() {
            Some(due) => tokio::select! {
                event = executor.next() => event,
                () = sleep(due.since(at)) => Event::Tick,
            },
            None => executor.next().await,
        };
        let at = now();
        let effects = engine.step(at, event);
        let over = effects.iter().any(|effect| matches!(effect, Effect::End(_)));
        untold = if over || next <= at {
            progress.send_if_modified(|held| step::update(held, engine.progress(at)));
            next = at + TOLD_APART;
            None
        } else {
            Some(next)
        };
        for effect in effects {
            if let Some(outcome) = executor.perform(effect) {
                withdraw_requests(cluster, order).await;
                let done = outcome?;
                if let Some(before) = engine.volumes_before()
                    && let Err(error) = node::record_volumes(cluster, &order.node, &before).await
                {
                    // The gate after the boot then waits for every faulted volume, and not for ever.
                    warn!(node = %order.node, error = error.line(), "the state of volumes is not recorded");
                }
                if order.rules.surge != surge::SurgeRule::Never {
                    // What fails is found again once the node is healthy.
                    if let (_, Err(error)) = surge::settle(cluster, &order.node, false).await {
                        warn!(node = %order.node, error = error.line(), "records of second copies stay for now");
                    }
                }
                return Ok(done);
            }
        }
    }
}

/// Withdraws the EvictionRequests of our node. Those that stay are found again by their label.
async fn withdraw_requests(cluster: &ApiClient, order: &DrainOrder) {
    if !order.rules.eviction_requests {
        return;
    }
    let withdrawn = timeout(WITHDRAW, eviction_request::withdraw_all(cluster, &order.node)).await;
    let error = match withdrawn {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.line(),
        Err(elapsed) => elapsed.to_string(),
    };
    warn!(node = %order.node, error, "EvictionRequests of this node stay for now");
}

/// Calls under way and watches that are open. Dropping it ends them all, but for calls that ask a pod to leave.
struct DrainExecutor<'a> {
    cluster: &'a ApiClient,
    order: &'a DrainOrder,
    calls: FuturesUnordered<BoxFuture<'a, Event>>,
    /// What looks have read, for those that follow.
    read: Arc<LooksRead>,
    /// Pods and node are watched.
    watching: bool,
    /// Our node as it was heard of last, where nothing was missed since.
    node: Option<NodeFacts>,
    watches: SelectAll<BoxStream<'static, Event>>,
    volumes: BoxStream<'static, Event>,
    machines: BoxStream<'static, Event>,
    reader: Arc<Mutex<MachineReader>>,
    /// What it has read once is not so any more.
    stale: bool,
    /// Pods with an EvictionRequest of ours.
    requested: BTreeSet<PodUid>,
}

/// What one look leaves to the others, and to the watches.
#[derive(Default)]
struct LooksRead {
    /// `DaemonSet`s that were looked up.
    sets: pods::AliveSets,
    /// The versions of pods and node in the first look: the watches begin there.
    versions: OnceLock<(String, String)>,
}

impl<'a> DrainExecutor<'a> {
    fn new(cluster: &'a ApiClient, order: &'a DrainOrder) -> Self {
        let mut watches = SelectAll::new();
        watches.push(streams::storage_events(cluster, &order.node, jitter_seed()));
        let (calls, volumes, machines) =
            (FuturesUnordered::new(), stream::pending().boxed(), stream::pending().boxed());
        let reader = Arc::new(Mutex::new(MachineReader::new(order.node.clone(), order.rules.machines)));
        let ours =
            |it: &NodeFacts| it.cordon == CordonOwner::Ours && it.annotation.as_ref() == Some(&order.owner);
        let node = order.seen.clone().filter(|it| it.name == order.node && ours(it));
        Self {
            cluster,
            order,
            calls,
            read: Arc::default(),
            watching: false,
            node,
            watches,
            volumes,
            machines,
            reader,
            stale: false,
            requested: BTreeSet::new(),
        }
    }

    /// Begins to watch what the first look has read.
    fn watch(&mut self) {
        let Some((pods, node)) = self.read.versions.get().filter(|_| !self.watching).cloned() else { return };
        let (cluster, name) = (self.cluster, &self.order.node);
        self.watching = true;
        self.watches.push(streams::pod_events(cluster, name, Some(pods), jitter_seed()));
        self.watches.push(streams::node_events(cluster, name, Some(node), jitter_seed()));
    }

    async fn next(&mut self) -> Event {
        let event = tokio::select! {
            Some(event) = self.calls.next(), if !self.calls.is_empty() => event,
            Some(event) = self.watches.next() => event,
            Some(event) = self.volumes.next() => event,
            Some(event) = self.machines.next() => event,
            // Watches never end; were there none, only time could pass.
            else => std::future::pending().await,
        };
        self.watch();
        if let Event::Node(node) | Event::Looked { seen: Ok((_, node, _)), .. } = &event {
            self.node = Some(node.clone());
        } else if let Event::Trouble(_) | Event::NodeGone(_) | Event::Cordoned(_) = &event {
            self.node = None;
        } else if let Event::MachinesChanged(MachineChange::Once) = &event {
            self.stale = true;
        } else if let Event::Evicted { uid, reply: Reply::Responding { .. } } = &event {
            self.requested.insert(uid.clone());
        }
        event
    }

    fn call(&mut self, call: impl Future<Output = Event> + Send + 'a) {
        self.calls.push(call.boxed());
    }

    /// A call that asks a pod to leave.
    fn leaves(&mut self, call: impl Future<Output = Event> + Send + 'static) {
        self.calls.push(self.cluster.to_its_end(call).boxed());
    }

    /// A call about this pod, before which our EvictionRequest for it is withdrawn.
    fn withdrawn(&mut self, pod: &PodRef, call: impl Future<Output = Event> + Send + 'static) {
        let requested = self.requested.remove(&pod.uid).then(|| (self.cluster.clone(), pod.clone()));
        self.leaves(async move {
            if let Some((cluster, pod)) = requested
                && let Err(error) = eviction_request::withdraw(&cluster, &pod).await
            {
                warn!(%pod, error = error.line(), "its EvictionRequest stays for now");
            }
            call.await
        });
    }

    fn perform(&mut self, effect: Effect) -> Option<AttemptOutcome> {
        let (cluster, order) = (self.cluster, self.order);
        match effect {
            Effect::Look { turn, storage, node } => {
                let (read, known) = (Arc::clone(&self.read), self.node.clone().filter(|_| !node));
                self.call(async move { look(cluster, order, &read, (turn, storage), known).await });
            }
            Effect::Ask(RemovalCall::Request, GuardedPod { pod, .. }) => {
                let (cluster, node) = (cluster.clone(), order.node.clone());
                self.leaves(async move {
                    match eviction_request::ask(&cluster, &node, &pod).await {
                        Ok(reply) => Event::Evicted { uid: pod.uid, reply },
                        Err(why) => Event::Unrequested { uid: pod.uid, why },
                    }
                });
            }
            Effect::Ask(way, guarded) => {
                let cluster = cluster.clone();
                self.withdrawn(&guarded.pod.clone(), async move {
                    let reply = remove::ask(&cluster, way, &guarded, false).await;
                    Event::Evicted { uid: guarded.pod.uid, reply }
                });
            }
            Effect::Withdraw(pod) => self.withdrawn(&pod, async { Event::Tick }),
            Effect::Surge { pod, over } => self.call(async move {
                let answer = surge::surge(cluster, &order.node, order.rules.surge, (&pod, over)).await;
                Event::Surged { uid: pod.pod.uid, answer: answer.map_err(CallFailure::from) }
            }),
            Effect::Inspect { namespace, budget, selector, shared } => self.call(async move {
                let found = unhealthy_pods::inspect(cluster, &namespace, &budget, &selector, shared).await;
                let found = found.map_err(CallFailure::from);
                Event::Inspected { namespace, budget, found }
            }),
            Effect::Cordon => self.call(async move {
                let done = node::cordon(cluster, &order.node, &order.device_uuid, &order.owner).await;
                Event::Cordoned(done.map(|it| it == Cordoned::Written).map_err(CallFailure::from))
            }),
            Effect::FollowBudgets(namespace) => {
                self.watches.push(streams::budget_events(cluster, namespace, jitter_seed()));
            }
            Effect::FollowVolumes(claims) => {
                self.volumes = streams::volume_events(cluster, &order.node, claims, jitter_seed());
            }
            Effect::AskCopy { volume, wanted } => self.call(async move {
                let result =
                    storage::ask(cluster, &order.node, &volume, wanted).await.map_err(CallFailure::from);
                Event::CopyAsked { volume, result }
            }),
            Effect::FollowMachines(on) => {
                let all = || changes(cluster, &order.node, jitter_seed()).map(Event::MachinesChanged).boxed();
                self.machines = if on { all() } else { stream::pending().boxed() };
            }
            Effect::LookMachines => {
                let (reader, stale) = (Arc::clone(&self.reader), std::mem::take(&mut self.stale));
                self.call(async move {
                    let mut reader = reader.lock().await;
                    if stale {
                        *reader = MachineReader::new(order.node.clone(), order.rules.machines);
                    }
                    let failed =
                        |error| CallFailure { next_step: next_step(&error), ..CallFailure::from(error) };
                    Event::Machines(reader.look(cluster).await.map_err(failed))
                });
            }
            Effect::Act(guest, action) => self.call(async move {
                let action = if let Action::Stop(work) = action {
                    Action::Stop(Box::new(work.stopped_at(&format!("{:.3}", Timestamp::now()))))
                } else {
                    action
                };
                let reply = perform(cluster, &order.node, &guest, &action).await;
                Event::MachineAnswered { uid: guest.uid, action, reply }
            }),
            Effect::AskRuntime => self.call(async move {
                let uid = |pod: Pod| PodUid::new(pod.metadata.uid.unwrap_or_default());
                let without = containers::without(cluster, &order.node, &order.runtime).await;
                Event::Containers(without.map(|all| all.into_iter().map(uid).collect()))
            }),
            Effect::Say(message) => step::log!(message),
            Effect::End(outcome) => return Some(outcome),
        }
        None
    }
}

async fn look(
    cluster: &ApiClient,
    order: &DrainOrder,
    read: &LooksRead,
    (turn, storage): (u64, bool),
    known: Option<NodeFacts>,
) -> Event {
    let storage = async {
        // None found where some was: there is nothing left to guard.
        if !storage {
            return Ok::<_, kubeapi::Error>(None);
        }
        Ok(Some(Box::pin(storage::look(cluster, &order.node)).await?.unwrap_or_default()))
    };
    let node = async {
        match known {
            Some(node) => Ok(node),
            None => node::read(cluster, &order.node, &order.device_uuid).await,
        }
    };
    let (pods, node, storage) =
        tokio::join!(pods::list_beside(cluster, &order.node, &read.sets), node, storage);
    let node = node.map_err(|error| {
        if error.is_not_found() { streams::gone(&order.node) } else { CallFailure::from(error) }
    });
    let seen = pods.map_err(CallFailure::from);
    let seen = seen.and_then(|pods| {
        let (node, storage) = (node?, storage.map_err(CallFailure::from)?);
        read.versions.get_or_init(|| (pods.version, node.resource_version.clone()));
        Ok((pods.items, node, storage))
    });
    Event::Looked { turn, seen }
}
