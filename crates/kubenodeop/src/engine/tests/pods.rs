//! Each pod on its way out.

use super::*;

#[test]
fn d2_only_the_permanent_class_ends_a_pod() {
    let text = || "x".to_owned();
    let table = [
        (budget_reply(), Some(BlockCode::Budget)),
        (Reply::ManyBudgets { text: text() }, Some(BlockCode::ManyBudgets)),
        (Reply::Throttle { text: text(), retry_after: None }, Some(BlockCode::Throttled)),
        (Reply::NamespaceEnding { text: text() }, Some(BlockCode::NamespaceEnding)),
        (Reply::Conflict { text: text() }, Some(BlockCode::ApiTrouble)),
        (Reply::Expired, Some(BlockCode::ApiTrouble)),
        (transient(), Some(BlockCode::ApiTrouble)),
        (Reply::Done, None),
        (Reply::NotFound { text: text() }, None),
        (Reply::UidChanged, None),
    ];
    for (reply, code) in table {
        let mut bench = Bench::started(vec![pod("a"), pod("b")]);
        bench.reply("a", reply.clone());
        bench.pass(Duration::from_millis(500));
        let held: Vec<String> = bench.blockers().into_iter().map(|it| it.code).collect();
        assert_eq!(held, code.iter().map(|it| it.text()).collect::<Vec<_>>(), "{reply:?}");
        bench.pass(secs(20));
        assert_eq!(bench.end, None, "{reply:?}");
        assert_eq!(bench.evictions.len() > 2, code.is_some(), "asked again: {reply:?}");
    }
}

#[test]
fn o4_answers_to_calls_are_counted_by_their_word() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    bench.reply("a", budget_reply());
    bench.reply("b", Reply::Done);
    bench.pass(secs(20));
    bench.reply("a", budget_reply());
    bench.pass(secs(40));
    bench.reply("a", Reply::NotFound { text: "404".to_owned() });
    assert_eq!(bench.progress().replies, [("accepted", 1), ("budget", 2), ("gone", 1)].into_iter().collect());
}

#[test]
fn d16_what_was_refused_is_known_at_the_end_with_who_refused_and_each_refuser_has_its_own_code() {
    let refusals = [
        (RefusedBy::Credentials, BlockCode::Unauthorized),
        (RefusedBy::Role, BlockCode::Refused),
        (RefusedBy::Other, BlockCode::Refused),
    ];
    for (by, code) in refusals {
        let mut bench = Bench::started(vec![pod("a")]);
        bench.reply("a", Reply::Permanent { text: "no".to_owned(), by });
        let AttemptFailure { blockers, watched, .. } = bench.failure();
        assert_eq!(blockers[0].code, code, "{by:?}");
        assert_eq!(blockers[0].reason, "pod shop/a cannot be evicted: no");
        assert_eq!(
            watched.refused,
            [PermanentRefusal { call: RefusedCall::Leave(RemovalCall::Evict, pod("a").guarded()), by }]
        );
    }
    let mut bench = Bench::new(vec![]);
    bench.hear(Event::Tick);
    let turn = bench.asked.pop().unwrap();
    bench.hear(Event::Looked { turn, seen: Err(failed(permanent())) });
    assert_eq!(
        bench.failure().watched.refused,
        [PermanentRefusal { call: RefusedCall::Look, by: RefusedBy::Role }]
    );
    assert_eq!(bench.progress().trouble_step, "do something");
    let mut bench = Bench::started(vec![pod("a")]);
    let text = "500: failed calling webhook \"guard\"".to_owned();
    bench.reply("a", Reply::Unanswered { text, retry_after: None });
    assert_eq!((bench.blockers()[0].code.as_str(), bench.end.clone()), ("webhook", None), "asked again");
}

#[test]
fn t14_what_an_admission_denies_is_asked_again_at_the_pace_of_other_waits_with_a_code_of_its_own() {
    let table = [
        (DeniedBy::Webhook, BlockCode::Webhook, "validatingwebhookconfigurations"),
        (DeniedBy::Policy, BlockCode::Admission, "validatingadmissionpolicies"),
        (DeniedBy::Plugin, BlockCode::Admission, "quota"),
    ];
    for (by, code, step) in table {
        let mut bench = Bench::started(vec![pod("a"), pod("b")]);
        bench.leave("b");
        let first = bench.now;
        for asked in 1..=4 {
            assert_eq!(bench.evicted_names().iter().filter(|it| **it == "a").count(), asked, "{by:?}");
            bench.reply("a", Reply::Denied { text: "403: not now".to_owned(), by, retry_after: None });
            let held = bench.blockers().remove(0);
            assert_eq!((held.code.as_str(), held.since), (code.text(), stamp(first)), "{by:?}");
            assert!(held.next_step.contains(step) && held.reason.ends_with("403: not now"), "{held:?}");
            bench.pass(secs(15));
        }
        assert_eq!((bench.progress().counts.blocked, bench.end.clone()), (1, None), "{by:?}");
    }
}

