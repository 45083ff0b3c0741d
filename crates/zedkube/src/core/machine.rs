//! The life of NodeDrainStatus: three values, the drain, the upkeep of the node and the answers, and the one step that
//! takes them through a fact.
//!
//! Sources: lf-edge/eve pkg/pillar/cmd/zedkube (drain, handlenodedrain). Pure: no clock, no I/O, no task.

use nodestatus::Membership;
use step::{Core, Fault, Mono, planted, say};
use topics::{
    DrainHistory, DrainJournal, DrainStatus, GoTime, NodeDrainProgress, NodeDrainStatus, OutageAnswer,
    Requester, StepWord,
};

use super::answers::{Answers, is_drained};
use super::cleanup::CordonCleanup;
use super::context::{HookState, NodeContext, WindowState};
use super::drain::Drain;
use super::facts::{Effect, Event, K3sHold};
use super::last_look::{LastLook, LookBasis};
use super::records::{History, PublishedRecords};
use super::site::SiteState;
use super::turn::Turns;
use crate::limits::Limits;

/// The core of zedkube.
#[derive(Debug, Clone, PartialEq)]
pub struct Zedkube {
    pub(super) node: NodeContext,
    pub(super) drain: Drain,
    pub(super) cleanup: CordonCleanup,
    pub(super) answers: Answers,
    pub(super) published: PublishedRecords,
    pub(super) history: History,
    pub(super) looks: LastLook,
}

impl Zedkube {
    /// Starts with what an earlier run left, and publishes what follows from it at once. `booted_at` is when the
    /// monotonic clock started, by the wall clock as it is now.
    pub fn new(
        limits: Limits,
        journal: Option<DrainJournal>,
        boot_id: String,
        now: Mono,
        booted_at: GoTime,
    ) -> (Self, Vec<Effect>) {
        let journal = journal.unwrap_or_default();
        let same_boot = Some(&journal).filter(|it| it.boot_id == boot_id && !planted(Fault::K7));
        let wrote = same_boot.map(|it| it.booted_at).filter(|it| !it.is_zero());
        let mut core = Self {
            node: NodeContext {
                limits,
                boot_id,
                booted_at: wrote.unwrap_or(booted_at),
                member: Membership::default(),
                site: SiteState::default(),
                k3s: K3sHold::default(),
                node_known: false,
                turn: Turns::default(),
                hooks: HookState::default(),
                window: WindowState::default(),
                known: journal.known.clone(),
            },
            drain: Drain::new(same_boot),
            cleanup: CordonCleanup::new(now, same_boot.map(|it| it.cordon)),
            answers: Answers::new(now, same_boot.map(|it| (it.answers.clone(), it.asked.clone()))),
            published: PublishedRecords::beside(journal.clone()),
            history: History::default(),
            looks: LastLook::default(),
        };
        core.cleanup.after_boot.carried_out = same_boot.is_none() && journal.answers.iter().any(is_drained);
        core.set_clock(now, booted_at);
        core.cleanup.after_boot.repairs.count_on(now, &journal.repairs, &core.node);
        let mut out = Vec::new();
        core.publish(now, &mut out);
        (core, out)
    }

    /// Continues with the counts of what was shown last; to be called before the first fact.
    pub fn count_on(&mut self, shown: Option<NodeDrainProgress>) {
        if let Some(shown) = shown {
            self.drain.count_on(&shown.by_clock(self.node.booted_at));
        }
    }

    /// Continues with what was answered last in this boot; to be called before the first fact.
    pub fn answered(&mut self, earlier: Option<OutageAnswer>) {
        self.looks = LastLook::new(earlier);
    }

    /// Continues with the history that earlier runs left. To be called before the first fact.
    pub fn recall(&mut self, now: Mono, kept: Option<DrainHistory>) -> Vec<Effect> {
        let (history, new) = History::recalled(kept.unwrap_or_default(), now, &self.node);
        self.history = history;
        new.map(|it| Effect::History(Box::new(it))).into_iter().collect()
    }

    /// The wall clock was set: what was written by the one before moves with it.
    fn set_clock(&mut self, now: Mono, booted_at: GoTime) {
        let Some(before) = self.node.set_clock(booted_at) else { return };
        self.drain.set_clock(before, booted_at);
        self.answers.set_clock(before, booted_at);
        self.history.set_clock(now, before, &self.node);
    }
}

impl Core for Zedkube {
    type Event = Event;
    type Effect = Effect;

