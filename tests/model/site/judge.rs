//! What must never happen to a site: too many devices out, a server that goes down while another is off, or a
//! device in the queue with a drain that cannot start.
//!
//! A device is out from its first eviction until it is schedulable again: in the same boot once its cordon is
//! gone, in a later one once its gate is open too. Excused are devices that go down for a documented reason
//! without a drain, and those that have lost both their entry, by the Lease, and their cordon or mark, by a person.

use agent::device::MachineOperation;
use outage::turn::event::Effect;
use topics::{CordonOwner, OutageKind};

use super::world::Site;
use crate::properties::Release;
use crate::world::Work;

impl Site {
    pub(crate) fn judge(&mut self, nth: usize) {
        let member = &self.members[nth];
        let state = &member.state;
        if let Some(wrong) = &state.under.ghost.wrong {
            let wrong = format!("{}: {wrong}", Self::name(nth));
            self.wrong.get_or_insert(wrong);
            return;
        }
        let (boot, gate_open) = (state.under.boot, state.under.gate.told == Some(true));
        let drains = state.under.task.as_ref().is_some_and(|it| it.work == Work::Drain);
        let asked = state.under.device.as_ref().filter(|it| it.operation != MachineOperation::Shutdown);
        let goes = asked.is_some();
        let released = &state.under.ghost.released;
        let by = asked.and_then(|it| released.get(it.operation.word()).or_else(|| released.get("switch")));
        let undrained = by == Some(&Release::Without) || !state.under.ghost.forced.is_empty();
        let cordoned = state.under.node.cordon == CordonOwner::Ours || state.under.node.drained;
        let question = self.last_look(nth);
        let is_new = question.is_some() && question != member.looks;
        let missing = (0..self.plan.servers).filter(|it| *it != nth && self.members[*it].off.is_some());
        let missing: Vec<usize> = missing.filter(|_| is_new).collect();
        let entry = self
            .lease
            .as_ref()
            .is_some_and(|it| it.record.holder(&Self::name(nth), &Self::uid(nth)).is_some());
        // A person has uncordoned it, or removed the mark, and the entry went with the Lease.
        let by_person = state.under.left.hands < state.scenario.budget.hands && !cordoned;
        let unmarked = by_person || state.under.node.mark.is_none();
        let unknown = !entry && unmarked && self.left != self.plan.trouble;

        let queues = self.is_queueing(nth);
        let too_early = queues && !self.members[nth].queues && self.members[nth].state.under.ghost.unfit;
        if too_early {
            let name = Self::name(nth);
            self.wrong.get_or_insert(format!("{name} goes into the queue before its preflight is clean"));
        }

        let member = self.member(nth);
        member.queues = queues;
        if unknown {
            member.out = None;
        }
        if drains && !member.drains {
            member.out = Some(boot);
        }
        if goes && !member.goes {
            (member.out, member.excused) = if undrained || member.excused.is_some() {
                (None, Some(boot))
            } else {
                (Some(member.out.unwrap_or(boot)), None)
            };
        }
        (member.drains, member.goes) = (drains, goes);
        if is_new {
            (member.looks, member.missing) = (question, missing);
        }
        let on = member.off.is_none() && !drains && !goes;
        let is_back = |since: u32| on && if since == boot { !cordoned } else { gate_open && !cordoned };
        member.out = member.out.filter(|since| !is_back(*since));
        member.excused = member.excused.filter(|since| *since == boot || !gate_open);
        let under_quorum = goes && !member.missing.is_empty() && member.out.is_some();
        let with_witness = goes && member.out.is_some() && self.plan.witness == Some(nth);
        if (under_quorum && self.is_server(nth) && self.has_quorum()) || with_witness {
            let name = Self::name(nth);
            self.wrong.get_or_insert(format!(
                "{name} goes down, and another vote was off before it asked, or goes with it"
            ));
        }
        self.count();
    }

    /// Whether its keeper's write puts it into the queue.
    fn is_queueing(&self, nth: usize) -> bool {
        let name = Self::name(nth);
        let call = self.members[nth].keeper.as_ref().and_then(|it| it.call.as_ref());
        let queues = matches!(call, Some(Effect::Write(_, order)) if order.record.waits(&name));
        queues && !self.lease.as_ref().is_some_and(|it| it.record.waits(&name))
    }

    fn last_look(&self, nth: usize) -> Option<u64> {
        let question = self.members[nth].state.disk.run.question.as_ref();
        question.filter(|it| it.kind == OutageKind::LastLook).map(|it| it.number)
    }

    /// At most the limit of devices is out, and one server.
    fn count(&mut self) {
        let out: Vec<usize> =
            (0..self.members.len()).filter(|nth| self.members[*nth].out.is_some()).collect();
        let servers = out.iter().filter(|nth| self.is_server(**nth)).count();
        if out.len() > self.plan.limit || servers > 1 {
            let names: Vec<String> = out.into_iter().map(Self::name).collect();
            self.wrong.get_or_insert(format!("{} are out together", names.join(" and ")));
        }
    }

    /// An operator has released its turn, which is allowed. A last look before it goes down notices that.
    pub(crate) fn release_by_operator(&mut self, nth: usize) {
        let (looks, boot) = (self.last_look(nth).is_some(), self.members[nth].state.under.boot);
        let member = self.member(nth);
        member.out = None;
        member.excused = looks.then_some(boot);
    }

    pub(crate) fn is_on(&mut self, server: usize) {
        for nth in 0..self.members.len() {
            if self.members[nth].missing.contains(&server) {
                self.member(nth).missing.retain(|it| *it != server);
            }
        }
    }
}
