//! Promises over any order of facts: never early, never stuck, a fact twice is a fact once.
//!
//! [`World`] checks the last one after every event, and at each switch that something has released it, which it
//! works out from what others have said, not by asking the gate.

use std::time::Duration;

use agent::partitions::PartitionState;
use proptest::prelude::*;
use topics::{DrainStatus, Requester};

use super::stories::run;
use super::world::{NEW, World, X, Z};
use crate::core::Event;
use crate::core::stage::ImageStage;
use requester::DeviceClustering;

/// A step of a story; an answer is to the open request, or to the first one that was made.
fn step() -> impl Strategy<Value = String> {
    let any = |words: &'static [&str]| prop::sample::select(words).prop_map(str::to_owned);
    let config = (any(&["want X", "want Z"]), 0..3_u32);
    let kept = (any(&["keep X", "keep Z"]), 0..3_u32);
    let content = any(&["load X", "load Z"]);
    let to = prop_oneof![7 => Just("answer"), 3 => Just("answer first")];
    prop_oneof![
        4 => config.prop_map(|(config, counter)| format!("{config} retry {counter}")),
        1 => kept.prop_map(|(config, counter)| format!("{config} retry {counter}")),
        1 => any(&["unwant X", "unwant Z"]),
        4 => content,
        2 => any(&["load X state 103", "load Z state 103", "load X error broken", "load Z error broken"]),
        1 => any(&["lose X", "lose Z"]),
        4 => (0..=10_u8, 0..=3_u8).prop_map(|(status, by)| format!("says {status} {by}")),
        8 => (to, 2..=9_u8).prop_map(|(answer, status)| format!("{answer} {status}")),
        2 => any(&["cluster", "no cluster", "undecided cluster"]),
        1 => any(&["leaves", "left"]),
        2 => (1..=9_u8, 0..=3_u8).prop_map(|(status, by)| format!("force {status} {by}")),
        1 => any(&["unforce"]),
        2 => any(&["test IMGA passed", "test IMGA open", "test IMGB passed", "test IMGB open"]),
        2 => (0..4_u32).prop_map(|counter| format!("fallback {counter}")),
        4 => any(&["wait 1", "wait 30", "wait 299", "wait 300", "wait 7200"]),
        4 => any(&["written"]),
        2 => any(&["refuse refused", "refuses to begin: refused"]),
        2 => any(&["restart"]),
        1 => any(&["boot"]),
    ]
}

/// The device and what an onlooker knows about it.
struct Watched {
    world: World,
    reported: bool,
}

impl Watched {
    fn new(reported: bool) -> Self {
        let mut world = World::new();
        world.slow_writes = true;
        if reported {
            world.report();
        }
        Self { world, reported }
    }

    fn run(&mut self, step: &str) {
        let world = &mut self.world;
        if let Some(answer) = step.strip_prefix("answer ") {
            let is_first = answer.starts_with("first");
            if if is_first { world.asked.is_empty() } else { world.request.is_none() } {
                return;
            }
            if !self.reported {
                let status = answer.rsplit(' ').next().unwrap();
                return run(world, &format!("says {status} Update"), step);
            }
        }
        run(world, step, step);
    }

    /// What is written and answered is switched in the very step.
    fn judge_delay(&self) {
        let core = &self.world.core;
        let Some(own) = &core.facts.hold.own else { return };
        let answered = own
            .id
            .zip(core.facts.hold.heard.progress.as_ref())
            .and_then(|(id, progress)| progress.answer(id));
        let complete = answered.is_some_and(|answer| answer.status == DrainStatus::Complete);
        let written = core
            .facts
            .stages()
            .into_iter()
            .any(|(key, _, stage)| *key == own.context && stage == ImageStage::Written);
        let held = core.order_trouble.is_some() || core.facts.hold.forced.is_some();
        assert!(!complete || !written || held, "complete and written, but not switched");
    }

    /// From here on all others do their part; the update comes to its end.
    fn finish(&mut self) {
        let world = &mut self.world;
        world.say(Event::Forced(None));
        world.say(Event::Cluster(DeviceClustering::Clustered));
        world.report();
        world.zedkube(DrainStatus::NotRequested, Requester::None);
        world.unwant(Z);
        world.loaded(X);
        world.config(X, NEW, |config| config.retry_update_counter = 7);
        for _ in 0..30 {
            let running = world.partitions.running();
            if running.short_version == NEW {
                return;
            }
            let label = running.label;
            world.say(Event::TestComplete { label, complete: true });
            world.written();
            world.wait(Duration::from_hours(1));
            if world.spare_state() == PartitionState::Updating {
                world.boot();
                world.report();
            } else if world.request.is_some() {
                world.answer(DrainStatus::Complete);
            }
        }
        panic!("the update never came to its end: {:?} {:?}", world.partitions, world.statuses);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_switch_comes_early_and_every_update_comes_to_its_end(
        reported in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut watched = Watched::new(reported);
        for step in steps {
            watched.run(&step);
            watched.judge_delay();
        }
        watched.finish();
    }
}
