//! All possible next steps of a site.

use std::sync::Arc;

use outage::turn::event::{Effect, Event};
use outage::turn::record::ForcedRelease;
use outage::turn::rule;
use topics::CordonOwner;

use super::world::Site;
use crate::steps::Action;
use crate::topics::Who;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Of(usize, Action),
    KeeperReport(usize),
    /// Its keeper's call is carried out and answered.
    Serve(usize),
    CarryOut(usize),
    Answer(usize),
    Lose(usize),
    Watch(usize),
    Wake(usize),
    /// Its agents lose or regain the API.
    Part(usize),
    Join(usize),
    Missed(usize),
    On(usize),
    /// A person removes a person's cordon.
    Uncordon(usize),
    Release(usize),
    DeleteLease,
    RestoreLease(usize),
    /// Time passes for all alike until the next wake-up.
    Time,
}

impl Site {
    pub(crate) fn steps(&self, out: &mut Vec<Step>) {
        if self.wrong.is_some() {
            return;
        }
        let left = self.left;
        let mut actions = Vec::new();
        for (nth, member) in self.members.iter().enumerate() {
            if let Some(missed) = member.off {
                out.extend((!missed).then_some(Step::Missed(nth)));
                out.push(Step::On(nth));
                continue;
            }
            let parted = member.state.under.parted;
            actions.clear();
            member.state.actions(&mut actions);
            let keeper = member.keeper.as_ref();
            let due = keeper.and_then(super::keeper::Keeper::due);
            let core = member.state.wake(Who::Zedkube);
            // Within a process, due events come in order.
            let first = due.filter(|due| core.is_none_or(|core| *due <= core));
            actions.retain(|it| *it != Action::Wake(Who::Zedkube) || first.is_none());
            out.extend(actions.drain(..).map(|it| Step::Of(nth, it)));
            out.extend(first.map(|_| Step::Wake(nth)));
            if parted {
                out.push(Step::Join(nth));
            } else if left.parted > 0 {
                out.push(Step::Part(nth));
            }
            let foreign = member.state.under.node.cordon == CordonOwner::Foreign;
            out.extend(foreign.then_some(Step::Uncordon(nth)));
            let Some(keeper) = keeper else { continue };
            out.extend((!keeper.told.is_empty()).then_some(Step::KeeperReport(nth)));
            if keeper.calls() {
                // etcd's margin needs no API.
                let margin = matches!(keeper.call, Some(Effect::ReadMargin(_)));
                if keeper.carried.is_some() {
                    out.push(Step::Answer(nth));
                } else if margin || !parted {
                    out.push(Step::Serve(nth));
                    out.extend((left.slow > 0 && keeper.turn.is_some()).then_some(Step::CarryOut(nth)));
                }
                let fails = parted && (keeper.turn.is_some() || !keeper.has_failed());
                out.extend((!margin && (fails || left.lost > 0)).then_some(Step::Lose(nth)));
            }
            out.extend(self.is_news(nth).then_some(Step::Watch(nth)));
        }
        if let Some(lease) = &self.lease {
            if left.deletions > 0 {
                out.push(Step::DeleteLease);
            }
            if left.restores > 0 {
                out.extend((0..self.older.len()).map(Step::RestoreLease));
            }
            if left.releases > 0 {
                let holds = |nth: &usize| lease.record.holder(&Self::name(*nth), &Self::uid(*nth)).is_some();
                out.extend((0..self.members.len()).filter(holds).map(Step::Release));
            }
        }
    }

    /// For a search: steps within a device come at once and in order, and time passes for all alike, once no
    /// call is under way.
    pub(crate) fn calm_steps(&self, out: &mut Vec<Step>) {
        self.steps(out);
        let busy = out.iter().any(|it| matches!(it, Step::Serve(_) | Step::Answer(_)));
        out.retain(|it| !matches!(it, Step::Wake(_) | Step::Of(_, Action::Wake(_))));
        out.extend((self.wrong.is_none() && !busy).then_some(Step::Time));
    }

    /// The state after the steps within devices that follow.
    pub(crate) fn rested(mut self) -> Self {
        while self.wrong.is_none()
            && let Some(step) = self.within()
            && let Some(next) = self.after(&step)
        {
            self = next;
        }
        self
    }

    /// Whether a keeper's watch has news.
    pub(crate) fn is_news(&self, nth: usize) -> bool {
        let member = &self.members[nth];
        let version = self.lease.as_ref().map(|it| it.resource_version.clone());
        let keeper =
            member.keeper.as_ref().filter(|it| it.turn.is_some() && it.shown.as_ref() != Some(&version));
        member.off.is_none() && !member.state.under.parted && keeper.is_some()
    }

