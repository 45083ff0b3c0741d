//! Everything that may happen next.

use std::sync::Arc;
use std::time::Duration;

use agent::device::Operation;
use nodeagent::core::{NodeAgent, Source, Took, Waits};
use step::Core as _;
use topics::{ContentTreeStatus, CordonOwner, NodeDrainStatus, SwState};
use zedagent::core::Zedagent;
use zedkube::core::{Done, Failure, Seen, Zedkube};

use super::effects::{Fuse, Gone};
use super::scenarios::Change;
use super::topics::{ALL, Fact, LINKS, Link, TREE, Who, Writer};
use super::world::{State, Task, Touched};

/// How a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    Badly,
    /// A drain: every other node drains too.
    AllDrain,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// An agent starts, with what is on disk.
    Start(Who),
    /// An agent hears what is new in a topic.
    Hear(Link),
    /// baseosmgr hears a result.
    Result(usize),
    /// The task at work on the cluster ends.
    Task(How),
    /// The look at the node ends.
    Look(How),
    /// Time passes until this agent wants to be woken.
    Wake(Who),
    /// The device does what it was asked for, or refuses.
    Device(How),
    /// The controller's wishes change.
    Change(usize),
    /// A person writes a force file, or takes it away.
    Force(usize),
    Unforce,
    /// A person writes the node.
    ByHand(CordonOwner),
    /// An agent ends.
    Crash(Who),
    /// The power goes and comes back.
    Power,
    /// An agent ends within a step, after so many effects.
    Within(Box<Action>, usize),
}

