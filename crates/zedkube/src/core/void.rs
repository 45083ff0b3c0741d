//! How long COMPLETE stands: the drained node is looked at again and again, and what is no longer so is taken back
//! (goals P8).
//!
//! COMPLETE ends with the boot, with an uncordon, with a pod that a drain would take away, and with age. Whoever
//! still waits is drained for anew, under the same request.
//!
//! Not here: the look itself. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::StickyAction;
use step::{Fault, Mono, planted};
use topics::{Answer, CordonOwner, DrainStatus, Requester};

use super::facts::{Effect, Said, Seen, Stayer};
use super::machine::Zedkube;
use super::run::{Care, End, Run};

/// Whether the drained node is watched between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// It is not; the next look that finds all well begins it.
    Off,
    /// It is.
    On,
    /// Something has happened there while a look was under way that may not have seen it.
    Stirred,
    /// Something has happened there and is looked at. One more look in its turn comes before the next watch, so
    /// that what a rule lets pass, coming and going, is not looked at in a circle.
    Spent,
}

/// COMPLETE after a drain, not after a skip.
pub(super) fn is_drained(answer: &Answer) -> bool {
    answer.status == DrainStatus::Complete && answer.skip.is_empty()
}

/// An operation that acts on COMPLETE; a person has the node for as long as it takes.
fn is_operation(who: Requester) -> bool {
    who != Requester::Operator
}

impl Zedkube {
    /// Takes from what was seen the pods that a rule lets pass, and all pods where nobody was told of a drain.
    pub(super) fn sifted(&self, seen: Seen) -> Seen {
        let Seen::Peopled(owner, pods) = seen else { return seen };
        let drained = self.keeps_cordon() && self.answers.iter().any(is_drained) && !planted(Fault::Peopled);
        let counts = |it: &Stayer| drained && !self.lets_pass(it);
        let pods: Vec<Stayer> = pods.into_iter().filter(counts).collect();
        match (pods.is_empty(), owner) {
            (false, _) => Seen::Peopled(owner, pods),
            (true, CordonOwner::Ours) => Seen::Ours,
            (true, CordonOwner::Foreign) => Seen::Foreign,
            (true, CordonOwner::None) => Seen::Open,
        }
    }

    /// By name, or as one more pod of a workload that comes back.
    fn lets_pass(&self, pod: &Stayer) -> bool {
        let named = format!("{}/{}: it stays", pod.namespace, pod.name);
        if self.left.iter().any(|text| text.starts_with(&named)) {
            return true;
        }
        let workload = (pod.namespace.clone(), pod.workload.clone());
        let returns = self.run.pods().and_then(|pods| pods.marks.returns.get(&workload)).copied();
        self.limits.sticky_then == StickyAction::Leave
            && returns.is_some_and(|times| times >= self.limits.sticky_returns.max(1))
    }

    /// The node was just found cordoned, and drained as far as somebody was told so. Returns when it is looked at
    /// next.
    pub(super) fn found_well(&mut self, now: Mono, out: &mut Vec<Effect>) -> Care {
        let mut pause = self.limits.complete_poll();
        self.guard = match self.guard {
            Guard::Off => {
                out.push(Effect::Guard);
                Guard::On
            }
            Guard::On => Guard::On,
            Guard::Stirred => {
                pause = Duration::ZERO;
                Guard::Spent
            }
            Guard::Spent => Guard::Off,
        };
        Care::Due(now + pause)
    }

    /// Something has happened on the drained node: it is looked at.
    pub(super) fn stirred(&mut self, now: Mono, what: String, out: &mut Vec<Effect>) {
        if self.guard != Guard::On {
            return;
        }
        out.push(Effect::Say(Said::Stirred(what)));
        self.guard = match self.care {
            Care::Looking => Guard::Stirred,
            Care::Due(_) | Care::Done => {
                if self.keeps_cordon() {
                    self.care = Care::Due(now);
                }
                Guard::Spent
            }
        };
    }

    /// When COMPLETE of operations that have not acted on it is too old. After a start not before a new drain can
    /// take its place: NOTREQUESTED would be said while a request stands.
    pub(super) fn expires(&self) -> Option<Mono> {
        let aging = |it: &Answer| it.status == DrainStatus::Complete && is_operation(it.requested_by);
        let age = self.limits.complete_age();
        let some = age > Duration::ZERO
            && (self.can_drain() || planted(Fault::Aging))
            && self.answers.iter().any(aging);
        self.complete_at.filter(|_| some).map(|at| at + age)
    }

    pub(super) fn expire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.expires().is_none_or(|at| now < at) {
            return;
        }
        let secs = self.limits.complete_age().as_secs();
        let why = format!("nobody has acted on it for {secs} s");
        self.take_back(why, |it| is_operation(it.requested_by), out);
    }

    /// The drained node is no longer what it was: whoever still waits gets a new drain.
    pub(super) fn void(&mut self, now: Mono, seen: &Seen, out: &mut Vec<Effect>) {
        self.care = Care::Done;
        match seen {
            Seen::Peopled(_, pods) => {
                let name = pods.first().map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default();
                self.take_back(format!("pod {name} has come to the drained node"), is_drained, out);
            }
            Seen::Open | Seen::Foreign | Seen::Ours | Seen::NotReady => {
                self.cordon = CordonOwner::None;
                self.take_back("somebody has uncordoned the drained node".to_owned(), |_| true, out);
            }
        }
        self.settle(now, out);
    }

    fn take_back(&mut self, why: String, which: impl Fn(&Answer) -> bool, out: &mut Vec<Effect>) {
        let complete = |it: &Answer| it.status == DrainStatus::Complete;
        if !self.answers.iter().any(complete) {
            return;
        }
        out.push(Effect::Say(Said::Void(why)));
        self.answers.retain(|it| !which(it));
        if !self.run.is_active() && !self.answers.iter().any(complete) {
            self.left.clear();
            self.run = Run::Ended(End::Resumed(DrainStatus::NotRequested));
        }
    }
}
