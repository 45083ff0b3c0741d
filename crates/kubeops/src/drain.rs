//! One attempt to empty a node, carried out: the calls that `engine` asks for, and the watches it hears.
//!
//! Not here: any decision, the number of attempts and the pauses between them (zedkube). Sources: goals D1 to D5,
//! D18, D19; the log words of spec/agents.md 6.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, SelectAll, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use step::{Core, Mono};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::budget::BudgetFacts;
use crate::client::Cluster;
use crate::cordon::CordonOwner;
use crate::engine::{Effect, Engine, Event, Failure, Rules, Said};
use crate::names::NodeName;
use crate::node::Cordoned;
use crate::progress::{Marks, Outcome, Progress};
use crate::watch::{Heard, follow};
use crate::{evict, node, pods};

/// What to empty, in whose name, by which rules.
#[derive(Debug, Clone)]
pub struct Order {
    /// Our node.
    pub node: NodeName,
    /// Our device: a node that carries another one's UUID is not touched.
    pub device_uuid: String,
    /// Who owns the cordon, should it have to be renewed.
    pub owner: CordonOwner,
    /// Limits.
    pub rules: Rules,
    /// Where an attempt of this boot stood that was cut off, or what an earlier attempt learned.
    pub marks: Marks,
}

/// Empties the node: one attempt. The node must have been cordoned; if somebody uncordons it, it is cordoned
/// again and the proof starts over.
///
/// `now` is the clock in whose terms [`crate::progress::Blocker::since`] is given. `progress` always holds the
/// newest state; the receiver may skip values.
///
/// Dropping the future ends all calls and watches at once: no new eviction starts, and of those under way it is
/// unknown whether the server has carried them out. The cordon stays.
pub async fn drain(
    cluster: &Cluster,
    order: &Order,
    now: impl Fn() -> Mono + Send,
    progress: &watch::Sender<Progress>,
) -> Outcome {
    let mut engine = Engine::new(order.rules.clone(), now(), seed());
    let mut executor = Executor::new(cluster, order);
    loop {
        let at = now();
        let due = engine.next_wake();
        let event = match due {
            Some(due) => tokio::select! {
                event = executor.next() => event,
                () = sleep(due.since(at)) => Event::Tick,
            },
            None => executor.next().await,
        };
        let at = now();
        let effects = engine.step(at, event);
        let newest = engine.progress(at);
        progress.send_if_modified(|held| {
            let changed = *held != newest;
            *held = newest;
            changed
        });
        for effect in effects {
            if let Some(outcome) = executor.perform(effect) {
                return outcome;
            }
        }
    }
}

/// A number that differs from process to process and from call to call, for jitter only.
fn seed() -> u64 {
    RandomState::new().hash_one("jitter")
}

/// Calls under way and watches that are open. Dropping it ends them all.
struct Executor<'a> {
    cluster: &'a Cluster,
    order: &'a Order,
    calls: FuturesUnordered<BoxFuture<'a, Event>>,
    watches: SelectAll<BoxStream<'static, Event>>,
}

