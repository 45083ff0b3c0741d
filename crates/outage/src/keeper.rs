//! Keeps the turn of this node: the calls that `turn` asks for, and its watch of the record.
//!
//! Not here: any decision.
//!
//! Whether etcd can spare this node now, by all who can be asked, and moving its lead away before it goes.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use kubeapi::ApiClient;
use kubeapi::reply::Reach;
use kubeapi::watch::jitter_seed;
use step::{CallId, Core, Mono};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::Ours;
use crate::calls::{self, Newest, NodeListing, Pulses};
use crate::margin::facts::{EtcdFacts, Kubernetes, OwnEtcd};
use crate::margin::rule::{Margin, judge, node_of, successor};
use crate::margin::{calls as etcd, words};
use crate::turn::Turn;
pub use crate::turn::event::{Ask, TurnRequest};
use crate::turn::event::{Effect, Event, ReadError, RecordWritten, TurnState, TurnWait, Unconfirmed};
use crate::turn::record::{Class, Phase, RecordSnapshot};
use crate::turn::rule::{Me, TurnNode, TurnRule};

/// Pause between two readings of whether our member of etcd leads, while it waits for its turn.
const LEADS_AGAIN: Duration = Duration::from_secs(30);
/// Pause before our own node is read again.
const OWN_AGAIN: Duration = Duration::from_secs(5);

/// How long the machine that goes down waits for its entry to say so.
const BRIEF: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperReport {
    TurnState(TurnState),
    /// Answer to [`Ask::Confirm`].
    Confirmed(Result<(), Unconfirmed>),
    /// The other servers that hold a turn, as the Lease was seen last; each change of them.
    ServersOut(Vec<String>),
    /// Answer to [`Ask::LastLook`].
    LookedLast(u64, Result<(), Unconfirmed>),
    /// Whether our node is a control-plane node or an etcd member.
    Server(bool),
}

/// What was asked for, and outlives the object of our node.
#[derive(Debug, Clone, Default)]
#[expect(clippy::option_option, reason = "not said yet, and that nothing is wanted, differ")]
pub struct TurnLevels {
    want: Option<Option<TurnRequest>>,
    gate: Option<bool>,
    phase: Option<Phase>,
}

impl TurnLevels {
    pub fn take(&mut self, ask: &Ask) {
        match ask {
            Ask::Want(want) => self.want = Some(want.clone()),
            Ask::Gate(open) => self.gate = Some(*open),
            Ask::Phase(phase) => self.phase = Some(phase.clone()),
            Ask::Confirm | Ask::LastLook(_) | Ask::Look | Ask::Retry(_) => {}
        }
    }

    /// What a turn that begins is asked.
    pub fn asks(&self) -> impl Iterator<Item = Ask> + use<> {
        let (want, gate) = (self.want.clone().map(Ask::Want), self.gate.map(Ask::Gate));
        [want, gate, self.phase.clone().map(Ask::Phase)].into_iter().flatten()
    }

    pub fn wants_turn(&self) -> bool {
        matches!(&self.want, Some(Some(_)))
    }
}

/// Who has the turn kept: its clocks, what it asks, and where it hears.
struct Caller<'a> {
    now: &'a (dyn Fn() -> Mono + Sync),
    wall: &'a (dyn Fn() -> Timestamp + Sync),
    asks: &'a mut mpsc::UnboundedReceiver<Ask>,
    told: &'a mpsc::UnboundedSender<KeeperReport>,
    levels: TurnLevels,
}

