//! A core with what it said last, for tests of its rules.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::node::boot::GateReport;
use kubenodeop::node::gate::{GateStatus, Layer, since_boot};
use kubenodeop::{AttemptFailure, DrainSuccess, WatchedBlockers};
use step::{Core as _, Mono};
use topics::{
    BootGate, CordonOwner, DrainJournal, DrainMarks, DrainStatus, GoTime, NodeDrainRequest, NodeDrainStatus,
    Requester,
};

use super::world::ALL;
use super::{Effect, Event, Force, Membership, NodeLook, RunId, Zedkube};
use crate::limits::Limits;

/// Those of a node that need not wait for its turn: what the drain itself does.
pub(super) fn alone() -> Limits {
    // The preflight has tests of its own.
    Limits { take_turns: false, preflight: false, ..Limits::default() }
}

/// Each value is said at once, so that a test waits for what it is about.
pub(super) fn at_once() -> Limits {
    Limits { progress_gap_ms: 0, marks_gap_ms: 0, drain_gap_ms: 0, ..alone() }
}

pub(super) const T0: Mono = Mono::from_start(Duration::from_secs(100));

pub(super) fn wall() -> GoTime {
    "2026-03-14T09:26:53Z".parse().unwrap()
}

/// When the boot began in which it is then [`wall`] at [`T0`].
pub(super) fn booted_at() -> GoTime {
    wall().minus(T0.since_start())
}

pub(super) fn request(by: Requester, secs: u64) -> NodeDrainRequest {
    NodeDrainRequest {
        requested_at: wall().plus(Duration::from_secs(secs)),
        requested_by: by,
        context: "reboot".into(),
    }
}

pub(super) fn failed(reason: &str) -> AttemptFailure {
    AttemptFailure {
        reason: reason.into(),
        blockers: Vec::new(),
        watched: WatchedBlockers::default(),
        marks: DrainMarks::default(),
    }
}

pub(super) fn done_with(left: Vec<String>) -> DrainSuccess {
    DrainSuccess { took: Duration::from_secs(3), evicted: 2, recordons: 0, left }
}

/// What a gate says that is shut at this layer, or open.
pub(super) fn gate(layer: Option<Layer>, since: Mono) -> GateReport {
    let shown = BootGate {
        open: layer.is_none(),
        layer: layer.map(|it| it.text().to_owned()).unwrap_or_default(),
        words: format!("{layer:?} was seen"),
        next_step: "fix it".into(),
        since: since_boot(since),
        ..BootGate::default()
    };
    let is_api_silent = layer == Some(Layer::Service);
    let verdict = GateStatus { layer, shown, is_api_silent, holds_turn: false };
    GateReport { verdict: Some(verdict), ..GateReport::default() }
}

/// A core with the effects of its last step, and what was ever said.
pub(super) struct Bench {
    pub(super) core: Zedkube,
    pub(super) now: Mono,
    pub(super) last: Vec<Effect>,
    pub(super) statuses: Vec<(u8, u8)>,
}

impl Bench {
    pub(super) fn with(journal: Option<DrainJournal>) -> Self {
        Self::at(T0, at_once(), journal)
    }

    pub(super) fn at(now: Mono, limits: Limits, journal: Option<DrainJournal>) -> Self {
        Self::started((now, booted_at()), limits, journal, "b1")
    }

    /// Started at this time, by these clocks, in this boot.
    pub(super) fn started(
        (now, booted_at): (Mono, GoTime),
        limits: Limits,
        journal: Option<DrainJournal>,
        boot: &str,
    ) -> Self {
        let (core, effects) = Zedkube::new(limits, journal, boot.to_owned(), now, booted_at);
        let mut bench = Self { core, now, last: Vec::new(), statuses: Vec::new() };
        bench.take(effects);
        bench
    }

    /// Restarted in the same boot, a member with these requests.
    pub(super) fn again(
        now: Mono,
        limits: Limits,
        journal: DrainJournal,
        asked: &[NodeDrainRequest],
    ) -> Self {
        let mut bench = Self::at(now, limits, Some(journal));
        for request in asked {
            bench.ask(request);
        }
        bench.join();
        bench
    }

    /// A member of a cluster, idle.
    pub(super) fn idle() -> Self {
        Self::idle_with(at_once())
    }

    pub(super) fn idle_with(limits: Limits) -> Self {
        let mut bench = Self::at(T0, limits, None);
        bench.join();
        bench.look(NodeLook::Open);
        bench
    }

    /// A person's file orders this.
    pub(super) fn force(&mut self, status: DrainStatus, requested_by: Requester) {
        self.hear(Event::Force(Force::Order(NodeDrainStatus { status, requested_by })));
    }

    pub(super) fn join(&mut self) {
        self.hear(Event::NodeKnown { name: "n1".into() });
        self.hear(Event::Member(Membership::Member));
        self.read_requests();
    }

    pub(super) fn read_requests(&mut self) {
        for who in ALL {
            self.hear(Event::RequestsRead(who));
        }
    }

