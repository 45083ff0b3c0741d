//! What the container runtime of the node says of pods that take longer to end than they may: when it is asked, and what a
//! pod is of which no container lives any more.
//!
//! Such a pod counts as gone, whatever keeps its object: a finalizer, a volume, a kubelet that has died. It takes two answers
//! in a row, as a kubelet that has not heard of the deletion may be about to start a container again; of a pod with volumes
//! it takes as long as volumes may take to be detached, as the kubelet unmounts them after its containers have ended. Those
//! that count as gone are asked for again as long as their objects are there. Not here: whether an
//! answer is believed (`crate::containers`). Source: goals D9.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::{Mono, say};

use super::pod_table::PodTable;
use super::track::PodState;
use super::volumes::VOLUMES_LIMIT;
use super::words::Effect;
use kubeapi::names::PodUid;

/// Least time between the two answers that make a pod count as gone.
const APART: Duration = Duration::from_secs(5);

impl PodTable {
    /// Since when it is to be asked: for the first pod that is overdue, else for one that counts as gone by its word.
    pub(super) fn doubtful(&self) -> Option<Mono> {
        let objects = || self.book.in_state(&PodState::ObjectOnly).filter_map(|it| it.without).min();
        self.book.next_overdue().or_else(objects)
    }

    /// Why it is not known whether pods that are overdue still run; empty when it is, and while none is.
    pub(super) fn runtime_trouble(&self, now: Mono) -> String {
        let late = self.book.overdue_by(now).next().is_some();
        if late { self.runtime.trouble.clone() } else { String::new() }
    }

    /// The pods of the node of which no container lives, or why they are not known.
    pub(super) fn containers(
        &mut self,
        now: Mono,
        without: &Result<BTreeSet<PodUid>, String>,
        effects: &mut Vec<Effect>,
    ) {
        self.runtime.answered(now, without.as_ref().err());
        self.live_again(now, without, effects);
        let overdue: Vec<PodUid> = self.book.overdue_by(now).cloned().collect();
        for uid in overdue {
            let has_none = without.as_ref().is_ok_and(|all| all.contains(&uid));
            let lives = without.is_ok() && !has_none;
            let gone = self.book.change(&uid, |track| {
                track.lives = lives;
                let since = track.without.get_or_insert(now);
                // A kubelet keeps the object of one with volumes until they are unmounted: who serves them must not go before.
                let least = if track.facts.claims.is_empty() { APART } else { VOLUMES_LIMIT };
                let gone = has_none && now.since(*since) >= least;
                if gone {
                    track.state = PodState::ObjectOnly;
                } else if !has_none {
                    track.without = None;
                }
                gone.then(|| track.facts.pod.clone())
            });
            if let Some(pod) = gone.flatten() {
                self.bump();
                say!(
                    effects,
                    warn,
                    "nodedrain-step:pod-evict-progress no container of the pod runs; it counts as gone, though its object \
                     is there: {pod}, uid {}",
                    pod.uid
                );
            }
        }
    }

    /// Of those that counted as gone, a container runs again.
    fn live_again(
        &mut self,
        now: Mono,
        without: &Result<BTreeSet<PodUid>, String>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(without) = without else { return };
        let objects = self.book.all().filter(|(_, track)| track.state == PodState::ObjectOnly);
        let lives = objects.filter(|(uid, _)| !without.contains(uid)).map(|(uid, _)| uid.clone());
        for uid in lives.collect::<Vec<_>>() {
            self.book.change(&uid, |track| {
                (track.without, track.lives) = (None, true);
                track.going(now);
            });
            self.bump();
            self.settle(now, &uid, effects);
        }
    }
}
