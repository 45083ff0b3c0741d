//! What is said, and in whose name. Pure: no clock, no I/O, no task.

use step::Mono;
use topics::{Answer, DrainStatus, NodeDrainStatus, Requester};

use super::facts::{Effect, Force, Said};
use super::machine::Zedkube;

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

    /// The status of the run itself, for the requester that comes first.
    pub(super) fn own_status(&self) -> NodeDrainStatus {
        let status = match self.member {
            None => self.run.resumed().unwrap_or(DrainStatus::NotSupported),
            Some(true) if self.is_member() => self.run.status(self.floor),
            Some(_) => DrainStatus::NotSupported,
        };
        let first = if self.asks(Requester::DeviceOp) {
            Requester::DeviceOp
        } else if self.asks(Requester::Update) {
            Requester::Update
        } else {
            Requester::None
        };
        let requested_by = match status {
            DrainStatus::NotSupported | DrainStatus::NotRequested => Requester::None,
            DrainStatus::Complete if self.completed(Requester::Update) => {
                let alone = !self.completed(Requester::DeviceOp);
                if alone || self.second { Requester::Update } else { first }
            }
            DrainStatus::Unknown
            | DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::FailedCordon
            | DrainStatus::DrainRetrying
            | DrainStatus::FailedDrain
            | DrainStatus::Complete
            | DrainStatus::Stranger(_) => first,
        };
        NodeDrainStatus { status, requested_by }
    }

    /// The status as it is said: the forced one, or that of the run.
    pub(super) fn status(&self) -> NodeDrainStatus {
        match self.force {
            // COMPLETE is said for the requester that it names, as far as that one waits.
            Force::Order(order) if order.status == DrainStatus::Complete => {
                if self.requests.contains_key(&order.requested_by) { order } else { self.own_status() }
            }
            Force::Order(order) => order,
            Force::Absent | Force::Refused(_) => self.own_status(),
        }
    }

    /// Says what differs from what was said: journal, progress, status, in this order, before what is done.
    pub(super) fn tell(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let under_way = self.run.status(self.floor);
        if self.run.is_active() && self.is_member() {
            self.answer(now, under_way, "");
        }
        let mut told = Vec::new();
        let journal = self.journal();
        if self.said_journal != journal {
            told.push(Effect::Journal(Box::new(journal.clone())));
            self.said_journal = journal;
        }
        let progress = Box::new(self.progress());
        if self.said_progress.as_ref() != Some(&progress) {
            told.push(Effect::Progress(progress.clone()));
            self.said_progress = Some(progress);
        }
        let status = self.status();
        if self.said_status != Some(status) {
            let before = self.said_status.unwrap_or_default();
            told.push(Effect::Say(Said::Changing(before, status)));
            told.push(Effect::Status(status));
            self.said_status = Some(status);
        }
        told.append(out);
        *out = told;
    }
}
