//! The life of an update of k3s: held back, applied, followed, done or failed.
//!
//! Every step follows from levels: what the config wants, what is in force for the kube container, what the record of
//! an earlier run says. So each crash and each power cut continues where it was. Pure: no clock, no I/O, no task.
//!
//! One update of k3s on its way: asked for, handed over, followed until the node is healthy with it.
//!
//! What the device config says of k3s.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use requester::{
    DeviceClustering, DrainJudgement, DrainTopicUpdate, Hold, Orderer, OwnRequest, Paused, ProceedReason,
    UNKNOWN_WAIT, ZedkubeSilence,
};
use step::{Core, Fault, LogMessage, Mono, planted, say};
use topics::{
    ConfigItemType, ConfigItemValueMap, FORCE_FILE, GoTime, K3S_RESTART, K3sStage, K3sUpdate,
    NodeDrainRequest, NodeDrainStatus, OperationPause, Requester,
};

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Reported {
    #[default]
    /// It has not been asked for this update.
    Unasked,
    /// An answer is awaited.
    Asked,
    /// This; empty where that could not be read.
    Known(String),
}

/// The updates of k3s on this node.
#[derive(Debug, Clone, PartialEq, Default)]
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
            version,
            on_boot,
            record,
            hold,
            silence: ZedkubeSilence::new(now),
            now,
            ..Self::default()
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

/// Between two looks at what the kubelet reports, while that is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The same after a failure.
const LOOK_SELDOM: Duration = Duration::from_secs(60);
/// Where a person looks at the drain.
const SEE_DRAIN: &str = "zedbox status";

impl K3s {
    /// Something else is wanted than the kube container is told.
    pub(super) fn hold_back(&mut self, now: Mono, change: K3sChange, out: &mut Vec<Effect>) {
        let to = change.version.clone().unwrap_or_else(|| self.version.clone());
        let file = change.file.is_some();
        let known = |it: &K3sUpdate| it.stage != K3sStage::Done && it.to == to && it.changes_override == file;
        if !self.record.as_ref().is_some_and(known) {
            let applied = self.is_applied();
            let record = K3sUpdate {
                // One that was applied and is replaced continues in its place: the node is not healthy in between.
                stage: if applied { K3sStage::Applied } else { K3sStage::Waiting },
                from: self.version.clone(),
                to: to.clone(),
                changes_override: file,
                since: self.wall(now),
                boot_id: self.boot_id.clone(),
                booted_at: self.booted_at,
                ..self.record.clone().filter(|_| applied).unwrap_or_default()
            };
            self.reported = Reported::Unasked;
            let (from, to, over) =
                (named(&self.version), named(&to), if file { ", with its override file" } else { "" });
            say!(
                out,
                info,
                "k3s update requested: from {from} to {to}{over}; it waits for the turn of this node"
            );
            self.keep(record, out);
        }
        let drains = change.version.is_some();
        let context = if drains { named(&to) } else { K3S_RESTART.to_owned() };
        // The kubelet may report what is wanted already: then telling the kube container is no outage.
        if !file && !to.is_empty() {
            match &self.reported {
                Reported::Unasked => return self.look(out),
                Reported::Asked => return,
                Reported::Known(version) if *version == to => {
                    let skip = "the kubelet reports that version already: nothing restarts".to_owned();
                    return self.apply(now, change, skip, out);
                }
                Reported::Known(_) => {}
            }
        }
        // What was answered for a turn alone is no answer to a drain.
        let counts = |it: &OwnRequest| !drains || it.context != K3S_RESTART;
        let paused = self.hold.paused(self.hold.own.as_ref(), Orderer::Controller);
        if let Some(Paused { waiting_for, next_step, withdraws }) = paused {
            // One that replaces what was applied keeps its turn: the node is not healthy in between.
            if withdraws && !self.is_applied() {
                self.withdraw(out);
            }
            return self.waits(&waiting_for, next_step, out);
        }
        let own = self.hold.own.as_ref().filter(|it| counts(it));
        let words = own.map(|own| self.hold.heard.words(own)).unwrap_or_default();
        let undecided = self.hold.cluster == DeviceClustering::Undecided;
        match self.hold.judge(counts) {
            DrainJudgement::Open(why) => self.apply(now, change, why.skip(), out),
            DrainJudgement::Silent if undecided || now < self.silence.until => {
                self.waits("it is not known whether this node is in a cluster", SEE_DRAIN, out);
            }
            DrainJudgement::Silent => {
                let why = ProceedReason::Silent { waited_secs: UNKNOWN_WAIT.as_secs() };
                self.apply(now, change, why.skip(), out);
            }
            DrainJudgement::Failed(reason) if planted(Fault::K3sUndrained) => {
                self.apply(now, change, reason, out);
            }
            DrainJudgement::Failed(reason) => self.failed(now, &reason, context, out),
            DrainJudgement::Ask if self.drain_read && self.hold.rests(now, &context).is_none() => {
                self.ask(now, context, out);
            }
            DrainJudgement::Ask => {}
            DrainJudgement::Held(status) => {
                let waits = format!("the forced status {status} to end");
                self.waits(&waits, &format!("remove {FORCE_FILE}"), out);
            }
            DrainJudgement::Wait | DrainJudgement::Unanswered(_) | DrainJudgement::Stranger(_) => {
                self.reword(context, out);
                self.waits(&words, SEE_DRAIN, out);
            }
        }
    }

