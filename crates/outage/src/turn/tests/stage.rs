//! One turn against a cluster in memory, every call counted.

use std::time::Duration;

use step::{Core as _, Mono};

use super::super::Turn;
use super::super::event::{
    Ask, Effect, Event, ReadError, RecordWritten, TurnRequest, TurnState, TurnWait, Unconfirmed,
};
use super::super::record::{Class, Fence, Op, RecordSnapshot, TurnRecord};
use super::super::rule::{CordonMark, TurnNode};
use super::rules::{me, node};

pub(super) fn at(secs: u64) -> Mono {
    Mono::from_start(Duration::from_secs(secs))
}

pub(super) fn want() -> TurnRequest {
    TurnRequest { op: Op::Reboot, counter: 1, emergency: false, fit: true }
}

/// Node `a` in a cluster in memory.
pub(super) struct Stage {
    pub(super) turn: Turn,
    pub(super) now: Mono,
    pub(super) lease: Option<RecordSnapshot>,
    pub(super) nodes: Vec<TurnNode>,
    pub(super) margin: Result<(), String>,
    pub(super) versions: u32,
    /// What the turn has asked for, one letter a call: Read, Cluster, Margin, Write.
    pub(super) calls: String,
    pub(super) pending: Option<Effect>,
    pub(super) said: Vec<Effect>,
}

impl Stage {
    pub(super) fn new(record: Option<TurnRecord>) -> Self {
        Self::of(record, false)
    }

    pub(super) fn of(record: Option<TurnRecord>, server: bool) -> Self {
        let mut stage = Self {
            turn: Turn::new(me("a", server), Class::Worker, 1),
            now: at(1_000),
            lease: None,
            nodes: ["a", "b", "c", "d", "e"].map(node).to_vec(),
            margin: Ok(()),
            versions: 0,
            calls: String::new(),
            pending: None,
            said: Vec::new(),
        };
        if let Some(record) = record {
            stage.put(record);
        }
        stage
    }

    /// One that has asked for its turn in a cluster with this record.
    pub(super) fn asking(record: TurnRecord) -> Self {
        let mut stage = Self::new(Some(record));
        stage.wants();
        stage
    }

    pub(super) fn put(&mut self, record: TurnRecord) {
        self.versions += 1;
        let uid = self.lease.as_ref().map_or("L", |it| it.uid.as_str()).to_owned();
        self.lease = Some(RecordSnapshot { record, uid, resource_version: self.versions.to_string() });
    }

    pub(super) fn edit(&mut self, change: impl FnOnce(&mut TurnRecord)) {
        let mut record = self.record().clone();
        change(&mut record);
        self.put(record);
        self.settle(Event::Changed(self.lease.clone().map(Box::new)));
    }

    pub(super) fn record(&self) -> &TurnRecord {
        &self.lease.as_ref().unwrap().record
    }

    pub(super) fn hear(&mut self, event: impl Into<Event>) {
        for effect in self.turn.step(self.now, event.into()) {
            let letter = match &effect {
                Effect::Read(_) => 'R',
                Effect::ReadCluster(_) => 'C',
                Effect::ReadMargin(_) => 'M',
                Effect::Write(..) => 'W',
                other => {
                    self.said.push(other.clone());
                    continue;
                }
            };
            self.calls.push(letter);
            self.pending = Some(effect);
        }
    }

    /// The answer to a call.
    fn reply(&mut self, call: Effect) -> Event {
        match call {
            Effect::Read(id) => Event::Read(id, Ok(self.lease.clone().map(Box::new))),
            Effect::ReadCluster(id) => Event::Cluster(id, Ok(self.nodes.clone())),
            Effect::ReadMargin(id) => Event::Margin(id, self.margin.clone()),
            Effect::Write(id, order) if self.lease.as_ref().map(RecordSnapshot::version) == order.on => {
                self.put(order.record);
                Event::Wrote(id, RecordWritten::Done(Box::new(self.lease.clone().unwrap())))
            }
            Effect::Write(id, _) => Event::Wrote(id, RecordWritten::Outdated),
            other => panic!("{other:?} is no call"),
        }
    }

    pub(super) fn serve(&mut self) {
        self.serve_with(|_| None);
    }

    /// The same, where `answer` has none of its own.
    pub(super) fn serve_with(&mut self, answer: impl Fn(&Effect) -> Option<Event>) {
        while let Some(call) = self.pending.take() {
            let event = answer(&call).unwrap_or_else(|| self.reply(call));
            self.hear(event);
        }
    }

    /// Answers all calls before that of this letter.
    pub(super) fn serve_to(&mut self, letter: char) {
        while !self.calls.ends_with(letter) {
            let call = self.pending.take().expect("a call");
            let event = self.reply(call);
            self.hear(event);
        }
    }

    /// The reading of the Lease that is under way ends so.
    pub(super) fn read(&mut self, result: Result<Option<RecordSnapshot>, ReadError>) {
        let Some(Effect::Read(id)) = self.pending.take() else { panic!("no reading") };
        self.hear(Event::Read(id, result.map(|it| it.map(Box::new))));
    }

    /// Hears this, and has all that follows answered.
    pub(super) fn settle(&mut self, event: impl Into<Event>) {
        self.hear(event);
        self.serve();
    }

    pub(super) fn wants(&mut self) -> &mut Self {
        self.settle(Ask::Want(Some(want())));
        self
    }

    /// Lets time pass, answering all calls; what was asked for.
    pub(super) fn pass(&mut self, secs: u64) -> String {
        self.calls.clear();
        let end = self.now + Duration::from_secs(secs);
        while let Some(due) = self.turn.next_wake().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.settle(Event::Tick);
        }
        self.now = end;
        self.calls.clone()
    }

    pub(super) fn waiting(&self) -> TurnWait {
        match self.turn.state() {
            TurnState::Waiting(it) => *it,
            other => panic!("not waiting: {other:?}"),
        }
    }

    pub(super) fn fence(&self) -> Option<Fence> {
        match self.turn.state() {
            TurnState::Held { fence, .. } => Some(fence),
            _ => None,
        }
    }

    pub(super) fn confirm(&mut self) -> Result<(), Unconfirmed> {
        self.settle(Ask::Confirm);
        self.answer()
    }

    pub(super) fn answer(&mut self) -> Result<(), Unconfirmed> {
        let mut answers = self.said.iter().filter_map(|it| match it {
            Effect::Confirmed(answer) => Some(answer.clone()),
            _ => None,
        });
        answers.next_back().expect("an answer")
    }

    pub(super) fn cordon(&mut self, fence: Fence) {
        let boot_id = "a-boot".to_owned();
        self.nodes[0].mark = Some(CordonMark { fence, lease_uid: "L".to_owned(), boot_id });
        self.nodes[0].unschedulable = true;
    }
}
