//! A cordon that fails, and the turn it is tried in.

use super::*;

#[test]
fn u1_before_a_cordon_is_tried_again_the_turn_is_looked_at_once_more() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(held(7));
    let run = bench.run();
    bench.hear(Event::Cordoned(run, Err("no answer".into())));
    for _ in 0..2 {
        bench.wait();
        assert!(asked(&bench, &Ask::Confirm));
        assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
        bench.hear(Event::TurnConfirmed(Err(Unconfirmed::Unknown("no answer".into()))));
        assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
    }
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(has(&bench, |it| matches!(it, Effect::Cordon(..))));
    bench.hear(Event::Cordoned(run, Err("no answer".into())));
    bench.hear(lost());
    assert!(gives_back(&bench), "the cordon may have come through");
    assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
}

#[test]
fn a_cordon_that_failed_is_not_tried_again_without_the_turn_and_is_with_it() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(held(7));
    let run = bench.run();
    bench.hear(Event::Cordoned(run, Err("409".into())));
    bench.hear(waits(TurnRule::Reading));
    bench.wait();
    assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
    bench.hear(held(8));
    assert!(has(&bench, |it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 8)));
}
