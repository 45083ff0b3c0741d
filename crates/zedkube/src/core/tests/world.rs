//! A small world for a core: it performs what the core says and answers as a cluster may.
//!
//! It keeps account of what each request has earned, and lets a write of a cancelled task arrive late, as a server may.
//! Pure: no clock, no I/O, no task.
//!
//! What the small world answers to a look at its node, and how its gate after a boot is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubenodeop::node::gate::Layer;
use step::{Core as _, Mono};
use topics::{
    CordonOwner, DrainHistory, DrainJournal, DrainStatus, GoTime, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, RequestId, Requester, SkipKind,
};

use super::bench::{alone, booted_at, done_with, failed};
use super::{Candidacy, Effect, Event, Force, Membership, RunId, UndoScope, Zedkube};
use crate::core::NodeLook;
use crate::core::tests::bench::gate;
use crate::limits::Limits;

pub(super) const ALL: [Requester; 5] = super::super::answers::Answers::REQUESTERS;
/// More than this many waits and answers and the core will never come to rest.
const ENOUGH: usize = 300;
/// A write whose caller has gone arrives within this time or never.
const ON_ITS_WAY: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Probe(RunId),
    Cordon(RunId),
    Drain(RunId),
    Await(RunId),
}

/// Few tries, so that failures come about.
pub(super) fn limits() -> Limits {
    Limits { cordon_tries: 2, drain_tries: 2, drain_gap_ms: 0, ..alone() }
}

pub(super) struct World {
    pub(super) core: Zedkube,
    pub(super) now: Mono,
    /// When the boot began, by the wall clock.
    pub(super) booted_at: GoTime,
    pub(super) boot: u32,
    pub(super) journal: DrainJournal,
    pub(super) history: DrainHistory,
    pub(super) status: NodeDrainStatus,
    pub(super) member: Membership,
    pub(super) requests: BTreeMap<Requester, NodeDrainRequest>,
    pub(super) asked: u64,
    pub(super) force: Force,
    pub(super) hold: bool,
    pub(super) task: Option<Task>,
    /// A look, whether a cordon of ours has to go, and also one of an earlier boot.
    pub(super) look: Option<(u64, bool, bool)>,
    pub(super) watching: bool,
    pub(super) sentry: bool,
    /// What a drain did to virtual machines is undone so far.
    pub(super) undone: UndoScope,
    /// What was reported of it last: whether it is open.
    pub(super) gate: Option<bool>,
    pub(super) late: Vec<Event>,
    /// How often a drain has reported how far it is.
    pub(super) reports: u32,
    /// The newest progress that was written, when, and beside which status.
    pub(super) progress: Option<(Box<NodeDrainProgress>, Mono)>,
    /// The attempt that began last, and when.
    pub(super) attempt: Option<(u32, Mono)>,
    /// What is on the node, and how often it was written.
    pub(super) node: CordonOwner,
    pub(super) version: u64,
    pub(super) written_in: u32,
    /// A cordon on its way that names this version, and since when.
    pub(super) landing: Option<(u64, Mono)>,
    /// A pod has come to the node since the last drain.
    pub(super) has_new_pods: bool,
    pub(super) guard: bool,
    /// A drain that is done, as long as nothing new has begun.
    pub(super) proved: bool,
    pub(super) drained: BTreeSet<RequestId>,
    pub(super) skipped: BTreeSet<RequestId>,
    pub(super) forced: BTreeSet<RequestId>,
    pub(super) candidacy: Option<Candidacy>,
}

