//! What the history keeps of drains and of force files, over restarts and boots.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::force::OrderedBy;
use kubenodeop::{DrainSuccess, Progress};
use topics::{
    CordonOwner, DrainMarks, DrainPhase, DrainRecord, DrainStatus, DrainStep, NodeDrainStatus, PodCounts,
    Requester, SkipKind, StepWord,
};

use super::bench::{Bench, T0, alone, booted_at, request, wall};
use super::stories::tell;
use super::{Effect, Event, Force};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;

fn newest(bench: &Bench) -> &DrainRecord {
    &bench.core.history.kept.drains[0]
}

fn word(step: &DrainStep) -> &'static str {
    serde_json::to_string(&step.step).unwrap().leak().trim_matches('"')
}

fn steps(record: &DrainRecord) -> Vec<&'static str> {
    record.steps.iter().map(word).collect()
}

fn later(bench: &mut Bench, secs: u64) {
    bench.now = bench.now + Duration::from_secs(secs);
}

/// Where each of these effects is among all of the last step.
fn order(bench: &Bench) -> Vec<&'static str> {
    let word = |it: &Effect| match it {
        Effect::Journal(_) => Some("journal"),
        Effect::History(_) => Some("history"),
        Effect::Progress(_) => Some("progress"),
        Effect::Status(_) => Some("status"),
        Effect::Drain(..) | Effect::Probe(_) | Effect::Cordon(..) => Some("call"),
        Effect::Candidacy(_)
        | Effect::Preflight(_)
        | Effect::Margin { .. }
        | Effect::Turn(_)
        | Effect::OutageAnswer(_)
        | Effect::Await(..)
        | Effect::Cancel
        | Effect::Guard
        | Effect::Look { .. }
        | Effect::Gate(_)
        | Effect::Taints(_)
        | Effect::Leftovers(_)
        | Effect::UndoHooks
        | Effect::HooksAfterBoot
        | Effect::CordonRemoved
        | Effect::Say(_) => None,
    };
    bench.last.iter().filter_map(word).collect()
}

/// Restarted at the same moment, in this boot, with what the last run has written.
fn restarted(bench: &Bench, boot: &str) -> Bench {
    let journal = Some(bench.core.journal());
    let limits = Limits { progress_gap_ms: 0, ..alone() };
    let mut next = Bench::started((bench.now, booted_at()), limits, journal, boot);
    next.core.count_on(Some(bench.core.progress()));
    let mut effects = next.last.clone();
    effects.extend(next.core.recall(next.now, Some(bench.core.history.kept.clone())));
    next.take(effects);
    next
}

fn proving(evicted: u32) -> Box<Progress> {
    let marks = DrainMarks { attempt_ms: T0.as_ms(), ..DrainMarks::default() };
    Box::new(Progress { phase: DrainPhase::Proving, evicted, marks, ..Progress::default() })
}

#[test]
fn o8_a_drain_is_kept_step_by_step_with_its_times_counts_and_what_was_let_pass() {
    let mut bench = Bench::asked(US);
    assert_eq!(
        order(&bench),
        ["journal", "history", "progress", "status", "journal", "progress", "status", "call"]
    );
    let run = bench.run();
    later(&mut bench, 2);
    bench.hear(Event::Probed(run, Ok(())));
    later(&mut bench, 1);
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    bench.hear(Event::Draining(run, Box::new(Progress { evicted: 3, recordons: 1, ..Progress::default() })));
    later(&mut bench, 60);
    bench.fail(run);
    assert_eq!(newest(&bench).status, DrainStatus::DrainRetrying);
    bench.wait();
    bench.hear(Event::Draining(run, proving(2)));
    bench.hear(Event::Draining(run, proving(2)));
    later(&mut bench, 4);
    let left = vec!["shop/loop-0: came back three times".to_owned()];
    let done = DrainSuccess { took: Duration::from_secs(3), evicted: 2, recordons: 0, left };
    bench.hear(Event::Drained(run, Ok(done)));
    let record = newest(&bench);
    let taken =
        ["taken", "api-reached", "cordoned", "attempt", "attempt-failed", "attempt", "proving", "complete"];
    assert_eq!(steps(record), taken);
    let secs =
        |nth: usize| record.steps[nth].at.to_timestamp().as_second() - wall().to_timestamp().as_second();
    assert_eq!((0..8).map(secs).collect::<Vec<_>>(), [0, 2, 3, 3, 63, 363, 363, 367]);
    assert_eq!((record.steps[4].attempt, record.steps[4].text.as_str()), (1, "budget shop/web"));
    assert_eq!((record.attempts, record.evicted, record.recordons, record.seconds), (2, 5, 1, 367));
    assert_eq!(bench.core.progress().evicted, 5);
    assert_eq!(record.left, ["shop/loop-0: came back three times"]);
    assert_eq!((record.status, record.is_open()), (DrainStatus::Complete, false));
    assert_eq!((record.boot_id.as_str(), record.context.as_str()), ("b1", "reboot"));
    assert_eq!(record.id(), request(US, 1).id());
}

