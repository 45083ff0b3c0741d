//! Work on the cluster, each piece a task that ends in a fact.
//!
//! Not here: how often a piece is tried. Dropping a piece ends its calls; what the server did then is unknown,
//! and the next piece looks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::{AgentContext, Outbox};
use kubeapi::nodes::ReachableNode;
use kubeapi::reply::Reach;
use kubeapi::{ApiClient, Error, NodeName, nodes};
use kubenodeop::node::LastSeen;
use kubenodeop::node::boot::{self, BootWatch, GateReport, NodeAtRest};
use kubenodeop::{
    AttemptFailure, AttemptRules, CordonAnnotation, Cordoned, DrainOrder, Progress, SurgeRule,
    WatchedBlockers, node,
};
use outage::Ours;
use outage::calls::Newest;
use outage::keeper::spare;
use outage::keeper::{self, Ask, KeeperReport};
use outage::margin::calls::EtcdAccess;
use outage::margin::facts::{Data, Kubernetes};
use pubsub::TopicRoot;
use step::Mono;
use tokio::sync::{mpsc, watch};
use topics::{CordonOwner, DrainMarks, NodeDrainRequest, TurnWord};

use crate::after_boot;
use crate::core::{
    CordonFailure, CordonTurn, Event, Learned, NodeLook, RemainingPod, RunId, UnansweredCall, UndoScope,
};
use crate::left_behind;
use crate::limits::{Limits, PROBE_PAUSE};
use crate::outage::{Hears, turn_word};
use crate::preflight::PreflightRunner;
use crate::runtime;
use kubeapi::OwnNode;

/// The time for the list of nodes that is read for times without an API.
const LEARN_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct TaskContext {
    cluster: ApiClient,
    context: AgentContext,
    pub(crate) limits: Limits,
    pub(crate) own_node: OwnNode,
    /// Our node, as it was seen last.
    seen: LastSeen,
    /// The Lease of turns, as it was seen last.
    lease: Newest,
    /// The look before a drain.
    pub(crate) preflight: PreflightRunner,
    /// What this node says of its turn to its peers.
    says: Arc<watch::Sender<TurnWord>>,
    /// And of those with silent kubelets.
    pub(crate) hears: watch::Sender<Hears>,
    /// Whether the config has EvictionRequests for pods that declare responders.
    pub(crate) requests: Arc<AtomicBool>,
    /// The addresses of our node as they were read before this boot or start; empty where they are not known.
    pub(crate) addresses: Vec<String>,
}

impl TaskContext {
    pub(crate) fn new(
        cluster: ApiClient,
        context: AgentContext,
        limits: Limits,
        own_node: OwnNode,
        lease: Newest,
    ) -> Self {
        // Who takes no turns needs none.
        let says = Arc::new(watch::Sender::new(TurnWord { idle: !limits.take_turns, fence: 0 }));
        let preflight = PreflightRunner::new(context.clone(), limits.clone(), lease.clone());
        let (seen, addresses) = (LastSeen::default(), Vec::new());
        let (hears, requests) = (watch::Sender::default(), Arc::default());
        Self { cluster, context, limits, own_node, seen, lease, preflight, says, hears, requests, addresses }
    }

    /// What this node says of itself to its peers.
    pub(crate) fn statement(&self) -> nodestatus::Make {
        crate::outage::statement(
            self.own_node.clone(),
            self.etcd(),
            self.says.subscribe(),
            self.hears.subscribe(),
        )
    }

    fn etcd(&self) -> EtcdAccess {
        self.limits.etcd(&self.context.topic_root.path(""))
    }

    fn runtime(&self) -> kubenodeop::RuntimeQuery {
        runtime::seam(&self.context.topic_root.path(""), &self.limits)
    }

    fn ours(&self) -> Result<Ours, String> {
        let (node, device_uuid) = self.own_node.get()?;
        let (boot_id, etcd) = (self.context.boot_id.clone(), self.etcd());
        Ok(Ours { node, device_uuid, boot_id, etcd, port: self.limits.server_port })
    }

    /// Whether etcd can spare our node, by its own word and those of its members' agents, as the API is away.
    pub(crate) async fn margin(self, run: RunId, lacks_etcd: bool, trouble: String) -> Option<Event> {
        let etcd = self.etcd();
        let result = match (etcd.paths.data(etcd.settings.data), self.ours()) {
            (Ok(Data::Absent { .. }), _) if lacks_etcd => {
                Ok("this node has no etcd, and no other server is known".to_owned())
            }
            (_, Ok(ours)) => spare(&ours, Kubernetes::Unreachable(trouble)).await.margin,
            (_, Err(why)) => Err(why),
        };
        Some(Event::Spared(run, result))
    }

