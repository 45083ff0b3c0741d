//! Which request a drain is for, over withdrawals, restarts and boots.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Core as _;
use topics::{CordonOwner, DrainJournal, DrainStatus, Requester};

use super::bench::{Bench, T0, at_once, request};
use super::{Effect, Event, Force, Membership, NodeLook};

#[test]
fn d_k6_a_request_taken_back_in_any_state_cancels_and_gives_the_node_back() {
    for steps in 0..6 {
        let mut bench = Bench::asked(Requester::DeviceOp);
        let run = bench.run();
        if steps > 0 {
            bench.hear(Event::Probed(run, if steps == 1 { Err("refused".into()) } else { Ok(()) }));
        }
        if steps > 2 {
            bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
        }
        match steps {
            4 => bench.fail(run),
            5 => bench.done(run),
            _ => {}
        }
        bench.hear(Event::Request(Requester::DeviceOp, None));
        assert!(bench.last.contains(&Effect::Cancel), "step {steps}");
        assert!(bench.gives_back(), "step {steps}");
        assert_eq!(bench.status(), (2, 1), "step {steps}");
        // A late result of the cancelled run changes nothing.
        bench.done(run);
        assert_eq!(bench.status(), (2, 1), "step {steps}");
    }
}

#[test]
fn a_device_in_no_cluster_looks_once_and_is_then_left_alone_until_it_joins() {
    let mut bench = Bench::with(None);
    bench.hear(Event::Member(Membership::Outside));
    bench.hear(Event::NodeKnown { name: "n1".into() });
    bench.read_requests();
    let looks = |bench: &Bench| bench.has(|it| matches!(it, Effect::Look { .. }));
    assert!(looks(&bench));
    bench.hear(Event::Looked(1, Err("there is no kubeconfig".into())));
    assert_eq!(bench.core.next_wake(), None);
    // A cordon may be left from an earlier membership.
    bench.hear(Event::Member(Membership::Member));
    assert!(looks(&bench));
    bench.hear(Event::Looked(2, Err("the API is not there".into())));
    assert_eq!(bench.wait(), Duration::from_secs(15));
}

#[test]
fn after_another_boot_nothing_is_complete_and_an_own_cordon_goes_when_the_node_is_ready() {
    let journal =
        DrainJournal { boot_id: "b0".into(), status: DrainStatus::Complete, ..DrainJournal::default() };
    let mut bench = Bench::with(Some(journal));
    assert_eq!(bench.status(), (1, 1));
    bench.join();
    assert_eq!(bench.status(), (2, 1));
    assert!(bench.gives_back());
    bench.look(NodeLook::NotReady);
    assert_eq!(bench.wait(), Duration::from_secs(15));
    assert!(bench.gives_back());
    bench.look(NodeLook::Open);
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn a_forced_status_is_not_taken_for_the_real_one_after_a_restart() {
    let (reboot, update) = (request(Requester::DeviceOp, 1), request(Requester::Update, 2));
    let mut bench = Bench::idle();
    bench.ask(&reboot);
    bench.until_draining();
    bench.ask(&update);
    bench.force(DrainStatus::Complete, Requester::DeviceOp);
    assert_eq!(bench.status(), (9, 2));
    // The update's drain was not done, and after a restart nobody must think so.
    let bench = Bench::again(T0, at_once(), bench.core.journal(), &[reboot, update]);
    assert!(bench.statuses.iter().all(|(status, _)| *status == 5), "{:?}", bench.statuses);
    bench.run();
}

#[test]
fn when_the_second_request_goes_the_answer_to_the_first_holds_again() {
    let mut bench = Bench::idle();
    let update = request(Requester::Update, 2);
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.done(run);
    bench.ask(&update);
    bench.until_draining();
    assert_eq!(bench.status(), (5, 3), "the reboot has its answer and is not held back again");
    bench.hear(Event::Request(Requester::Update, None));
    // Nobody waits for this drain any more.
    assert!(bench.last.contains(&Effect::Cancel));
    assert_eq!(bench.status(), (9, 2));
    assert!(!bench.gives_back());
    bench.look(NodeLook::Ours);
    assert_eq!(bench.status(), (9, 2));
}

#[test]
fn a_node_that_was_given_back_is_looked_at_once_more_as_a_cordon_may_arrive_late() {
    let mut bench = Bench::asked(Requester::DeviceOp);
    let run = bench.run();
    bench.hear(Event::Probed(run, Ok(())));
    bench.hear(Event::Request(Requester::DeviceOp, None));
    bench.look(NodeLook::Open);
    assert_eq!(bench.wait(), Duration::from_secs(15));
    assert!(bench.gives_back());
    bench.look(NodeLook::Open);
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn p5_a_requester_whose_drain_failed_is_not_told_complete_for_the_other_one() {
    let (mut bench, run) = Bench::draining(Requester::Update);
    bench.fail_all(run);
    assert_eq!(bench.status(), (8, 3));
    bench.look(NodeLook::Open);
    bench.ask(&request(Requester::DeviceOp, 2));
    bench.force(DrainStatus::Complete, Requester::DeviceOp);
    bench.hear(Event::Force(Force::Absent));
    assert_eq!(bench.status(), (9, 2));
    bench.now = bench.now + Duration::from_mins(1);
    bench.hear(Event::Tick);
    assert_eq!(bench.status(), (9, 2));
}
