//! Pods that declare responders for their eviction: left to them first, and evicted as any other after that.

use super::*;

fn declares(name: &str) -> PodFacts {
    PodFacts { responders: true, ..pod(name) }
}

fn rules() -> AttemptRules {
    AttemptRules { eviction_requests: true, ..AttemptRules::default() }
}

fn limited(then: LimitAction) -> AttemptRules {
    AttemptRules { pod: Limit { after: Some(secs(300)), then }, ..rules() }
}

fn responding() -> Reply {
    Reply::Responding { text: "example.com/copier is active: copying".to_owned() }
}

/// Passes time; the responders are always at work.
fn respond_for(bench: &mut Bench, time: Duration) {
    bench.answer_for(time, |bench| {
        for (_, pod) in bench.requests.clone() {
            if bench.flying.contains(&pod.uid) {
                bench.hear(Event::Evicted { uid: pod.uid, reply: responding() });
            }
        }
    });
}

#[test]
fn j2_only_a_pod_that_declares_responders_is_left_to_them_and_only_where_that_is_set() {
    let launcher = {
        let labels = BTreeMap::from([("kubevirt.io".to_owned(), "virt-launcher".to_owned())]);
        PodFacts { labels, ..declares("launcher") }
    };
    for (pod, rules, left) in [
        (declares("a"), rules(), true),
        (declares("a"), AttemptRules::default(), false),
        (pod("a"), rules(), false),
        (PodFacts { finished: true, ..declares("a") }, rules(), false),
        (launcher, rules(), false),
    ] {
        let name = pod.pod.name.clone();
        let bench = Bench::by(vec![pod], rules);
        assert_eq!(
            (bench.requests.len(), bench.evictions.len()),
            (usize::from(left), usize::from(!left)),
            "{name}"
        );
    }
}

#[test]
fn j2_the_responder_is_the_blocker_is_asked_at_the_usual_pace_and_its_word_proves_nothing() {
    let mut bench = Bench::by(vec![declares("a"), PodFacts { tier: Tier::Storage, ..pod("later") }], rules());
    respond_for(&mut bench, secs(600));
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::Responder);
    let reason = "pod shop/a is left to its eviction responders: example.com/copier is active: copying";
    assert_eq!(blocker.reason, reason);
    assert!((40..90).contains(&bench.requests.len()), "{}", bench.requests.len());
    assert_eq!((bench.evictions.len(), bench.withdrawals.len()), (0, 0), "the next tier waits");
    assert_eq!(bench.said.iter().filter(|it| it.contains("is held")).count(), 1, "{:?}", bench.said);
    // It ends without a call of ours; only the lists prove it.
    bench.hear(Event::Pod(PodFacts { terminating: true, ..declares("a") }));
    respond_for(&mut bench, secs(5));
    bench.there.retain(|it| it.pod.name != "a");
    bench.hear(Event::PodGone(declares("a").pod.uid));
    assert_eq!(bench.evicted_names(), ["later"]);
    bench.leave("later");
    assert_eq!(bench.end, None);
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))), "{:?}", bench.end);
}

#[test]
fn j2_at_the_limit_of_a_pod_its_responders_have_had_their_time() {
    for then in [LimitAction::Wait, LimitAction::GiveUp, LimitAction::GetPast] {
        let mut bench = Bench::by(vec![declares("a")], limited(then));
        respond_for(&mut bench, secs(299));
        assert_eq!((bench.evictions.len(), bench.deletions.len()), (0, 0), "{then:?}");
        let asked = bench.requests.len();
        respond_for(&mut bench, secs(2));
        let now = (bench.evictions.len(), bench.deletions.len(), bench.end.is_some());
        let expected = match then {
            LimitAction::Wait => (1, 0, false),
            LimitAction::GiveUp => (0, 0, true),
            LimitAction::GetPast => (0, 1, false),
        };
        assert_eq!(now, expected, "{then:?}");
        respond_for(&mut bench, secs(60));
        assert!(bench.requests.len() <= asked + 1, "{then:?}: asked again");
    }
}

#[test]
fn j2_a_request_that_nobody_answers_is_an_eviction_from_then_on_also_of_a_pod_with_two_budgets() {
    let unheard =
        || Event::Unrequested { uid: pod("a").pod.uid, why: "says Failed, EvictionInvalid: ".to_owned() };
    let mut bench = Bench::by(vec![declares("a")], rules());
    bench.hear(unheard());
    assert_eq!(bench.evicted_names(), ["a"], "at once");
    bench.reply("a", many_budgets());
    bench.hear(all_budgets(&[budget("web", 1, 3, 2, 3), budget("all", 1, 3, 2, 3)]));
    bench.pass(secs(60));
    assert_eq!((bench.requests.len(), bench.removals.len()), (1, 1), "by its budgets, as any other");
    bench.leave("a");
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))), "{:?}", bench.end);
    // What has happened to the pod meanwhile counts.
    for (event, gone) in [
        (Event::PodGone(pod("a").pod.uid), true),
        (Event::Pod(PodFacts { terminating: true, ..declares("a") }), false),
    ] {
        let mut bench = Bench::by(vec![declares("a")], rules());
        bench.hear(event);
        bench.hear(unheard());
        assert_eq!((bench.evictions.len(), bench.progress().counts.gone == 1), (0, gone));
    }
}
