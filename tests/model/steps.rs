//! All possible next steps.

use std::sync::Arc;
use std::time::Duration;

use nodeagent::core::NodeAgent;
use step::{Core as _, Dice, Mono};
use topics::{CordonOwner, NodeDrainStatus};
use zedagent::core::Zedagent;
use zedkube::core::{Membership, Zedkube};

use super::checker::Explored;
use super::effects::Gone;
use super::fair::{Fair, Stuck};
use super::pause::said;
use super::scenarios::Change;
use super::topics::{ALL, Fact, LINKS, Leave, Link, Who, Writer};
use super::wander::{below, is_trouble};
use super::world::{State, Touched, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    Badly,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Start(Who),
    Hear(Link),
    Result(usize),
    Task(How),
    Look(How),
    Preflight(How),
    Gate(How),
    /// A look at the version that the kubelet reports ends.
    Kubelet(How),
    /// The gate moves while an update of k3s is followed.
    K3sGate(How),
    /// The kube container replaces k3s.
    Replace,
    Wake(Who),
    Device(How),
    Change(usize),
    Force(usize),
    Unforce,
    ByHand(CordonOwner),
    PodComes,
    /// zedkube gets news of the drained node.
    Stir,
    Left,
    /// The leave's announcement is over: the first step out of the cluster is taken.
    NoticeOver,
    Crash(Who),
    /// zedkube ends within a cordon or evictions, as with a package upgrade: those calls are completed.
    StopInTask,
    Power,
    /// An agent ends within a step, after so many effects.
    Within(Box<Action>, usize),
}

impl State {
    pub(crate) fn actions(&self, out: &mut Vec<Action>) {
        let under = &self.under;
        let left = under.left;
        if under.ghost.wrong.is_some() {
            return;
        }
        let first = out.len();
        for who in ALL.into_iter().filter(|who| self.takes_part(*who)) {
            if !self.runs(who) {
                out.push(Action::Start(who));
            } else if self.wakes_next(who) {
                out.push(Action::Wake(who));
            }
        }
        out.extend(LINKS.iter().filter(|link| self.has_news(**link)).map(|link| Action::Hear(*link)));
        out.extend((0..under.results.len()).map(Action::Result));
        if let Some(task) = &under.task {
            let may = |how: &How| *how == How::Well || task.work != Work::Await;
            out.extend(self.hows().filter(may).map(Action::Task));
        }
        out.extend(under.look.iter().flat_map(|_| self.hows()).map(Action::Look));
        out.extend(under.preflight.iter().flat_map(|_| self.hows()).map(Action::Preflight));
        let mut may = |yes: bool, action: Action| out.extend(yes.then_some(action));
        may(under.guard == Some(true), Action::Stir);
        may(self.may_begin_to_leave(), Action::NoticeOver);
        may(self.may_leave(), Action::Left);
        may(self.gate_may(How::Well), Action::Gate(How::Well));
        may(self.gate_may(How::Badly), Action::Gate(How::Badly));
        if self.k3s.is_some() {
            self.k3s_actions(out);
        }
        let last = out.len();
        if self.scenario.within_steps && left.crashes > 0 {
            let steps = out[first..last].to_vec();
            out.extend(
                steps
                    .into_iter()
                    .flat_map(|step| (0..8).map(move |at| Action::Within(Box::new(step.clone()), at))),
            );
        }
        if under.device.is_some() {
            out.push(Action::Device(How::Well));
            if left.refusals > 0 {
                out.push(Action::Device(How::Badly));
            }
        }
        let changes = 0..self.scenario.changes.len();
        out.extend(changes.filter(|nth| under.changed >> nth & 1 == 0).map(Action::Change));
        if left.forces > 0 {
            out.extend((0..self.scenario.forces.len()).map(Action::Force));
        }
        if left.unforces > 0 && self.disk.force.is_some() {
            out.push(Action::Unforce);
        }
        if left.hands > 0 {
            out.push(Action::ByHand(match under.node.cordon {
                CordonOwner::None => CordonOwner::Foreign,
                CordonOwner::Ours | CordonOwner::Foreign => CordonOwner::None,
            }));
        }
        if left.pods > 0 && under.node.drained {
            out.push(Action::PodComes);
        }
        if left.crashes > 0 {
            let ends = |who: &Who| who.process() == *who && self.runs(*who);
            out.extend(ALL.into_iter().filter(ends).map(Action::Crash));
            let is_at_work =
                under.task.as_ref().is_some_and(|it| matches!(it.work, Work::Cordon | Work::Drain));
            out.extend((is_at_work && self.runs(Who::Zedkube)).then_some(Action::StopInTask));
        }
        if left.cuts > 0 {
            out.push(Action::Power);
        }
    }

