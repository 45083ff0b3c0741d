//! What must never happen, judged from facts alone: never early, once and not twice, each COMPLETE earned.
//!
//! Recorded are when the node was proved empty under its cordon, for which requests, which skips are
//! documented, and what was released by which agent.

use std::collections::{BTreeMap, BTreeSet};

use agent::device::MachineOperation;
use topics::{
    Answer, DeviceOp, DrainStatus, NodeDrainRequest, NodeDrainStatus, PendingState, RequestId, Requester,
};
use zedkube::core::{Event, Force};

use super::k3s::REQUEST;
use super::topics::{Fact, Leave, Link, REQUESTS, Who};
use super::world::State;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Ghost {
    /// Requests with a proof: the node was empty, and has been cordoned ever since.
    pub(crate) drained: BTreeSet<RequestId>,
    /// Requests with a documented skip.
    pub(crate) skipped: BTreeSet<RequestId>,
    /// Requests that zedkube had answered when it restarted in this boot.
    pub(crate) resumes: BTreeSet<RequestId>,
    /// A preflight was made, and the last one was not clean.
    pub(crate) unfit: bool,
    pub(crate) failed_attempts: u32,
    /// Orders of force files that an agent may still act on.
    pub(crate) forced: Vec<NodeDrainStatus>,
    /// The node has left its cluster, or a person has forced something, in this boot.
    pub(crate) excused: bool,
    /// The node is paused, and no drain had begun when zedkube read that.
    pub(crate) shut: bool,
    /// The drain was undone, and zedkube has not seen it yet.
    pub(crate) undone: bool,
    /// Operations released in this boot: by a drain, or for another documented reason.
    pub(crate) released: BTreeMap<&'static str, Release>,
    pub(crate) done: BTreeSet<(DeviceOp, u32)>,
    pub(crate) wrong: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    Drained,
    /// A documented skip, or nothing to drain.
    Without,
}

impl Ghost {
    pub(crate) fn boot(&mut self) {
        let (done, wrong) = (std::mem::take(&mut self.done), self.wrong.take());
        *self = Self { done, wrong, ..Self::default() };
    }

    pub(crate) fn keep_only(&mut self, standing: &[RequestId]) {
        self.drained.retain(|it| standing.contains(it));
        self.skipped.retain(|it| standing.contains(it));
        self.resumes.retain(|it| standing.contains(it));
    }

    /// The node is schedulable: earlier proofs no longer hold.
    pub(crate) fn open(&mut self) {
        self.drained.clear();
        self.skipped.clear();
    }
}

/// Its place among [`REQUESTS`].
fn place(by: Requester) -> usize {
    match by {
        Requester::Update => 1,
        Requester::Operator | Requester::NodeMaintenance => 2,
        Requester::K3sUpdate => REQUEST,
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => 0,
    }
}

impl State {
    pub(crate) fn wrong(&mut self, what: impl Into<String>) {
        self.under().ghost.wrong.get_or_insert(what.into());
    }

    pub(crate) fn forced(&self, by: Requester) -> bool {
        let proceeds = |it: &NodeDrainStatus| {
            matches!(it.status, DrainStatus::Unknown | DrainStatus::NotSupported)
                || it.status == DrainStatus::Complete && it.requested_by == by
        };
        self.under.ghost.forced.iter().any(proceeds)
    }

    pub(crate) fn judge_answer(&mut self, answer: &Answer) {
        let nth = place(answer.requested_by);
        if self.request_of(nth).is_none_or(|it| it.id() != answer.id()) {
            return;
        }
        let ghost = &self.under.ghost;
        if answer.status == DrainStatus::Complete {
            let earned = if answer.skip.is_empty() {
                ghost.drained.contains(&answer.id())
            } else {
                ghost.skipped.contains(&answer.id()) || self.forced(answer.requested_by)
            };
            if !earned {
                self.wrong(format!(
                    "P3: zedkube says COMPLETE to {} ({:?}), which is not earned",
                    answer.context, answer.skip
                ));
            }
        } else if answer.status == DrainStatus::FailedDrain {
            let (tried, most) = (ghost.failed_attempts, self.scenario.kube.drain_tries);
            // One that was given before stays while another request has its drain.
            let before = self.disk.run.progress.as_ref().is_some_and(|it| it.answers.contains(answer));
            if tried < most && !before {
                self.wrong(format!("gives up after {tried} of {most} attempts"));
            }
        }
    }