/// Keeps the turn of this node, by what `lease` shows, until a channel of the caller closes. Dropping it ends its
/// calls; what is in the record stays, and the next keeper continues from it.
pub async fn keep(
    cluster: &ApiClient,
    ours: &Ours,
    lease: &Newest,
    (now, wall): (impl Fn() -> Mono + Sync, impl Fn() -> Timestamp + Sync),
    asks: &mut mpsc::UnboundedReceiver<Ask>,
    told: &mpsc::UnboundedSender<KeeperReport>,
) {
    let mut caller = Caller { now: &now, wall: &wall, asks, told, levels: TurnLevels::default() };
    loop {
        let Some(own) = own(cluster, ours, &mut caller).await else { return };
        if told.send(KeeperReport::Server(own.server)).is_err() {
            return;
        }
        let me = Me {
            node: ours.node.to_string(),
            uid: own.uid,
            boot_id: ours.boot_id.clone(),
            server: own.server,
        };
        let class = Class::of(None, own.tie_breaker, own.server);
        let mut keeper = TurnKeeper {
            cluster,
            ours,
            tie_breaker: own.tie_breaker,
            leads: None,
            leads_at: None,
            turn: Turn::new(me.clone(), class, jitter_seed()),
            me,
            pulses: Pulses::default(),
            kubernetes: unread(),
            calls: FuturesUnordered::new(),
            lease: lease.clone(),
            servers_out: None,
            other: false,
        };
        if keeper.run(&mut caller).await {
            return;
        }
    }
}

/// Our own node, as soon as it can be read; `None` when `asks` is closed.
async fn own(cluster: &ApiClient, ours: &Ours, caller: &mut Caller<'_>) -> Option<calls::OwnNodeFacts> {
    let (since, told) = ((caller.now)(), caller.told);
    loop {
        let error = match calls::own(cluster, &ours.node, &ours.device_uuid).await {
            Ok(own) => return Some(own),
            Err(error) => error,
        };
        let (away, why) = (error.reach(), error.advice());
        let rest = sleep(OWN_AGAIN);
        tokio::pin!(rest);
        loop {
            if caller.levels.wants_turn() {
                let next = "kubectl get nodes".to_owned();
                let waiting = TurnWait {
                    nodes: Vec::new(),
                    rule: TurnRule::Api,
                    why: why.clone(),
                    since,
                    place: None,
                    next,
                };
                told.send(KeeperReport::TurnState(TurnState::Waiting(Box::new(waiting)))).ok()?;
            }
            tokio::select! {
                () = &mut rest => break,
                ask = caller.asks.recv() => {
                    let ask = ask?;
                    caller.levels.take(&ask);
                    if ask == Ask::Look {
                        break;
                    }
                    if ask == Ask::Confirm {
                        told.send(KeeperReport::Confirmed(Err(Unconfirmed::Unknown(why.clone())))).ok()?;
                    }
                    if let Ask::LastLook(number) = ask {
                        let margin = Err("whether this node is a server is not known".to_owned());
                        let why = why.clone();
                        let result = match away {
                            Reach::Unreachable => Unconfirmed::Unreachable { why, margin },
                            Reach::Reachable | Reach::Throttled => Unconfirmed::Unknown(why),
                        };
                        told.send(KeeperReport::LookedLast(number, Err(result))).ok()?;
                    }
                }
            }
        }
    }
}

enum CallResult {
    Read(CallId, Result<Option<Box<RecordSnapshot>>, ReadError>),
    Looked(CallId, Result<NodeListing, ReadError>, Pulses),
    Margin(CallId, Spared),
    Leads(Option<bool>),
    Wrote(CallId, RecordWritten),
    /// The lead of etcd, if it was ours and could be moved.
    Moved,
}

struct TurnKeeper<'a> {
    cluster: &'a ApiClient,
    ours: &'a Ours,
    me: Me,
    tie_breaker: bool,
    /// Our member of etcd leads; `None` until that was asked, and while no turn is wanted.
    leads: Option<bool>,
    /// When it is asked next.
    leads_at: Option<Mono>,
    turn: Turn,
    pulses: Pulses,
    /// What the last reading of the nodes has shown, for one look at the margin.
    kubernetes: Kubernetes,
    calls: FuturesUnordered<BoxFuture<'a, CallResult>>,
    lease: Newest,
    /// As it was said last.
    servers_out: Option<Vec<String>>,
    /// The object of our node is another one.
    other: bool,
}

