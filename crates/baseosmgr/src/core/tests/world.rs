//! The core's surroundings in tests: a disk, values of other agents, results under way.
//!
//! An observer: derives from other agents' values whether a switch is released, without the gate.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use agent::partitions::{Label, Partition, PartitionState, Partitions};
use requester::{DeviceClustering, ProceedReason, UNKNOWN_WAIT};
use step::{Core as _, Mono};
use topics::{
    Answer, BaseOsConfig, BaseOsStatus, ContentTreeStatus, DrainStatus, GoTime, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, Requester, SwState, ZbootStatus,
};

use crate::Limits;
use crate::core::{
    BaseOs, Counter, Counters, Effect, Event, PartitionChange, PartitionWrite, RequiredTopic, SavedUpdates,
};

pub(super) const OLD: &str = "14.4.0-k-amd64";
pub(super) const NEW: &str = "14.5.0-k-amd64";
pub(super) const NEWER: &str = "14.6.0-k-amd64";
pub(super) const X: &str = "2e1f0d3c-4b5a-4697-8897-a6b5c4d3e2f1";
pub(super) const Z: &str = "7d0e1f2a-3b4c-4d5e-8f6a-0b1c2d3e4f5a";

/// The agent is gone, the disk stays.
#[derive(Debug)]
pub(super) struct Crashed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Drain,
    Progress,
    Cluster,
    HasToLeave,
    Forced,
    Pause,
    Test(Label),
    LastBoot,
    Fallback,
}

pub(super) struct World {
    pub(super) core: BaseOs,
    pub(super) now: Mono,
    pub(super) partitions: Partitions,
    pub(super) request: Option<NodeDrainRequest>,
    /// All requests that were made.
    pub(super) asked: Vec<NodeDrainRequest>,
    pub(super) statuses: BTreeMap<String, BaseOsStatus>,
    pub(super) zboot: BTreeMap<Label, ZbootStatus>,
    pub(super) counters: Counters,
    pub(super) manager: Option<u32>,
    /// Performed effects, oldest first.
    pub(super) done: Vec<Effect>,
    /// Steps of work left before the crash.
    pub(super) fuse: Option<usize>,
    pub(super) slow_writes: bool,
    /// Results of orders and requests are delayed.
    pub(super) slow_results: bool,
    pub(super) going_down: bool,
    pub(super) write: Option<PartitionWrite>,
    /// Since when zedkube has published nothing useful, in this run of the agent.
    pub(super) unsaid_since: Option<Mono>,
    /// zedkube has published something else since the open request of this run.
    pub(super) moved_on: bool,
    refuse: Option<String>,
    pub(super) refuse_begin: Option<String>,
    pub(super) levels: BTreeMap<Level, Event>,
    pub(super) configs: BTreeMap<String, BaseOsConfig>,
    trees: BTreeMap<String, ContentTreeStatus>,
    pub(super) answers: Vec<Answer>,
    results: VecDeque<Event>,
    wall: u32,
    pub(super) limits: Limits,
}

impl World {
    /// A clustered node that runs [`OLD`] from IMGA, with zedkube idle and nothing wanted.
    pub(super) fn new() -> Self {
        let mut world = Self::bare();
        world.say(Event::Cluster(DeviceClustering::Clustered));
        world.zedkube(DrainStatus::NotRequested, Requester::None);
        world
    }

