//! The API is away before the cordon: who is skipped when, and who waits for what.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use outage::turn::event::{TurnState, TurnWait};
use outage::turn::rule::TurnRule;
use topics::{DrainJournal, DrainPhase, Requester};

use super::super::bench::{Bench, T0, request};
use super::super::{Effect, Event, Learned, NodeLook};
use super::limits;

const SPREAD: Duration = Duration::from_mins(10);

fn learned(server: bool, servers: &[&str]) -> Event {
    let servers = servers.iter().map(|it| (*it).to_owned()).collect();
    Event::Learned(Box::new(Learned {
        server,
        alone: false,
        servers,
        volume: "none".to_owned(),
        addresses: Vec::new(),
    }))
}

fn out(servers: &[&str]) -> Event {
    Event::ServersOut(servers.iter().map(|it| (*it).to_owned()).collect())
}

/// Asked for a drain, with a keeper whose API does not answer.
fn asked(journal: Option<DrainJournal>, known: Vec<Event>) -> Bench {
    let mut bench = Bench::at(T0, limits(), journal);
    bench.join();
    bench.look(NodeLook::Open);
    for event in known {
        bench.hear(event);
    }
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(Event::Turn(Box::new(TurnState::Waiting(Box::new(TurnWait {
        nodes: Vec::new(),
        rule: TurnRule::Api,
        why: "no route to host".into(),
        since: T0,
        place: None,
        next: "kubectl get nodes".into(),
    })))));
    bench
}

/// Lets the API be away for `time` more; returns whether the drain was skipped, and how long that took. `spare` is what
/// etcd says when it is asked.
pub(super) fn away(bench: &mut Bench, time: Duration, spare: Result<&str, &str>) -> (bool, Duration) {
    let began = bench.now;
    while bench.now.since(began) < time && bench.status().0 != 9 {
        let probe = bench.last.iter().any(|it| matches!(it, Effect::Probe(_)));
        let margin = bench
            .last
            .iter()
            .find_map(|it| if let Effect::Margin { run, .. } = it { Some(*run) } else { None });
        if let Some(run) = margin {
            bench.hear(Event::Spared(run, spare.map(str::to_owned).map_err(str::to_owned)));
        } else if probe {
            let run = bench.run();
            bench.hear(Event::Probed(run, Err("no route to host".into())));
        } else {
            bench.wait();
        }
    }
    (bench.status().0 == 9, bench.now.since(began))
}

const LONG: Duration = Duration::from_hours(3);
const NOBODY: Result<&str, &str> = Err("nobody asks");

#[test]
fn u8_a_worker_waits_a_time_by_chance_that_is_shown_and_then_is_skipped() {
    let mut bench = asked(None, vec![learned(false, &["s1"])]);
    assert!(!away(&mut bench, Duration::from_secs(301), NOBODY).0);
    let shown = bench.core.progress();
    assert_eq!(shown.phase, DrainPhase::Checking);
    assert!(shown.reason.contains("the drain is skipped at Deadline"), "{}", shown.reason);
    assert!(shown.reason.contains("up to 600 s"), "{}", shown.reason);
    let (skipped, took) = away(&mut bench, LONG, NOBODY);
    assert!(skipped && took <= SPREAD, "{took:?}");
    assert_eq!(shown.deadline, bench.core.node.wall(bench.now), "skipped when it was said to be");
    let skip = bench.core.progress().skip;
    assert!(skip.starts_with("the Kubernetes API was not reachable for 300 s: no route to host"), "{skip}");
    assert!(skip.contains("so that nodes do not go together"), "{skip}");
}

#[test]
fn u8_an_api_that_answers_while_the_time_by_chance_runs_ends_it() {
    let mut bench = asked(None, vec![learned(false, &["s1"])]);
    away(&mut bench, Duration::from_secs(301), NOBODY);
    while !bench.last.iter().any(|it| matches!(it, Effect::Probe(_))) {
        bench.wait();
    }
    let run = bench.run();
    bench.hear(Event::Probed(run, Ok(())));
    assert!(bench.core.progress().deadline.is_zero());
    assert_eq!((bench.core.progress().phase, bench.status().0), (DrainPhase::Checking, 4));
}