    /// Reads what is to be known of the cluster while its API is away; `None` when it cannot be read now. Dropping it
    /// loses nothing.
    pub(crate) async fn learn(&self) -> Option<Learned> {
        let (own, _) = self.own_node.known().await;
        let members = nodes::members(&self.cluster, LEARN_LIMIT).await.ok()?;
        let server = |it: &ReachableNode| it.facts.control_plane || it.facts.etcd;
        let is_own = |it: &&ReachableNode| it.name == own.as_str();
        let me = members.iter().find(is_own)?;
        let others: Vec<&ReachableNode> = members.iter().filter(|it| !is_own(it)).collect();
        let servers = others.iter().filter(|it| server(it)).map(|it| it.name.clone()).collect();
        let volume = match kubenodeop::last_of_volume(&self.cluster, &own).await {
            Ok(found) => found.unwrap_or_else(|| "none".to_owned()),
            Err(error) if error.is_silence() => return None,
            Err(_) => String::new(),
        };
        let addresses = me.addresses.iter().map(ToString::to_string).collect();
        Some(Learned { server: server(me), alone: others.is_empty(), servers, volume, addresses })
    }

    /// Whether the API is there. Throttled or refused, it is.
    pub(crate) async fn probe(self, run: RunId, outbox: Outbox<Event>) {
        let asked = self.context.clock.now();
        let error = nodes::probe(&self.cluster).await.err();
        if !outbox.send(Event::Away(run, self.silence(asked, error.as_ref()))).await {
            return;
        }
        let result = match error {
            None => Ok(()),
            Some(error) => match error.reach() {
                Reach::Reachable | Reach::Throttled => Ok(()),
                Reach::Unreachable => Err(error.advice()),
            },
        };
        outbox.send(Event::Probed(run, result)).await;
    }

    /// What a call says of it that began at `asked`: whether nothing answered.
    fn silence(&self, asked: Mono, error: Option<&Error>) -> Option<Box<UnansweredCall>> {
        let error = error.filter(|it| it.is_silence())?;
        Some(Box::new(UnansweredCall { asked, address: self.cluster.address(), why: error.line() }))
    }

    fn owner(&self, request: &NodeDrainRequest, grant: CordonTurn) -> CordonAnnotation {
        CordonAnnotation {
            boot_id: self.context.boot_id.clone(),
            requested_by: request.requested_by.number(),
            requested_at: request.requested_at.rfc3339(),
            fence: grant.fence,
            lease_uid: grant.lease_uid,
            site: String::new(),
        }
    }

    /// Keeps our turn to be down for as long as somebody asks.
    pub(crate) async fn turn(self, mut asks: mpsc::UnboundedReceiver<Ask>, outbox: Outbox<Event>) {
        let Ok(ours) = self.ours() else { return };
        let clock = self.context.clock;
        let (sender, mut told) = mpsc::unbounded_channel();
        let keep = keeper::keep(
            &self.cluster,
            &ours,
            &self.lease,
            (|| clock.now(), || clock.wall().to_timestamp()),
            &mut asks,
            &sender,
        );
        let tell = async {
            while let Some(told) = told.recv().await {
                let event = match told {
                    KeeperReport::TurnState(turn_state) => {
                        self.says.send_replace(turn_word(&turn_state));
                        Event::Turn(Box::new(turn_state))
                    }
                    KeeperReport::ServersOut(servers) => Event::ServersOut(servers),
                    KeeperReport::Confirmed(result) => Event::TurnConfirmed(result),
                    KeeperReport::LookedLast(number, result) => Event::LookedLast(number, result),
                    KeeperReport::Server(server) => Event::Server(server),
                };
                if !outbox.send(event).await {
                    return;
                }
            }
        };
        tokio::select! {
            () = keep => {}
            () = tell => {}
        }
    }

    /// What speaks against the drain.
    pub(crate) async fn preflight(self, run: RunId, outbox: Outbox<Event>) {
        Box::pin(self.preflight.look(self.cluster, self.own_node, run, outbox)).await;
    }

    /// One try to cordon.
    pub(crate) async fn cordon(
        self,
        run: RunId,
        request: NodeDrainRequest,
        grant: CordonTurn,
    ) -> Option<Event> {
        let owner = self.owner(&request, grant);
        let result = match self.own_node.get() {
            Ok((name, uuid)) => {
                match node::cordon_from(&self.cluster, (&name, &uuid), &owner, &self.seen).await {
                    Ok(Cordoned::Written | Cordoned::Kept) => Ok(CordonOwner::Ours),
                    Ok(Cordoned::Foreign) => Ok(CordonOwner::Foreign),
                    Err(error) => Err(CordonFailure { why: error.line(), next_step: error.next_step() }),
                }
            }
            Err(why) => Err(why.as_str().into()),
        };
        Some(Event::Cordoned(run, result))
    }

