//! Promises over any order of facts: never early, never stuck, a fact twice is a fact once.
//!
//! [`World`] checks the last one after every event, and at each switch that something has released it, which it
//! works out from what others have said, not by asking the gate.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use proptest::prelude::*;
use topics::{DrainStatus, NodeDrainStatus, Requester, SwState};

use super::world::{NEW, NEWER, World, X, Z};
use crate::core::Event;
use crate::core::stage::ImageStage;
use requester::DeviceClustering;

#[derive(Debug, Clone, Copy)]
enum Op {
    Config {
        second: bool,
        config: Option<(bool, u32)>,
    },
    Tree {
        second: bool,
        state: Option<(u8, bool)>,
    },
    Status(u8, u8),
    /// An answer to the open request, or to one of those before.
    Answer {
        stale: bool,
        status: u8,
    },
    Cluster(u8),
    HasToLeave(bool),
    Force(Option<(u8, u8)>),
    Test {
        label: Label,
        complete: bool,
    },
    Fallback(u32),
    Wait(u64),
    EndWrite,
    Refuse,
    RefuseBegin,
    Restart,
    Boot,
}

fn op() -> impl Strategy<Value = Op> {
    let config = (any::<bool>(), proptest::option::weighted(0.8, (prop::bool::weighted(0.8), 0..3_u32)));
    let state = prop_oneof![4 => Just((108, false)), 1 => Just((103, false)), 1 => Just((108, true))];
    let tree = (any::<bool>(), proptest::option::weighted(0.9, state));
    let label = prop_oneof![Just(Label::A), Just(Label::B)];
    prop_oneof![
        6 => config.prop_map(|(second, config)| Op::Config { second, config }),
        6 => tree.prop_map(|(second, state)| Op::Tree { second, state }),
        4 => (0..=10_u8, 0..=3_u8).prop_map(|(status, by)| Op::Status(status, by)),
        8 => (prop::bool::weighted(0.3), 2..=9_u8).prop_map(|(stale, status)| Op::Answer { stale, status }),
        2 => (0..3_u8).prop_map(Op::Cluster),
        1 => any::<bool>().prop_map(Op::HasToLeave),
        2 => proptest::option::of((1..=9_u8, 0..=3_u8)).prop_map(Op::Force),
        2 => (label, any::<bool>()).prop_map(|(label, complete)| Op::Test { label, complete }),
        2 => (0..4_u32).prop_map(Op::Fallback),
        4 => prop_oneof![Just(1), Just(30), Just(299), Just(300), Just(7200)].prop_map(Op::Wait),
        4 => Just(Op::EndWrite),
        1 => Just(Op::Refuse),
        1 => Just(Op::RefuseBegin),
        2 => Just(Op::Restart),
        1 => Just(Op::Boot),
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

    fn run(&mut self, op: Op) {
        let world = &mut self.world;
        match op {
            Op::Config { second, config: None } => world.unwant(if second { Z } else { X }),
            Op::Config { second, config: Some((activate, counter)) } => {
                let (key, version) = if second { (Z, NEWER) } else { (X, NEW) };
                world.config(key, version, |config| {
                    config.activate = activate;
                    config.retry_update_counter = counter;
                });
            }
            Op::Tree { second, state: None } => {
                world.say(Event::Tree { key: if second { Z } else { X }.to_owned(), value: None });
            }
            Op::Tree { second, state: Some((state, broken)) } => {
                world.tree(if second { Z } else { X }, |tree| {
                    tree.state = SwState::from(state);
                    tree.error = if broken { "broken".to_owned() } else { String::new() };
                });
            }
            Op::Status(status, by) => world.zedkube(DrainStatus::from(status), Requester::from(by)),
            Op::Answer { stale, status } => {
                let request = if stale { world.asked.first().cloned() } else { world.request.clone() };
                let status = DrainStatus::from(status);
                match request {
                    Some(request) if self.reported => world.answer_to(&request, status),
                    Some(_) => world.zedkube(status, Requester::Update),
                    None => {}
                }
            }
            Op::HasToLeave(it) => world.say(Event::HasToLeave(it)),
            Op::Cluster(0) => world.say(Event::Cluster(DeviceClustering::Undecided)),
            Op::Cluster(1) => world.say(Event::Cluster(DeviceClustering::Single)),
            Op::Cluster(_) => world.say(Event::Cluster(DeviceClustering::Clustered)),
            Op::Force(None) => world.say(Event::Forced(None)),
            Op::Force(Some((status, by))) => world.say(Event::Forced(Some(NodeDrainStatus {
                status: DrainStatus::from(status),
                requested_by: Requester::from(by),
            }))),
            Op::Test { label, complete } => world.say(Event::TestComplete { label, complete }),
            Op::Fallback(counter) => world.say(Event::FallbackCounter(counter)),
            Op::Wait(secs) => world.wait(Duration::from_secs(secs)),
            Op::EndWrite => world.written(),
            Op::Refuse => world.refuse_next("refused"),
            Op::RefuseBegin => world.refuse_begin = Some("refused".to_owned()),
            Op::Restart => world.restart(),
            Op::Boot => world.boot(),
        }
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
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let mut watched = Watched::new(reported);
        for op in ops {
            watched.run(op);
            watched.judge_delay();
        }
        watched.finish();
    }
}
