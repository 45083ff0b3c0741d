//! A pod with more than one budget.

use super::*;

fn two(one: i32, other: i32) -> Event {
    all_budgets(&[budget("one", one, 2 + one, 2, 3), budget("other", other, 2 + other, 2, 3)])
}

/// Pod a is asked to leave, and refused as it has more than one budget.
fn refused() -> Bench {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", many_budgets());
    bench
}

fn removed(bench: &Bench) -> Vec<&str> {
    bench.removals.iter().map(|(_, pod)| pod.name.as_str()).collect()
}

#[test]
fn d6_a_pod_with_two_budgets_waits_with_all_names_and_leaves_when_all_have_room() {
    let mut bench = refused();
    assert_eq!(bench.follows, ["shop"]);
    for (one, other) in [(0, 0), (1, 0), (0, 1)] {
        bench.hear(two(one, other));
        bench.pass(secs(100));
        assert_eq!((bench.evictions.len(), bench.removals.len()), (1, 0), "{one} {other}");
    }
    assert_eq!(
        bench.blockers()[0].reason,
        "pod shop/a waits until all its budgets allow a disruption: PodDisruptionBudget shop/one allows no disruption: 2 of 3 pods healthy, 2 required; \
         PodDisruptionBudget shop/other allows 1 disruption: 3 of 3 pods healthy, 2 required"
    );
    assert_eq!(bench.blockers()[0].code, BlockCode::ManyBudgets);
    bench.hear(two(1, 1));
    assert_eq!((bench.evictions.len(), removed(&bench)), (1, vec!["a"]));
    bench.leave("a");
    assert_eq!(bench.progress().evicted, 1);
}

#[test]
fn d6_removals_of_a_namespace_go_one_after_another() {
    let mut bench = Bench::started(vec![pod("a"), pod("b"), pod("c")]);
    for name in ["a", "b", "c"] {
        bench.reply(name, many_budgets());
    }
    bench.hear(two(3, 3));
    assert_eq!(removed(&bench), ["a"]);
    bench.hear(two(2, 2));
    bench.pass(secs(30));
    assert_eq!(removed(&bench), ["a"], "one at a time");
    bench.reply("a", Reply::Done);
    assert_eq!(removed(&bench), ["a", "b"]);
    bench.hear(two(1, 0));
    bench.reply("b", Reply::Done);
    bench.pass(secs(60));
    assert_eq!(removed(&bench), ["a", "b"], "one of them has no room");
    bench.hear(two(1, 1));
    assert_eq!(removed(&bench), ["a", "b", "c"]);
}

#[test]
fn d6_a_pod_whose_two_budgets_are_known_is_not_evicted_in_vain() {
    for (one, other) in [(0, 0), (1, 0), (0, 1)] {
        let mut bench = refused();
        bench.hear(two(one, other));
        bench.bind(pod("b"));
        bench.pass(secs(1));
        assert_eq!((bench.evicted_names(), removed(&bench)), (vec!["a"], vec![]), "{one} {other}");
        let held: Vec<(String, String)> = bench.blockers().into_iter().map(|it| (it.pod, it.code)).collect();
        let many = BlockCode::ManyBudgets.text().to_owned();
        assert_eq!(held, [("shop/a".to_owned(), many.clone()), ("shop/b".to_owned(), many)]);
        assert_eq!(bench.progress().counts.blocked, 2);
    }
}

#[test]
fn d6_k3_a_pod_that_has_finished_or_not_run_yet_is_evicted_whatever_its_budgets_say() {
    let finished = PodFacts { finished: true, ..pod("b") };
    for other in [finished, PodFacts { pending: true, ready: false, ..pod("b") }] {
        let mut bench = refused();
        bench.hear(two(0, 0));
        bench.bind(other);
        assert_eq!(bench.evicted_names(), ["a", "b"]);
    }
}

#[test]
fn d6_a_removal_that_is_refused_is_asked_again_and_one_that_lost_a_race_too() {
    for reply in [Reply::Conflict { text: "409".to_owned() }, budget_reply(), transient()] {
        let mut bench = refused();
        bench.hear(two(1, 1));
        bench.reply("a", reply.clone());
        bench.pass(secs(15));
        assert_eq!(removed(&bench), ["a", "a"], "{reply:?}");
        assert_eq!(bench.evictions.len(), 1);
    }
}

#[test]
fn a_pod_that_has_one_budget_left_is_evicted_again() {
    let mut bench = refused();
    bench.hear(two(0, 1));
    bench.hear(all_budgets(&[budget("other", 1, 3, 2, 3)]));
    assert_eq!((bench.evictions.len(), bench.removals.len()), (2, 0));
}

#[test]
fn d16_of_the_pods_behind_a_budget_as_many_are_asked_as_it_has_room_for() {
    let names = ["a", "b", "c", "d"];
    let mut bench = Bench::started(names.iter().map(|name| pod(name)).collect());
    for name in names {
        bench.reply(name, budget_reply());
    }
    bench.hear(budgets(0));
    bench.hear(budgets(2));
    assert_eq!(bench.evictions.len(), 4 + 2);
}

#[test]
fn d6_a_budget_whose_numbers_are_behind_is_told_so_and_looked_at_often() {
    let mut bench = refused();
    bench.hear(all_budgets(&[budget("api", 1, 3, 2, 3), budget("web", 0, 3, 3, 3)]));
    bench.pass(secs(1));
    assert_eq!(bench.blockers()[0].code, BlockCode::BudgetStuck);
    let found = Ok(Inspected { hindrances: vec![], ready: Some(4) });
    bench.hear(Event::Inspected { namespace: "shop".to_owned(), budget: "web".to_owned(), found });
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::ManyBudgets, "numbers that are not so judge nobody");
    assert!(blocker.reason.contains("4 of its pods are Ready, not 3"), "{}", blocker.reason);
    let before = bench.inspections.len();
    bench.pass(secs(2));
    assert_eq!(bench.inspections.len(), before + 1);
    bench.hear(all_budgets(&[budget("api", 1, 3, 2, 3), budget("web", 0, 4, 4, 4)]));
    let reason = bench.blockers().remove(0).reason;
    assert!(!reason.contains("behind"), "{reason}");
}

#[test]
fn k3_a_sick_pod_that_all_its_budgets_let_pass_leaves_and_one_that_turns_sick_too() {
    let always = |name: &str| BudgetFacts { lenient: true, ..numbered(name, [0, 0, 1, 1]) };
    let both =
        || Event::Budgets { namespace: "shop".to_owned(), budgets: vec![always("one"), always("other")] };
    let sick = || PodFacts { ready: false, ..pod("a") };
    let mut bench = Bench::started(vec![sick()]);
    bench.reply("a", many_budgets());
    bench.hear(both());
    assert_eq!(removed(&bench), ["a"]);

    let mut bench = refused();
    bench.hear(both());
    bench.pass(secs(60));
    assert_eq!((removed(&bench), bench.blockers()[0].code.as_str()), (vec![], "many-budgets"));
    bench.hear(Event::Pod(sick()));
    assert_eq!(removed(&bench), ["a"]);
}