    /// One attempt to drain, with its progress; its newest comes before its end.
    pub(crate) async fn drain(
        self,
        run: RunId,
        (request, grant): (NodeDrainRequest, CordonTurn),
        (limit, marks): (Duration, DrainMarks),
        outbox: Outbox<Event>,
    ) {
        let (node, device_uuid) = match self.own_node.get() {
            Ok(own_node) => own_node,
            Err(reason) => {
                let (blockers, watched) = (Vec::new(), WatchedBlockers::default());
                let failure = AttemptFailure { reason, blockers, watched, marks: DrainMarks::default() };
                outbox.send(Event::Drained(run, Err(Box::new(failure)))).await;
                return;
            }
        };
        let eviction_requests = self.requests.load(Ordering::Relaxed);
        let rules = AttemptRules { eviction_requests, ..self.limits.rules(limit) };
        let (owner, runtime) = (self.owner(&request, grant), self.runtime());
        let order = DrainOrder { node, device_uuid, owner, runtime, rules, marks, seen: self.seen.get() };
        let (sender, receiver) = watch::channel(Progress::default());
        let clock = self.context.clock;
        let outcome = {
            let drain = kubenodeop::drain(&self.cluster, &order, || clock.now(), &sender);
            let reach = self.ask_in_trouble(run, receiver.clone(), &outbox);
            let tell = pass_on(receiver, outbox.clone(), |newest| Event::Draining(run, Box::new(newest)));
            tokio::pin!(drain, tell);
            tokio::select! {
                outcome = &mut drain => outcome,
                () = &mut tell => drain.await,
                () = reach => drain.await,
            }
        };
        let newest = sender.borrow().clone();
        if !outbox.send(Event::Draining(run, Box::new(newest))).await {
            return;
        }
        outbox.send(Event::Drained(run, outcome)).await;
    }

    /// Asks whether the API answers for as long as an attempt has trouble with it.
    async fn ask_in_trouble(
        &self,
        run: RunId,
        mut progress: watch::Receiver<Progress>,
        outbox: &Outbox<Event>,
    ) {
        let clock = self.context.clock;
        let mut silent = false;
        loop {
            if !silent && progress.wait_for(|it| !it.trouble.is_empty()).await.is_err() {
                return;
            }
            let asked = clock.now();
            let away = self.silence(asked, nodes::probe(&self.cluster).await.err().as_ref());
            let was_silent = std::mem::replace(&mut silent, away.is_some());
            if (was_silent || silent) && !outbox.send(Event::Away(run, away)).await {
                return;
            }
            clock.sleep_until(Some(clock.now() + PROBE_PAUSE)).await;
        }
    }

    /// Waits until something that held a failed attempt up has changed. Dropping it loses nothing.
    pub(crate) async fn changed(self, run: RunId, watched: Box<WatchedBlockers>) -> Option<Event> {
        let (node, _) = self.own_node.get().ok()?;
        let what = kubenodeop::until_changed(&self.cluster, &node, &watched).await;
        Some(Event::BlockerChanged(run, what))
    }

    /// Watches over the gate after the boot, and removes stale taints; the newest report counts. It never ends.
    pub(crate) async fn gate<E>(self, outbox: Outbox<E>, event: fn(GateReport) -> E) {
        let Ok(boot) = self.boot() else { return };
        let etcd = self.etcd();
        let waits = || {
            let etcd = etcd.clone();
            async move { outage::margin::calls::waits(&etcd).await.unwrap_or_default() }
        };
        let AgentContext { topic_root, clock, .. } = &self.context;
        let (sender, receiver) = watch::channel(GateReport::default());
        tokio::select! {
            () = after_boot::run(topic_root, &self.cluster, &boot, &self.limits, *clock, waits, &sender) => {}
            () = pass_on(receiver, outbox, event) => {}
        }
    }

    /// The version of k3s as the kubelet of our node reports it.
    pub(crate) async fn kubelet_version(self) -> Result<String, String> {
        let (node, device_uuid) = self.own_node.get()?;
        let node = nodes::own(&self.cluster, &node, &device_uuid).await.map_err(|error| error.line())?;
        let info = node.status.and_then(|it| it.node_info);
        info.map(|it| it.kubelet_version).ok_or_else(|| "the node says nothing of its kubelet".to_owned())
    }

    fn boot(&self) -> Result<BootWatch, String> {
        let (node, device_uuid) = self.own_node.get()?;
        let boot_id = self.context.boot_id.clone();
        let lost = lost_parameters(&self.context.topic_root, &self.limits.kernel_parameters);
        let addresses = self.addresses.clone();
        let (limits, seen) = (self.limits.gate(), self.seen.clone());
        Ok(BootWatch { node, device_uuid, boot_id, limits, lost, addresses, seen })
    }

