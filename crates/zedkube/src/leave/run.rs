//! Hears the config, keeps the record, and walks.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use agent::outlet::KeptRecord;
use agent::{AgentContext, Error, Tasks, Troubles};
use kubeapi::ApiClient;
use kubenodeop::leave::{Leave, LeaveEnd, LeaveState, leave};
use kubenodeop::{CordonAnnotation, DrainOrder, RuntimeQuery};
use pubsub::TopicRoot;
use step::Mono;
use tokio::sync::watch;
use topics::{
    ClusterDecision, ConfigMembership, EdgeNodeClusterConfig, LeavePhase, NodeLeave, ZedAgentStatus,
};
use tracing::{info, warn};

use super::rules::{LeaveFact, LeaveRules};
use crate::GLOBAL;
use crate::limits::{LEAVE_REACH, Limits};
use kubeapi::OwnNode;
use nodestatus::{ClusterMembership, Membership};

/// What the walk came to: its end, and the node.
type Walked = (LeaveEnd, String);

/// The one who says how this node stands to its cluster.
pub(crate) struct Leaver {
    context: AgentContext,
    limits: Limits,
    /// While it cannot be written this node counts as what the config says, and no walk begins.
    record: KeptRecord<NodeLeave>,
    rules: LeaveRules,
    cluster_membership: watch::Sender<ClusterMembership>,
    /// What the drain was told last of it.
    heard: watch::Sender<Option<Membership>>,
}

impl Leaver {
    /// Becomes the publisher of the record, if that can be, with what an earlier run left.
    /// Errors: the record cannot be read: whether the node was leaving is not known then.
    pub(crate) fn open(context: &AgentContext, troubles: &Troubles, limits: &Limits) -> Result<Self, Error> {
        let record = KeptRecord::<NodeLeave>::open(troubles, GLOBAL)?;
        let known = record.get().cloned().unwrap_or_default();
        let mut rules = LeaveRules::new(known, limits, &context.boot_id);
        rules.clock_set(*context.clock.boots().borrow());
        let now = context.clock.now();
        let cluster_membership = rules.settle(now, rules.wall(now));
        let (cluster_membership, _) = watch::channel(cluster_membership);
        Ok(Self {
            context: context.clone(),
            limits: limits.clone(),
            record,
            rules,
            cluster_membership,
            heard: watch::Sender::default(),
        })
    }

    /// How this node stands, from before the first config on.
    pub(crate) fn membership(&self) -> watch::Receiver<ClusterMembership> {
        self.cluster_membership.subscribe()
    }

    /// For what the drain was told. No walk begins before it knows: only then does it give the cordon of a walk back
    /// that is called off, however soon that is.
    pub(crate) fn acknowledged(&self) -> watch::Sender<Option<Membership>> {
        self.heard.clone()
    }

