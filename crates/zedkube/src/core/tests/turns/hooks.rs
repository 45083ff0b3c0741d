//! Hooks before a drain: in the turn, before the cordon, tried as a drain is, undone without a boot.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::node::gate::Layer;
use nodestatus::Membership;
use outage::keeper::Ask;
use topics::{CordonOwner, DrainPhase, Requester, StepWord};

use super::super::bench::gate;
use super::super::{Effect, Event, NodeLook, RunId};
use super::{Bench, T0, asked, clean, complete, draining, held, limits, lost, requested};
use crate::core::tests::bench::request;

/// The cordon is asked for, and a hook is called instead.
fn hooking() -> (Bench, RunId) {
    let mut bench = requested();
    clean(&mut bench);
    bench.hear(held(7));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
    let run = bench.core.drain.run_id;
    bench.hear(Event::Hooking(run, "hook 10-a is running".into()));
    (bench, run)
}

fn undoes(bench: &Bench) -> bool {
    bench.last.contains(&Effect::UndoHooks)
}

#[test]
fn u9_after_the_hooks_the_turn_is_looked_at_again_and_then_comes_the_cordon() {
    let (mut bench, run) = hooking();
    let shown = bench.core.progress();
    assert_eq!((shown.phase, shown.status.number()), (DrainPhase::RunningHooks, 4));
    assert_eq!(shown.reason, "hook 10-a is running");
    assert_eq!(step::Core::next_wake(&bench.core), None, "it has a limit of its own");
    bench.hear(Event::Hooked(run, Ok(())));
    assert!(
        asked(&bench, &Ask::Confirm) && !bench.has(|it| matches!(it, Effect::Cordon(..))),
        "{:?}",
        bench.last
    );
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
    // None is left to be called.
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Drain(..))) && !undoes(&bench));
}

#[test]
fn u9_hooks_that_fail_are_tried_again_after_the_pause_of_a_drain_and_end_it_like_one() {
    let (mut bench, run) = hooking();
    for tried in 1..5 {
        bench.hear(Event::Hooked(run, Err("hook 10-a: no backup".into())));
        let shown = bench.core.progress();
        assert_eq!(shown.phase, DrainPhase::RunningHooks);
        assert!(
            shown.reason.contains(&format!("try {tried} of 5")) && shown.reason.ends_with("no backup"),
            "{}",
            shown.reason
        );
        assert!(!shown.deadline.is_zero() && !undoes(&bench));
        assert_eq!(bench.wait(), Duration::from_secs(300));
        assert!(asked(&bench, &Ask::Confirm));
        bench.hear(Event::TurnConfirmed(Ok(())));
        assert!(bench.has(|it| matches!(it, Effect::Cordon(..))), "who is to cordon calls them again");
        bench.hear(Event::Hooking(run, "hook 10-a is running".into()));
    }
    bench.hear(Event::Hooked(run, Err("hook 10-a: no backup".into())));
    assert_eq!(bench.status(), (8, 2));
    assert!(bench.core.progress().reason.contains("no backup"), "{}", bench.core.progress().reason);
    assert!(undoes(&bench) && bench.gives_back(), "{:?}", bench.last);
    let steps = &bench.core.history.kept.drains[0].steps;
    // The last one is the end of the drain.
    assert_eq!(steps.iter().filter(|it| it.step == StepWord::HookFailed).count(), 4);
    let end = steps.last().unwrap();
    assert_eq!((end.step, end.text.as_str()), (StepWord::Failed, "hook 10-a: no backup"));
}

#[test]
fn u9_hooks_are_undone_once_when_the_drain_is_withdrawn_fails_or_loses_its_turn() {
    let withdrawn = Event::Request(Requester::DeviceOp, None);
    for end in [withdrawn.clone(), lost()] {
        let (mut bench, _) = hooking();
        bench.hear(end.clone());
        assert!(undoes(&bench), "{end:?}: {:?}", bench.last);
        bench.hear(Event::Tick);
        assert!(!undoes(&bench), "once");
        bench.hear(Event::HooksUndone);
        assert!(!undoes(&bench));
    }
    // Also a drain that is under way; one that is complete keeps them until its request goes.
    let (mut bench, run) = draining();
    bench.hear(Event::HooksLeft { in_place: true, after_boot: false });
    assert!(!undoes(&bench));
    bench.done(run);
    assert!(!undoes(&bench));
    bench.hear(withdrawn);
    assert!(undoes(&bench), "{:?}", bench.last);
    assert!(!undoes(&complete()), "there was none");
}

#[test]
fn u9_hooks_are_undone_when_the_node_leaves_its_cluster_also_while_zedkube_was_down() {
    let (mut bench, _) = hooking();
    bench.hear(Event::Member(Membership::Leaving));
    assert!(undoes(&bench), "{:?}", bench.last);
    bench.hear(Event::HooksUndone);
    bench.hear(Event::Member(Membership::Outside));
    assert!(!undoes(&bench), "once");
    for member in [Membership::Leaving, Membership::Outside] {
        let mut again = Bench::at(T0, limits(), None);
        again.hear(Event::HooksLeft { in_place: true, after_boot: false });
        assert!(!undoes(&again), "nothing is known yet");
        again.hear(Event::Member(member));
        assert!(undoes(&again), "{member:?}: {:?}", again.last);
    }
}

#[test]
fn u9_after_a_restart_hooks_stay_with_a_drain_that_continues_and_are_undone_without_one() {
    let (bench, _) = draining();
    let journal = bench.core.journal();
    for asks in [true, false] {
        let mut again = Bench::at(T0, limits(), Some(journal.clone()));
        again.hear(Event::HooksLeft { in_place: true, after_boot: false });
        if asks {
            again.ask(&request(Requester::DeviceOp, 1));
        }
        assert!(!undoes(&again), "nothing is known yet");
        again.join();
        assert_eq!(undoes(&again), !asks, "{:?}", again.last);
    }
}

#[test]
fn u9_hooks_after_the_boot_come_once_the_gate_is_open_and_once() {
    let mut bench = Bench::at(T0, limits(), None);
    bench.hear(Event::HooksLeft { in_place: false, after_boot: true });
    bench.join();
    bench.look(NodeLook::NotReady);
    let calls = |bench: &Bench| bench.last.contains(&Effect::HooksAfterBoot);
    bench.hear(Event::Gate(Box::new(gate(Some(Layer::Storage), T0))));
    assert!(!calls(&bench));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(calls(&bench), "{:?}", bench.last);
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(!calls(&bench));
}
