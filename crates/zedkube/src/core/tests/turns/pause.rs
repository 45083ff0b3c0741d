//! A person's pause: no drain begins, whoever asks, and what has begun ends; shown and kept with who, why and since when.
//!
//! Pure: no clock, no I/O, no task.

use outage::turn::rule::TurnRule;
use step::Core as _;
use topics::{
    DrainPhase, DrainStatus, GoTime, OperationPause, OutageKind, OutageQuestion, OutageVerdict, PauseScope,
    Requester, StepWord,
};

use super::super::{ClosedWindow, Effect, Event, SiteHold};
use super::{Bench, answer, clean, draining, held, idle, requested, waits};
use crate::core::tests::bench::{booted_at, request};

fn pause() -> OperationPause {
    OperationPause {
        by: "field".into(),
        reason: "new disk".into(),
        since: booted_at(),
        ..OperationPause::default()
    }
}

fn paused() -> Event {
    Event::Pause(Some(pause()))
}

fn begins(bench: &Bench) -> bool {
    let wants = |it: &Effect| matches!(it, Effect::Turn(outage::keeper::Ask::Want(Some(_))));
    bench.has(|it| wants(it) || matches!(it, Effect::Preflight(_) | Effect::Probe(_) | Effect::Cordon(..)))
}

fn waits_for_a_person(bench: &Bench) -> bool {
    bench.core.progress().phase == DrainPhase::Paused
}

#[test]
fn x3_while_paused_no_drain_begins_whoever_asks_and_each_starts_once_it_is_over() {
    for who in [Requester::DeviceOp, Requester::Update, Requester::K3sUpdate, Requester::Operator] {
        let mut bench = idle();
        bench.hear(paused());
        let idle_words = bench.core.progress();
        assert_eq!((idle_words.phase, &idle_words.pause), (DrainPhase::Idle, &pause()));
        assert!(idle_words.next_step.contains("zedbox resume"), "{}", idle_words.next_step);
        bench.ask(&request(who, 1));
        assert!(waits_for_a_person(&bench) && !begins(&bench), "{who:?}: {:?}", bench.last);
        let shown = bench.core.progress();
        assert_eq!((shown.status, shown.deadline), (DrainStatus::Requested, GoTime::ZERO));
        assert!(shown.next_step.contains("zedbox resume"), "{}", shown.next_step);
        assert_eq!(bench.core.next_wake(), None, "nothing is due while nothing changes");
        // A window that closes and opens meanwhile changes nothing of that.
        bench.hear(Event::Window(Some(ClosedWindow {
            why: "opens next in 5 h".into(),
            opens: Some(booted_at()),
        })));
        bench.hear(Event::Window(None));
        assert!(waits_for_a_person(&bench) && !begins(&bench));
        bench.hear(Event::Pause(None));
        assert!(begins(&bench) && !waits_for_a_person(&bench), "{who:?}: {:?}", bench.last);
    }
}

#[test]
fn x3_one_that_waits_for_its_turn_leaves_the_queue_and_what_is_cordoned_ends_as_ever() {
    let mut bench = requested();
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    bench.hear(paused());
    assert!(waits_for_a_person(&bench), "{:?}", bench.core.progress());
    bench.hear(held(7));
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));

    let (mut bench, _) = draining();
    bench.hear(paused());
    assert!(!waits_for_a_person(&bench) && !bench.gives_back(), "{:?}", bench.last);
    assert_eq!(bench.status().0, 5);
}

/// Without turns, where nothing else ends the look.
#[test]
fn x3_a_look_that_a_pause_has_begun_is_over_before_the_cordon_that_follows_the_pause() {
    let mut bench = Bench::asked(Requester::DeviceOp);
    bench.hear(paused());
    assert!(bench.gives_back(), "{:?}", bench.last);
    bench.hear(Event::Pause(None));
    let run = bench.run();
    bench.hear(Event::Probed(run, Ok(())));
    assert!(bench.cancels_first());
}

#[test]
fn x3_a_refusal_keeps_no_drain_here_and_a_forced_status_and_the_site_pass_a_pause() {
    let mut bench = idle();
    bench.hear(Event::Pause(Some(OperationPause { scope: PauseScope::Controller, ..pause() })));
    bench.ask(&request(Requester::Operator, 1));
    assert!(begins(&bench), "the agents of the controller's operations keep those");

    let mut bench = idle();
    bench.hear(paused());
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.force(DrainStatus::Complete, Requester::DeviceOp);
    assert_eq!(bench.status(), (9, 2));

    let mut bench = idle();
    bench.hear(paused());
    bench.hear(Event::Site(SiteHold::Go("reboot of the whole site op-1".into())));
    bench.ask(&request(Requester::DeviceOp, 1));
    assert_eq!(bench.status(), (9, 2), "{:?}", bench.core.progress());
}

#[test]
fn x3_a_restart_on_nodeagents_own_account_is_held_as_long_as_nodeagent_waits() {
    let mut bench = idle();
    bench.hear(Event::Server(false));
    bench.hear(paused());
    let question =
        |number, kind| Event::Question(OutageQuestion { number, kind, ..OutageQuestion::default() });
    bench.hear(question(1, OutageKind::Turn));
    let said = answer(&bench).unwrap();
    assert_eq!((said.number, said.verdict), (1, OutageVerdict::Hold));
    assert!(said.why.contains("paused by field") && said.next_step.contains("zedbox resume"), "{said:?}");
}

#[test]
fn x3_the_history_keeps_each_pause_once_through_restarts_and_what_it_held_up() {
    let mut bench = idle();
    bench.hear(paused());
    bench.hear(paused());
    bench.ask(&request(Requester::DeviceOp, 1));
    let kept = bench.core.history.kept.clone();
    assert_eq!(kept.pauses.len(), 1);
    assert_eq!((&kept.pauses[0].pause, kept.pauses[0].ended_at), (&pause(), GoTime::ZERO));
    let step = kept.drains[0].steps.iter().find(|it| it.step == StepWord::Paused).unwrap();
    assert!(step.text.starts_with("paused by field: new disk"), "{}", step.text);
    bench.hear(Event::Pause(None));
    let ended = bench.core.history.kept.pauses[0].ended_at;
    assert!(!ended.is_zero());
    for nth in 0..20 {
        bench.hear(Event::Pause(Some(OperationPause { reason: format!("{nth}"), ..pause() })));
    }
    assert_eq!(bench.core.history.kept.pauses.len(), 8);
    assert_eq!(bench.core.history.kept.pauses[0].pause.reason, "19");
}
