//! What is said about pods that are held, and the estimate.

use super::*;

fn not_ready() -> UnhealthyPod {
    UnhealthyPod {
        pod: "shop/web-b".to_owned(),
        node: "n2".to_owned(),
        since: "14:03 UTC".to_owned(),
        why: UnhealthyReason::NotReady,
    }
}

fn unplaced(sentence: &str) -> UnhealthyPod {
    UnhealthyPod {
        pod: "shop/web-c".to_owned(),
        node: String::new(),
        since: String::new(),
        why: UnhealthyReason::Unplaced(sentence.to_owned()),
    }
}

/// One pod behind a budget with these numbers and hindrances.
fn held(allowed: i32, healthy: i32, desired: i32, expected: i32, found: Vec<UnhealthyPod>) -> Blocker {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    bench.hear(all_budgets(&[budget("web", allowed, healthy, desired, expected)]));
    bench.hear(unhealthy(found));
    bench.blockers().remove(0)
}

#[test]
fn o2_a_held_pod_is_told_with_names_and_numbers() {
    let blocker = held(0, 2, 2, 3, vec![not_ready()]);
    assert_eq!(blocker.code, BlockCode::Budget);
    assert_eq!(
        blocker.reason,
        "pod shop/a: PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required; \
         pod shop/web-b on node n2 is not Ready since 14:03 UTC"
    );
    let named = |name: &str| UnhealthyPod { pod: format!("shop/{name}"), ..not_ready() };
    let many = held(0, 2, 2, 7, ["a", "b", "c", "d", "e"].map(named).into());
    assert!(many.reason.ends_with("since 14:03 UTC; and 2 more"), "{}", many.reason);
}

#[test]
fn d7_a_budget_that_cannot_open_by_itself_is_told_so() {
    let table = [
        ((0, 3, 3, 3), vec![], BlockCode::BudgetStuck),
        ((0, 3, 5, 3), vec![], BlockCode::BudgetStuck),
        ((0, 2, 3, 3), vec![], BlockCode::Budget),
        ((0, 2, 2, 3), vec![not_ready()], BlockCode::Budget),
        ((0, 3, 2, 3), vec![], BlockCode::Budget),
        ((0, 2, 2, 3), vec![unplaced("")], BlockCode::Budget),
        ((0, 2, 2, 3), vec![unplaced("0/3 nodes are available")], BlockCode::NoOtherNode),
        ((0, 3, 3, 3), vec![unplaced("0/3 nodes are available")], BlockCode::NoOtherNode),
    ];
    for ((allowed, healthy, desired, expected), found, code) in table {
        let blocker = held(allowed, healthy, desired, expected, found.clone());
        assert_eq!(blocker.code, code, "{allowed} {healthy} {desired} {expected} {found:?}");
        let step = code.next_step("shop", "a");
        assert!(step.contains("`kubectl -n shop ") && !step.contains("replica"), "{step}");
    }
    let reason = held(0, 2, 2, 3, vec![not_ready(), unplaced("0/3 nodes are available")]).reason;
    let expected = "pod shop/a: PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required; \
                    no other node can take pod shop/web-c (0/3 nodes are available)";
    assert_eq!(reason, expected);
}

#[test]
fn o2_a_refusal_is_told_once_its_numbers_are_known_and_then_stays_as_it_is() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    assert_eq!(
        (bench.blockers(), bench.progress().counts.waiting),
        (vec![], 1),
        "the numbers are being read"
    );
    bench.pass(Duration::from_millis(20));
    bench.hear(budgets(0));
    assert_eq!(bench.blockers(), [], "what hinders it is being read");
    bench.hear(unhealthy(vec![not_ready()]));
    let said = bench.blockers();
    assert!(said[0].reason.ends_with("since 14:03 UTC"));
    assert_eq!(bench.progress().counts.blocked, 1);
    for _ in 0..5 {
        bench.pass(secs(5));
        bench.reply("a", budget_reply());
        assert_eq!(bench.blockers(), said);
    }
}

