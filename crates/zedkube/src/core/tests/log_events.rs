//! What a reader of NodeDrainProgress finds, and how often it is written.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::{PodRef, PodUid};
use kubenodeop::{AttemptFailure, BlockCode, Progress, Tier};
use step::Core as _;
use topics::{Blocker, DrainPhase, NodeDrainProgress, PodCounts, Requester};

use super::bench::{Bench, T0, alone, done_with, failed, request, wall};
use super::{Effect, Event, UnansweredCall};

fn blocker(pod: &str, code: BlockCode) -> Blocker {
    let uid = PodUid::new(format!("uid-{pod}"));
    let subject = PodRef { namespace: "shop".into(), name: pod.into(), uid }.into();
    let reason = format!(
        "pod shop/{pod}: PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required"
    );
    kubenodeop::blocker(&subject, code, reason, T0 + Duration::from_secs(4))
}

fn left(what: &str) -> String {
    format!("{what}: its workload comes back to this node (sticky_then: leave)")
}

fn pods(evicted: u32) -> Progress {
    Progress { evicted, ..Progress::default() }
}

/// A drain in its first attempt, with the waits of a device.
fn draining() -> (Bench, u64) {
    let mut bench = Bench::at(T0, alone(), None);
    bench.join();
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    (bench, run)
}

fn writes(bench: &Bench) -> Vec<&NodeDrainProgress> {
    bench
        .last
        .iter()
        .filter_map(|it| if let Effect::Progress(it) = it { Some(&**it) } else { None })
        .collect()
}

#[test]
fn o1_a_reader_finds_every_member_of_an_attempt() {
    let (mut bench, run) = draining();
    let newest = Progress {
        phase: DrainPhase::Draining,
        tier: Some(Tier::Storage),
        counts: PodCounts { total: 9, gone: 3, going: 2, waiting: 3, blocked: 1 },
        blockers: vec![blocker("web-1", BlockCode::BudgetStuck), blocker("web-2", BlockCode::Sticky)],
        volumes: vec!["shop/data (pv pvc-1)".into()],
        left: vec![left("shop/late-0")],
        estimate: Some(T0 + Duration::from_secs(90)),
        evicted: 5,
        recordons: 2,
        ..Progress::default()
    };
    bench.hear(Event::Draining(run, Box::new(newest)));
    bench.wait();
    let said = *writes(&bench).last().unwrap();
    let at = |secs| wall().plus(Duration::from_secs(secs));
    assert_eq!((said.phase, said.attempt, said.max_attempts), (DrainPhase::Draining, 1, 5));
    assert_eq!(said.counts, PodCounts { total: 9, gone: 3, going: 2, waiting: 3, blocked: 1 });
    assert_eq!((said.tier.as_str(), said.evicted, said.recordons), ("storage", 5, 2));
    assert_eq!(said.volumes, ["shop/data (pv pvc-1)"]);
    assert_eq!(said.left, ["shop/late-0: its workload comes back to this node (sticky_then: leave)"]);
    assert_eq!((said.deadline, said.estimate), (at(24 * 3600), at(90)));
    // O2: a code, a sentence and a time for each, and what to do about the first one, by name.
    let codes: Vec<_> =
        said.blockers.iter().map(|it| (it.pod.as_str(), it.code.as_str(), it.since)).collect();
    assert_eq!(codes, [("shop/web-1", "budget-stuck", at(4)), ("shop/web-2", "sticky", at(4))]);
    let step = BlockCode::BudgetStuck.next_step("shop", "web-1");
    assert_eq!(said.next_step, format!("shop/web-1: {step} (and 1 more)"));
    assert!(
        said.reason.starts_with("3 of 9 pods gone, 1 blocked: pod shop/web-1: PodDisruptionBudget"),
        "{}",
        said.reason
    );
}

#[test]
fn o2_each_reason_has_its_own_next_step() {
    for code in [BlockCode::Budget, BlockCode::Sticky, BlockCode::OverTime, BlockCode::NoOtherNode] {
        let (mut bench, run) = draining();
        let newest = Progress { blockers: vec![blocker("web-1", code)], ..Progress::default() };
        bench.hear(Event::Draining(run, Box::new(newest)));
        bench.wait();
        assert_eq!(writes(&bench)[0].next_step, format!("shop/web-1: {}", code.next_step("shop", "web-1")));
    }
}