#[test]
fn each_end_of_a_drain_has_its_word_and_its_reason() {
    let no_cordon = format!("probed, {} cordon fails", "cordon fails, wait 5, ".repeat(9));
    let away = "the Kubernetes API was not reachable for 300 s: connection refused";
    let rows = [
        ("drains, withdraw DeviceOp", "withdrawn 2", "all requests were withdrawn", ""),
        ("drains, fails all", "failed 8", "budget shop/web", ""),
        (&no_cordon, "failed 6", "409", ""),
        ("away 3600, now 300", "skipped 9", away, away),
        ("drains, member Outside", "withdrawn 2", "this node takes no part in drains any more", ""),
        ("drains, done, withdraw DeviceOp", "complete 9", "", ""),
    ];
    for (steps, end, why, skip) in rows {
        let bench = tell(&format!("asked DeviceOp, {steps}"));
        let record = newest(&bench);
        let last = record.steps.last().unwrap();
        assert!(!record.is_open(), "{record:?}");
        let found = (format!("{} {}", word(last), record.status.number()), &*last.text, &*record.skip);
        assert_eq!(found, (end.to_owned(), why, skip), "{steps}");
    }
}

#[test]
fn a_request_that_goes_while_the_other_ones_drain_was_done_before_is_not_kept_as_complete() {
    let bench = tell("draining DeviceOp, done, ask Update 2, drains, withdraw Update");
    let record = newest(&bench);
    assert_eq!((record.steps.last().unwrap().step, record.is_open()), (StepWord::Withdrawn, false));
    assert_eq!(bench.core.history.kept.drains[1].status, DrainStatus::Complete);
}

#[test]
fn o8_a_restart_goes_on_with_the_open_drain_and_another_boot_ends_it() {
    let (mut bench, run) = Bench::draining(US);
    bench.hear(Event::Draining(run, Box::new(Progress { evicted: 3, ..Progress::default() })));
    later(&mut bench, 60);
    bench.fail(run);
    let mut next = restarted(&bench, "b1");
    next.ask(&request(US, 1));
    next.join();
    next.until_draining_after_pause();
    let run = next.core.drain.run_id;
    next.done(run);
    assert_eq!(next.core.history.kept.drains.len(), 1);
    let taken = ["taken", "api-reached", "cordoned", "attempt", "attempt-failed"];
    let again = ["restarted", "api-reached", "cordoned", "attempt", "complete"];
    assert_eq!(steps(newest(&next)), [taken, again].concat());
    assert_eq!((newest(&next).evicted, newest(&next).attempts), (5, 2));
    // What is over is not touched by a boot, what is not is over by it.
    let after = restarted(&next, "b2");
    assert_eq!(
        (after.core.history.kept.clone(), order(&after).contains(&"history")),
        (next.core.history.kept.clone(), false)
    );
    let after = restarted(&bench, "b2");
    let record = newest(&after);
    assert_eq!((record.steps.last().unwrap().step, record.is_open()), (StepWord::Interrupted, false));
    assert_eq!((record.status, record.seconds), (DrainStatus::DrainRetrying, 60));
    assert_eq!(order(&after).last(), Some(&"history"));
}

