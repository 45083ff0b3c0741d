//! Ways through the world of turns: what may happen next, some beginnings, and a fair end.

use std::time::Duration;

use super::super::event::{Ask, Effect, Event, TurnState};
use super::super::record::{ForcedRelease, RecordWrite};
use super::super::rule;
use super::world::{Action, Budget, Node, Step, World};

impl World {
    #[expect(clippy::too_many_lines, reason = "one arm for each action")]
    pub(super) fn apply(&mut self, action: &Action) {
        let budget = &mut self.budget;
        match *action {
            Action::Serve(nth) => self.serve(nth, true),
            Action::LoseAnswer(nth) => {
                budget.lost = budget.lost.saturating_sub(1);
                self.serve(nth, false);
            }
            Action::LoseCall(nth) => {
                budget.lost = budget.lost.saturating_sub(1);
                self.lose(nth);
            }
            Action::Delay(nth) => {
                budget.late = budget.late.saturating_sub(1);
                if let Some(Effect::Write(_, order)) = &self.nodes[nth].call {
                    self.late = Some(((**order).clone(), self.now + Duration::from_secs(60)));
                }
                self.lose(nth);
            }
            Action::ServeLate => {
                if let Some((order, _)) = self.late.take() {
                    self.store(order);
                }
            }
            Action::Watch(nth) => {
                self.nodes[nth].shown = self.lease.as_ref().map(|it| it.resource_version.clone());
                let value = self.lease.clone().map(Box::new);
                self.hear(nth, Event::Changed(value));
            }
            Action::Go(nth) => self.go(nth),
            Action::Fail(nth) => {
                budget.failures = budget.failures.saturating_sub(1);
                self.again(nth);
            }
            Action::Withdraw(nth) => {
                budget.withdrawn = budget.withdrawn.saturating_sub(1);
                let node = &mut self.nodes[nth];
                node.uncordon();
                (node.out, node.step) = (false, Step::Leaving);
                node.jobs = node.jobs.saturating_sub(1);
                self.hear(nth, Ask::Want(None));
            }
            Action::Restart(nth) => {
                budget.restarts = budget.restarts.saturating_sub(1);
                self.start(nth);
            }
            Action::PowerCut(nth) => {
                budget.power_cuts = budget.power_cuts.saturating_sub(1);
                self.off(nth);
            }
            Action::Emergency(nth) => {
                budget.emergencies = budget.emergencies.saturating_sub(1);
                self.nodes[nth].step = Step::Emergency;
                let want = self.nodes[nth].want(true);
                self.hear(nth, Ask::Want(Some(want)));
            }
            Action::DeleteLease => {
                budget.deletions = budget.deletions.saturating_sub(1);
                self.lease = None;
                self.forget();
            }
            Action::RestoreLease => {
                budget.restores = budget.restores.saturating_sub(1);
                self.writes += 1;
                self.lease.clone_from(&self.snapshot);
                if let Some(held) = &mut self.lease {
                    held.resource_version = format!("v{}", self.writes);
                }
                self.forget();
            }
            Action::RestoreEtcd => {
                // Who restarts remembers nothing, and does not know of a node that is out and looks as all others do.
                (budget.etcds, budget.restarts, budget.power_cuts) = (budget.etcds.saturating_sub(1), 0, 0);
                self.lease = None;
                self.nodes.iter_mut().for_each(Node::uncordon);
                self.forget();
            }
            Action::ReleaseByOperator(nth) => {
                budget.releases = budget.releases.saturating_sub(1);
                let node = self.nodes[nth].name.clone();
                let held = self.lease.clone().unwrap();
                let fence = held.record.holders.iter().find(|it| it.node == node).unwrap().fence;
                let forced =
                    ForcedRelease { node, fence, why: "gone".to_owned(), ..ForcedRelease::default() };
                let record = rule::release(&held.record, forced).unwrap();
                self.store(RecordWrite { on: Some((held.uid, held.resource_version)), record });
                // His word: it does not count.
                (self.nodes[nth].out, self.nodes[nth].covered) = (false, false);
            }
            Action::UncordonByHand(nth) => {
                budget.uncordons = budget.uncordons.saturating_sub(1);
                self.nodes[nth].unschedulable = false;
            }
            Action::Cut(nth) => {
                budget.cuts = budget.cuts.saturating_sub(1);
                self.nodes[nth].cut = true;
            }
            Action::Join(nth) => self.nodes[nth].cut = false,
            Action::Find(nth) => {
                budget.findings = budget.findings.saturating_sub(1);
                self.nodes[nth].found = true;
            }
            Action::Mend(nth) => {
                self.nodes[nth].found = false;
                if self.nodes[nth].step == Step::Wants {
                    let want = self.nodes[nth].want(false);
                    self.hear(nth, Ask::Want(Some(want)));
                }
            }
            Action::DeleteNode(nth) => {
                budget.gone = budget.gone.saturating_sub(1);
                let node = &mut self.nodes[nth];
                (node.deleted, node.jobs, node.turn, node.call) = (true, 0, None, None);
            }
            Action::Wait => self.wait(),
        }
        self.check();
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let budget = &self.budget;
        let mut all = vec![Action::Wait];
        let mut may = |yes: bool, action: Action| all.extend(yes.then_some(action));
        for (nth, node) in self.nodes.iter().enumerate().filter(|(_, it)| !it.deleted) {
            let up = node.turn.is_some();
            let write = matches!(node.call, Some(Effect::Write(..)));
            may(node.call.is_some() && !node.cut, Action::Serve(nth));
            may(node.call.is_some() && node.cut, Action::LoseCall(nth));
            may(node.call.is_some() && !node.cut && budget.lost > 0, Action::LoseCall(nth));
            may(write && !node.cut && budget.lost > 0, Action::LoseAnswer(nth));
            may(write && !node.cut && budget.late > 0 && self.late.is_none(), Action::Delay(nth));
            let shown = self.lease.as_ref().map(|it| &it.resource_version);
            may(up && !node.cut && node.shown.as_ref() != shown, Action::Watch(nth));
            may(node.can_go(), Action::Go(nth));
            may(node.step == Step::Out && budget.failures > 0, Action::Fail(nth));
            may(
                matches!(node.step, Step::Wants | Step::Cordoned)
                    && !node.cut
                    && budget.withdrawn > 0
                    && !node.out,
                Action::Withdraw(nth),
            );
            may(up && budget.restarts > 0 && node.step != Step::Emergency, Action::Restart(nth));
            may(
                up && budget.emergencies > 0 && matches!(node.step, Step::Idle | Step::Wants),
                Action::Emergency(nth),
            );
            may(
                up && budget.power_cuts > 0 && matches!(node.step, Step::Cordoned | Step::Out),
                Action::PowerCut(nth),
            );
            may(node.unschedulable && budget.uncordons > 0, Action::UncordonByHand(nth));
            may(!node.cut && budget.cuts > 0, Action::Cut(nth));
            may(node.cut, Action::Join(nth));
            may(node.step == Step::Idle && node.jobs > 0 && budget.findings > 0, Action::Find(nth));
            may(node.found, Action::Mend(nth));
            may(node.is_off() && budget.gone > 0, Action::DeleteNode(nth));
            let holds =
                self.lease.as_ref().is_some_and(|it| it.record.holder(&node.name, &node.uid).is_some());
            may(holds && budget.releases > 0, Action::ReleaseByOperator(nth));
        }
        may(self.late.is_some(), Action::ServeLate);
        may(self.lease.is_some() && budget.deletions > 0, Action::DeleteLease);
        // A node that is up and out is known by its Lease alone: all others have to have seen that.
        let version = self.lease.as_ref().map(|it| &it.resource_version);
        let seen =
            |it: &Node| it.turn.is_some() && !it.cut && it.call.is_none() && it.shown.as_ref() == version;
        let hidden = self.nodes.iter().any(|it| it.out && !it.is_off());
        let known = !hidden || self.nodes.iter().all(seen);
        may(self.lease.is_some() && self.late.is_none() && budget.etcds > 0 && known, Action::RestoreEtcd);
        may(self.lease.is_some() && budget.restores > 0 && self.snapshot.is_some(), Action::RestoreLease);
        all
    }