impl State {
    /// All that may happen now.
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
            } else if self.wake(who).is_some() {
                out.push(Action::Wake(who));
            }
        }
        out.extend(LINKS.iter().filter(|link| self.has_news(**link)).map(|link| Action::Hear(*link)));
        out.extend((0..under.results.len()).map(Action::Result));
        if let Some(task) = &under.task {
            out.push(Action::Task(How::Well));
            if left.failures > 0 {
                out.push(Action::Task(How::Badly));
            }
            if left.all_drain > 0 && matches!(task, Task::Drain(_)) {
                out.push(Action::Task(How::AllDrain));
            }
        }
        if under.look.is_some() {
            out.push(Action::Look(How::Well));
            if left.failures > 0 {
                out.push(Action::Look(How::Badly));
            }
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
        if left.crashes > 0 {
            out.extend(ALL.into_iter().filter(|who| self.runs(*who)).map(Action::Crash));
        }
        if left.cuts > 0 {
            out.push(Action::Power);
        }
    }

    /// The state after `action`; `None` when it does not happen.
    pub(crate) fn after(&self, action: &Action) -> Option<Self> {
        let mut next = self.clone();
        let mut touched = Touched::default();
        if let Action::Within(step, at) = action {
            let mut fuse = Some(*at);
            let who = next.actor(step)?;
            if next.happen(step, &mut fuse, &mut touched) == Ok(()) {
                return None;
            }
            next.under().left.crashes -= 1;
            next.crash(who);
            touched = Touched::ALL;
        } else if next.happen(action, &mut None, &mut touched) == Err(Gone) {
            // nodeagent has left: the machine's watchdog restarts the machine.
            next.boot();
            touched = Touched::ALL;
        }
        next.seal(touched);
        Some(next)
    }

    fn actor(&self, action: &Action) -> Option<Who> {
        match action {
            Action::Start(who) | Action::Wake(who) => Some(*who),
            Action::Hear(link) => Some(link.who()),
            Action::Result(_) => Some(Who::Baseosmgr),
            Action::Task(_) | Action::Look(_) => Some(Who::Zedkube),
            Action::Device(_)
            | Action::Change(_)
            | Action::Force(_)
            | Action::Unforce
            | Action::ByHand(_)
            | Action::Crash(_)
            | Action::Power
            | Action::Within(..) => None,
        }
    }

    fn happen(&mut self, action: &Action, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        match action {
            Action::Start(who) => {
                *touched = Touched::ALL;
                self.start(*who, fuse, touched)
            }
            Action::Hear(link) => self.hear(*link, fuse, touched),
            Action::Result(nth) => {
                let event = self.under().results.remove(*nth);
                self.tell(Fact::Baseosmgr(event), fuse, touched)
            }
            Action::Task(how) => self.task_ends(*how, fuse, touched),
            Action::Look(how) => self.look_ends(*how, fuse, touched),
            Action::Wake(who) => self.wakes(*who, fuse, touched),
            Action::Device(how) => {
                *touched = Touched::ALL;
                self.device(*how, fuse, touched)
            }
            Action::Change(nth) => {
                touched.files_of(Writer::Person);
                self.under().changed |= 1 << nth;
                let change = self.scenario.changes[*nth];
                let config = &mut self.disk().config;
                match change {
                    Change::Reboot(counter) => config.reboot = Some(counter),
                    Change::Shutdown(counter) => config.shutdown = Some(counter),
                    Change::Image(wanted) => config.image = wanted,
                    Change::Clustered(clustered) => config.clustered = clustered,
                    Change::Fallback(counter) => config.fallback = counter,
                }
                if change == Change::Clustered(false) {
                    self.under().ghost.excused = true;
                }
                Ok(())
            }
            Action::Force(nth) => {
                touched.files_of(Writer::Person);
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
                touched.files_of(Writer::Person);
                self.under().left.unforces -= 1;
                self.disk().force = None;
                Ok(())
            }
            Action::ByHand(cordon) => {
                self.under().left.hands -= 1;
                self.under().node.cordon = *cordon;
                // It takes a moment until zedkube has seen it.
                self.under().ghost.excused = true;
                Ok(())
            }
            Action::Crash(who) => {
                *touched = Touched::ALL;
                self.under().left.crashes -= 1;
                self.crash(*who);
                Ok(())
            }
            Action::Power => {
                *touched = Touched::ALL;
                self.under().left.cuts -= 1;
                self.boot();
                Ok(())
            }
            Action::Within(..) => Ok(()),
        }
    }

    pub(crate) fn hear(&mut self, link: Link, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        // The shell of zedagent publishes the other parts of the config before its core hears of it.
        if link == Link::ConfigToZedagent {
            touched.files_of(Writer::Zedagent);
            let config = self.disk.config;
            let run = &mut self.disk().run;
            (run.member, run.image) = (Some(config.clustered), config.image);
        }
        let level = link.level(&self.disk);
        let first = self.heard[link.index()].is_none();
        Arc::make_mut(&mut self.heard)[link.index()] = Some(Arc::new(level.clone()));
        self.news &= !(1 << link.index());
        let once = if first { link.read_once() } else { Vec::new() };
        level.into_iter().chain(once).try_for_each(|fact| self.tell(fact, fuse, touched))
    }

    fn wakes(&mut self, who: Who, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        let Some(due) = self.wake(who) else { return Ok(()) };
        self.set_now(who, self.now(who).max(due));
        self.tell(tick(who), fuse, touched)
    }

    fn task_ends(&mut self, how: How, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        use zedkube::core::Event;
        let Some(task) = self.under().task.take() else { return Ok(()) };
        let well = how == How::Well;
        let trouble = || "trouble".to_owned();
        match how {
            How::Well => {}
            How::Badly => self.under().left.failures -= 1,
            How::AllDrain => self.under().left.all_drain -= 1,
        }
        // The requests that zedkube has heard and that still stand.
        let standing: Vec<_> = [Link::DeviceRequestToZedkube, Link::UpdateRequestToZedkube]
            .into_iter()
            .enumerate()
            .filter(|(nth, link)| {
                self.heard[link.index()].as_ref().is_some_and(|heard| **heard == link.level(&self.disk))
                    && self.request_of(*nth).is_some()
            })
            .filter_map(|(nth, _)| self.request_of(nth).map(topics::NodeDrainRequest::id))
            .collect();
        let event = match task {
            Task::Probe(run) => {
                if !well {
                    self.under().ghost.skipped.extend(standing);
                }
                Event::Probed(run, if well { Ok(()) } else { Err(trouble()) })
            }
            Task::Cordon(run) => {
                if well && self.under.node.cordon == CordonOwner::None {
                    self.cordon(CordonOwner::Ours);
                } else if well && self.under.node.cordon == CordonOwner::Ours {
                    let under = self.under();
                    under.node.boot = under.boot;
                }
                let whose = self.under.node.cordon;
                Event::Cordoned(run, if well { Ok(whose) } else { Err(trouble()) })
            }
            Task::Drain(run) => match how {
                How::Well => {
                    if self.under.node.cordon == CordonOwner::None {
                        // The engine puts the cordon back.
                        self.cordon(CordonOwner::Ours);
                    }
                    let under = self.under();
                    under.node.drained = true;
                    under.ghost.drained.extend(standing);
                    Event::Drained(run, Ok(Done { took: Duration::from_secs(3), evicted: 2 }))
                }
                How::Badly | How::AllDrain => {
                    let all_drain = how == How::AllDrain;
                    let under = self.under();
                    under.ghost.failed_attempts += 1;
                    if all_drain {
                        under.ghost.skipped.extend(standing);
                    }
                    let failure = Failure { reason: trouble(), blockers: Vec::new(), all_drain };
                    Event::Drained(run, Err(failure))
                }
            },
        };
        self.tell(Fact::Zedkube(event), fuse, touched)
    }

    fn look_ends(&mut self, how: How, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        let Some((nth, give_back)) = self.under().look.take() else { return Ok(()) };
        let node = self.under.node.clone();
        let seen = if how == How::Well {
            match node.cordon {
                CordonOwner::None => {
                    self.cordon(CordonOwner::None);
                    Ok(Seen::Open)
                }
                CordonOwner::Foreign => Ok(Seen::Foreign),
                CordonOwner::Ours if give_back => {
                    self.cordon(CordonOwner::None);
                    Ok(Seen::Open)
                }
                CordonOwner::Ours => Ok(Seen::Ours),
            }
        } else {
            self.under().left.failures -= 1;
            if give_back && node.cordon == CordonOwner::Ours && node.boot != self.under.boot {
                Ok(Seen::NotReady)
            } else {
                Err("500".to_owned())
            }
        };
        self.tell(Fact::Zedkube(zedkube::core::Event::Looked(nth, seen)), fuse, touched)
    }

    fn device(&mut self, how: How, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        let Some(order) = self.under().device.take() else { return Ok(()) };
        let operation = order.operation;
        if how == How::Well && operation != Operation::Shutdown {
            self.boot();
            return Ok(());
        }
        let outcome = if how == How::Well {
            Ok(Took::Machine)
        } else {
            self.under().left.refusals -= 1;
            Err("busy".to_owned())
        };
        self.tell(Fact::Nodeagent(nodeagent::core::Event::Operated { operation, outcome }), fuse, touched)
    }

    /// An agent starts, as its `run` does.
    fn start(&mut self, who: Who, fuse: &mut Fuse, touched: &mut Touched) -> Result<(), Gone> {
        let boot_id = self.boot_id();
        let now = self.now(who);
        if who != Who::Nodeagent && !self.disk.run.looked_in {
            let disk = self.disk();
            (disk.run.looked_in, disk.force) = (true, None);
        }
        match who {
            Who::Zedagent => {
                let disk = &self.disk;
                let found = zedagent::core::Found {
                    counters: disk.counters.clone(),
                    pending: disk.pending.values().cloned().collect(),
                    request: disk.run.requests[0].clone(),
                    boot_id,
                };
                let (core, effects) = Zedagent::new(zedagent::Limits::default(), found, now, self.wall(who));
                self.zedagent.core = Some(Arc::new(core));
                self.for_zedagent(effects, fuse, touched)
            }
            Who::Nodeagent => {
                let run = &self.disk.run;
                let found = nodeagent::core::Found {
                    said: run.nodeagent.as_deref().cloned(),
                    resumed: run.latched.clone(),
                    tested: run
                        .tested
                        .iter()
                        .filter(|(_, it)| **it)
                        .map(|(label, _)| label.to_string())
                        .collect(),
                    hv_type_kube: true,
                    ..nodeagent::core::Found::default()
                };
                // Limits at which nodeagent restarts the device on its own account are not reached here.
                let waits =
                    Waits { fallback: Duration::MAX, no_controller: Duration::MAX, ..Waits::default() };
                let core = NodeAgent::new(nodeagent::Limits::default(), waits, found, now);
                self.nodeagent.core = Some(Arc::new(core));
                self.tell(Fact::Nodeagent(nodeagent::core::Event::Heard(Source::Applications)), fuse, touched)
            }
            Who::Zedkube => {
                let journal = self.disk.journal.clone();
                let limits = self.scenario.kube.clone();
                let (core, effects) = Zedkube::new(limits, journal, boot_id, now, self.wall(who));
                self.zedkube.core = Some(Arc::new(core));
                self.for_zedkube(effects, fuse, touched)?;
                self.tell(
                    Fact::Zedkube(zedkube::core::Event::NodeKnown { name: "n1".to_owned() }),
                    fuse,
                    touched,
                )
            }
            Who::Baseosmgr => {
                let disk = &self.disk;
                let found = baseosmgr::core::Found {
                    partitions: disk.partitions.clone(),
                    request: disk.run.requests[1].clone(),
                    statuses: disk.run.images.clone().into_iter().collect(),
                    counters: disk.saved,
                };
                let core = baseosmgr::core::BaseOs::new(baseosmgr::Limits::default(), found);
                self.baseosmgr.core = Some(Arc::new(core));
                let tree =
                    ContentTreeStatus { state: SwState::Loaded, max_download_size: 1, ..Default::default() };
                use baseosmgr::core::{Event, Source};
                [
                    Event::Tick,
                    Event::Tree { key: TREE.to_owned(), value: Some(Box::new(tree)) },
                    Event::Heard(Source::Trees),
                    Event::Heard(Source::LastBoot),
                ]
                .into_iter()
                .try_for_each(|event| self.tell(Fact::Baseosmgr(event), fuse, touched))
            }
        }
    }
}

pub(crate) fn tick(who: Who) -> Fact {
    match who {
        Who::Zedagent => Fact::Zedagent(Zedagent::tick()),
        Who::Nodeagent => Fact::Nodeagent(NodeAgent::tick()),
        Who::Zedkube => Fact::Zedkube(Zedkube::tick()),
        Who::Baseosmgr => Fact::Baseosmgr(baseosmgr::core::BaseOs::tick()),
    }
}
