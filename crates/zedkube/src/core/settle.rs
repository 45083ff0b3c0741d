//! Requests against the drain: what must not go on ends, what is asked for begins, everybody gets an answer.
//!
//! Pure: no clock, no I/O, no task.

use nodestatus::Membership;
use step::{Fault, Mono, planted};
use topics::{Answer, DrainStake, DrainStatus, NodeDrainRequest, RequestId, Requester};

use super::facts::{Effect, Force, Said, Seen};
use super::machine::Zedkube;
use super::resume::Before;
use super::run::{End, Run};

impl Zedkube {
    pub(super) fn request(&mut self, now: Mono, from: Requester, request: Option<NodeDrainRequest>) {
        match request {
            Some(request) => {
                self.heard_asked(now, &request);
                self.requests.insert(from, request);
            }
            None if planted(Fault::K6) => {}
            None => {
                self.requests.remove(&from);
            }
        }
    }

    /// Levels first: what must not go on ends, what is asked for begins.
    pub(super) fn settle(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.forget_asked();
        if self.knows_requests() {
            self.answers.retain(|answer| self.requests.values().any(|it| it.id() == answer.id()));
        }
        let withdrawn = self.knows_requests() && self.requests.is_empty();
        let left = self.node.member != Membership::Undecided && !self.is_member();
        if (withdrawn || left) && (self.run != Run::Idle || !self.answers.is_empty()) {
            if withdrawn && self.run.is_active() {
                out.push(Effect::Say(Said::Withdrawn));
            }
            self.end_run(out);
            self.run = Run::Idle;
            self.uncordon_soon(now);
            // The cordon goes, and with it what was complete.
            self.answers.clear();
            self.left.clear();
        }
        if !left {
            self.settle_force(now, out);
            self.settle_answered(now, out);
            self.settle_leaving(out);
        }
        if self.can_drain() && !self.run.is_active() {
            let next = self.open().next().cloned();
            if let Some(request) = next {
                self.begin(now, request, out);
            }
        }
        self.settle_second(now);
    }

    /// Nobody is left to work for, and whoever stands has been answered: those answers hold, not the run's end.
    fn settle_answered(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if !self.is_member() || !self.knows_requests() || self.open().next().is_some() {
            return;
        }
        let held = self.requests.values().filter_map(|it| self.final_answer(it.id()));
        let best = held.map(|it| it.status).max_by_key(|status| *status == DrainStatus::Complete);
        if let Some(status) = best
            && self.run.status(None) != status
        {
            self.end_run(out);
            self.run = Run::Ended(End::Resumed(status));
            self.care.check_at(now);
        }
    }

    /// No drain takes the place of one that is over while the node is leaving: that of a request which has gone is
    /// nobody's any more.
    fn settle_leaving(&mut self, out: &mut Vec<Effect>) {
        if self.node.member != Membership::Leaving || self.run == Run::Idle {
            return;
        }
        let over = self.run.status(None);
        let held = self.requests.values().filter_map(|it| self.final_answer(it.id()));
        if self.knows_requests() && !held.into_iter().any(|it| it.status == over) {
            self.end_run(out);
            self.run = Run::Idle;
        }
    }

    pub(super) fn end_run(&mut self, out: &mut Vec<Effect>) {
        self.run_id += 1;
        self.heard();
        self.stake = DrainStake::default();
        self.serves = None;
        self.floor = None;
        self.resume = None;
        self.care.guard_ended();
        out.push(Effect::Cancel);
    }

    pub(super) fn begin(&mut self, now: Mono, request: NodeDrainRequest, out: &mut Vec<Effect>) {
        let resumed = self.run.resumed().filter(|status| status.is_under_way());
        let resume = self.resume.take().filter(|it| it.is_for(self.requests.values()));
        if !self.keeps_cordon() {
            self.left.clear();
        }
        // Silence and what was known go on with the attempt.
        let kept = resume.is_some().then(|| (self.silent_since, self.stake.clone()));
        self.end_run(out);
        (self.silent_since, self.stake) = kept.unwrap_or_default();
        self.second = false;
        self.second_from = None;
        self.care.rest();
        if resume.is_none() {
            self.started_at = self.node.wall(now);
            self.before = Before::default();
        }
        self.resume = resume;
        self.answers.retain(|answer| answer.status.is_final());
        out.push(Effect::Say(Said::Taken(request.clone())));
        self.serves = Some(request);
        self.floor = resumed;
        let from = self.next_start.filter(|_| self.resume.is_none()).unwrap_or(now).max(now);
        self.run = Run::Taken { from };
        if resumed.is_some() {
            self.advance(now, out);
        }
    }

