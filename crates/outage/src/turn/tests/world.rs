//! A cluster of turns against one Lease in memory: calls that are lost or late, machines that go down and come back,
//! agents that restart, and people who delete, restore, release and uncordon.

use std::time::Duration;

use step::{Core as _, Fault, Mono};

use super::super::Turn;
use super::super::event::{
    Ask, Effect, Event, ReadError, RecordWritten, TurnRequest, TurnState, Unconfirmed,
};
use super::super::pulses::Pulses;
use super::super::record::{Class, Fence, Op, Phase, RecordSnapshot, RecordWrite, TurnRecord};
use super::super::rule::{CordonMark, Me, TurnNode};

/// A machine that is off is seen to be for the first time after so long.
const LAG: Duration = Duration::from_secs(40);

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Budget {
    pub(super) lost: u8,
    pub(super) late: u8,
    pub(super) restarts: u8,
    pub(super) power_cuts: u8,
    pub(super) failures: u8,
    pub(super) withdrawn: u8,
    pub(super) emergencies: u8,
    pub(super) deletions: u8,
    pub(super) restores: u8,
    pub(super) releases: u8,
    pub(super) uncordons: u8,
    pub(super) cuts: u8,
    pub(super) findings: u8,
    pub(super) gone: u8,
    pub(super) etcds: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The server carries out the call of a node and answers.
    Serve(usize),
    /// The server carries it out and the answer is lost.
    LoseAnswer(usize),
    LoseCall(usize),
    /// The write comes later; its sender has given up.
    Delay(usize),
    ServeLate,
    Watch(usize),
    Go(usize),
    Fail(usize),
    Withdraw(usize),
    Restart(usize),
    PowerCut(usize),
    Emergency(usize),
    DeleteLease,
    RestoreLease,
    /// Etcd is as it was before the first turn: no Lease, no cordon.
    RestoreEtcd,
    ReleaseByOperator(usize),
    UncordonByHand(usize),
    Cut(usize),
    Join(usize),
    /// Something keeps the drain of a node from starting, and then no longer.
    Find(usize),
    Mend(usize),
    DeleteNode(usize),
    Wait,
}

/// How far the agent of a node has come with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Step {
    #[default]
    Idle,
    Wants,
    Cordoned,
    Confirming,
    Out,
    LastLook,
    Leaving,
    Emergency,
    Off,
    Back,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) boot: u32,
    pub(super) server: bool,
    pub(super) step: Step,
    pub(super) jobs: u32,
    pub(super) turn: Option<Turn>,
    pub(super) pulses: Pulses,
    pub(super) call: Option<Effect>,
    pub(super) shown: Option<String>,
    pub(super) turn_state: Option<TurnState>,
    pub(super) mark: Option<CordonMark>,
    pub(super) unschedulable: bool,
    pub(super) off_since: Option<Mono>,
    pub(super) out: bool,
    /// Down by its own word, with an entry that says so.
    pub(super) covered: bool,
    pub(super) cut: bool,
    pub(super) deleted: bool,
    /// Its preflight has found what keeps its drain from starting.
    pub(super) found: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: Mono,
    pub(super) lease: Option<RecordSnapshot>,
    pub(super) snapshot: Option<RecordSnapshot>,
    pub(super) late: Option<(RecordWrite, Mono)>,
    pub(super) writes: u32,
    pub(super) leases: u32,
    pub(super) nodes: Vec<Node>,
    pub(super) limit: u32,
    pub(super) budget: Budget,
    pub(super) fault: Option<Fault>,
    pub(super) wrong: Option<String>,
}

fn at(millis: u64) -> Mono {
    Mono::from_start(Duration::from_millis(millis))
}

impl Node {
    pub(super) fn me(&self) -> Me {
        let boot_id = format!("{}-b{}", self.name, self.boot);
        Me { node: self.name.clone(), uid: self.uid.clone(), boot_id, server: self.server }
    }

    pub(super) fn is_off(&self) -> bool {
        self.step == Step::Off
    }

    /// The resource version of the lease of its kubelet, which is renewed whenever time passes.
    fn beat(&self, now: Mono) -> (String, String) {
        let renewed = self.off_since.unwrap_or(now);
        (self.name.clone(), renewed.since_start().as_millis().to_string())
    }

