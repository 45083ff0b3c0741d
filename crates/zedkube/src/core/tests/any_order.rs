//! Facts and results in any order, with crashes in between: what must hold whatever comes. That each COMPLETE is
//! earned, that no two tasks work at once, and that a fact heard twice is heard once is checked at each turn.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Progress;
use proptest::prelude::*;
use step::Core as _;
use topics::{CordonOwner, DrainPhase, DrainStatus, NodeDrainStatus};

use super::bench::booted_at;
use super::world::{ALL, Task, World};
use super::{Event, Force, Membership};

const TEN_YEARS_HOURS: i32 = 10 * 8766;

#[derive(Debug, Clone)]
enum Turn {
    Ask(usize),
    Withdraw(usize),
    Member(Membership),
    Force(u8, u8),
    Unforce,
    Hold(bool),
    /// The task at work ends, well or not; a wait for a change ends with one.
    Result(bool),
    Progress(bool),
    /// The look at the node ends: with what is there, or with trouble.
    Look(bool),
    /// A result that was on its way when its task was cancelled is heard.
    Late,
    /// A write that was on its way when its task was cancelled reaches the node.
    Land,
    Uncordon,
    CordonByHand,
    Come,
    /// The gate after the boot opens, or shuts.
    Gate(bool),
    /// A little time passes, in milliseconds.
    Moment(u64),
    Wait,
    /// zedkube restarts, in another boot or in this one; the number is an order of first facts.
    Restart(bool, usize),
    /// The wall clock is set so many hours on from what it showed at first, while zedkube runs or before it starts.
    Clock(i32, bool),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Turn::Ask),
        2 => (0..3_usize).prop_map(Turn::Withdraw),
        1 => prop_oneof![
            Just(Membership::Undecided),
            Just(Membership::Member),
            Just(Membership::Leaving),
            Just(Membership::Outside),
        ]
        .prop_map(Turn::Member),
        1 => (1..=8_u8, 0..=3_u8).prop_map(|(status, by)| Turn::Force(status, by)),
        1 => (2..=3_u8).prop_map(|by| Turn::Force(9, by)),
        2 => Just(Turn::Unforce),
        1 => any::<bool>().prop_map(Turn::Hold),
        8 => proptest::bool::weighted(0.6).prop_map(Turn::Result),
        3 => any::<bool>().prop_map(Turn::Progress),
        1 => (0..300_u64).prop_map(Turn::Moment),
        4 => proptest::bool::weighted(0.8).prop_map(Turn::Look),
        1 => Just(Turn::Late),
        2 => Just(Turn::Land),
        1 => Just(Turn::Uncordon),
        1 => Just(Turn::CordonByHand),
        1 => Just(Turn::Come),
        2 => proptest::bool::weighted(0.4).prop_map(Turn::Gate),
        6 => Just(Turn::Wait),
        1 => (proptest::bool::weighted(0.3), 0..5040_usize).prop_map(|(boot, order)| Turn::Restart(boot, order)),
        1 => (-TEN_YEARS_HOURS..=TEN_YEARS_HOURS, proptest::bool::weighted(0.8)).prop_map(|(hours, running)| Turn::Clock(hours, running)),
    ]
}

impl World {
    /// One in which each value is written at once, so that the core wakes for nothing else than what it decides.
    fn without_gaps() -> Self {
        let mut world = Self::new();
        (world.core.node.limits.progress_gap_ms, world.core.node.limits.marks_gap_ms) = (0, 0);
        world
    }

    /// All that has come of what the core decides, without times.
    fn decided(&self) -> String {
        let Self {
            core, now, status, node, version, task, look, watching, guard, candidacy, attempt, ..
        } = self;
        let answers: Vec<_> = self.journal.answers.iter().map(|it| (it.id(), it.status, &it.skip)).collect();
        let rest = (status, node, version, watching, guard, candidacy, attempt, answers);
        format!("{now:?} {:?} {:?} {task:?} {look:?} {rest:?}", core.drain.run, core.next_wake())
    }

