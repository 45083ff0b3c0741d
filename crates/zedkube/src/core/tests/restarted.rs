//! What a restart in the same boot must not start again: attempts, limits, pauses, and what ends a pause early.
//!
//! Pure: no clock, no I/O, no task.
//!
//! The limit of a whole drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubenodeop::{BlockCode, LimitAction, Progress, Subject};
use step::{Core as _, Mono};
use topics::{
    CordonOwner, DrainJournal, DrainMarks, DrainStatus, NodeDrainRequest, PodCounts, Requester, RunningLimit,
};

use super::bench::{Bench, T0, alone, at_once, failed, request};
use super::stories::{go, tell};
use super::{Effect, Event, NodeLook};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;

pub(super) fn at(secs: u64) -> Mono {
    T0 + Duration::from_secs(secs)
}

/// An attempt and the limit and marks with which it begins.
pub(super) fn begun(bench: &Bench) -> Option<(u32, Duration, DrainMarks)> {
    let attempt = (1..=5).find(|nth| *nth == bench.core.progress().attempt)?;
    bench.last.iter().find_map(|it| {
        let Effect::Drain(_, _, limit, marks) = it else { return None };
        Some((attempt, *limit, (**marks).clone()))
    })
}

fn awaits(bench: &Bench) -> bool {
    let run = bench.core.drain.run_id;
    bench.has(|it| matches!(it, Effect::Await(of, _) if *of == run))
}

/// Restarted at that time of the same boot, with this request made, up to the cordon.
fn restarted(journal: DrainJournal, now: Mono, standing: &NodeDrainRequest) -> Bench {
    let limits = Limits { progress_gap_ms: 0, ..alone() };
    let mut bench = Bench::again(now, limits, journal, std::slice::from_ref(standing));
    bench.cordon();
    bench
}

/// A drain whose first attempt, begun at `T0`, failed 60 s later.
pub(super) fn retrying() -> (Bench, NodeDrainRequest) {
    let mut bench = Bench::idle();
    let reboot = request(US, 1);
    bench.ask(&reboot);
    let run = bench.until_draining();
    let returns = BTreeMap::from([("shop/ReplicaSet/web".to_owned(), 2)]);
    let marks =
        DrainMarks { attempt_ms: T0.as_ms(), returns, volumes_ms: at(50).as_ms(), ..DrainMarks::default() };
    bench.now = at(60);
    bench.hear(Event::Draining(run, Box::new(Progress { marks, ..Progress::default() })));
    bench.fail(run);
    (bench, reboot)
}

#[test]
fn d15_after_a_restart_an_attempt_goes_on_with_its_number_deadline_and_marks() {
    let (mut bench, reboot) = retrying();
    bench.wait();
    assert_eq!(begun(&bench).unwrap().0, 2);
    let began = bench.now;
    let marks = DrainMarks {
        attempt_ms: began.as_ms(),
        drain_ms: T0.as_ms(),
        pods_ms: BTreeMap::from([("u1".to_owned(), (began + Duration::from_secs(7)).as_ms())]),
        returns: BTreeMap::from([("shop/ReplicaSet/web".to_owned(), 2)]),
        claims: BTreeSet::from(["shop/data".to_owned()]),
        ..DrainMarks::default()
    };
    let run = bench.core.drain.run_id;
    bench.hear(Event::Draining(run, Box::new(Progress { marks: marks.clone(), ..Progress::default() })));
    let journal = bench.core.journal();
    let bench = restarted(journal.clone(), began + Duration::from_hours(1), &reboot);
    assert_eq!(begun(&bench), Some((2, Duration::from_hours(24), marks)));
    let progress = bench.core.progress();
    // As if there had been no restart, for a reader too.
    let deadline = bench.core.node.wall(began + Duration::from_hours(24));
    assert_eq!((progress.attempt, progress.deadline), (2, deadline));
    // But for the time of its answer, it keeps what it found.
    let kept = bench.core.journal();
    assert_eq!(kept, DrainJournal { answers: kept.answers.clone(), ..journal });
}

