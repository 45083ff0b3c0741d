//! Limits for a pod, the attempt and the drain, with what is done when they are over (goals D15).

use super::*;

fn by_pod(secs: u64, then: PodAction) -> AttemptRules {
    AttemptRules { pod: Limit { after: Some(Duration::from_secs(secs)), then }, ..AttemptRules::default() }
}

/// Passes time; every eviction is refused for a budget.
fn refuse_for(bench: &mut Bench, time: Duration) {
    let until = bench.now + time;
    while bench.now < until && bench.end.is_none() {
        while let Some(uid) = bench.flying.pop_first() {
            bench.hear(Event::Evicted { uid, reply: budget_reply() });
        }
        bench.pass(Duration::from_millis(500).min(until.since(bench.now)));
    }
}

fn deleted(bench: &Bench) -> Vec<&str> {
    bench.deletions.iter().map(|(_, pod)| pod.name.as_str()).collect()
}

#[test]
fn d15_a_pod_over_its_limit_is_named_and_waited_for() {
    let mut bench = Bench::by(vec![pod("a")], by_pod(300, PodAction::Wait));
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
    let mut bench = Bench::by(vec![pod("a")], by_pod(40, PodAction::Wait));
    bench.reply("a", Reply::Done);
    bench.pass(secs(39));
    assert_eq!(bench.blockers(), []);
    bench.pass(secs(1));
    assert_eq!(bench.blockers()[0].code, BlockCode::OverTime);
}

#[test]
fn k5_a_grace_period_that_passes_the_limit_of_the_attempt_or_the_drain_is_named_at_once() {
    let week = || vec![PodFacts { grace: Duration::from_secs(604_800), ..pod("a") }];
    let drain = Limit { after: Some(Duration::from_secs(7200)), then: PodAction::GiveUp };
    let table = [
        (AttemptRules::default(), "of 86400 s for an attempt"),
        (AttemptRules { drain, ..AttemptRules::default() }, "of 7200 s for the whole drain"),
    ];
    for (rules, limit) in table {
        let marks = Marks { drain: Some(Mono::START), ..Marks::default() };
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
    let mut bench = Bench::by(week(), by_pod(4, PodAction::Delete));
    bench.reply("a", Reply::Done);
    bench.pass(secs(6));
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::LongGrace, "{blocker:?}");
    assert!(blocker.reason.ends_with("it is over the limit of 4 s for a pod"), "{blocker:?}");
    // An attempt that nothing ends has no limit to pass, nor has a pod of an hour one that it passes.
    for (pods, then) in
        [(week(), PodAction::Wait), (vec![PodFacts { grace: secs(3600), ..pod("a") }], PodAction::GiveUp)]
    {
        let mut bench = Bench::by(pods, AttemptRules { attempt_then: then, ..AttemptRules::default() });
        bench.reply("a", Reply::Done);
        assert_eq!(bench.blockers(), []);
    }
}

#[test]
fn d15_a_pod_over_its_limit_fails_the_attempt_where_the_rule_says_so() {
    let mut bench = Bench::by(vec![pod("a"), pod("b")], by_pod(300, PodAction::GiveUp));
    bench.leave("b");
    refuse_for(&mut bench, secs(301));
    assert_eq!(bench.reason(), "pod shop/a has not left within 300 s, the limit for a pod");
}

#[test]
fn d15_a_pod_over_its_limit_is_deleted_once_and_named_where_the_rule_says_so() {
    let mut bench = Bench::by(vec![pod("a"), pod("b")], by_pod(300, PodAction::Delete));
    bench.reply("b", Reply::Done);
    refuse_for(&mut bench, secs(299));
    assert_eq!(deleted(&bench), Vec::<&str>::new());
    bench.pass(secs(1));
    if bench.flying.contains(&pod("a").pod.uid) && bench.deletions.is_empty() {
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
    let expected = [Left { what: "shop/a".to_owned(), why }];
    let Some(AttemptOutcome::Drained { left, evicted, .. }) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!((left.as_slice(), *evicted), (expected.as_slice(), 1));
}

#[test]
fn d15_no_limit_deletes_a_pod_that_was_never_asked() {
    let [(attempt, after, _), _] = wholes(PodAction::Delete);
    let mut bench = amid(vec![pod("a"), pod("b")], AttemptRules { at_once: 1, ..attempt });
    bench.pass(secs(after + 100));
    assert_eq!((bench.evicted_names(), deleted(&bench)), (vec!["a"], vec![]), "the answer is still out");
    bench.leave("a");
    assert_eq!(bench.evicted_names(), ["a", "b"]);
    bench.reply("b", budget_reply());
    assert_eq!(deleted(&bench), ["b"]);
}

#[test]
fn d15_limits_go_on_after_a_restart() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    // The bench's clock starts at 1000 s.
    let marks =
        Marks { attempt: Some(at(500)), pods: [(pod("a").pod.uid, at(900))].into(), ..Marks::default() };
    let mut bench = Bench::on_from(vec![pod("a"), pod("b")], by_pod(300, PodAction::GiveUp), &marks);
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
    assert_eq!(marks.attempt, Some(start));
    assert_eq!(marks.pods.len(), 0, "nobody is held for long yet");
    assert_eq!(bench.engine.next_wake(), Some(start + secs(30)));
    bench.pass(Duration::from_millis(1));
    let marks = bench.progress().marks;
    assert_eq!(marks.pods.len(), 64);
    assert!(marks.pods.values().all(|since| *since == start));
    assert!(!marks.pods.contains_key(&pod("p000").pod.uid), "it is gone");
}

