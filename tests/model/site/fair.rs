//! No node waits for ever: from any state of a site, once the world turns benign, each ordered operation is
//! carried out, and the record ends with no holder and an empty queue.
//!
//! Benign: machines are switched on, the API is reached, calls are answered, a person removes what a person has cordoned,
//! and for each device by itself as in `crate::fair`; time passes for all alike.

use std::time::Duration;

use step::Mono;
use topics::CordonOwner;

use super::keeper::Keeper;
use super::steps::Step;
use super::world::Site;
use crate::fair::{Fair, Stuck};
use crate::steps::Action;
use crate::topics::{ALL, Who};

/// Limits of a benign run, in steps and in time.
const LONGEST: usize = 20_000;
const LATEST: Duration = Duration::from_hours(48);

impl Fair {
    pub(crate) fn check_site(&self, site: &Site) -> Result<(), Stuck<Site>> {
        let mut chain = Vec::new();
        let (mut at, mut took, mut steps) = (site.clone(), Duration::ZERO, 0);
        if self.knows(at.fingerprint()) {
            return Ok(());
        }
        let why = loop {
            if let Some(wrong) = &at.wrong {
                break wrong.clone();
            }
            if let Some(next) = at.at_once() {
                at = next;
            } else {
                // Compared only where time has to pass: most states occur in one run, and a fingerprint costs
                // more than a step.
                let fingerprint = at.fingerprint();
                let known = self.knows(fingerprint);
                chain.push(fingerprint);
                if known || at.unfulfilled().is_empty() {
                    self.know(chain);
                    return Ok(());
                }
                let Some((next, time)) = at.time_passes() else {
                    break format!("waits for ever: {}", at.unfulfilled());
                };
                at = next;
                took += time;
            }
            steps += 1;
            if steps > LONGEST || took > LATEST {
                break format!("goes round for ever: {}", at.unfulfilled());
            }
        };
        Err(Stuck { why, at: Box::new(at), steps })
    }
}

impl Site {
    /// The next step of the benign run; `None` at rest.
    pub(crate) fn benign(&self) -> Option<Self> {
        self.at_once().or_else(|| {
            if self.unfulfilled().is_empty() { None } else { self.time_passes().map(|(next, _)| next) }
        })
    }

    /// The next step of the benign run that takes no time.
    pub(crate) fn at_once(&self) -> Option<Self> {
        (0..self.members.len()).find_map(|nth| self.at_once_of(nth))
    }

    pub(crate) fn at_once_of(&self, nth: usize) -> Option<Self> {
        let member = &self.members[nth];
        let step = match member.off {
            Some(false) => Some(Step::Missed(nth)),
            Some(true) => Some(Step::On(nth)),
            None if member.state.under.parted => Some(Step::Join(nth)),
            None if member.state.under.node.cordon == CordonOwner::Foreign => Some(Step::Uncordon(nth)),
            None => self.hears(nth),
        };
        if let Some(step) = step {
            return self.after(&step);
        }
        if let Some(state) = member.state.at_once() {
            return Some(self.with(nth, state));
        }
        let calls = member.keeper.as_ref().is_some_and(Keeper::calls);
        let step = if calls { Some(Step::Serve(nth)) } else { self.is_news(nth).then_some(Step::Watch(nth)) };
        step.and_then(|step| self.after(&step))
    }

    /// A message between a keeper and its zedkube.
    fn hears(&self, nth: usize) -> Option<Step> {
        let keeper = self.members[nth].keeper.as_ref()?;
        let told = (!keeper.told.is_empty()).then_some(Step::KeeperReport(nth));
        told.or_else(|| keeper.carried.as_ref().map(|_| Step::Answer(nth)))
    }

    /// The next step within a device alone.
    pub(crate) fn within(&self) -> Option<Step> {
        let on = |nth: &usize| self.members[*nth].off.is_none();
        (0..self.members.len()).filter(on).find_map(|nth| {
            let keeper = self.members[nth].keeper.as_ref();
            let told = keeper.is_some_and(|it| !it.told.is_empty()).then_some(Step::KeeperReport(nth));
            told.or_else(|| self.members[nth].state.within().map(|it| Step::Of(nth, it)))
        })
    }

    fn with(&self, nth: usize, state: crate::world::State) -> Self {
        step::plant(self.plan.fault);
        let mut next = self.clone();
        next.becomes(nth, state);
        next.seal();
        next
    }

    /// All clocks advance to the next wake-up.
    pub(crate) fn time_passes(&self) -> Option<(Self, Duration)> {
        let mut first: Option<(Duration, usize, Option<Who>)> = None;
        for (nth, member) in self.members.iter().enumerate() {
            let keeper = member.keeper.as_ref().and_then(Keeper::due).map(|due| (due, None));
            let agents = ALL.into_iter().filter_map(|who| Some((member.state.wake(who)?, Some(who))));
            for (due, who) in keeper.into_iter().chain(agents) {
                let wait = due.since(self.now_of(nth, who));
                if first.is_none_or(|(least, ..)| wait < least) {
                    first = Some((wait, nth, who));
                }
            }
        }
        let (wait, nth, who) = first?;
        let mut next = self.clone();
        for nth in 0..next.members.len() {
            let state = next.members[nth].state.later(wait);
            next.member(nth).state = state;
            next.touch(nth);
        }
        let step = who.map_or(Step::Wake(nth), |who| Step::Of(nth, Action::Wake(who)));
        next.after(&step).map(|next| (next, wait))
    }

    pub(crate) fn wait(&self, step: &Step) -> Duration {
        let (nth, who) = if let Step::Of(nth, Action::Wake(who)) = step {
            (*nth, Some(*who))
        } else if let Step::Wake(nth) = step {
            (*nth, None)
        } else {
            return Duration::ZERO;
        };
        let due = match who {
            Some(who) => self.members[nth].state.wake(who),
            None => self.members[nth].keeper.as_ref().and_then(Keeper::due),
        };
        due.map_or(Duration::ZERO, |due| due.since(self.now_of(nth, who)))
    }

    fn now_of(&self, nth: usize, who: Option<Who>) -> Mono {
        self.members[nth].state.now(who.unwrap_or(Who::Zedkube))
    }

    /// Unfulfilled wishes in words; empty when all is well.
    pub(crate) fn unfulfilled(&self) -> String {
        let device = |(nth, it): (usize, &std::sync::Arc<super::world::Member>)| {
            let left = it.state.unfulfilled();
            (!left.is_empty()).then(|| format!("{}: {left}", Self::name(nth)))
        };
        // The server with the witness can never be spared: it waits for a person, and no other one waits for it.
        let waits_for_a_person = |nth: usize| self.plan.witness == Some(nth);
        let devices = self.members.iter().enumerate().filter(|(nth, _)| !waits_for_a_person(*nth));
        let mut left: Vec<String> = devices.filter_map(device).collect();
        if let Some(lease) = &self.lease {
            let record = &lease.record;
            let holders = record.holders.iter().map(|it| format!("{} holds a turn", it.node));
            let person = self.plan.witness.map(Self::name);
            let queue = record.queue.iter().filter(|it| Some(&it.node) != person.as_ref());
            left.extend(holders.chain(queue.map(|it| format!("{} is in the queue", it.node))));
        }
        left.join("; ")
    }
}
