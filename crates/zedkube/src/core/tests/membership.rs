//! Which request a drain is for, over withdrawals, restarts and boots.
//!
//! Pure: no clock, no I/O, no task.

use topics::Requester;

use super::bench::Bench;
use super::stories::{go, tell};

#[test]
fn d_k6_a_request_taken_back_in_any_state_cancels_and_gives_the_node_back() {
    let states =
        ["", "unreachable", "probed", "probed, cordoned", "probed, cordoned, fail", "probed, cordoned, done"];
    for state in states {
        let mut bench = Bench::asked(Requester::DeviceOp);
        let run = bench.run();
        go(&mut bench, &format!("{state}, withdraw DeviceOp, does cancel uncordon, status 2 1"));
        // A late result of the cancelled run changes nothing.
        bench.done(run);
        assert_eq!(bench.status(), (2, 1), "{state}");
    }
}

#[test]
fn a_device_in_no_cluster_looks_once_and_is_then_left_alone_until_it_joins() {
    // A cordon may be left from an earlier membership.
    tell(
        "new, member Outside, named, requests read, does any-look, look fails, due never
        member Member, does any-look, look fails, wait 15",
    );
}

#[test]
fn after_another_boot_nothing_is_complete_and_an_own_cordon_goes_when_the_node_is_ready() {
    tell(
        "booted, showed 1 1, status 2 1, does uncordon, look NotReady, wait 15, does uncordon, look Open
        due never",
    );
}

#[test]
fn a_forced_status_is_not_taken_for_the_real_one_after_a_restart() {
    // The update's drain was not done, and after a restart nobody must think so.
    let bench = tell(
        "idle, ask DeviceOp, drains, ask Update 2, force Complete DeviceOp, status 9 2
        restart DeviceOp 1 Update 2",
    );
    assert!(bench.statuses.iter().all(|(status, _)| *status == 5), "{:?}", bench.statuses);
    bench.run();
}

#[test]
fn when_the_second_request_goes_the_answer_to_the_first_holds_again() {
    // The reboot has its answer and is not held back again; in the end nobody waits for the other drain any more.
    tell(
        "idle, ask DeviceOp, drains, done, ask Update 2, drains, status 5 3, withdraw Update, does cancel, status 9 2
        not uncordon, look Ours, status 9 2",
    );
}

#[test]
fn a_node_that_was_given_back_is_looked_at_once_more_as_a_cordon_may_arrive_late() {
    tell(
        "asked DeviceOp, probed, withdraw DeviceOp, look Open, wait 15, does uncordon, look Open
        due never",
    );
}

#[test]
fn p5_a_requester_whose_drain_failed_is_not_told_complete_for_the_other_one() {
    tell(
        "draining Update, fails all, status 8 3, look Open, ask DeviceOp 2, force Complete DeviceOp, force gone
        status 9 2, pass 60, tick, status 9 2",
    );
}