    /// The same without a cluster decision and zedkube.
    pub(super) fn bare() -> Self {
        let partition = |label, state, version: &str, device: &str| Partition {
            label,
            device: device.to_owned(),
            state,
            short_version: version.to_owned(),
            long_version: String::new(),
            size_bytes: 512 << 20,
            content: String::new(),
        };
        let partitions = Partitions {
            current: Label::A,
            a: partition(Label::A, PartitionState::Active, OLD, "/dev/sda2"),
            b: partition(Label::B, PartitionState::Unused, "", "/dev/sda3"),
        };
        let (counters, limits) = (Counters::default(), Limits::default());
        let found = SavedUpdates { request: None, statuses: vec![], counters };
        let mut world = Self {
            core: BaseOs::new(limits.clone(), partitions.clone(), found),
            now: Mono::START,
            partitions,
            request: None,
            asked: vec![],
            statuses: BTreeMap::new(),
            zboot: BTreeMap::new(),
            counters,
            manager: None,
            done: vec![],
            fuse: None,
            slow_writes: false,
            slow_results: false,
            going_down: false,
            write: None,
            unsaid_since: Some(Mono::START),
            moved_on: false,
            refuse: None,
            refuse_begin: None,
            levels: BTreeMap::new(),
            configs: BTreeMap::new(),
            trees: BTreeMap::new(),
            answers: vec![],
            results: VecDeque::new(),
            wall: 0,
            limits,
        };
        world.hear_all().unwrap();
        world
    }

    fn hear_all(&mut self) -> Result<(), Crashed> {
        self.try_event(Event::Tick)?;
        let levels: Vec<Event> = self.levels.values().cloned().collect();
        let configs =
            self.configs.iter().map(|(key, it)| Event::Config { key: key.clone(), value: Some(it.clone()) });
        let trees = self
            .trees
            .iter()
            .map(|(key, it)| Event::Tree { key: key.clone(), value: Some(Box::new(it.clone())) });
        let heard = RequiredTopic::ALL.into_iter().map(Event::Heard);
        let all: Vec<Event> = levels.into_iter().chain(configs).chain(trees).chain(heard).collect();
        all.into_iter().try_for_each(|event| self.try_event(event))
    }

    /// Publishes a level, which a restarted agent gets again, and settles.
    pub(super) fn say(&mut self, event: Event) {
        self.try_say(event).unwrap();
    }

    pub(super) fn try_say(&mut self, event: Event) -> Result<(), Crashed> {
        match &event {
            Event::Config { key, value } => keep(&mut self.configs, key, value.clone()),
            Event::Tree { key, value } => keep(&mut self.trees, key, value.as_deref().cloned()),
            Event::Drain(_) => self.keep_level(Level::Drain, &event),
            Event::Progress(_) => self.keep_level(Level::Progress, &event),
            Event::Cluster(_) => self.keep_level(Level::Cluster, &event),
            Event::HasToLeave(_) => self.keep_level(Level::HasToLeave, &event),
            Event::Forced(_) => self.keep_level(Level::Forced, &event),
            Event::Pause(_) => self.keep_level(Level::Pause, &event),
            Event::TestComplete { label, .. } => self.keep_level(Level::Test(*label), &event),
            Event::LastBoot(_) => self.keep_level(Level::LastBoot, &event),
            Event::FallbackCounter(_) => self.keep_level(Level::Fallback, &event),
            Event::Heard(_)
            | Event::Asked { .. }
            | Event::Stored { .. }
            | Event::Written { .. }
            | Event::Writing { .. }
            | Event::Refused { .. }
            | Event::GoingDown(_)
            | Event::Tick => {}
        }
        self.try_event(event)
    }

    fn keep_level(&mut self, level: Level, event: &Event) {
        if level == Level::Drain {
            self.moved_on |= self.levels.get(&level) != Some(event);
        }
        self.levels.insert(level, event.clone());
        self.unsaid_since = self.unsaid().then(|| self.unsaid_since.unwrap_or(self.now));
    }