impl<'a> Executor<'a> {
    fn new(cluster: &'a Cluster, order: &'a Order) -> Self {
        let mut watches = SelectAll::new();
        watches.push(pod_events(cluster, order));
        watches.push(node_events(cluster, order));
        Self { cluster, order, calls: FuturesUnordered::new(), watches }
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            Some(event) = self.calls.next(), if !self.calls.is_empty() => event,
            Some(event) = self.watches.next() => event,
            // Watches never end; were there none, only time could pass.
            else => std::future::pending().await,
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Outcome> {
        let (cluster, order) = (self.cluster, self.order);
        match effect {
            Effect::Look { turn } => self.calls.push(look(cluster, order, turn).boxed()),
            Effect::Evict(pod) => self.calls.push(
                async move {
                    let reply = evict::evict(cluster, &pod).await;
                    Event::Evicted { uid: pod.uid, reply }
                }
                .boxed(),
            ),
            Effect::Cordon => self.calls.push(
                async move {
                    let done = node::cordon(cluster, &order.node, &order.device_uuid, &order.owner).await;
                    Event::Cordoned(done.map(|it| it == Cordoned::Written).map_err(Failure::from))
                }
                .boxed(),
            ),
            Effect::FollowBudgets(namespace) => self.watches.push(budget_events(cluster, namespace)),
            Effect::Say(said) => say(&order.node, &said),
            Effect::End(outcome) => return Some(outcome),
        }
        None
    }
}

async fn look(cluster: &Cluster, order: &Order, turn: u64) -> Event {
    let (pods, node) =
        tokio::join!(pods::list(cluster, &order.node), node::read(cluster, &order.node, &order.device_uuid));
    let seen = pods.and_then(|pods| Ok((pods, node?))).map_err(Failure::from);
    Event::Looked { turn, seen }
}

fn pod_events(cluster: &Cluster, order: &Order) -> BoxStream<'static, Event> {
    follow::<Pod>(cluster.clone(), pods::scope(&order.node), seed())
        .map(|heard| match heard {
            Heard::Listed(all) => Event::Pods(all.iter().map(pods::facts).collect()),
            Heard::Put(pod) => Event::Pod(pods::facts(&pod)),
            Heard::Gone(pod) => Event::PodGone(pods::pod_ref(&pod).uid),
            Heard::Trouble(error) => Event::Trouble(error.line()),
        })
        .boxed()
}

fn node_events(cluster: &Cluster, order: &Order) -> BoxStream<'static, Event> {
    let name = order.node.clone();
    follow::<Node>(cluster.clone(), node::scope(&order.node), seed())
        .filter_map(move |heard| {
            let node = match heard {
                Heard::Listed(all) => {
                    all.into_iter().find(|node| node.metadata.name.as_deref() == Some(name.as_str()))
                }
                Heard::Put(node) => Some(node),
                // The look at the end tells what a vanished node means.
                Heard::Gone(_) => None,
                Heard::Trouble(error) => return std::future::ready(Some(Event::Trouble(error.line()))),
            };
            std::future::ready(node.and_then(|node| node::facts(&node).ok()).map(Event::Node))
        })
        .boxed()
}

fn budget_events(cluster: &Cluster, namespace: String) -> BoxStream<'static, Event> {
    let known: BTreeMap<String, BudgetFacts> = BTreeMap::new();
    follow::<PodDisruptionBudget>(cluster.clone(), pods::budget_scope(&namespace), seed())
        .scan(known, move |known, heard| {
            let event = match heard {
                Heard::Listed(all) => {
                    *known = all.iter().map(pods::budget_facts).map(|it| (it.name.clone(), it)).collect();
                    None
                }
                Heard::Put(budget) => {
                    let facts = pods::budget_facts(&budget);
                    known.insert(facts.name.clone(), facts);
                    None
                }
                Heard::Gone(budget) => {
                    known.remove(budget.metadata.name.as_deref().unwrap_or_default());
                    None
                }
                Heard::Trouble(error) => Some(Event::Trouble(error.line())),
            };
            let all = || Event::Budgets {
                namespace: namespace.clone(),
                budgets: known.values().cloned().collect(),
            };
            std::future::ready(Some(event.unwrap_or_else(all)))
        })
        .boxed()
}

fn say(node: &NodeName, said: &Said) {
    match said {
        Said::Evicted(pod) => {
            info!(%node, %pod, uid = %pod.uid, "nodedrain-step:pod-evict-progress eviction accepted");
        }
        Said::Gone(pod) => {
            info!(%node, %pod, uid = %pod.uid, "nodedrain-step:pod-evict-progress pod is gone");
        }
        Said::Held(pod, error) => {
            warn!(%node, %pod, uid = %pod.uid, error, "nodedrain-step:pod-evict-err pod is held");
        }
        Said::Uncordoned => warn!(%node, "node was uncordoned in mid-drain, cordoning it again"),
    }
}
