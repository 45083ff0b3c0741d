//! The life of NodeDrainStatus: three values, the drain, the upkeep of the node and the answers; the one step that takes them
//! through a fact; and what one of them means for the others: requests begin and end drains, outcomes of drains are
//! answered, what is seen on the node voids answers.
//!
//! COMPLETE ends with the boot, with an uncordon, with a pod that a drain would remove, and with age. Whoever still
//! waits gets a new drain, under the same request. Sources: lf-edge/eve pkg/pillar/cmd/zedkube (drain,
//! handlenodedrain). Pure: no clock, no I/O, no task.

use nodestatus::Membership;
use outage::turn::event::TurnState;
use outage::turn::record::Phase;
use step::{Core, Fault, Mono, planted, say};
use topics::{
    Answer, CordonOwner, DrainHistory, DrainJournal, DrainStatus, GoTime, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, OutageAnswer, Requester, Skip, StepWord,
};

use super::answers::{Answers, is_drained, is_operation};
use super::cleanup::{CordonCleanup, DesiredNode, Voided};
use super::context::{KeeperLevels, NodeContext, Step, TURN_ALONE};
use super::drain::{Drain, DrainEnd, StepOutcome};
use super::facts::{Effect, Event, NodeLook, SiteHold, say_blocker_changed, say_skipped};
use super::last_look::LastLook;
use super::records::{History, PublishedRecords};
use crate::limits::{COMPLETE_AGE, Limits};

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
                known: journal.known.clone(),
                ..NodeContext::default()
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
        let (mut outcome, ours) = (None, self.drain.run_id);
        match event {
            Event::Member(member) => {
                if planted(Fault::K5) && member == Membership::Member && self.drain.is_active() {
                    let requested_by = Requester::None;
                    out.push(Effect::Status(NodeDrainStatus {
                        status: DrainStatus::NotRequested,
                        requested_by,
                    }));
                }
                self.node.site.hear_member(member);
                self.joined(now, self.node.site.effective(), &mut out);
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
                outcome = self.drain.hooked(result, Step { now, node: &self.node, out: &mut out });
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
            Event::NodeKnown { name } => self.node.name = name,
            Event::Request(from, request) => {
                if planted(Fault::K3) && request.is_some() && self.drain.is_active() {
                    out.push(Effect::Probe(ours));
                }
                self.answers.request(now, from, request, &self.node);
            }
            Event::RequestsRead(from) => self.answers.topic_read(from),
            Event::ForceBy(author) => self.history.next_author = author,
            Event::Force(force) => {
                self.answers.force = force;
                self.history.hear_force();
            }
            Event::Hold(hold) => outcome = self.drain.hold(hold, &mut out),
            Event::Properties(properties) => self.node.properties = properties,
            Event::Probed(run, result) if run == ours => {
                let may_skip = self.answers.may_go_without();
                outcome =
                    self.drain.probed((result, may_skip), Step { now, node: &self.node, out: &mut out });
            }
            Event::Preflighted(run, found) if run == ours => {
                self.drain.preflighted(found, Step { now, node: &self.node, out: &mut out });
            }
            Event::Passed(run, what) if run == ours => {
                say!(out, warn, "findings of the preflight are passed by a person's word: {what}");
                self.history.step(StepWord::Passed, 0, self.node.wall(now), &what);
            }
            Event::Cordoned(run, result) if run == ours => {
                outcome = self.drain.cordoned(result, Step { now, node: &self.node, out: &mut out });
            }
            Event::Draining(run, newest) if run == ours => self.drain.draining(newest),
            Event::Away(run, away) if run == ours => self.drain.api_silent(now, away),
            Event::Drained(run, result) if run == ours => {
                outcome = self.drain.drained(result, Step { now, node: &self.node, out: &mut out });
            }
            Event::BlockerChanged(run, what) if run == ours => self.blocker_changed(now, &what, &mut out),
            Event::Looked(nth, seen) if self.cleanup.awaits(nth) => self.looked(now, seen, &mut out),
            Event::NodeActivity(what) => self.cleanup.node_changed(now, self.wanted(), &what, &mut out),
            Event::Gate(report) => self.cleanup.gate(now, report, &mut out),
            Event::AtRest(seen) => self.cleanup.at_rest(now, seen),
            Event::Tainted(taints) => self.cleanup.after_boot.tainted(&taints, &mut out),
            Event::Leftovers(why, next) => self.cleanup.leftovers.hear((why, next), &mut out),
            Event::Turn(turn_state) => self.turn_heard(now, *turn_state, &mut out),
            Event::TurnConfirmed(result) => {
                outcome =
                    self.drain.turn_confirmed(result.is_ok(), Step { now, node: &self.node, out: &mut out });
            }
            Event::Learned(learned) => self.node.learn(*learned),
            Event::ServersOut(servers) => self.node.known.servers_out = servers,
            Event::Spared(run, result) if run == ours => {
                outcome = self.drain.spared(result, Step { now, node: &self.node, out: &mut out });
            }
            Event::Server(server) => self.looks.server = Some(server),
            Event::Question(question) => self.looks.question(now, question),
            Event::LookedLast(number, result) => {
                self.looks.looked(
                    number,
                    result,
                    &self.answers,
                    Step { now, node: &self.node, out: &mut out },
                );
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
        let outcome = self.drain.settle_preflight(Step { now, node: &self.node, out: &mut out });
        self.follow(now, outcome);
        self.settle_node(now, &mut out);
        self.looks.settle(&self.answers, Step { now, node: &self.node, out: &mut out });
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
            self.looks.due(&self.node),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// What one part means for the others.
impl Zedkube {
    /// Whether this node is in a cluster as far as drains are concerned.
    pub(super) fn is_member(&self) -> bool {
        matches!(self.node.member, Membership::Member | Membership::Leaving) && !self.answers.forced_out()
    }

    /// Whether a request that exists is served.
    fn can_drain(&self) -> bool {
        self.is_member() && self.may_look()
    }

    /// Whether the node may be looked at: one that is leaving its cluster is in other hands.
    pub(super) fn may_look(&self) -> bool {
        !self.node.name.is_empty() && self.answers.knows_requests() && self.node.member != Membership::Leaving
    }

    /// How the node is to be as things are now.
    pub(super) fn wanted(&self) -> DesiredNode {
        if self.node.member != Membership::Leaving && !self.drain.keeps_cordon(&self.node) {
            DesiredNode::Schedulable
        } else if self.answers.given.iter().any(is_drained) {
            DesiredNode::Drained
        } else {
            DesiredNode::Cordoned
        }
    }

    /// Hears what a whole-site operation holds it to.
    pub(super) fn site_heard(&mut self, now: Mono, hold: SiteHold, out: &mut Vec<Effect>) {
        self.node.site.hold = hold;
        let effective = self.node.site.effective();
        if effective == Membership::Undecided {
            // Released before anything else is known.
            self.node.member = effective;
        }
        self.joined(now, effective, out);
    }

    /// How this node stands to its cluster now, as far as drains are concerned.
    fn joined(&mut self, now: Mono, member: Membership, out: &mut Vec<Effect>) {
        let was = self.node.member;
        if member == Membership::Undecided || member == was {
            return;
        }
        self.node.member = member;
        match member {
            Membership::Leaving => self.make_way(now, out),
            // Its Node object has gone, and with it whatever cordon it had.
            Membership::Outside if was == Membership::Leaving => self.cleanup.cordon = CordonOwner::None,
            Membership::Member => self.cleanup.joined_cluster(now),
            Membership::Undecided | Membership::Outside => {}
        }
    }

    /// The node is to leave its cluster: what is under way here ends, with the cordon left where it is. Requests stay,
    /// and are served or answered outside a cluster afterwards.
    fn make_way(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.drain.is_active() || self.drain.resumed().is_some_and(DrainStatus::is_under_way) {
            self.drain.end(None, out);
            self.answers.forget_under_way();
        } else {
            out.push(Effect::Cancel);
        }
        self.cleanup.hand_over(now);
    }

    /// What time alone brings.
    pub(super) fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let outcome = self.drain.advance(Step { now, node: &self.node, out });
        let complete = outcome == Some(StepOutcome::Drained);
        self.follow(now, outcome);
        if self.may_look() && !complete {
            self.cleanup.advance(now, self.wanted(), out);
        }
    }

    /// What a step of the drain means for the node and for whoever waits.
    pub(super) fn follow(&mut self, now: Mono, outcome: Option<StepOutcome>) {
        match outcome {
            None => {}
            Some(StepOutcome::CordonSent) => self.cleanup.cordon_sent(),
            Some(StepOutcome::Cordoned(owner)) => self.cleanup.cordon = owner,
            Some(StepOutcome::Drained) => {
                self.answers.give(now, DrainStatus::Complete, &Skip::default(), &self.node);
                // At once: with the first check the watch begins.
                self.cleanup.check_at(now);
            }
            Some(StepOutcome::TurnAlone) => {
                // The turn is its own, by a look after it was granted, and nothing is drained in it.
                let update = self.answers.request_of(Requester::K3sUpdate);
                if update.is_some_and(NodeDrainRequest::is_turn_alone) {
                    self.answers.skip_for(now, Requester::K3sUpdate, TURN_ALONE, &self.node);
                }
            }
            Some(StepOutcome::Skipped(skip)) => {
                self.answers.give(now, DrainStatus::Complete, &skip, &self.node);
            }
            Some(StepOutcome::TurnRefused) => self.uncordon_soon(now),
            Some(StepOutcome::TurnLost(why)) => {
                self.history.step(StepWord::TurnLost, 0, self.node.wall(now), &why);
                self.uncordon_soon(now);
            }
            Some(StepOutcome::Failed(status)) => {
                self.answers.give(now, status, &Skip::default(), &self.node);
                self.uncordon_soon(now);
            }
        }
    }

    /// A cordon of ours has to go, or might.
    fn uncordon_soon(&mut self, now: Mono) {
        if planted(Fault::K8) { self.cleanup.rest() } else { self.cleanup.check_at(now) }
    }

    /// Ends whatever is under way on the cluster.
    fn end_drain(&mut self, end: Option<DrainEnd>, out: &mut Vec<Effect>) {
        self.drain.end(end, out);
        self.cleanup.guard_ended();
    }

    /// Levels first: what must end ends, what is requested begins.
    pub(super) fn settle(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.answers.forget_withdrawn();
        let withdrawn = self.answers.all_withdrawn();
        let left = self.node.member != Membership::Undecided && !self.is_member();
        if (withdrawn || left) && !(self.drain.is_idle() && self.answers.given.is_empty()) {
            if withdrawn && self.drain.is_active() {
                say!(out, info, "all requests were withdrawn: the drain is cancelled and our cordon removed");
            }
            self.end_drain(None, out);
            self.uncordon_soon(now);
            // The cordon goes, and with it what was complete.
            self.answers.void(|_| true);
            self.drain.forget_left();
        }
        if !left {
            self.settle_force(now, out);
            self.settle_answered(now, out);
            self.settle_leaving(out);
            self.settle_site(now, out);
        }
        self.drain.turn_alone = self.answers.needs_turn_alone();
        if self.can_drain() && !self.drain.is_active() {
            self.begin(now, out);
        }
        self.drain.settle_name(&self.answers, &self.node);
        self.answers.name_second(now, self.drain.own_status());
    }

    /// A forced COMPLETE answers the request that it names; the drain continues for others.
    fn settle_force(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some((order, skip)) = self.answers.give_forced(now, &self.node) else { return };
        say!(out, warn, "NodeDrainStatus is forced to {order} by {}", self.history.forced_by());
        if let Some(it) = self.answers.request_of(order.requested_by) {
            let at = (self.node.boot_id.as_str(), self.node.wall(now));
            self.history.released(&self.answers.force, (it.id(), it.context.as_str()), at);
        }
        if self.answers.open().next().is_none() {
            self.end_drain(Some(DrainEnd::Skipped(skip)), out);
        }
    }

    /// Nobody is left to work for, and every request has been answered: those answers hold, not the end of the drain.
    fn settle_answered(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if !self.is_member() || !self.answers.knows_requests() || self.answers.open().next().is_some() {
            return;
        }
        if let Some(status) = self.answers.best_final()
            && self.drain.own_status() != status
        {
            self.end_drain(Some(DrainEnd::Resumed(status)), out);
            self.cleanup.check_at(now);
        }
    }

    /// No drain takes the place of one that is over while the node is leaving: that of a request which has gone is
    /// nobody's any more.
    fn settle_leaving(&mut self, out: &mut Vec<Effect>) {
        if self.node.member == Membership::Leaving
            && !self.drain.is_idle()
            && self.answers.knows_requests()
            && !self.answers.holds(self.drain.own_status())
        {
            self.end_drain(None, out);
        }
    }

    /// A whole-site operation goes ahead: whoever asks for it is answered that pods stay.
    fn settle_site(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(Ok(what)) = self.node.site.last_look() else { return };
        let skip = Skip::other(format!("{what}: pods stay"));
        if self.answers.skip_for(now, Requester::DeviceOp, &skip.text, &self.node) {
            say_skipped(&skip, out);
            self.end_drain(Some(DrainEnd::Skipped(skip)), out);
        }
    }

    /// Begins a drain for the first request that has no final answer.
    fn begin(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(request) = self.answers.open().next().cloned() else { return };
        if self.wanted() == DesiredNode::Schedulable {
            self.drain.forget_left();
        }
        self.drain.begin(request.clone(), &self.answers, Step { now, node: &self.node, out });
        let resumes = self.drain.catches_up();
        self.history.taken(&request, &self.node.boot_id, self.node.wall(now), resumes);
        self.answers.drain_begins();
        self.cleanup.guard_ended();
        // A cordon of an earlier boot, not seen yet, would hold up all whose turn comes before ours.
        let may_be_left = self.node.limits.take_turns && !self.cleanup.knows_cordon();
        let has_to_go = self.cleanup.cordon == CordonOwner::Ours || may_be_left;
        if self.drain.keeps_cordon(&self.node) || !has_to_go {
            self.cleanup.rest();
        } else {
            self.cleanup.check_at(now);
        }
        if self.drain.catches_up() {
            self.advance(now, out);
        }
    }

    /// Hears that what held the last attempt up is no longer what it was. With no attempt left, the failures that were
    /// answered to agents are void: each gets a new drain, under the same request. A person who was told of a failure
    /// asks again, or does not.
    pub(super) fn blocker_changed(&mut self, now: Mono, what: &str, out: &mut Vec<Effect>) {
        if self.drain.own_status() != DrainStatus::FailedDrain {
            self.drain.blocker_changed(what, Step { now, node: &self.node, out });
            return;
        }
        let of_agent = |it: &Answer| it.status.is_failure() && it.requested_by != Requester::Operator;
        if self.answers.given.iter().any(of_agent) {
            say_blocker_changed(what, out);
            self.answers.void(of_agent);
            self.drain.cause_ended(now, &self.node);
        }
    }

    /// Hears what a check of the node has found.
    pub(super) fn looked(&mut self, now: Mono, seen: Result<NodeLook, String>, out: &mut Vec<Effect>) {
        let wanted = self.wanted();
        if let Ok(seen) = &seen {
            self.cleanup.after_boot.take_look(now, seen, out);
        }
        let seen = seen.map(|seen| self.without_left(seen, wanted));
        match self.cleanup.checked(now, seen, wanted, &self.node, out) {
            None => return,
            Some(Voided::PodCame(pod)) => {
                self.void(now, &format!("pod {pod} has come to the drained node"), is_drained, out);
            }
            Some(Voided::Uncordoned) => {
                self.void(now, "somebody has uncordoned the drained node", |_| true, out);
            }
        }
        self.settle(now, out);
    }

    /// Hears where this node stands with its turn. A turn that is lost takes COMPLETE with it: somebody else may be
    /// down now.
    pub(super) fn turn_heard(&mut self, now: Mono, turn_state: TurnState, out: &mut Vec<Effect>) {
        if !self.node.turn.hear(turn_state) {
            return;
        }
        let outcome = self.drain.turn(Step { now, node: &self.node, out });
        if let Some(StepOutcome::TurnLost(why)) = &outcome {
            self.void(now, &format!("its turn to be down is no longer its own: {why}"), is_drained, out);
        }
        self.follow(now, outcome);
    }

    /// Says what is wanted for the node now: its gate, its machines, its turn.
    pub(super) fn settle_node(&mut self, now: Mono, out: &mut Vec<Effect>) {
        // Whoever waits for a window does so for days.
        let busy = self.drain.is_active() && !self.drain.is_outside_window();
        let wanted = self.wanted();
        // So does whoever waits for its turn, and its node is in service meanwhile.
        let waits = self.drain.waits_in_service(&self.node);
        self.cleanup.settle_gate((wanted, busy && !waits), Step { now, node: &self.node, out });
        let free = self.may_look() && self.node.member != Membership::Outside;
        self.cleanup.settle_leftovers(wanted, (free, !busy && self.can_drain()), out);
        self.settle_hooks(wanted, busy, out);
        self.settle_turn(out);
    }

    /// What hooks have done before a drain is undone once that has ended without a boot; those after a boot are called
    /// once its gate has opened.
    fn settle_hooks(&mut self, wanted: DesiredNode, busy: bool, out: &mut Vec<Effect>) {
        let free = wanted == DesiredNode::Schedulable && self.can_drain();
        // What was prepared for does not come in this cluster any more.
        let leaves =
            matches!(self.node.member, Membership::Leaving | Membership::Outside) && !self.drain.is_active();
        let hooks = &mut self.node.hooks;
        if (free || leaves) && hooks.in_place && !hooks.undoing {
            hooks.undoing = true;
            out.push(Effect::UndoHooks);
        }
        if free && !busy && hooks.after_boot && self.cleanup.after_boot.was_open() {
            hooks.after_boot = false;
            out.push(Effect::HooksAfterBoot);
        }
    }

    /// Tells the keeper of the turn what is wanted now, once that is known.
    fn settle_turn(&mut self, out: &mut Vec<Effect>) {
        if !self.node.limits.take_turns || !self.is_member() || !self.may_look() {
            return;
        }
        let fit = self.drain.is_fit(&self.node);
        if !self.cleanup.knows_cordon() {
            self.node.turn.settle_fit(fit, out);
            return;
        }
        let cordoned =
            self.cleanup.cordon == CordonOwner::Ours && self.cleanup.after_boot.earlier_cordon().is_none();
        let own = self.looks.own_wish(&self.answers);
        let kept = self.answers.keeps_turn();
        let drain = self.drain.wants_turn(&self.node)
            || self.wanted() == DesiredNode::Drained
            || cordoned
            || kept.is_some();
        let levels = KeeperLevels {
            wanted: drain || own.is_some(),
            own,
            fit,
            // In the name of the update, whatever is asked for beside it: by that its turn is known after a restart.
            serves: kept.or(self.drain.serves.as_ref()),
            healthy: self.cleanup.is_healthy() && !self.node.k3s.holds(),
            phase: if self.node.k3s.failed {
                Some(Phase::Failed)
            } else {
                self.drain.run.is_drained().then_some(Phase::Drained)
            },
            cordoned,
        };
        self.node.turn.settle(&levels, out);
    }

    /// Takes from what was seen the pods that are left in place by policy, and all pods where nobody was answered
    /// COMPLETE after a drain.
    fn without_left(&self, seen: NodeLook, wanted: DesiredNode) -> NodeLook {
        let NodeLook::HasPods(owner, mut pods) = seen else { return seen };
        let drained = wanted == DesiredNode::Drained && !planted(Fault::NewPods);
        pods.retain(|it| drained && !self.drain.leaves(it, &self.node));
        match (pods.is_empty(), owner) {
            (false, _) => NodeLook::HasPods(owner, pods),
            (true, CordonOwner::Ours) => NodeLook::Ours,
            (true, CordonOwner::Foreign) => NodeLook::Foreign,
            (true, CordonOwner::None) => NodeLook::Open,
        }
    }

    /// When COMPLETE of operations that have not acted on it is too old. After a start not before a new drain can
    /// take its place: NOTREQUESTED would be shown while a request exists.
    pub(super) fn expires(&self) -> Option<Mono> {
        self.answers.expires().filter(|_| self.can_drain() || planted(Fault::Aging))
    }

    /// Voids COMPLETE that is too old.
    pub(super) fn expire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.expires().is_some_and(|at| now >= at) {
            let secs = COMPLETE_AGE.as_secs();
            self.void(now, &format!("nobody has acted on it for {secs} s"), is_operation, out);
        }
    }

    /// COMPLETE counts no more for these answers: whoever still waits gets a new drain.
    fn void(&mut self, now: Mono, why: &str, which: impl Fn(&Answer) -> bool, out: &mut Vec<Effect>) {
        if !self.answers.any_complete() {
            return;
        }
        say!(out, warn, "COMPLETE is void: draining again for the requests that still wait: {why}");
        self.history.void(self.node.wall(now), why);
        self.answers.void(which);
        if !self.answers.any_complete() {
            self.drain.void();
        }
    }
}