#[test]
fn an_api_that_is_lost_in_mid_drain_is_told_with_time_address_tries_and_what_to_do() {
    let (mut bench, run) = draining();
    let counts = PodCounts { total: 4, gone: 1, going: 3, ..PodCounts::default() };
    bench.hear(Event::Draining(run, Box::new(Progress { counts, trouble: "watch".into(), ..pods(3) })));
    let silent = |bench: &mut Bench| {
        let (address, why) = ("https://10.1.2.3:6443".into(), "reach the API: no answer within 15 s".into());
        let away = UnansweredCall { asked: bench.now, address, why };
        bench.now = bench.now + Duration::from_secs(15);
        bench.hear(Event::Away(run, Some(Box::new(away))));
        bench.now = bench.now + Duration::from_secs(5);
    };
    let since = bench.core.node.wall(bench.now);
    silent(&mut bench);
    silent(&mut bench);
    let said = bench.core.progress();
    assert_eq!(
        said.reason,
        format!(
            "no answer from the Kubernetes API at https://10.1.2.3:6443 since {}, for 35 s, tried 2 times: reach \
             the API: no answer within 15 s; 1 of 4 pods gone then",
            since.shown()
        )
    );
    assert_eq!(said.api_silent_since, since);
    assert_eq!(
        said.next_step,
        "check the network and the cluster software of this node: `systemctl status k3s`; the drain continues by \
         itself once the API answers, until Deadline; `zedbox go --past drain --reason '...'` lets the \
         operation go ahead without the rest of the drain"
    );
    // It is held however long that lasts, and shown no more once there is an answer.
    bench.now = T0 + Duration::from_hours(23);
    silent(&mut bench);
    assert_eq!((bench.status(), bench.core.progress().api_silent_since), ((5, 2), since));
    bench.hear(Event::Away(run, None));
    assert!(bench.core.progress().api_silent_since.is_zero());
    assert!(bench.core.progress().reason.starts_with("1 of 4 pods gone"), "{}", bench.core.progress().reason);
}

#[test]
fn trouble_with_the_api_is_never_told_as_pods_that_are_leaving() {
    let (mut bench, run) = draining();
    let trouble = Progress {
        counts: PodCounts { total: 3, gone: 1, going: 2, ..PodCounts::default() },
        trouble: "watch pods: the server answered 401".to_owned(),
        trouble_step: "renew the credentials".to_owned(),
        ..Progress::default()
    };
    bench.hear(Event::Draining(run, Box::new(trouble.clone())));
    bench.wait();
    let said = *writes(&bench).last().unwrap();
    assert_eq!(said.next_step, "renew the credentials");
    assert!(said.reason.contains("1 of 3 pods gone") && said.reason.contains("401"), "{}", said.reason);
    // And it stays the advice when the attempt fails on it.
    bench.fail(run);
    let step = bench.core.progress().next_step;
    assert!(step.starts_with("renew the credentials; the next attempt"), "{step}");
}

#[test]
fn o2_volumes_that_are_waited_for_are_a_phase_with_their_names() {
    let (mut bench, run) = draining();
    let volumes = vec!["shop/data (pv pvc-1)".to_owned(), "shop/logs (pv pvc-2)".to_owned()];
    let newest = Progress { phase: DrainPhase::Detaching, volumes, ..Progress::default() };
    bench.hear(Event::Draining(run, Box::new(newest)));
    bench.wait();
    let said = writes(&bench)[0];
    assert_eq!(said.phase, DrainPhase::Detaching);
    assert!(said.reason.ends_with("shop/data (pv pvc-1), shop/logs (pv pvc-2)"), "{}", said.reason);
    assert!(said.next_step.contains("volumeattachments"), "{}", said.next_step);
}