#[test]
fn d3_no_pod_is_asked_again_before_its_retry_after_whatever_its_budget_does() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Budget { text: "429".to_owned(), retry_after: Some(secs(40)) });
    bench.hear(budgets(1));
    bench.pass(Duration::from_millis(39_999));
    assert_eq!(bench.evictions.len(), 1);
    bench.pass(secs(2));
    assert_eq!(bench.evictions.len(), 2);
}

#[test]
fn d3_waits_grow_to_fifteen_seconds_and_the_engine_sleeps_in_between() {
    let mut bench = Bench::started(vec![pod("a")]);
    for _ in 0..12 {
        bench.reply("a", transient());
        let before = bench.evictions.len();
        bench.pass(secs(15));
        assert_eq!(bench.evictions.len(), before + 1);
    }
    let waits: Vec<Duration> = bench.evictions.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    assert!(waits[0] <= secs(1), "{waits:?}");
}

#[test]
fn d16_a_budget_with_room_again_wakes_its_pods_at_once_and_only_when_it_changed() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    assert_eq!(bench.follows, ["shop"]);
    bench.hear(budgets(0));
    bench.hear(unhealthy(vec![]));
    assert_eq!(
        bench.blockers()[0].reason,
        "pod shop/a: PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required"
    );
    bench.hear(budgets(1));
    assert_eq!(bench.evictions.len(), 2);
    bench.reply("a", budget_reply());
    for _ in 0..10 {
        bench.hear(budgets(1));
    }
    assert_eq!(bench.evictions.len(), 2, "the same again wakes nobody");
    assert_eq!(bench.follows.len(), 1);
}

#[test]
fn a_blocker_keeps_its_time_while_its_code_stays() {
    let mut bench = Bench::started(vec![pod("a")]);
    let since = bench.now;
    bench.reply("a", budget_reply());
    bench.pass(secs(1));
    bench.reply("a", budget_reply());
    assert_eq!(bench.blockers()[0].since, stamp(since));
    assert_eq!(bench.said.iter().filter(|it| it.contains("pod-evict-err")).count(), 1, "said once");
    bench.pass(secs(2));
    bench.reply("a", transient());
    assert_eq!(bench.blockers()[0].since, stamp(bench.now));
}

#[test]
fn d1_a_pod_of_the_same_name_is_another_pod() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::UidChanged);
    assert_eq!(bench.progress().counts.gone, 1, "not waited for");
    let mut other = pod("a");
    other.pod.uid = PodUid::new("other");
    bench.there = vec![other.clone()];
    bench.look();
    assert_eq!(bench.evictions.last().map(|(_, pod)| pod.uid.clone()), Some(PodUid::new("other")));
}

#[test]
fn a_pod_said_to_be_gone_that_is_still_there_is_asked_again_but_not_at_once() {
    let mut bench = Bench::started(vec![pod("a")]);
    for _ in 0..3 {
        bench.reply("a", Reply::NotFound { text: "404".to_owned() });
        bench.look();
        let before = bench.evictions.len();
        bench.hear(Event::Tick);
        assert_eq!(bench.evictions.len(), before);
        bench.pass(secs(15));
        assert_eq!(bench.evictions.len(), before + 1);
    }
    assert_eq!(bench.end, None);
}

#[test]
fn a_pod_that_is_ending_is_waited_for_and_named_when_it_is_late() {
    let mut bench = Bench::started(vec![PodFacts { terminating: true, ..pod("a") }]);
    assert_eq!(bench.evicted_names(), Vec::<&str>::new());
    assert_eq!(bench.blockers(), []);
    bench.pass(secs(60));
    let blockers = bench.blockers();
    assert_eq!(blockers[0].code, BlockCode::SlowToEnd);
    assert_eq!(blockers[0].reason, "pod shop/a was asked to end and is still there after its 30 s");
}

#[test]
fn a_watch_that_lost_an_event_is_made_good_by_a_list_at_the_end_of_the_grace_period() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Done);
    bench.there.clear();
    bench.pass(secs(59));
    assert_eq!(bench.looks.len(), 1);
    bench.pass(secs(1));
    bench.look();
    assert_eq!(bench.progress().counts.gone, 1);
}

