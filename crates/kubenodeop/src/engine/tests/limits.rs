//! Limits for a pod, the attempt and the drain, with what is done when they are over.

use super::*;

fn by_pod(secs: u64, then: LimitAction) -> AttemptRules {
    AttemptRules { pod: Limit { after: Some(Duration::from_secs(secs)), then }, ..AttemptRules::default() }
}

/// Passes time; every eviction is refused for a budget.
fn refuse_for(bench: &mut Bench, time: Duration) {
    bench.answer_for(time, |bench| {
        while let Some(uid) = bench.flying.pop_first() {
            bench.hear(Event::Evicted { uid, reply: budget_reply() });
        }
    });
}

fn deleted(bench: &Bench) -> Vec<&str> {
    bench.deletions.iter().map(|(_, pod)| pod.name.as_str()).collect()
}

#[test]
fn d15_a_pod_over_its_limit_is_named_and_waited_for() {
    let mut bench = Bench::by(vec![pod("a")], by_pod(300, LimitAction::Wait));
    refuse_for(&mut bench, secs(299));
    assert_eq!(bench.blockers()[0].code, BlockCode::Budget);
    refuse_for(&mut bench, secs(2));
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::OverTime);
    let end = "it is over the limit of 300 s for a pod";
    assert!(blocker.reason.starts_with("pod shop/a") && blocker.reason.ends_with(end), "{blocker:?}");
    refuse_for(&mut bench, secs(60));
    assert_eq!((bench.end.clone(), deleted(&bench)), (None, vec![]));
    assert!(bench.evictions.len() > 20, "it is asked on");
}

#[test]
fn d15_a_pod_that_is_ending_is_over_its_limit_too() {
    let mut bench = Bench::by(vec![pod("a")], by_pod(40, LimitAction::Wait));
    bench.reply("a", Reply::Done);
    bench.pass(secs(39));
    assert_eq!(bench.blockers(), []);
    bench.pass(secs(1));
    assert_eq!(bench.blockers()[0].code, BlockCode::OverTime);
}

#[test]
fn k5_a_grace_period_that_passes_the_limit_of_the_attempt_or_the_drain_is_named_at_once() {
    let week = || vec![PodFacts { grace: Duration::from_secs(604_800), ..pod("a") }];
    let table = [
        (AttemptRules::default(), "of 86400 s for an attempt"),
        (
            AttemptRules { drain: Some(secs(7200)), ..AttemptRules::default() },
            "of 7200 s for the whole drain",
        ),
    ];
    for (rules, limit) in table {
        let marks = DrainMarks { drain_ms: Mono::START.as_ms(), ..DrainMarks::default() };
        let mut bench = Bench::on_from(week(), rules, &marks);
        bench.reply("a", Reply::Done);
        let blocker = bench.blockers().remove(0);
        assert_eq!(blocker.code, BlockCode::LongGrace);
        assert_eq!(
            blocker.reason,
            format!(
                "pod shop/a was asked to end and may take its grace period of 604800 s, which passes the limit {limit}"
            )
        );
    }
    // What a rule does about the pod itself shortens nothing.
    let mut bench = Bench::by(week(), by_pod(4, LimitAction::GetPast));
    bench.reply("a", Reply::Done);
    bench.pass(secs(6));
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::LongGrace, "{blocker:?}");
    assert!(blocker.reason.ends_with("it is over the limit of 4 s for a pod"), "{blocker:?}");
    // A pod of an hour has no limit that it passes.
    let mut bench = Bench::started(vec![PodFacts { grace: secs(3600), ..pod("a") }]);
    bench.reply("a", Reply::Done);
    assert_eq!(bench.blockers(), []);
}