impl TurnKeeper<'_> {
    /// Returns true when a channel of the caller is closed; false when our node is another object now.
    async fn run(&mut self, caller: &mut Caller<'_>) -> bool {
        let now = caller.now;
        let asks = caller.levels.asks();
        let first: Vec<Event> = asks.flat_map(|ask| self.events(now(), ask)).chain([Event::Tick]).collect();
        if !first.into_iter().all(|it| self.step(now(), it, caller)) {
            return true;
        }
        while !self.other {
            let at = now();
            if self.leads_at.is_some_and(|due| due <= at) {
                self.read_leads(at);
            }
            let due = self.turn.next_wake().into_iter().chain(self.leads_at).min();
            let events = tokio::select! {
                ask = caller.asks.recv() => {
                    let Some(ask) = ask else { return true };
                    caller.levels.take(&ask);
                    if ask == Ask::Phase(Phase::Drained) && self.me.server {
                        let (cluster, ours, next) = (self.cluster, self.ours, self.turn.next_nodes());
                        let moved = async move {
                            move_lead(cluster, ours, &next, at).await;
                            CallResult::Moved
                        };
                        self.calls.push(moved.boxed());
                    }
                    self.events(at, ask)
                }
                Some(done) = self.calls.next(), if !self.calls.is_empty() => {
                    let (leads, event) = (self.leads, self.done(done));
                    let mut events = Vec::new();
                    if let (true, Some(Some(wish))) = (leads != self.leads, &caller.levels.want) {
                        events = self.events(at, Ask::Want(Some(wish.clone())));
                    }
                    events.push(event);
                    events
                }
                Ok(()) = self.lease.changed() => {
                    // What cannot be used is a change too: the Lease itself is asked for then.
                    let seen = self.lease.borrow_and_update().clone();
                    vec![Event::Changed(seen.and_then(Result::ok).flatten())]
                }
                () = sleep(due.map_or(Duration::ZERO, |due| due.since(at))), if due.is_some() => {
                    vec![Event::Tick]
                }
            };
            if !events.into_iter().all(|it| self.step(now(), it, caller)) {
                return true;
            }
        }
        false
    }

    /// Asks our member of etcd whether it leads: who leads goes last, and others read that in the queue.
    fn read_leads(&mut self, now: Mono) {
        self.leads_at = Some(now + LEADS_AGAIN);
        if self.leads.is_none() || matches!(self.turn.state(), TurnState::Waiting(_)) {
            let ours = self.ours;
            self.calls.push(async move { CallResult::Leads(leads(ours).await) }.boxed());
        }
    }

    fn events(&mut self, now: Mono, ask: Ask) -> Vec<Event> {
        let Ask::Want(want) = &ask else { return vec![ask.into()] };
        match want {
            Some(wish) if self.me.server && self.leads.is_none() && !wish.emergency => {
                // It is wanted with the answer.
                if self.leads_at.is_none() {
                    self.read_leads(now);
                }
                return vec![Event::Tick];
            }
            Some(_) => {}
            None => {
                (self.leads, self.leads_at) = (None, None);
                // Its class comes with the next wish.
                return vec![ask.into()];
            }
        }
        vec![Event::Class(Class::of(self.leads, self.tie_breaker, self.me.server)), ask.into()]
    }

    fn done(&mut self, done: CallResult) -> Event {
        match done {
            CallResult::Moved => Event::Tick,
            CallResult::Read(id, read) => Event::Read(id, read),
            CallResult::Leads(leads) => {
                self.leads = leads.or(self.leads).or(Some(false));
                Event::Tick
            }
            CallResult::Margin(id, Spared { margin, leads }) => {
                self.leads = leads.or(self.leads);
                Event::Margin(id, margin.map(drop))
            }
            CallResult::Wrote(id, wrote) => Event::Wrote(id, wrote),
            CallResult::Looked(id, looked, pulses) => {
                self.pulses = pulses;
                if let Err(trouble) = &looked {
                    let why = trouble.to_string();
                    self.kubernetes = match trouble {
                        ReadError::NoAnswer(_) => Kubernetes::Unreachable(why),
                        ReadError::Refused(_) | ReadError::BadRecord(_) => Kubernetes::Unreadable(why),
                    };
                }
                Event::Cluster(
                    id,
                    looked.map(|looked| {
                        let ours = |it: &&TurnNode| it.name == self.me.node;
                        self.other = looked.nodes.iter().find(ours).is_some_and(|it| it.uid != self.me.uid);
                        self.kubernetes = Kubernetes::Read(looked.servers);
                        looked.nodes
                    }),
                )
            }
        }
    }

    /// Returns whether somebody listens.
    fn step(&mut self, now: Mono, event: Event, caller: &Caller<'_>) -> bool {
        let effects = self.turn.step(now, event);
        let servers = self.turn.servers_out();
        if servers.is_some() && servers != self.servers_out {
            self.servers_out.clone_from(&servers);
            if caller.told.send(KeeperReport::ServersOut(servers.unwrap_or_default())).is_err() {
                return false;
            }
        }
        effects.into_iter().all(|effect| self.perform(now, effect, caller))
    }

    fn perform(&mut self, now: Mono, effect: Effect, caller: &Caller<'_>) -> bool {
        let (cluster, ours, told) = (self.cluster, self.ours, caller.told);
        match effect {
            Effect::Read(id) => {
                self.calls.push(async move { CallResult::Read(id, calls::read(cluster).await) }.boxed());
            }
            Effect::ReadCluster(id) => {
                let (mut pulses, holders) = (std::mem::take(&mut self.pulses), self.turn.other_holders());
                self.calls.push(
                    async move {
                        let mut looked = calls::look(cluster, &ours.node, &mut pulses, now).await;
                        if let Ok(looked) = &mut looked {
                            ask_idle(looked, &holders, ours.port).await;
                        }
                        CallResult::Looked(id, looked, pulses)
                    }
                    .boxed(),
                );
            }
            Effect::ReadMargin(id) => {
                let kubernetes = self.me.server.then(|| std::mem::replace(&mut self.kubernetes, unread()));
                self.calls.push(
                    async move {
                        let spared = match kubernetes {
                            Some(kubernetes) => spare(ours, kubernetes).await,
                            None => Spared { margin: Ok("a worker".to_owned()), leads: None },
                        };
                        CallResult::Margin(id, spared)
                    }
                    .boxed(),
                );
            }
            Effect::Write(id, order) => {
                let own = order.record.holder(&self.me.node, &self.me.uid);
                let brief = own.is_some_and(|it| matches!(it.phase, Phase::GoingDown | Phase::Emergency));
                let write = calls::write(cluster, *order, (caller.wall)());
                let write = async move {
                    if !brief {
                        return CallResult::Wrote(id, write.await);
                    }
                    let late = || RecordWritten::Unknown(format!("no answer within {} s", BRIEF.as_secs()));
                    CallResult::Wrote(id, timeout(BRIEF, write).await.unwrap_or_else(|_late| late()))
                };
                self.calls.push(write.boxed());
            }
            Effect::State(turn_state) => return told.send(KeeperReport::TurnState(turn_state)).is_ok(),
            Effect::LookedLast(number, result) => {
                return told.send(KeeperReport::LookedLast(number, result)).is_ok();
            }
            Effect::Confirmed(result) => return told.send(KeeperReport::Confirmed(result)).is_ok(),
            Effect::Say(what) => info!(node = self.me.node, "outage turn: {what}"),
        }
        true
    }
}

