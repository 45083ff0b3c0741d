//! A site of several devices as a value: each with its four cores and the keeper of its turn, the one Lease
//! that they share, their Nodes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use outage::turn::event::{Effect, Event, RecordWritten};
use outage::turn::record::{Class, RecordSnapshot, RecordWrite, TurnRecord};
use outage::turn::rule::{Me, TurnNode};
use step::Mono;
use topics::CordonOwner;

use super::keeper::Keeper;
use super::plans::{From, Plan};
use super::steps::Step;
use crate::print::Print;
use crate::steps::Action;
use crate::topics::Who;
use crate::world::State;

/// States of the Lease kept for restores.
const KEPT: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) state: State,
    pub(crate) keeper: Option<Keeper>,
    /// The machine is off; whether the cluster has noticed.
    pub(crate) off: Option<bool>,
    pub(crate) shown: u32,
    pub(crate) out: Option<u32>,
    /// The boot in which it may go down for a documented reason without a turn.
    pub(crate) excused: Option<u32>,
    /// Its pods are being evicted; its device was asked to go down.
    pub(crate) drains: bool,
    pub(crate) goes: bool,
    /// A write that queues it is under way.
    pub(crate) queues: bool,
    /// Its last question before going down, and the servers that have been off since then.
    pub(crate) looks: Option<u64>,
    pub(crate) missing: Vec<usize>,
    print: OnceLock<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Trouble {
    /// Lost answers, to calls that were carried out or not.
    pub(crate) lost: u8,
    /// Calls carried out long before their answer.
    pub(crate) slow: u8,
    /// Devices without the API for a while.
    pub(crate) parted: u8,
    pub(crate) deletions: u8,
    pub(crate) restores: u8,
    pub(crate) releases: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) plan: Arc<Plan>,
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) lease: Option<Arc<RecordSnapshot>>,
    pub(crate) older: Vec<Arc<RecordSnapshot>>,
    pub(crate) writes: u32,
    pub(crate) leases: u32,
    pub(crate) left: Trouble,
    pub(crate) wrong: Option<String>,
    fingerprint: OnceLock<u64>,
}

impl Member {
    fn printed(&self) -> u64 {
        let (now, asked) = (self.state.now(Who::Zedkube), &self.state.asked);
        let flags = (self.off, self.shown, self.out, self.excused, &self.missing);
        let shape = self.keeper.as_ref().map(Keeper::shape);
        let keeper = Print::of(&(shape, flags), now, asked);
        let mut hasher = DefaultHasher::new();
        (self.state.fingerprint(), Print::all([&keeper])).hash(&mut hasher);
        hasher.finish()
    }
}

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint());
    }
}

impl Site {
    /// All devices at rest, then as the plan says, with its fault.
    pub(crate) fn new(plan: &Plan) -> Self {
        let healthy = Arc::new(Plan { fault: None, ..plan.clone() });
        let member = |scenario| Member {
            state: State::new(&Arc::new(scenario)),
            keeper: None,
            off: None,
            shown: 1,
            out: None,
            excused: None,
            drains: false,
            queues: false,
            goes: false,
            looks: None,
            missing: Vec::new(),
            print: OnceLock::new(),
        };
        let mut site = Self {
            members: healthy.devices().map(member).map(Arc::new).collect(),
            lease: None,
            older: Vec::new(),
            writes: 0,
            leases: 0,
            left: plan.trouble,
            wrong: None,
            fingerprint: OnceLock::new(),
            plan: healthy,
        };
        if plan.from != From::Rest || plan.limit > 1 {
            let limit = u32::try_from(plan.limit).expect("it is small");
            site.put("L0".to_owned(), &TurnRecord { limit, ..TurnRecord::default() });
        }
        for nth in 0..site.members.len() {
            site.settle(nth);
        }
        site.seal();
        while let Some(next) = site.benign() {
            site = next;
        }
        if plan.from != From::Rest {
            site = site.ready();
        }
        while plan.from == From::Back
            && (site.members[0].shown == 1 || !site.members[0].state.under.gate.watched)
        {
            site = site.benign().expect("it comes back");
        }
        for (nth, scenario) in plan.devices().enumerate() {
            site.member(nth).state.scenario = Arc::new(scenario);
        }
        site.plan = Arc::new(plan.clone());
        site
    }

