//! The wall clock is set while a drain is at any point: what is shown moves with it, and nothing is decided.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::force::OrderedBy;
use kubeapi::{PodRef, PodUid};
use kubenodeop::node::gate::Layer;
use kubenodeop::{BlockCode, Progress};
use step::{Core as _, Mono};
use topics::{DrainHistory, DrainJournal, DrainStatus, GoTime, NodeDrainProgress, Requester, StepWord};

use super::bench::{Bench, T0, alone, booted_at, gate, request, wall};
use super::{Effect, Event, Membership, Zedkube};
use crate::limits::Limits;

const US: Requester = Requester::DeviceOp;
const YEARS: Duration = Duration::from_hours(10 * 8766);

/// When the boot began, after the wall clock was set ten years on and ten years back.
fn other_clocks() -> [GoTime; 2] {
    [booted_at().plus(YEARS), booted_at().minus(YEARS)]
}

fn attempt() -> Progress {
    let pod = PodRef { namespace: "shop".into(), name: "web-1".into(), uid: PodUid::new("u1") };
    let blocker = kubenodeop::blocker(&pod.into(), BlockCode::Budget, "no room".into(), at(7));
    Progress { blockers: vec![blocker], estimate: Some(at(90)), evicted: 1, ..Progress::default() }
}

fn at(secs: u64) -> Mono {
    T0 + Duration::from_secs(secs)
}

fn draining() -> Bench {
    let mut bench = Bench::idle();
    bench.ask(&request(US, 0));
    let run = bench.until_draining();
    bench.now = at(10);
    bench.hear(Event::Draining(run, Box::new(attempt())));
    bench
}

fn failing() -> Bench {
    let mut bench = draining();
    let run = bench.core.drain.run_id;
    bench.fail(run);
    bench
}

/// A drain at each point at which it may be when the clock is set.
fn points() -> Vec<(&'static str, Bench)> {
    let asked = |hear: &[Event]| {
        let mut bench = Bench::idle();
        bench.ask(&request(US, 0));
        for event in hear {
            bench.hear(event.clone());
        }
        bench
    };
    let run = asked(&[]).run();
    let mut early = Bench::with(None);
    early.ask(&request(US, 0));
    let mut held = draining();
    held.hear(Event::Hold(true));
    let mut done = draining();
    for bench in [&mut held, &mut done] {
        let run = bench.core.drain.run_id;
        bench.done(run);
    }
    let mut given_up = draining();
    given_up.fail_all(given_up.core.drain.run_id);
    let mut forced = draining();
    forced.hear(Event::ForceBy(Some(OrderedBy {
        uid: 0,
        name: "root".into(),
        written: wall(),
        ..OrderedBy::default()
    })));
    forced.force(DrainStatus::Complete, US);
    let mut withdrawn = draining();
    withdrawn.hear(Event::Request(US, None));
    let mut leaving = draining();
    leaving.hear(Event::Member(Membership::Leaving));
    let journal = DrainJournal { boot_id: "b0".into(), ..DrainJournal::default() };
    let mut after_boot = Bench::with(Some(journal));
    after_boot.join();
    after_boot.hear(Event::Gate(Box::new(gate(Some(Layer::Storage), at(3)))));
    vec![
        ("asked before anything is known", early),
        ("idle", Bench::idle()),
        ("asks whether the API is there", asked(&[])),
        ("the API is away", asked(&[Event::Probed(run, Err("refused".into()))])),
        ("cordons", asked(&[Event::Probed(run, Ok(()))])),
        ("cordons again", asked(&[Event::Probed(run, Ok(())), Event::Cordoned(run, Err("409".into()))])),
        ("drains", draining()),
        ("pauses", failing()),
        ("is held", held),
        ("is done", done),
        ("has given up", given_up),
        ("is forced", forced),
        ("is withdrawn", withdrawn),
        ("leaves", leaving),
        ("after a boot", after_boot),
    ]
}

fn shown(core: &Zedkube) -> (NodeDrainProgress, DrainJournal, DrainHistory) {
    (core.progress(), core.journal(), core.history.kept.clone())
}

/// Every time in it that a clock of this boot has made.
fn times((progress, journal, history): &(NodeDrainProgress, DrainJournal, DrainHistory)) -> Vec<GoTime> {
    let mut all = vec![progress.booted_at, journal.booted_at, journal.started_at];
    all.extend([progress.started_at, progress.deadline, progress.estimate, progress.gate.since]);
    all.extend(progress.blockers.iter().map(|it| it.since));
    all.extend(progress.answers.iter().chain(&journal.answers).map(|it| it.at));
    all.extend(progress.asked.iter().chain(&journal.asked).map(|it| it.at));
    for drain in &history.drains {
        all.extend([drain.started_at, drain.ended_at]);
        all.extend(drain.steps.iter().map(|it| it.at));
        all.extend(drain.blockers.iter().map(|it| it.since));
    }
    all.extend(history.forced.iter().flat_map(|it| [it.seen_at, it.gone_at]));
    all
}