    /// The drain failed: it is requested again after a pause that grows. The failed request stays until then: it holds no
    /// turn, and zedkube drains for it again by itself once the cause has ended.
    fn failed(&mut self, now: Mono, reason: &str, context: String, out: &mut Vec<Effect>) {
        let Some(failure) = self.hold.fail(now, reason) else {
            if self.hold.rests(now, &context).is_none() {
                self.ask(now, context, out);
            }
            return;
        };
        let (secs, failures) = (failure.wait_secs, failure.failures);
        let waits = format!("the next try, after {failures} failed: {reason}");
        say!(out, warn, "no turn for the update of k3s, asked for again in {secs} s: {reason}");
        self.waits(&waits, SEE_DRAIN, out);
    }

    fn ask(&mut self, now: Mono, context: String, out: &mut Vec<Effect>) {
        let request = self.hold.request(self.wall(now), context);
        if let Some(record) = &self.record {
            let attempts = record.attempts.saturating_add(1);
            let waiting_for = "zedkube to accept the request".to_owned();
            self.keep(
                K3sUpdate { attempts, waiting_for, next_step: SEE_DRAIN.into(), ..record.clone() },
                out,
            );
        }
        out.push(Effect::Request(request));
    }

    /// The same request, for another version now.
    fn reword(&mut self, context: String, out: &mut Vec<Effect>) {
        let Some(own) =
            self.hold.own.as_mut().filter(|it| it.context != context && it.context != K3S_RESTART)
        else {
            return;
        };
        let Some(id) = own.id.filter(|_| context != K3S_RESTART) else { return };
        own.context.clone_from(&context);
        out.push(Effect::Request(NodeDrainRequest { requested_at: id.at, requested_by: id.by, context }));
    }

    /// Tells the kube container.
    fn apply(&mut self, now: Mono, change: K3sChange, skip: String, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone() else { return };
        let to = named(&record.to);
        if skip.is_empty() {
            say!(out, info, "k3s update to {to} handed to the kube container");
        } else {
            say!(out, warn, "k3s update to {to} handed to the kube container without a drain: {skip}");
        }
        let record = K3sUpdate {
            stage: K3sStage::Applied,
            applied_at: self.wall(now),
            applied_ms: millis(now),
            boot_id: self.boot_id.clone(),
            booted_at: self.booted_at,
            skip,
            released: false,
            waiting_for: "the kube container to carry it out".to_owned(),
            next_step: String::new(),
            ..record
        };
        self.keep(record, out);
        if let Some(file) = change.file {
            out.push(Effect::File(file.clone()));
            self.file = Some(file);
        }
        if let Some(version) = change.version {
            out.push(Effect::Version(version.clone()));
            self.version = version;
        }
        self.watch_gate(false, out);
        (self.reported, self.look_at) = (Reported::Unasked, None);
    }

