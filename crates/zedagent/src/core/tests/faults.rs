//! Faults of the reference that this core must not have, and the rules around them.

use super::*;
use requester::UNKNOWN_WAIT;

/// The config wants this reboot.
fn reboots(counter: u32) -> Event {
    wants([(DeviceOp::Reboot, counter)])
}

fn commands(effects: &[Effect]) -> bool {
    effects.iter().any(|it| matches!(it, Effect::Publish(status) if status.reboot_cmd || status.shutdown_cmd))
}

/// A core whose reboot 7 has asked for its drain.
fn asked() -> (Zedagent, NodeDrainRequest) {
    let (mut core, _) = new(found("b1"));
    core.step(T0, status(2, 1));
    let effects = core.step(T0, reboots(7));
    assert!(!commands(&effects));
    let request = request(&effects).unwrap();
    assert_eq!((request.requested_by, request.context.as_str()), (Requester::DeviceOp, "reboot"));
    (core, request)
}

#[test]
fn p2_every_status_holds_a_new_reboot_back_or_lets_it_go() {
    for number in (0..=11).chain([255]) {
        let (mut core, _) = new(found("b1"));
        core.step(T0, status(number, 2));
        let effects = core.step(T0, reboots(7));
        // On a clustered node no status but an answer to its own request lets it go at once.
        assert!(!commands(&effects), "{number}");
        let (mut core, _) = new(found("b1"));
        core.step(T0, status(number, 2));
        core.step(T0, Event::HasToLeave(false));
        let effects = core.step(T0, single(reboots(7)));
        assert_eq!(commands(&effects), number <= 1, "{number}");
    }
}

#[test]
fn a_node_on_its_way_out_waits_until_it_has_left_and_not_for_ever() {
    // After a power cut: zedkube has not spoken yet, and its record may come last.
    for said in [None, Some(status(0, 1)), Some(status(1, 1))] {
        let (mut core, _) = new(found("b1"));
        let first = said.into_iter().chain([single(reboots(7)), Event::HasToLeave(true)]);
        for event in first {
            assert!(!commands(&core.step(T0, event)));
        }
        // It speaks, is asked, and has left in the end.
        let asked = request(&core.step(T0, status(2, 1)));
        assert!(asked.is_some());
        assert!(!commands(&core.step(T0, status(3, 2))));
        assert!(!commands(&core.step(T0 + Duration::from_hours(30), Event::Tick)));
        let late = T0 + Duration::from_hours(31);
        assert!(!commands(&core.step(late, status(1, 1))), "its record says otherwise");
        assert!(commands(&core.step(late, Event::HasToLeave(false))));
    }
    // A zedkube that never speaks is not waited for for ever.
    let (mut core, _) = new(found("b1"));
    core.step(T0, Event::HasToLeave(true));
    core.step(T0, single(reboots(7)));
    let due = core.next_wake().unwrap();
    assert_eq!(due.since(T0), UNKNOWN_WAIT);
    assert!(commands(&core.step(due, Event::Tick)));
}

#[test]
fn a_persons_drain_in_any_state_is_joined_and_never_taken_for_the_reboots_own() {
    for number in 3..=9 {
        let (mut core, _) = new(found("b1"));
        core.step(T0, status(number, 4));
        let effects = core.step(T0, reboots(7));
        assert!(!commands(&effects), "{number}");
        let asked = request(&effects)
            .unwrap_or_else(|| panic!("not asked for while a person's drain is at {number}"));
        // Beside a zedkube without answers: whatever is said to the person is not said to us.
        for later in 0..=9 {
            assert!(!commands(&core.step(T0, status(later, 4))), "{number}, then {later}");
        }
        // Beside ours: the person's answer is not our answer.
        let person = NodeDrainRequest { requested_by: Requester::Operator, ..asked.clone() };
        assert!(!commands(&core.step(T0, answer(&person, 9))), "{number}");
        assert!(commands(&core.step(T0, answer(&asked, 9))), "{number}");
    }
}

#[test]
fn d_a1_cordoned_holds_a_reboot_back() {
    let (mut core, request) = asked();
    assert!(!commands(&core.step(T0, status(5, 2))));
    assert!(!commands(&core.step(T0, answer(&request, 5))));
}