#[test]
fn k4_at_every_point_of_a_drain_all_times_move_with_the_clock_and_nothing_is_done() {
    for booted in other_clocks() {
        for (point, mut bench) in points() {
            let (before, due) = (shown(&bench.core), bench.core.next_wake());
            let (run, serves) = (bench.core.drain.run.clone(), bench.core.drain.serves.clone());
            bench.hear(Event::Wall(booted));
            let now = shown(&bench.core);
            let moved = |at: &GoTime| at.moved(booted_at(), booted);
            assert_eq!(times(&now), times(&before).iter().map(moved).collect::<Vec<_>>(), "{point}");
            assert_eq!(now.0, before.0.by_clock(booted), "{point}");
            assert_eq!((bench.core.next_wake(), bench.core.drain.run.clone()), (due, run), "{point}");
            // The identity of a request is no time that is shown.
            assert_eq!(bench.core.drain.serves.clone(), serves, "{point}");
            let mut said = (None, None, None);
            for effect in &bench.last {
                #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else may be there")]
                match effect {
                    Effect::Progress(it) => said.0 = Some((**it).clone()),
                    Effect::Journal(it) => said.1 = Some((**it).clone()),
                    Effect::History(it) => said.2 = Some((**it).clone()),
                    other => panic!("{point}: {other:?}"),
                }
            }
            assert_eq!(said.0.as_ref(), Some(&now.0), "{point}");
            assert_eq!(said.1.as_ref(), Some(&now.1), "{point}");
            assert!(said.2.as_ref() == Some(&now.2) || now.2.drains.is_empty(), "{point}");
        }
    }
}

#[test]
fn k4_ages_and_deadlines_by_the_new_clock_are_those_of_the_monotonic_one() {
    for booted in other_clocks() {
        let mut bench = draining();
        bench.hear(Event::Wall(booted));
        let said = bench.core.progress();
        let shows = |secs: u64| booted.plus(at(secs).since_start());
        assert_eq!((said.started_at, said.deadline), (shows(0), shows(24 * 3600)));
        assert_eq!((said.estimate, said.blockers[0].since), (shows(90), shows(7)));
        assert_eq!(said.requested_at, request(US, 0).requested_at, "that is its identity");
        assert_eq!(said.asked_at(request(US, 0).id()), shows(0));
        // What comes after is written by the new clock.
        bench.now = at(20);
        let run = bench.core.drain.run_id;
        bench.fail(run);
        assert_eq!(bench.core.progress().deadline, shows(320));
        let steps = &bench.core.history.kept.drains[0].steps;
        assert_eq!((steps[0].at, steps[steps.len() - 1].at), (shows(0), shows(20)));
    }
}

#[test]
fn k4_a_clock_that_was_set_while_nobody_ran_is_made_up_for_at_the_next_start() {
    for booted in other_clocks() {
        let bench = failing();
        let (journal, history) = (bench.core.journal(), bench.core.history.kept.clone());
        let limits = Limits { progress_gap_ms: 0, marks_gap_ms: 0, ..alone() };
        let mut again = Bench::started((at(30), booted), limits, Some(journal), "b1");
        let recalled = again.core.recall(at(30), Some(history));
        assert!(matches!(&recalled[..], [Effect::History(_)]), "{recalled:?}");
        again.ask(&request(US, 0));
        again.join();
        again.cordon();
        let said = again.core.progress();
        let shows = |secs: u64| booted.plus(at(secs).since_start());
        // The rest of the pause: it is counted by the monotonic clock.
        assert_eq!((said.status, said.deadline), (DrainStatus::DrainRetrying, shows(310)));
        assert_eq!((said.started_at, said.asked_at(request(US, 0).id())), (shows(0), shows(0)));
        let record = &again.core.history.kept.drains[0];
        assert_eq!((record.started_at, record.steps[0].at), (shows(0), shows(0)));
        assert_eq!(record.steps.iter().filter(|it| it.step == StepWord::Restarted).count(), 1);
    }
}

#[test]
fn k4_a_request_whose_own_time_cannot_be_is_shown_as_made_when_it_was_heard_of() {
    for requested_at in [wall().minus(YEARS), wall().plus(YEARS)] {
        let mut bench = Bench::idle();
        bench.now = at(5);
        let asked = topics::NodeDrainRequest { requested_at, ..request(US, 0) };
        bench.ask(&asked);
        let said = bench.core.progress();
        assert_eq!(
            (said.requested_at, said.asked_at(asked.id())),
            (requested_at, bench.core.node.wall(at(5)))
        );
        bench.hear(Event::Request(US, None));
        assert_eq!(bench.core.progress().asked, []);
    }
}

#[test]
fn k4_what_earlier_boots_have_kept_stays_as_it_was_written() {
    let earlier = failing();
    let limits = Limits { progress_gap_ms: 0, ..alone() };
    // Before the first answer of a time server the new boot is in 1970.
    let unset = GoTime::from_unix_nanos(0).unwrap();
    let journal = Some(earlier.core.journal());
    let mut bench = Bench::started((T0, unset), limits, journal, "b2");
    let kept = earlier.core.history.kept.clone();
    bench.core.recall(T0, Some(kept.clone()));
    bench.hear(Event::Wall(booted_at()));
    let record = &bench.core.history.kept.drains[0];
    assert_eq!(record.started_at, kept.drains[0].started_at);
    let (last, others) = record.steps.split_last().unwrap();
    assert_eq!(others, kept.drains[0].steps);
    // That the device went down in it was found in this boot.
    assert_eq!((last.step, last.at, record.ended_at), (StepWord::Interrupted, wall(), wall()));
}

#[test]
fn a_clock_that_is_steered_writes_nothing() {
    let mut bench = draining();
    for millis in [1, 499] {
        bench.hear(Event::Wall(booted_at().plus(Duration::from_millis(millis))));
        assert_eq!(bench.last, []);
    }
}
