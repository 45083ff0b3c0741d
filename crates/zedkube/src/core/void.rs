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

use super::care::{Voided, Wanted};
use super::facts::{Effect, Said, Seen, Stayer};
use super::machine::Zedkube;
use super::run::{End, Run};

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
    pub(super) fn sifted(&self, seen: Seen, wanted: Wanted) -> Seen {
        let Seen::Peopled(owner, pods) = seen else { return seen };
        let drained = wanted == Wanted::Drained && !planted(Fault::Peopled);
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
        self.node.limits.sticky_then == StickyAction::Leave
            && returns.is_some_and(|times| times >= self.node.limits.sticky_returns.max(1))
    }

    /// When COMPLETE of operations that have not acted on it is too old. After a start not before a new drain can
    /// take its place: NOTREQUESTED would be said while a request stands.
    pub(super) fn expires(&self) -> Option<Mono> {
        let aging = |it: &Answer| it.status == DrainStatus::Complete && is_operation(it.requested_by);
        let age = self.node.limits.complete_age();
        let some = age > Duration::ZERO
            && (self.can_drain() || planted(Fault::Aging))
            && self.answers.iter().any(aging);
        self.complete_at.filter(|_| some).map(|at| at + age)
    }

    pub(super) fn expire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.expires().is_none_or(|at| now < at) {
            return;
        }
        let secs = self.node.limits.complete_age().as_secs();
        let why = format!("nobody has acted on it for {secs} s");
        self.take_back(why, |it| is_operation(it.requested_by), out);
    }

    /// The drained node is no longer what it was: whoever still waits gets a new drain.
    pub(super) fn void(&mut self, now: Mono, voided: &Voided, out: &mut Vec<Effect>) {
        match voided {
            Voided::PodCame(pod) => {
                self.take_back(format!("pod {pod} has come to the drained node"), is_drained, out);
            }
            Voided::Uncordoned => {
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
