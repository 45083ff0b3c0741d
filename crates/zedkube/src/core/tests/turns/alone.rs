//! A turn that an update of k3s needs alone, over a restart in the same boot (goal U7).
//!
//! Pure: no clock, no I/O, no task.

use outage::keeper::{Ask, TurnRequest};
use topics::{K3S_RESTART, NodeDrainRequest, Requester};

use super::super::bench::{Bench, request};
use super::super::{Effect, Event, NodeLook};
use super::{held, idle, limits};

/// What was asked of the keeper last, if that was asked now.
fn wanted(bench: &Bench) -> Option<&Option<TurnRequest>> {
    bench.last.iter().rev().find_map(|it| if let Effect::Turn(Ask::Want(it)) = it { Some(it) } else { None })
}

#[test]
fn u7_a_turn_alone_is_wanted_for_the_same_request_after_a_restart() {
    let update = NodeDrainRequest { context: K3S_RESTART.to_owned(), ..request(Requester::K3sUpdate, 1) };
    let mut bench = idle();
    bench.ask(&update);
    let wish = wanted(&bench).cloned().flatten();
    assert!(wish.is_some(), "{:?}", bench.last);
    bench.hear(held(7));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert_eq!(bench.status(), (9, 5), "it was let go ahead");
    assert_eq!(wanted_after_restart(&bench, &[&update]), std::slice::from_ref(&wish));
    let reboot = request(Requester::DeviceOp, 2);
    bench.ask(&reboot);
    assert_eq!(wanted(&bench), None, "the turn that it has will do");
    assert_eq!(wanted_after_restart(&bench, &[&update, &reboot]), [wish]);
}

/// All that is asked of the keeper after a restart in which these requests are found again.
fn wanted_after_restart(bench: &Bench, requests: &[&NodeDrainRequest]) -> Vec<Option<TurnRequest>> {
    let mut again = Bench::at(bench.now, limits(), Some(bench.core.journal()));
    let mut all = Vec::new();
    for request in requests {
        again.ask(request);
        all.push(wanted(&again).cloned());
    }
    again.join();
    all.push(wanted(&again).cloned());
    if again.last.iter().any(|it| matches!(it, Effect::Look { .. })) {
        again.look(NodeLook::Open);
        all.push(wanted(&again).cloned());
    }
    all.into_iter().flatten().collect()
}
