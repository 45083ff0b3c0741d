//! A machine that goes down with the whole site.

use super::*;

/// A core that has heard of these counters.
fn configured(reboot: u32, shutdown: u32) -> Zedagent {
    let (mut core, _) = start(found("b1"));
    core.step(T0, config(reboot, shutdown));
    core
}

pub(super) fn order(op: DeviceOp, boot_id: &str) -> Event {
    said(op, boot_id, true, false)
}

fn said(op: DeviceOp, boot_id: &str, go: bool, back: bool) -> Event {
    Event::Site(Some(SiteOrder { id: "op-1".into(), op, boot_id: boot_id.into(), go, back }))
}

/// zedkube answers the request among `effects` that pods stay.
pub(super) fn answered(core: &mut Zedagent, effects: &[Effect]) -> Vec<Effect> {
    let request = request(effects).unwrap_or_else(|| panic!("no drain was asked for: {effects:?}"));
    let skipped = |it: &mut Answer| it.skip = "whole-site shutdown op-1: pods stay".into();
    let mut said = core.step(T0, answer_as(request.id(), 9, skipped));
    said.extend(core.step(T0, status(9, 2)));
    said
}

/// Commanded reboot, shutdown, power-off.
pub(super) fn commanded(effects: &[Effect]) -> Option<(bool, bool, bool)> {
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
        let mut core = configured(6, 6);
        let effects = core.step(T0, order(op, "b1"));
        assert_ne!(commanded(&effects), Some(command), "{op:?}: not before it is answered");
        let effects = answered(&mut core, &effects);
        assert_eq!(commanded(&effects), Some(command), "{op:?}");
        assert!(journal(&effects).skip.contains("pods stay"), "{effects:?}");
    }
}

#[test]
fn u13_an_order_of_an_earlier_boot_was_carried_out_by_the_boot() {
    let mut core = configured(6, 6);
    let effects = core.step(T0, order(DeviceOp::Shutdown, "b0"));
    assert!(effects.is_empty(), "{effects:?}");
    for state in [PendingState::Pending, PendingState::Commanded] {
        let left = left(DeviceOp::Shutdown, state, "b0", "op-1");
        let (mut core, effects) = start(SavedDeviceOps { pending: vec![left], ..found("b1") });
        assert!(effects.contains(&Effect::Forget(DeviceOp::Shutdown)), "{effects:?}");
        assert!(!effects.iter().any(|it| matches!(it, Effect::SaveCounter(..))), "{effects:?}");
        let effects = core.step(T0, config(6, 6));
        assert!(!asks(&effects), "{effects:?}");
    }
}

#[test]
fn u13_a_withdrawn_order_is_pending_no_more_and_the_controllers_wish_is_kept_apart() {
    let mut core = configured(6, 6);
    core.step(T0, order(DeviceOp::Shutdown, "b1"));
    // A config heard meanwhile does not withdraw what the site wants.
    assert!(!core.step(T0, config(6, 6)).contains(&Effect::Forget(DeviceOp::Shutdown)));
    let effects = core.step(T0, Event::Site(None));
    assert!(effects.contains(&Effect::Withdraw) && effects.contains(&Effect::Forget(DeviceOp::Shutdown)));

    // The controller wants a reboot: the site's shutdown goes first, and the reboot is not counted as done by it.
    let mut core = configured(7, 6);
    let effects = core.step(T0, order(DeviceOp::Shutdown, "b1"));
    let effects = answered(&mut core, &effects);
    assert_eq!(commanded(&effects), Some((false, false, true)));
    // A reboot of both is one.
    let mut core = configured(7, 6);
    let effects = core.step(T0, order(DeviceOp::Reboot, "b1"));
    assert!(
        !effects.iter().any(|it| matches!(it, Effect::Journal(it) if !it.site.is_empty())),
        "{effects:?}"
    );
}

