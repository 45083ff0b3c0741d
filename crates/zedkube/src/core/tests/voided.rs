//! COMPLETE and its ends, each tried in a sentence.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Progress;
use topics::{CordonOwner, DrainMarks, DrainStatus, Requester};

use super::bench::{Bench, T0, done_with};
use super::stories::{go, tell};
use super::{Effect, Event, NodeLook, RemainingPod};

pub(super) fn pod(name: &str) -> RemainingPod {
    let workload = "ReplicaSet/web".into();
    RemainingPod { namespace: "shop".into(), name: name.into(), workload, unknown: false }
}

pub(super) fn complete_for(by: Requester) -> Bench {
    tell(&format!("draining {by:?}, done, status 9"))
}

fn looks(bench: &Bench) -> bool {
    bench.has(|it| matches!(it, Effect::Look { uncordon: false, .. }))
}

#[test]
fn p8_a_pod_that_has_come_to_the_drained_node_voids_complete_and_it_is_drained_again() {
    for owner in ["Ours", "Foreign"] {
        tell(&format!(
            "complete DeviceOp, look pods {owner} late-0, none complete, drains, status 5 2, done, status 9 2"
        ));
    }
}

#[test]
fn whoever_has_cordoned_the_drained_node_before_is_told_how_to_end_that_by_its_name() {
    tell(
        "asked Operator, probed, cordoned Foreign, done, owner Foreign, status 9
        next is work on the node; whoever has cordoned it ends that afterwards: `kubectl uncordon n1`",
    );
}

#[test]
fn d9_p8_a_pod_that_the_drain_counted_as_gone_voids_complete_only_when_a_container_of_it_is_shown() {
    for (name, unknown, complete) in [("old-0", true, true), ("old-01", true, false), ("old-0", false, false)]
    {
        let (mut bench, run) = Bench::draining(Requester::DeviceOp);
        let gone = "shop/old-0: no container of it runs, by the container runtime".to_owned();
        bench.hear(Event::Drained(run, Ok(done_with(vec![gone]))));
        bench.look(NodeLook::HasPods(CordonOwner::Ours, vec![RemainingPod { unknown, ..pod(name) }]));
        assert_eq!(bench.status().0 == 9, complete, "{name} {unknown}");
    }
}

#[test]
fn p8_what_a_rule_lets_pass_does_not_void_complete_by_name_or_as_one_more_of_its_workload() {
    let (mut bench, run) = Bench::draining(Requester::DeviceOp);
    let times = |times| {
        let returns = [("shop/ReplicaSet/web".to_owned(), times)].into();
        Box::new(Progress {
            marks: DrainMarks { attempt_ms: T0.as_ms(), returns, ..DrainMarks::default() },
            ..Progress::default()
        })
    };
    bench.hear(Event::Draining(run, times(3)));
    let stays = "shop/old-0: it stays: its workload comes back".to_owned();
    bench.hear(Event::Drained(run, Ok(done_with(vec![stays]))));
    bench.look(NodeLook::HasPods(CordonOwner::Ours, vec![pod("web-7")]));
    assert_eq!(bench.status(), (9, 2));
    bench.wait();
    let named = RemainingPod { workload: String::new(), ..pod("old-0") };
    bench.look(NodeLook::HasPods(CordonOwner::Ours, vec![named]));
    assert_eq!(bench.status(), (9, 2));
    bench.wait();
    let other = RemainingPod { workload: "ReplicaSet/other".into(), ..pod("old-01") };
    bench.look(NodeLook::HasPods(CordonOwner::Ours, vec![pod("web-8"), other]));
    bench.run();
}

#[test]
fn p8_what_happens_on_the_drained_node_is_looked_at_at_once_and_not_in_a_circle() {
    let mut bench = tell(
        "complete Operator, not guard, look Ours, does guard, activity, does look, look Ours, not guard
        wait 30, look Ours, does guard, wait",
    );
    // A look that is under way may have read before it happened: another one follows.
    let nth = bench.nth();
    bench.hear(Event::NodeActivity("the cordon is another one".into()));
    bench.hear(Event::Looked(nth, Ok(NodeLook::Ours)));
    go(&mut bench, "does look, look Open, does cancel");
    bench.run();
}

#[test]
fn p8_complete_that_no_operation_acts_on_is_void_after_its_age_and_drained_again_each_time() {
    for by in [Requester::DeviceOp, Requester::Update] {
        let mut bench = complete_for(by);
        for _ in 0..2 {
            let from = bench.now;
            while bench.status().0 == 9 {
                if looks(&bench) {
                    bench.look(NodeLook::Ours);
                }
                bench.wait();
            }
            assert_eq!(bench.now.since(from), Duration::from_hours(2));
            let run = bench.until_draining();
            bench.done(run);
            assert_eq!(bench.status(), (9, by.number()));
        }
    }
}

#[test]
fn p8_a_person_keeps_the_node_when_the_answer_of_an_operation_becomes_too_old() {
    tell(
        "complete Operator, ask DeviceOp 2, drains, done, pass 7200, tick
        answers DeviceOp Starting; Operator Complete, not uncordon",
    );
}

#[test]
fn p8_pods_that_stay_after_a_skip_void_nothing() {
    tell(
        "asked DeviceOp, away 3600, status 9 2, not look, restart DeviceOp 1, look pods Ours web-1, status 9 2",
    );
}

#[test]
fn p8_a_complete_of_before_the_start_that_is_too_old_is_void_only_when_requests_are_known() {
    let bench = tell(
        "complete DeviceOp, crash, due never, pass 10800, tick, status 9 2, ask DeviceOp, join, drains, done
        status 9 2",
    );
    assert!(bench.statuses.iter().all(|it| it.0 != DrainStatus::NotRequested.number()));
}
