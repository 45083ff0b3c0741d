//! Tiers leave one after the other, and within one nobody waits for anybody.

use super::*;

fn of(name: &str, tier: Tier) -> PodFacts {
    PodFacts { tier, ..pod(name) }
}

#[test]
fn d11_a_tier_is_asked_when_no_pod_of_an_earlier_one_is_on_the_node() {
    let order = [Tier::Application, Tier::Address, Tier::Device, Tier::Storage, Tier::Network, Tier::System];
    let all: Vec<PodFacts> = order.iter().rev().map(|tier| of(tier.text(), *tier)).collect();
    let mut bench = Bench::started(all);
    for (place, tier) in order.into_iter().enumerate() {
        assert_eq!(bench.evicted_names().len(), place + 1, "{:?}", bench.evicted_names());
        assert_eq!(bench.evicted_names().last(), Some(&tier.text()));
        assert_eq!(bench.progress().tier, Some(tier));
        bench.reply(tier.text(), Reply::Done);
        bench.pass(secs(5));
        assert_eq!(bench.evicted_names().len(), place + 1, "ending is not gone");
        bench.leave(tier.text());
    }
    assert_eq!(bench.progress().tier, None);
}

#[test]
fn d11_a_pod_of_an_earlier_tier_that_comes_closes_the_later_one_again() {
    let mut bench = Bench::started(vec![of("disk-1", Tier::Storage), of("disk-2", Tier::Storage)]);
    bench.reply("disk-1", budget_reply());
    bench.bind(pod("late"));
    bench.pass(secs(60));
    assert_eq!(bench.evicted_names(), ["disk-1", "disk-2", "late"], "the first is not asked again");
    bench.leave("late");
    assert_eq!(bench.evicted_names().last(), Some(&"disk-1"));
}

#[test]
fn d11_a_refused_pod_keeps_the_later_tiers_closed_and_fails_the_attempt() {
    let mut bench = Bench::started(vec![pod("a"), pod("b"), of("disk", Tier::Storage)]);
    bench.reply("a", permanent());
    bench.pass(secs(60));
    assert_eq!(bench.evicted_names(), ["a", "b"], "not asked again");
    assert_eq!(bench.end, None, "the other one is still on its way");
    bench.leave("b");
    assert_eq!(bench.reason(), "the API server refuses to evict shop/a");
    assert_eq!(bench.evicted_names(), ["a", "b"], "the storage of a pod that is still there stays");
}

#[test]
fn d11_lower_priorities_of_a_tier_go_first() {
    let with = |name: &str, priority| PodFacts { priority, ..pod(name) };
    let rules = AttemptRules { at_once: 1, ..AttemptRules::default() };
    let mut bench = Bench::by(vec![with("a", 9), with("b", -5), with("c", 0)], rules);
    for name in ["b", "c", "a"] {
        assert_eq!(bench.evicted_names().last(), Some(&name));
        bench.leave(name);
    }
}

#[test]
fn d4_two_hundred_pods_of_which_many_are_blocked_are_each_asked_once_before_any_is_asked_again() {
    let all: Vec<PodFacts> =
        (0..200).map(|number| PodFacts { priority: number % 3, ..pod(&format!("p{number:03}")) }).collect();
    let mut bench = Bench::started(all);
    let start = bench.now;
    while bench.evictions.len() < 200 {
        let uid = bench.flying.iter().next().cloned().unwrap();
        let reply = if uid.as_str().ends_with('7') { budget_reply() } else { Reply::Done };
        bench.hear(Event::Evicted { uid, reply });
    }
    let names: BTreeSet<&str> = bench.evicted_names().into_iter().collect();
    assert_eq!((names.len(), bench.now), (200, start));
    assert_eq!(bench.most_flying, 32);
}

#[test]
fn a_tier_of_two_thousand_pods_is_emptied_with_calls_for_each_and_no_more() {
    let all: Vec<PodFacts> = (0..2000).map(|number| pod(&format!("p{number:04}"))).collect();
    let mut bench = Bench::started(all.clone());
    for facts in all {
        let name = facts.pod.name;
        bench.hear(Event::Pod(PodFacts { terminating: true, ..pod(&name) }));
        bench.leave(&name);
    }
    assert_eq!((bench.evictions.len(), bench.progress().counts.gone), (2000, 2000));
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(DrainSuccess { evicted: 2000, .. }))));
}
