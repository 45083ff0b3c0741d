//! The turn of this node, kept: the calls that `turn` asks for, and the watch it hears.
//!
//! Not here: any decision. Sources: spec/cluster-lock.md 3; goals U1, U2, U10, U12.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, FuturesUnordered, StreamExt};
use jiff::Timestamp;
use kubeapi::reply::Reach;
use kubeapi::{Cluster, NodeName};
use step::{Core, Mono};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::calls::{self, Looked, Pulses};
use crate::margin;
use crate::margin::calls::Source;
use crate::margin::facts::{Facts, Kubernetes, Own};
use crate::margin::rule::{Margin, judge, successor};
use crate::turn::core::Turn;
use crate::turn::event::{CallId, Effect, Event, Standing, Trouble, Unconfirmed, Waiting, Want, Wrote};
use crate::turn::record::{Class, Held, Op, Phase};
use crate::turn::rule::{Me, NodeSeen, Rule};

/// The watch of the Lease stays open for so long after it was needed last: requests that come and go share one.
const LINGER: Duration = Duration::from_secs(60);
/// Pause before our own node is read again.
const OWN_AGAIN: Duration = Duration::from_secs(5);

/// How long the machine that goes down waits for its entry to say so.
const BRIEF: Duration = Duration::from_secs(2);

/// What a turn is wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The operation.
    pub op: Op,
    /// Which request of that kind.
    pub counter: u64,
    /// It happens whatever the record says: the entry is for the others to see.
    pub emergency: bool,
}

/// What the keeper is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// What a turn is wanted for; `None` for nothing, and what is held is given back.
    Want(Option<Wish>),
    /// The API answers again: look now.
    Look,
    /// Look once more whether the turn is ours; answered by [`Told::Confirmed`].
    Confirm,
    /// The machine is about to go down, question of this number; answered by [`Told::LookedLast`].
    LastLook(u64),
    /// The attempt failed and our cordon is gone: give back, and queue again after a growing pause.
    Retry(String),
    /// Whether the gate after the boot is open and nothing of ours is left on the node.
    Gate(bool),
    /// How far we are.
    Phase(Phase),
}

/// What the keeper says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Where this node is.
    Standing(Standing),
    /// Answer to [`Ask::Confirm`].
    Confirmed(Result<(), Unconfirmed>),
    /// Answer to [`Ask::LastLook`].
    LookedLast(u64, Result<(), Unconfirmed>),
    /// Whether our node is a control-plane node or an etcd member.
    Server(bool),
}

/// This node, as the device knows it.
#[derive(Debug, Clone)]
pub struct Ours {
    /// Name of its Node object.
    pub node: NodeName,
    /// UUID of the device.
    pub device_uuid: String,
    /// Its boot.
    pub boot_id: String,
    /// Where our own etcd is, if there is one.
    pub etcd: Source,
}

/// Levels that outlive the object of our node.
#[derive(Debug, Default)]
#[expect(clippy::option_option, reason = "not said yet, and that nothing is wanted, differ")]
struct Levels {
    want: Option<Option<Wish>>,
    gate: Option<bool>,
    phase: Option<Phase>,
}

impl Levels {
    fn take(&mut self, ask: &Ask) {
        match ask {
            Ask::Want(want) => self.want = Some(want.clone()),
            Ask::Gate(open) => self.gate = Some(*open),
            Ask::Phase(phase) => self.phase = Some(phase.clone()),
            Ask::Confirm | Ask::LastLook(_) | Ask::Look | Ask::Retry(_) => {}
        }
    }
}