    pub(crate) fn judge_command(&mut self, op: DeviceOp) {
        let word = op.word();
        if self.under.ghost.released.contains_key(word) {
            return;
        }
        let pending = self.disk.pending.get(&op).cloned().unwrap_or_default();
        // In no cluster that zedagent knows there is nothing to drain.
        let in_none = self.disk.run.member.is_none_or(|it| !it.0) && !self.is_to_leave(Link::LeaveToZedagent);
        let release = if pending.skip.contains("in no cluster") {
            in_none.then_some(Release::Without)
        } else if pending.skip.is_empty() {
            // The next operation may share an earlier one's drain.
            let shared = self.under.ghost.released.values().any(|it| *it == Release::Drained);
            let request =
                self.request_of(0).filter(|it| it.context == word || shared).map(NodeDrainRequest::id);
            if request.is_some_and(|id| self.under.ghost.drained.contains(&id)) && self.under.node.drained {
                Some(Release::Drained)
            } else {
                (in_none || self.has_left()).then_some(Release::Without)
            }
        } else {
            let request = self.request_of(0).map(NodeDrainRequest::id);
            let documented = request.is_some_and(|id| self.under.ghost.skipped.contains(&id))
                || self.forced(Requester::DeviceOp)
                || pending.skip.starts_with("zedkube has said ");
            documented.then_some(Release::Without)
        };
        // A person who forces it names it.
        if !self.forced(Requester::DeviceOp) {
            self.judge_start(Who::Zedagent, "an operation goes ahead");
        }
        match release {
            Some(release) => drop(self.under().ghost.released.insert(word, release)),
            None => self.wrong(format!("P3: zedagent commands {word} undrained (skip {:?})", pending.skip)),
        }
    }

    /// Whether the node has yet to leave its cluster, and the reader of `link` knows that, or could have.
    fn is_to_leave(&self, link: Link) -> bool {
        let heard = self.heard[link.index()].is_some();
        self.disk.leave != Leave::Outside && (!heard || !self.has_news(link))
    }

    /// Whether the node has left its cluster: it has nothing to drain until it joins again.
    fn has_left(&self) -> bool {
        self.under.ghost.excused && self.disk.leave == Leave::Outside
    }

    pub(crate) fn judge_switch(&mut self, why: Option<&requester::ProceedReason>) {
        use requester::ProceedReason;
        if !self.switch_is_wanted() {
            self.wrong("baseosmgr switches to an image that nobody wants");
        }
        if !self.forced(Requester::Update) {
            self.judge_start(Who::Baseosmgr, "an image is switched to");
        }
        let id = self.request_of(1).map(NodeDrainRequest::id);
        let ghost = &self.under.ghost;
        let release = match why {
            Some(ProceedReason::Complete { skip }) if skip.is_empty() => {
                let drained = id.is_some_and(|id| ghost.drained.contains(&id)) && self.under.node.drained;
                let without = self.has_left().then_some(Release::Without);
                if drained { Some(Release::Drained) } else { without }
            }
            Some(ProceedReason::Complete { .. }) => {
                let skipped =
                    id.is_some_and(|id| ghost.skipped.contains(&id)) || self.forced(Requester::Update);
                skipped.then_some(Release::Without)
            }
            Some(ProceedReason::NotSupported | ProceedReason::Early) => {
                let in_none = !self.disk.run.member.is_some_and(|it| it.0) || ghost.excused;
                (in_none && !self.is_to_leave(Link::LeaveToBaseosmgr)).then_some(Release::Without)
            }
            Some(ProceedReason::Silent { .. }) => Some(Release::Without),
            Some(ProceedReason::Forced(_)) => self.forced(Requester::Update).then_some(Release::Without),
            None => None,
        };
        match release {
            Some(release) => drop(self.under().ghost.released.insert("switch", release)),
            None => self.wrong(format!("P3: baseosmgr switches undrained ({why:?})")),
        }
    }