    #[expect(clippy::too_many_lines, reason = "one arm for each fact")]
    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        let (mut outcome, ours) = (None, self.drain.run_id());
        match event {
            Event::Member(member) => {
                if planted(Fault::K5) && member == Membership::Member && self.drain.is_active() {
                    let requested_by = Requester::None;
                    out.push(Effect::Status(NodeDrainStatus {
                        status: DrainStatus::NotRequested,
                        requested_by,
                    }));
                }
                self.member_heard(now, member, &mut out);
            }
            Event::Site(hold) => self.site_heard(now, hold, &mut out),
            Event::K3s(hold) => self.node.k3s = hold,
            Event::Hooking(run, name) => {
                self.node.hooks.in_place = true;
                if run == ours {
                    self.drain.hooking(name);
                }
            }
            Event::Hooked(run, result) if run == ours => {
                outcome = self.drain.hooked(now, result, &self.node, &mut out);
            }
            Event::HooksLeft { in_place, after_boot } => {
                (self.node.hooks.in_place, self.node.hooks.after_boot) = (in_place, after_boot);
            }
            Event::HooksUndone => (self.node.hooks.in_place, self.node.hooks.undoing) = (false, false),
            Event::HookNotes(notes) => self.node.hooks.notes = notes,
            Event::Window(closed) => self.node.window.closed = closed,
            Event::WindowPass(pass) => self.node.window.pass = pass,
            Event::Pause(pause) => {
                self.history.pause(pause.as_ref(), self.node.wall(now));
                self.node.window.pause = pause;
            }
            Event::NodeKnown { name } => self.node.node_known = !name.is_empty(),
            Event::Request(from, request) => {
                if planted(Fault::K3) && request.is_some() && self.drain.is_active() {
                    out.push(Effect::Probe(ours));
                }
                self.answers.request(now, from, request, &self.node);
            }
            Event::RequestsRead(from) => self.answers.topic_read(from),
            Event::ForceBy(author) => self.history.hear_author(author),
            Event::Force(force) => {
                self.answers.hear_force(force);
                self.history.hear_force();
            }
            Event::Hold(hold) => outcome = self.drain.hold(hold, &mut out),
            Event::Properties(properties) => self.drain.properties = properties,
            Event::Probed(run, result) if run == ours => {
                outcome = self.drain.probed(now, result, &self.node, &mut out);
            }
            Event::Preflighted(run, found) if run == ours => {
                self.drain.preflighted(now, found, &self.node, &mut out);
            }
            Event::Passed(run, what) if run == ours => {
                say!(out, warn, "findings of the preflight are passed by a person's word: {what}");
                self.history.step(StepWord::Passed, 0, self.node.wall(now), &what);
            }
            Event::Cordoned(run, result) if run == ours => {
                outcome = self.drain.cordoned(now, result, &self.node, &mut out);
            }
            Event::Draining(run, newest) if run == ours => self.drain.draining(newest),
            Event::Away(run, away) if run == ours => self.drain.api_silent(now, away),
            Event::Drained(run, result) if run == ours => {
                outcome = self.drain.drained(now, result, &self.node, &mut out);
            }
            Event::BlockerChanged(run, what) if run == ours => self.blocker_changed(now, &what, &mut out),
            Event::Looked(nth, seen) if self.cleanup.awaits(nth) => self.looked(now, seen, &mut out),
            Event::NodeActivity(what) => self.cleanup.node_changed(now, self.wanted(), &what, &mut out),
            Event::Gate(report) => self.cleanup.gate(now, report, &mut out),
            Event::CordonSeen(seen) => self.cleanup.cordon_seen(seen),
            Event::Tainted(taints) => self.cleanup.after_boot.tainted(&taints, &mut out),
            Event::Leftovers(why, next) => self.cleanup.leftovers.hear((why, next), &mut out),
            Event::Turn(turn_state) => self.turn_heard(now, *turn_state, &mut out),
            Event::TurnConfirmed(result) => {
                outcome = self.drain.turn_confirmed(now, result.is_ok(), &self.node, &mut out);
            }
            Event::Learned(learned) => self.node.learn(*learned),
            Event::ServersOut(servers) => self.node.known.servers_out = servers,
            Event::Spared(run, result) if run == ours => {
                outcome = self.drain.spared(now, result, &mut out);
            }
            Event::Server(server) => self.looks.hear_server(server),
            Event::Question(question) => self.looks.question(now, question),
            Event::LookedLast(number, result) => {
                let basis = LookBasis::new(&self.answers, &self.node, &self.drain.properties);
                self.looks.looked(now, number, result, &basis, &mut out);
            }
            Event::Wall(booted_at) => self.set_clock(now, booted_at),
            Event::Probed(..)
            | Event::Preflighted(..)
            | Event::Passed(..)
            | Event::Spared(..)
            | Event::Cordoned(..)
            | Event::Hooked(..)
            | Event::Draining(..)
            | Event::Away(..)
            | Event::Drained(..)
            | Event::BlockerChanged(..)
            | Event::Looked(..)
            | Event::Tick => {}
        }
        self.follow(now, outcome);
        if self.drain.is_taken() {
            // It has been said that the request was taken; now it is served.
            self.advance(now, &mut out);
        }
        self.expire(now, &mut out);
        self.settle(now, &mut out);
        if !self.drain.is_taken() {
            self.advance(now, &mut out);
        }
        let outcome = self.drain.settle_preflight(now, &self.node, &mut out);
        self.follow(now, outcome);
        self.settle_node(now, &mut out);
        let basis = LookBasis::new(&self.answers, &self.node, &self.drain.properties);
        self.looks.settle(now, &basis, &mut out);
        self.publish(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let cleanup = self.cleanup.due().filter(|_| self.may_look());
        let repairs = self.cleanup.after_boot.repairs.due();
        [
            repairs,
            self.drain.due(&self.node),
            cleanup,
            self.answers.due(),
            self.expires(),
            self.published.due(),
            self.looks.due(&LookBasis::new(&self.answers, &self.node, &self.drain.properties)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