#[test]
fn d_a2_a_counter_in_the_very_first_config_waits_for_zedkube_and_is_not_lost() {
    let (mut core, _) = new(found("b1"));
    let effects = core.step(T0, reboots(7));
    assert!(!commands(&effects));
    assert!(matches!(&effects[1], Effect::Journal(pending) if pending.counter == 7));
    let asked = request(&core.step(T0, status(2, 1))).unwrap();
    assert!(commands(&core.step(T0, answer(&asked, 9))));
}

/// Found by the model: the shutdown's drain would have been given up for a reboot that was then withdrawn.
#[test]
fn u7_a_reboot_after_a_shutdown_was_commanded_shares_its_drain_and_never_gives_it_up() {
    let (mut core, _) = new(found("b1"));
    core.step(T0, status(2, 1));
    let shutdown = request(&core.step(T0, config(6, 7))).unwrap();
    assert!(commands(&core.step(T0, answer(&shutdown, 9))));
    let mut effects = core.step(T0, config(7, 7));
    assert!(effects.iter().any(|it| matches!(it, Effect::Publish(status) if status.reboot_cmd)));
    effects.extend(core.step(T0, config(6, 7)));
    assert!(!effects.iter().any(|it| matches!(it, Effect::Request(_) | Effect::Withdraw)), "{effects:?}");
}

/// Found by the model: a skip would have gone unrecorded.
#[test]
fn a_complete_is_nobodys_before_the_answers_beside_it_were_read_once() {
    let (mut core, _) = new(found("b1"));
    core.step(T0, status(2, 1));
    let request = request(&core.step(T0, reboots(7))).unwrap();
    core.step(T0, status(3, 2));
    // Whether this zedkube gives answers is not known yet: its other topic has not been read.
    assert!(!commands(&core.step(T0, status(9, 2))));
    let skipped =
        answer_as(request.id(), 9, |it| it.skip = "the Kubernetes API was not reachable for 300 s".into());
    let effects = core.step(T0, skipped);
    assert!(commands(&effects));
    assert!(effects.iter().any(|it| matches!(it, Effect::Say(it) if it.text.starts_with("drain skipped"))));
}

#[test]
fn d_a3_stale_node_agent_status_does_not_release_reboot() {
    let (mut core, _) = asked();
    for wait in [true, false, true, false] {
        assert!(!commands(&core.step(T0, nodeagent(|it| it.wait_drain_in_progress = wait))));
    }
}

#[test]
fn d_a4_a_failed_drain_is_asked_for_again_with_a_new_request_and_no_command_is_lost() {
    let (mut core, first) = asked();
    let effects = core.step(T0, answer(&first, 8));
    assert!(!effects.contains(&Effect::Withdraw), "zedkube drains for it once the cause has ended");
    assert!(request(&effects).is_none());
    let due = core.next_wake().unwrap();
    assert_eq!(due.since(T0), Duration::from_secs(30));
    assert!(request(&core.step(T0, Event::Tick)).is_none());
    let second = request(&core.step(due, Event::Tick)).unwrap();
    assert_ne!(second.id(), first.id());
    // The old answer stays what it was; the new one counts.
    assert!(!commands(&core.step(due, answer(&first, 9))));
    assert!(commands(&core.step(due, answer(&second, 9))));
}

#[test]
fn d_a5_an_operation_that_waited_for_an_image_test_is_drained_afterwards() {
    let (mut core, _) = new(found("b1"));
    core.step(T0, status(2, 1));
    core.step(T0, nodeagent(|it| it.update_inprogress = true));
    assert!(request(&core.step(T0, reboots(7))).is_none());
    let effects = core.step(T0, nodeagent(|_| {}));
    assert!(!commands(&effects));
    assert!(request(&effects).is_some());
}

