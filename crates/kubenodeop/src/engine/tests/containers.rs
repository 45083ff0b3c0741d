//! Pods past their grace period, what the container runtime says of them, and a kubelet that is silent.

use super::*;

/// The runtime answers the one question that is open: of these pods no container lives.
fn without(bench: &mut Bench, names: &[&str]) {
    let all = names.iter().map(|name| pod(name).pod.uid).collect();
    bench.hear(Event::Containers(Ok(all)));
}

/// Two pods are ending, and their 30 s with the slack of 30 s are over.
fn overdue() -> Bench {
    let ending = |name| PodFacts { terminating: true, ..pod(name) };
    let mut bench = Bench::started(vec![ending("a"), ending("b")]);
    bench.pass(secs(59));
    assert_eq!(bench.runtime_asked, [], "nobody is late yet");
    bench.pass(secs(1));
    assert_eq!(bench.runtime_asked.len(), 1);
    bench
}

#[test]
fn k12_a_pod_past_its_grace_that_only_finalizers_keep_is_named_with_them() {
    let held =
        PodFacts { terminating: true, finalizers: vec!["x.io/f".to_owned(), "y/g".to_owned()], ..pod("a") };
    let mut bench = Bench::started(vec![held, PodFacts { terminating: true, ..pod("b") }]);
    bench.pass(secs(60));
    let reasons: Vec<String> = bench.blockers().into_iter().map(|it| it.reason).collect();
    assert_eq!(
        reasons,
        [
            "pod shop/a was asked to end; its object stays for finalizer x.io/f, y/g",
            "pod shop/b was asked to end and is still there after its 30 s",
        ]
    );
    let step = bench.blockers().remove(0).next_step;
    assert!(step.contains("the controller of the finalizer that the reason names"), "{step}");
}

fn asked_again(bench: &mut Bench) {
    let before = bench.runtime_asked.len();
    bench.pass(secs(10));
    assert_eq!(bench.runtime_asked.len(), before + 1);
}

fn unknown() -> Event {
    Event::Containers(Err("no socket".to_owned()))
}

#[test]
fn d9_a_pod_past_its_grace_is_gone_once_two_answers_show_no_container_and_the_drain_ends() {
    let mut bench = overdue();
    without(&mut bench, &["a", "b"]);
    assert_eq!((bench.progress().counts.gone, bench.progress().counts.going), (0, 2), "one answer is none");
    asked_again(&mut bench);
    without(&mut bench, &["a", "b"]);
    let progress = bench.progress();
    assert_eq!((progress.counts.gone, progress.counts.going), (2, 0));
    let why =
        "no container of it runs, by the container runtime; its object is still there, past its grace period";
    let left = ["shop/a", "shop/b"].map(|it| format!("{it}: {why}"));
    assert_eq!(progress.left, left, "never silently");
    assert!(
        bench.said.iter().any(|it| it.contains("no container of the pod runs") && it.contains("shop/a,"))
    );
    // The objects are in each list of the proof, as long as their finalizers want.
    bench.prove();
    assert_eq!(bench.left(), left);
}

