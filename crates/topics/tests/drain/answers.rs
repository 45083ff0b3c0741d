use topics::{Defer, DrainStatus, NodeDrainStatus, Requester};

#[test]
fn p2_every_status_has_its_decision_and_a_stranger_waits() {
    let table = [
        (0, "Unknown", Defer::Proceed),
        (1, "Not Supported", Defer::Proceed),
        (2, "Not Requested", Defer::Ask),
        (3, "Requested", Defer::Wait),
        (4, "Starting", Defer::Wait),
        // D-A1: the reference goes ahead here.
        (5, "Cordoned", Defer::Wait),
        (6, "Failed Cordon", Defer::Ask),
        (7, "Drain Retrying", Defer::Wait),
        (8, "Failed Drain", Defer::Ask),
        (9, "Complete", Defer::Proceed),
        (10, "Unknown", Defer::Wait),
        (255, "Unknown", Defer::Wait),
    ];
    for (number, text, defer) in table {
        let status = DrainStatus::from(number);
        assert_eq!((status.number(), status.text(), status.defer()), (number, text, defer));
    }
}

#[test]
fn a_status_is_shown_as_the_reference_shows_it() {
    let status = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
    assert_eq!(status.to_string(), "{Complete 2}");
}