#[test]
fn a_restart_in_mid_drain_forgets_no_eviction_and_no_pod_that_has_gone() {
    let counts = |total, gone, going| PodCounts { total, gone, going, ..PodCounts::default() };
    let (mut bench, run) = Bench::draining(US);
    let far = Progress { counts: counts(12, 8, 4), evicted: 12, recordons: 1, ..Progress::default() };
    bench.hear(Event::Draining(run, Box::new(far)));
    // Twice: the second run must not forget what the first one was shown.
    let mut next = restarted(&restarted(&bench, "b1"), "b1");
    next.ask(&request(US, 1));
    next.join();
    let run = next.until_draining();
    let shown = next.core.progress();
    assert_eq!((shown.counts.total, shown.counts.gone, shown.counts.going, shown.evicted), (12, 8, 4, 12));
    let rest = Progress { counts: counts(4, 1, 3), ..Progress::default() };
    next.hear(Event::Draining(run, Box::new(rest)));
    let shown = next.core.progress();
    assert_eq!((shown.counts.total, shown.counts.gone, shown.counts.going, shown.recordons), (12, 9, 3, 1));
    next.hear(Event::Drained(run, Ok(DrainSuccess { evicted: 0, ..super::bench::done_with(Vec::new()) })));
    let shown = next.core.progress();
    assert_eq!((shown.counts.total, shown.counts.gone, shown.evicted), (12, 12, 12));
    assert!(shown.reason.starts_with("drained: 12 pods evicted"), "{}", shown.reason);
    let record = newest(&next);
    assert_eq!((record.evicted, record.recordons, record.counts.gone), (12, 1, 12));
    // Another request is another drain.
    next.ask(&request(US, 9));
    assert_eq!((next.core.progress().evicted, next.core.progress().counts.total), (0, 0));
}

#[test]
fn the_end_is_kept_when_the_agent_dies_between_journal_and_history() {
    let (mut bench, run) = Bench::draining(US);
    let open = bench.core.history.kept.clone();
    bench.done(run);
    let mut next = Bench::at(bench.now, alone(), Some(bench.core.journal()));
    next.core.recall(next.now, Some(open));
    next.ask(&request(US, 1));
    next.join();
    assert_eq!(
        (newest(&next).steps.last().unwrap().step, newest(&next).is_open()),
        (StepWord::Complete, false)
    );
}

#[test]
fn ten_drains_are_kept_newest_first_and_an_uncordon_is_told_of_the_last() {
    let mut bench = Bench::idle();
    for nth in 1..=12 {
        bench.ask(&request(US, nth));
        let run = bench.until_draining();
        bench.done(run);
    }
    let kept: Vec<_> = bench.core.history.kept.drains.iter().map(DrainRecord::id).collect();
    assert_eq!(kept, (3..=12).rev().map(|nth| request(US, nth).id()).collect::<Vec<_>>());
    bench.look(super::NodeLook::Open);
    let drains = &bench.core.history.kept.drains;
    assert_eq!(drains[1].steps.last().unwrap().step, StepWord::Void);
    // Who still waits gets a new drain, which is another one.
    assert_eq!((drains[0].id(), drains[0].is_open()), (drains[1].id(), true));
}

#[test]
fn the_history_is_not_written_with_every_pod() {
    let (mut bench, run) = Bench::draining(US);
    for pod in 0..200 {
        later(&mut bench, 1);
        bench.hear(Event::Draining(run, Box::new(Progress { evicted: pod, ..Progress::default() })));
        assert!(!order(&bench).contains(&"history"), "pod {pod}");
    }
    later(&mut bench, 1);
    bench.fail(run);
    assert_eq!(newest(&bench).evicted, 199);
    assert_eq!(order(&bench), ["journal", "history", "progress", "status"]);
}

fn by_root() -> Event {
    let (by, reason) = ("field".to_owned(), "server is lost".to_owned());
    Event::ForceBy(Some(OrderedBy { uid: 0, name: "root".into(), written: wall(), by, reason }))
}

fn force(bench: &mut Bench, force: Force) {
    bench.hear(by_root());
    bench.hear(Event::Force(force));
}

fn ordered(status: DrainStatus, by: Requester) -> Force {
    Force::Order(NodeDrainStatus { status, requested_by: by })
}