#[test]
fn d15_after_a_restart_in_a_pause_the_rest_of_it_is_kept_and_attempts_count_on() {
    let (bench, reboot) = retrying();
    assert_eq!(bench.status(), (7, 2));
    let journal = bench.core.journal();
    let mut bench = restarted(journal, at(60 + 100), &reboot);
    assert_eq!((begun(&bench), bench.status()), (None, (7, 2)));
    assert!(bench.core.progress().reason.contains("attempt 1 of 5 failed: budget shop/web"));
    assert_eq!(bench.wait(), Duration::from_secs(200));
    let (attempt, _, marks) = begun(&bench).unwrap();
    // Limits begin again with an attempt; what was learned of workloads stays.
    assert_eq!(
        (attempt, marks.attempt_ms, marks.volumes_ms, marks.returns.len()),
        (2, at(360).as_ms(), 0, 1)
    );
}

#[test]
fn d15_restarts_upon_restarts_do_not_forget_and_five_attempts_stay_five() {
    let (mut bench, reboot) = retrying();
    for attempt in 2..=5 {
        // Killed before it has read anything, before the API answers, and before the cordon.
        for steps in 0..3 {
            let mut killed = Bench::at(bench.now, alone(), Some(bench.core.journal()));
            if steps > 0 {
                killed.ask(&reboot);
                killed.join();
                let run = killed.run();
                if steps > 1 {
                    killed.hear(Event::Probed(run, Ok(())));
                }
            }
            bench = killed;
        }
        bench = restarted(bench.core.journal(), bench.now + Duration::from_secs(300), &reboot);
        assert_eq!(begun(&bench).unwrap().0, attempt);
        let run = bench.core.drain.run_id;
        bench.fail(run);
    }
    assert_eq!(bench.status(), (8, 2));
}

#[test]
fn a_request_that_came_while_nobody_ran_gets_attempts_of_its_own() {
    let (bench, _) = retrying();
    let bench = restarted(bench.core.journal(), at(70), &request(US, 9));
    let (attempt, _, marks) = begun(&bench).unwrap();
    assert_eq!(
        (attempt, marks),
        (1, DrainMarks { attempt_ms: at(70).as_ms(), drain_ms: at(70).as_ms(), ..DrainMarks::default() })
    );
}

#[test]
fn an_api_that_is_away_when_zedkube_restarts_in_mid_drain_is_waited_for_and_never_skipped() {
    tell(&format!(
        "retrying, wait, restart DeviceOp 1, {} status 5 2, no skip
        next ends the drain is not skipped and continues by itself once it answers",
        "unreachable, wait 5, ".repeat(200)
    ));
}

#[test]
fn an_attempt_of_another_boot_is_not_gone_on_with() {
    let (bench, reboot) = retrying();
    let journal = DrainJournal { boot_id: "b0".into(), ..bench.core.journal() };
    let bench = restarted(journal, at(5), &reboot);
    assert_eq!(begun(&bench).unwrap().0, 1);
}