    fn as_read(&self, now: Mono, pulses: &Pulses) -> TurnNode {
        let away = self.off_since.is_some_and(|since| now.since(since) >= LAG);
        TurnNode {
            name: self.name.clone(),
            uid: self.uid.clone(),
            boot_id: self.me().boot_id,
            ready: !away,
            unschedulable: self.unschedulable,
            tie_breaker: false,
            server: self.server,
            etcd: self.server,
            pulse: pulses.of(now, &self.name),
            being_deleted: false,
            out_of_service: None,
            ignored: false,
            idle: !self.cut && self.turn_state == Some(TurnState::NotWanted { idle: true }),
            mark: self.mark.clone(),
        }
    }

    pub(super) fn want(&self, emergency: bool) -> TurnRequest {
        TurnRequest { op: Op::Reboot, counter: u64::from(self.jobs), emergency, fit: !self.found }
    }

    /// Whether [`World::go`] does anything.
    pub(super) fn can_go(&self) -> bool {
        let turn_state = self.turn_state.as_ref();
        match self.step {
            Step::Idle => turn_state.is_some() && self.jobs > 0,
            Step::Wants => match turn_state {
                Some(TurnState::Held { .. }) => !self.cut,
                Some(TurnState::Lost { .. }) => true,
                _ => false,
            },
            Step::Leaving => matches!(turn_state, Some(TurnState::NotWanted { .. })),
            Step::Back => {
                matches!(turn_state, Some(TurnState::Booted { .. } | TurnState::NotWanted { .. }))
                    && !self.cut
            }
            Step::Cordoned | Step::Out | Step::Emergency | Step::Off => true,
            Step::Confirming | Step::LastLook => false,
        }
    }

    pub(super) fn uncordon(&mut self) {
        (self.mark, self.unschedulable) = (None, false);
    }
}

impl World {
    /// The first `servers` of `nodes` are servers; each has `jobs` operations to do.
    pub(super) fn new(
        nodes: usize,
        servers: usize,
        limit: u32,
        jobs: u32,
        budget: Budget,
        fault: Option<Fault>,
    ) -> Self {
        let node = |nth: usize| Node {
            name: format!("n{nth}"),
            uid: format!("u{nth}"),
            server: nth < servers,
            jobs,
            ..Node::default()
        };
        let mut world = Self {
            now: at(1_000),
            lease: None,
            snapshot: None,
            late: None,
            writes: 0,
            leases: 0,
            nodes: (0..nodes).map(node).collect(),
            limit,
            budget,
            fault,
            wrong: None,
        };
        for nth in 0..nodes {
            world.start(nth);
        }
        world
    }

    pub(super) fn start(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        let class = if node.server { Class::Follower } else { Class::Worker };
        node.turn = Some(Turn::new(node.me(), class, nth as u64 * 7 + u64::from(node.boot)));
        (node.call, node.turn_state, node.shown, node.pulses) = (None, None, None, Pulses::default());
        let wants =
            matches!(node.step, Step::Wants | Step::Cordoned | Step::Confirming | Step::Out | Step::LastLook);
        if wants {
            node.step = Step::Wants;
        }
        let want = wants.then(|| node.want(false));
        // The checks after boot were passed before, or are still to come.
        self.hear(nth, Ask::Gate(self.nodes[nth].step != Step::Back));
        self.hear(nth, Ask::Want(want));
    }

    /// The core of a node takes a fact; what it asks for is kept, what it says is carried out.
    pub(super) fn hear(&mut self, nth: usize, event: impl Into<Event>) {
        step::plant(self.fault);
        let now = self.now;
        let Some(turn) = &mut self.nodes[nth].turn else { return };
        let effects = turn.step(now, event.into());
        step::plant(None);
        for effect in effects {
            let node = &mut self.nodes[nth];
            match effect {
                Effect::State(turn_state) => node.turn_state = Some(turn_state),
                Effect::Confirmed(answer) | Effect::LookedLast(_, answer) => self.confirmed(nth, answer),
                Effect::Say(_) => {}
                Effect::Read(_) | Effect::ReadCluster(_) | Effect::ReadMargin(_) | Effect::Write(..) => {
                    assert!(node.call.is_none(), "one call at a time");
                    node.call = Some(effect);
                }
            }
        }
    }

    fn confirmed(&mut self, nth: usize, answer: Result<(), Unconfirmed>) {
        let node = &mut self.nodes[nth];
        match (node.step, answer) {
            (Step::Confirming, Ok(())) => {
                (node.step, node.out) = (Step::Out, true);
                self.check();
            }
            (Step::LastLook, Ok(())) => self.off(nth),
            (Step::Confirming, Err(Unconfirmed::Unknown(_))) => node.step = Step::Cordoned,
            (Step::Confirming | Step::LastLook, Err(Unconfirmed::Lost(_))) => self.again(nth),
            (Step::LastLook, Err(_)) => node.step = Step::Out,
            _ => {}
        }
    }

