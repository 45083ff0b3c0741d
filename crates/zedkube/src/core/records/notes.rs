//! Which steps of a drain and of a force file the history keeps: read off what the core says and does.
//!
//! Not here: how they are kept. Pure: no clock, no I/O, no task.

use kubenodeop::{Counts, Phase, Progress};
use step::Mono;
use topics::{DrainHistory, DrainStatus, NodeDrainProgress, PodCounts, StepWord};

use super::history::{History, whose};
use crate::core::facts::{Effect, Force, Said};
use crate::core::machine::Zedkube;
use crate::core::resume::Before;
use crate::core::run::{End, Run};

impl Zedkube {
    /// Goes on with the counts of what was shown last, if that was the same drain. They are on no flash, as they change
    /// with every pod; to be called before the first fact.
    pub fn count_on(&mut self, shown: Option<NodeDrainProgress>) {
        let Some(resume) = &self.resume else { return };
        let shown =
            shown.map(|it| it.by_clock(self.node.booted_at)).filter(|it| it.started_at == self.started_at);
        if let Some(NodeDrainProgress { attempt, evicted, recordons, counts, .. }) = shown {
            let counts = if attempt == resume.attempt { counts } else { PodCounts::default() };
            self.before = Before { evicted, recordons, counts };
        }
    }

    /// Goes on with the history that earlier runs left. To be called before the first fact.
    pub fn recall(&mut self, now: Mono, kept: Option<DrainHistory>) -> Vec<Effect> {
        self.history = History::of(kept.unwrap_or_default());
        self.history.recall_clock(&self.node.boot_id, now.since_start(), self.node.booted_at);
        self.history.interrupted(&self.node.boot_id, self.node.wall(now));
        self.take_history().map(|it| Effect::History(Box::new(it))).into_iter().collect()
    }

    /// Keeps what this turn brings; says it when it is worth a write.
    pub(crate) fn tell_history(&mut self, now: Mono, out: &[Effect], told: &mut Vec<Effect>) {
        let at = self.node.wall(now);
        let released = out.iter().any(|it| matches!(it, Effect::Say(Said::Forced(..))));
        let effect = (!released).then(|| self.effect_of_force());
        self.history.audit(&self.force, effect.as_deref(), (&self.node.boot_id, at));
        let mut end = None;
        for effect in out {
            match effect {
                Effect::Cordon(..) => {
                    self.history.once(StepWord::ApiReached, &[StepWord::Taken, StepWord::Restarted], 0, at);
                }
                Effect::Say(said) => end = self.note(now, said).or(end),
                Effect::Journal(_)
                | Effect::History(_)
                | Effect::Progress(_)
                | Effect::Status(_)
                | Effect::Candidacy(_)
                | Effect::Probe(_)
                | Effect::Drain(..)
                | Effect::Await(..)
                | Effect::Cancel
                | Effect::Guard
                | Effect::Gate(_)
                | Effect::Taints(_)
                | Effect::Look { .. } => {}
            }
        }
        if self.history.has_open() {
            self.note_facts(now);
            if let Some((step, status, text)) = end.or_else(|| self.silent_end()) {
                self.history.end(step, status, at, &text);
            }
        }
        told.extend(self.take_history().map(|it| Effect::History(Box::new(it))));
    }

    fn take_history(&mut self) -> Option<DrainHistory> {
        self.history.take_new(&self.node.boot_id, self.node.booted_at)
    }

    /// Keeps one thing that is said; gives the end that it tells of.
    fn note(&mut self, now: Mono, said: &Said) -> Option<(StepWord, DrainStatus, String)> {
        let at = self.node.wall(now);
        match said {
            Said::Taken(request) => {
                let boot_id = self.node.boot_id.clone();
                self.history.taken(request, &boot_id, at, self.floor.is_some());
            }
            Said::Cordoned(owner) => self.history.step(StepWord::Cordoned, 0, at, whose(*owner)),
            Said::Attempt(attempt, _) => self.history.step(StepWord::Attempt, *attempt, at, ""),
            Said::AttemptFailed(attempt, why) => {
                self.history.step(StepWord::AttemptFailed, *attempt, at, why);
            }
            Said::Void(why) => self.history.void(at, why),
            Said::Forced(order, _) => {
                if let Some(request) = self.requests.get(&order.requested_by) {
                    self.history.released(request.id(), &request.context, at);
                }
            }
            Said::Complete(_) => return Some((StepWord::Complete, DrainStatus::Complete, String::new())),
            Said::Skipped(why) => return Some((StepWord::Skipped, DrainStatus::Complete, why.clone())),
            Said::GivingUp(why) => return Some((StepWord::Failed, DrainStatus::FailedDrain, why.clone())),
            Said::Withdrawn => {
                let text = "all requests were withdrawn".to_owned();
                return Some((StepWord::Withdrawn, DrainStatus::NotRequested, text));
            }
            Said::Changing(..)
            | Said::Starting
            | Said::CordonFailed(..)
            | Said::BlockerChanged(_)
            | Said::PauseKept(..)
            | Said::Stirred(_)
            | Said::Left(_)
            | Said::HeldTooLong
            | Said::Gate(_)
            | Said::Repaired(_)
            | Said::Tainted(_)
            | Said::TaintAgain(..)
            | Said::NobodyLeft
            | Said::GivenBack
            | Said::LookFailed(_) => {}
        }
        None
    }

