//! The proof, the cordon and the end of an attempt.

use super::*;

#[test]
fn d5_an_empty_node_is_proven_by_two_lists_a_second_apart() {
    let mut bench = Bench::started(vec![]);
    assert_eq!((bench.looks.len(), bench.end.clone()), (1, None));
    assert_eq!(bench.progress().phase, DrainPhase::Proving);
    bench.pass(Duration::from_millis(999));
    assert_eq!(bench.looks.len(), 1);
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.looks.len(), bench.end.clone()), (2, None));
    bench.look();
    assert_eq!(bench.end, Some(Ok(DrainSuccess { took: secs(1), evicted: 0, recordons: 0, left: vec![] })));
}

#[test]
fn d5_a_new_pod_between_the_two_lists_starts_the_proof_over() {
    for by_watch in [true, false] {
        let mut bench = Bench::started(vec![]);
        bench.pass(Duration::from_millis(500));
        bench.there.push(pod("new"));
        if by_watch {
            bench.hear(Event::Pod(pod("new")));
        }
        bench.pass(Duration::from_millis(500));
        bench.look();
        assert_eq!(bench.evicted_names(), ["new"], "by watch: {by_watch}");
        bench.leave("new");
        bench.look();
        assert_eq!(bench.end, None);
        bench.pass(secs(1));
        bench.look();
        assert!(matches!(bench.end, Some(Ok(_))), "by watch: {by_watch}");
    }
}

