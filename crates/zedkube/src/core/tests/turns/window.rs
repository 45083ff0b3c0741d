//! Outside of the windows nothing starts, and what has started ends.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use outage::keeper::Ask;
use outage::turn::rule::TurnRule;
use step::Core as _;
use topics::{DrainJournal, DrainPhase, DrainStatus, RequestId, Requester, SkipKind, StepWord};

use super::super::{ClosedWindow, Effect, Event, NodeLook, Pass};
use super::{Bench, T0, asked, clean, complete, cordoning, draining, held, limits, lost, waits};
use crate::core::tests::bench::request;

/// Outside of the windows; the next one opens in so many hours.
fn closed(hours: u64) -> Event {
    let opens = Some(super::super::bench::booted_at().plus(Duration::from_hours(hours)));
    Event::Window(Some(ClosedWindow { why: format!("opens next in {hours} h"), opens }))
}

fn open() -> Event {
    Event::Window(None)
}

/// A member of a cluster, started outside of the windows.
fn outside() -> Bench {
    let mut bench = Bench::at(T0, limits(), None);
    bench.hear(closed(5));
    bench.join();
    bench.look(NodeLook::Open);
    bench
}

/// The same after a restart in the same boot, with a request that is still there.
fn restarted(journal: DrainJournal) -> Bench {
    let mut bench = Bench::at(T0, limits(), Some(journal));
    bench.hear(closed(5));
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.join();
    bench
}

fn is_outside(bench: &Bench) -> bool {
    bench.core.progress().phase == DrainPhase::OutsideWindow
}

/// Whether anything of a drain was begun: a look, a place in the queue, a call.
fn begins(bench: &Bench) -> bool {
    let wants = |it: &Effect| matches!(it, Effect::Turn(Ask::Want(Some(_))));
    let calls = |it: &Effect| matches!(it, Effect::Preflight(_) | Effect::Probe(_) | Effect::Cordon(..));
    bench.has(|it| wants(it) || calls(it))
}

#[test]
fn u9_outside_of_the_windows_nothing_begins_and_the_words_say_when_one_opens_and_what_to_type() {
    for who in [Requester::DeviceOp, Requester::Update, Requester::K3sUpdate] {
        let mut bench = outside();
        bench.ask(&request(who, 1));
        assert!(is_outside(&bench) && !begins(&bench), "{who:?}: {:?}", bench.last);
        let shown = bench.core.progress();
        assert_eq!(shown.status, DrainStatus::Requested);
        assert_eq!(shown.reason, "opens next in 5 h");
        assert!(shown.next_step.contains("zedbox go --past window --reason"), "{}", shown.next_step);
        assert_eq!(shown.deadline, super::super::bench::booted_at().plus(Duration::from_hours(5)));
        assert_eq!(bench.core.next_wake(), None, "nothing is due while nothing changes");
        // What is shown follows the clock.
        bench.hear(closed(4));
        assert_eq!(bench.core.progress().reason, "opens next in 4 h");
        assert!(!begins(&bench));
        bench.hear(open());
        assert!(begins(&bench) && !is_outside(&bench), "{who:?}: {:?}", bench.last);
    }
}

#[test]
fn u9_a_window_that_closes_before_the_cordon_sends_the_drain_back_and_out_of_the_queue() {
    let mut bench = outside();
    bench.hear(open());
    bench.ask(&request(Requester::DeviceOp, 1));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    bench.hear(closed(23));
    assert!(is_outside(&bench) && asked(&bench, &Ask::Want(None)), "{:?}", bench.last);
    // A turn that was on its way to us starts nothing, and is released.
    bench.hear(held(7));
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
    assert!(is_outside(&bench));
    // It starts over, with its preflight.
    bench.hear(open());
    assert!(!is_outside(&bench));
}

#[test]
fn u9_a_window_that_closed_on_the_way_to_a_cordon_for_which_the_turn_is_missing_keeps_it_out() {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Err("409".into())));
    bench.hear(closed(5));
    bench.hear(waits(TurnRule::Reading));
    bench.wait();
    bench.hear(held(8));
    assert!(is_outside(&bench) && !bench.has(|it| matches!(it, Effect::Cordon(..))), "{:?}", bench.last);
}

#[test]
fn u9_what_has_started_ends_whatever_the_window_and_over_a_restart() {
    let (mut bench, run) = draining();
    bench.hear(closed(5));
    assert_eq!(bench.core.progress().phase, DrainPhase::Draining);
    let journal = bench.core.journal();
    bench.done(run);
    assert_eq!(bench.status(), (9, 2));

    let mut again = restarted(journal);
    assert!(!is_outside(&again));
    again.hear(held(7));
    let run = again.run();
    again.hear(Event::Cordoned(run, Ok(topics::CordonOwner::Ours)));
    again.hear(Event::TurnConfirmed(Ok(())));
    assert!(again.has(|it| matches!(it, Effect::Drain(..))), "{:?}", again.last);

    // One that had not started waits, and keeps no cordon.
    let mut bench = outside();
    bench.hear(open());
    bench.ask(&request(Requester::DeviceOp, 1));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    let again = restarted(bench.core.journal());
    assert!(is_outside(&again) && !begins(&again), "{:?}", again.last);
}