    /// How far the attempt is.
    fn note_facts(&mut self, now: Mono) {
        let status = self.run.status(self.floor);
        let left = self.all_left();
        // What has told nothing yet, as after a start in a pause, takes nothing away.
        let told = |pods: &&Progress| {
            (pods.counts, pods.evicted, pods.recordons) != (Counts::default(), 0, 0)
                || !pods.blockers.is_empty()
        };
        let done = matches!(self.run, Run::Holding { .. } | Run::Ended(End::Drained { .. }));
        if let Some(pods) = self.run.pods().filter(|it| done || told(it)).cloned() {
            let (blockers, counts, sums) = (self.blockers(&pods), self.counts(), self.sums());
            self.history.facts(counts, &blockers, sums);
        }
        self.history.stands(status, &left);
        if let Run::Draining { attempt, now: pods, .. } = &self.run
            && pods.phase == Phase::Proving
        {
            let attempt = *attempt;
            self.history.once(StepWord::Proving, &[StepWord::Attempt], attempt, self.node.wall(now));
        }
    }

    /// The end of a drain that nothing is said of: the run is over, and the record is not.
    fn silent_end(&self) -> Option<(StepWord, DrainStatus, String)> {
        let record = self.history.newest()?;
        let withdrawn = |why: &str| (StepWord::Withdrawn, DrainStatus::NotRequested, why.to_owned());
        match &self.run {
            Run::Taken { .. }
            | Run::Probing { .. }
            | Run::Cordoning { .. }
            | Run::Draining { .. }
            | Run::Pausing { .. }
            | Run::Holding { .. } => None,
            // After a start it is not known yet whether it goes on.
            Run::Ended(End::Resumed(status)) if status.is_under_way() => None,
            Run::Idle if !self.knows_requests() => None,
            Run::Idle => Some(withdrawn("this node takes no part in drains any more")),
            Run::Ended(End::FailedCordon(why)) => {
                Some((StepWord::Failed, DrainStatus::FailedCordon, why.clone()))
            }
            Run::Ended(End::Drained { .. } | End::Skipped(_) | End::FailedDrain { .. } | End::Resumed(_)) => {
                let answer = self.final_answer(record.id());
                let (status, skip) =
                    answer.map_or((DrainStatus::NotRequested, ""), |it| (it.status, &it.skip));
                Some(match status {
                    DrainStatus::Complete if skip.is_empty() => (StepWord::Complete, status, String::new()),
                    DrainStatus::Complete => (StepWord::Skipped, status, skip.to_owned()),
                    DrainStatus::FailedCordon | DrainStatus::FailedDrain => {
                        (StepWord::Failed, status, String::new())
                    }
                    DrainStatus::Unknown
                    | DrainStatus::NotSupported
                    | DrainStatus::NotRequested
                    | DrainStatus::Requested
                    | DrainStatus::Starting
                    | DrainStatus::Cordoned
                    | DrainStatus::DrainRetrying
                    | DrainStatus::Stranger(_) => withdrawn("its request was withdrawn"),
                })
            }
        }
    }

    /// What comes of the force file as things stand, in words.
    fn effect_of_force(&self) -> String {
        match &self.force {
            Force::Absent => String::new(),
            Force::Refused(why) => format!("refused: {why}"),
            Force::Order(order) if order.status == DrainStatus::Complete => {
                match self.requests.get(&order.requested_by).map(|it| self.final_answer(it.id())) {
                    None => "released nothing: no such request waits".to_owned(),
                    Some(Some(answer)) if answer.status == DrainStatus::Complete => {
                        "released nothing: that request was answered already".to_owned()
                    }
                    Some(_) => "waits for this node to be known as a member of a cluster".to_owned(),
                }
            }
            Force::Order(order) if order.status == DrainStatus::NotSupported => {
                "as if this node were in no cluster, while the file stands".to_owned()
            }
            Force::Order(order) => format!("{order} is shown while the file stands"),
        }
    }
}