    /// Uncordons, is healthy, and tries again after a pause.
    pub(super) fn again(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        node.uncordon();
        (node.out, node.step) = (false, Step::Wants);
        self.hear(nth, Ask::Retry("a test said so".to_owned()));
    }

    pub(super) fn off(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        (node.step, node.turn, node.call, node.off_since) = (Step::Off, None, None, Some(self.now));
        node.turn_state = None;
        node.jobs = node.jobs.saturating_sub(1);
    }

    /// No more nodes between cordon and healthy than may be, and never two servers.
    pub(super) fn check(&mut self) {
        let out: Vec<&Node> = self.nodes.iter().filter(|it| it.out && !it.deleted).collect();
        let servers = out.iter().filter(|it| it.server).count();
        if out.len() > self.limit as usize || servers > 1 {
            let names: Vec<&str> = out.iter().map(|it| it.name.as_str()).collect();
            self.wrong.get_or_insert(format!("{} are out together", names.join(" and ")));
        }
    }

    pub(super) fn store(&mut self, order: RecordWrite) -> RecordWritten {
        let (uid, fits) = match (&self.lease, &order.on) {
            (None, None) => {
                self.leases += 1;
                (format!("L{}", self.leases), true)
            }
            (Some(held), Some((uid, version))) => {
                (uid.clone(), (uid, version) == (&held.uid, &held.resource_version))
            }
            (None, Some((uid, _))) => (uid.clone(), false),
            (Some(held), None) => (held.uid.clone(), false),
        };
        if !fits {
            return RecordWritten::Outdated;
        }
        self.check_grant(&order);
        self.writes += 1;
        let mut record = order.record;
        if self.lease.is_none() {
            record.limit = self.limit;
        }
        // What is written is what can be read.
        let annotations = record.annotations().unwrap();
        let record = TurnRecord::parse(annotations, Some(record.transitions())).unwrap();
        let held = RecordSnapshot { record, uid, resource_version: format!("v{}", self.writes) };
        self.lease = Some(held.clone());
        if self.writes % 8 == 1 {
            // Nobody waited then.
            let record = TurnRecord { queue: Vec::new(), ..held.record.clone() };
            self.snapshot = Some(RecordSnapshot { record, ..held.clone() });
        }
        RecordWritten::Done(Box::new(held))
    }

    /// A grant is not written while others that said so are not healthy; and a node of each holder is there.
    fn check_grant(&mut self, order: &RecordWrite) {
        let before: Vec<(String, Fence)> = self
            .lease
            .iter()
            .flat_map(|it| &it.record.holders)
            .map(|it| (it.node_uid.clone(), it.fence))
            .collect();
        let granted = |it: &&super::super::record::Holder| {
            it.phase == Phase::Granted && !before.contains(&(it.node_uid.clone(), it.fence))
        };
        let found = |it: &String| self.nodes.iter().any(|node| node.found && node.name == *it);
        let named = order.record.holders.iter().filter(granted).map(|it| &it.node);
        if let Some(node) = named.chain(order.record.queue.iter().map(|it| &it.node)).find(|it| found(it)) {
            self.wrong.get_or_insert(format!("{node} is in the record, and its drain cannot start"));
        }
        let Some(new) = order.record.holders.iter().find(granted) else { return };
        let down: Vec<&str> = self
            .nodes
            .iter()
            .filter(|it| it.name != new.node && !it.deleted && (it.covered || it.out))
            .map(|it| it.name.as_str())
            .collect();
        if down.len() >= self.limit as usize {
            self.wrong.get_or_insert(format!(
                "{} got a turn while {} was not healthy",
                new.node,
                down.join(" and ")
            ));
        }
    }

