//! A machine that goes down with the whole site.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::{Core as _, Mono};
use topics::{
    Answer, DeviceOp, DeviceOpPending, DeviceOpsCmd, GoTime, NodeDrainProgress, NodeDrainStatus, PendingState,
};

use super::{Effect, Event, Found, SiteOrder, Wanted, Zedagent};
use crate::limits::Limits;

const T0: Mono = Mono::from_start(Duration::from_secs(100));

fn start(found: Found) -> (Zedagent, Vec<Effect>) {
    let wall: GoTime = "2026-03-14T09:26:53Z".parse().unwrap();
    let command = DeviceOpsCmd { counter: 6, desired_state: true, ops_time: String::new() };
    let counters = [DeviceOp::Reboot, DeviceOp::Shutdown].map(|op| (op, command.clone())).into();
    let (mut core, mut effects) =
        Zedagent::new(Limits::default(), Found { counters, boot_id: "b1".into(), ..found }, T0, wall);
    effects.extend(
        core.step(T0, Event::Drain(Some(NodeDrainStatus { status: 2.into(), requested_by: 1.into() }))),
    );
    (core, effects)
}

/// The controller has these counters.
fn config(reboot: u32, shutdown: u32) -> Event {
    let of = |counter| DeviceOpsCmd { counter, desired_state: true, ops_time: String::new() };
    let commands = BTreeMap::from([(DeviceOp::Reboot, of(reboot)), (DeviceOp::Shutdown, of(shutdown))]);
    Event::Config(Wanted { commands, clustered: true, ..Wanted::default() })
}

fn order(op: DeviceOp, boot_id: &str) -> Event {
    Event::Site(Some(SiteOrder { id: "op-1".into(), op, boot_id: boot_id.into() }))
}

/// zedkube answers the request among `effects` that pods stay.
fn answered(core: &mut Zedagent, effects: &[Effect]) -> Vec<Effect> {
    let request =
        effects.iter().find_map(|it| if let Effect::Request(it) = it { Some(it.clone()) } else { None });
    let request = request.unwrap_or_else(|| panic!("no drain was asked for: {effects:?}"));
    let answer = Answer {
        requested_by: request.requested_by,
        requested_at: request.requested_at,
        status: 9.into(),
        skip: "whole-site shutdown op-1: pods stay".into(),
        ..Answer::default()
    };
    let progress = NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() };
    let mut said = core.step(T0, Event::Progress(Some(Box::new(progress))));
    said.extend(
        core.step(T0, Event::Drain(Some(NodeDrainStatus { status: 9.into(), requested_by: 2.into() }))),
    );
    said
}

/// What is commanded: reboot, shutdown, power-off.
fn commanded(effects: &[Effect]) -> Option<(bool, bool, bool)> {
    effects.iter().rev().find_map(|it| {
        let Effect::Publish(status) = it else { return None };
        Some((status.reboot_cmd, status.shutdown_cmd, status.poweroff_cmd))
    })
}

#[test]
fn u13_the_site_switches_a_machine_off_or_reboots_it_behind_its_own_answer() {
    for (op, command) in
        [(DeviceOp::Shutdown, (false, false, true)), (DeviceOp::Reboot, (true, false, false))]
    {
        let (mut core, _) = start(Found::default());
        core.step(T0, config(6, 6));
        let effects = core.step(T0, order(op, "b1"));
        assert_ne!(commanded(&effects), Some(command), "{op:?}: not before it is answered");
        let effects = answered(&mut core, &effects);
        assert_eq!(commanded(&effects), Some(command), "{op:?}");
        let pending =
            effects.iter().rev().find_map(|it| if let Effect::Journal(it) = it { Some(it) } else { None });
        assert!(pending.unwrap().skip.contains("pods stay"), "{pending:?}");
    }
}

#[test]
fn u13_an_order_of_an_earlier_boot_was_carried_out_by_the_boot() {
    let (mut core, _) = start(Found::default());
    core.step(T0, config(6, 6));
    let effects = core.step(T0, order(DeviceOp::Shutdown, "b0"));
    assert!(effects.is_empty(), "{effects:?}");
    for state in [PendingState::Pending, PendingState::Commanded] {
        let left = DeviceOpPending {
            op: DeviceOp::Shutdown,
            state,
            boot_id: "b0".into(),
            site: "op-1".into(),
            ..DeviceOpPending::default()
        };
        let (mut core, effects) = start(Found { pending: vec![left], ..Found::default() });
        assert!(effects.contains(&Effect::Forget(DeviceOp::Shutdown)), "{effects:?}");
        assert!(!effects.iter().any(|it| matches!(it, Effect::SaveCounter(..))), "{effects:?}");
        let effects = core.step(T0, config(6, 6));
        assert!(!effects.iter().any(|it| matches!(it, Effect::Request(_))), "{effects:?}");
    }
}

#[test]
fn u13_a_withdrawn_order_is_pending_no_more_and_the_controllers_wish_is_kept_apart() {
    let (mut core, _) = start(Found::default());
    core.step(T0, config(6, 6));
    core.step(T0, order(DeviceOp::Shutdown, "b1"));
    // A config heard meanwhile does not withdraw what the site wants.
    assert!(!core.step(T0, config(6, 6)).contains(&Effect::Forget(DeviceOp::Shutdown)));
    let effects = core.step(T0, Event::Site(None));
    assert!(effects.contains(&Effect::Withdraw) && effects.contains(&Effect::Forget(DeviceOp::Shutdown)));

    // The controller wants a reboot: the site's shutdown goes first, and the reboot is not counted as done by it.
    let (mut core, _) = start(Found::default());
    core.step(T0, config(7, 6));
    let effects = core.step(T0, order(DeviceOp::Shutdown, "b1"));
    let effects = answered(&mut core, &effects);
    assert_eq!(commanded(&effects), Some((false, false, true)));
    // A reboot of both is one.
    let (mut core, _) = start(Found::default());
    core.step(T0, config(7, 6));
    let effects = core.step(T0, order(DeviceOp::Reboot, "b1"));
    assert!(
        !effects.iter().any(|it| matches!(it, Effect::Journal(it) if !it.site.is_empty())),
        "{effects:?}"
    );
}