#[test]
fn r3_a_commanded_reboot_counts_after_another_boot_and_only_then() {
    let (mut core, request) = asked();
    let effects = core.step(T0, answer(&request, 9));
    let journal = journal(&effects);
    assert_eq!((journal.state, journal.boot_id.as_str()), (PendingState::Commanded, "b1"));
    // The journal stands before the command.
    let (journaled, commanded) = (
        effects.iter().position(|it| matches!(it, Effect::Journal(_))).unwrap(),
        effects.iter().position(|it| matches!(it, Effect::Publish(_))).unwrap(),
    );
    assert!(journaled < commanded);
    // The agent starts again in the same boot: the command stands, nothing counts yet.
    let (_, effects) = new(SavedDeviceOps { pending: vec![journal.clone()], ..found("b1") });
    assert!(commands(&effects));
    assert!(!effects.iter().any(|it| matches!(it, Effect::SaveCounter(..))));
    // Another boot: executed, once.
    let (mut core, effects) = new(SavedDeviceOps { pending: vec![journal], ..found("b2") });
    assert_eq!(effects[0], Effect::SaveCounter(DeviceOp::Reboot, command(7)));
    assert_eq!(effects[1], Effect::Forget(DeviceOp::Reboot));
    assert!(!commands(&effects));
    core.step(T0, status(2, 1));
    assert!(super::request(&core.step(T0, reboots(7))).is_none());
}

#[test]
fn the_first_counter_ever_is_recorded_and_not_carried_out() {
    let (mut core, _) = new(SavedDeviceOps { counters: step::LiteMap::new(), ..found("b1") });
    let effects = core.step(T0, reboots(7));
    assert_eq!(effects[0], Effect::SaveCounter(DeviceOp::Reboot, command(7)));
    core.step(T0, status(2, 1));
    assert!(request(&core.step(T0, reboots(7))).is_none());
}

#[test]
fn an_unclear_section_neither_asks_nor_takes_back() {
    let (mut core, request) = asked();
    let unclear =
        DesiredDevice { unclear: vec![DeviceOp::Reboot], clustered: true, ..DesiredDevice::default() };
    assert!(!core.step(T0, Event::Config(unclear)).contains(&Effect::Withdraw));
    assert!(commands(&core.step(T0, answer(&request, 9))));
}

#[test]
fn a_silent_zedkube_is_waited_for_and_then_skipped_with_a_reason() {
    let (mut core, _) = new(found("b1"));
    core.step(T0, reboots(7));
    let due = core.next_wake().unwrap();
    assert_eq!(due.since(T0), Duration::from_secs(300));
    let effects = core.step(due, Event::Tick);
    assert!(commands(&effects));
    assert!(journal(&effects).skip.contains("300 s"), "{effects:?}");
}

#[test]
fn a_forced_complete_serves_the_requester_that_it_names_and_is_used_once() {
    let (mut core, request) = asked();
    let by_force = answer_as(request.id(), 9, |it| it.skip_kind = SkipKind::Forced);
    assert!(!commands(&core.step(T0, forced(Requester::Update))));
    let effects = core.step(T0, forced(Requester::DeviceOp));
    assert!(commands(&effects));
    let uses = |effects: &[Effect]| effects.contains(&Effect::UseForce);
    assert!(!uses(&effects), "nodeagent would find the node not drained, and no order");
    assert!(!uses(&core.step(T0, answer(&request, 5))));
    // Drained, but zedkube has not heard of the order yet.
    assert!(!uses(&core.step(T0, answer(&request, 9))));
    assert!(uses(&core.step(T0, by_force.clone())));
    assert!(!uses(&core.step(T0, by_force.clone())));
    // Nobody was asked for a drain.
    let (mut core, _) = new(found("b1"));
    core.step(T0, forced(Requester::DeviceOp));
    assert!(uses(&core.step(T0, reboots(7))));
    let (mut core, _) = asked();
    let effects = core.step(T0, forced(Requester::DeviceOp));
    assert!(journal(&effects).skip.contains("forced"), "{effects:?}");
}

#[test]
fn a_request_that_survived_keeps_its_identity_over_a_restart() {
    let (_, request) = asked();
    let pending = DeviceOpPending {
        counter: 7,
        boot_id: "b1".into(),
        drain_requested_at: request.requested_at,
        attempts: 1,
        ..DeviceOpPending::default()
    };
    let kept = SavedDeviceOps { pending: vec![pending], request: Some(request.clone()), ..found("b1") };
    let (mut core, effects) = new(kept);
    assert!(!effects.contains(&Effect::Withdraw));
    core.step(T0, answer(&request, 5));
    core.step(T0, status(5, 2));
    assert!(super::request(&core.step(T0, reboots(7))).is_none());
    assert!(commands(&core.step(T0, answer(&request, 9))));
}

