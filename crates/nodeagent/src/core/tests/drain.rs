//! WaitDrainInProgress, for every status and requester.

use super::*;

const REQUESTERS: [Requester; 7] = [
    Requester::Unset,
    Requester::None,
    Requester::DeviceOp,
    Requester::Update,
    Requester::Operator,
    Requester::K3sUpdate,
    Requester::Stranger(9),
];

fn statuses() -> Vec<DrainStatus> {
    let mut all = DrainStatus::NAMED.to_vec();
    all.push(DrainStatus::Stranger(17));
    all
}

/// The rule, apart from the code: what WaitDrainInProgress is after this status, `None` where it stays.
fn expected(status: DrainStatus, by: Requester) -> Option<bool> {
    match (status.number(), by.number()) {
        (1 | 2, _) | (9, 2) => Some(false),
        (3..=8, 2) => Some(true),
        _ => None,
    }
}

#[test]
fn every_status_of_every_requester_gives_the_documented_value() {
    for by in REQUESTERS {
        for status in statuses() {
            for before in [false, true] {
                let mut bench = Bench::new();
                if before {
                    bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
                }
                bench.drain(status, by);
                // A fact that changes the status on its way, so that it is published again in any case.
                bench.hear(Event::Space(Some(0)));
                let waits = bench.status().wait_drain_in_progress;
                assert_eq!(
                    waits,
                    expected(status, by).unwrap_or(before),
                    "{status:?} by {by:?} after {before}"
                );
            }
        }
    }
}

#[test]
fn d_n1_a_cluster_left_in_mid_drain_is_no_drain_to_wait_for() {
    for by in REQUESTERS {
        let mut bench = Bench::new();
        bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
        assert!(bench.status().wait_drain_in_progress);
        bench.drain(DrainStatus::NotSupported, by);
        assert!(!bench.status().wait_drain_in_progress, "by {by:?}");
    }
}

#[test]
fn d_n1_a_request_that_was_taken_back_is_no_drain_to_wait_for() {
    for by in REQUESTERS {
        let mut bench = Bench::new();
        bench.drain(DrainStatus::Requested, Requester::DeviceOp);
        bench.drain(DrainStatus::NotRequested, by);
        assert!(!bench.status().wait_drain_in_progress, "by {by:?}");
    }
}

#[test]
fn a_failed_drain_is_still_waited_for() {
    for failed in [DrainStatus::FailedCordon, DrainStatus::FailedDrain] {
        let mut bench = Bench::new();
        bench.drain(failed, Requester::DeviceOp);
        assert!(bench.status().wait_drain_in_progress, "{failed:?}");
    }
}

#[test]
fn a_drain_is_told_at_each_of_its_steps_and_its_end() {
    let mut bench = Bench::new();
    for status in
        [DrainStatus::NotRequested, DrainStatus::Requested, DrainStatus::Requested, DrainStatus::Cordoned]
    {
        bench.drain(status, Requester::DeviceOp);
    }
    bench.drain(DrainStatus::Complete, Requester::DeviceOp);
    let said: Vec<_> = bench
        .done
        .iter()
        .filter_map(|(_, it)| if let Effect::Say(message) = it { Some(message.text.as_str()) } else { None })
        .collect();
    assert_eq!(
        said,
        [
            "handleNodeDrainStatus nodedrain-step:drain-inprogress-handler NodeDrainStatus {Requested 2}",
            "handleNodeDrainStatus nodedrain-step:drain-inprogress-handler NodeDrainStatus {Cordoned 2}",
            "handleNodeDrainStatus nodedrain-step:drain-complete-handler NodeDrainStatus {Complete 2}",
        ]
    );
}

#[test]
fn no_drain_status_moves_the_device() {
    let mut bench = Bench::new();
    for by in REQUESTERS {
        for status in statuses() {
            bench.drain(status, by);
            bench.wait(600);
        }
    }
    assert_eq!(bench.operations(), []);
}