    pub(super) fn take(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            if let Effect::Status(NodeDrainStatus { status, requested_by }) = effect {
                self.statuses.push((status.number(), requested_by.number()));
            }
        }
        self.last = effects;
    }

    /// Hears a fact, and then the time of what is due at once.
    pub(super) fn hear(&mut self, event: Event) {
        let effects = self.core.step(self.now, event);
        self.take(effects);
        let mut all = std::mem::take(&mut self.last);
        while self.core.next_wake().is_some_and(|at| at <= self.now) {
            let effects = self.core.step(self.now, Event::Tick);
            self.take(effects);
            all.append(&mut self.last);
        }
        self.last = all;
    }

    /// How many lines with these words the log was given last.
    pub(super) fn said(&self, words: &str) -> usize {
        self.last.iter().filter(|it| matches!(it, Effect::Say(it) if it.text.contains(words))).count()
    }

    /// Lets time pass until the core wants to be woken.
    pub(super) fn wait(&mut self) -> Duration {
        let due = self.core.next_wake().expect("the core waits for nothing");
        let waited = due.since(self.now);
        self.now = due;
        self.hear(Event::Tick);
        waited
    }

    /// Number of the look that was asked for.
    pub(super) fn nth(&self) -> u64 {
        let nth = |it: &Effect| if let Effect::Look { nth, .. } = it { Some(*nth) } else { None };
        self.last.iter().find_map(nth).expect("no look was asked for")
    }

    pub(super) fn look(&mut self, seen: NodeLook) {
        self.hear(Event::Looked(self.nth(), Ok(seen)));
    }

    pub(super) fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.last.iter().any(is)
    }

    /// A look that removes a cordon of before is ended before the next cordon.
    pub(super) fn cancels_first(&self) -> bool {
        let first = |is: fn(&Effect) -> bool| self.last.iter().position(is).expect("it is there");
        first(|it| *it == Effect::Cancel) < first(|it| matches!(it, Effect::Cordon(..)))
    }

    pub(super) fn ask(&mut self, request: &NodeDrainRequest) {
        self.hear(Event::Request(request.requested_by, Some(request.clone())));
    }

    pub(super) fn run(&self) -> RunId {
        let of = |it: &Effect| {
            let (Effect::Probe(run)
            | Effect::Preflight(run)
            | Effect::Margin { run, .. }
            | Effect::Cordon(run, ..)
            | Effect::Drain(run, ..)) = it
            else {
                return None;
            };
            Some(*run)
        };
        self.last.iter().find_map(of).expect("no call was asked for")
    }

    pub(super) fn cordon(&mut self) -> RunId {
        let run = self.run();
        self.hear(Event::Probed(run, Ok(())));
        self.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
        run
    }

    pub(super) fn until_draining(&mut self) -> RunId {
        let run = self.cordon();
        assert!(self.last.iter().any(|it| matches!(it, Effect::Drain(..))));
        run
    }

    /// Goes on to the attempt after the pause in which an earlier run of this agent was.
    pub(super) fn until_draining_after_pause(&mut self) {
        self.cordon();
        self.wait();
        assert!(self.last.iter().any(|it| matches!(it, Effect::Drain(..))));
    }

    /// The same, and this requester asks for a drain.
    pub(super) fn asked(who: Requester) -> Self {
        let mut bench = Self::idle();
        bench.ask(&request(who, 1));
        bench
    }

    /// In the first attempt of a drain for this requester.
    pub(super) fn draining(who: Requester) -> (Self, RunId) {
        let mut bench = Self::asked(who);
        let run = bench.until_draining();
        (bench, run)
    }

    pub(super) fn fail_all(&mut self, run: RunId) {
        for attempt in 1..=5 {
            self.fail(run);
            if attempt < 5 {
                self.wait();
            }
        }
    }

    pub(super) fn fail(&mut self, run: RunId) {
        let marks = self.core.drain.run.pods().map(|pods| pods.marks.clone()).unwrap_or_default();
        let failure = AttemptFailure { marks, ..failed("budget shop/web") };
        self.hear(Event::Drained(run, Err(Box::new(failure))));
    }

    /// The API is away, for so long at most; returns how long it was until COMPLETE.
    pub(super) fn away(&mut self, most: Duration) -> Duration {
        let begun = self.now;
        while self.status().0 != 9 && self.now.since(begun) < most {
            self.hear(Event::Probed(self.core.drain.run_id, Err("connection refused".into())));
            if self.status().0 != 9 {
                self.wait();
            }
        }
        self.now.since(begun)
    }

    pub(super) fn done(&mut self, run: RunId) {
        self.hear(Event::Drained(run, Ok(done_with(Vec::new()))));
    }

    pub(super) fn status(&self) -> (u8, u8) {
        *self.statuses.last().unwrap()
    }

    pub(super) fn gives_back(&self) -> bool {
        self.has(|it| matches!(it, Effect::Look { uncordon: true, .. }))
    }
}
