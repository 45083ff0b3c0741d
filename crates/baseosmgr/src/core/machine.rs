//! The core itself: hears facts, then settles what follows from all of them together.
//!
//! Every event ends in the same [`BaseOs::settle`], so no way to a switch can miss the drain gate (D-B1). What
//! waits is found from the facts each time, so nothing can be replayed that is no longer wanted (D-B2).
//! Journal: the partitions themselves and our own request file; a restart continues from these.
//! Pure: no clock, no I/O, no task.

use agent::partitions::{Label, PartitionState, Partitions};
use requester::{Hold, completes};
use step::{Core, FailurePause, Fault, Inserted as _, LiteMap, LogMessage, Mono, planted};
use topics::{BaseOsStatus, ContentTreeStatus, ImageWrite, Requester, ZbootStatus};

use super::event::UpdateFacts;
use super::event::{Effect, Event, PartitionChange, PartitionWrite, SavedUpdates};
use super::stage::same_bytes;
use crate::Limits;

#[derive(Debug, Clone, PartialEq)]
pub struct BaseOs {
    pub(super) limits: Limits,
    pub(super) facts: UpdateFacts,
    pub(super) refuses: Option<NoPartitions>,
    pub(super) withdraw: WithdrawState,
    /// An order that was given; the next one waits for its outcome.
    pub(super) ordered: Option<PartitionChange>,
    /// How many requests were made.
    pub(super) asks: u32,
    /// The write under way.
    pub(super) writing: Option<PartitionWrite>,
    pub(super) percent: u8,
    /// How many writes were started.
    pub(super) writes: u32,
    pub(super) order_trouble: Option<FailurePause<PartitionChange>>,
    /// Trouble with a content, by its name and the version wanted.
    pub(super) write_trouble: Option<FailurePause<(String, String)>>,
    /// What the gate is waiting out, for which context, and since when.
    pub(super) waiting: Option<(WaitReason, String, Mono)>,
    /// Since when several images are wanted at once.
    pub(super) rivals_since: Option<Mono>,
    /// The force file was used and its removal asked for.
    pub(super) force_used: bool,
    pub(super) wake: Option<Mono>,
    pub(super) said: PublishedTopics,
}

/// What the gate is waiting out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// A word of zedkube.
    Silent,
    /// A word to our request.
    Unanswered,
}

/// Whether our request may be withdrawn. nodeagent may have seen a switch that was withdrawn: then it restarts the
/// machine, and the node has to stay drained until that. It says so before it does anything; so it is asked once all
/// that it could still act on is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WithdrawState {
    #[default]
    Unasked,
    /// nodeagent is to be asked.
    Due,
    Asked,
    Granted,
    /// The machine is about to restart.
    Refused,
}

/// There are no partitions to be had.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NoPartitions {
    /// Why those that are named cannot be read; `None` where none are named.
    pub(super) unreadable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PublishedTopics {
    pub(super) zboot: LiteMap<Label, ZbootStatus>,
    pub(super) statuses: LiteMap<String, BaseOsStatus>,
    pub(super) manager: Option<u32>,
    pub(super) write: Option<ImageWrite>,
}

impl BaseOs {
    /// A core that continues from the partitions and from what an earlier run left on disk.
    pub fn new(limits: Limits, partitions: Partitions, found: SavedUpdates) -> Self {
        let hold = Hold::new(Requester::Update, limits.pauses(), found.request.as_ref());
        Self {
            limits,
            facts: UpdateFacts::new(partitions, found.counters, hold),
            refuses: None,
            withdraw: WithdrawState::default(),
            ordered: None,
            asks: 0,
            writing: None,
            percent: 0,
            writes: 0,
            order_trouble: None,
            write_trouble: None,
            waiting: None,
            force_used: false,
            rivals_since: None,
            // The partitions are reported at once: others wait for them at their start.
            wake: Some(Mono::START),
            said: PublishedTopics {
                statuses: found.statuses.into_iter().into_lite(),
                ..PublishedTopics::default()
            },
        }
    }

    /// Other bytes than those that a write failed with, or is at, are tried at once.
    fn hear_tree(&mut self, key: &str, value: Option<&ContentTreeStatus>, effects: &mut Vec<Effect>) {
        let Some(before) = self.facts.trees.get(key) else { return };
        if value.is_some_and(|value| same_bytes(value, before)) {
            return;
        }
        self.write_trouble = self.write_trouble.take().filter(|trouble| !trouble.of.0.starts_with(key));
        if self.writing.as_ref().is_some_and(|write| write.tree == key) {
            self.writing = None;
            effects.push(Effect::StopWriting);
        }
    }

