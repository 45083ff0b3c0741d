//! The limits for a pod, the attempt and the whole drain, and what is done about a pod that is over its own.
//!
//! Not here: the limits for volumes (`volumes`), an attempt that fails by its own (`attempt`), a drain that does (zedkube). Source: goals D15.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use super::pod_table::PodTable;
use super::words::{Effect, NeverReadyAction, PodAction};
use kubeapi::names::PodUid;

/// How long a pod that was never Ready is held by a budget, from its first eviction call, before a rule may delete it.
const NEVER_READY_HOLD: Duration = Duration::from_mins(10);

impl PodTable {
    /// Does what is due about pods that are over their time. The reason, when the attempt fails on it.
    pub(super) fn enforce(&mut self, now: Mono, effects: &mut Vec<Effect>) -> Option<String> {
        if let Some(after) = self.rules.pod.after {
            while let Some((asked, uid)) = self.book.first_in_time().cloned() {
                if asked + after > now {
                    break;
                }
                let pod = self.book.change(&uid, |track| {
                    track.over = true;
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
        None
    }

    /// Has the pods deleted that were never Ready and that a budget holds, when their hold time is over and the rule says
    /// so (goals D8).
    fn remove_never_ready(&mut self, now: Mono) {
        if self.rules.never_ready != NeverReadyAction::Delete {
            return;
        }
        let over = self.book.never_ready.iter().take_while(|(asked, _)| *asked + NEVER_READY_HOLD <= now);
        let held =
            |uid: &PodUid| self.book.get(uid).is_some_and(|it| it.is_held_by_budget() && it.may_be_deleted());
        let over: Vec<PodUid> = over.map(|(_, uid)| uid.clone()).filter(held).collect();
        for uid in over {
            let secs = NEVER_READY_HOLD.as_secs();
            let why = format!("deleted whatever its budgets say: never Ready, and held for {secs} s");
            self.book.change(&uid, |track| track.delete_by_rule(now, why));
        }
    }

    /// When [`PodTable::enforce`] has something to do.
    pub(super) fn next_limit(&self, now: Mono) -> Option<Mono> {
        let pod = self.rules.pod.after.and_then(|after| Some(self.book.first_in_time()?.0 + after));
        let deletes = self.rules.never_ready == NeverReadyAction::Delete;
        let mut holds = self.book.never_ready.iter().filter(|_| deletes).map(|it| it.0 + NEVER_READY_HOLD);
        pod.into_iter().chain(holds.find(|at| *at > now)).min()
    }
}
