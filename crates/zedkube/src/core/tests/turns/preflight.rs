//! What is looked at before the turn is asked for: a node whose drain cannot start does not hold the turn of the cluster.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::BlockCode;
use outage::keeper::Ask;
use step::Core as _;
use topics::{Blocker, Requester};

use super::super::stories::tell;
use super::super::{Effect, Event, StartObstacle};
use super::{Bench, Limits, asked, clean, limits, requested};
use crate::core::tests::bench::request;

fn looks(bench: &Bench) -> bool {
    bench.has(|it| matches!(it, Effect::Preflight(_)))
}

pub(in crate::core::tests) fn refused(bench: &Bench) -> Blocker {
    let pod = kubeapi::names::PodRef {
        namespace: "shop".into(),
        name: "web-0".into(),
        uid: kubeapi::names::PodUid::new("u-0"),
    };
    let reason = "pod shop/web-0 cannot be evicted: 403 Forbidden".to_owned();
    kubenodeop::blocker(&pod.into(), BlockCode::Refused, reason, bench.now)
}

#[test]
fn no_place_in_the_queue_before_the_preflight_is_clean_and_what_it_finds_has_a_next_step() {
    // What was found is shown while it is looked at again; who waits in the queue looks no more.
    tell(
        "requested in turns, does preflight want-unfit, preflight finds, not want-fit want-unfit, phase Checking
        shown Requested, reason has does not wait for its turn yet: pod shop/web-0
        next starts shop/web-0: give the user, blockers refused, wait 30, does preflight, blockers refused
        preflight clean, does want-fit, blockers none, waits Holder, due never, held 7, does cordon",
    );
}

#[test]
fn a_drain_that_cannot_start_fails_when_its_tries_would_have_failed() {
    for (of_node, status, secs) in [(false, 8, 4 * 300), (true, 6, 9 * 5)] {
        let mut bench = requested();
        let run = bench.run();
        let begun = bench.now;
        while bench.status().0 != status {
            if looks(&bench) {
                let (why, next_step) = ("web-0 cannot be evicted".to_owned(), "look".to_owned());
                let what = StartObstacle { why, next_step, away: false, of_node };
                let blocker = refused(&bench);
                bench.hear(Event::Preflighted(run, if of_node { Err(what) } else { Ok(vec![blocker]) }));
            } else {
                bench.wait();
            }
        }
        assert_eq!(bench.now.since(begun), Duration::from_secs(secs));
        assert!(bench.core.progress().reason.contains("web-0 cannot be evicted"));
        assert!(asked(&bench, &Ask::Want(None)));
    }
}

#[test]
fn an_api_that_is_away_is_the_keepers_to_judge_and_a_look_that_is_lost_with_it_is_made_again() {
    tell(
        "requested in turns, preflight away, does look-at-turn, waits Api, does probe, waits Preflight, probed
        not cordon, wait, does preflight, preflight clean, does want-fit",
    );
}

#[test]
fn what_was_under_way_continues_without_a_preflight_and_what_starts_over_has_one() {
    // Once somebody else holds its turn it is a drain like any other, and at once, not only when the node was looked at
    // for its cordon: it would queue meanwhile.
    tell(
        "draining in turns, restart DeviceOp 1, not preflight, waits Reading, waits Holder, does preflight want-unfit
        look Open, not want-fit want-unfit",
    );
    tell("draining in turns, lost, does preflight");
}

fn without_turns() -> Bench {
    Bench::idle_with(Limits { take_turns: false, ..limits() })
}

#[test]
fn u6_without_turns_what_stays_fails_the_drain_and_one_that_continues_is_not_looked_at() {
    let mut bench = without_turns();
    bench.ask(&request(Requester::DeviceOp, 1));
    let (run, begun) = (bench.run(), bench.now);
    while bench.status().0 != 8 {
        if looks(&bench) {
            let what =
                StartObstacle { why: "why".into(), next_step: "wait".into(), away: false, of_node: false };
            bench.hear(Event::Preflighted(run, Err(what)));
        } else {
            bench.wait();
        }
    }
    assert_eq!(bench.now.since(begun), Duration::from_secs(4 * 300));

    let mut bench = without_turns();
    bench.ask(&request(Requester::DeviceOp, 1));
    clean(&mut bench);
    bench.cordon();
    let limits = Limits { take_turns: false, ..limits() };
    let asked = [request(Requester::DeviceOp, 1)];
    let again = Bench::again(bench.now, limits, bench.core.journal(), &asked);
    assert!(!looks(&again) && again.has(|it| matches!(it, Effect::Probe(_))), "{:?}", again.last);
}

#[test]
fn u6_without_turns_an_api_that_is_away_is_probed_and_then_it_is_looked_again() {
    tell(
        "idle without turns, ask DeviceOp, preflight away, does probe, probed, not cordon probe, wait, does preflight
        preflight clean, probed, does cordon",
    );
}

#[test]
fn what_was_found_is_due_no_more_when_only_a_turn_is_left_to_be_waited_for() {
    let mut bench = requested();
    let run = bench.run();
    let context = topics::K3S_RESTART.to_owned();
    bench.ask(&topics::NodeDrainRequest { context, ..request(Requester::K3sUpdate, 2) });
    let blocker = refused(&bench);
    bench.hear(Event::Preflighted(run, Ok(vec![blocker])));
    assert!(!bench.core.progress().blockers.is_empty());
    bench.hear(Event::Request(Requester::DeviceOp, None));
    bench.now = bench.now + Duration::from_secs(60);
    let effects = bench.core.step(bench.now, Event::Tick);
    bench.take(effects);
    assert!(bench.core.next_wake().is_none_or(|at| at > bench.now), "{:?}", bench.last);
    assert_eq!(bench.core.progress().blockers, []);
}
