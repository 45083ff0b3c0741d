//! What must never happen, judged by an onlooker who trusts nobody's word: never early (goals P3), once and not twice
//! (goals R3), each COMPLETE earned (goals P5, P8).
//!
//! The onlooker knows when the node was proved empty under its cordon, for which requests that was, which skips are
//! documented, and who released what.

use std::collections::{BTreeMap, BTreeSet};

use agent::device::Operation;
use topics::{Answer, DeviceOp, DrainStatus, NodeDrainStatus, RequestId, Requester};

use super::world::State;

/// What the onlooker knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Ghost {
    /// Requests for which the node was proved empty; it has been cordoned ever since.
    pub(crate) drained: BTreeSet<RequestId>,
    /// Requests that may go without a drain: their skip is documented.
    pub(crate) skipped: BTreeSet<RequestId>,
    /// The newest probe found no API.
    pub(crate) away: bool,
    /// Attempts of the run at work that came to nothing.
    pub(crate) failed_attempts: u32,
    /// Orders of force files, as long as somebody may still act on them.
    pub(crate) forced: Vec<NodeDrainStatus>,
    /// The node has left its cluster, or a person has touched its cordon, or forced something, in this boot.
    pub(crate) excused: bool,
    /// Operations that were released in this boot: by a drain, or for another documented reason.
    pub(crate) released: BTreeMap<&'static str, Release>,
    /// Counters whose operation was carried out.
    pub(crate) done: BTreeSet<(DeviceOp, u32)>,
    /// What should never have happened.
    pub(crate) wrong: Option<String>,
}

/// Why an operation may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// The node was drained for it.
    Drained,
    /// A documented skip, or nothing to drain.
    Without,
}

impl Ghost {
    /// What was true of a boot ends with it.
    pub(crate) fn boot(&mut self) {
        let (done, wrong) = (std::mem::take(&mut self.done), self.wrong.take());
        *self = Self { done, wrong, ..Self::default() };
    }

    /// Requests that are gone never come back.
    pub(crate) fn keep_only(&mut self, standing: &[RequestId]) {
        self.drained.retain(|it| standing.contains(it));
        self.skipped.retain(|it| standing.contains(it));
    }

    /// The node is open: whatever was proved is so no longer.
    pub(crate) fn open(&mut self) {
        self.drained.clear();
        self.skipped.clear();
    }
}

impl State {
    pub(crate) fn wrong(&mut self, what: impl Into<String>) {
        self.under().ghost.wrong.get_or_insert(what.into());
    }

    fn forced(&self, by: Requester) -> bool {
        let proceeds = |it: &&NodeDrainStatus| match it.status {
            DrainStatus::Complete => it.requested_by == by,
            DrainStatus::Unknown | DrainStatus::NotSupported => true,
            DrainStatus::NotRequested
            | DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::FailedCordon
            | DrainStatus::DrainRetrying
            | DrainStatus::FailedDrain
            | DrainStatus::Stranger(_) => false,
        };
        self.under.ghost.forced.iter().any(|it| proceeds(&it))
    }

    /// zedkube says COMPLETE to a request.
    pub(crate) fn judge_answer(&mut self, answer: &Answer) {
        let nth = usize::from(answer.requested_by == Requester::Update);
        let stands = self.request_of(nth).is_some_and(|it| it.id() == answer.id());
        if !stands {
            return;
        }
        let ghost = &self.under.ghost;
        match answer.status {
            DrainStatus::Complete => {
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
            }
            DrainStatus::FailedDrain => {
                let (tried, most) = (ghost.failed_attempts, self.scenario.kube.drain_tries);
                if tried < most {
                    self.wrong(format!("D-K1: gives up after {tried} of {most} attempts"));
                }
            }
            DrainStatus::Unknown
            | DrainStatus::NotSupported
            | DrainStatus::NotRequested
            | DrainStatus::Requested
            | DrainStatus::Starting
            | DrainStatus::Cordoned
            | DrainStatus::FailedCordon
            | DrainStatus::DrainRetrying
            | DrainStatus::Stranger(_) => {}
        }
    }