    /// Goes on until `context` says stop. `limit` is how long an attempt to drain may last, as the config has it.
    /// Dropping it ends the walk where it is; the next start continues.
    pub(crate) async fn run(
        mut self,
        cluster: ApiClient,
        own_node: OwnNode,
        limit: watch::Receiver<Duration>,
    ) {
        let (outbox, mut inbox) = agent::inbox();
        let mut tasks = Tasks::new(outbox);
        follow(&mut tasks, &self.context.topic_root);
        let mut stop = self.context.stop.clone();
        let mut walk: Option<Pin<Box<dyn Future<Output = Walked> + Send>>> = None;
        let (to_state, mut state) = watch::channel(LeaveState::default());
        // When news of the walk are written, and when they were.
        let (mut due, mut written_at) = (None::<Mono>, Mono::START);
        let mut boots = self.context.clock.boots();
        let mut heard = self.heard.subscribe();
        loop {
            let now = self.context.clock.now();
            let before = self.rules.record().phase;
            let cluster_membership = self.rules.settle(now, self.rules.wall(now));
            self.announce(before);
            // The record first: whoever walks must be found walking after a power cut. All else waits for no disk.
            let written = self.write();
            let again = self.record.next_try();
            if written || cluster_membership.membership != Membership::Leaving {
                self.publish_membership(cluster_membership);
                if !self.rules.walks() {
                    if walk.take().is_some() {
                        due = None;
                        info!("leaving the cluster: called off, this node is a member again");
                    }
                } else if walk.is_none() && *heard.borrow_and_update() == Some(Membership::Leaving) {
                    to_state.send_replace(LeaveState::default());
                    state.mark_unchanged();
                    walk = Some(Box::pin(self.walk(&cluster, &own_node, limit.clone(), to_state.clone())));
                }
            }
            tokio::select! {
                () = stop.stopped() => return,
                heard = inbox.recv() => match heard {
                    Some(fact) => self.rules.hear(self.context.clock.now(), fact),
                    None => return,
                },
                () = self.context.clock.sleep_until(self.rules.next_wake()), if self.rules.next_wake().is_some() => {}
                () = self.context.clock.sleep_until(again), if again.is_some() => {}
                Ok(()) = heard.changed() => {}
                Ok(()) = boots.changed() => self.rules.clock_set(*boots.borrow_and_update()),
                (end, node) = ended(&mut walk) => {
                    (walk, due) = (None, None);
                    let time = self.rules.wall(self.context.clock.now());
                    self.rules.ended(&end, &state.borrow().passed_over, &node, time);
                    let record = self.rules.record();
                    info!(reason = record.reason, next = record.next_step, "leaving the cluster: over");
                }
                // A change of step at once; within a step not more often than marks are written.
                Ok(()) = state.changed() => {
                    let other = self.rules.record().phase != state.borrow_and_update().stage;
                    due = Some(if other { now } else { written_at + self.limits.marks_gap() });
                }
                () = self.context.clock.sleep_until(due), if due.is_some() => {
                    let newest = state.borrow().clone();
                    let now = self.context.clock.now();
                    self.rules.walked(now, &newest);
                    (due, written_at) = (None, now);
                }
            }
        }
    }

    fn walk(
        &self,
        cluster: &ApiClient,
        own_node: &OwnNode,
        attempt: watch::Receiver<Duration>,
        told: watch::Sender<LeaveState>,
    ) -> impl Future<Output = Walked> + Send + use<> {
        let (cluster, own_node, context) = (cluster.clone(), own_node.clone(), self.context.clone());
        let (limits, marks) = (self.limits.clone(), self.rules.marks());
        let started_at = self.rules.record().started_at.rfc3339();
        async move {
            let clock = context.clock;
            let late = clock.sleep_until(Some(clock.now() + LEAVE_REACH));
            let (node, device_uuid) = tokio::select! {
                known = own_node.known() => known,
                () = late => {
                    let why = "its cluster was out of reach: the name of this node is not known: zedagent publishes no \
                               EdgeNodeInfo";
                    return ((LeavePhase::NotReached, why.to_owned()), "this node".to_owned());
                }
            };
            // No requester has this number: the drain gives such a cordon back if the leave is called off.
            let owner = CordonAnnotation {
                boot_id: context.boot_id.clone(),
                requested_by: 0,
                requested_at: started_at,
                ..CordonAnnotation::default()
            };
            let rules = limits.rules(*attempt.borrow());
            let runtime = RuntimeQuery::default();
            let order = Leave {
                drain: DrainOrder {
                    node: node.clone(),
                    device_uuid,
                    owner,
                    runtime,
                    rules,
                    marks,
                    seen: None,
                },
                attempt,
                tries: limits.cordon_tries,
                pause: limits.cordon_retry(),
                reach: LEAVE_REACH,
            };
            (leave(&cluster, &order, || clock.now(), &told).await, node.to_string())
        }
    }

    /// Whether the record is on disk.
    fn write(&mut self) -> bool {
        let record = self.rules.record();
        let is_one = self.record.get().is_some() || *record != NodeLeave::default();
        self.record.put(is_one.then_some(record))
    }

    /// Logs what a config that reads as one of a node in no cluster leads to.
    fn announce(&self, before: LeavePhase) {
        let record = self.rules.record();
        let (reason, next_step) = (record.reason.as_str(), record.next_step.as_str());
        match (before, record.phase) {
            (before, now) if before == now => {}
            (_, LeavePhase::Announced) => {
                let deadline = record.deadline.shown();
                warn!(deadline, reason, next_step, "leaving the cluster: announced");
            }
            (_, LeavePhase::Unconfirmed) => warn!(reason, next_step, "leaving the cluster: not confirmed"),
            (LeavePhase::Announced | LeavePhase::Unconfirmed, LeavePhase::Member) => {
                info!("leaving the cluster: called off before the first step, the config says member");
            }
            _ => {}
        }
    }

