//! A person's pause: nothing begins, what has begun ends, and a refusal takes back what the controller has begun.
//!
//! Pure: no clock, no I/O, no task.

use step::Core as _;
use topics::{
    DeviceOp, DeviceOpPending, DrainStatus, NodeDrainStatus, OperationPause, PauseScope, Requester,
};

use super::site::{T0, answered, commanded, config, order, start};
use super::{DesiredDevice, Effect, Event, SavedDeviceOps};

const REBOOTS: Option<(bool, bool, bool)> = Some((true, false, false));

fn pause(scope: PauseScope) -> OperationPause {
    OperationPause { scope, by: "field".into(), reason: "new disk".into(), ..OperationPause::default() }
}

fn said(scope: PauseScope) -> Event {
    Event::Pause(Some(pause(scope)))
}

fn wants() -> Event {
    Event::Person(Some((DeviceOp::Reboot, "operator field: new disk".to_owned())))
}

fn asks(effects: &[Effect]) -> bool {
    effects.iter().any(|it| matches!(it, Effect::Request(_)))
}

fn waits_for(effects: &[Effect]) -> &DeviceOpPending {
    effects.iter().rev().find_map(|it| if let Effect::Journal(it) = it { Some(it) } else { None }).unwrap()
}

#[test]
fn x3_while_paused_nothing_is_asked_for_and_it_continues_by_itself_once_a_person_says_so() {
    for (scope, ends) in [(PauseScope::Node, "`zedbox resume`"), (PauseScope::Controller, "`zedbox resume`")]
    {
        let (mut core, _) = start(SavedDeviceOps { pause: Some(pause(scope)), ..SavedDeviceOps::default() });
        core.step(T0, Event::Site(None));
        core.step(T0, config(6, 6));
        let effects = core.step(T0, config(7, 6));
        assert!(!asks(&effects), "{effects:?}");
        let shown = waits_for(&effects);
        assert!(shown.waiting_for.contains("by field: new disk"), "{shown:?}");
        assert!(shown.next_step.contains(ends), "{shown:?}");
        // A config that says the same again, or more, lifts nothing.
        for counter in [7, 8] {
            assert!(!asks(&core.step(T0, config(counter, 6))));
        }
        // Nor does a node that nobody drains: it is in no cluster.
        let single = DesiredDevice { clustered: false, ..wanted_of(config(8, 6)) };
        core.step(T0, Event::HasToLeave(false));
        let supported = NodeDrainStatus { status: DrainStatus::NotSupported, requested_by: Requester::None };
        core.step(T0, Event::Drain(Some(supported)));
        let effects = core.step(T0, Event::Config(single));
        assert_ne!(commanded(&effects), REBOOTS);
        assert_eq!(commanded(&core.step(T0, Event::Pause(None))), REBOOTS);
    }
}

fn wanted_of(event: Event) -> DesiredDevice {
    let Event::Config(wanted) = event else { panic!("no config: {event:?}") };
    wanted
}

#[test]
fn x3_what_has_started_ends_under_a_pause_and_is_taken_back_by_a_refusal() {
    for scope in [PauseScope::Node, PauseScope::Controller] {
        let (mut core, _) = start(SavedDeviceOps::default());
        core.step(T0, Event::Site(None));
        core.step(T0, config(6, 6));
        let asked = core.step(T0, config(7, 6));
        assert!(asks(&asked));
        let effects = core.step(T0, said(scope));
        let refused = scope == PauseScope::Controller;
        assert_eq!(effects.contains(&Effect::Withdraw), refused, "{effects:?}");
        assert!(!effects.contains(&Effect::Forget(DeviceOp::Reboot)), "it is not lost: {effects:?}");
        let effects = answered(&mut core, &asked);
        assert_eq!(commanded(&effects) == REBOOTS, !refused, "{effects:?}");
        if refused {
            let again = core.step(T0, Event::Pause(None));
            assert!(asks(&again), "{again:?}");
            assert_eq!(commanded(&answered(&mut core, &again)), REBOOTS);
        }
    }
}

#[test]
fn x3_a_persons_own_order_waits_for_a_pause_and_passes_a_refusal_and_the_sites_passes_both() {
    for (scope, own_goes) in [(PauseScope::Node, false), (PauseScope::Controller, true)] {
        let (mut core, _) = start(SavedDeviceOps { pause: Some(pause(scope)), ..SavedDeviceOps::default() });
        core.step(T0, config(6, 6));
        core.step(T0, Event::Site(None));
        let effects = core.step(T0, wants());
        assert_eq!(asks(&effects), own_goes, "{effects:?}");
        let (mut core, _) = start(SavedDeviceOps { pause: Some(pause(scope)), ..SavedDeviceOps::default() });
        core.step(T0, config(6, 6));
        let effects = core.step(T0, order(DeviceOp::Reboot, "b1"));
        assert_eq!(commanded(&answered(&mut core, &effects)), REBOOTS, "{effects:?}");
    }
}

#[test]
fn x3_what_a_person_forces_goes_and_what_is_commanded_is_not_called_back() {
    for scope in [PauseScope::Node, PauseScope::Controller] {
        let (mut core, _) = start(SavedDeviceOps { pause: Some(pause(scope)), ..SavedDeviceOps::default() });
        core.step(T0, Event::Site(None));
        core.step(T0, config(6, 6));
        assert_ne!(commanded(&core.step(T0, config(7, 6))), REBOOTS);
        let order = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
        assert_eq!(commanded(&core.step(T0, Event::Forced(Some(order)))), REBOOTS);
        let effects = core.step(T0, said(scope));
        assert!(!effects.contains(&Effect::Withdraw), "{effects:?}");
        assert_eq!(commanded(&effects), None, "it stays commanded");
    }
}