#[test]
fn what_a_rule_lets_pass_is_told_in_the_end_by_name_and_logged_also_when_it_was_in_an_earlier_attempt() {
    let (mut bench, run) = draining();
    bench.hear(Event::Draining(run, Box::new(Progress { left: vec![left("shop/old-0")], ..pods(3) })));
    bench.fail(run);
    bench.wait();
    bench.hear(Event::Drained(run, Ok(done_with(vec![left("shop/late-0"), left("shop/old-0")]))));
    let said = *writes(&bench).last().unwrap();
    assert_eq!(said.phase, DrainPhase::Complete);
    let why = "its workload comes back to this node (sticky_then: leave)";
    let names = [format!("shop/old-0: {why}"), format!("shop/late-0: {why}")];
    assert_eq!(said.left, names);
    assert_eq!(said.reason, format!("drained: 5 pods evicted, none left; by policy: {}", names.join("; ")));
    for name in &names {
        assert_eq!(bench.said(&format!("left by policy: {name}")), 1);
    }
    // A restart does not forget it.
    let again = Bench::with(Some(bench.core.journal()));
    assert_eq!(writes(&again)[0].left, names);
}

#[test]
fn a_drain_that_fails_for_good_still_shows_its_attempt_and_who_blocked() {
    let (mut bench, run) = draining();
    for attempt in 1..=5 {
        let failure = AttemptFailure {
            blockers: vec![blocker("web-1", BlockCode::OverTime)],
            ..failed("pod shop/web-1 is over its time")
        };
        bench.hear(Event::Drained(run, Err(Box::new(failure))));
        if attempt < 5 {
            bench.now = bench.now + Duration::from_secs(300);
            bench.hear(Event::Tick);
        }
    }
    let said = *writes(&bench).last().unwrap();
    assert_eq!((said.phase, said.attempt, said.blockers.len()), (DrainPhase::FailedDrain, 5, 1));
    assert!(said.next_step.starts_with("shop/web-1: check the pod"), "{}", said.next_step);
}

#[test]
fn o1_a_burst_is_written_five_times_a_second_and_its_last_value_always() {
    let (mut bench, run) = draining();
    let mut written = Vec::new();
    for evicted in 1..=200_u32 {
        bench.now = bench.now + Duration::from_millis(7);
        bench.hear(Event::Draining(run, Box::new(pods(evicted))));
        written.extend(writes(&bench).iter().map(|it| (bench.now, it.evicted)));
    }
    // 1.4 s of changes.
    assert_eq!(written.len(), 6, "{written:?}");
    for pair in written.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= Duration::from_millis(200), "{written:?}");
    }
    let waited = bench.wait();
    assert!(waited < Duration::from_millis(200), "{waited:?}");
    assert_eq!(writes(&bench).iter().map(|it| it.evicted).collect::<Vec<_>>(), [200]);
    // Then there is nothing left to wake up for.
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn o1_a_value_that_comes_back_is_not_written_again() {
    let (mut bench, run) = draining();
    bench.now = bench.now + Duration::from_secs(1);
    bench.hear(Event::Draining(run, Box::new(pods(1))));
    bench.hear(Event::Draining(run, Box::new(pods(2))));
    bench.hear(Event::Draining(run, Box::new(pods(1))));
    assert_eq!(bench.core.next_wake(), None);
}

#[test]
fn an_answer_and_a_status_are_written_at_once_and_in_this_order() {
    let (mut bench, run) = draining();
    bench.hear(Event::Draining(run, Box::new(pods(1))));
    assert_eq!(writes(&bench).len(), 0);
    bench.hear(Event::Drained(run, Ok(done_with(Vec::new()))));
    let place = |is: fn(&Effect) -> bool| bench.last.iter().position(is).unwrap();
    assert!(place(|it| matches!(it, Effect::Progress(_))) < place(|it| matches!(it, Effect::Status(_))));
    // A second requester's answer comes without any change of status.
    let (mut bench, _) = draining();
    bench.ask(&request(Requester::Operator, 2));
    assert_eq!(writes(&bench)[0].answers.len(), 2);
    assert!(!bench.has(|it| matches!(it, Effect::Status(_))));
}