    /// The first device drains, the others wait in the queue.
    fn ready(mut self) -> Self {
        let order = |site: &Self, nth| {
            let wants = Step::Of(nth, Action::Change(0));
            site.after(&wants).expect("its first change comes")
        };
        self = order(&self, 0);
        while !self.members[0].drains {
            self = self.benign().expect("it comes to its turn");
        }
        for nth in 1..self.members.len() {
            self = order(&self, nth);
            while !self.lease.as_ref().is_some_and(|it| it.record.waits(&Self::name(nth))) {
                let next = self.at_once_of(nth).or_else(|| Some(self.time_passes()?.0));
                self = next.expect("it comes into the queue");
            }
        }
        self
    }

    pub(crate) fn member(&mut self, nth: usize) -> &mut Member {
        Arc::make_mut(&mut self.members[nth])
    }

    /// Of a device's zedkube and keeper.
    pub(crate) fn now(&self, nth: usize) -> Mono {
        self.members[nth].state.now(Who::Zedkube)
    }

    pub(crate) fn is_server(&self, nth: usize) -> bool {
        nth < self.plan.servers
    }

    pub(crate) fn with_keeper(&mut self, nth: usize, does: impl FnOnce(&mut Keeper, Mono)) {
        let now = self.now(nth);
        if let Some(keeper) = &mut self.member(nth).keeper {
            does(keeper, now);
        }
    }

    /// Immediate consequences of a device's step: its keeper gets questions, and ends with its zedkube.
    pub(crate) fn settle(&mut self, nth: usize) {
        let now = self.now(nth);
        let member = self.member(nth);
        let asks = std::mem::take(&mut member.state.asks);
        if !member.state.runs(Who::Zedkube) {
            member.keeper = None;
        }
        for ask in asks {
            member.keeper.get_or_insert_with(|| Keeper::new(now)).ask(now, ask);
        }
        if member.state.under.boot != member.shown && member.off.is_none() {
            member.off = Some(false);
        }
        self.judge(nth);
    }

    pub(crate) fn class(&self, nth: usize) -> Class {
        match self.is_server(nth) {
            true if nth == 0 => Class::Leader,
            true => Class::Follower,
            false => Class::Worker,
        }
    }

    pub(crate) fn name(nth: usize) -> String {
        format!("n{}", nth + 1)
    }

    pub(crate) fn uid(nth: usize) -> String {
        format!("u{}", nth + 1)
    }

    pub(crate) fn me(&self, nth: usize) -> Me {
        let boot_id = self.members[nth].state.boot_id();
        Me { node: Self::name(nth), uid: Self::uid(nth), boot_id, server: self.is_server(nth) }
    }

    /// The nodes as device `by` reads them; its holders are asked for their own answer. Each live kubelet has
    /// renewed its lease since the reading before.
    fn nodes(&mut self, by: usize) -> Vec<TurnNode> {
        let there: Vec<(String, bool)> =
            self.members.iter().enumerate().map(|(nth, it)| (Self::name(nth), it.off.is_none())).collect();
        self.with_keeper(by, |keeper, now| keeper.read_leases(now, &there));
        let at = self.now(by);
        let pulses = self.members[by].keeper.as_ref().map(|it| &it.pulses);
        let turn = self.members[by].keeper.as_ref().and_then(|it| it.turn.as_ref());
        let holders = turn.map(outage::turn::Turn::other_holders).unwrap_or_default();
        let seen = |(nth, it): (usize, &Arc<Member>)| {
            let away = it.off == Some(true);
            let (name, node) = (Self::name(nth), &it.state.under.node);
            let answers = it.off.is_none() && !it.state.under.parted;
            TurnNode {
                uid: Self::uid(nth),
                boot_id: format!("b{}", it.shown),
                ready: !away,
                unschedulable: node.cordon != CordonOwner::None,
                tie_breaker: false,
                server: self.is_server(nth),
                etcd: self.is_server(nth),
                pulse: pulses.map(|it| it.of(at, &name)).unwrap_or_default(),
                being_deleted: false,
                out_of_service: None,
                ignored: false,
                idle: answers && holders.contains(&name) && it.keeper.as_ref().is_some_and(|it| it.idle),
                mark: node.mark.clone(),
                name,
            }
        };
        self.members.iter().enumerate().map(seen).collect()
    }