#[test]
fn a_commanded_reboot_whose_drain_is_void_and_fails_keeps_its_request_and_asks_again_after_a_pause() {
    let (mut core, first) = asked();
    core.step(T0, status(9, 2));
    assert!(commands(&core.step(T0, answer(&first, 9))));
    let waiting_for = |core: &Zedagent| core.pending[&DeviceOp::Reboot].waiting_for.clone();
    let told = waiting_for(&core);
    // Somebody has uncordoned the node: zedkube drains it again for the same request.
    core.step(T0, answer(&first, 5));
    core.step(T0, status(5, 2));
    assert!(waiting_for(&core).starts_with("the node to be drained again"), "{}", waiting_for(&core));
    core.step(T0, status(8, 2));
    let effects = core.step(T0, answer(&first, 8));
    assert!(request(&effects).is_none() && !effects.contains(&Effect::Withdraw), "{effects:?}");
    assert!(waiting_for(&core).starts_with("the next try"), "{}", waiting_for(&core));
    let due = core.next_wake().unwrap();
    assert_eq!(due.since(T0), Duration::from_secs(30));
    let effects = core.step(due, Event::Tick);
    assert!(effects.iter().all(|it| !matches!(it, Effect::Withdraw)));
    let second = request(&effects).unwrap();
    assert!(second.requested_at > first.requested_at);
    core.step(due, status(8, 2));
    let own = core.hold.own.as_ref().and_then(|own| own.id);
    assert_eq!(own, Some(second.id()), "a failure counts once");
    core.step(due, status(9, 2));
    core.step(due, answer(&second, 9));
    assert_eq!(waiting_for(&core), told);
}

#[test]
fn d_a10_a_config_that_is_read_again_says_no_failure_in_between() {
    use topics::ConfigGetStatus::{ReadSaved, Success};
    let (mut core, _) = new(found("b1"));
    let config = |config_get_status| {
        Event::Config(DesiredDevice { clustered: true, config_get_status, ..DesiredDevice::default() })
    };
    let mut said = Vec::new();
    // The last one is the file that was fixed; a reading that brings nothing new says nothing.
    for status in [Success, Success, ReadSaved, ReadSaved, Success] {
        for effect in core.step(T0, config(status)) {
            if let Effect::Publish(status) = effect {
                said.push(status.config_get_status);
            }
        }
    }
    assert_eq!(said, [Success, ReadSaved, Success]);
}

/// The reason for the reboot that stands in the status after these effects.
fn reboot_reason(effects: &[Effect]) -> String {
    let published = effects.iter().find_map(|it| if let Effect::Publish(it) = it { Some(it) } else { None });
    let status = published.filter(|it| it.reboot_cmd).expect("no reboot is commanded");
    status.requested_reboot_reason.clone()
}

#[test]
fn the_reason_of_a_reboot_says_whether_the_node_was_drained_skipped_forced_or_left_its_cluster() {
    // Drained: the reference's words.
    let (mut core, request) = asked();
    let effects = core.step(T0, answer(&request, 9));
    assert_eq!(reboot_reason(&effects), "Drain complete and deferred Reboot Cmd");

    // A COMPLETE of zedkube that is none.
    let (mut core, request) = asked();
    let skipped =
        answer_as(request.id(), 9, |it| it.skip = "the Kubernetes API did not answer for 300 s".into());
    let effects = core.step(T0, skipped);
    let told = "Drain skipped (the Kubernetes API did not answer for 300 s) and deferred Reboot Cmd";
    assert_eq!(reboot_reason(&effects), told);
    // It is the same after a restart of this agent.
    let journal = journal(&effects);
    let (_, effects) = new(SavedDeviceOps { pending: vec![journal], ..found("b1") });
    assert_eq!(reboot_reason(&effects), told);

    // Forced.
    let (mut core, _) = asked();
    let reason = reboot_reason(&core.step(T0, forced(Requester::DeviceOp)));
    assert!(reason.starts_with("Drain skipped (forced {Complete 2} by "), "{reason}");

    // The node left its cluster meanwhile.
    let (mut core, _) = asked();
    core.step(T0, Event::HasToLeave(false));
    core.step(T0, Event::Progress(None));
    core.step(T0, status(1, 1));
    let effects = core.step(T0, single(reboots(7)));
    assert_eq!(
        reboot_reason(&effects),
        "Drain skipped (the node is in no cluster any more) and deferred Reboot Cmd"
    );
}
