//! A cordon that fails, the turn it is tried in, and one that nobody can be asked for.

use kubenodeop::node::CordonSeen;

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
    assert!(bench.gives_back(), "the cordon may have come through");
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

#[test]
fn an_api_that_answers_and_never_about_the_turn_is_waited_for_and_fails_nothing() {
    for rule in [TurnRule::NotListed, TurnRule::Api] {
        let mut bench = idle();
        bench.ask(&request(Requester::DeviceOp, 1));
        clean(&mut bench);
        bench.hear(waits(rule));
        let begun = bench.now;
        while bench.now.since(begun) < Duration::from_hours(1) {
            assert_eq!(bench.status(), (4, 2), "as while it does not answer at all");
            assert_eq!(bench.said("drain-cordon-failure"), 0, "nothing was to be cordoned yet");
            if has(&bench, |it| matches!(it, Effect::Probe(_))) {
                let run = bench.run();
                bench.hear(Event::Probed(run, Ok(())));
                let reason = bench.core.progress().reason;
                assert!(
                    reason.starts_with("waits for its turn to be down: node n2 holds a turn"),
                    "{reason}"
                );
            } else {
                bench.wait();
            }
        }
        let run = bench.run();
        bench.hear(Event::Probed(run, Ok(())));
        bench.hear(held(7));
        assert!(has(&bench, |it| matches!(it, Effect::Cordon(..))), "at once");
    }
}

#[test]
fn t5_a_node_that_waits_for_its_turn_follows_the_cordon_and_the_taints_of_its_own_node() {
    let mut bench = idle();
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    bench.ask(&request(Requester::DeviceOp, 1));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    for (seen, look, shown) in [
        (CordonSeen::Foreign, NodeLook::Foreign, CordonOwner::Foreign),
        (CordonSeen::None, NodeLook::Open, CordonOwner::None),
        // Etcd was restored.
        (CordonSeen::Ours, NodeLook::Open, CordonOwner::None),
    ] {
        bench.hear(Event::CordonSeen(seen));
        assert!(bench.gives_back(), "{seen:?}");
        bench.look(look);
        let progress = bench.core.progress();
        assert_eq!((progress.cordon, progress.phase), (shown, DrainPhase::WaitingForTurn), "{seen:?}");
    }
    let taints = vec!["node.kubernetes.io/unreachable:NoExecute".to_owned()];
    bench.hear(Event::Tainted(taints));
    assert!(has(&bench, |it| *it == Effect::Gate(true)));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(has(&bench, |it| *it == Effect::Taints(true)));
    // In its turn the drain looks after its node.
    bench.hear(held(7));
    assert!(has(&bench, |it| *it == Effect::Taints(false)));
}