#[test]
fn o2_a_refusal_whose_numbers_do_not_come_is_told_in_the_servers_words_after_half_a_second() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    bench.pass(Duration::from_millis(499));
    assert_eq!(bench.blockers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.blockers()[0].reason, "pod shop/a is held by a disruption budget: 429: needs 2");
}

#[test]
fn d7_what_hinders_a_budget_is_read_at_once_when_its_numbers_change_and_at_most_every_30_s() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    let start = bench.now;
    let at = |bench: &Bench| -> Vec<u64> {
        bench.inspections.iter().map(|(at, _)| at.since(start).as_secs()).collect()
    };
    bench.reply("a", budget_reply());
    bench.reply("b", budget_reply());
    bench.hear(budgets(0));
    assert_eq!(bench.inspections, [(start, "shop/web".to_owned())]);
    bench.hear(unhealthy(vec![]));
    bench.pass(secs(10));
    bench.hear(all_budgets(&[budget("web", 0, 1, 2, 3)]));
    assert_eq!(at(&bench), [0], "not within 30 s");
    bench.pass(secs(20));
    assert_eq!(at(&bench), [0, 30]);
    bench.hear(unhealthy(vec![]));
    // The scheduler may have spoken since, but less and less is asked while nothing changes.
    for _ in 0..200 {
        bench.pass(secs(15));
        bench.hear(unhealthy(vec![]));
    }
    assert_eq!(at(&bench)[..5], [0, 30, 60, 120, 240]);
    assert!(at(&bench).len() < 14, "{:?}", at(&bench));
    // With room there is nothing to look at.
    let before = bench.inspections.len();
    bench.hear(budgets(1));
    bench.pass(secs(600));
    assert_eq!(bench.inspections.len(), before);
}

#[test]
fn d7_a_budget_that_opens_and_closes_all_the_time_is_not_looked_at_each_time() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    bench.reply("b", budget_reply());
    for number in 0..20 {
        bench.hear(budgets(0));
        bench.hear(unhealthy(vec![not_ready()]));
        assert_eq!(
            bench.blockers()[0].reason.contains("is not Ready"),
            number == 0,
            "{number}: {:?}",
            bench.blockers()
        );
        bench.hear(budgets(1));
        bench.reply("b", budget_reply());
        bench.pass(secs(1));
    }
    assert_eq!(bench.inspections.len(), 1);
}

#[test]
fn a_look_at_what_hinders_that_fails_is_trouble_and_is_repeated() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.reply("a", budget_reply());
    bench.hear(budgets(0));
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    bench.hear(Event::Inspected { namespace, budget: name, found: Err(failed(transient())) });
    assert_eq!(bench.progress().trouble, "call: 503");
    assert_eq!(bench.blockers()[0].code, BlockCode::Budget, "it is told all the same");
    bench.pass(secs(30));
    assert_eq!(bench.inspections.len(), 2);
    bench.hear(unhealthy(vec![]));
    assert_eq!(bench.progress().trouble, "");
}

#[test]
fn o1_the_estimate_changes_with_the_counts_alone_and_there_is_none_while_a_pod_is_blocked() {
    let mut bench =
        Bench::by(vec![pod("a"), pod("b"), pod("c")], AttemptRules { at_once: 1, ..AttemptRules::default() });
    assert_eq!(bench.progress().estimate, None, "no pace yet");
    bench.pass(secs(10));
    bench.leave("a");
    // 10 s for each of two, and the proof.
    let expected = Some(bench.now + secs(21));
    assert_eq!(bench.progress().estimate, expected);
    bench.pass(secs(5));
    bench.hear(Event::Tick);
    assert_eq!(bench.progress().estimate, expected);
    bench.reply("b", budget_reply());
    bench.pass(secs(1));
    assert_eq!(bench.progress().estimate, None);
    bench.leave("c");
    bench.leave("b");
    assert_eq!(bench.progress().estimate, Some(bench.now + secs(1)), "only the proof");
}
