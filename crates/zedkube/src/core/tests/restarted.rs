//! What a restart in the same boot must not start again: attempts, limits, pauses (goals D15), and what ends a pause
//! early (goals D16).
//!
//! Pure: no clock, no I/O, no task.

mod limit;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubenodeop::Progress;
use step::Mono;
use topics::{DrainJournal, DrainMarks, DrainStatus, NodeDrainRequest, Requester};

use super::bench::{Bench, T0, alone, request};
use super::{Effect, Event, NodeLook};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;

fn at(secs: u64) -> Mono {
    T0 + Duration::from_secs(secs)
}

/// An attempt and the limit and marks with which it begins.
fn begun(bench: &Bench) -> Option<(u32, Duration, DrainMarks)> {
    let attempt = (1..=5).find(|nth| *nth == bench.core.progress().attempt)?;
    bench.last.iter().find_map(|it| {
        let Effect::Drain(_, _, limit, marks) = it else { return None };
        Some((attempt, *limit, (**marks).clone()))
    })
}

fn awaits(bench: &Bench) -> bool {
    let run = bench.core.drain.run_id;
    bench.last.iter().any(|it| matches!(it, Effect::Await(of, _) if *of == run))
}

/// Restarted at that time of the same boot, with this request made, up to the cordon.
fn restarted(journal: DrainJournal, now: Mono, standing: &NodeDrainRequest) -> Bench {
    let limits = Limits { progress_gap_ms: 0, ..alone() };
    let mut bench = Bench::at(now, limits, Some(journal));
    bench.ask(standing);
    bench.join();
    bench.cordon();
    bench
}

/// A drain whose first attempt, begun at `T0`, failed 60 s later.
fn retrying() -> (Bench, NodeDrainRequest) {
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
    let (mut bench, reboot) = retrying();
    bench.wait();
    let limits = Limits { progress_gap_ms: 0, marks_gap_ms: 0, ..alone() };
    let mut bench = Bench::at(bench.now, limits, Some(bench.core.journal()));
    bench.ask(&reboot);
    bench.join();
    let run = bench.run();
    for _ in 0..200 {
        bench.hear(Event::Probed(run, Err("connection refused".into())));
        assert_eq!(bench.wait(), Duration::from_secs(5));
    }
    assert_eq!((bench.status(), bench.core.progress().skip.as_str()), ((5, 2), ""));
    let next = bench.core.progress().next_step;
    assert!(next.ends_with("the drain that was under way continues by itself once it answers"), "{next}");
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
        while !bench.last.iter().any(|it| matches!(it, Effect::Probe(_))) {
            bench.wait();
        }
        assert_eq!(bench.now.since(from), Duration::from_secs(pause));
        bench.until_draining();
        bench.fail_all(bench.core.drain.run_id);
    }
}