    /// `None` when it does not happen.
    pub(crate) fn after(&self, step: &Step) -> Option<Self> {
        step::plant(self.plan.fault);
        let mut next = self.clone();
        match step {
            Step::Of(nth, action) => {
                let state = self.members[*nth].state.after(action)?;
                next.becomes(*nth, state);
            }
            Step::KeeperReport(nth) => {
                let told = next.member(*nth).keeper.as_mut()?.told.pop_front()?;
                let state = next.members[*nth].state.having_heard(told);
                next.becomes(*nth, state);
            }
            Step::Serve(nth) => next.serve(*nth)?,
            Step::CarryOut(nth) => {
                next.left.slow -= 1;
                let answer = next.carry_out(*nth)?;
                next.with_keeper(*nth, |keeper, _| keeper.carried = Some(answer));
            }
            Step::Answer(nth) => {
                let answer = next.member(*nth).keeper.as_mut()?.carried.take()?;
                next.with_keeper(*nth, |keeper, now| keeper.answer(now, answer));
            }
            Step::Lose(nth) => {
                next.left.lost -= u8::from(!self.members[*nth].state.under.parted);
                next.with_keeper(*nth, super::keeper::Keeper::lose);
            }
            Step::Watch(nth) => {
                let lease = self.lease.clone();
                next.with_keeper(*nth, |keeper, now| keeper.watch(now, lease.as_deref()));
            }
            Step::Wake(nth) => {
                let due = self.members[*nth].keeper.as_ref()?.due()?;
                let now = self.now(*nth).max(due);
                let state = self.members[*nth].state.at(Who::Zedkube, now);
                next.member(*nth).state = state;
                next.with_keeper(*nth, |keeper, now| keeper.hear(now, Event::Tick));
            }
            Step::Part(nth) | Step::Join(nth) => {
                let parts = matches!(step, Step::Part(_));
                next.left.parted -= u8::from(parts);
                let state = self.members[*nth].state.parted(parts);
                next.member(*nth).state = state;
            }
            Step::Missed(nth) => next.member(*nth).off = Some(true),
            Step::On(nth) => {
                let member = next.member(*nth);
                (member.off, member.shown) = (None, member.state.under.boot);
                next.is_on(*nth);
            }
            Step::Uncordon(nth) => {
                let state = self.members[*nth].state.by_hand(CordonOwner::None);
                next.member(*nth).state = state;
            }
            Step::Release(nth) => next.release(*nth)?,
            Step::DeleteLease => {
                next.left.deletions -= 1;
                next.older.extend(next.lease.take());
            }
            Step::Time => return self.time_passes().map(|(next, _)| next),
            Step::RestoreLease(at) => {
                next.left.restores -= 1;
                let held = Arc::clone(&self.older[*at]);
                next.put(held.uid.clone(), &held.record);
            }
        }
        next.judged(step);
        Some(next)
    }

    fn judged(&mut self, step: &Step) {
        match step {
            Step::Of(nth, _)
            | Step::KeeperReport(nth)
            | Step::Serve(nth)
            | Step::CarryOut(nth)
            | Step::Answer(nth)
            | Step::Lose(nth)
            | Step::Watch(nth)
            | Step::Wake(nth)
            | Step::Part(nth)
            | Step::Join(nth)
            | Step::Missed(nth)
            | Step::Uncordon(nth) => {
                self.touch(*nth);
                self.judge(*nth);
            }
            Step::On(_) | Step::Release(_) | Step::DeleteLease | Step::RestoreLease(_) | Step::Time => {
                for nth in 0..self.members.len() {
                    self.touch(nth);
                    self.judge(nth);
                }
            }
        }
        self.seal();
    }

    pub(crate) fn becomes(&mut self, nth: usize, state: crate::world::State) {
        self.member(nth).state = state;
        self.touch(nth);
        self.settle(nth);
    }

    pub(crate) fn serve(&mut self, nth: usize) -> Option<()> {
        if self.members[nth].keeper.as_ref()?.turn.is_none() {
            let (me, class) = (self.me(nth), self.class(nth));
            let chance = nth as u64 * 7 + u64::from(self.members[nth].shown);
            self.with_keeper(nth, |keeper, now| keeper.known(now, me, class, chance));
            return Some(());
        }
        let answer = self.carry_out(nth)?;
        self.with_keeper(nth, |keeper, now| keeper.answer(now, answer));
        Some(())
    }

    fn release(&mut self, nth: usize) -> Option<()> {
        self.left.releases -= 1;
        let held = self.lease.clone()?;
        let fence = held.record.holder(&Self::name(nth), &Self::uid(nth))?.fence;
        let forced = ForcedRelease {
            node: Self::name(nth),
            fence,
            why: "gone".to_owned(),
            ..ForcedRelease::default()
        };
        let record = rule::release(&held.record, forced).ok()?;
        self.put(held.uid.clone(), &record);
        self.release_by_operator(nth);
        Some(())
    }
}