#[test]
fn x3_what_a_person_orders_waits_for_its_drain_goes_behind_the_sites_and_is_not_forgotten_unheard() {
    let wants = |op| Event::Person(Some((op, "operator field: new disk".to_owned())));
    for (op, command) in
        [(DeviceOp::Shutdown, (false, false, true)), (DeviceOp::Reboot, (true, false, false))]
    {
        let mut core = configured(6, 6);
        core.step(T0, Event::Site(None));
        let effects = core.step(T0, wants(op));
        assert_ne!(commanded(&effects), Some(command), "{op:?}: not before it is answered");
        assert_eq!(commanded(&answered(&mut core, &effects)), Some(command), "{op:?}");
    }
    // What the site wants goes first.
    let mut core = configured(6, 6);
    core.step(T0, wants(DeviceOp::Reboot));
    let effects = core.step(T0, order(DeviceOp::Shutdown, "b1"));
    assert_eq!(commanded(&answered(&mut core, &effects)), Some((false, false, true)));
    // zedagent starts again: before the file is read, its order is not taken for withdrawn.
    let left = left(DeviceOp::Reboot, PendingState::Pending, "b1", "operator field: new disk");
    let request = NodeDrainRequest {
        requested_at: wall(),
        requested_by: Requester::DeviceOp,
        context: "reboot".into(),
    };
    for stays in [false, true] {
        let found =
            SavedDeviceOps { pending: vec![left.clone()], request: Some(request.clone()), ..found("b1") };
        let (mut core, _) = Zedagent::new(&Limits::default(), found, T0, wall());
        core.step(T0, config(6, 6));
        let effects = core.step(T0, Event::Site(None));
        assert!(!effects.contains(&Effect::Forget(DeviceOp::Reboot)), "{effects:?}");
        // Nor is it carried out: it may have been withdrawn meanwhile.
        let effects = answered(&mut core, &[Effect::Request(request.clone())]);
        assert_eq!(commanded(&effects), None, "{effects:?}");
        let effects = core.step(T0, if stays { wants(DeviceOp::Reboot) } else { Event::Person(None) });
        assert_eq!(commanded(&effects), stays.then_some((true, false, false)), "{effects:?}");
        assert_eq!(effects.contains(&Effect::Forget(DeviceOp::Reboot)), !stays, "{effects:?}");
    }
    // A reboot that the controller wants meanwhile is the same one.
    let mut core = configured(6, 6);
    core.step(T0, Event::Site(None));
    core.step(T0, wants(DeviceOp::Reboot));
    let effects = core.step(T0, config(7, 6));
    assert!(
        effects.iter().any(|it| matches!(it, Effect::Journal(it) if it.counter == 7 && !it.site.is_empty())),
        "{effects:?}"
    );
}

fn saved(effects: &[Effect]) -> Vec<(DeviceOp, u32)> {
    let of = |it: &Effect| if let Effect::SaveCounter(op, it) = it { Some((*op, it.counter)) } else { None };
    effects.iter().filter_map(of).collect()
}

#[test]
fn u13_what_the_device_config_ordered_is_executed_once_with_the_site_also_when_power_was_lost_before_the_command()
 {
    for op in [DeviceOp::Reboot, DeviceOp::Shutdown] {
        let wanted = if op == DeviceOp::Reboot { config(7, 6) } else { config(6, 7) };
        let (mut core, _) = start(found("b1"));
        // It waits with the site, is told to go, and goes.
        let mut effects = core.step(T0, wanted.clone());
        assert!(
            !core.step(T0, said(op, "b1", false, false)).iter().any(|it| matches!(it, Effect::Forget(_)))
        );
        effects.extend(core.step(T0, order(op, "b1")));
        effects.extend(answered(&mut core, &effects));
        let (reboot, _, poweroff) = commanded(&effects).unwrap();
        assert!(reboot || poweroff, "{op:?}");
        let left = |state, site: &str| DeviceOpPending {
            op,
            counter: 7,
            state,
            boot_id: "b1".into(),
            site: site.into(),
            ..DeviceOpPending::default()
        };
        for (left, word) in [
            (left(PendingState::Commanded, ""), None),
            (left(PendingState::Commanded, "op-1"), None),
            (left(PendingState::Pending, "op-1"), None),
            // Cut off before it was commanded: as zedkube left it, and as it finds it in this boot.
            (left(PendingState::Pending, ""), Some(said(op, "b1", true, false))),
            (left(PendingState::Pending, ""), Some(said(op, "b1", false, false))),
            (left(PendingState::Pending, ""), Some(said(op, "b2", false, true))),
        ] {
            let what = format!("{left:?} {word:?}");
            let found = SavedDeviceOps { pending: vec![left], ..found("b2") };
            let (mut core, mut effects) = start(found);
            effects.extend(word.into_iter().flat_map(|word| core.step(T0, word)));
            assert_eq!(saved(&effects), [(op, 7)], "{what}");
            let effects = core.step(T0, wanted.clone());
            assert!(saved(&effects).is_empty() && !asks(&effects), "{what}: {effects:?}");
        }
    }
}