/// Keeps the turn of this node until nobody asks any more. Dropping it ends its calls and its watch; what is in the
/// record stays, and the next keeper continues from it.
pub async fn keep(
    cluster: &Cluster,
    ours: &Ours,
    now: impl Fn() -> Mono,
    wall: impl Fn() -> Timestamp,
    asks: &mut mpsc::UnboundedReceiver<Ask>,
    told: &mpsc::UnboundedSender<Told>,
) {
    let mut levels = Levels::default();
    loop {
        let Some(own) = own(cluster, ours, &now, asks, &mut levels, told).await else { return };
        if told.send(Told::Server(own.server)).is_err() {
            return;
        }
        let class = match (own.tie_breaker, own.server) {
            (true, _) => Class::TieBreaker,
            (false, false) => Class::Worker,
            (false, true) => Class::Follower,
        };
        let me = Me {
            node: ours.node.to_string(),
            uid: own.uid,
            boot_id: ours.boot_id.clone(),
            server: own.server,
        };
        let mut keeper = Keeper {
            cluster,
            ours,
            class,
            turn: Turn::new(me.clone(), RandomState::new().hash_one("jitter")),
            me,
            pulses: Pulses::default(),
            kubernetes: unread(),
            calls: FuturesUnordered::new(),
            changes: stream::pending().boxed(),
            follows: false,
            closes: None,
            other: false,
        };
        if keeper.run(&now, &wall, asks, &mut levels, told).await {
            return;
        }
    }
}

/// Our own node, as soon as it can be read; `None` when nobody asks any more.
async fn own(
    cluster: &Cluster,
    ours: &Ours,
    now: &impl Fn() -> Mono,
    asks: &mut mpsc::UnboundedReceiver<Ask>,
    levels: &mut Levels,
    told: &mpsc::UnboundedSender<Told>,
) -> Option<calls::Own> {
    let since = now();
    loop {
        let error = match calls::own(cluster, &ours.node, &ours.device_uuid).await {
            Ok(own) => return Some(own),
            Err(error) => error,
        };
        let (away, why) = (error.reach(), format!("{} ({})", error.line(), error.next_step()));
        let rest = sleep(OWN_AGAIN);
        tokio::pin!(rest);
        loop {
            if matches!(&levels.want, Some(Some(_))) {
                let next = "kubectl get nodes".to_owned();
                let waiting = Waiting {
                    nodes: Vec::new(),
                    rule: Rule::Api,
                    why: why.clone(),
                    since,
                    place: None,
                    next,
                };
                told.send(Told::Standing(Standing::Waiting(Box::new(waiting)))).ok()?;
            }
            tokio::select! {
                () = &mut rest => break,
                ask = asks.recv() => {
                    let ask = ask?;
                    levels.take(&ask);
                    if ask == Ask::Look {
                        break;
                    }
                    if ask == Ask::Confirm {
                        told.send(Told::Confirmed(Err(Unconfirmed::Unknown(why.clone())))).ok()?;
                    }
                    if let Ask::LastLook(number) = ask {
                        let margin = Err("whether this node is a server is not known".to_owned());
                        let why = why.clone();
                        let result = match away {
                            Reach::Unreachable => Unconfirmed::Unreachable { why, margin },
                            Reach::Reachable | Reach::Throttled => Unconfirmed::Unknown(why),
                        };
                        told.send(Told::LookedLast(number, Err(result))).ok()?;
                    }
                }
            }
        }
    }
}

enum Done {
    Read(CallId, Result<Option<Box<Held>>, Trouble>),
    Looked(CallId, Result<Looked, Trouble>, Pulses),
    Margin(CallId, Result<(), String>),
    Wrote(CallId, Wrote),
    /// The lead of etcd, as far as it was ours and could be.
    Moved,
}

struct Keeper<'a> {
    cluster: &'a Cluster,
    ours: &'a Ours,
    me: Me,
    class: Class,
    turn: Turn,
    pulses: Pulses,
    /// What the last reading of the nodes has shown, for one look at the margin.
    kubernetes: Kubernetes,
    calls: FuturesUnordered<BoxFuture<'a, Done>>,
    changes: BoxStream<'static, Option<Box<Held>>>,
    /// Whether changes are to be heard, and when the watch is closed if not.
    follows: bool,
    closes: Option<Mono>,
    /// The object of our node is another one.
    other: bool,
}