#[test]
fn the_journal_is_not_written_with_every_pod_and_marks_soon() {
    let mut bench = Bench::at(T0, alone(), None);
    bench.join();
    bench.ask(&request(US, 1));
    let run = bench.until_draining();
    let journals = |bench: &Bench| bench.last.iter().filter(|it| matches!(it, Effect::Journal(_))).count();
    let mut written = 0;
    for pod in 0..210_u32 {
        bench.now = bench.now + Duration::from_millis(50);
        let mut marks = DrainMarks { attempt_ms: T0.as_ms(), ..DrainMarks::default() };
        marks.pods_ms.insert(format!("u{}", pod / 20), bench.now.as_ms());
        bench.hear(Event::Draining(run, Box::new(Progress { marks, evicted: pod, ..Progress::default() })));
        written += journals(&bench);
    }
    // Ten seconds and a half of changing marks.
    assert_eq!(written, 2);
    bench.now = bench.now + Duration::from_secs(5);
    bench.hear(Event::Tick);
    assert_eq!(journals(&bench), 1);
    // What is owed for pods that go is kept before they are gone.
    let claims = BTreeSet::from(["shop/data".to_owned()]);
    let marks = DrainMarks { attempt_ms: T0.as_ms(), claims, ..DrainMarks::default() };
    bench.hear(Event::Draining(run, Box::new(Progress { marks, ..Progress::default() })));
    assert_eq!(journals(&bench), 1);
    // Pods alone are nothing to keep.
    let marks = DrainMarks { attempt_ms: T0.as_ms(), ..DrainMarks::default() };
    bench.hear(Event::Draining(run, Box::new(Progress { marks: marks.clone(), ..Progress::default() })));
    bench.now = bench.now + Duration::from_secs(5);
    bench.hear(Event::Tick);
    bench.hear(Event::Draining(run, Box::new(Progress { marks, evicted: 300, ..Progress::default() })));
    assert_eq!(journals(&bench), 0);
}

#[test]
fn d16_a_change_of_what_blocked_starts_the_next_attempt_at_once_and_says_what_it_was() {
    let (mut bench, _) = retrying();
    let run = bench.core.drain.run_id;
    assert!(awaits(&bench));
    let what = || "budget shop/web now allows 1".to_owned();
    // Of another run it is no news.
    bench.hear(Event::BlockerChanged(run + 1, what()));
    bench.hear(Event::BlockerChanged(run - 1, what()));
    assert_eq!((begun(&bench), bench.status()), (None, (7, 2)));
    bench.hear(Event::BlockerChanged(run, what()));
    assert_eq!(begun(&bench).unwrap().0, 2);
    assert_eq!(bench.said(&what()), 1);
    assert_eq!(bench.status(), (5, 2));
    // Heard late, in the attempt that it has started, it starts no further one.
    bench.hear(Event::BlockerChanged(run, what()));
    assert_eq!(bench.core.journal().attempt, 2);
}

#[test]
fn t13_after_the_last_failure_a_change_begins_a_drain_for_the_same_request_at_once_and_then_ever_later() {
    let (mut bench, reboot) = retrying();
    bench.core.node.limits.drain_gap_ms = 7_000;
    let run = bench.core.drain.run_id;
    for _ in 2..=5 {
        bench.wait();
        bench.fail(run);
    }
    for pause in [0, 7, 14, 28] {
        let run = bench.core.drain.run_id;
        assert_eq!(bench.status(), (DrainStatus::FailedDrain.number(), 2));
        assert_eq!(bench.core.progress().answers[0].status, DrainStatus::FailedDrain);
        assert!(awaits(&bench));
        bench.look(NodeLook::Open);
        bench.hear(Event::BlockerChanged(run, "node n2 is Ready".into()));
        let from = bench.now;
        assert_eq!(bench.core.progress().answers[0].id(), reboot.id());
        assert!(!bench.core.progress().answers[0].status.is_final());
        while !bench.has(|it| matches!(it, Effect::Probe(_))) {
            bench.wait();
        }
        assert_eq!(bench.now.since(from), Duration::from_secs(pause));
        bench.until_draining();
        bench.fail_all(bench.core.drain.run_id);
    }
}

const LIMIT: u64 = 600;

fn limits() -> Limits {
    Limits { drain_limit_ms: LIMIT * 1000, ..at_once() }
}

fn asked_with(limits: Limits) -> Bench {
    let mut bench = Bench::idle_with(limits);
    bench.ask(&request(US, 1));
    bench
}

/// A drain whose first attempt began at `T0`.
pub(super) fn begun_with() -> Bench {
    let mut bench = asked_with(limits());
    bench.until_draining();
    bench
}

