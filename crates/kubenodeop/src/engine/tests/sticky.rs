//! Workloads that come back to this node.

use super::*;

fn back(number: u32) -> PodFacts {
    PodFacts { workload: "ReplicaSet/web".to_owned(), ..pod(&format!("web-{number}")) }
}

fn rules(sticky: LimitAction) -> AttemptRules {
    AttemptRules { sticky, ..AttemptRules::default() }
}

/// A pod is evicted and its like comes back, three times.
fn stuck(sticky: LimitAction) -> Bench {
    let mut bench = Bench::by(vec![back(0)], rules(sticky));
    for number in 0..3 {
        assert_eq!(bench.evicted_names().last(), Some(&format!("web-{number}").as_str()));
        bench.leave(&format!("web-{number}"));
        bench.pass(secs(10));
        bench.bind(back(number + 1));
    }
    bench
}

#[test]
fn d10_pods_of_a_sticky_workload_are_left_and_named_and_the_drain_goes_on_without_them() {
    let mut bench = stuck(LimitAction::GetPast);
    let disk = PodFacts { tier: Tier::Storage, ..pod("disk") };
    bench.bind(disk);
    assert_eq!(bench.evicted_names(), ["web-0", "web-1", "web-2", "disk"], "the third return is not evicted");
    let why = "it stays: its ReplicaSet/web has come back to this node 3 times".to_owned();
    let expected = vec![format!("shop/web-3: {why}")];
    assert_eq!(bench.progress().left, expected);
    assert!(bench.said.iter().any(|it| it.contains("pod stays: shop/web-3")));
    bench.leave("disk");
    bench.prove();
    let Some(Ok(DrainSuccess { left, evicted, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!((left, *evicted), (&expected, 4));
}

#[test]
fn d10_a_sticky_pod_that_is_made_anew_in_the_proof_does_not_start_it_over() {
    let mut bench = stuck(LimitAction::GetPast);
    // The first answer is to a question from before the pod came.
    bench.look();
    bench.look();
    assert_eq!(bench.progress().phase, DrainPhase::Proving);
    bench.pass(secs(1));
    // The second list is on its way.
    bench.there.clear();
    bench.hear(Event::PodGone(back(3).pod.uid));
    bench.bind(back(4));
    bench.look();
    assert_eq!(what(bench.left()), ["shop/web-4"]);
}

#[test]
fn d10_siblings_that_wait_are_left_too_and_those_that_end_are_waited_for() {
    let mut bench = Bench::by(vec![back(0), back(10), back(11)], rules(LimitAction::GetPast));
    bench.reply("web-10", budget_reply());
    bench.reply("web-11", Reply::Done);
    bench.leave("web-0");
    for number in 1..=3 {
        bench.bind(back(number));
        bench.reply(&format!("web-{number}"), budget_reply());
    }
    let left = what(&bench.progress().left);
    assert_eq!(left, ["shop/web-10", "shop/web-1", "shop/web-2", "shop/web-3"]);
    let before = bench.evictions.len();
    bench.pass(secs(40));
    assert_eq!((bench.evictions.len(), bench.end.clone()), (before, None));
    bench.leave("web-11");
    bench.there.retain(|it| it.pod.name != "web-11");
    bench.hear(Event::PodGone(back(11).pod.uid));
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))), "{:?}", bench.end);
}

#[test]
fn d10_a_sticky_workload_is_waited_for_without_evictions_where_the_rule_says_so() {
    let mut bench = stuck(LimitAction::Wait);
    bench.pass(secs(600));
    assert_eq!((bench.evictions.len(), bench.end.clone()), (3, None));
    let blocker = bench.blockers().remove(0);
    assert_eq!((blocker.code.as_str(), bench.progress().counts.blocked), ("sticky", 1));
    assert_eq!(
        blocker.reason,
        "pod shop/web-3 is not asked any more: its ReplicaSet/web has come back here 3 times"
    );
    // A person has deleted it for good.
    bench.there.clear();
    bench.hear(Event::PodGone(back(3).pod.uid));
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d10_a_sticky_workload_fails_the_attempt_where_the_rule_says_so() {
    let bench = stuck(LimitAction::GiveUp);
    assert_eq!(
        bench.reason(),
        "pod shop/web-3 cannot leave for good: its ReplicaSet/web has come back to this node 3 times"
    );
    assert_eq!(bench.failure().marks.returns.get("shop/ReplicaSet/web"), Some(&3));
}

#[test]
fn d10_returns_of_an_earlier_attempt_count() {
    let marks =
        DrainMarks { returns: [("shop/ReplicaSet/web".to_owned(), 2)].into(), ..DrainMarks::default() };
    let mut bench = Bench::on_from(vec![back(0)], rules(LimitAction::GetPast), &marks);
    assert_eq!(bench.progress().marks.returns, marks.returns);
    bench.leave("web-0");
    bench.bind(back(1));
    assert_eq!((bench.evictions.len(), bench.progress().left.len()), (1, 1));
}

#[test]
fn pods_that_come_while_the_node_is_open_are_no_returns() {
    let mut bench = Bench::by(vec![back(0)], rules(LimitAction::GetPast));
    bench.leave("web-0");
    bench.hear(Event::Node(node(true)));
    for number in 1..=3 {
        bench.bind(back(number));
    }
    bench.hear(Event::Cordoned(Ok(true)));
    // Placed before the cordon, told after it.
    bench.pass(secs(4));
    bench.bind(back(4));
    assert_eq!(bench.evictions.len(), 5, "all are evicted");
    assert_eq!(bench.progress().marks.returns.len(), 0);
    bench.pass(secs(1));
    bench.leave("web-4");
    bench.bind(back(5));
    assert_eq!(bench.progress().marks.returns.values().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_pod_that_nobody_sent_away_is_no_return() {
    let mut bench = Bench::by(vec![back(0)], rules(LimitAction::GiveUp));
    bench.reply("web-0", budget_reply());
    for number in 1..=9 {
        bench.bind(back(number));
    }
    assert_eq!((bench.evictions.len(), bench.end.clone()), (10, None));
}