    pub(crate) fn judge_operation(&mut self, operation: MachineOperation) {
        let ghost = &self.under.ghost;
        let by_command = ghost.released.get(operation.word());
        let by_switch = ghost.released.get("switch").filter(|_| operation == MachineOperation::Reboot);
        match by_command.or(by_switch) {
            None => self.wrong(format!("P3: {} that nobody released", operation.word())),
            Some(Release::Drained) if !self.under.node.drained && !ghost.excused && !ghost.undone => {
                self.wrong(format!("P3: {} of a node that was given back", operation.word()));
            }
            Some(Release::Drained | Release::Without) => {}
        }
    }

    pub(crate) fn judge_done(&mut self, operation: MachineOperation) {
        if operation != MachineOperation::Reboot
            || !self.under.ghost.released.contains_key(DeviceOp::Reboot.word())
        {
            return;
        }
        let Some(counter) = self.disk.pending.get(&DeviceOp::Reboot).map(|it| it.counter) else { return };
        if !self.under().ghost.done.insert((DeviceOp::Reboot, counter)) {
            self.wrong(format!("R3: reboot {counter} is carried out twice"));
        }
    }

    /// The force file is removed, because its order is carried out.
    pub(crate) fn judge_used_order(&mut self, by: Requester) {
        let Some(order) = self.disk.force else { return };
        let commanded = self.disk.pending.values().any(|it| it.state == PendingState::Commanded);
        let switched = self.under.ghost.released.contains_key("switch");
        let used = if by == Requester::Update { switched } else { commanded };
        if order.requested_by != by || !used {
            self.wrong(format!(
                "P9: the order {order} is taken away by {by:?}, for whom it is not, or before its time"
            ));
        }
    }

    fn heard_request(&self, link: Link) -> Option<&NodeDrainRequest> {
        self.heard[link.index()].as_ref()?.iter().find_map(|fact| {
            let Fact::Zedkube(Event::Request(_, request)) = fact else { return None };
            request.as_ref()
        })
    }

    pub(crate) fn judge_status(&mut self, status: NodeDrainStatus) {
        let links = || REQUESTS.into_iter().filter(|it| it.is_used(&self.scenario));
        let idle = matches!(status.status, DrainStatus::NotRequested | DrainStatus::NotSupported);
        let all_read = links().all(|link| self.heard[link.index()].is_some());
        let asked = links().any(|link| self.heard_request(link).is_some());
        let excused = self.under.ghost.excused;
        if status.status == DrainStatus::NotRequested && all_read && asked && !excused {
            self.wrong("P7: NOTREQUESTED is said while a request stands");
        }
        let standing = |id: &RequestId| self.disk.run.requests.iter().flatten().any(|it| it.id() == *id);
        let under_way = self.under.ghost.resumes.iter().any(standing);
        if idle && under_way && !all_read && !excused {
            self.wrong(format!("R7: {status} is said by a zedkube that has forgotten its drain"));
        }
    }

    /// The force file that zedkube has read is the present one.
    pub(crate) fn judge_order(&mut self) {
        let order = self.heard[Link::ForceToZedkube.index()].as_ref().and_then(|facts| {
            facts.iter().find_map(|fact| {
                let Fact::Zedkube(Event::Force(Force::Order(order))) = fact else { return None };
                Some(*order)
            })
        });
        if let Some(order) =
            order.filter(|it| it.status != DrainStatus::Complete || self.asks(it.requested_by))
            && self.disk.run.status.is_some_and(|status| status != order)
        {
            self.wrong(format!("P9: another status than {order} is said, which the force file orders"));
        }
    }

    /// Whether zedkube knows a request of `by`.
    fn asks(&self, by: Requester) -> bool {
        self.heard_request(REQUESTS[place(by)]).is_some_and(|it| it.requested_by == by)
    }

    fn switch_is_wanted(&self) -> bool {
        let heard = |link: Link| self.heard[link.index()].iter().flat_map(|it| it.iter());
        let image = heard(Link::ImageToBaseosmgr)
            .any(|it| matches!(it, Fact::Baseosmgr(baseosmgr::core::Event::Config { value: Some(_), .. })));
        let saved = self.disk.saved.fallback;
        // Until a zedagent that has started again has read the config, what was wanted before counts.
        let mut counters = heard(Link::FallbackToBaseosmgr).peekable();
        let kept = counters.peek().is_none() && Some(self.disk.config.fallback) != saved;
        let fallback = counters
            .any(|it| matches!(it, Fact::Baseosmgr(baseosmgr::core::Event::FallbackCounter(it)) if Some(*it) != saved));
        image || kept || fallback
    }
}