    fn publish_membership(&self, cluster_membership: ClusterMembership) {
        self.cluster_membership.send_if_modified(|held| {
            let other = *held != cluster_membership;
            if other
                && cluster_membership.membership == Membership::Leaving
                && held.membership != Membership::Leaving
            {
                warn!("the config says that this node is in no cluster any more: it leaves");
            }
            *held = cluster_membership;
            other
        });
    }
}

fn follow(tasks: &mut Tasks<LeaveFact>, topic_root: &TopicRoot) {
    tasks.follow::<EdgeNodeClusterConfig>(topic_root, "zedagent", |change| {
        change.latest().map(|it| LeaveFact::Config(it.map(Box::new)))
    });
    tasks.follow::<ClusterDecision>(topic_root, "zedagent", |change| {
        let membership = change.latest()?.map(|it| it.membership);
        Some(LeaveFact::Decision(membership.unwrap_or(ConfigMembership::Unknown)))
    });
    let mut last = None;
    tasks.follow::<ZedAgentStatus>(topic_root, "zedagent", move |change| {
        let status = change.latest()?.map(|it| it.config_get_status);
        // The rest of that topic is no news here.
        (last.replace(status) != Some(status)).then_some(LeaveFact::Fetch(status))
    });
}

/// The end of the walk; never while there is none.
async fn ended(walk: &mut Option<Pin<Box<dyn Future<Output = Walked> + Send>>>) -> Walked {
    match walk {
        Some(walk) => walk.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use agent::{Clock, publication, wire};
    use pubsub::Publication;

    use super::*;
    use crate::NAME;

    #[tokio::test]
    async fn a_damaged_record_is_read_from_its_backup_so_that_a_leave_is_not_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let mut topic: Publication<NodeLeave> = publication(&topic_root, NAME).unwrap();
        for reason in ["first", "second"] {
            let record =
                NodeLeave { phase: LeavePhase::Draining, reason: reason.to_owned(), ..NodeLeave::default() };
            topic.publish(GLOBAL, &record).unwrap();
        }
        drop(topic);
        std::fs::File::create(wire::path::<NodeLeave>(&topic_root, NAME, GLOBAL)).unwrap();
        let (_stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let troubles = Troubles::open(&topic_root, context.clock, NAME);
        let leaver = Leaver::open(&context, &troubles, &Limits::default()).unwrap();
        assert_eq!(leaver.membership().borrow().membership, Membership::Leaving);
    }
    #[tokio::test(start_paused = true)]
    async fn no_walk_begins_before_the_drain_has_heard_of_it() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let mut topic: Publication<NodeLeave> = publication(&topic_root, NAME).unwrap();
        let record = NodeLeave { phase: LeavePhase::Draining, ..NodeLeave::default() };
        topic.publish(GLOBAL, &record).unwrap();
        drop(topic);
        let mut config = publication::<EdgeNodeClusterConfig>(&topic_root, "zedagent").unwrap();
        let none = EdgeNodeClusterConfig { initialized: true, ..EdgeNodeClusterConfig::default() };
        config.publish(GLOBAL, &none).unwrap();
        let (_stopper, context) = AgentContext::alone(&topic_root, Clock::new(), "b1");
        let troubles = Troubles::open(&topic_root, context.clock, NAME);
        let limits = Limits::default();
        let leaver = Leaver::open(&context, &troubles, &limits).unwrap();
        let heard = leaver.acknowledged();
        // A walk ends soon: the name of the node is not known.
        let cluster = ApiClient::from_kubeconfig(root.path().join("none"));
        let run = leaver.run(cluster, OwnNode::default(), watch::channel(Duration::ZERO).1);
        let after_a_walk = async || {
            context.clock.sleep_until(Some(context.clock.now() + LEAVE_REACH * 2)).await;
            wire::peek::<NodeLeave>(&topic_root, NAME, GLOBAL).unwrap().unwrap().phase
        };
        let told = async {
            assert_eq!(after_a_walk().await, LeavePhase::Draining);
            heard.send_replace(Some(Membership::Leaving));
            assert_eq!(after_a_walk().await, LeavePhase::NotReached);
        };
        tokio::select! {
            () = run => panic!("it ended by itself"),
            () = told => {}
        }
    }
}
