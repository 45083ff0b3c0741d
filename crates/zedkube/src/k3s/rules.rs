//! The life of an update of k3s: held back, applied, followed, done or failed.
//!
//! Every step follows from levels: what the config wants, what is in force for the kube container, what the record of an
//! earlier run says. So each crash and each power cut continues where it was. Pure: no clock, no I/O, no task.

use std::time::Duration;

use requester::{DeviceClustering, DrainTopicUpdate, Hold, ZedkubeSilence};
use step::{Core, LogMessage, Mono, say};
use topics::{GoTime, K3sStage, K3sUpdate, NodeDrainRequest, NodeDrainStatus, OperationPause, Requester};

use super::config::{DesiredK3s, Override};
use crate::limits::{K3S_SETTLE, K3S_UPDATE};

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the device config wants.
    Wanted(DesiredK3s),
    /// Something that the drain half of this agent has said.
    Drain(DrainTopicUpdate),
    /// Whether this node is in a cluster, and whether it has yet to leave one.
    Member(DeviceClustering, bool),
    /// The force file, if it counts.
    Forced(Option<NodeDrainStatus>),
    /// A person's pause on this node, or none.
    Pause(Option<OperationPause>),
    /// Answer to [`Effect::ReadFile`]: the override file, empty where there is none; `None` while the vault is shut.
    File(Option<Override>),
    /// Answer to [`Effect::Look`] of this number: the version that the kubelet of this node reports, or why that is not
    /// known.
    Reported(u64, Result<String, String>),
    /// The gate, watched as [`Effect::Gate`] says: why it is shut, or nothing when it is open.
    Gate(Option<String>),
    /// When the monotonic clock started, by the wall clock as it is now.
    Wall(GoTime),
    Tick,
}

/// Something for the shell to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Keep how far the update is, and tell the drain half.
    Journal(Box<K3sUpdate>),
    Forget,
    /// Ask for the turn and the drain of this node.
    Request(NodeDrainRequest),
    /// Take the request back.
    Withdraw,
    /// Publish this version for the kube container.
    Version(String),
    /// Publish whether virtual machines are moved back when this node has started.
    OnBoot(bool),
    /// Put this into the override file; an empty one is removed.
    File(Override),
    /// Read the override file.
    ReadFile,
    /// Read what the kubelet reports.
    Look(u64),
    /// Watch over the gate, or do so no longer.
    Gate(bool),
    /// Write to the log.
    Say(LogMessage),
}

/// After a failed drain, the first and the longest pause before it is asked for again.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(30));
/// Between two readings of a file in a vault that is shut.
const FILE_AGAIN: Duration = Duration::from_secs(60);

/// What an earlier run has left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedK3sUpdate {
    pub version: String,
    pub on_boot: bool,
    pub record: Option<K3sUpdate>,
    pub request: Option<NodeDrainRequest>,
    pub pause: Option<OperationPause>,
    pub boot_id: String,
    pub booted_at: GoTime,
}

/// What is known of the version that the kubelet reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reported {
    /// It has not been asked for this update.
    Unasked,
    /// An answer is awaited.
    Asked,
    /// This; empty where that could not be read.
    Known(String),
}

/// The updates of k3s on this node.
#[derive(Debug, Clone, PartialEq)]
pub struct K3s {
    pub(super) boot_id: String,
    pub(super) booted_at: GoTime,
    pub(super) wanted: DesiredK3s,
    /// What the kube container is told.
    pub(super) version: String,
    /// What is published of virtual machines that are to be moved back.
    pub(super) on_boot: bool,
    /// The override file; `None` while that is not known.
    pub(super) file: Option<Override>,
    pub(super) read_file_at: Option<Mono>,
    pub(super) record: Option<K3sUpdate>,
    pub(super) hold: Hold,
    pub(super) silence: ZedkubeSilence,
    /// Both topics of the drain half were read.
    pub(super) drain_read: bool,
    pub(super) looks: u64,
    pub(super) reported: Reported,
    pub(super) look_at: Option<Mono>,
    pub(super) gate: bool,
    /// Why the gate is shut; empty when it is open.
    pub(super) shut: Option<String>,
    pub(super) now: Mono,
}

/// What an update changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct K3sChange {
    pub(super) version: Option<String>,
    pub(super) file: Option<Override>,
}

impl K3s {
    pub fn new(found: SavedK3sUpdate, now: Mono) -> (Self, Vec<Effect>) {
        let SavedK3sUpdate { version, on_boot, mut record, request, pause, boot_id, booted_at } = found;
        if let Some(record) = record.as_mut().filter(|it| it.is_under_way() && it.boot_id != boot_id) {
            // Whatever was restarting then has been restarted by the boot: its time begins again.
            record.stage = K3sStage::Applied;
            (record.boot_id, record.booted_at) = (boot_id.clone(), booted_at);
            record.applied_ms = millis(now);
        }
        let mut hold = Hold::new(Requester::K3sUpdate, ASK_AGAIN, request.as_ref());
        hold.pause = pause;
        let core = Self {
            boot_id,
            booted_at,
            wanted: DesiredK3s::default(),
            version,
            on_boot,
            file: None,
            read_file_at: None,
            record,
            hold,
            silence: ZedkubeSilence::new(now),
            drain_read: false,
            looks: 0,
            reported: Reported::Unasked,
            look_at: None,
            gate: false,
            shut: None,
            now,
        };
        let first = core.record.iter().map(|it| Effect::Journal(Box::new(it.clone())));
        let first = first.chain([Effect::ReadFile]).collect();
        (core, first)
    }

    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    pub(super) fn is_applied(&self) -> bool {
        self.record.as_ref().is_some_and(|it| matches!(it.stage, K3sStage::Applied | K3sStage::Failed))
    }

