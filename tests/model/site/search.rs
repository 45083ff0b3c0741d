//! Random paths through a plan, and the search through its states.

use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker as _, HasDiscoveries, Model, Property};
use step::Dice;

use super::plans::Plan;
use super::steps::Step;
use super::world::Site;
use crate::fair::Fair;
use crate::steps::Action;
use crate::wander::{Wandered, below, is_trouble};

/// A later limit is rarely reached while anything else can happen.
const SOON: Duration = Duration::from_secs(60);

const LONGEST: usize = 800;
/// The benign run is computed from one of so many states.
const SAMPLED: usize = 64;
const SAMPLED_BY_SEARCH: u64 = 256;

#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) steps: Vec<Step>,
    pub(crate) then: usize,
    pub(crate) what: String,
    pub(crate) site: Box<Site>,
}

/// Trouble is rare, so that it hits states far from the start; a gate takes its time.
fn is_seldom(step: &Step) -> bool {
    match step {
        Step::Of(_, action) => is_trouble(action) || matches!(action, Action::Gate(_)),
        Step::Lose(_)
        | Step::CarryOut(_)
        | Step::Part(_)
        | Step::Release(_)
        | Step::DeleteLease
        | Step::RestoreLease(_) => true,
        Step::KeeperReport(_)
        | Step::Serve(_)
        | Step::Answer(_)
        | Step::Watch(_)
        | Step::Wake(_)
        | Step::Join(_)
        | Step::Missed(_)
        | Step::On(_)
        | Step::Time
        | Step::Uncordon(_) => false,
    }
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

pub(crate) fn wander(plan: &Plan, ways: std::ops::Range<u64>) -> Wandered<Trace> {
    let clock = agent::Clock::new();
    let start = clock.now();
    let fair = Fair::default();
    let first = Site::new(&Arc::new(plan.clone()));
    let (mut steps, mut boots, mut found) = (0, 0, None);
    let mut all = Vec::new();
    for way in ways {
        let mut dice = Dice::new(way);
        let mut site = first.clone();
        let mut taken = Vec::new();
        while taken.len() < LONGEST && found.is_none() {
            all.clear();
            site.steps(&mut all);
            let is_change = |it: &Step| matches!(it, Step::Of(_, Action::Change(_)));
            let rests = all.iter().all(|it| is_seldom(it) && !is_change(it) || is_time(it));
            if rests && site.unfulfilled().is_empty() {
                break;
            }
            let Some(step) = choose(&site, &all, &mut dice) else { break };
            let Some(next) = site.after(&step) else { continue };
            taken.push(step);
            site = next;
            steps += 1;
            if let Some(wrong) = site.wrong.clone() {
                found = Some((wrong, site.clone(), 0));
            } else if below(&mut dice, SAMPLED) == 0 || taken.len() == LONGEST {
                found = fair.check_site(&site).err().map(|stuck| (stuck.why, *stuck.at, stuck.steps));
            }
        }
        boots += site.members.iter().map(|it| it.state.under.boot - 1).sum::<u32>();
        if let Some((what, site, then)) = found {
            let trace = Trace { steps: taken, then, what, site: Box::new(site) };
            return Wandered {
                steps,
                at_rest: fair.states(),
                boots,
                took: clock.now().since(start),
                found: Some((way, trace)),
            };
        }
    }
    Wandered { steps, at_rest: fair.states(), boots, took: clock.now().since(start), found: None }
}

const NEVER_TOO_MANY: &str = "never too many are out";
const NEVER_STUCK: &str = "never stuck";

struct Devices {
    plan: Arc<Plan>,
    fair: Fair,
}

impl Model for Devices {
    type State = Site;
    type Action = Step;

    fn init_states(&self) -> Vec<Site> {
        let site = Site::new(&self.plan);
        vec![
            (0..)
                .try_fold(site, |site, _: u32| site.within().and_then(|it| site.after(&it)).ok_or(site))
                .unwrap_err(),
        ]
    }

    fn actions(&self, state: &Site, actions: &mut Vec<Step>) {
        state.calm_steps(actions);
    }

    fn next_state(&self, last: &Site, action: Step) -> Option<Site> {
        last.calm_after(&action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_TOO_MANY, |_, site: &Site| site.wrong.is_none()),
            Property::always(NEVER_STUCK, |model: &Self, site: &Site| {
                let sampled = site.fingerprint().is_multiple_of(SAMPLED_BY_SEARCH);
                site.wrong.is_some() || !sampled || model.fair.check_site(site).is_ok()
            }),
        ]
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) at_rest: usize,
    pub(crate) took: Duration,
    pub(crate) found: Option<Trace>,
}

/// Breadth first, this many states, and a block more per thread.
pub(crate) fn search(plan: &Plan, states: usize, threads: usize) -> Report {
    let clock = agent::Clock::new();
    let start = clock.now();
    let model = Devices { plan: Arc::new(plan.clone()), fair: Fair::default() };
    let checker = model
        .checker()
        .threads(threads)
        .target_state_count(states)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = [NEVER_TOO_MANY, NEVER_STUCK].into_iter().find_map(|property| {
        let path = checker.discovery(property)?;
        let site = path.last_state().clone();
        let (what, site, then) = match (&site.wrong, Fair::default().check_site(&site)) {
            (Some(wrong), _) => (wrong.clone(), Box::new(site), 0),
            (None, Err(stuck)) => (stuck.why, stuck.at, stuck.steps),
            (None, Ok(())) => {
                ("another state of the same fingerprint is stuck".to_owned(), Box::new(site), 0)
            }
        };
        Some(Trace { steps: path.into_actions(), then, what, site })
    });
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        at_rest: checker.model().fair.states(),
        took: clock.now().since(start),
        found,
    }
}
