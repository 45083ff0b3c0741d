//! A pod that a person has kept until a time.

use super::*;
use crate::plan::tier::PodHold;

fn held(text: &str, ahead: Result<Duration, &'static str>) -> PodFacts {
    PodFacts { hold: Some(PodHold { text: text.to_owned(), ahead }), ..pod("a") }
}

/// When the pod is evicted, in s from the start, where it is within a day.
fn evicted_after(rules: AttemptRules, facts: PodFacts) -> Option<u64> {
    let marks = DrainMarks { drain_ms: Mono::from_start(secs(1000)).as_ms(), ..DrainMarks::default() };
    let mut bench = Bench::on_from(vec![facts], rules, &marks);
    let from = bench.now;
    for _ in 0..48 {
        if !bench.evictions.is_empty() || bench.end.is_some() {
            break;
        }
        bench.pass(secs(1800));
    }
    bench.evictions.first().map(|it| it.0.since(from).as_secs())
}

#[test]
fn j6_a_pod_is_not_evicted_before_its_time_and_the_limits_of_a_drain_win() {
    let hour = || held("2026-03-14T10:00:00Z", Ok(secs(3600)));
    let rules = AttemptRules::default;
    let by_pod = |then| AttemptRules { pod: Limit { after: Some(secs(600)), then }, ..rules() };
    let drain = AttemptRules { drain: Some(secs(1200)), ..rules() };
    let table = [
        ("until then", rules(), hour(), 3600),
        ("no hold", rules(), pod("a"), 0),
        ("refused", rules(), held("tomorrow", Err("it is no time")), 0),
        ("the limit of a pod", by_pod(LimitAction::Wait), hour(), 600),
        ("the same, and then it has failed", by_pod(LimitAction::GiveUp), hour(), 600),
        // Its grace and as much as a pod may take past it.
        ("the limit of the drain", drain, hour(), 1200 - 60),
        ("it has run to its end", rules(), PodFacts { finished: true, ..hour() }, 0),
    ];
    for (row, rules, facts, expected) in table {
        assert_eq!(evicted_after(rules, facts), Some(expected), "{row}");
    }
}

#[test]
fn j6_a_hold_is_a_blocker_with_its_time_and_a_person_may_change_it() {
    let text = "2026-03-14T10:00:00Z";
    let mut bench = Bench::started(vec![held(text, Ok(secs(3600))), pod("b")]);
    assert_eq!(bench.evicted_names(), ["b"]);
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::HeldUntil);
    assert_eq!(bench.progress().counts.blocked, 1);
    let reason = "pod shop/a is not evicted before 2026-03-14T10:00:00Z, as pillar-rs/hold-until says";
    assert_eq!(blocker.reason, reason);
    assert!(blocker.next_step.contains("-n shop annotate pod a pillar-rs/hold-until-`"), "{blocker:?}");
    // The same word heard again, by a clock that was set meanwhile, changes nothing.
    bench.hear(Event::Pod(held(text, Ok(secs(7200)))));
    bench.pass(secs(3599));
    assert_eq!(bench.evicted_names(), ["b"]);
    bench.hear(Event::Pod(held("2026-03-14T11:00:00Z", Ok(secs(3601)))));
    bench.pass(secs(3600));
    assert_eq!(bench.evicted_names(), ["b"], "put off by a person");
    bench.hear(Event::Pod(pod("a")));
    assert_eq!(bench.evicted_names(), ["b", "a"], "taken away by one");
}

#[test]
fn j6_what_is_not_obeyed_is_named_among_what_was_left() {
    let refused = held("2027-01-01T00:00:00Z", Err("it is more than 24 h ahead"));
    let calm = |name| PodFacts { undisturbed: true, ..pod(name) };
    let bench = Bench::started(vec![refused, calm("b"), calm("c")]);
    let why = "pillar-rs/hold-until=2027-01-01T00:00:00Z is not obeyed: it is more than 24 h ahead";
    let end = "karpenter.sh/do-not-disrupt has no end and is not obeyed, as pillar-rs/hold-until is: shop/b, shop/c";
    assert_eq!(bench.progress().left, [end.to_owned(), format!("shop/a: {why}")]);
    assert!(bench.said.iter().any(|it| it.contains(why)), "{:?}", bench.said);
    assert_eq!((bench.evicted_names().len(), bench.blockers()), (3, vec![]));
}
