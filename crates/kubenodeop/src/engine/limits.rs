//! The limits for a pod, the attempt and the whole drain, and what is done about pods when one is over.
//!
//! Not here: the limits for volumes (`volumes`), an attempt that fails by its own (`attempt`), a drain that does (zedkube). Source: goals D15.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use super::pod_table::PodTable;
use super::track::{Over, PodTrack};
use super::words::{AttemptRules, Effect, NeverReadyAction, PodAction};
use kubeapi::names::PodUid;

impl AttemptRules {
    /// How long an attempt lasts before it fails on that.
    pub(crate) fn end(&self) -> Duration {
        if self.attempt_then == PodAction::GiveUp { self.attempt } else { Duration::MAX }
    }

    /// When a stage of virtual machines that `began` fails the attempt: they are not deleted, so `delete` is `give-up` here.
    pub(crate) fn machines_end(&self, began: Mono, drain: Option<Mono>) -> Mono {
        let attempt = began + self.attempt;
        let own = Some(attempt).filter(|_| self.attempt_then != PodAction::Wait);
        let drain = drain.zip(self.drain.after).filter(|_| self.drain.then == PodAction::Delete);
        // An attempt that begins after it has its own time.
        let drain =
            drain.map(|(since, after)| since + after).map(|end| if end > began { end } else { attempt });
        own.into_iter().chain(drain).min().unwrap_or(began + Duration::MAX)
    }

    /// After how long the attempt is given up, or the whole drain; `None` where neither is.
    pub(crate) fn given_up_after(&self) -> Option<Duration> {
        let attempt = Some(self.attempt).filter(|_| self.attempt_then == PodAction::GiveUp);
        let drain = self.drain.after.filter(|_| self.drain.then == PodAction::GiveUp);
        attempt.into_iter().chain(drain).min()
    }

    /// What is done about a pod that is over this limit.
    pub(super) fn action(&self, over: Over) -> PodAction {
        match over {
            Over::Pod => self.pod.then,
            Over::Attempt => self.attempt_then,
            Over::Drain => self.drain.then,
        }
    }
}

impl PodTable {
    /// The limit that a pod is over: one that has it deleted before others.
    pub(super) fn over(&self, track: &PodTrack) -> Option<Over> {
        // Nothing is done about a pod that was never asked.
        let asked = self.wholes.over().filter(|_| track.asked.is_some());
        let all: Vec<Over> = track.over.into_iter().chain(asked).collect();
        let deletes = all.iter().find(|over| self.rules.action(**over) == PodAction::Delete);
        deletes.or(all.first()).copied()
    }

    /// Does what is due about pods that are over their time. The reason, when the attempt fails on it.
    pub(super) fn enforce(&mut self, now: Mono, effects: &mut Vec<Effect>) -> Option<String> {
        if let Some(after) = self.rules.pod.after {
            while let Some((asked, uid)) = self.book.first_in_time().cloned() {
                if asked + after > now {
                    break;
                }
                let pod = self.book.change(&uid, |track| {
                    track.over = Some(Over::Pod);
                    track.facts.pod.clone()
                })?;
                if self.rules.pod.then == PodAction::GiveUp {
                    let secs = after.as_secs();
                    return Some(format!("pod {pod} has not left within {secs} s, the limit for a pod"));
                }
                self.settle(now, &uid, effects);
            }
        }
        self.remove_never_ready(now);
        if self.wholes.follow(now) {
            let here = self.book.all().filter(|(_, track)| track.is_here());
            let uids: Vec<PodUid> = here.map(|(uid, _)| uid.clone()).collect();
            for uid in uids {
                self.settle(now, &uid, effects);
            }
        }
        None
    }

    /// Has the pods deleted that were never Ready and that a budget holds, when their hold time is over and the rule says
    /// so (goals D8).
    fn remove_never_ready(&mut self, now: Mono) {
        let Some(after) = self.hold_time() else { return };
        let over = self.book.never_ready.iter().take_while(|(asked, _)| *asked + after <= now);
        let held =
            |uid: &PodUid| self.book.get(uid).is_some_and(|it| it.is_held_by_budget() && it.may_be_deleted());
        let over: Vec<PodUid> = over.map(|(_, uid)| uid.clone()).filter(held).collect();
        for uid in over {
            let secs = after.as_secs();
            let why = format!("deleted whatever its budgets say: never Ready, and held for {secs} s");
            self.book.change(&uid, |track| track.delete_by_rule(now, why));
        }
    }

    /// How long a pod that was never Ready is held, where it is deleted then.
    fn hold_time(&self) -> Option<Duration> {
        self.rules.never_ready.after.filter(|_| self.rules.never_ready.then == NeverReadyAction::Delete)
    }

    /// When [`PodTable::enforce`] has something to do.
    pub(super) fn next_limit(&self, now: Mono) -> Option<Mono> {
        let pod = self.rules.pod.after.and_then(|after| Some(self.book.first_in_time()?.0 + after));
        let hold = self.hold_time();
        let hold =
            hold.and_then(|after| self.book.never_ready.iter().map(|it| it.0 + after).find(|at| *at > now));
        pod.into_iter().chain(hold).chain(self.wholes.next_due()).min()
    }
}