#[test]
fn u9_complete_holds_outside_of_the_window_and_a_lost_turn_waits_for_it() {
    let mut bench = complete();
    bench.hear(closed(5));
    assert_eq!(bench.status(), (9, 2));
    let (mut bench, _) = draining();
    bench.hear(closed(5));
    bench.hear(lost());
    assert!(is_outside(&bench), "{:?}", bench.core.progress());
    assert!(bench.gives_back(), "the cordon goes meanwhile");
}

#[test]
fn u9_complete_that_is_void_outside_of_the_window_keeps_neither_cordon_nor_turn() {
    let mut bench = complete();
    bench.look(NodeLook::Ours);
    bench.hear(closed(100));
    bench.hear(Event::NodeActivity("a pod".into()));
    let pods = vec![super::super::voided::pod("late-0")];
    bench.look(NodeLook::HasPods(topics::CordonOwner::Ours, pods));
    assert!(is_outside(&bench) && bench.gives_back(), "{:?}", bench.last);
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Want(None)), "{:?}", bench.last);
}

#[test]
fn u9_who_waits_for_a_window_is_not_busy_hooks_after_the_boot_are_called() {
    let mut bench = Bench::at(T0, limits(), None);
    bench.hear(closed(5));
    bench.join();
    bench.hear(Event::HooksLeft { in_place: false, after_boot: true });
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.look(NodeLook::Open);
    assert!(is_outside(&bench));
    bench.hear(Event::Gate(Box::new(super::super::bench::gate(None, bench.now))));
    assert!(bench.has(|it| matches!(it, Effect::HooksAfterBoot)), "{:?}", bench.last);
}

#[test]
fn u9_a_persons_word_lets_this_request_alone_start_and_is_kept_in_the_history() {
    let mut bench = outside();
    let ours = request(Requester::DeviceOp, 1);
    bench.ask(&ours);
    let pass = |of: RequestId| Event::WindowPass(Some(Pass { of, by: "root: the pump is dry".into() }));
    bench.hear(pass(request(Requester::DeviceOp, 2).id()));
    assert!(is_outside(&bench), "a word for another request");
    bench.hear(pass(ours.id()));
    assert!(begins(&bench) && !is_outside(&bench), "{:?}", bench.last);
    let kept = &bench.core.history.kept;
    let step = kept.drains[0].steps.iter().find(|it| it.step == StepWord::WindowPassed).unwrap();
    assert_eq!(step.text, "root: the pump is dry");
    // Taken from it, it has not started yet: it waits again.
    bench.hear(Event::WindowPass(None));
    assert!(is_outside(&bench));
}

#[test]
fn u9_a_persons_own_drain_and_a_force_file_wait_for_no_window() {
    let mut bench = outside();
    bench.ask(&request(Requester::Operator, 1));
    assert!(begins(&bench) && !is_outside(&bench));

    let mut bench = outside();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.force(DrainStatus::Complete, Requester::DeviceOp);
    assert_eq!(bench.status(), (9, 2));
    assert!(bench.core.progress().answers.iter().any(|it| it.skip_kind == SkipKind::Forced));
}

#[test]
fn u9_whoever_may_start_now_starts_though_somebody_else_waits_and_goes_with_their_request() {
    let ours = request(Requester::Operator, 2);
    let update = request(Requester::Update, 3);
    let pass = Event::WindowPass(Some(Pass { of: update.id(), by: "root: now".into() }));
    for (who, lets) in [(&ours, Event::Tick), (&update, pass)] {
        let mut bench = outside();
        bench.ask(&request(Requester::DeviceOp, 1));
        assert!(is_outside(&bench));
        bench.ask(who);
        bench.hear(lets);
        assert!(!is_outside(&bench), "{:?}", bench.core.progress());
        assert_eq!(bench.core.progress().requested_by, who.requested_by);
        // It has not started: once they ask no more, the others wait again.
        bench.hear(Event::Request(who.requested_by, None));
        assert!(is_outside(&bench), "{:?}", bench.core.progress());
        assert_eq!(bench.core.progress().requested_by, Requester::DeviceOp);
    }
}

#[test]
fn u9_a_request_that_is_withdrawn_outside_of_the_windows_is_answered_at_once() {
    let mut bench = outside();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(Event::Request(Requester::DeviceOp, None));
    assert_eq!(bench.status().0, 2);
    assert!(!begins(&bench));
}

#[test]
fn u9_a_clock_that_jumps_to_and_fro_opens_and_closes_it_and_nothing_sticks() {
    let mut bench = outside();
    bench.ask(&request(Requester::DeviceOp, 1));
    for _ in 0..20 {
        bench.hear(open());
        assert!(!is_outside(&bench));
        bench.hear(Event::Wall(super::super::bench::booted_at().plus(Duration::from_hours(9000))));
        bench.hear(closed(1));
        assert!(is_outside(&bench));
        bench.hear(Event::Wall(super::super::bench::booted_at()));
    }
    bench.hear(open());
    clean(&mut bench);
    bench.hear(held(7));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
}