#[test]
fn d5_a_pod_that_came_and_went_between_the_two_lists_starts_the_proof_over() {
    let mut bench = Bench::started(vec![]);
    bench.pass(Duration::from_millis(500));
    bench.hear(Event::Pod(pod("brief")));
    bench.hear(Event::PodGone(pod("brief").pod.uid));
    bench.reply("brief", Reply::NotFound { text: "404".to_owned() });
    bench.pass(Duration::from_millis(500));
    bench.look();
    assert_eq!(bench.end, None, "the first list does not count any more");
    bench.pass(secs(1));
    bench.look();
    assert!(matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d5_a_list_that_was_asked_for_before_a_pod_came_does_not_prove_that_it_is_gone() {
    let mut bench = Bench::started(vec![]);
    bench.pass(secs(1));
    // The second list has left the server when the pod comes.
    bench.hear(Event::Pod(pod("late")));
    bench.look();
    assert_eq!(bench.end, None);
    assert_eq!(bench.evicted_names(), ["late"]);
    assert_eq!(bench.progress().counts.gone, 0);
}

#[test]
fn d18_an_uncordoned_node_is_cordoned_again_and_proven_anew() {
    let mut bench = Bench::started(vec![]);
    bench.pass(Duration::from_millis(500));
    bench.hear(Event::Node(node(true)));
    assert_eq!(bench.cordons, [bench.now]);
    bench.hear(Event::Node(node(true)));
    assert_eq!(bench.cordons.len(), 1, "one call at a time");
    bench.pass(secs(3));
    assert_eq!(bench.end, None);
    bench.hear(Event::Cordoned(Ok(true)));
    bench.look();
    assert_eq!(bench.asked.len(), 1, "a list that was asked for before the cordon proves nothing");
    bench.look();
    bench.pass(secs(1));
    bench.look();
    assert_eq!(
        bench.end,
        Some(Ok(DrainSuccess { took: Duration::from_millis(4500), evicted: 0, recordons: 1, left: vec![] }))
    );
}

#[test]
fn d18_somebody_who_undoes_every_cordon_does_not_make_us_spin() {
    let mut bench = Bench::started(vec![pod("a")]);
    let start = bench.now;
    for count in 1..=5 {
        bench.hear(Event::Node(node(true)));
        bench.pass(Duration::from_millis(1999));
        assert_eq!(bench.cordons.len(), if count == 1 { 1 } else { count - 1 });
        bench.pass(Duration::from_millis(1));
        bench.hear(Event::Cordoned(Ok(true)));
    }
    assert_eq!(bench.cordons.len(), 5);
    assert!(bench.now.since(start) >= secs(10));
    assert_eq!(bench.progress().recordons, 5);
}

#[test]
fn d18_a_cordon_that_fails_is_tried_again_within_five_seconds() {
    let mut bench = Bench::started(vec![pod("a")]);
    bench.hear(Event::Node(node(true)));
    for tries in 2..20 {
        bench.hear(Event::Cordoned(Err(failed(Reply::Conflict { text: "409".to_owned() }))));
        bench.pass(secs(4));
        assert_eq!(bench.cordons.len(), tries);
    }
    bench.hear(Event::Cordoned(Err(failed(permanent()))));
    assert_eq!(bench.reason(), "call: 403 Forbidden");
}

#[test]
fn a_look_that_fails_in_passing_is_repeated_and_the_proof_starts_over() {
    let mut bench = Bench::started(vec![]);
    bench.pass(secs(1));
    let turn = bench.asked.pop().unwrap();
    bench.hear(Event::Looked { turn, seen: Err(failed(transient())) });
    assert_eq!(bench.progress().trouble, "call: 503");
    bench.pass(secs(1));
    bench.look();
    assert_eq!((bench.looks.len(), bench.end.clone()), (3, None));
    assert_eq!(bench.progress().trouble, "");
    bench.pass(secs(1));
    bench.look();
    assert!(bench.end.is_some());
}

#[test]
fn the_attempt_ends_at_its_limit_and_names_what_is_left() {
    let mut bench = Bench::started(vec![pod("b"), pod("a"), pod("c")]);
    bench.leave("c");
    bench.reply("a", Reply::Done);
    bench.reply("b", budget_reply());
    let day = secs(24 * 3600);
    let start = Mono::from_start(secs(1000));
    loop {
        bench.pass(secs(15));
        if bench.end.is_some() {
            break;
        }
        bench.reply("b", budget_reply());
        bench.look();
        assert!(bench.now.since(start) <= day + secs(15));
    }
    assert_eq!(bench.reason(), "not done within 86400 s, left: shop/a, shop/b");
}

#[test]
fn d_k11_a_limit_past_the_end_of_time_is_no_limit() {
    let now = Mono::from_start(secs(1000));
    let rules = AttemptRules { attempt: Duration::MAX, ..AttemptRules::default() };
    let mut engine = Engine::new(DrainIdentity::default(), rules, &DrainMarks::default(), now, 1);
    let effects = engine.step(now, Event::Tick);
    assert!(matches!(effects[..], [Effect::Look { .. }]), "{effects:?}");
}

#[test]
fn d18_lists_wait_for_a_cordon_that_is_under_way() {
    let mut bench = Bench::started(vec![]);
    bench.open = true;
    bench.pass(secs(1));
    bench.look();
    bench.pass(secs(20));
    assert!(bench.said.iter().any(|it| it.contains("uncordoned in mid-drain")));
    assert_eq!((bench.cordons.len(), bench.asked.len()), (1, 0), "not listed in a circle");
    bench.open = false;
    bench.hear(Event::Cordoned(Ok(true)));
    assert_eq!(bench.asked.len(), 1);
}

#[test]
fn k10_a_node_object_that_is_deleted_is_told_at_once_proves_nothing_and_is_cordoned_when_it_is_back() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    bench.reply("a", budget_reply());
    let gone =
        || CallFailure { next_step: "restart k3s".into(), ..failed(Reply::NotFound { text: "gone".into() }) };
    bench.hear(Event::NodeGone(gone()));
    for _ in 0..3 {
        let shown = bench.progress();
        assert_eq!((shown.trouble.as_str(), shown.trouble_step.as_str()), ("call: gone", "restart k3s"));
        assert_eq!((shown.blockers.len(), bench.end.clone()), (0, None));
        // Other news does not hide it.
        bench.hear(Event::Pod(pod("a")));
        bench.pass(secs(20));
    }
    bench.hear(Event::Node(node(true)));
    assert_eq!((bench.progress().trouble.as_str(), bench.cordons.len()), ("", 1));

    let mut bench = Bench::started(vec![]);
    bench.look();
    bench.hear(Event::NodeGone(gone()));
    bench.pass(secs(1));
    let turn = bench.asked.pop().unwrap();
    bench.hear(Event::Looked { turn, seen: Err(gone()) });
    assert_eq!(bench.reason(), "call: gone");
}
