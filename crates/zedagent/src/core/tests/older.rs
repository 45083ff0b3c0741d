//! A record of which an older copy was read: the boot before this one says how it went on.
//!
//! Pure: no clock, no I/O, no task.

use step::Core as _;
use topics::{BootReason, DeviceOp, DeviceOpPending, NodeAgentStatus};

use super::site::{T0, config, start};
use super::{Effect, Event, SavedDeviceOps};

fn older(op: DeviceOp, boot_id: &str) -> SavedDeviceOps {
    let left = DeviceOpPending { op, counter: 7, boot_id: boot_id.into(), ..DeviceOpPending::default() };
    SavedDeviceOps { pending: vec![left], older: vec![op], boot_id: "b2".into(), ..SavedDeviceOps::default() }
}

fn booted(boot_reason: BootReason) -> Event {
    Event::Nodeagent(Box::new(NodeAgentStatus { boot_reason, ..NodeAgentStatus::default() }))
}

fn asks(effects: &[Effect]) -> bool {
    effects.iter().any(|it| matches!(it, Effect::Request(_)))
}

#[test]
fn k2_what_an_older_copy_says_is_pending_is_not_carried_out_twice_or_that_is_said() {
    let again = |op: DeviceOp| {
        let record = format!("the record of {} 7 was damaged", op.word());
        move |it: &Effect| matches!(it, Effect::Say(it) if it.text.starts_with(&record))
    };
    let rows = [
        (DeviceOp::Reboot, BootReason::RebootCmd, true),
        (DeviceOp::Reboot, BootReason::PowerFail, false),
        // The machine stays on after the controller's shutdown, so no boot tells of it.
        (DeviceOp::Shutdown, BootReason::RebootCmd, false),
    ];
    for (op, reason, executed) in rows {
        let (mut core, mut effects) = start(older(op, "b1"));
        let both = if op == DeviceOp::Reboot { (7, 6) } else { (6, 7) };
        effects.extend(core.step(T0, Event::Site(None)));
        effects.extend(core.step(T0, config(both.0, both.1)));
        assert!(!asks(&effects), "nodeagent has not said why the machine has booted: {effects:?}");
        let effects = core.step(T0, booted(reason));
        let saved = effects.iter().any(|it| matches!(it, Effect::SaveCounter(of, _) if *of == op));
        assert_eq!((saved, asks(&effects), effects.iter().any(again(op))), (executed, !executed, !executed));
        assert!(!asks(&core.step(T0, booted(BootReason::RebootCmd))), "it has been asked for once");
    }
    // Of this boot it was not carried out.
    let (mut core, mut effects) = start(older(DeviceOp::Reboot, "b2"));
    effects.extend(core.step(T0, Event::Site(None)));
    effects.extend(core.step(T0, config(7, 6)));
    assert!(asks(&effects));
}