    /// Lets one node alone come as far as `step`.
    pub(super) fn lead(&mut self, nth: usize, step: Step) {
        for _ in 0..100 {
            let held = matches!(self.nodes[nth].turn_state, Some(TurnState::Held { .. }));
            if self.nodes[nth].step == step && (step != Step::Wants || held) {
                return;
            }
            let action = match &self.nodes[nth] {
                it if it.call.is_some() => Action::Serve(nth),
                it if it.can_go() => Action::Go(nth),
                _ => Action::Wait,
            };
            self.apply(&action);
        }
        panic!("the node does not come as far as {step:?}: {:?}", self.nodes[nth]);
    }

    /// Lets one node want a turn, and wait.
    pub(super) fn lead_into_queue(&mut self, nth: usize) {
        self.apply(&Action::Go(nth));
        while self.nodes[nth].call.is_some() {
            self.apply(&Action::Serve(nth));
        }
    }

    /// Lets everything run on fairly and without further trouble; what is still waited for at the end.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.budget = Budget::default();
        for node in &mut self.nodes {
            node.cut = false;
        }
        for _ in 0..1_500 {
            let calm: Vec<Action> = self.actions().into_iter().filter(|it| *it != Action::Wait).collect();
            for action in &calm {
                if self.actions().contains(action) {
                    self.apply(action);
                }
            }
            if calm.is_empty() {
                if self.nodes.iter().all(|it| it.jobs == 0 && matches!(it.step, Step::Idle) || it.deleted) {
                    return Ok(());
                }
                self.wait();
            }
        }
        let waits = self.nodes.iter().map(|it| format!("{} {:?} {:?}", it.name, it.step, it.turn_state));
        Err(format!("for ever: {}; {:?}", waits.collect::<Vec<_>>().join("; "), self.lease))
    }
}
