//! A node that has no drain: whose cordon is on it, however it came, and what counts as a repair (goals T5, O7).
//!
//! Pure: no clock, no I/O, no task.

use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::GateReport;
use kubenodeop::node::gate::Layer;
use topics::{Answer, CordonOwner, DrainStatus, Requester};

use super::{booted, booted_after, may_open, report};
use crate::core::tests::bench::{Bench, request};
use crate::core::{Effect, Event, NodeLook};

#[test]
fn o7_that_the_cordon_of_an_operation_that_was_carried_out_goes_is_no_repair() {
    for (status, skip, counts) in [
        (DrainStatus::Complete, "", false),
        (DrainStatus::Complete, "the API was away", true),
        (DrainStatus::Cordoned, "", true),
    ] {
        let answer =
            Answer { requested_by: Requester::DeviceOp, status, skip: skip.to_owned(), ..Answer::default() };
        let mut bench = booted_after(vec![answer]);
        bench.look(NodeLook::NotReady);
        bench.hear(report(&bench, None, &[], &[]));
        bench.look(NodeLook::Open);
        assert_eq!(bench.core.progress().repairs.len(), usize::from(counts), "{status:?} {skip}");
        assert!(bench.said("removed our own cordon") == 1);
    }
}

/// At rest, with the gate open.
fn at_rest() -> Bench {
    let mut bench = booted();
    bench.look(NodeLook::Open);
    bench.hear(report(&bench, None, &[], &[]));
    assert!(bench.last.contains(&Effect::Taints(true)));
    bench
}

#[test]
fn t5_a_cordon_of_ours_that_comes_back_without_a_drain_goes_at_once_and_so_does_a_mark() {
    let mut bench = at_rest();
    // Etcd was restored; or somebody writes our annotation at a node in service.
    for seen in [CordonSeen::Ours, CordonSeen::Marked] {
        bench.hear(Event::CordonSeen(seen));
        assert_eq!(may_open(&bench), Some(true), "{seen:?}");
        let looks = bench
            .last
            .iter()
            .find_map(|it| if let Effect::Look { nth, .. } = it { Some(*nth) } else { None });
        // An event of before the look's end: it is looked at once more, and no further.
        bench.hear(Event::CordonSeen(seen));
        assert_eq!(may_open(&bench), None);
        bench.hear(Event::Looked(looks.unwrap(), Ok(NodeLook::Open)));
        assert_eq!(may_open(&bench), Some(true), "{seen:?}");
        bench.look(NodeLook::Open);
        assert_eq!(may_open(&bench), None);
        assert_eq!(bench.core.progress().cordon, CordonOwner::None);
    }
    // While the gate is watched, its reports say the same.
    bench.hear(Event::Tainted(vec!["node.kubernetes.io/unreachable:NoExecute".to_owned()]));
    let Event::Gate(shut) = report(&bench, Some(Layer::Node), &[], &[]) else { unreachable!() };
    bench.hear(Event::Gate(Box::new(GateReport { cordon: Some(CordonSeen::Ours), ..*shut })));
    assert_eq!(may_open(&bench), Some(false));
    // A drain has its own cordon.
    let mut drained = at_rest();
    drained.ask(&request(Requester::DeviceOp, 1));
    drained.until_draining();
    drained.hear(Event::CordonSeen(CordonSeen::Ours));
    assert_eq!(may_open(&drained), None);
}