    /// A forced COMPLETE answers the request that it names; the drain goes on for others.
    pub(super) fn settle_force(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Force::Order(order) = self.force else { return };
        if order.status != DrainStatus::Complete {
            return;
        }
        let Some(request) = self.requests.get(&order.requested_by).cloned() else { return };
        if self.final_answer(request.id()).is_some_and(|it| it.status == DrainStatus::Complete) {
            return;
        }
        let skip = format!("forced {order} by the force file");
        out.push(Effect::Say(Said::Forced(order, self.history.forced_by())));
        self.answer_one(now, &request, DrainStatus::Complete, &skip);
        if let Some(answer) = self.answers.iter_mut().find(|it| it.id() == request.id()) {
            answer.forced = true;
        }
        if self.open().next().is_none() {
            self.end_run(out);
            self.run = Run::Ended(End::Skipped(skip));
        }
    }

    /// With both requests complete, each requester is named for a while: a Go reader looks for its own number.
    pub(super) fn settle_second(&mut self, now: Mono) {
        let complete = self.run.status(None) == DrainStatus::Complete
            && self.completed(Requester::DeviceOp)
            && self.completed(Requester::Update);
        if !complete {
            self.second_from = None;
        } else if !self.second {
            let from = *self.second_from.get_or_insert(now + self.node.limits.answer_dwell());
            if now >= from {
                self.second = true;
                self.second_from = None;
            }
        }
    }

    /// Gives every standing request without a final answer this one.
    pub(super) fn answer(&mut self, now: Mono, status: DrainStatus, skip: &str) {
        let mut open: Vec<NodeDrainRequest> = self.open().cloned().collect();
        if planted(Fault::X1) {
            // Whoever comes first, even when that one has its answer.
            open.retain(|it| self.requests.values().next() == Some(it));
        }
        for request in open {
            self.answer_one(now, &request, status, skip);
        }
    }

    pub(super) fn answer_one(
        &mut self,
        now: Mono,
        request: &NodeDrainRequest,
        status: DrainStatus,
        skip: &str,
    ) {
        let known = self.answers.iter().find(|it| it.id() == request.id());
        if known.is_some_and(|it| it.status == status && it.skip == skip) {
            return;
        }
        self.answers.retain(|it| it.id() != request.id());
        if status == DrainStatus::Complete {
            self.complete_at = Some(now);
        }
        self.answers.push(Answer {
            requested_by: request.requested_by,
            requested_at: request.requested_at,
            context: request.context.clone(),
            status,
            skip: skip.to_owned(),
            forced: false,
            at: self.node.wall(now),
        });
        self.answers.sort_by_key(Answer::id);
    }

    /// The requests that have no final answer yet, in the order of [`Zedkube::REQUESTERS`].
    pub(super) fn open(&self) -> impl Iterator<Item = &NodeDrainRequest> {
        self.requests.values().filter(|it| self.final_answer(it.id()).is_none())
    }

    pub(super) fn final_answer(&self, id: RequestId) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.id() == id && answer.status.is_final())
    }

    /// Hears what a check of the node has found.
    pub(super) fn looked(&mut self, now: Mono, seen: Result<Seen, String>, out: &mut Vec<Effect>) {
        let wanted = self.wanted();
        if let Ok(seen) = &seen {
            self.care.seen_after_boot(seen, out);
        }
        let seen = seen.map(|seen| self.sifted(seen, wanted));
        if let Some(voided) = self.care.checked(now, seen, wanted, &self.node, out) {
            self.void(now, &voided, out);
        }
    }
}
