//! The last look before the device is asked: still drained, and for whom it was.

use super::*;
use Operation::{Poweroff, Reboot, Shutdown};

/// The order of an image that was switched to, or of a command.
fn latched(by: Requester, operation: Operation) -> Bench {
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
            let held = |it: &&(u64, Effect)| matches!(it.1, Effect::Say(Note::Held { .. }));
            assert_eq!(bench.done.iter().filter(held).count(), 1, "it is said once");
            bench.drain(DrainStatus::Complete, by);
            let operations = bench.operations();
            assert_eq!(operations.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [(7200, operation)]);
        }
    }
}

#[test]
fn what_is_read_at_the_last_moment_counts_and_not_what_was_heard() {
    let mut bench = latched(Requester::DeviceOp, Reboot);
    bench.wait(59);
    bench.now = Mono::from_start(Duration::from_secs(60));
    let effects = bench.core.step(bench.now, Event::Tick);
    assert!(effects.contains(&Effect::Check));
    let status = NodeDrainStatus { status: DrainStatus::Cordoned, requested_by: Requester::DeviceOp };
    bench.hear(Event::Checked { status: Some(status), answers: Vec::new() });
    assert_eq!(bench.operations(), []);
    assert!(bench.status().wait_drain_in_progress);
}

/// Found by the model: while the drain for an image begins, the status does not tell that the one for the reboot failed.
#[test]
fn an_answer_counts_more_than_a_status_that_names_somebody_else() {
    let answer = |status| Answer { requested_by: Requester::DeviceOp, status, ..Answer::default() };
    for (told, goes) in
        [(DrainStatus::Complete, true), (DrainStatus::FailedDrain, false), (DrainStatus::Starting, false)]
    {
        for status in [DrainStatus::Starting, DrainStatus::Complete] {
            let mut bench = latched(Requester::DeviceOp, Reboot);
            bench.wait(59);
            bench.now = Mono::from_start(Duration::from_secs(60));
            bench.core.step(bench.now, Event::Tick);
            let status = Some(NodeDrainStatus { status, requested_by: Requester::Update });
            bench.hear(Event::Checked { status, answers: vec![answer(told)] });
            assert_eq!(bench.operations().len(), usize::from(goes), "{told:?} beside {status:?}");
        }
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
