//! How random paths and the search go through a plan.

use std::time::Duration;

use step::Dice;

use super::steps::Step;
use super::world::Site;
use crate::checker::Explored;
use crate::fair::{Fair, Stuck};
use crate::steps::Action;
use crate::wander::{below, is_trouble};

/// A later limit is rarely reached while anything else can happen.
const SOON: Duration = Duration::from_secs(60);

/// The benign run is computed from one of so many states.
const SAMPLED: usize = 64;
const SAMPLED_BY_SEARCH: u64 = 256;

/// Trouble is rare, so that it hits states far from the start; a gate takes its time.
fn is_seldom(step: &Step) -> bool {
    if let Step::Of(_, action) = step {
        return is_trouble(action) || matches!(action, Action::Gate(_));
    }
    matches!(
        step,
        Step::Lose(_)
            | Step::CarryOut(_)
            | Step::Part(_)
            | Step::Release(_)
            | Step::DeleteLease
            | Step::RestoreLease(_)
    )
}

fn is_time(step: &Step) -> bool {
    matches!(step, Step::Time | Step::Wake(_) | Step::Of(_, Action::Wake(_)))
}

/// Chooses a step: trouble rarely; time rarely, mostly what is due first, and limits of minutes hardly ever
/// while anything else can happen.
fn choose(site: &Site, all: &[Step], dice: &mut Dice) -> Option<Step> {
    let (seldom, often): (Vec<&Step>, Vec<&Step>) = all.iter().partition(|it| is_seldom(it));
    let (times, others): (Vec<&Step>, Vec<&Step>) = often.into_iter().partition(|it| is_time(it));
    let soonest = times.iter().min_by_key(|it| site.wait(it)).copied();
    let is_soon = soonest.is_some_and(|it| site.wait(it) <= SOON);
    let (trouble, any) = (below(dice, 16) == 0, below(dice, 8) == 0);
    let time = below(dice, if is_soon { 6 } else { 96 }) == 0;
    let choice = if trouble && !seldom.is_empty() || times.is_empty() && others.is_empty() {
        seldom
    } else if others.is_empty() || time && !times.is_empty() {
        if any { times } else { soonest.into_iter().collect() }
    } else {
        others
    };
    choice.get(below(dice, choice.len().max(1))).map(|it| (*it).clone())
}

impl Explored for Site {
    type Step = Step;
    const NEVER: &'static str = "never too many are out";
    const LONGEST: usize = 800;

    fn wrong(&self) -> Option<&String> {
        self.wrong.as_ref()
    }

    fn check(&self, fair: &Fair) -> Result<(), Stuck<Self>> {
        fair.check_site(self)
    }

    fn searched(&self, out: &mut Vec<Step>) {
        self.calm_steps(out);
    }

    fn searched_after(&self, step: &Step) -> Option<Self> {
        self.after(step).map(Self::rested)
    }

    fn is_sampled(&self) -> bool {
        self.fingerprint().is_multiple_of(SAMPLED_BY_SEARCH)
    }

    fn choose(&self, dice: &mut Dice) -> Option<Step> {
        let mut all = Vec::new();
        self.steps(&mut all);
        let is_change = |it: &Step| matches!(it, Step::Of(_, Action::Change(_)));
        let rests = all.iter().all(|it| is_seldom(it) && !is_change(it) || is_time(it));
        if rests && self.unfulfilled().is_empty() { None } else { choose(self, &all, dice) }
    }

    fn chosen_after(&self, step: &Step) -> Option<Self> {
        self.after(step)
    }

    fn is_drawn(&self, dice: &mut Dice) -> bool {
        below(dice, SAMPLED) == 0
    }

    fn boots(&self) -> u32 {
        self.members.iter().map(|it| it.state.under.boot - 1).sum()
    }

    fn shown(&self) -> String {
        self.text()
    }
}