    /// What the kube container would have to be told; `None` when it knows all that is wanted.
    fn change(&self) -> Option<K3sChange> {
        let version = self.wanted.version.clone().filter(|it| *it != self.version);
        let file = self.wanted.file.clone().filter(|it| self.file.as_ref().is_some_and(|held| held != it));
        (version.is_some() || file.is_some()).then_some(K3sChange { version, file })
    }

    /// Moves the update on as far as facts allow.
    fn settle(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.file.is_none() && self.wanted.file.is_some() && self.read_file_at.is_some_and(|at| now >= at)
        {
            self.read_file_at = None;
            out.push(Effect::ReadFile);
        }
        // What is in force has to be known first.
        let reading = self.file.is_none() && self.read_file_at.is_none();
        match self.change() {
            Some(_) if reading => {}
            Some(change) => self.hold_back(now, change, out),
            None => {
                self.take_back(out);
                self.follow(now, out);
            }
        }
        let idle = self.record.as_ref().is_none_or(|it| it.stage == K3sStage::Done);
        if idle && self.wanted.version.is_some() {
            self.withdraw(out);
            self.hold.failure = None;
        }
    }

    /// Nothing is to be told to the kube container: what was held back is wanted no more. Until the config was heard, and
    /// the file where it is concerned, that is not known.
    fn take_back(&mut self, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone() else { return };
        if self.wanted.version.is_none() || record.changes_override && self.file.is_none() {
            return;
        }
        if record.stage == K3sStage::Waiting {
            say!(out, info, "k3s update withdrawn");
            out.push(Effect::Forget);
            (self.record, self.reported) = (None, Reported::Unasked);
        } else if record.to != self.version && record.stage != K3sStage::Done {
            // Another one was wanted after it was applied, and is not any more.
            say!(out, info, "k3s update withdrawn");
            let to = self.version.clone();
            self.reported = Reported::Unasked;
            self.keep(K3sUpdate { to, ..record }, out);
        }
    }

    pub(super) fn withdraw(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.hold.withdraw().then_some(Effect::Withdraw));
    }

    fn set_clock(&mut self, booted_at: GoTime, out: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.booted_at, booted_at);
        let Some(record) = self.record.clone().filter(|it| it.boot_id == self.boot_id && before != booted_at)
        else {
            return;
        };
        let since = record.since.moved(before, booted_at);
        let applied_at = record.applied_at.moved(before, booted_at);
        self.keep(K3sUpdate { since, applied_at, booted_at, ..record }, out);
    }
}

pub(super) fn millis(at: Mono) -> u64 {
    u64::try_from(at.since_start().as_millis()).unwrap_or(u64::MAX)
}

impl Core for K3s {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        self.now = now;
        let mut out = Vec::new();
        match event {
            Event::Wanted(wanted) => {
                // What makes no sense leaves what was wanted before.
                self.wanted.version = wanted.version.or(self.wanted.version.take());
                self.wanted.file = wanted.file.or(self.wanted.file.take());
                // No restart of k3s follows from it: it waits for nothing.
                if let Some(on_boot) = wanted.on_boot.filter(|it| *it != self.on_boot) {
                    self.on_boot = on_boot;
                    out.push(Effect::OnBoot(on_boot));
                }
            }
            Event::Drain(DrainTopicUpdate::Status(status)) => self.hold.heard.status(status),
            Event::Drain(DrainTopicUpdate::Progress(progress)) => self.hold.heard.progress(progress),
            Event::Drain(DrainTopicUpdate::Read) => {
                self.hold.heard.read();
                self.drain_read = true;
            }
            Event::Member(member, has_to_leave) => {
                (self.hold.cluster, self.hold.has_to_leave) = (member, has_to_leave);
            }
            Event::Forced(forced) => self.hold.forced = forced,
            Event::Pause(pause) => self.hold.pause = pause,
            Event::File(file) => {
                self.read_file_at = file.is_none().then_some(now + FILE_AGAIN);
                self.file = file.or(self.file.take());
            }
            Event::Reported(number, reported) if number == self.looks => {
                self.reported = Reported::Known(reported.unwrap_or_default());
            }
            Event::Gate(shut) if self.gate => self.shut = Some(shut.unwrap_or_default()),
            Event::Wall(booted_at) => self.set_clock(booted_at, &mut out),
            Event::Reported(..) | Event::Gate(_) | Event::Tick => {}
        }
        self.hold.settle();
        self.silence.settle(now, &self.hold.heard);
        self.settle(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let record = self.record.as_ref();
        let held = record.is_some_and(|it| it.stage == K3sStage::Waiting);
        let began = |it: &K3sUpdate| Mono::from_start(Duration::from_millis(it.applied_ms));
        let applied = record.filter(|_| self.is_applied());
        let settle = applied.map(|it| began(it) + K3S_SETTLE);
        let limit = applied.filter(|it| it.stage == K3sStage::Applied);
        [
            self.read_file_at.filter(|_| self.wanted.file.is_some()),
            self.hold.failure.as_ref().filter(|_| self.change().is_some()).map(|it| it.until),
            held.then_some(self.silence.until),
            settle,
            limit.map(|it| began(it) + K3S_UPDATE),
            self.look_at.filter(|_| applied.is_some_and(|it| !it.to.is_empty())),
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at > self.now)
        .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