impl Keeper<'_> {
    /// Returns whether nobody asks any more; otherwise our node is another object now.
    async fn run(
        &mut self,
        now: &impl Fn() -> Mono,
        wall: &impl Fn() -> Timestamp,
        asks: &mut mpsc::UnboundedReceiver<Ask>,
        levels: &mut Levels,
        told: &mpsc::UnboundedSender<Told>,
    ) -> bool {
        let mut first: Vec<Event> = Vec::new();
        first.extend(levels.want.clone().map(|want| self.event(Ask::Want(want))));
        first.extend(levels.gate.map(Event::Gate));
        first.extend(levels.phase.clone().map(Event::Phase));
        first.push(Event::Tick);
        for event in first {
            if !self.step(now(), event, wall, told) {
                return true;
            }
        }
        while !self.other {
            let at = now();
            if self.closes.is_some_and(|closes| closes <= at) {
                (self.closes, self.changes) = (None, stream::pending().boxed());
            }
            let due = self.turn.next_wake().into_iter().chain(self.closes).min();
            let event = tokio::select! {
                ask = asks.recv() => {
                    let Some(ask) = ask else { return true };
                    levels.take(&ask);
                    if ask == Ask::Phase(Phase::Drained) && self.me.server {
                        let (cluster, ours, next) = (self.cluster, self.ours, self.turn.next_nodes());
                        let moved = async move {
                            move_lead(cluster, ours, &next, at).await;
                            Done::Moved
                        };
                        self.calls.push(moved.boxed());
                    }
                    self.event(ask)
                }
                Some(done) = self.calls.next(), if !self.calls.is_empty() => self.done(done),
                Some(value) = self.changes.next() => {
                    if !self.follows {
                        continue;
                    }
                    Event::Changed(value)
                }
                () = sleep(due.map_or(Duration::ZERO, |due| due.since(at))), if due.is_some() => Event::Tick,
            };
            if !self.step(now(), event, wall, told) {
                return true;
            }
        }
        false
    }

    fn event(&self, ask: Ask) -> Event {
        match ask {
            Ask::Want(wish) => Event::Want(wish.map(|Wish { op, counter, emergency }| Want {
                op,
                counter,
                class: self.class.clone(),
                emergency,
            })),
            Ask::Look => Event::Look,
            Ask::Confirm => Event::Confirm,
            Ask::LastLook(number) => Event::LastLook(number),
            Ask::Retry(why) => Event::Retry(why),
            Ask::Gate(open) => Event::Gate(open),
            Ask::Phase(phase) => Event::Phase(phase),
        }
    }

    fn done(&mut self, done: Done) -> Event {
        match done {
            Done::Moved => Event::Tick,
            Done::Read(id, read) => Event::Read(id, read),
            Done::Margin(id, margin) => Event::Margin(id, margin),
            Done::Wrote(id, wrote) => Event::Wrote(id, wrote),
            Done::Looked(id, looked, pulses) => {
                self.pulses = pulses;
                if let Err(trouble) = &looked {
                    let why = trouble.to_string();
                    self.kubernetes = match trouble {
                        Trouble::NoAnswer(_) => Kubernetes::Unreachable(why),
                        Trouble::Refused(_) | Trouble::BadRecord(_) => Kubernetes::Unreadable(why),
                    };
                }
                Event::Cluster(
                    id,
                    looked.map(|looked| {
                        let ours = |it: &&NodeSeen| it.name == self.me.node;
                        self.other = looked.nodes.iter().find(ours).is_some_and(|it| it.uid != self.me.uid);
                        self.kubernetes = Kubernetes::Read(looked.servers);
                        looked.nodes
                    }),
                )
            }
        }
    }

    /// Returns whether somebody listens.
    fn step(
        &mut self,
        now: Mono,
        event: Event,
        wall: &impl Fn() -> Timestamp,
        told: &mpsc::UnboundedSender<Told>,
    ) -> bool {
        let effects = self.turn.step(now, event);
        effects.into_iter().all(|effect| self.perform(now, effect, wall, told))
    }

    fn perform(
        &mut self,
        now: Mono,
        effect: Effect,
        wall: &impl Fn() -> Timestamp,
        told: &mpsc::UnboundedSender<Told>,
    ) -> bool {
        let (cluster, ours) = (self.cluster, self.ours);
        match effect {
            Effect::Read(id) => {
                self.calls.push(async move { Done::Read(id, calls::read(cluster).await) }.boxed());
            }
            Effect::ReadCluster(id) => {
                let mut pulses = std::mem::take(&mut self.pulses);
                self.calls.push(
                    async move {
                        let looked = calls::look(cluster, &mut pulses, now).await;
                        Done::Looked(id, looked, pulses)
                    }
                    .boxed(),
                );
            }
            Effect::ReadMargin(id) => {
                let kubernetes = self.me.server.then(|| std::mem::replace(&mut self.kubernetes, unread()));
                self.calls.push(async move { Done::Margin(id, spare(ours, kubernetes).await) }.boxed());
            }
            Effect::Write(id, order) => {
                let own = order.record.holder(&self.me.node, &self.me.uid);
                let brief = own.is_some_and(|it| matches!(it.phase, Phase::GoingDown | Phase::Emergency));
                let write = calls::write(cluster, *order, wall());
                let write = async move {
                    if !brief {
                        return Done::Wrote(id, write.await);
                    }
                    let late = || Wrote::Unknown(format!("no answer within {} s", BRIEF.as_secs()));
                    Done::Wrote(id, timeout(BRIEF, write).await.unwrap_or_else(|_late| late()))
                };
                self.calls.push(write.boxed());
            }
            Effect::Follow(true) => {
                self.follows = true;
                if self.closes.take().is_none() {
                    let seed = RandomState::new().hash_one("jitter");
                    self.changes = calls::changes(cluster, seed).boxed();
                }
            }
            Effect::Follow(false) => (self.follows, self.closes) = (false, Some(now + LINGER)),
            Effect::Stand(standing) => return told.send(Told::Standing(standing)).is_ok(),
            Effect::LookedLast(number, result) => return told.send(Told::LookedLast(number, result)).is_ok(),
            Effect::Confirmed(result) => return told.send(Told::Confirmed(result)).is_ok(),
            Effect::Say(what) => info!(node = self.me.node, "outage turn: {what}"),
        }
        true
    }
}