    /// zedagent tells nodeagent to carry `op` out.
    pub(crate) fn judge_command(&mut self, op: DeviceOp) {
        let word = op.word();
        if self.under.ghost.released.contains_key(word) {
            return;
        }
        let pending = self.disk.pending.get(&op).cloned().unwrap_or_default();
        let release = if pending.skip.is_empty() {
            let request =
                self.request_of(0).filter(|it| it.context == word).map(topics::NodeDrainRequest::id);
            if request.is_some_and(|id| self.under.ghost.drained.contains(&id)) && self.under.node.drained {
                Some(Release::Drained)
            } else {
                // In no cluster there is nothing to drain.
                (!self.zedagent_knows_a_cluster()).then_some(Release::Without)
            }
        } else {
            let request = self.request_of(0).map(topics::NodeDrainRequest::id);
            let documented = request.is_some_and(|id| self.under.ghost.skipped.contains(&id))
                || self.forced(Requester::DeviceOp)
                || pending.skip.contains("said nothing");
            documented.then_some(Release::Without)
        };
        match release {
            Some(release) => drop(self.under().ghost.released.insert(word, release)),
            None => self.wrong(format!("P3: zedagent commands {word} undrained (skip {:?})", pending.skip)),
        }
    }

    /// Whether zedagent was told that this node belongs to a cluster.
    fn zedagent_knows_a_cluster(&self) -> bool {
        self.disk.run.member == Some(true)
    }

    /// baseosmgr switches to the other image.
    pub(crate) fn judge_switch(&mut self, why: Option<&baseosmgr::core::Why>) {
        use baseosmgr::core::Why;
        let id = self.request_of(1).map(topics::NodeDrainRequest::id);
        let ghost = &self.under.ghost;
        let release = match why {
            Some(Why::Complete { skip }) if skip.is_empty() => {
                let drained = id.is_some_and(|id| ghost.drained.contains(&id)) && self.under.node.drained;
                drained.then_some(Release::Drained)
            }
            Some(Why::Complete { .. }) => {
                let skipped =
                    id.is_some_and(|id| ghost.skipped.contains(&id)) || self.forced(Requester::Update);
                skipped.then_some(Release::Without)
            }
            Some(Why::NotSupported | Why::Early) => {
                (self.disk.run.member != Some(true) || ghost.excused).then_some(Release::Without)
            }
            Some(Why::Silent { .. }) => Some(Release::Without),
            Some(Why::Forced(_)) => self.forced(Requester::Update).then_some(Release::Without),
            None => None,
        };
        match release {
            Some(release) => drop(self.under().ghost.released.insert("switch", release)),
            None => self.wrong(format!("P3: baseosmgr switches undrained ({why:?})")),
        }
    }

    /// nodeagent asks the device.
    pub(crate) fn judge_operation(&mut self, operation: Operation) {
        let ghost = &self.under.ghost;
        let by_command = ghost.released.get(operation.word());
        let by_switch = ghost.released.get("switch").filter(|_| operation == Operation::Reboot);
        let excused = ghost.excused;
        match by_command.or(by_switch) {
            None => self.wrong(format!("P3: {} that nobody released", operation.word())),
            Some(Release::Drained) if !self.under.node.drained && !excused => {
                self.wrong(format!("P3: {} of a node that was given back", operation.word()));
            }
            Some(Release::Drained | Release::Without) => {}
        }
        let op = match operation {
            Operation::Reboot if by_command_of(self, DeviceOp::Reboot) => DeviceOp::Reboot,
            Operation::Shutdown if by_command_of(self, DeviceOp::Shutdown) => DeviceOp::Shutdown,
            Operation::Reboot | Operation::Shutdown | Operation::Poweroff => return,
        };
        let Some(counter) = self.disk.pending.get(&op).map(|it| it.counter) else { return };
        // A shutdown may be asked for twice within a boot: nothing starts again in between.
        if !self.under().ghost.done.insert((op, counter)) && op == DeviceOp::Reboot {
            self.wrong(format!("R3: {} {counter} is carried out twice", op.word()));
        }
    }
}

fn by_command_of(state: &State, op: DeviceOp) -> bool {
    state.under.ghost.released.contains_key(op.word())
}
