//! The limit of a whole drain (goals D15).
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::{BlockCode, Progress, Subject, VolumeAction};
use step::{Core as _, Mono};
use topics::{CordonOwner, DrainJournal, DrainMarks, PodCounts, RunningLimit};

use super::{US, at};
use crate::core::tests::bench::{Bench, T0, alone, failed, request};
use crate::core::tests::{Effect, Event, NodeLook};
use crate::limits::Limits;

const LIMIT: u64 = 600;

fn limits() -> Limits {
    Limits { drain_limit_ms: LIMIT * 1000, progress_gap_ms: 0, marks_gap_ms: 0, drain_gap_ms: 0, ..alone() }
}

/// A drain whose first attempt began at `T0`.
fn begun() -> Bench {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.look(NodeLook::Open);
    bench.ask(&request(US, 1));
    bench.until_draining();
    bench
}

fn held(bench: &mut Bench) {
    let run = bench.core.drain.run_id;
    let subject = Subject::Volume { namespace: "shop".into(), claim: "data".into(), volume: "pvc-1".into() };
    let reason = "budget shop/web allows no disruption".to_owned();
    let blockers = vec![kubenodeop::blocker(&subject, BlockCode::Budget, reason, bench.now)];
    let counts = PodCounts { total: 3, gone: 2, blocked: 1, ..PodCounts::default() };
    // As an engine that has marks of its own, and none of the drain.
    let marks = DrainMarks { attempt_ms: bench.now.as_ms(), ..DrainMarks::default() };
    bench.hear(Event::Draining(run, Box::new(Progress { counts, blockers, marks, ..Progress::default() })));
}

fn pass_to(bench: &mut Bench, then: Mono) {
    while bench.core.next_wake().is_some_and(|due| due <= then) {
        bench.wait();
    }
    bench.now = then;
    bench.hear(Event::Tick);
}

/// The status is FAILEDDRAIN, its task has ended, and our cordon is about to be removed.
fn has_failed(bench: &mut Bench) -> String {
    assert_eq!(bench.status(), (8, 2));
    assert!(!bench.core.drain.is_active());
    bench.core.progress().reason
}

#[test]
fn d15_a_drain_over_its_limit_fails_with_what_is_left_and_is_undone() {
    let mut bench = begun();
    held(&mut bench);
    pass_to(&mut bench, at(LIMIT - 1));
    assert_eq!(bench.status(), (5, 2), "never early");
    bench.now = at(LIMIT);
    bench.hear(Event::Tick);
    assert!(bench.last.contains(&Effect::Cancel), "nothing of it is under way any more");
    assert!(bench.gives_back(), "{:?}", bench.last);
    let expected = "could not drain: not done within 600 s, the limit for the whole drain: budget shop/web allows no \
                    disruption";
    assert_eq!(has_failed(&mut bench), expected);
    // A late word of the attempt changes nothing, COMPLETE included.
    let run = bench.core.drain.run_id - 1;
    bench.done(run);
    assert_eq!(bench.status(), (8, 2));
}

#[test]
fn d15_the_limit_of_a_drain_runs_on_in_its_pauses_and_over_attempts() {
    let mut bench = begun();
    let run = bench.core.drain.run_id;
    bench.now = at(500);
    // What an attempt that could not even begin reports holds no mark.
    bench.hear(Event::Drained(run, Err(Box::new(failed("budget shop/web")))));
    assert_eq!(bench.status(), (7, 2));
    assert_eq!(bench.wait(), Duration::from_secs(100), "the pause alone is 300 s");
    let expected = "could not drain: not done within 600 s, the limit for the whole drain: budget shop/web";
    assert_eq!(has_failed(&mut bench), expected);

    let mut bench = begun();
    bench.now = at(100);
    bench.fail(bench.core.drain.run_id);
    pass_to(&mut bench, at(400));
    assert_eq!((bench.status(), bench.core.drain.run.pods().unwrap().marks.drain_ms), ((5, 2), T0.as_ms()));
    pass_to(&mut bench, at(LIMIT));
    has_failed(&mut bench);
}

#[test]
fn d15_the_limit_of_a_drain_goes_on_after_a_restart_and_not_in_another_boot() {
    for (paused, boot) in [(false, "b1"), (true, "b1"), (false, "b0"), (true, "b0")] {
        let mut bench = begun();
        bench.now = at(100);
        if paused {
            bench.fail(bench.core.drain.run_id);
        } else {
            held(&mut bench);
        }
        let journal = DrainJournal { boot_id: boot.into(), ..bench.core.journal() };
        assert_eq!(journal.marks.drain_ms, 100_000, "T0 is 100 s after the boot");
        let mut bench = Bench::at(at(200), limits(), Some(journal));
        bench.ask(&request(US, 1));
        bench.join();
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
    let mut bench = begun();
    held(&mut bench);
    let journal = bench.core.journal();
    let mut bench = Bench::at(at(LIMIT - 10), limits(), Some(journal));
    bench.ask(&request(US, 1));
    bench.join();
    let run = bench.run();
    bench.hear(Event::Probed(run, Err("connection refused".into())));
    pass_to(&mut bench, at(LIMIT));
    let reason = has_failed(&mut bench);
    assert!(reason.ends_with("it could not be continued after a restart"), "{reason}");
}

#[test]
fn d15_a_drain_that_is_proved_is_done_whatever_its_limit() {
    let mut bench = begun();
    bench.hear(Event::Hold(true));
    bench.done(bench.core.drain.run_id);
    pass_to(&mut bench, at(10 * LIMIT));
    assert_eq!(bench.status().0, 9, "the fault-injection file held what was proved");
}

#[test]
fn d15_no_limit_of_a_drain_runs_while_it_waits_to_begin_nor_without_one_set() {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.look(NodeLook::Open);
    bench.ask(&request(US, 1));
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
    let bench = begun();
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
        [(VolumeAction::GiveUp, 30), (VolumeAction::GoOn, 24 * 3600), (VolumeAction::Wait, 24 * 3600)]
    {
        let own = Limits { last_copy_limit_ms: 30_000, last_copy_then: then, drain_limit_ms: 0, ..limits() };
        let mut bench = Bench::at(T0, own, None);
        bench.join();
        bench.look(NodeLook::Open);
        bench.ask(&request(US, 1));
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
    let mut bench = begun();
    held(&mut bench);
    bench.hear(Event::Hold(true));
    bench.done(bench.core.drain.run_id);
    let journal = bench.core.journal();
    assert_eq!((journal.status.is_under_way(), journal.marks.drain_ms), (true, 0));
    let mut bench = Bench::at(at(LIMIT + 50), limits(), Some(journal));
    bench.ask(&request(US, 1));
    bench.join();
    pass_to(&mut bench, at(LIMIT + 51));
    assert_ne!(bench.status().0, 8);
}