/// Moves the lead of etcd to a healthy member, if possible none of `next`, and says so; nothing where ours does not lead.
async fn move_lead(cluster: &Cluster, ours: &Ours, next: &[String], now: Mono) {
    let own = margin::calls::read(&ours.etcd).await;
    if !own.metrics.as_ref().is_ok_and(|it| it.is_leader) {
        return;
    }
    let moved = async {
        let looked = calls::look(cluster, &mut Pulses::default(), now).await.map_err(|it| it.to_string())?;
        let verdict = judge(&facts(ours, own, Kubernetes::Read(looked.servers)));
        let Some((to, id)) = successor(&verdict.healthy_peers, next) else {
            return Err(format!("no other member is known to be healthy: {:?}", verdict.margin));
        };
        margin::calls::hand_over(&ours.etcd, *id).await.map(|()| to.clone())
    };
    match moved.await {
        Ok(to) => info!(node = %ours.node, to, "moved the leadership of etcd before going down"),
        // etcd elects another leader by itself, some seconds later (goal U4).
        Err(why) => {
            warn!(node = %ours.node, why, "could not move the leadership of etcd; it is elected again");
        }
    }
}

fn unread() -> Kubernetes {
    Kubernetes::Unreadable("not read yet".to_owned())
}

fn facts(ours: &Ours, own: Own, kubernetes: Kubernetes) -> Facts {
    Facts { node: ours.node.to_string(), own, kubernetes, words: Vec::new() }
}

/// Whether the cluster can spare our node; a worker always.
async fn spare(ours: &Ours, kubernetes: Option<Kubernetes>) -> Result<(), String> {
    let Some(kubernetes) = kubernetes else { return Ok(()) };
    let own = margin::calls::read(&ours.etcd).await;
    match judge(&facts(ours, own, kubernetes)).margin {
        Margin::Spare { voters, healthy, quorum } => {
            info!(voters, healthy, quorum, "etcd can spare this node");
            Ok(())
        }
        Margin::NotApplicable { why } => {
            info!(why, "no quorum of etcd to keep");
            Ok(())
        }
        Margin::None { why } => Err(why),
    }
}