impl World {
    pub(super) fn new() -> Self {
        let now = Mono::from_start(Duration::from_secs(100));
        let (core, effects) = Zedkube::new(limits(), None, "b0".into(), now, booted_at());
        let mut world = Self {
            core,
            now,
            booted_at: booted_at(),
            boot: 0,
            journal: DrainJournal::default(),
            history: DrainHistory::default(),
            status: NodeDrainStatus::default(),
            member: Membership::Member,
            requests: BTreeMap::new(),
            asked: 0,
            force: Force::Absent,
            hold: false,
            task: None,
            look: None,
            watching: false,
            sentry: false,
            undone: UndoScope::Nothing,
            gate: None,
            late: Vec::new(),
            reports: 0,
            progress: None,
            attempt: None,
            node: CordonOwner::None,
            version: 0,
            written_in: 0,
            landing: None,
            has_new_pods: false,
            guard: false,
            proved: false,
            drained: BTreeSet::new(),
            skipped: BTreeSet::new(),
            forced: BTreeSet::new(),
            candidacy: None,
        };
        world.perform(effects);
        world.first_facts(0);
        world
    }

    pub(super) fn first_facts(&mut self, mut order: usize) {
        let topic = |from: Requester, held: Option<&NodeDrainRequest>| {
            let mut facts: Vec<Event> =
                held.map(|it| Event::Request(from, Some(it.clone()))).into_iter().collect();
            facts.push(Event::RequestsRead(from));
            facts
        };
        let mut groups = vec![
            vec![Event::Member(self.member)],
            vec![Event::NodeKnown { name: "n1".into() }],
            vec![Event::Force(self.force.clone())],
            vec![Event::Hold(self.hold)],
        ];
        groups.extend(ALL.map(|who| topic(who, self.requests.get(&who))));
        while !groups.is_empty() {
            let next = groups.remove(order % groups.len());
            order /= groups.len() + 1;
            for event in next {
                self.hear(&event);
            }
        }
    }