    /// It was handed over: until the kubelet reports it and the gate is open.
    pub(super) fn follow(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone().filter(|_| self.is_applied()) else { return };
        let began = Mono::from_start(Duration::from_millis(record.applied_ms));
        let settled = now >= began + K3S_SETTLE;
        let names = !record.to.is_empty();
        if names && self.look_at.is_none_or(|at| now >= at) {
            self.look(out);
            let failed = record.stage == K3sStage::Failed;
            self.look_at = Some(now + if failed { LOOK_SELDOM } else { LOOK_AGAIN });
        }
        let here = matches!(&self.reported, Reported::Known(version) if *version == record.to);
        // What shows in no version has had its time: the kube container looks every 15 s.
        let carried_out = (here || !names) && (settled || names && !record.changes_override);
        self.watch_gate(carried_out, out);
        if carried_out && self.shut.as_deref() == Some("") {
            return self.done(&record, out);
        }
        let waits = match (&self.reported, &self.shut) {
            _ if carried_out => {
                let shut = self.shut.clone().filter(|it| !it.is_empty());
                format!(
                    "the node to be healthy: {}",
                    shut.unwrap_or_else(|| "the first look is under way".into())
                )
            }
            (Reported::Known(version), _) if names && !version.is_empty() && !here => {
                format!("the kubelet of this node to report {}, it reports {version}", record.to)
            }
            _ => format!("the kube container to carry {} out", named(&record.to)),
        };
        if record.stage == K3sStage::Failed {
            // Whoever is on the way to a turn by a rule that was looked at has none.
            let rule = self.hold.heard.progress.as_ref().map_or("", |it| it.turn.rule.as_str());
            let lost = self.hold.own.is_some()
                && !matches!(rule, "" | "reading" | "api" | "not-listed" | "record" | "preflight");
            if lost {
                say!(out, warn, "the turn of the failed update of k3s was taken away");
                self.withdraw(out);
                let next_step = "set k3s.version in the device config again".to_owned();
                self.keep(K3sUpdate { released: true, next_step, ..record }, out);
            }
            return;
        }
        if now >= began + K3S_UPDATE {
            say!(
                out,
                error,
                "k3s update timed out: this node keeps its turn, see `zedbox lock status`; it waits for {waits}"
            );
            let next_step = format!(
                "look at the log of the kube container; then set k3s.version back to `{}` in the device config, or, \
                 once this node is healthy, give the turn back with what `zedbox lock status` shows",
                record.from
            );
            self.keep(K3sUpdate { stage: K3sStage::Failed, waiting_for: waits, next_step, ..record }, out);
            return;
        }
        self.waits(&waits, "nothing: it is looked at again and again", out);
    }

    fn done(&mut self, record: &K3sUpdate, out: &mut Vec<Effect>) {
        say!(out, info, "the kubelet reports {}, and the node is healthy", named(&record.to));
        let (waiting_for, next_step) = (String::new(), String::new());
        self.keep(K3sUpdate { stage: K3sStage::Done, waiting_for, next_step, ..record.clone() }, out);
        self.watch_gate(false, out);
    }

    fn watch_gate(&mut self, on: bool, out: &mut Vec<Effect>) {
        if self.gate != on {
            (self.gate, self.shut) = (on, None);
            out.push(Effect::Gate(on));
        }
    }

    fn look(&mut self, out: &mut Vec<Effect>) {
        self.looks += 1;
        if !matches!(self.reported, Reported::Known(_)) {
            self.reported = Reported::Asked;
        }
        out.push(Effect::Look(self.looks));
    }

    fn waits(&mut self, waiting_for: &str, next_step: &str, out: &mut Vec<Effect>) {
        let Some(record) = self.record.clone() else { return };
        if record.waiting_for != waiting_for || record.next_step != next_step {
            let (waiting_for, next_step) = (waiting_for.to_owned(), next_step.to_owned());
            self.keep(K3sUpdate { waiting_for, next_step, ..record }, out);
        }
    }

    pub(super) fn keep(&mut self, record: K3sUpdate, out: &mut Vec<Effect>) {
        self.record = Some(record.clone());
        out.push(Effect::Journal(Box::new(record)));
    }
}

/// The version for a person.
fn named(version: &str) -> String {
    if version.is_empty() { "k3s of the image".to_owned() } else { format!("k3s {version}") }
}

/// The version of k3s that is wanted; empty for the one of the image.
const VERSION: &str = "k3s.version";
/// What is wanted of the override file, in base64; empty for none.
const OVERRIDE: &str = "k3s.config.override";
/// When virtual machines are moved back to their designated node: a list with commas.
const DESCHEDULE: &str = "kubernetes.vmi.deschedule.events";
/// The word for when that node has started.
const BOOT: &str = "boot";
/// No version is longer.
const VERSION_BYTES: usize = 128;
/// No override file is longer.
pub(super) const OVERRIDE_BYTES: usize = 256 * 1024;

/// The override file, which may hold passwords and tokens: its `Debug` shows its length alone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Override(pub Vec<u8>);

impl fmt::Debug for Override {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Override({} bytes)", self.0.len())
    }
}