#[test]
fn u13_what_is_ordered_after_the_boot_or_of_another_kind_is_not_executed_with_the_site() {
    let mut core = configured(7, 7);
    let effects = core.step(T0, said(DeviceOp::Reboot, "b1", false, true));
    assert_eq!(saved(&effects), [], "it was ordered in this boot");
    let left =
        DeviceOpPending { op: DeviceOp::Reboot, counter: 7, boot_id: "b1".into(), ..Default::default() };
    let (mut core, effects) = start(SavedDeviceOps { pending: vec![left], ..found("b2") });
    assert!(asks(&effects));
    let mut effects = core.step(T0, said(DeviceOp::Shutdown, "b1", true, false));
    effects.extend(core.step(T0, config(7, 6)));
    assert_eq!(saved(&effects), []);
    assert!(!effects.contains(&Effect::Withdraw), "it is still wanted: {effects:?}");
}

#[test]
fn x3_a_command_that_a_person_withdraws_is_called_off_once_nodeagent_is_not_at_it() {
    for (counter, is_the_persons) in [(6, true), (7, false)] {
        let mut core = configured(6, 6);
        core.step(T0, Event::Site(None));
        let effects =
            core.step(T0, Event::Person(Some((DeviceOp::Reboot, "operator field: new disk".into()))));
        // The controller may want the same by now.
        core.step(T0, config(counter, 6));
        assert_eq!(commanded(&answered(&mut core, &effects)), Some((true, false, false)));
        core.step(T0, goes(true));
        let effects = core.step(T0, Event::Person(None));
        assert_eq!(commanded(&effects), is_the_persons.then_some((false, false, false)), "{effects:?}");
        // The device may have been asked: its drain is not given up before that is known.
        assert!(!effects.contains(&Effect::Withdraw), "{effects:?}");
        let effects = core.step(T0, goes(false));
        let over = [Effect::Withdraw, Effect::Forget(DeviceOp::Reboot)].iter().all(|it| effects.contains(it));
        assert_eq!(over, is_the_persons, "{effects:?}");
    }
}

#[test]
fn x3_a_zedagent_that_restarts_commands_no_order_again_that_is_withdrawn_or_was_called_off() {
    let by = "operator field: new disk";
    for (site, told, stays) in [by, "op-1"].into_iter().flat_map(|site| {
        [(true, true), (true, false), (false, true), (false, false)].map(|(told, stays)| (site, told, stays))
    }) {
        let what = format!("{site}: told {told}, stays {stays}");
        let left = left(DeviceOp::Reboot, PendingState::Commanded, "b1", site);
        let request =
            NodeDrainRequest { requested_at: wall(), requested_by: 2.into(), context: "reboot".into() };
        let found = SavedDeviceOps { pending: vec![left], request: Some(request), told, ..found("b1") };
        let is_persons = site == by;
        let (mut core, effects) = Zedagent::new(&Limits::default(), found, T0, wall());
        assert_eq!(commanded(&effects), Some((told || !is_persons, false, false)), "{what}");
        core.step(T0, config(6, 6));
        core.step(T0, Event::Site(None));
        let order = stays.then(|| (DeviceOp::Reboot, by.to_owned()));
        let effects = core.step(T0, Event::Person(order));
        assert_eq!(core.status.reboot_cmd, stays || !is_persons, "{what}");
        // Whether the device was asked is not known yet: the drain stays.
        assert!(!effects.contains(&Effect::Withdraw), "{what}: {effects:?}");
        assert!(!core.step(T0, goes(true)).contains(&Effect::Withdraw), "{what}");
        let over = core.step(T0, goes(false));
        let over = [Effect::Withdraw, Effect::Forget(DeviceOp::Reboot)].iter().all(|it| over.contains(it));
        assert_eq!(over, is_persons && !stays, "{what}");
    }
}