fn unread() -> Kubernetes {
    Kubernetes::Unreadable("not read yet".to_owned())
}

/// All that is known now, with what the agents of the other members say.
async fn facts(ours: &Ours, own: OwnEtcd, kubernetes: Kubernetes) -> EtcdFacts {
    let asked = peers(&own, &kubernetes).into_iter().filter(|(node, _)| node != ours.node.as_str());
    let words = words::ask(asked, ours.port).await;
    let words = words.into_iter().map(|(node, answer)| words::word(node, answer)).collect();
    EtcdFacts { node: ours.node.to_string(), own, kubernetes, words }
}

/// The servers with etcd and where their agents are: as Kubernetes says, else as the list of members does.
fn peers(own: &OwnEtcd, kubernetes: &Kubernetes) -> Vec<(String, IpAddr)> {
    match kubernetes {
        Kubernetes::Read(nodes) => {
            let servers = nodes.iter().filter(|it| it.etcd);
            servers.filter_map(|it| Some((it.name.clone(), it.address?))).collect()
        }
        Kubernetes::Unreachable(_) => {
            let members = own.members.iter().flat_map(|it| &it.members);
            members.filter_map(|it| Some((node_of(it).to_owned(), it.address?))).collect()
        }
        Kubernetes::Unreadable(_) => Vec::new(),
    }
}