    /// Watches our node until taints of an outage are on it, and says how its cordon is. Dropping it loses nothing.
    pub(crate) async fn taints(self, outbox: Outbox<Event>) {
        let Ok(boot) = self.boot() else { return };
        let (sender, receiver) = watch::channel(NodeAtRest::default());
        let tainted = tokio::select! {
            tainted = boot::until_tainted(&self.cluster, &boot, &sender) => tainted,
            () = pass_on(receiver, outbox.clone(), Event::AtRest) => return,
        };
        outbox.send(Event::Tainted(tainted)).await;
    }

    /// Looks at the node, and with `uncordon` removes a cordon of ours that may go: that waits for nobody but the API server.
    pub(crate) async fn look(self, nth: u64, uncordon: bool, gate_open: bool) -> Option<Event> {
        Some(Event::Looked(nth, self.look_at(uncordon, gate_open).await))
    }

    async fn look_at(&self, uncordon: bool, gate_open: bool) -> Result<NodeLook, String> {
        let (name, uuid) = self.own_node.get()?;
        let facts = match node::read(&self.cluster, &name, &uuid).await {
            Ok(facts) => facts,
            Err(error) if error.is_not_found() && uncordon => {
                return Ok(NodeLook::Gone(format!("{} ({})", error.line(), nodes::NO_NODE)));
            }
            Err(error) => return Err(error.advice()),
        };
        if facts.cordon != CordonOwner::Ours && facts.annotation.is_some() {
            // Somebody has uncordoned: left behind, our mark would make their next cordon look like ours.
            node::unmark(&self.cluster, &facts).await.map_err(|error| error.advice())?;
        }
        if facts.cordon == CordonOwner::None {
            return Ok(NodeLook::Open);
        }
        if !uncordon {
            // After the node: what the cordon let through before is in the list.
            return Ok(NodeLook::HasPods(facts.cordon, self.remaining(&name).await?));
        }
        if facts.cordon == CordonOwner::Foreign || facts.tie_breaker {
            return Ok(NodeLook::Foreign);
        }
        if !facts.our_cordon_goes(&self.context.boot_id, gate_open) {
            return Ok(NodeLook::NotReady);
        }
        let boot = (self.context.boot_id.as_str(), self.context.clock.now());
        node::uncordon_own(&self.cluster, &name, &uuid, boot).await.map_err(|error| error.advice())?;
        Ok(NodeLook::Open)
    }

    /// Takes back what drains of our node have asked of virtual machines and of responders, and with [`UndoScope::All`] of volumes and
    /// Deployments too.
    pub(crate) async fn undo_drain(self, scope: UndoScope, outbox: Outbox<Event>) {
        let Ok((node, _)) = self.own_node.get() else { return };
        let clock = self.context.clock;
        let requests = self.requests.load(Ordering::Relaxed);
        if scope != UndoScope::All {
            return left_behind::undo_migrations(&self.cluster, &node, requests, clock, outbox).await;
        }
        let surges = self.limits.surge != SurgeRule::Never;
        left_behind::undo_drain(&self.cluster, &node, (surges, requests), clock, outbox).await;
    }

    /// The pods that a drain would take away or wait for.
    async fn remaining(&self, node: &NodeName) -> Result<Vec<RemainingPod>, String> {
        runtime::remaining(&self.cluster, node, &self.runtime()).await.map_err(|error| error.advice())
    }

    /// Watches the drained node until something happens there. Dropping it loses nothing.
    pub(crate) async fn guard(self) -> Option<Event> {
        let (node, _) = self.own_node.get().ok()?;
        Some(Event::NodeActivity(kubenodeop::until_activity(&self.cluster, &node).await))
    }
}

/// Passes the newest value on; values in between may be left out.
pub(crate) async fn pass_on<T: Clone, E>(
    mut values: watch::Receiver<T>,
    outbox: Outbox<E>,
    event: impl Fn(T) -> E,
) {
    while values.changed().await.is_ok() {
        let newest = values.borrow_and_update().clone();
        if !outbox.send(event(newest)).await {
            return;
        }
    }
}

/// Those of `wanted` that the kernel of this boot was started without; all of them where its command line cannot be read.
fn lost_parameters(topic_root: &TopicRoot, wanted: &[String]) -> Vec<String> {
    let line = std::fs::read_to_string(topic_root.path("proc/cmdline")).unwrap_or_default();
    let has = |it: &String| line.split_ascii_whitespace().any(|given| given == it);
    wanted.iter().filter(|it| !has(it)).cloned().collect()
}