    /// How what is under way may end.
    pub(crate) fn hows(&self) -> impl Iterator<Item = How> + use<> {
        let away = self.is_away();
        let badly = (away || self.under.left.failures > 0).then_some(How::Badly);
        (!away).then_some(How::Well).into_iter().chain(badly)
    }

    /// Whether it has a timer, and is the first of its process.
    fn wakes_next(&self, who: Who) -> bool {
        let beside =
            [Who::Zedkube, Who::K3s].into_iter().find(|it| *it != who && it.process() == who.process());
        let other = beside.and_then(|it| self.wake(it));
        self.wake(who).is_some_and(|due| other.is_none_or(|other| due <= other))
    }

    /// Whether the gate, while watched, may open or close.
    pub(crate) fn gate_may(&self, how: How) -> bool {
        let (gate, away) = (self.under.gate, self.is_away());
        gate.watched
            && match how {
                How::Well => !away && gate.told != Some(true),
                How::Badly => (away || self.under.left.failures > 0) && gate.told != Some(false),
            }
    }

    /// `None` when it does not happen.
    pub(crate) fn after(&self, action: &Action) -> Option<Self> {
        step::plant(self.scenario.fault);
        let mut next = self.clone();
        let Action::Within(step, at) = action else {
            let ended = next.happen(action);
            return Some(next.sealed(ended));
        };
        next.fuse = Some(*at);
        let who = Self::actor(step)?;
        if next.happen(step) == Ok(()) {
            return None;
        }
        next.under().left.crashes -= 1;
        next.crash(who);
        next.touched = Touched::ALL;
        Some(next.sealed(Ok(())))
    }

    /// The state after zedkube got this from the keeper of its turn.
    pub(crate) fn having_heard(&self, event: zedkube::core::Event) -> Self {
        step::plant(self.scenario.fault);
        let mut next = self.clone();
        let ended = next.deliver(Fact::Zedkube(event));
        next.sealed(ended)
    }

    /// Where nodeagent has ended, the machine's watchdog restarts the machine.
    pub(crate) fn sealed(mut self, ended: Result<(), Gone>) -> Self {
        if ended == Err(Gone) {
            self.boot();
            self.touched = Touched::ALL;
        }
        self.seal();
        self
    }

    /// The state with this clock of an agent.
    pub(crate) fn at(&self, who: Who, now: Mono) -> Self {
        let mut next = self.clone();
        next.set_now(who, now);
        next.touched = Touched::ALL;
        next.sealed(Ok(()))
    }

    pub(crate) fn later(&self, wait: Duration) -> Self {
        let mut next = self.clone();
        next.pass(wait);
        next.sealed(Ok(()))
    }

    /// All clocks advance.
    pub(crate) fn pass(&mut self, wait: Duration) {
        for who in ALL {
            self.set_now(who, self.now(who) + wait);
        }
        self.touched = Touched::ALL;
    }

    /// The state with or without the API.
    pub(crate) fn parted(&self, parted: bool) -> Self {
        let mut next = self.clone();
        next.under().parted = parted;
        next.sealed(Ok(()))
    }

    /// The state after a person wrote the node.
    pub(crate) fn by_hand(&self, cordon: CordonOwner) -> Self {
        let mut next = self.clone();
        next.under().node.cordon = cordon;
        next.undo();
        next.sealed(Ok(()))
    }