    pub(super) fn serve(&mut self, nth: usize, answers: bool) {
        let Some(call) = self.nodes[nth].call.take() else { return };
        let lost = || "no answer".to_owned();
        let event = match call {
            Effect::Read(id) => {
                let found = self.lease.clone().map(Box::new);
                self.nodes[nth].shown = self.lease.as_ref().map(|it| it.resource_version.clone());
                Event::Read(id, if answers { Ok(found) } else { Err(ReadError::NoAnswer(lost())) })
            }
            Effect::ReadCluster(id) => {
                let mut pulses = std::mem::take(&mut self.nodes[nth].pulses);
                let there = || self.nodes.iter().filter(|it| !it.deleted);
                pulses.take(self.now, there().map(|it| it.beat(self.now)));
                step::plant(self.fault);
                let nodes = there().map(|it| it.as_read(self.now, &pulses)).collect();
                step::plant(None);
                self.nodes[nth].pulses = pulses;
                Event::Cluster(id, if answers { Ok(nodes) } else { Err(ReadError::NoAnswer(lost())) })
            }
            Effect::ReadMargin(id) => Event::Margin(id, if answers { Ok(()) } else { Err(lost()) }),
            Effect::Write(id, order) => {
                let wrote = self.store(*order);
                Event::Wrote(id, if answers { wrote } else { RecordWritten::Unknown(lost()) })
            }
            _ => return,
        };
        self.hear(nth, event);
    }

    pub(super) fn lose(&mut self, nth: usize) {
        let Some(call) = self.nodes[nth].call.take() else { return };
        let lost = || "no answer".to_owned();
        let event = match call {
            Effect::Read(id) => Event::Read(id, Err(ReadError::NoAnswer(lost()))),
            Effect::ReadCluster(id) => Event::Cluster(id, Err(ReadError::NoAnswer(lost()))),
            Effect::ReadMargin(id) => Event::Margin(id, Err(lost())),
            Effect::Write(id, _) => Event::Wrote(id, RecordWritten::Unknown(lost())),
            _ => return,
        };
        self.hear(nth, event);
    }

    /// The next step of the agent, if there is one.
    pub(super) fn go(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        let turn_state = node.turn_state.clone();
        match (node.step, turn_state) {
            (Step::Idle, Some(_)) if node.jobs > 0 => {
                node.step = Step::Wants;
                let want = node.want(false);
                self.hear(nth, Ask::Want(Some(want)));
            }
            (Step::Wants, Some(TurnState::Held { fence, lease_uid, .. })) if !node.cut => {
                let boot_id = node.me().boot_id;
                (node.mark, node.unschedulable) = (Some(CordonMark { fence, lease_uid, boot_id }), true);
                node.step = Step::Cordoned;
                self.hear(nth, Ask::Phase(Phase::Cordoned));
            }
            (Step::Wants | Step::Cordoned | Step::Out, Some(TurnState::Lost { .. })) => self.again(nth),
            (Step::Cordoned, _) => {
                node.step = Step::Confirming;
                self.hear(nth, Ask::Confirm);
            }
            (Step::Out, _) => {
                node.step = Step::LastLook;
                self.hear(nth, Ask::LastLook(1));
            }
            (Step::Leaving, Some(TurnState::NotWanted { .. })) => node.step = Step::Idle,
            (Step::Emergency, _) => {
                let held =
                    self.lease.as_ref().is_some_and(|it| it.record.holder(&node.name, &node.uid).is_some());
                node.covered = held && !node.out;
                self.off(nth);
            }
            (Step::Off, _) => {
                (node.step, node.off_since) = (Step::Back, None);
                node.boot += 1;
                // Its cordon went with etcd: pods come as soon as it is up.
                node.out &= node.mark.is_some();
                self.start(nth);
            }
            (Step::Back, Some(TurnState::Booted { .. } | TurnState::NotWanted { .. })) if !node.cut => {
                (node.out, node.covered, node.step) = (false, false, Step::Leaving);
                node.uncordon();
                self.hear(nth, Ask::Gate(true));
            }
            _ => {}
        }
    }

    /// An entry without a cordon is lost with the Lease.
    pub(super) fn forget(&mut self) {
        for node in &mut self.nodes {
            node.covered = false;
        }
    }

    pub(super) fn wait(&mut self) {
        let wakes = self.nodes.iter().filter_map(|it| it.turn.as_ref()?.next_wake());
        let next = wakes.filter(|it| *it > self.now).min();
        let far = self.now + Duration::from_secs(60);
        self.now = next.map_or(far, |it| it.min(far));
        self.late = self.late.take().filter(|(_, until)| self.now < *until);
        for nth in 0..self.nodes.len() {
            let due = self.nodes[nth].turn.as_ref().and_then(step::Core::next_wake);
            if due.is_some_and(|it| it <= self.now) {
                self.hear(nth, Event::Tick);
            }
        }
    }
}