    /// One or two servers keep their data elsewhere, unless there is a witness.
    pub(crate) fn has_quorum(&self) -> bool {
        self.plan.servers > 2 || self.plan.witness.is_some()
    }

    /// Whether etcd can spare this server: of three votes two are needed.
    fn margin(&self, nth: usize) -> Result<(), String> {
        let gone = (0..self.plan.servers).any(|it| it != nth && self.members[it].off.is_some());
        if self.is_server(nth) && self.has_quorum() && (gone || self.plan.witness == Some(nth)) {
            return Err("another vote is off, or goes too".to_owned());
        }
        Ok(())
    }

    /// Carries out the call of a keeper.
    pub(crate) fn carry_out(&mut self, nth: usize) -> Option<Event> {
        let call = self.members[nth].keeper.as_ref()?.call.clone()?;
        Some(match call {
            Effect::Read(id) => Event::Read(id, Ok(self.lease.as_deref().cloned().map(Box::new))),
            Effect::ReadCluster(id) => Event::Cluster(id, Ok(self.nodes(nth))),
            Effect::ReadMargin(id) => Event::Margin(id, self.margin(nth)),
            Effect::Write(id, order) => Event::Wrote(id, self.store(&order)),
            Effect::State(_) | Effect::Confirmed(_) | Effect::LookedLast(..) | Effect::Say(_) => return None,
        })
    }

    fn store(&mut self, order: &RecordWrite) -> RecordWritten {
        let on = self.lease.as_ref().map(|it| (it.uid.clone(), it.resource_version.clone()));
        if on != order.on {
            return RecordWritten::Outdated;
        }
        let uid = on.map_or_else(
            || {
                self.leases += 1;
                format!("L{}", self.leases)
            },
            |(uid, _)| uid,
        );
        self.put(uid, &order.record);
        self.lease
            .as_deref()
            .cloned()
            .map_or(RecordWritten::Outdated, |held| RecordWritten::Done(Box::new(held)))
    }

    pub(crate) fn put(&mut self, uid: String, record: &TurnRecord) {
        self.writes += 1;
        let annotations = record.annotations().expect("it has a JSON form");
        let record = TurnRecord::parse(annotations, Some(record.transitions())).expect("it can be read");
        let held = Arc::new(RecordSnapshot { record, uid, resource_version: format!("v{}", self.writes) });
        self.older.extend(self.lease.replace(held));
        let over = self.older.len().saturating_sub(KEPT);
        self.older.drain(..over);
    }

    /// Updates the fingerprint, with new parts of touched devices.
    pub(crate) fn seal(&mut self) {
        self.fingerprint.take();
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            for member in &self.members {
                member.print.get_or_init(|| member.printed()).hash(&mut hasher);
            }
            (&self.lease, &self.older, self.left, &self.wrong).hash(&mut hasher);
            hasher.finish()
        })
    }

    pub(crate) fn touch(&mut self, nth: usize) {
        self.member(nth).print.take();
    }

    pub(crate) fn text(&self) -> String {
        let device = |(nth, it): (usize, &Arc<Member>)| {
            let (now, asked) = (it.state.now(Who::Zedkube), &it.state.asked);
            let keeper = Print::text(&it.keeper, now, asked);
            let flags = format!("off {:?}, out {:?}, excused {:?}", it.off, it.out, it.excused);
            format!("== {}: {flags}\n{}\nkeeper: {keeper}", Self::name(nth), it.state.text())
        };
        let devices: Vec<String> = self.members.iter().enumerate().map(device).collect();
        format!("{}\n== Lease: {:?}\nolder: {:?}", devices.join("\n"), self.lease, self.older)
    }
}