#[test]
fn a_watch_that_lags_does_not_take_back_an_accepted_eviction_but_a_list_does() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Done);
    bench.hear(Event::Pod(pod("a")));
    assert_eq!(bench.progress().counts.going, 1);
    bench.pass(secs(60));
    bench.look();
    assert_eq!(bench.progress().counts.waiting, 1);
    bench.pass(secs(1));
    assert_eq!(bench.evictions.len(), 2);
}

#[test]
fn a_watch_does_not_know_that_a_daemon_set_is_gone_and_a_list_does() {
    let by_watch = PodFacts { owner: PodOwner::DaemonSet, ..pod("a") };
    let by_list = PodFacts { owner: PodOwner::VanishedDaemonSet, ..pod("a") };
    let mut bench = Bench::new(vec![by_list]);
    bench.hear(Event::Pods(vec![by_watch.clone()]));
    assert_eq!(bench.evicted_names(), Vec::<&str>::new());
    bench.look();
    assert_eq!(bench.evicted_names(), ["a"]);
    bench.hear(Event::Pod(by_watch));
    assert_eq!(bench.progress().counts.total, 1);
}

#[test]
fn a_pod_that_turns_out_to_stay_is_not_waited_for() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    bench.hear(Event::Pod(PodFacts { owner: PodOwner::DaemonSet, ..pod("a") }));
    assert_eq!(bench.progress().counts.total, 0);
}

#[test]
fn a_fact_heard_twice_is_a_fact_heard_once() {
    let facts = [
        Event::Pods(vec![pod("a"), pod("b")]),
        Event::Pod(pod("a")),
        Event::Pod(PodFacts { terminating: true, ..pod("b") }),
        Event::PodGone(pod("b").pod.uid),
        budgets(0),
        budgets(1),
        Event::Node(node(false)),
        Event::Trouble(failed(transient())),
        Event::Tick,
    ];
    let (mut once, mut twice) = (Bench::new(vec![]), Bench::new(vec![]));
    for fact in facts {
        once.hear(fact.clone());
        twice.hear(fact.clone());
        twice.hear(fact);
        assert_eq!(once.engine.progress(once.now), twice.engine.progress(twice.now));
        assert_eq!(once.evictions, twice.evictions);
    }
}

#[test]
fn a_list_that_was_asked_for_before_a_pod_went_does_not_bring_it_back() {
    let mut bench = Bench::new(vec![pod("a")]);
    bench.hear(Event::Pods(vec![pod("a")]));
    bench.reply("a", Reply::Done);
    bench.hear(Event::PodGone(pod("a").pod.uid));
    // The answer to the very first list comes now and still has the pod.
    bench.look();
    assert_eq!(bench.progress().counts.gone, 1);
    bench.pass(secs(20));
    assert_eq!(bench.evictions.len(), 1);
}

#[test]
fn r1_a_watch_that_lags_does_not_have_a_pod_evicted_twice() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", Reply::Done);
    bench.hear(Event::PodGone(pod("a").pod.uid));
    bench.hear(Event::Pod(pod("a")));
    bench.pass(secs(20));
    assert_eq!(bench.evictions.len(), 1);
    assert_eq!(bench.progress().counts.going, 1);
}

#[test]
fn a_pod_that_somebody_else_ends_while_its_eviction_is_refused_is_waited_for() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.hear(Event::Pod(PodFacts { terminating: true, ..pod("a") }));
    bench.reply("a", permanent());
    assert_eq!((bench.progress().counts.going, bench.end.clone()), (1, None));
}

#[test]
fn d11_a_list_of_the_watch_that_is_older_takes_away_no_pod_that_a_look_has_shown() {
    let later = PodFacts { tier: Tier::Storage, ..pod("s") };
    let mut bench = Bench::started(vec![pod("a"), later.clone()]);
    assert_eq!(bench.evicted_names(), ["a"]);
    bench.reply("a", budget_reply());
    // It was read before "a" was bound here.
    bench.hear(Event::Pods(vec![later.clone()]));
    assert_eq!(bench.evicted_names(), ["a"], "its tier waits for what a fresh list says");
    assert_eq!(bench.looks.len(), 2);
    bench.look();
    assert_eq!(bench.evicted_names(), ["a"]);
    // The other way round it is newer: the pod has gone, and the watch has never named it.
    let mut bench = Bench::started(vec![pod("a"), later.clone()]);
    bench.there = vec![later.clone()];
    bench.hear(Event::Pods(vec![later]));
    bench.reply("a", Reply::NotFound { text: "404".to_owned() });
    bench.look();
    assert_eq!(bench.evicted_names(), ["a", "s"]);
}