    fn try_event(&mut self, event: Event) -> Result<(), Crashed> {
        self.step(event)?;
        while let Some(result) = if self.slow_results { None } else { self.results.pop_front() } {
            self.burn()?;
            self.step(result)?;
        }
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<(), Crashed> {
        let effects = self.core.step(self.now, event.clone());
        for effect in effects {
            self.burn()?;
            self.perform(effect);
        }
        assert!(self.core.next_wake().is_none_or(|wake| wake > self.now), "it would turn without a pause");
        // A repeated fact changes nothing.
        assert_eq!(self.core.step(self.now, event), [], "the same fact again");
        Ok(())
    }

    fn burn(&mut self) -> Result<(), Crashed> {
        match &mut self.fuse {
            Some(0) => Err(Crashed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect.clone() {
            Effect::Say(_) | Effect::Switch { .. } | Effect::ZbootReady | Effect::Writing(_) => {}
            Effect::Ask { nth, context } => {
                self.wall += 1;
                let (minutes, secs) = (self.wall / 60 % 60, self.wall % 60);
                let requested_at: GoTime = format!("2026-03-14T09:{minutes:02}:{secs:02}Z").parse().unwrap();
                let request = NodeDrainRequest { requested_at, requested_by: Requester::Update, context };
                self.request = Some(request.clone());
                self.asked.push(request.clone());
                let complete =
                    NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::Update };
                self.moved_on = self.status() != Some(complete);
                self.results.push_back(Event::Asked { nth, request });
            }
            Effect::AskNodeagent => self.results.push_back(Event::GoingDown(self.going_down)),
            Effect::Withdraw => assert!(self.request.take().is_some(), "withdrawn without a request"),
            Effect::Store(order) => {
                let outcome = self.refuse.take().map_or(Ok(()), Err);
                if outcome.is_ok() {
                    self.store(order);
                }
                self.results.push_back(Event::Stored { order, outcome });
            }
            Effect::Write { write, .. } if self.refuse_begin.is_some() => {
                let reason = self.refuse_begin.take().unwrap_or_default();
                let partitions = Box::new(self.partitions.clone());
                self.results.push_back(Event::Refused { of: write, reason, partitions });
            }
            Effect::Write { write, .. } => {
                let partition = self.partition(write.label);
                assert_ne!(partition.state, PartitionState::Active, "overwrites an active partition");
                partition.state = PartitionState::Unused;
                partition.short_version.clear();
                partition.content.clear();
                self.write = Some(write);
                if !self.slow_writes {
                    self.end_write();
                }
            }
            Effect::StopWriting => self.write = None,
            Effect::Save(Counter::CurrentRetry, value) => self.counters.current_retry = value,
            Effect::Save(Counter::ConfigRetry, value) => self.counters.config_retry = value,
            Effect::Save(Counter::Fallback, value) => self.counters.fallback = Some(value),
            Effect::Journal(journal) => self.counters.fallback_from = journal,
            Effect::RemoveForce => {
                self.levels.remove(&Level::Forced);
                self.results.push_back(Event::Forced(None));
            }
            Effect::Zboot(status) => {
                self.zboot.insert(status.partition_label.parse().unwrap(), status);
            }
            Effect::Status { key, status } => {
                self.statuses.insert(key, *status);
            }
            Effect::Unpublish { key } => {
                assert!(self.statuses.remove(&key).is_some(), "{key} is not published");
            }
            Effect::Manager(counter) => self.manager = Some(counter),
        }
        self.done.push(effect);
    }

    fn end_write(&mut self) {
        let Some(of) = self.write.take() else { return };
        let outcome = self.refuse.take().map_or_else(|| Ok(of.version.clone()), Err);
        if outcome.is_ok() {
            let partition = self.partition(of.label);
            partition.short_version.clone_from(&of.version);
            partition.content.clone_from(&of.content);
        }
        self.results.push_back(Event::Written { of, outcome });
    }

    pub(super) fn written(&mut self) {
        self.end_write();
        self.try_event(Event::Tick).unwrap();
    }

    pub(super) fn refuse_next(&mut self, reason: &str) {
        self.refuse = Some(reason.to_owned());
    }

    fn store(&mut self, order: PartitionChange) {
        match order {
            PartitionChange::Set { label, state } => {
                assert_ne!(label, self.partitions.current, "the running partition is not for orders");
                if state == PartitionState::Updating {
                    let release = self.release();
                    assert!(release.is_some(), "switched without a release");
                    assert_ne!(self.partition(label).short_version, "", "no whole image to boot");
                }
                self.partition(label).state = state;
            }
            PartitionChange::MarkActive => {
                let running = self.partitions.current;
                self.partition(running).state = PartitionState::Active;
                self.partition(running.other()).state = PartitionState::Unused;
            }
        }
    }

    pub(super) fn partition(&mut self, label: Label) -> &mut Partition {
        match label {
            Label::A => &mut self.partitions.a,
            Label::B => &mut self.partitions.b,
        }
    }

    pub(super) fn restart(&mut self) {
        self.fuse = None;
        self.moved_on = false;
        self.unsaid_since = self.unsaid().then_some(self.now);
        self.results.clear();
        self.write = None;
        let found = SavedUpdates {
            request: self.request.clone(),
            statuses: self.statuses.clone().into_iter().collect(),
            counters: self.counters,
        };
        self.core = BaseOs::new(self.limits.clone(), self.partitions.clone(), found);
        self.hear_all().unwrap();
    }

    /// A boot: volatile state is gone, the boot loader has chosen.
    pub(super) fn boot(&mut self) {
        let before = self.partitions.current;
        if self.partitions.spare().state == PartitionState::Updating {
            self.partition(before.other()).state = PartitionState::Inprogress;
            self.partitions.current = before.other();
        } else if self.partitions.running().state != PartitionState::Active
            && self.partitions.spare().state == PartitionState::Active
        {
            self.partitions.current = before.other();
        }
        self.request = None;
        self.statuses.clear();
        self.zboot.clear();
        self.answers.clear();
        self.now = Mono::START;
        self.levels.retain(|level, _| {
            matches!(level, Level::Cluster | Level::HasToLeave | Level::Fallback | Level::LastBoot)
        });
        self.restart();
        self.zedkube(DrainStatus::NotRequested, Requester::None);
    }

    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.core.next_wake().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.try_event(Event::Tick).unwrap();
        }
        self.now = end;
        self.try_event(Event::Tick).unwrap();
    }