    fn take(&mut self, turn: &Turn) {
        match *turn {
            Turn::Ask(who) => self.ask(ALL[who]),
            Turn::Withdraw(who) => {
                self.requests.remove(&ALL[who]);
                self.hear(&Event::Request(ALL[who], None));
            }
            Turn::Member(member) => {
                if member != Membership::Undecided {
                    self.member = member;
                }
                if member == Membership::Outside {
                    self.earn_nothing();
                }
                self.hear(&Event::Member(member));
            }
            Turn::Force(status, by) => {
                self.force(Force::Order(NodeDrainStatus { status: status.into(), requested_by: by.into() }));
            }
            Turn::Unforce => self.force(Force::Absent),
            Turn::Hold(hold) => {
                self.hold = hold;
                self.hear(&Event::Hold(hold));
            }
            Turn::Result(well) => self.result(well),
            Turn::Progress(proving) => {
                if let Some(Task::Drain(run)) = self.task {
                    let phase = if proving { DrainPhase::Proving } else { DrainPhase::Draining };
                    self.reports += 1;
                    let pods = Progress { phase, evicted: self.reports, ..Progress::default() };
                    self.hear(&Event::Draining(run, Box::new(pods)));
                }
            }
            Turn::Look(well) => self.looked(well),
            Turn::Late => {
                if let Some(event) = self.late.pop() {
                    self.hear(&event);
                }
            }
            Turn::Land => self.land(),
            Turn::Uncordon => {
                self.write(CordonOwner::None);
                self.stir();
            }
            Turn::CordonByHand => {
                self.write(CordonOwner::Foreign);
                self.stir();
            }
            Turn::Come => self.come(),
            Turn::Gate(open) => self.gate(open),
            Turn::Moment(ms) => self.moment(ms),
            Turn::Wait => self.wait(),
            Turn::Restart(other_boot, order) => self.restart(other_boot, order),
            Turn::Clock(hours, running) => {
                let by = Duration::from_hours(u64::from(hours.unsigned_abs()));
                self.booted_at = if hours < 0 { booted_at().minus(by) } else { booted_at().plus(by) };
                if running {
                    self.hear(&Event::Wall(self.booted_at));
                } else {
                    self.restart(false, 0);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_withdrawal_ends_idle_without_a_cordon_of_ours(turns in proptest::collection::vec(turn(), 0..60)) {
        let mut world = World::new();
        for turn in &turns {
            world.take(turn);
        }
        for turn in [Turn::Unforce, Turn::Hold(false), Turn::Member(Membership::Member), Turn::Withdraw(0), Turn::Withdraw(1), Turn::Withdraw(2)] {
            world.take(&turn);
        }
        world.come_to_rest();
        // At rest nothing is on its way any more that could undo it.
        world.land();
        world.come_to_rest();
        prop_assert_eq!(world.status.to_string(), "{Not Requested 1}");
        prop_assert_ne!(world.node, CordonOwner::Ours);
    }

    #[test]
    fn whatever_comes_a_request_on_a_sound_cluster_is_answered_complete(turns in proptest::collection::vec(turn(), 0..60)) {
        let mut world = World::new();
        for turn in &turns {
            world.take(turn);
        }
        for turn in [Turn::Unforce, Turn::Hold(false), Turn::Member(Membership::Member), Turn::Ask(0), Turn::Ask(1), Turn::Ask(2)] {
            world.take(&turn);
        }
        world.come_to_rest();
        prop_assert_eq!(world.status.status, DrainStatus::Complete);
        for request in world.requests.values() {
            prop_assert!(world.journal.answers.iter().any(|it| it.id() == request.id()));
        }
    }

    /// Two devices to which the same happens, and the wall clock of one of them is set in between.
    #[test]
    fn k4_whatever_comes_a_clock_that_is_set_changes_no_decision(turns in proptest::collection::vec(turn(), 0..60)) {
        let [mut set, mut steady] = [World::without_gaps(), World::without_gaps()];
        for turn in &turns {
            set.take(turn);
            if let Turn::Clock(_, running) = *turn {
                if !running {
                    steady.restart(false, 0);
                }
            } else {
                steady.take(turn);
            }
            prop_assert_eq!(set.decided(), steady.decided(), "{:?}", turn);
        }
    }
}
