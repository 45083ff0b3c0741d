//! A cordon that an earlier boot has left, and a turn that is wanted from the start on (goals U12, R4).
//!
//! Pure: no clock, no I/O, no task.

use outage::keeper::Ask;
use outage::turn::rule::TurnRule;
use topics::Requester;

use super::super::bench::{Bench, T0, gate, request};
use super::super::{Effect, Event, NodeLook};
use super::{asked, has, held, limits, waits};

/// Its request is there before the node was looked at once, as after a power cut.
fn back() -> Bench {
    let mut bench = Bench::at(T0, limits(), None);
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.join();
    bench
}

#[test]
fn u12_a_cordon_of_an_earlier_boot_is_looked_for_and_removed_before_a_turn_is_waited_for() {
    let mut bench = back();
    assert!(bench.gives_back() && !has(&bench, |it| matches!(it, Effect::Turn(_))), "{:?}", bench.last);
    bench.look(NodeLook::NotReady);
    assert!(asked(&bench, &Ask::Gate(false)));
    bench.hear(waits(TurnRule::Order));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.gives_back(), "others would wait for it, and it for them");
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Gate(true)));
}

#[test]
fn u1_a_look_that_removes_a_cordon_is_over_before_the_next_cordon() {
    let mut bench = back();
    bench.look(NodeLook::NotReady);
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.gives_back());
    bench.hear(held(7));
    let first = |is: fn(&Effect) -> bool| bench.last.iter().position(is).expect("it is there");
    assert!(first(|it| *it == Effect::Cancel) < first(|it| matches!(it, Effect::Cordon(..))));
    assert!(!has(&bench, |it| matches!(it, Effect::Look { .. })));
}