    /// The agent that takes it; the kube container is none.
    fn actor(action: &Action) -> Option<Who> {
        if let Action::Start(who) | Action::Wake(who) = action {
            return Some(who.process());
        }
        if let Action::Hear(link) = action {
            return Some(link.who().process());
        }
        let by = if matches!(action, Action::Result(_)) { Who::Baseosmgr } else { Who::Zedkube };
        (*action != Action::Replace).then_some(by)
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each thing that may happen")]
    fn happen(&mut self, action: &Action) -> Result<(), Gone> {
        match action {
            Action::Start(who) => {
                self.touched = Touched::ALL;
                self.start(*who)
            }
            Action::Hear(link) => self.hear(*link),
            Action::Result(nth) => {
                let event = self.under().results.remove(*nth);
                self.deliver(Fact::Baseosmgr(event))
            }
            Action::Task(how) => self.task_ends(*how),
            Action::Look(how) => self.look_ends(*how),
            Action::Preflight(how) => self.preflight_ends(*how),
            Action::Stir => {
                self.under().guard = None;
                let event = zedkube::core::Event::NodeActivity("trouble".to_owned());
                self.deliver(Fact::Zedkube(event))
            }
            Action::NoticeOver => {
                self.touched.files_of(Writer::Zedagent);
                self.touched.files_of(Writer::Zedkube);
                // The core comes first; the first step, a cordon, needs an answer of the cluster.
                self.disk().leave = Leave::UnderWay;
                Ok(())
            }
            Action::Left => {
                self.touched.files_of(Writer::Zedagent);
                self.touched.files_of(Writer::Zedkube);
                self.disk().leave = Leave::Outside;
                // From here on the cluster has no node to drain.
                self.under().ghost.excused = true;
                // The Node object is gone, with its cordon.
                self.cordon(CordonOwner::None);
                Ok(())
            }
            Action::Gate(how) => self.gate_moves(*how),
            Action::Kubelet(how) => self.k3s_sees((*how, false)),
            Action::K3sGate(how) => self.k3s_sees((*how, true)),
            Action::Replace => {
                self.replaces_k3s();
                Ok(())
            }
            Action::Wake(who) => self.wakes(*who),
            Action::Device(how) => {
                self.touched = Touched::ALL;
                self.device(*how)
            }
            Action::Change(nth) => {
                self.touched.files_of(Writer::Person);
                self.under().changed |= 1 << nth;
                match self.scenario.changes[*nth] {
                    Change::Operator(asks) => self.operator(asks),
                    Change::Pause(scope) => self.disk().pause = Some(said(scope)),
                    Change::Resume => self.disk().pause = None,
                    Change::Detail => self.disk().config.detail += 1,
                    Change::Reboot(counter) => self.disk().config.reboot = Some(counter),
                    Change::Shutdown(counter) => self.disk().config.shutdown = Some(counter),
                    Change::Image(wanted) => self.disk().config.image = wanted,
                    Change::Clustered(clustered) => {
                        self.disk().config.clustered = clustered;
                        self.under().ghost.excused |= !clustered;
                    }
                    Change::Fallback(counter) => self.disk().config.fallback = counter,
                    Change::K3s(wanted) => self.disk().config.k3s = wanted,
                }
                Ok(())
            }
            Action::Force(nth) => {
                self.touched.files_of(Writer::Person);
                self.under().left.forces -= 1;
                let order: NodeDrainStatus = self.scenario.forces[*nth];
                self.disk().force = Some(order);
                let ghost = &mut self.under().ghost;
                ghost.excused = true;
                if !ghost.forced.contains(&order) {
                    ghost.forced.push(order);
                }
                Ok(())
            }
            Action::Unforce => {
                self.touched.files_of(Writer::Person);
                self.under().left.unforces -= 1;
                self.disk().force = None;
                Ok(())
            }
            Action::ByHand(cordon) => {
                self.under().left.hands -= 1;
                self.under().node.cordon = *cordon;
                self.undo();
                Ok(())
            }
            Action::PodComes => {
                self.under().left.pods -= 1;
                self.under().node.has_new_pods = true;
                self.undo();
                Ok(())
            }
            Action::Crash(who) => {
                self.touched = Touched::ALL;
                self.under().left.crashes -= 1;
                self.crash(*who);
                Ok(())
            }
            Action::StopInTask => {
                self.touched = Touched::ALL;
                self.under().left.crashes -= 1;
                self.stop_in_task();
                Ok(())
            }
            Action::Power => {
                self.touched = Touched::ALL;
                self.under().left.cuts -= 1;
                self.boot();
                Ok(())
            }
            Action::Within(..) => Ok(()),
        }
    }

    /// The drain is undone; zedkube sees it later.
    fn undo(&mut self) {
        let under = self.under();
        under.ghost.undone = true;
        under.guard = under.guard.map(|_| true);
    }

    pub(crate) fn hear(&mut self, link: Link) -> Result<(), Gone> {
        // zedagent's shell publishes other parts of the config before its core gets it.
        if link == Link::ConfigToZedagent {
            self.touched.files_of(Writer::Zedagent);
            let config = self.disk.config;
            let run = &mut self.disk().run;
            (run.member, run.image) = (Some((config.clustered, config.detail)), config.image);
            run.k3s = Some(config.version());
        }
        if link == Link::MemberToZedkube {
            self.touched.files_of(Writer::Zedkube);
            self.membership_is_heard();
        }
        let level = link.level(&self.disk);
        let first = self.heard[link.index()].is_none();
        Arc::make_mut(&mut self.heard)[link.index()] = Some(Arc::new(level.clone()));
        self.news &= !(1 << link.index());
        self.pause_is_heard(link);
        let once = if first { link.read_once(&self.scenario) } else { Vec::new() };
        level.into_iter().chain(once).try_for_each(|fact| self.deliver(fact))
    }

    /// zedkube stores its cluster, and the walk out of it begins with a cordon.
    fn membership_is_heard(&mut self) {
        match (self.disk.run.member.map(|it| it.0), self.disk.leave) {
            (Some(true), _) => self.disk().leave = Leave::Member,
            (Some(false), Leave::Member) => self.disk().leave = Leave::Announced,
            (Some(false), Leave::UnderWay) => self.first_step_out(),
            (Some(false), Leave::Outside | Leave::Announced) | (None, _) => {}
        }
    }

    fn first_step_out(&mut self) {
        if self.under.node.cordon == CordonOwner::None {
            self.cordon(CordonOwner::Ours);
        }
    }

    pub(crate) fn may_begin_to_leave(&self) -> bool {
        self.runs(Who::Zedkube)
            && self.disk.leave == Leave::Announced
            && self.disk.run.member.is_some_and(|it| !it.0)
            && self.heard[Link::MemberToZedkube.index()].is_some()
            && !self.has_news(Link::MemberToZedkube)
    }

    pub(crate) fn may_leave(&self) -> bool {
        let told = Fact::Zedkube(zedkube::core::Event::Member(Membership::Leaving));
        let heard = self.heard[Link::MemberToZedkube.index()].as_ref();
        self.runs(Who::Zedkube)
            && self.disk.leave == Leave::UnderWay
            && self.disk.run.member.is_some_and(|it| !it.0)
            && heard.is_some_and(|it| it.contains(&told))
    }

    fn wakes(&mut self, who: Who) -> Result<(), Gone> {
        let Some(due) = self.wake(who) else { return Ok(()) };
        self.set_now(who, self.now(who).max(due));
        self.deliver(tick(who))
    }
}

impl Explored for State {
    type Step = Action;
    const NEVER: &'static str = "never early";
    const LONGEST: usize = 160;