    /// Hears a fact, and lets the core do what is due at once. Hearing it twice must be hearing it once.
    pub(super) fn hear(&mut self, event: &Event) {
        let mut twice = self.core.clone();
        let mut effects = self.core.step(self.now, event.clone());
        let mut same = twice.step(self.now, event.clone());
        same.extend(twice.step(self.now, event.clone()));
        for (core, out) in [(&mut self.core, &mut effects), (&mut twice, &mut same)] {
            let mut ticks = 0;
            while core.next_wake().is_some_and(|at| at <= self.now) {
                out.extend(core.step(self.now, Event::Tick));
                ticks += 1;
                assert!(ticks < 10, "never at rest after {event:?}: {core:?}");
            }
        }
        assert_eq!(effects, same, "heard twice: {event:?}");
        assert_eq!(self.core, twice, "heard twice: {event:?}");
        self.perform(effects);
    }

    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        let new_status = effects.iter().any(|it| matches!(it, Effect::Status(_)));
        for effect in effects {
            match effect {
                Effect::Journal(journal) => self.journal = *journal,
                Effect::Progress(progress) => {
                    self.apart(&progress, new_status);
                    for answer in progress.answers.iter().filter(|it| it.status == DrainStatus::Complete) {
                        let earned = match answer.skip_kind {
                            SkipKind::None => &self.drained,
                            SkipKind::Forced => &self.forced,
                            SkipKind::ApiUnreachable | SkipKind::Other => &self.skipped,
                        };
                        assert!(earned.contains(&answer.id()), "not earned: {answer:?}");
                        assert_eq!(self.candidacy, Some(Candidacy::Closed), "L5: {answer:?}");
                    }
                }
                Effect::Status(status) => self.shown(status),
                Effect::Probe(run) => self.begin(Task::Probe(run)),
                Effect::Cordon(run, ..) => self.begin(Task::Cordon(run)),
                Effect::Drain(run, _, _, marks) => {
                    self.attempt = Mono::of_ms(marks.attempt_ms).map(|began| (self.journal.attempt, began));
                    self.begin(Task::Drain(run));
                }
                Effect::Await(run, _) => self.begin(Task::Await(run)),
                Effect::Cancel => self.cancel(),
                Effect::Gate(wanted) => {
                    assert_ne!(wanted, self.watching, "watched twice, or not at all");
                    self.watching = wanted;
                    if wanted {
                        self.gate = None;
                    }
                }
                Effect::Look { nth, uncordon, gate_open } => {
                    assert_eq!(gate_open, self.gate == Some(true), "the gate is not what it was said to be");
                    assert!(self.look.is_none(), "two looks at once");
                    assert!(!uncordon || self.is_at_rest(), "a drain loses its cordon");
                    self.look = Some((nth, uncordon, gate_open));
                }
                Effect::History(history) => {
                    let open = history.drains.iter().skip(1).filter(|it| it.is_open()).count();
                    assert!(open == 0 && history.drains.len() <= 10, "{history:?}");
                    self.history = *history;
                }
                Effect::Guard => {
                    assert!(!self.guard, "two guards at once");
                    self.guard = true;
                }
                Effect::Taints(wanted) => {
                    assert_ne!(wanted, self.sentry, "watched for taints twice, or not at all");
                    assert!(!wanted || !self.watching && self.is_at_rest(), "two watches of the node");
                    self.sentry = wanted;
                }
                Effect::Leftovers(scope) => {
                    assert_ne!(scope, self.undone, "undone twice, or not at all");
                    let is_drain = !self.is_at_rest() && !matches!(self.task, Some(Task::Probe(_)));
                    assert!(scope == UndoScope::Nothing || !is_drain, "a drain loses its migrations");
                    assert!(scope != UndoScope::All || self.is_at_rest(), "a drain loses its machines");
                    self.undone = scope;
                }
                Effect::Candidacy(candidacy) => self.candidacy = Some(candidacy),
                // Nodes take no turns here.
                Effect::Preflight(_) | Effect::Margin { .. } => panic!("asks for a turn"),
                Effect::UndoHooks | Effect::HooksAfterBoot => panic!("there is no hook"),
                Effect::Turn(_) | Effect::OutageAnswer(_) | Effect::CordonRemoved | Effect::Say(_) => {}
            }
        }
    }

    pub(super) fn shown(&mut self, status: NodeDrainStatus) {
        self.status = status;
        let closed = self.candidacy == Some(Candidacy::Closed);
        assert!(closed || status.status != DrainStatus::Complete, "L5: {status} while this node may lead");
        if status.status != DrainStatus::Complete || self.force == Force::Order(status) {
            return;
        }
        // Nobody else than who has earned it is shown COMPLETE.
        let earned =
            |id: &RequestId| [&self.drained, &self.skipped, &self.forced].iter().any(|all| all.contains(id));
        let request = self.requests.get(&status.requested_by).unwrap_or_else(|| panic!("{status} to nobody"));
        assert!(earned(&request.id()), "{status} is not earned");
    }

    /// A value that changes neither status nor answer is not written soon after another one.
    fn apart(&mut self, newest: &NodeDrainProgress, new_status: bool) {
        if let Some((last, at)) = &self.progress
            && last.answers == newest.answers
            && !new_status
        {
            let gap = self.now.since(*at);
            assert!(gap >= self.core.node.limits.progress_gap(), "{gap:?} after {last:?}: {newest:?}");
        }
        self.progress = Some((Box::new(newest.clone()), self.now));
    }

    pub(super) fn begin(&mut self, task: Task) {
        if let Some(Task::Await(run)) = self.task {
            // It is replaced; what it has sent is heard all the same.
            self.late.push(ended(Task::Await(run), true, self.node));
            self.task = None;
        }
        assert!(self.task.is_none(), "{task:?} beside {:?}", self.task);
        self.task = Some(task);
        self.proved = false;
    }

    /// What a cancelled task has sent, to us or to the server, is not unsent.
    pub(super) fn cancel(&mut self) {
        self.look = None;
        self.guard = false;
        self.proved = false;
        if let Some(task) = self.task.take() {
            self.on_its_way(task);
            self.late.push(ended(task, true, self.node));
        }
    }

    pub(super) fn write(&mut self, node: CordonOwner) {
        self.node = node;
        self.version += 1;
        self.written_in = self.boot;
    }

    /// A cordon, or a drain that cordons again, has read the node and written it, but its write is not there yet.
    pub(super) fn on_its_way(&mut self, task: Task) {
        if !matches!(task, Task::Probe(_) | Task::Await(_)) && self.node == CordonOwner::None {
            self.landing = Some((self.version, self.now));
        }
    }

    pub(super) fn land(&mut self) {
        if self.landing.take().is_some_and(|(version, _)| version == self.version) {
            self.write(CordonOwner::Ours);
        }
    }

    pub(super) fn result(&mut self, well: bool) {
        let Some(task) = self.task.take() else { return };
        if matches!(task, Task::Cordon(_)) && well && self.node == CordonOwner::None {
            self.write(CordonOwner::Ours);
        } else if !well {
            // No answer in time does not mean that it is not done.
            self.on_its_way(task);
        }
        let standing = || self.requests.values().map(NodeDrainRequest::id);
        match (task, well) {
            (Task::Drain(_), true) => {
                self.has_new_pods = false;
                self.drained.extend(standing());
                self.proved = true;
            }
            (Task::Probe(_), false) => self.skipped.extend(standing()),
            (Task::Drain(_) | Task::Probe(_) | Task::Cordon(_) | Task::Await(_), _) => {}
        }
        self.hear(&ended(task, well, self.node));
    }

    /// Whatever was earned is so no longer, but for what a force file says.
    pub(super) fn earn_nothing(&mut self) {
        self.drained.clear();
        self.skipped.clear();
        self.forced.clear();
        self.earn_by_force();
    }

    pub(super) fn earn_by_force(&mut self) {
        if let Force::Order(order) = self.force
            && order.status == DrainStatus::Complete
        {
            self.forced.extend(self.requests.get(&order.requested_by).map(NodeDrainRequest::id));
        }
    }

    pub(super) fn force(&mut self, force: Force) {
        self.force = force.clone();
        self.earn_by_force();
        if matches!(force, Force::Order(order) if order.status == DrainStatus::NotSupported) {
            self.earn_nothing();
        }
        self.hear(&Event::Force(force));
    }

    pub(super) fn ask(&mut self, by: Requester) {
        self.asked += 1;
        let requested_at = GoTime::ZERO.plus(Duration::from_secs(self.asked));
        let request = NodeDrainRequest { requested_at, requested_by: by, context: String::new() };
        if self.proved && self.hold {
            // The drain is done and held back: it is this one's too.
            self.drained.insert(request.id());
        }
        self.requests.insert(by, request.clone());
        self.earn_by_force();
        self.hear(&Event::Request(by, Some(request)));
    }

    pub(super) fn wait(&mut self) {
        if let Some(due) = self.core.next_wake() {
            self.now = self.now.max(due);
            if self.landing.is_some_and(|(_, since)| self.now.since(since) >= ON_ITS_WAY) {
                self.land();
            }
            self.hear(&Event::Tick);
        }
    }

    pub(super) fn moment(&mut self, ms: u64) {
        let after = self.now + Duration::from_millis(ms);
        let due = self.core.next_wake().filter(|due| *due <= after);
        self.now = self.now.max(due.unwrap_or(after));
        if due.is_some() {
            self.hear(&Event::Tick);
        }
    }

    pub(super) fn restart(&mut self, other_boot: bool, order: usize) {
        self.cancel();
        (self.watching, self.sentry, self.undone, self.gate) = (false, false, UndoScope::Nothing, None);
        self.late.clear();
        self.progress = None;
        self.candidacy = None;
        if other_boot {
            self.boot += 1;
            self.requests.clear();
            self.landing = None;
        }
        let journal = Some(self.journal.clone());
        let boot = format!("b{}", self.boot);
        let (core, effects) =
            Zedkube::new(self.core.node.limits.clone(), journal, boot, self.now, self.booted_at);
        self.core = core;
        self.perform(effects);
        let recalled = self.core.recall(self.now, Some(self.history.clone()));
        self.perform(recalled);
        self.earn_by_force();
        self.first_facts(order);
    }

    /// Answers whatever is asked and lets time pass until nothing more happens.
    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..ENOUGH {
            // Results of tasks that are long gone change nothing, whenever they come.
            for event in self.late.clone() {
                self.hear(&event);
            }
            if self.task.is_some() {
                self.result(true);
            } else if self.look.is_some() {
                self.looked(true);
            } else if self.watching && self.gate != Some(true) {
                self.gate(true);
            } else if self.core.next_wake().is_some() && !self.at_peace() {
                self.wait();
            } else {
                // Whatever was held back for a moment has been written by now.
                while self.core.next_wake().is_some_and(|due| due <= self.now + limits().progress_gap()) {
                    self.wait();
                }
                let goes_on = self.history.drains.first().is_some_and(topics::DrainRecord::is_open);
                assert_eq!(goes_on, self.core.drain.is_active(), "{:?}", self.history);
                let newest = self.core.progress();
                assert!(
                    self.progress.as_ref().is_none_or(|(said, _)| **said == newest),
                    "not said: {newest:?}"
                );
                return;
            }
        }
        panic!("never at rest: {:?}", self.core);
    }

    /// All that is left to do is to look at a drained node now and then.
    pub(super) fn at_peace(&self) -> bool {
        let answered = self.requests.values().all(|request| {
            self.journal
                .answers
                .iter()
                .any(|it| it.id() == request.id() && it.status == DrainStatus::Complete)
        });
        !self.requests.is_empty() && answered
    }
}