    fn hear(&mut self, now: Mono, event: Event, effects: &mut Vec<Effect>) {
        if let Event::Tree { key, value } = &event {
            self.hear_tree(key, value.as_deref(), effects);
        }
        match event {
            Event::Asked { nth, request } => {
                if let Some(own) = self.facts.hold.own.as_mut().filter(|_| nth == self.asks) {
                    own.id = Some(request.id());
                }
            }
            Event::Stored { order, outcome } if self.ordered == Some(order) => {
                self.ordered = None;
                let last = self.order_trouble.take();
                match outcome {
                    Ok(()) => self.facts.stored(order),
                    Err(reason) => {
                        let trouble = FailurePause::grow(last, order, reason, now, self.limits.pauses());
                        effects.push(trouble_note("change a partition", &trouble));
                        self.order_trouble = Some(trouble);
                    }
                }
            }
            Event::Writing { nth, percent } if self.writing.as_ref().is_some_and(|it| it.nth == nth) => {
                self.percent = percent;
            }
            Event::Written { of, outcome } if self.writing.as_ref() == Some(&of) => {
                self.writing = None;
                match outcome {
                    Ok(version) => {
                        self.write_trouble = None;
                        self.facts.written(&of, version);
                    }
                    Err(reason) => self.write_failed(now, of, reason, effects),
                }
            }
            Event::Refused { of, reason, partitions } if self.writing.as_ref() == Some(&of) => {
                self.writing = None;
                self.facts.partitions = *partitions;
                self.write_failed(now, of, reason, effects);
            }
            Event::GoingDown(going_down) if self.withdraw == WithdrawState::Asked => {
                self.parted(going_down, effects);
            }
            // Results of orders and writes that are no longer ours.
            Event::Stored { .. }
            | Event::Writing { .. }
            | Event::Written { .. }
            | Event::Refused { .. }
            | Event::GoingDown(_)
            | Event::Tick => {}
            Event::Config { .. }
            | Event::Tree { .. }
            | Event::Drain(_)
            | Event::Progress(_)
            | Event::Cluster(_)
            | Event::HasToLeave(_)
            | Event::Forced(_)
            | Event::Pause(_)
            | Event::TestComplete { .. }
            | Event::LastBoot(_)
            | Event::FallbackCounter(_)
            | Event::Heard(_) => self.facts.hear(event),
        }
        self.facts.hold.settle();
        self.force_used &= self.facts.hold.forced.is_some_and(|it| completes(it, Requester::Update));
    }

    fn write_failed(&mut self, now: Mono, of: PartitionWrite, reason: String, effects: &mut Vec<Effect>) {
        let doing = format!("write {} to {}", of.version, of.label);
        let trouble = FailurePause::grow(
            self.write_trouble.take(),
            (of.content, of.version),
            reason,
            now,
            self.limits.pauses(),
        );
        effects.push(trouble_note(&doing, &trouble));
        self.write_trouble = Some(trouble);
    }

    /// Everything that follows from the facts, in one go; a second call adds nothing.
    fn settle(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.wake = None;
        if let Some(refuses) = self.refuses.clone() {
            self.refuse(&refuses, effects);
            return self.part(effects);
        }
        self.prove(now, effects);
        if self.facts.all_heard() {
            self.count(effects);
            self.write(now, effects);
            self.roll_back(now, effects);
            self.switch(now, effects);
        }
        self.publish_changes(effects);
        self.part(effects);
    }

    /// Gives an order to the partitions unless one is under way or the last one failed a moment ago.
    pub(super) fn order(&mut self, now: Mono, order: PartitionChange, effects: &mut Vec<Effect>) {
        if self.may_order(now, order) {
            effects.push(Effect::Store(order));
            self.ordered = Some(order);
        }
    }

    /// Whether [`BaseOs::order`] would give `order` now; if a pause holds it back, wakes at its end.
    pub(super) fn may_order(&mut self, now: Mono, order: PartitionChange) -> bool {
        if self.ordered.is_some() {
            return false;
        }
        match FailurePause::holds(self.order_trouble.as_ref(), &order, now) {
            Some(until) => {
                self.wake_at(until);
                false
            }
            None => true,
        }
    }

    pub(super) fn wake_at(&mut self, at: Mono) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// Finds the running image good once nodeagent says so, and ends a mark that a crash left half done.
    fn prove(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let (running, spare) = (self.facts.running(), self.facts.spare());
        let passed = self.facts.test_complete.get(&running.label).is_some_and(|complete| *complete);
        let due = match running.state {
            PartitionState::Inprogress => passed,
            PartitionState::Active => spare.state == PartitionState::Active,
            PartitionState::Updating | PartitionState::Unused => false,
        };
        if due {
            self.order(now, PartitionChange::MarkActive, effects);
        }
    }
}

fn trouble_note<T>(doing: &str, trouble: &FailurePause<T>) -> Effect {
    let FailurePause { reason, wait_secs, .. } = trouble;
    Effect::Say(LogMessage::error(format!("failed to {doing}; tried again in {wait_secs} s: {reason}")))
}

impl Core for BaseOs {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let of_config = matches!(event, Event::Config { .. });
        self.hear(now, event, &mut effects);
        if planted(Fault::B1) && of_config {
            self.switch_unasked(now, &mut effects);
        }
        self.settle(now, &mut effects);
        effects
    }

    fn next_wake(&self) -> Option<Mono> {
        self.wake
    }

    fn tick() -> Event {
        Event::Tick
    }
}
