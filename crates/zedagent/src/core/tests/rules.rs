//! Any order of facts, against the two promises that this core keeps.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use step::{Core as _, Mono};
use topics::{
    Answer, DeviceOp, DeviceOpsCmd, GoTime, NodeAgentStatus, NodeDrainProgress, NodeDrainStatus, RequestId,
    Requester,
};

use super::{DesiredDevice, Effect, Event, SavedDeviceOps, Zedagent};
use crate::limits::Limits;

/// By numbers; answers are for the newest request, an older one, or a foreign one.
#[derive(Debug, Clone)]
enum Fact {
    Config(u32),
    Status(u8, u8),
    Answer { newest: bool, status: u8 },
    Testing(bool),
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (5_u32..9).prop_map(Fact::Config),
        (2_u8..11, 1_u8..5).prop_map(|(status, by)| Fact::Status(status, by)),
        (any::<bool>(), 2_u8..10).prop_map(|(newest, status)| Fact::Answer { newest, status }),
        any::<bool>().prop_map(Fact::Testing),
    ]
}

fn event(fact: &Fact, newest: Option<RequestId>, wall: GoTime) -> Event {
    match fact {
        Fact::Config(counter) => {
            let command = DeviceOpsCmd { counter: *counter, ..DeviceOpsCmd::default() };
            let commands = BTreeMap::from([(DeviceOp::Reboot, command)]);
            Event::Config(DesiredDevice { commands, clustered: true, ..DesiredDevice::default() })
        }
        Fact::Status(status, by) => {
            Event::Drain(Some(NodeDrainStatus { status: (*status).into(), requested_by: (*by).into() }))
        }
        Fact::Answer { newest: of_newest, status } => {
            let stranger = RequestId { by: Requester::DeviceOp, at: wall };
            let id = newest.filter(|_| *of_newest).unwrap_or(stranger);
            let answer = Answer {
                requested_by: id.by,
                requested_at: id.at,
                status: (*status).into(),
                ..Answer::default()
            };
            Event::Progress(Some(Box::new(NodeDrainProgress {
                answers: vec![answer],
                ..NodeDrainProgress::default()
            })))
        }
        Fact::Testing(testing) => Event::Nodeagent(Box::new(NodeAgentStatus {
            update_inprogress: *testing,
            ..NodeAgentStatus::default()
        })),
    }
}

proptest! {
    /// Never early: beside a zedkube that answers, no command comes but for a COMPLETE of the newest request.
    /// A fact heard twice is a fact heard once.
    #[test]
    fn p3_no_order_of_facts_commands_without_its_own_complete(facts in prop::collection::vec(fact(), 1..40)) {
        let wall: GoTime = "2026-03-14T09:26:53Z".parse().unwrap();
        let saved = DeviceOpsCmd { counter: 6, ..DeviceOpsCmd::default() };
        let found = SavedDeviceOps {
            counters: BTreeMap::from([(DeviceOp::Reboot, saved)]),
            boot_id: "b1".into(),
            ..SavedDeviceOps::default()
        };
        let mut now = Mono::from_start(Duration::from_secs(1));
        let (mut core, _) = Zedagent::new(&Limits::default(), found, now, wall);
        // zedkube is there from the start, and answers by request.
        core.step(now, event(&Fact::Status(2, 1), None, wall));
        core.step(now, event(&Fact::Answer { newest: false, status: 2 }, None, wall));
        let (mut newest, mut completed, mut commanded) = (None, false, false);
        for fact in &facts {
            now = now + Duration::from_secs(1);
            if let Fact::Answer { newest: true, status } = fact
                && newest.is_some()
            {
                completed = *status == 9;
            } else if matches!(fact, Fact::Answer { .. }) {
                completed = false;
            }
            let event = event(fact, newest, wall);
            let mut effects = core.step(now, event.clone());
            let again = core.step(now, event);
            let asked = |effects: &[Effect]| effects.iter().any(|it| matches!(it, Effect::Request(_)));
            prop_assert!(!(asked(&effects) && asked(&again)), "asked twice for one fact");
            effects.extend(again);
            for effect in &effects {
                #[expect(clippy::wildcard_enum_match_arm, reason = "only these three say anything about commands")]
                match effect {
                    Effect::Request(request) => {
                        newest = Some(request.id());
                        completed = false;
                    }
                    Effect::Withdraw => newest = None,
                    Effect::Publish(status) if status.reboot_cmd && !commanded => {
                        prop_assert!(completed, "commanded without its own COMPLETE after {fact:?}");
                        commanded = true;
                    }
                    _ => {}
                }
            }
        }
    }
}