#[test]
fn a_launcher_of_a_virtual_machine_is_never_deleted_whatever_its_limit_says() {
    let mut launcher = pod("virt-launcher-db");
    launcher.labels.insert("kubevirt.io".into(), "virt-launcher".into());
    let mut bench = Bench::by(vec![launcher, pod("a")], by_pod(300, PodAction::Delete));
    refuse_for(&mut bench, secs(400));
    let deleted = deleted(&bench);
    assert!(deleted.contains(&"a") && !deleted.contains(&"virt-launcher-db"), "{deleted:?}");
}

fn never_ready() -> PodFacts {
    PodFacts { never_ready: true, ..pod("a") }
}

fn hold(then: NeverReadyAction) -> AttemptRules {
    AttemptRules { never_ready: Limit { after: Some(secs(600)), then }, ..AttemptRules::default() }
}

#[test]
fn d8_a_never_ready_pod_behind_a_budget_is_deleted_after_the_hold_time_where_the_policy_says_so() {
    let mut bench = Bench::by(vec![never_ready()], hold(NeverReadyAction::Delete));
    refuse_for(&mut bench, secs(599));
    assert_eq!(deleted(&bench), [""; 0]);
    bench.pass(secs(2));
    assert_eq!(deleted(&bench), ["a"]);
    bench.leave("a");
    bench.prove();
    let Some(AttemptOutcome::Drained { left, .. }) = &bench.end else { panic!("{:?}", bench.end) };
    let why = "shop/a: deleted whatever its budgets say: never Ready, and held for 600 s";
    assert_eq!(left[0].to_string(), why);
}

#[test]
fn d8_a_pod_that_was_ready_or_is_not_held_or_whose_policy_says_wait_is_never_deleted() {
    let none = Limit { after: None, then: NeverReadyAction::Delete };
    let table = [
        (never_ready(), hold(NeverReadyAction::Wait), "the policy says wait"),
        (never_ready(), AttemptRules::default(), "by default"),
        (pod("a"), hold(NeverReadyAction::Delete), "it was Ready once"),
        (
            never_ready(),
            AttemptRules { never_ready: none, ..AttemptRules::default() },
            "there is no hold time",
        ),
    ];
    for (there, rules, row) in table {
        let mut bench = Bench::by(vec![there], rules);
        refuse_for(&mut bench, secs(4000));
        assert_eq!(deleted(&bench), [""; 0], "{row}");
    }
    let mut bench = Bench::by(vec![never_ready()], hold(NeverReadyAction::Delete));
    for _ in 0..1000 {
        while let Some(uid) = bench.flying.pop_first() {
            bench.hear(Event::Evicted { uid, reply: transient() });
        }
        bench.pass(secs(1));
    }
    assert_eq!(deleted(&bench), [""; 0], "no budget holds it");
}

#[test]
fn d8_a_pod_that_becomes_ready_in_the_hold_time_is_not_deleted() {
    let mut bench = Bench::by(vec![never_ready()], hold(NeverReadyAction::Delete));
    refuse_for(&mut bench, secs(300));
    bench.hear(Event::Pod(pod("a")));
    refuse_for(&mut bench, secs(4000));
    assert_eq!(deleted(&bench), [""; 0]);
}

/// An attempt that began at the bench's 1000 s, of a drain that began 200 s before.
fn amid(there: Vec<PodFacts>, rules: AttemptRules) -> Bench {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    let marks = Marks { attempt: Some(at(1000)), drain: Some(at(800)), ..Marks::default() };
    Bench::on_from(there, rules, &marks)
}