/// What is wanted; an invalid member is `None`, and what is in force stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredK3s {
    pub version: Option<String>,
    /// The override file; empty for none.
    pub file: Option<Override>,
    /// Whether virtual machines are moved back when this node has started.
    pub on_boot: Option<bool>,
}

/// Reads what is wanted, and a line for each invalid value.
pub(super) fn wanted(map: &ConfigItemValueMap) -> (DesiredK3s, Vec<String>) {
    let mut refused = Vec::new();
    let mut text = |name: &str, read: fn(&str) -> Result<Vec<u8>, String>| {
        let item = map.global_settings.as_ref()?.get(name)?;
        let value = if item.item_type == ConfigItemType::String {
            read(&item.str_value)
        } else {
            Err(format!("a value of type {:?}", item.item_type))
        };
        value.map_err(|found| refused.push(format!("{name}: found {found}; what is in force stays"))).ok()
    };
    let version = text(VERSION, version).and_then(|it| String::from_utf8(it).ok());
    let file = text(OVERRIDE, file).map(Override);
    let events = text(DESCHEDULE, |it| Ok(it.as_bytes().to_vec()));
    let on_boot =
        events.map(|it| it.split(|byte| *byte == b',').any(|word| word.trim_ascii() == BOOT.as_bytes()));
    (DesiredK3s { version, file, on_boot }, refused)
}

/// It ends in a path of a download, so it is no free text.
fn version(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    let known = |it: char| it.is_ascii_alphanumeric() || "+-._".contains(it);
    if text.len() <= VERSION_BYTES && text.chars().all(known) {
        Ok(text.as_bytes().to_vec())
    } else {
        Err(format!("no version such as v1.32.1+k3s1 but {} bytes of other text", text.len()))
    }
}

fn file(text: &str) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(text.trim()).map_err(|cause| format!("no base64: {cause}"))?;
    if bytes.len() > OVERRIDE_BYTES {
        return Err(format!("{} bytes, more than {OVERRIDE_BYTES}", bytes.len()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::ConfigItemValue;

    fn map(version: &str, file: &str) -> ConfigItemValueMap {
        ConfigItemValueMap::of([
            ConfigItemValue::text(VERSION, version),
            ConfigItemValue::text(OVERRIDE, file),
        ])
    }

    #[test]
    fn what_makes_no_sense_is_told_and_changes_nothing_and_what_is_not_there_wants_nothing() {
        let (read, refused) = wanted(&map(" v1.32.1+k3s1\n", "ZGVidWc6IHRydWUK"));
        assert_eq!(
            (read.version.as_deref(), read.file),
            (Some("v1.32.1+k3s1"), Some(Override(b"debug: true\n".into())))
        );
        assert_eq!(refused, [""; 0]);
        let (read, refused) = wanted(&map("v1/../x y", "not base64"));
        assert_eq!(read, DesiredK3s::default());
        assert!(refused[0].starts_with("k3s.version: found no version"), "{refused:?}");
        assert!(refused[1].starts_with("k3s.config.override: found no base64"), "{refused:?}");
        assert_eq!(wanted(&ConfigItemValueMap::default()), (DesiredK3s::default(), Vec::new()));
        let none =
            DesiredK3s { version: Some(String::new()), file: Some(Override::default()), on_boot: None };
        assert_eq!(wanted(&map("", "")).0, none);
    }

    #[test]
    fn machines_are_moved_back_at_boot_when_the_list_says_boot() {
        for (list, on_boot) in [
            ("", false),
            ("boot", true),
            (" other , boot ", true),
            ("reboot", false),
            ("Boot", false),
            (",", false),
        ] {
            let mut map = map("", "");
            let item = ConfigItemValue::text(DESCHEDULE, list);
            map.global_settings.as_mut().unwrap().insert(DESCHEDULE.to_owned(), item);
            assert_eq!(wanted(&map).0.on_boot, Some(on_boot), "{list}");
        }
    }

    #[test]
    fn no_level_of_the_log_shows_what_is_in_the_override_file() {
        use super::{Effect, Event};
        let wanted = wanted(&map("v1", "dG9rZW46IHNlY3JldA==")).0;
        let file = wanted.file.clone().unwrap();
        assert_eq!(file.0, b"token: secret");
        let shown = format!("{:?} {:?}", Event::File(Some(file.clone())), Effect::File(file.clone()));
        assert_eq!(shown, "File(Some(Override(13 bytes))) File(Override(13 bytes))");
        assert!(format!("{:?}", Event::Wanted(wanted)).contains("Override(13 bytes)"));
    }
}
