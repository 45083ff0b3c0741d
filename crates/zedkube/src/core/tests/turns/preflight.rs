//! What is looked at before the turn is asked for: a node whose drain cannot start does not hold the turn of the cluster.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::BlockCode;
use outage::keeper::Ask;
use outage::turn::rule::TurnRule;
use step::Core as _;
use topics::{Blocker, DrainPhase, Requester};

use super::super::{Effect, Event, NodeLook, StartObstacle};
use super::{Bench, Limits, asked, clean, draining, held, limits, lost, requested, waits};
use crate::core::tests::bench::request;

fn looks(bench: &Bench) -> bool {
    bench.has(|it| matches!(it, Effect::Preflight(_)))
}

/// What the keeper was asked last: whether the drain can start.
fn fit(bench: &Bench) -> Option<bool> {
    let of = |it: &Effect| if let Effect::Turn(Ask::Want(Some(wish))) = it { Some(wish.fit) } else { None };
    bench.last.iter().filter_map(of).next_back()
}

fn refused(bench: &Bench) -> Blocker {
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
    let mut bench = requested();
    assert!(looks(&bench) && fit(&bench) == Some(false));
    let run = bench.run();
    let blocker = refused(&bench);
    bench.hear(Event::Preflighted(run, Ok(vec![blocker])));
    assert_eq!(fit(&bench), None, "nothing else is asked for");
    let shown = bench.core.progress();
    assert_eq!((shown.phase, shown.status.number()), (DrainPhase::Checking, 3));
    assert!(shown.reason.contains("does not wait for its turn yet: pod shop/web-0"), "{}", shown.reason);
    assert!(shown.next_step.starts_with("shop/web-0: give the user"), "{}", shown.next_step);
    assert_eq!((shown.blockers.len(), shown.blockers[0].code.as_str()), (1, "refused"));
    // It is looked at again, and what was found is shown meanwhile.
    assert_eq!(bench.wait(), Duration::from_secs(30));
    assert!(looks(&bench) && bench.core.progress().blockers.len() == 1);
    bench.hear(Event::Preflighted(run, Ok(Vec::new())));
    assert_eq!(fit(&bench), Some(true));
    assert_eq!(bench.core.progress().blockers, []);
    bench.hear(waits(TurnRule::Holder));
    assert_eq!(bench.core.next_wake(), None, "who waits in the queue looks no more");
    bench.hear(held(7));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
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
    let mut bench = requested();
    let run = bench.run();
    let why = StartObstacle {
        why: "no route to host".into(),
        next_step: "check the network".into(),
        away: true,
        of_node: true,
    };
    bench.hear(Event::Preflighted(run, Err(why)));
    assert!(asked(&bench, &Ask::Look));
    bench.hear(waits(TurnRule::Api));
    assert!(bench.has(|it| matches!(it, Effect::Probe(_))));
    bench.hear(waits(TurnRule::Preflight));
    bench.hear(Event::Probed(run, Ok(())));
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
    bench.wait();
    assert!(looks(&bench));
    clean(&mut bench);
    assert_eq!(fit(&bench), Some(true));
}

#[test]
fn what_was_under_way_continues_without_a_preflight_and_what_starts_over_has_one() {
    let (bench, _) = draining();
    let asked = [request(Requester::DeviceOp, 1)];
    let mut again = Bench::again(bench.now, limits(), bench.core.journal(), &asked);
    assert!(!looks(&again));
    again.hear(waits(TurnRule::Reading));
    // Somebody else holds it now: from here on it is a drain like any other.
    again.hear(waits(TurnRule::Holder));
    assert!(looks(&again));
    // At once, and not only when the node was looked at for its cordon: it would queue meanwhile.
    assert_eq!(fit(&again), Some(false));
    again.look(NodeLook::Open);
    assert_eq!(fit(&again), None);

    let (mut bench, _) = draining();
    bench.hear(lost());
    assert!(looks(&bench), "{:?}", bench.last);
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
    let mut bench = without_turns();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.run();
    let away = StartObstacle { why: "no route".into(), next_step: "wait".into(), away: true, of_node: true };
    bench.hear(Event::Preflighted(run, Err(away)));
    assert!(bench.has(|it| matches!(it, Effect::Probe(_))));
    bench.hear(Event::Probed(run, Ok(())));
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..) | Effect::Probe(_))));
    assert!(bench.wait() > Duration::ZERO && looks(&bench), "{:?}", bench.last);
    clean(&mut bench);
    bench.hear(Event::Probed(run, Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
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
