//! The last look before the device is asked: still drained, and for whom it was.

use super::*;
use MachineOperation::{Poweroff, Reboot, Shutdown};

/// The order of an image that was switched to, or of a command.
fn latched(by: Requester, operation: MachineOperation) -> Bench {
    let mut bench = Bench::new();
    bench.drain(DrainStatus::Complete, by);
    if by == Requester::Update {
        bench.partition("IMGB", "updating", false);
    } else {
        bench.command(operation);
    }
    bench
}

#[test]
fn p3_a_node_that_is_drained_again_is_not_taken_down_before_that_drain_is_complete() {
    let again = [
        DrainStatus::Requested,
        DrainStatus::Starting,
        DrainStatus::Cordoned,
        DrainStatus::DrainRetrying,
        DrainStatus::FailedCordon,
        DrainStatus::FailedDrain,
    ];
    let all = [
        (Requester::DeviceOp, Reboot),
        (Requester::DeviceOp, Shutdown),
        (Requester::DeviceOp, Poweroff),
        (Requester::Update, Reboot),
    ];
    for (by, operation) in all {
        for status in again {
            let mut bench = latched(by, operation);
            bench.drain(status, by);
            bench.wait(7200);
            assert_eq!(bench.operations(), [], "{operation:?} while {status:?}");
            assert_eq!(bench.said("held back"), 1, "it is said once");
            bench.drain(DrainStatus::Complete, by);
            let operations = bench.operations();
            assert_eq!(operations.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [(7200, operation)]);
        }
    }
}

#[test]
fn x3_a_command_that_our_zedagent_takes_back_is_called_off_until_the_device_is_asked() {
    let of = |ours, operations: &[MachineOperation]| Event::Wish(DeviceCommand { ours, ..wish(operations) });
    for operation in [Reboot, Poweroff, Shutdown] {
        for ours in [false, true] {
            let mut bench = Bench::new();
            bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
            bench.hear(of(ours, &[operation]));
            bench.wait(200);
            bench.hear(of(ours, &[]));
            let status = bench.status();
            let flags = [status.device_reboot, status.device_shutdown, status.device_poweroff];
            assert_eq!((flags.contains(&true), status.all_domains_halted), (!ours, !ours), "{operation:?}");
            bench.drain(DrainStatus::Complete, Requester::DeviceOp);
            bench.wait(7200);
            // A zedagent of the reference takes nothing back.
            assert_eq!(bench.operations().len(), usize::from(!ours), "{operation:?}");
            if ours {
                bench.hear(of(ours, &[operation]));
                bench.wait(200);
                assert_eq!(bench.operations().len(), 1, "{operation:?}: a later one is carried out");
                // The device was asked: it is too late.
                bench.hear(of(ours, &[]));
                assert_eq!(bench.kinds().iter().filter(|(_, kind)| *kind == "call off").count(), 1);
            }
        }
    }
}

/// A reboot whose disks are in sync after `secs`: what the core asks for then.
fn synced_after(secs: u64) -> (Bench, Vec<Effect>) {
    let mut bench = latched(Requester::DeviceOp, Reboot);
    bench.wait(59);
    bench.now = Mono::from_start(Duration::from_secs(60));
    assert!(bench.core.step(bench.now, Event::Tick).contains(&Effect::LastSync));
    bench.now = bench.now + Duration::from_secs(secs);
    let effects = bench.core.step(bench.now, Event::Synced);
    (bench, effects)
}

#[test]
fn p3_the_last_look_comes_after_the_disks_are_in_sync_and_nothing_comes_between_it_and_the_device() {
    let (mut bench, effects) = synced_after(100);
    assert_eq!(effects, [Effect::Check]);
    // The drain was undone while the disks took their time.
    let undone = NodeDrainStatus { status: DrainStatus::Starting, requested_by: Requester::DeviceOp };
    bench.hear(Event::Checked { status: Some(undone), answers: Vec::new(), forced: None, ours: false });
    assert_eq!(bench.operations(), []);

    let (mut bench, _) = synced_after(100);
    let still = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
    let effects = bench.core.step(
        bench.now,
        Event::Checked { status: Some(still), answers: Vec::new(), forced: None, ours: false },
    );
    let [Effect::Operate(order)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(order.operation, Reboot);
}

#[test]
fn disks_that_never_come_to_an_end_hold_nothing_up_for_ever() {
    let mut bench = latched(Requester::DeviceOp, Reboot);
    bench.wait(59);
    bench.now = Mono::from_start(Duration::from_secs(60));
    bench.core.step(bench.now, Event::Tick);
    bench.wait(119);
    assert_eq!(bench.operations(), []);
    bench.wait(1);
    assert_eq!(bench.operations(), [(180, Reboot, BootReason::RebootCmd)]);
    let late = |it: &&(u64, Effect)| is_said(&it.1, "not in sync after 120 s");
    assert_eq!(bench.done.iter().find(late).map(|it| it.0), Some(180));
    // Late, and nobody waits for it any more.
    assert_eq!(bench.hear(Event::Synced), []);
}

/// Found by the model: while the drain for an image begins, the status does not tell that the one for the reboot failed.
#[test]
fn an_answer_counts_more_than_a_status_that_names_somebody_else() {
    let answer = |status| Answer { requested_by: Requester::DeviceOp, status, ..Answer::default() };
    for (told, goes) in
        [(DrainStatus::Complete, true), (DrainStatus::FailedDrain, false), (DrainStatus::Starting, false)]
    {
        for status in [DrainStatus::Starting, DrainStatus::Complete] {
            let (mut bench, _) = synced_after(0);
            let status = Some(NodeDrainStatus { status, requested_by: Requester::Update });
            bench.hear(Event::Checked { status, answers: vec![answer(told)], forced: None, ours: false });
            assert_eq!(bench.operations().len(), usize::from(goes), "{told:?} beside {status:?}");
        }
    }
}

#[test]
fn a_forced_complete_lets_the_operation_go_that_it_names_whatever_zedkube_says() {
    let order = |status, requested_by| NodeDrainStatus { status, requested_by };
    let rows = [
        (order(DrainStatus::Complete, Requester::DeviceOp), true),
        (order(DrainStatus::Complete, Requester::Update), false),
        (order(DrainStatus::NotRequested, Requester::DeviceOp), false),
    ];
    for (forced, goes) in rows {
        let (mut bench, _) = synced_after(0);
        let status = Some(order(DrainStatus::Cordoned, Requester::DeviceOp));
        bench.hear(Event::Checked { status, answers: Vec::new(), forced: Some(forced), ours: false });
        assert_eq!(bench.operations().len(), usize::from(goes), "{forced:?}");
    }
}

#[test]
fn drains_for_others_words_that_end_nothing_and_own_limits_hold_nothing_back() {
    let others = [
        (DrainStatus::Cordoned, Requester::Update),
        (DrainStatus::FailedDrain, Requester::Operator),
        (DrainStatus::NotRequested, Requester::None),
        (DrainStatus::NotSupported, Requester::None),
        (DrainStatus::Unknown, Requester::Unset),
    ];
    for (status, by) in others {
        let mut bench = latched(Requester::DeviceOp, Reboot);
        bench.drain(status, by);
        bench.wait(60);
        assert_eq!(bench.operations(), [(60, Reboot, BootReason::RebootCmd)], "{status:?} {by:?}");
    }
    let mut bench = Bench::new();
    bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(Waits::default().no_controller.as_secs() + 60);
    assert_eq!(bench.operations().len(), 1);
}