pub(super) fn ended(task: Task, well: bool, node: CordonOwner) -> Event {
    let trouble = || "trouble".to_owned();
    match task {
        Task::Probe(run) => Event::Probed(run, if well { Ok(()) } else { Err(trouble()) }),
        Task::Cordon(run) => {
            let whose = if node == CordonOwner::Foreign { node } else { CordonOwner::Ours };
            Event::Cordoned(run, if well { Ok(whose) } else { Err("trouble".into()) })
        }
        Task::Drain(run) => {
            let done = done_with(Vec::new());
            Event::Drained(run, if well { Ok(done) } else { Err(Box::new(failed("trouble"))) })
        }
        Task::Await(run) => Event::BlockerChanged(run, "budget shop/web now allows 1".to_owned()),
    }
}

impl World {
    /// Nobody is at work on the cluster: what a failed drain waits for is only watched.
    fn is_at_rest(&self) -> bool {
        let failed = self.core.drain.own_status() == DrainStatus::FailedDrain;
        self.task.is_none() || failed && matches!(self.task, Some(Task::Await(_)))
    }

    pub(in crate::core::tests) fn looked(&mut self, well: bool) {
        let Some((nth, uncordon, gate_open)) = self.look.take() else { return };
        if !well {
            return self.hear(&Event::Looked(nth, Err("500".into())));
        }
        let shut = self.written_in != self.boot && !gate_open;
        if uncordon && self.node == CordonOwner::Ours && !shut {
            self.write(CordonOwner::None);
        }
        let seen = match self.node {
            CordonOwner::Ours if uncordon => NodeLook::NotReady,
            CordonOwner::None => NodeLook::Open,
            owner if self.has_new_pods && !uncordon => {
                self.drained.clear();
                NodeLook::HasPods(owner, vec![crate::core::tests::voided::pod("late-0")])
            }
            CordonOwner::Ours => NodeLook::Ours,
            CordonOwner::Foreign => NodeLook::Foreign,
        };
        if !uncordon && seen == NodeLook::Open {
            // Somebody uncordoned; what was skipped or forced needs no cordon.
            self.drained.clear();
        }
        self.hear(&Event::Looked(nth, Ok(seen)));
    }

    /// The gate after the boot is reported open or shut, if it is watched.
    pub(in crate::core::tests) fn gate(&mut self, open: bool) {
        if self.watching {
            self.gate = Some(open);
            let layer = (!open).then_some(Layer::Storage);
            self.hear(&Event::Gate(Box::new(gate(layer, self.now))));
        }
    }

    /// A pod comes to the node, whatever its cordon says.
    pub(in crate::core::tests) fn come(&mut self) {
        self.has_new_pods = true;
        self.stir();
    }

    pub(in crate::core::tests) fn stir(&mut self) {
        if std::mem::take(&mut self.guard) {
            self.hear(&Event::NodeActivity("a change".into()));
        }
    }
}