/// Each with the time from now until it is over.
fn wholes(then: PodAction) -> [(AttemptRules, u64, &'static str); 2] {
    let attempt = AttemptRules { attempt: secs(300), attempt_then: then, ..AttemptRules::default() };
    let drain = AttemptRules { drain: Limit { after: Some(secs(500)), then }, ..AttemptRules::default() };
    [(attempt, 300, "an attempt"), (drain, 300, "the whole drain")]
}

#[test]
fn d15_an_attempt_and_a_drain_over_their_limit_are_named_and_waited_for() {
    for (rules, after, what) in wholes(PodAction::Wait) {
        let mut bench = amid(vec![pod("a")], rules);
        refuse_for(&mut bench, secs(after - 1));
        assert_eq!(bench.blockers()[0].code, BlockCode::Budget, "{what}");
        refuse_for(&mut bench, secs(2));
        let blocker = bench.blockers().remove(0);
        assert_eq!(blocker.code, BlockCode::OverTime, "{what}");
        assert!(blocker.reason.ends_with(&format!("s for {what}")), "{blocker:?}");
        refuse_for(&mut bench, secs(4000));
        assert_eq!((bench.end.clone(), deleted(&bench)), (None, vec![]), "{what}");
        // It ends as any other, by the proof.
        bench.leave("a");
        bench.prove();
        assert!(matches!(bench.end, Some(AttemptOutcome::Drained { .. })), "{what}: {:?}", bench.end);
    }
}

#[test]
fn d15_pods_left_after_the_limit_of_an_attempt_or_a_drain_are_deleted_tier_by_tier_where_the_rule_says_so() {
    for (rules, after, what) in wholes(PodAction::Delete) {
        let late = PodFacts { tier: Tier::Storage, ..pod("late") };
        let mut bench = amid(vec![pod("a"), late], rules);
        refuse_for(&mut bench, secs(after - 1));
        assert_eq!(deleted(&bench), [""; 0], "{what}");
        bench.pass(secs(2));
        if bench.deletions.is_empty() {
            bench.reply("a", budget_reply());
        }
        assert_eq!(deleted(&bench), ["a"], "{what}");
        bench.leave("a");
        // What it served was not asked before; it is, and then deleted.
        bench.reply("late", budget_reply());
        assert_eq!((deleted(&bench), bench.end.clone()), (vec!["a", "late"], None), "{what}");
        bench.leave("late");
        bench.prove();
        let Some(AttemptOutcome::Drained { left, .. }) = &bench.end else {
            panic!("{what}: {:?}", bench.end)
        };
        let over = format!("s for {what}");
        assert!(left.len() == 2 && left.iter().all(|it| it.why.ends_with(&over)), "{left:?}");
    }
}

#[test]
fn d15_the_limit_of_a_drain_that_deletes_holds_for_a_pod_whose_own_limit_waits() {
    let rules = AttemptRules {
        drain: Limit { after: Some(secs(500)), then: PodAction::Delete },
        ..by_pod(10, PodAction::Wait)
    };
    let mut bench = amid(vec![pod("a")], rules);
    refuse_for(&mut bench, secs(299));
    assert_eq!((bench.blockers()[0].code, deleted(&bench)), (BlockCode::OverTime, vec![]));
    refuse_for(&mut bench, secs(20));
    assert_eq!(deleted(&bench)[0], "a");
}

#[test]
fn d15_that_a_drain_fails_on_its_limit_is_not_decided_in_an_attempt() {
    for then in [PodAction::GiveUp, PodAction::Wait] {
        let rules = AttemptRules { drain: Limit { after: Some(secs(500)), then }, ..AttemptRules::default() };
        let mut bench = amid(vec![pod("a")], rules);
        refuse_for(&mut bench, secs(4000));
        assert_eq!((bench.end.clone(), deleted(&bench)), (None, vec![]), "{then:?}");
    }
}

#[test]
fn d15_the_stage_of_machines_ends_by_every_limit_whose_action_is_not_to_wait() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    let (give_up, wait, delete) = (PodAction::GiveUp, PodAction::Wait, PodAction::Delete);
    // The attempt begins at 1000 s and has 600 s; the drain has 500 s from `since` on.
    for (attempt_then, then, since, expected) in [
        (give_up, give_up, 800, Some(1600)),
        (delete, give_up, 800, Some(1600)),
        (wait, give_up, 800, None),
        (wait, wait, 800, None),
        (give_up, delete, 800, Some(1300)),
        (wait, delete, 800, Some(1300)),
        (delete, delete, 1000, Some(1500)),
        // It is over before the attempt begins: no attempt ends at once.
        (wait, delete, 100, Some(1600)),
        (delete, delete, 500, Some(1600)),
    ] {
        let drain = Limit { after: Some(secs(500)), then };
        let rules = AttemptRules { attempt: secs(600), attempt_then, drain, ..AttemptRules::default() };
        let end = rules.machines_end(at(1000), Some(at(since)));
        let expected = expected.map_or(at(1000) + Duration::MAX, at);
        assert_eq!(end, expected, "{attempt_then:?} {then:?} {since}");
    }
}