pub(super) fn held(bench: &mut Bench) {
    let run = bench.core.drain.run_id;
    let subject = Subject::Volume { namespace: "shop".into(), claim: "data".into(), volume: "pvc-1".into() };
    let reason = "budget shop/web allows no disruption".to_owned();
    let blockers = vec![kubenodeop::blocker(&subject, BlockCode::Budget, reason, bench.now)];
    let counts = PodCounts { total: 3, gone: 2, blocked: 1, ..PodCounts::default() };
    // As an engine that has marks of its own, and none of the drain.
    let marks = DrainMarks { attempt_ms: bench.now.as_ms(), ..DrainMarks::default() };
    bench.hear(Event::Draining(run, Box::new(Progress { counts, blockers, marks, ..Progress::default() })));
}

pub(super) fn pass_to(bench: &mut Bench, then: Mono) {
    while bench.core.next_wake().is_some_and(|due| due <= then) {
        bench.wait();
    }
    bench.now = then;
    bench.hear(Event::Tick);
}

/// The status is FAILEDDRAIN, its task has ended, and our cordon is about to be removed.
pub(super) fn has_failed(bench: &Bench) -> String {
    assert_eq!(bench.status(), (8, 2));
    assert!(!bench.core.drain.is_active());
    bench.core.progress().reason
}

#[test]
fn d15_a_drain_over_its_limit_fails_with_what_is_left_and_is_undone() {
    // Never early; and nothing of it is under way any more.
    let mut bench = tell(
        "begun, blocked, at 599, status 5 2, pass 1, tick, does cancel uncordon
        | failed is could not drain: not done within 600 s, the limit for the whole drain: budget shop/web allows no disruption",
    );
    // A late word of the attempt changes nothing, COMPLETE included.
    bench.done(bench.core.drain.run_id - 1);
    assert_eq!(bench.status(), (8, 2));
}

#[test]
fn d15_the_limit_of_a_drain_runs_on_in_its_pauses_and_over_attempts() {
    let mut bench = begun_with();
    let run = bench.core.drain.run_id;
    bench.now = at(500);
    // What an attempt that could not even begin reports holds no mark.
    bench.hear(Event::Drained(run, Err(Box::new(failed("budget shop/web")))));
    assert_eq!(bench.status(), (7, 2));
    assert_eq!(bench.wait(), Duration::from_secs(100), "the pause alone is 300 s");
    let expected = "could not drain: not done within 600 s, the limit for the whole drain: budget shop/web";
    assert_eq!(has_failed(&bench), expected);

    let mut bench = begun_with();
    bench.now = at(100);
    bench.fail(bench.core.drain.run_id);
    pass_to(&mut bench, at(400));
    assert_eq!((bench.status(), bench.core.drain.run.pods().unwrap().marks.drain_ms), ((5, 2), T0.as_ms()));
    pass_to(&mut bench, at(LIMIT));
    has_failed(&bench);
}

#[test]
fn d15_the_limit_of_a_drain_goes_on_after_a_restart_and_not_in_another_boot() {
    for (paused, boot) in [(false, "b1"), (true, "b1"), (false, "b0"), (true, "b0")] {
        let mut bench = begun_with();
        bench.now = at(100);
        if paused {
            bench.fail(bench.core.drain.run_id);
        } else {
            held(&mut bench);
        }
        let journal = DrainJournal { boot_id: boot.into(), ..bench.core.journal() };
        assert_eq!(journal.marks.drain_ms, 100_000, "T0 is 100 s after the boot");
        let mut bench = Bench::again(at(200), limits(), journal, &[request(US, 1)]);
        bench.cordon();
        pass_to(&mut bench, at(LIMIT - 1));
        assert_eq!(bench.status().0, 5, "{paused} {boot}");
        pass_to(&mut bench, at(LIMIT));
        let failed = boot == "b1";
        assert_eq!(bench.status().0 == 8, failed, "{paused} {boot}");
        if !failed {
            pass_to(&mut bench, at(200 + LIMIT));
            assert_eq!(bench.status().0, 8, "it has its whole time from then on");
        }
    }
}

