//! A person's pause: no drain begins, whoever asks, and what has begun ends; shown and kept with who, why and since when.
//!
//! Pure: no clock, no I/O, no task.

use topics::{GoTime, OperationPause, Requester, StepWord};

use super::super::Event;
use super::super::stories::tell;
use super::idle;
use crate::core::tests::bench::{booted_at, request};

pub(in crate::core::tests) fn pause() -> OperationPause {
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

#[test]
fn x3_while_paused_no_drain_begins_whoever_asks_and_each_starts_once_it_is_over() {
    for who in ["DeviceOp", "Update", "K3sUpdate", "Operator"] {
        // A window that closes and opens meanwhile changes nothing of that.
        tell(&format!(
            "idle in turns, pause, phase Idle, shows pause, next has zedbox resume, ask {who}, phase Paused, not begin
            shown Requested, deadline none, next has zedbox resume, due never
            window shut 5, window open, phase Paused, not begin, resume, does begin, phase not Paused"
        ));
    }
}

#[test]
fn x3_one_that_waits_for_its_turn_leaves_the_queue_and_what_is_cordoned_ends_as_ever() {
    tell("requested in turns, preflight clean, waits Holder, pause, phase Paused, held 7, not cordon");
    tell("draining in turns, pause, phase not Paused, not uncordon, status 5");
}

/// Without turns, where nothing else ends the look.
#[test]
fn x3_a_look_that_a_pause_has_begun_is_over_before_the_cordon_that_follows_the_pause() {
    tell("asked DeviceOp, pause, does uncordon, resume, probed, cancels first");
}

#[test]
fn x3_a_refusal_keeps_no_drain_here_and_a_forced_status_and_the_site_pass_a_pause() {
    // The agents of the controller's operations keep those.
    tell("idle in turns, pause controller, ask Operator, does begin");
    tell("idle in turns, pause, ask DeviceOp, force Complete DeviceOp, status 9 2");
    tell("idle in turns, pause, site goes, ask DeviceOp, status 9 2");
}

#[test]
fn x3_a_restart_on_nodeagents_own_account_is_held_as_long_as_nodeagent_waits() {
    tell(
        "idle in turns, worker, pause, question 1 Turn, answer 1 Hold, why has paused by field
        then has zedbox resume",
    );
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