    fn wrong(&self) -> Option<&String> {
        self.under.ghost.wrong.as_ref()
    }

    fn check(&self, fair: &Fair) -> Result<(), Stuck> {
        fair.check(self)
    }

    fn searched(&self, out: &mut Vec<Action>) {
        self.actions(out);
    }

    fn searched_after(&self, action: &Action) -> Option<Self> {
        self.after(action)
    }

    fn is_sampled(&self) -> bool {
        true
    }

    fn choose(&self, dice: &mut Dice) -> Option<Action> {
        let mut actions = Vec::new();
        self.actions(&mut actions);
        let trouble = below(dice, 16) == 0 || actions.iter().all(is_trouble);
        let mut choice: Vec<_> = actions.iter().filter(|it| is_trouble(it) == trouble).collect();
        if choice.is_empty() {
            choice = actions.iter().collect();
        }
        choice.get(below(dice, choice.len().max(1))).map(|it| (*it).clone())
    }

    fn chosen_after(&self, action: &Action) -> Option<Self> {
        self.after(action)
    }

    fn is_drawn(&self, _: &mut Dice) -> bool {
        true
    }

    fn boots(&self) -> u32 {
        self.under.boot - 1
    }

    fn shown(&self) -> String {
        self.text()
    }
}

pub(crate) fn tick(who: Who) -> Fact {
    match who {
        Who::Zedagent => Fact::Zedagent(Zedagent::tick()),
        Who::Nodeagent => Fact::Nodeagent(NodeAgent::tick()),
        Who::Zedkube => Fact::Zedkube(Zedkube::tick()),
        Who::Baseosmgr => Fact::Baseosmgr(baseosmgr::core::BaseOs::tick()),
        Who::K3s => Fact::K3s(zedkube::k3s::K3s::tick()),
    }
}