#[test]
fn d15_a_drain_that_cannot_be_continued_after_a_restart_is_over_its_limit_too() {
    tell(
        "begun, blocked, pass 590, restart DeviceOp 1, unreachable, at 600
        failed ends it could not be continued after a restart",
    );
}

#[test]
fn d15_a_drain_that_is_proved_is_done_whatever_its_limit() {
    // The fault-injection file held what was proved.
    tell("begun, hold, done, at 6000, status 9");
}

#[test]
fn d15_no_limit_of_a_drain_runs_while_it_waits_to_begin_nor_without_one_set() {
    let mut bench = asked_with(limits());
    assert_eq!(bench.core.progress().limits, []);
    let run = bench.run();
    bench.hear(Event::Probed(run, Ok(())));
    bench.now = at(1000);
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    assert_eq!(bench.core.drain.run.pods().unwrap().marks.drain_ms, at(1000).as_ms());

    let (bench, _) = Bench::draining(US);
    let all: Vec<RunningLimit> = bench.core.progress().limits;
    assert_eq!(all.iter().map(|it| it.of.as_str()).collect::<Vec<_>>(), ["attempt"]);
}

#[test]
fn d15_the_limits_that_run_are_shown_with_what_follows() {
    let bench = begun_with();
    let wall = |secs| bench.core.node.wall(at(secs));
    let shown = |of: &str, secs, then: &str| RunningLimit {
        of: of.into(),
        since: wall(0),
        until: wall(secs),
        then: then.into(),
    };
    let expected = [shown("drain", LIMIT, "give-up"), shown("attempt", 24 * 3600, "give-up")];
    assert_eq!(
        (bench.core.progress().limits, bench.core.progress().deadline),
        (expected.into(), wall(LIMIT))
    );
}

#[test]
fn k12_limits_of_volumes_and_last_copies_are_shown_while_they_run_and_are_the_deadline_where_they_end_it() {
    for (then, deadline) in
        [(LimitAction::GiveUp, 30), (LimitAction::GetPast, 24 * 3600), (LimitAction::Wait, 24 * 3600)]
    {
        let own = Limits { last_copy_limit_ms: 30_000, last_copy_then: then, drain_limit_ms: 0, ..limits() };
        let mut bench = asked_with(own);
        bench.until_draining();
        let run = bench.core.drain.run_id;
        let marks = DrainMarks {
            attempt_ms: T0.as_ms(),
            volumes_ms: T0.as_ms(),
            storage_ms: T0.as_ms(),
            ..DrainMarks::default()
        };
        bench.hear(Event::Draining(run, Box::new(Progress { marks, ..Progress::default() })));
        let shown = bench.core.progress();
        let wall = |secs| bench.core.node.wall(at(secs));
        let runs = shown.limits.iter().map(|it| (it.of.as_str(), it.since, it.until, it.then.as_str()));
        let word = crate::limits::volume_action(then);
        assert_eq!(
            runs.skip(1).collect::<Vec<_>>(),
            [("volumes", wall(0), wall(600), "go-on"), ("last-copies", wall(0), wall(30), word)]
        );
        assert_eq!(shown.deadline, wall(deadline), "{then:?}");
    }
}

#[test]
fn d15_a_drain_that_was_proved_and_held_does_not_fail_on_its_limit_after_a_restart() {
    let mut bench = tell("begun, blocked, hold, done");
    let journal = bench.core.journal();
    assert_eq!((journal.status.is_under_way(), journal.marks.drain_ms), (true, 0));
    go(&mut bench, "pass 650, restart DeviceOp 1, at 651, status not 8");
}