    pub(super) fn loaded(&mut self, key: &str) {
        self.tree(key, |_| {});
    }

    /// volumemgr publishes the content of `key`, changed by `change` from a loaded one.
    pub(super) fn tree(&mut self, key: &str, change: impl FnOnce(&mut ContentTreeStatus)) {
        let mut tree = ContentTreeStatus { state: SwState::Loaded, ..Default::default() };
        change(&mut tree);
        self.say(Event::Tree { key: key.to_owned(), value: Some(Box::new(tree)) });
    }

    pub(super) fn want(&mut self, key: &str, version: &str) {
        self.config(key, version, |_| {});
    }

    /// The controller's config, changed by `change` from an active one.
    pub(super) fn config(&mut self, key: &str, version: &str, change: impl FnOnce(&mut BaseOsConfig)) {
        let mut config = BaseOsConfig {
            base_os_version: version.to_owned(),
            content_tree_uuid: key.to_owned(),
            activate: true,
            ..BaseOsConfig::default()
        };
        change(&mut config);
        self.say(Event::Config { key: key.to_owned(), value: Some(config) });
    }

    pub(super) fn unwant(&mut self, key: &str) {
        self.say(Event::Config { key: key.to_owned(), value: None });
    }

    /// zedkube publishes a status without answers.
    pub(super) fn zedkube(&mut self, status: DrainStatus, by: Requester) {
        self.say(Event::Drain(Some(NodeDrainStatus { status, requested_by: by })));
    }

    /// zedkube answers the open request, in the order of its writes.
    pub(super) fn answer(&mut self, status: DrainStatus) {
        let request = self.request.clone().expect("a request stands");
        self.answer_to(&request, status);
    }