type Answer<'a> = Option<&'a [&'a str]>;

#[test]
fn d9_what_is_alive_unknown_or_seen_but_once_is_waited_for() {
    let none: &[&str] = &["a", "b"];
    // Answers, and which pods are gone after them: `None` for one that says nothing.
    let table: [(&[Answer<'_>], u32, &str); 6] = [
        (&[Some(&[]), Some(&[]), Some(&[])], 0, "both live"),
        (&[None, None, None], 0, "nothing is known"),
        (&[Some(none), None, Some(none)], 0, "what says nothing in between starts it again"),
        (&[Some(none), Some(&[]), Some(none)], 0, "a container that is started again lives"),
        (&[Some(&["a"]), Some(&["a"])], 1, "each pod by itself"),
        (&[Some(&["a"]), Some(&["b"]), Some(&["a"])], 0, "never the same one twice in a row"),
    ];
    for (answers, gone, why) in table {
        let mut bench = overdue();
        for answer in answers {
            match answer {
                Some(names) => without(&mut bench, names),
                None => bench.hear(unknown()),
            }
            bench.pass(secs(60));
            // Whatever comes of looks in between.
            bench.look();
        }
        assert_eq!(bench.progress().counts.gone, gone, "{why}");
        assert_eq!(bench.end, None, "{why}");
        bench.pass(secs(3600));
        assert_eq!(bench.end, None, "{why}: waited for as without a runtime");
    }
}

#[test]
fn d9_a_pod_in_its_grace_or_not_ending_at_all_is_never_gone_by_the_runtime() {
    let slow = PodFacts { terminating: true, grace: secs(600), ..pod("slow") };
    let late = PodFacts { terminating: true, ..pod("late") };
    let mut bench = Bench::started(vec![slow, late, pod("held")]);
    bench.reply("held", budget_reply());
    bench.pass(secs(60));
    for _ in 0..3 {
        without(&mut bench, &["slow", "late", "held"]);
        bench.pass(secs(10));
    }
    let counts = bench.progress().counts;
    assert_eq!((counts.gone, counts.going), (1, 1), "{counts:?}");
    assert_eq!(bench.progress().left.len(), 1);
}

#[test]
fn d9_an_object_whose_pod_is_gone_goes_at_last_and_lists_do_not_bring_it_back() {
    let mut bench = overdue();
    without(&mut bench, &["a"]);
    asked_again(&mut bench);
    without(&mut bench, &["a"]);
    let still = bench.there.clone();
    bench.hear(Event::Pods(still.clone()));
    bench.hear(Event::Pod(still[0].clone()));
    bench.pass(secs(60));
    bench.look();
    assert_eq!(bench.progress().counts.gone, 1);
    bench.there.retain(|it| it.pod.name != "a");
    bench.hear(Event::PodGone(pod("a").pod.uid));
    assert_eq!((bench.progress().counts.gone, bench.progress().left), (1, vec![]));
}

#[test]
fn d9_d11_a_pod_with_volumes_has_as_long_as_they_may_take_as_its_kubelet_may_still_unmount_them() {
    let begun = || {
        let mounts = PodFacts { terminating: true, claims: vec!["data".to_owned()], ..pod("db") };
        let mut bench = Bench::started(vec![mounts, PodFacts { tier: Tier::Storage, ..pod("s") }]);
        bench.pass(secs(60));
        without(&mut bench, &["db"]);
        asked_again(&mut bench);
        without(&mut bench, &["db"]);
        bench.hear(Event::Tick);
        assert_eq!((bench.progress().counts.gone, bench.evicted_names()), (0, vec![]));
        bench
    };
    let mut bench = begun();
    bench.there.retain(|it| it.pod.name != "db");
    bench.hear(Event::PodGone(pod("db").pod.uid));
    bench.hear(Event::Tick);
    assert_eq!(bench.evicted_names(), ["s"]);
    // One whose object stays is not waited for for ever: it is asked for again until then, and named.
    let mut bench = begun();
    for _ in 0..58 {
        asked_again(&mut bench);
        without(&mut bench, &["db"]);
    }
    assert_eq!((bench.progress().counts.gone, bench.evicted_names()), (0, vec![]));
    for _ in 0..2 {
        asked_again(&mut bench);
        without(&mut bench, &["db"]);
        bench.hear(Event::Tick);
    }
    assert_eq!((bench.progress().counts.gone, bench.evicted_names()), (1, vec!["s"]));
    assert_eq!(bench.progress().left.len(), 1);
}

#[test]
fn d9_what_counts_as_gone_by_the_runtime_is_asked_for_again_and_waited_for_once_it_lives() {
    let mut bench = overdue();
    without(&mut bench, &["a", "b"]);
    asked_again(&mut bench);
    without(&mut bench, &["a", "b"]);
    assert_eq!(bench.progress().counts.gone, 2);
    asked_again(&mut bench);
    bench.hear(unknown());
    assert_eq!(bench.progress().counts.gone, 2, "what says nothing changes nothing");
    bench.pass(secs(60));
    without(&mut bench, &["b"]);
    let counts = bench.progress().counts;
    assert_eq!((counts.gone, counts.going), (1, 1), "{counts:?}");
    assert!(bench.end.is_none());
}

#[test]
fn d9_the_next_tier_leaves_once_the_pods_of_this_one_are_gone_by_the_runtime() {
    let ending = PodFacts { terminating: true, ..pod("a") };
    let mut bench = Bench::started(vec![ending, PodFacts { tier: Tier::Storage, ..pod("s") }]);
    bench.pass(secs(60));
    without(&mut bench, &["a"]);
    asked_again(&mut bench);
    assert_eq!(bench.evicted_names(), Vec::<&str>::new());
    without(&mut bench, &["a"]);
    bench.hear(Event::Tick);
    assert_eq!(bench.evicted_names(), ["s"]);
}

#[test]
fn what_the_runtime_says_is_shown_and_one_that_is_not_there_is_asked_once_a_minute() {
    let mut bench = overdue();
    bench.hear(unknown());
    assert_eq!(bench.progress().runtime, "no socket");
    let before = bench.runtime_asked.len();
    bench.pass(secs(59));
    assert_eq!(bench.runtime_asked.len(), before);
    bench.pass(secs(1));
    assert_eq!(bench.runtime_asked.len(), before + 1);
    without(&mut bench, &["b"]);
    assert_eq!(bench.progress().runtime, "");
    let reasons: Vec<String> = bench.blockers().into_iter().map(|it| it.reason).collect();
    let late = |name: &str| format!("pod shop/{name} was asked to end and is still there after its 30 s");
    assert_eq!(reasons, [format!("{}; its containers still run", late("a")), late("b")]);
    // With the last of them gone there is nothing to be known.
    bench.pass(secs(10));
    bench.hear(unknown());
    assert_eq!(bench.progress().runtime, "no socket");
    for name in ["a", "b"] {
        bench.hear(Event::PodGone(pod(name).pod.uid));
    }
    assert_eq!(bench.progress().runtime, "");
}

#[test]
fn a_silent_kubelet_is_the_one_cause_and_no_estimate_is_in_the_past() {
    let mut bench = Bench::started(vec![pod("a"), pod("b")]);
    bench.reply("a", Reply::Done);
    bench.reply("b", Reply::Done);
    let estimate = bench.progress().estimate.unwrap();
    assert_eq!(estimate, bench.now + secs(31));
    bench.pass(secs(31));
    assert_eq!(bench.progress().estimate, None, "that time is over");
    assert!(bench.engine.next_wake().is_some_and(|at| at > bench.now));
    let silent = "Ready is Unknown NodeStatusUnknown: Kubelet stopped posting node status.";
    bench.hear(Event::Node(NodeFacts { ready: false, silent: silent.to_owned(), ..node(false) }));
    let since = bench.now;
    for _ in 0..2 {
        let blockers = bench.blockers();
        let codes: Vec<String> = blockers.iter().map(|it| it.code.clone()).collect();
        assert_eq!(codes, ["kubelet-silent"; 2]);
        let expected = format!("the kubelet of this node is silent ({silent}), so pod shop/a does not end");
        assert_eq!((&blockers[0].reason, blockers[0].since), (&expected, stamp(since)));
        assert!(blockers[0].next_step.contains("`systemctl status k3s`"));
        // Late as they are, no other cause is named.
        bench.pass(secs(60));
    }
    // It reports again.
    bench.hear(Event::Node(node(false)));
    assert_eq!(bench.blockers()[0].code, BlockCode::SlowToEnd);
    // Not Ready by its own word is not silent.
    bench.hear(Event::Node(NodeFacts { ready: false, ..node(false) }));
    assert_eq!(bench.blockers()[0].code, BlockCode::SlowToEnd);
}