#[test]
fn u8_nobody_is_skipped_while_the_last_other_server_had_its_turn_or_a_last_replica_is_here() {
    let replica = |volume: &str| {
        let volume = volume.to_owned();
        Event::Learned(Box::new(Learned {
            server: false,
            alone: false,
            servers: vec!["s1".into()],
            volume,
            addresses: Vec::new(),
        }))
    };
    for (known, why) in [
        (vec![learned(false, &["s1"]), out(&["s1"])], "held by server s1"),
        (vec![learned(true, &["s1"]), out(&["s1"])], "held by server s1"),
        (vec![replica("pvc-1")], "the last healthy replica of Longhorn volume pvc-1 is here"),
        (vec![replica("")], "it is not known whether last replicas"),
    ] {
        let mut bench = asked(None, known);
        assert!(!away(&mut bench, LONG, Ok("enough")).0, "{why}");
        let shown = bench.core.progress();
        assert!(shown.reason.contains(why), "{}", shown.reason);
        assert!(shown.next_step.contains("`zedbox go --past drain --reason '...'`"), "{}", shown.next_step);
        // Over a restart, and over a boot, it is known as before.
        let journal = bench.core.journal();
        for boot in ["b1", "b2"] {
            let journal = DrainJournal { boot_id: boot.to_owned(), ..journal.clone() };
            let mut again =
                asked(Some(DrainJournal { answers: Vec::new(), asked: Vec::new(), ..journal }), vec![]);
            assert!(!away(&mut again, LONG, Ok("enough")).0, "{why}, {boot}");
        }
    }
}

#[test]
fn u8_another_server_that_is_up_or_the_end_of_that_turn_ends_the_hold() {
    for known in [
        vec![learned(false, &["s1", "s2"]), out(&["s1"])],
        vec![learned(false, &["s1"]), out(&["s1"]), out(&[])],
    ] {
        assert!(away(&mut asked(None, known), LONG, NOBODY).0);
    }
}

#[test]
fn u3_a_server_is_skipped_only_when_etcd_can_spare_it_then_and_else_says_why_and_what_to_type() {
    let mut bench = asked(None, vec![learned(true, &["s2", "s3"])]);
    assert!(!away(&mut bench, LONG, Err("1 of 3 etcd voters are healthy")).0);
    let shown = bench.core.progress();
    assert!(shown.reason.contains("1 of 3 etcd voters are healthy"), "{}", shown.reason);
    assert!(shown.next_step.contains("`zedbox go --past drain --reason '...'`"), "{}", shown.next_step);
    assert!(shown.deadline.is_zero());
    // It is asked again, and goes as soon as there is margin.
    let (skipped, took) = away(&mut bench, LONG, Ok("3 of 3 etcd voters are healthy, 2 are required"));
    assert!(skipped && took <= Duration::from_secs(10), "{took:?}");
    assert!(bench.core.progress().skip.contains("3 of 3 etcd voters are healthy"));
}

#[test]
fn u8_a_node_alone_is_skipped_without_a_wait_and_one_that_never_saw_its_cluster_asks_its_own_files() {
    let alone = Learned {
        server: true,
        alone: true,
        servers: Vec::new(),
        volume: "pvc-1".to_owned(),
        addresses: Vec::new(),
    };
    let (skipped, took) = away(&mut asked(None, vec![Event::Learned(Box::new(alone))]), LONG, NOBODY);
    assert!(skipped && took == Duration::from_secs(300), "{took:?}");
    let mut unknown = asked(None, vec![]);
    assert!(!away(&mut unknown, LONG, Err("etcd has two voters and needs both")).0);
    assert!(away(&mut unknown, LONG, Ok("this node has no etcd")).0);
}