#[test]
fn p9_s6_a_forced_complete_says_who_ordered_it_when_and_what_it_released() {
    let mut bench = Bench::asked(US);
    bench.until_draining();
    later(&mut bench, 5);
    force(&mut bench, ordered(DrainStatus::Complete, US));
    let forced = bench.core.history.kept.forced[0].clone();
    assert_eq!((forced.owner_known, forced.owner_uid, forced.owner.as_str()), (true, 0, "root"));
    assert_eq!((forced.by.as_str(), forced.reason.as_str()), ("field", "server is lost"));
    assert!(
        bench.core.journal().answers[0].skip_kind == SkipKind::Forced,
        "whoever reads the answer can tell a forced COMPLETE from a skip"
    );
    assert_eq!((forced.written_at, forced.seen_at), (wall(), wall().plus(Duration::from_secs(5))));
    assert_eq!((forced.order.status, forced.order.requested_by), (DrainStatus::Complete, US));
    assert_eq!(forced.released_at, request(US, 1).requested_at);
    assert_eq!(
        forced.effect,
        "the reboot requested at 2026-03-14 09:26:54 UTC went ahead without a proved drain"
    );
    let shown: Vec<&str> = newest(&bench).steps[4..].iter().map(|it| it.text.as_str()).collect();
    assert_eq!(steps(newest(&bench))[4..], ["forced", "skipped"]);
    assert_eq!(
        shown,
        [
            "by field (file of root, uid 0): went ahead without a proved drain",
            "forced {Complete 2} by the force file"
        ]
    );
    assert!(order(&bench).starts_with(&["journal", "history", "progress", "status"]), "{:?}", order(&bench));
    // Heard once more after a restart, it is the same file; used up, it is gone.
    let mut next = restarted(&bench, "b1");
    next.ask(&request(US, 1));
    force(&mut next, ordered(DrainStatus::Complete, US));
    next.join();
    assert_eq!(next.core.history.kept.forced, std::slice::from_ref(&forced));
    later(&mut next, 7);
    next.hear(Event::ForceBy(None));
    next.hear(Event::Force(Force::Absent));
    let kept = &next.core.history.kept.forced;
    assert_eq!((kept.len(), kept[0].effect.clone()), (1, forced.effect));
    assert!(!kept[0].gone_at.is_zero());
}

#[test]
fn p9_each_other_force_file_is_kept_with_its_effect() {
    let (mut bench, run) = Bench::draining(US);
    let mut effect = |order: Force| {
        force(&mut bench, order);
        bench.core.history.kept.forced[0].effect.clone()
    };
    assert_eq!(
        effect(ordered(DrainStatus::Complete, Requester::Update)),
        "no effect: no such request is pending"
    );
    let shown = "{Failed Drain 2} is shown while the file exists";
    assert_eq!(effect(ordered(DrainStatus::FailedDrain, US)), shown);
    assert_eq!(effect(Force::Refused("others may write it".into())), "refused: others may write it");
    assert_eq!(newest(&bench).steps.last().unwrap().step, StepWord::ForceRefused);
    force(&mut bench, Force::Absent);
    bench.done(run);
    force(&mut bench, ordered(DrainStatus::Complete, US));
    let kept = &bench.core.history.kept.forced;
    // Complete already: from here on its turn and the node are not asked for any more.
    assert_eq!(kept[0].released_at, request(US, 1).requested_at);
    force(&mut bench, Force::Absent);
    force(&mut bench, ordered(DrainStatus::Complete, US));
    let kept = &bench.core.history.kept.forced;
    assert_eq!(kept[0].effect, "released nothing: that request was answered already");
    assert!(kept[0].gone_at.is_zero());
    assert!(kept[1..].iter().all(|it| !it.gone_at.is_zero()), "{kept:?}");
    force(&mut bench, ordered(DrainStatus::NotSupported, Requester::None));
    let kept = &bench.core.history.kept.forced;
    assert_eq!(
        (kept.len(), kept[0].effect.as_str()),
        (6, "drains are skipped while the file exists, as on a node in no cluster")
    );
    // One that stood there before its request, and then released it.
    let mut bench = Bench::idle();
    force(&mut bench, ordered(DrainStatus::Complete, US));
    bench.ask(&request(US, 3));
    assert_eq!(bench.core.history.kept.forced[0].released_at, request(US, 3).requested_at);
}