    pub(super) fn answer_to(&mut self, request: &NodeDrainRequest, status: DrainStatus) {
        let answer = Answer {
            requested_by: request.requested_by,
            requested_at: request.requested_at,
            context: request.context.clone(),
            status,
            ..Answer::default()
        };
        self.answers.retain(|old| old.requested_by != request.requested_by);
        self.answers.push(answer);
        self.report();
        self.zedkube(status, request.requested_by);
    }

    pub(super) fn report(&mut self) {
        let progress = NodeDrainProgress { answers: self.answers.clone(), ..NodeDrainProgress::default() };
        self.say(Event::Progress(Some(Box::new(progress))));
    }

    pub(super) fn spare_state(&self) -> PartitionState {
        self.partitions.spare().state
    }

    /// COMPLETE is answered, and the image is to be booted.
    pub(super) fn is_let_go(&mut self) {
        self.answer(DrainStatus::Complete);
        assert_eq!(self.spare_state(), PartitionState::Updating);
    }

    pub(super) fn asks(&self) -> usize {
        self.done.iter().filter(|effect| matches!(effect, Effect::Ask { .. })).count()
    }

    pub(super) fn writes(&self) -> usize {
        self.done.iter().filter(|effect| matches!(effect, Effect::Write { .. })).count()
    }

    /// Ordered switches with contexts and reasons.
    pub(super) fn switches(&self) -> Vec<(String, ProceedReason)> {
        let switch = |effect: &Effect| {
            let Effect::Switch { context, why } = effect else { return None };
            Some((context.clone(), why.clone()))
        };
        self.done.iter().filter_map(switch).collect()
    }
}

fn keep<T>(map: &mut BTreeMap<String, T>, key: &str, value: Option<T>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

impl World {
    pub(super) fn status(&self) -> Option<NodeDrainStatus> {
        if let Some(Event::Drain(status)) = self.levels.get(&Level::Drain) { *status } else { None }
    }

    pub(super) fn unsaid(&self) -> bool {
        self.status().is_none_or(|it| matches!(it.status, DrainStatus::Unknown | DrainStatus::NotSupported))
    }

    /// What may release a switch to the spare partition now.
    pub(super) fn release(&self) -> Option<&'static str> {
        if let Some(Event::Forced(Some(forced))) = self.levels.get(&Level::Forced) {
            let complete = forced.status == DrainStatus::Complete;
            if forced.status == DrainStatus::NotSupported
                || (complete && forced.requested_by == Requester::Update)
            {
                return Some("forced");
            }
            // COMPLETE for the other requester does not count; any other status counts for all.
            if !complete {
                return None;
            }
        }
        let spare = self.partitions.spare();
        let named = self.request.as_ref().filter(|request| {
            let config = self.configs.get(&request.context);
            let fallback = request.context.strip_prefix("fallback ");
            fallback == Some(&spare.short_version)
                || config
                    .is_some_and(|config| config.activate && config.base_os_version == spare.short_version)
        });
        if let Some(request) = named {
            if let Some(Event::Progress(Some(progress))) = self.levels.get(&Level::Progress)
                && progress.answer(request.id()).is_some_and(|answer| answer.status == DrainStatus::Complete)
            {
                return Some("answered");
            }
            let complete = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::Update };
            if !self.levels.contains_key(&Level::Progress) && self.status() == Some(complete) && self.moved_on
            {
                return Some("complete of a reference zedkube");
            }
        }
        let single = self.levels.get(&Level::Cluster) == Some(&Event::Cluster(DeviceClustering::Single));
        let out = self.levels.get(&Level::HasToLeave) != Some(&Event::HasToLeave(true));
        if single && out && self.unsaid() {
            return Some("in no cluster");
        }
        let silent = self.unsaid_since.is_some_and(|since| self.now.since(since) >= UNKNOWN_WAIT);
        silent.then_some("silent for the whole wait")
    }
}
