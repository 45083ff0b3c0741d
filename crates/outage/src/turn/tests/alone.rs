//! A turn without a cordon, which an update of k3s may need alone, over a restart of the agent.

use super::super::event::{Event, TurnClaim};
use super::super::record::{Holder, Op, TurnRecord};
use super::rules::holder;
use super::stage::{Stage, want};

#[test]
fn u7_a_turn_for_an_update_of_k3s_continues_without_a_cordon_for_that_request_and_in_that_boot_alone() {
    let wanted = TurnClaim { op: Op::K3sUpdate, ..want() };
    let own = Holder { op: Op::K3sUpdate, counter: wanted.counter, ..holder("a", 7) };
    let table = [
        ("the same", own.clone(), Some(7)),
        ("another request", Holder { counter: 2, ..own.clone() }, None),
        ("another operation", Holder { op: Op::Drain, ..own }, None),
    ];
    for (what, entry, fence) in table {
        let mut stage =
            Stage::new(Some(TurnRecord { holders: vec![entry], fence: 7, ..TurnRecord::default() }));
        stage.nodes[2].ready = false;
        stage.hear(Event::Want(Some(wanted.clone())));
        stage.serve();
        assert_eq!(stage.fence(), fence, "{what}");
    }
}