/// What one reading has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    /// Why our node may go, or why not.
    pub margin: Result<String, String>,
    /// Whether our member leads; `None` where that could not be read.
    pub leads: Option<bool>,
}

/// Whether the cluster can spare our node, a server; read now.
pub async fn spare(ours: &Ours, kubernetes: Kubernetes) -> Spared {
    let own = etcd::read(&ours.etcd).await;
    let leads = own.metrics.as_ref().ok().map(|it| it.is_leader);
    let margin = match judge(&facts(ours, own, kubernetes).await).margin {
        Margin::Spare { voters, healthy, quorum } => {
            info!(voters, healthy, quorum, "etcd can spare this node");
            Ok(format!("{healthy} of {voters} etcd voters are healthy, {quorum} are required"))
        }
        Margin::NotApplicable { why } => {
            info!(why, "no quorum of etcd to keep");
            Ok(why)
        }
        Margin::None { why } => Err(why),
    };
    Spared { margin, leads }
}

/// Whether our member of etcd leads; `None` where that cannot be read.
pub(crate) async fn leads(ours: &Ours) -> Option<bool> {
    words::own(&ours.etcd).await.filter(|it| !it.member.is_empty()).map(|it| it.leads)
}

/// Asks those agents of the nodes whose names are given whether they are idle, and notes it.
pub(crate) async fn ask_idle(looked: &mut NodeListing, names: &[String], port: u16) {
    let asked = looked.servers.iter().filter(|it| names.contains(&it.name));
    let asked: Vec<(String, IpAddr)> = asked.filter_map(|it| Some((it.name.clone(), it.address?))).collect();
    for (name, answer) in words::ask(asked, port).await {
        let idle = answer.is_ok_and(|it| it.turn.idle);
        for node in looked.nodes.iter_mut().filter(|it| it.name == name) {
            node.idle = idle;
        }
    }
}

/// Moves the lead of etcd to a healthy member, if possible none of `next`, and says so; nothing where ours does not lead.
pub(crate) async fn move_lead(cluster: &ApiClient, ours: &Ours, next: &[String], now: Mono) {
    let own = etcd::read(&ours.etcd).await;
    if !own.metrics.as_ref().is_ok_and(|it| it.is_leader) {
        return;
    }
    let moved = async {
        let looked = calls::look(cluster, &ours.node, &mut Pulses::default(), now)
            .await
            .map_err(|it| it.to_string())?;
        let verdict = judge(&facts(ours, own, Kubernetes::Read(looked.servers)).await);
        let Some((to, id)) = successor(&verdict.may_lead, next) else {
            return Err(format!(
                "no other member is known to be healthy and no witness: {:?}",
                verdict.margin
            ));
        };
        etcd::hand_over(&ours.etcd, *id).await.map(|()| to.clone())
    };
    match moved.await {
        Ok(to) => info!(node = %ours.node, to, "moved the leadership of etcd before going down"),
        // etcd elects another leader by itself, some seconds later.
        Err(why) => {
            warn!(node = %ours.node, why, "could not move the leadership of etcd; it is elected again");
        }
    }
}