#[test]
fn d15_a_pod_over_its_limit_is_deleted_once_and_named_where_the_rule_says_so() {
    let mut bench = Bench::by(vec![pod("a"), pod("b")], by_pod(300, LimitAction::GetPast));
    bench.reply("b", Reply::Done);
    refuse_for(&mut bench, secs(299));
    assert_eq!(deleted(&bench), Vec::<&str>::new());
    bench.pass(secs(1));
    if bench.is_asked("a") && bench.deletions.is_empty() {
        bench.reply("a", budget_reply());
    }
    assert_eq!(deleted(&bench), ["a"], "the other one is ending already");
    let before = bench.evictions.len();
    bench.reply("a", transient());
    bench.pass(secs(15));
    assert_eq!(deleted(&bench), ["a", "a"], "a deletion that failed is repeated");
    bench.leave("a");
    bench.pass(secs(200));
    assert_eq!((deleted(&bench).len(), bench.evictions.len()), (2, before), "and no more");
    bench.there.clear();
    bench.hear(Event::PodGone(pod("b").pod.uid));
    bench.prove();
    let why = "deleted whatever its budgets say: over the limit of 300 s for a pod".to_owned();
    let expected = [format!("shop/a: {why}")];
    let Some(Ok(DrainSuccess { left, evicted, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!((left.as_slice(), *evicted), (expected.as_slice(), 1));
}

#[test]
fn d15_no_limit_deletes_a_pod_that_was_never_asked() {
    let mut bench =
        Bench::by(vec![pod("a"), pod("b")], AttemptRules { at_once: 1, ..by_pod(300, LimitAction::GetPast) });
    bench.pass(secs(400));
    assert_eq!((bench.evicted_names(), deleted(&bench)), (vec!["a"], vec![]), "the answer is still out");
    bench.leave("a");
    assert_eq!(bench.evicted_names(), ["a", "b"]);
    refuse_for(&mut bench, secs(299));
    assert_eq!(deleted(&bench), [""; 0], "its own time begins with its own call");
    refuse_for(&mut bench, secs(2));
    assert_eq!(deleted(&bench), ["b"]);
}

#[test]
fn d15_limits_go_on_after_a_restart() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    // The bench's clock starts at 1000 s.
    let marks = DrainMarks {
        attempt_ms: at(500).as_ms(),
        pods_ms: [("uid-a".to_owned(), at(900).as_ms())].into(),
        ..DrainMarks::default()
    };
    let mut bench = Bench::on_from(vec![pod("a"), pod("b")], by_pod(300, LimitAction::GiveUp), &marks);
    refuse_for(&mut bench, secs(199));
    assert_eq!(bench.end, None);
    refuse_for(&mut bench, secs(2));
    assert_eq!(bench.reason(), "pod shop/a has not left within 300 s, the limit for a pod");

    let rules = AttemptRules { attempt: secs(600), ..AttemptRules::default() };
    let mut bench = Bench::on_from(vec![pod("a")], rules, &marks);
    refuse_for(&mut bench, secs(99));
    assert_eq!(bench.end, None);
    refuse_for(&mut bench, secs(2));
    assert!(bench.reason().starts_with("not done within 600 s"));
}

#[test]
fn d15_what_a_restart_must_not_forget_is_told_and_bounded() {
    let all: Vec<PodFacts> = (0..100).map(|number| pod(&format!("p{number:03}"))).collect();
    let rules = AttemptRules { at_once: 100, ..AttemptRules::default() };
    let mut bench = Bench::by(all, rules);
    let start = bench.now;
    bench.leave("p000");
    bench.pass(Duration::from_millis(29_999));
    let marks = bench.progress().marks;
    assert_eq!(marks.attempt_ms, start.as_ms());
    assert_eq!(marks.pods_ms.len(), 0, "nobody is held for long yet");
    assert_eq!(bench.engine.next_wake(), Some(start + secs(30)));
    bench.pass(Duration::from_millis(1));
    let marks = bench.progress().marks;
    assert_eq!(marks.pods_ms.len(), 64);
    assert!(marks.pods_ms.values().all(|since| *since == start.as_ms()));
    assert!(!marks.pods_ms.contains_key("uid-p000"), "it is gone");
}

#[test]
fn a_launcher_of_a_virtual_machine_is_never_deleted_whatever_its_limit_says() {
    let mut launcher = pod("virt-launcher-db");
    launcher.labels.insert("kubevirt.io".into(), "virt-launcher".into());
    let mut bench = Bench::by(vec![launcher, pod("a")], by_pod(300, LimitAction::GetPast));
    refuse_for(&mut bench, secs(400));
    let deleted = deleted(&bench);
    assert!(deleted.contains(&"a") && !deleted.contains(&"virt-launcher-db"), "{deleted:?}");
}

fn never_ready() -> PodFacts {
    PodFacts { never_ready: true, ..pod("a") }
}

fn hold(then: LimitAction) -> AttemptRules {
    AttemptRules { never_ready: then, ..AttemptRules::default() }
}

#[test]
fn d8_a_never_ready_pod_behind_a_budget_is_deleted_after_the_hold_time_where_the_policy_says_so() {
    let mut bench = Bench::by(vec![never_ready()], hold(LimitAction::GetPast));
    refuse_for(&mut bench, secs(599));
    assert_eq!(deleted(&bench), [""; 0]);
    bench.pass(secs(2));
    assert_eq!(deleted(&bench), ["a"]);
    bench.leave("a");
    bench.prove();
    let why = "shop/a: deleted whatever its budgets say: never Ready, and held for 600 s";
    assert_eq!(bench.left(), [why]);
}

#[test]
fn d8_a_pod_that_becomes_ready_in_the_hold_time_is_not_deleted() {
    let mut bench = Bench::by(vec![never_ready()], hold(LimitAction::GetPast));
    refuse_for(&mut bench, secs(300));
    bench.hear(Event::Pod(pod("a")));
    refuse_for(&mut bench, secs(4000));
    assert_eq!(deleted(&bench), [""; 0]);
}

#[test]
fn d15_that_a_drain_fails_on_its_limit_is_not_decided_in_an_attempt() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    let marks =
        DrainMarks { attempt_ms: at(1000).as_ms(), drain_ms: at(800).as_ms(), ..DrainMarks::default() };
    let rules = AttemptRules { drain: Some(secs(500)), ..AttemptRules::default() };
    let mut bench = Bench::on_from(vec![pod("a")], rules, &marks);
    refuse_for(&mut bench, secs(4000));
    assert_eq!((bench.end.clone(), deleted(&bench)), (None, vec![]));
}
