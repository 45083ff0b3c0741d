//! What is said, and in whose name. Pure: no clock, no I/O, no task.

use clusterview::leader::Candidacy;
use nodestatus::Membership;
use step::{Fault, Mono, planted};
use topics::{Answer, Asked, CordonOwner, DrainStatus, GoTime, NodeDrainRequest, NodeDrainStatus, Requester};

use super::facts::{Effect, Force};
use super::machine::Zedkube;
use super::run::Run;

impl Zedkube {
    /// Whether this requester waits for an answer. Until its topic is read, it does if it did before this agent
    /// started anew.
    fn asks(&self, who: Requester) -> bool {
        let answered = || self.answers.iter().any(|it| it.requested_by == who);
        self.requests.contains_key(&who) || (!self.read.contains(&who) && answered())
    }

    /// Whether this requester's own answer is COMPLETE: nobody else is told so.
    pub(super) fn completed(&self, who: Requester) -> bool {
        let complete = |it: &Answer| it.requested_by == who && it.status == DrainStatus::Complete;
        self.asks(who) && self.answers.iter().any(complete)
    }

    fn is_answered(&self, who: Requester) -> bool {
        self.answers.iter().any(|it| it.requested_by == who && it.status.is_final())
    }

    /// The status of the run itself, whoever it is for.
    pub(super) fn run_status(&self) -> DrainStatus {
        match self.node.member {
            Membership::Undecided => self.run.resumed().unwrap_or(DrainStatus::NotSupported),
            // Whoever asks is heard, and waits.
            Membership::Leaving
                if self.is_member() && self.run == Run::Idle && self.open().next().is_some() =>
            {
                DrainStatus::Requested
            }
            Membership::Member | Membership::Leaving if self.is_member() => self.run.status(self.floor),
            Membership::Member | Membership::Leaving | Membership::Outside => DrainStatus::NotSupported,
        }
    }

    /// The status of the run, for the requester that comes first.
    pub(super) fn own_status(&self) -> NodeDrainStatus {
        let status = self.run_status();
        let first_that = |is: &dyn Fn(Requester) -> bool| Self::REQUESTERS.into_iter().find(|who| is(*who));
        let first = first_that(&|who| self.asks(who)).unwrap_or(Requester::None);
        // Who has its answer is not told that it is waited for.
        let open = first_that(&|who| self.asks(who) && !self.is_answered(who)).unwrap_or(first);
        if let Some(failed) = self.failed_beside_a_person(status) {
            return failed;
        }
        let requested_by = match status {
            DrainStatus::NotSupported | DrainStatus::NotRequested => Requester::None,
            DrainStatus::Complete if self.second && self.completed(Requester::Update) => Requester::Update,
            DrainStatus::Complete => first_that(&|who| self.completed(who)).unwrap_or(first),
            DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::DrainRetrying => open,
            DrainStatus::Unknown
            | DrainStatus::FailedCordon
            | DrainStatus::FailedDrain
            | DrainStatus::Stranger(_) => first,
        };
        NodeDrainStatus { status, requested_by }
    }

    /// An agent of the reference reads nothing but the status: while COMPLETE is a person's alone, the failure of
    /// an operation that stands is what has to be seen. The person reads it in the answers.
    fn failed_beside_a_person(&self, status: DrainStatus) -> Option<NodeDrainStatus> {
        let [operations @ .., _person] = Self::REQUESTERS;
        if status != DrainStatus::Complete || operations.into_iter().any(|who| self.completed(who)) {
            return None;
        }
        let failed = |who: Requester| {
            let said = self.answers.iter().find(|it| it.requested_by == who && it.status.is_failure())?;
            self.asks(who).then_some(NodeDrainStatus { status: said.status, requested_by: who })
        };
        operations.into_iter().find_map(failed)
    }

    /// The status as it is said: the forced one, or that of the run.
    pub(super) fn status(&self) -> NodeDrainStatus {
        match self.force {
            Force::Order(_) if planted(Fault::K14) => self.own_status(),
            // COMPLETE is said for the requester that it names, as far as that one waits.
            Force::Order(order) if order.status == DrainStatus::Complete => {
                if self.requests.contains_key(&order.requested_by) { order } else { self.own_status() }
            }
            Force::Order(order) => order,
            Force::Absent | Force::Refused(_) => self.own_status(),
        }
    }

    /// Says what differs from what was said: journal, candidacy, history, progress, status, in this order, before what is done.
    pub(super) fn tell(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let under_way = self.run.status(self.floor);
        if self.run.is_active() && self.is_member() {
            self.answer(now, under_way, "");
        }
        let mut told = Vec::new();
        self.published.journal(now, self.journal(), self.node.limits.marks_gap(), &mut told);
        self.published.candidacy(self.candidacy(), &mut told);
        self.tell_history(now, out, &mut told);
        let (progress, status) = (self.progress(), self.status());
        self.published.progress_and_status(now, progress, status, self.node.limits.progress_gap(), &mut told);
        told.append(out);
        *out = told;
    }

    /// `None` while it is not known: then nobody stands, and nothing is given back either.
    fn candidacy(&self) -> Option<Candidacy> {
        let complete = |status| status == DrainStatus::Complete;
        let told = self.status().status;
        if self.node.member == Membership::Leaving {
            return Some(Candidacy::Closed);
        }
        if complete(told) || complete(self.run_status()) || self.answers.iter().any(|it| complete(it.status))
        {
            return Some(Candidacy::Closed);
        }
        if self.run.is_active() || self.care.cordon() == CordonOwner::Ours {
            return Some(Candidacy::Kept);
        }
        self.care.knows_cordon().then_some(Candidacy::Open)
    }

    /// The wall clock was set: what was written by the one before moves with it.
    pub(super) fn set_clock(&mut self, now: Mono, booted_at: GoTime) {
        let Some(before) = self.node.set_clock(booted_at) else { return };
        let answers = self.answers.iter_mut().map(|it| &mut it.at);
        let asked = self.asked.iter_mut().map(|it| &mut it.at);
        for at in [&mut self.started_at].into_iter().chain(answers).chain(asked) {
            *at = at.moved(before, booted_at);
        }
        self.history.set_clock(&self.node.boot_id, now.since_start(), (before, booted_at));
    }

    /// Keeps when a request was made: as it says itself where that can be, else when it was first heard of.
    pub(super) fn heard_asked(&mut self, now: Mono, request: &NodeDrainRequest) {
        if self.asked.iter().any(|it| it.id() == request.id()) {
            return;
        }
        let heard = self.node.wall(now);
        let said = request.requested_at;
        let at = if (self.node.booted_at..=heard).contains(&said) { said } else { heard };
        let (requested_by, requested_at) = (request.requested_by, said);
        self.asked.push(Asked { requested_by, requested_at, at });
        self.asked.sort_by_key(Asked::id);
    }

    /// Forgets requests that no longer stand.
    pub(super) fn forget_asked(&mut self) {
        if self.knows_requests() {
            self.asked.retain(|asked| self.requests.values().any(|it| it.id() == asked.id()));
        }
    }
}
