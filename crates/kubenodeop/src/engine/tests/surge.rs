//! A second copy elsewhere before the only Ready pods of a Deployment are evicted (goals D20).

use super::*;
use crate::plan::surge::SurgeRule;

const LIMIT: u64 = 120;

fn rules() -> Rules {
    Rules { surge: SurgeRule::All, surge_limit: secs(LIMIT), ..Rules::default() }
}

/// A pod of a replica set.
fn copy(name: &str) -> PodFacts {
    PodFacts { workload: "ReplicaSet/web-5f7d".into(), claims: vec!["data".into()], ..pod(name) }
}

fn answer(bench: &mut Bench, name: &str, answer: SurgeAnswer) {
    bench.hear(Event::Surged { uid: pod(name).pod.uid, answer: Ok(answer) });
}

pub(super) fn under_way() -> SurgeAnswer {
    SurgeAnswer::UnderWay("shop/web".into())
}

/// Passes time; every look finds the copy under way, until one gives it up.
fn wait_for(bench: &mut Bench, time: Duration) {
    let until = bench.now + time;
    while bench.now < until && bench.end.is_none() {
        let asked = bench.surges.last().is_some_and(|it| it.1.over.is_none()) && bench.deletions.is_empty();
        if asked && bench.flying.contains(&pod("a").pod.uid) {
            answer(bench, "a", under_way());
        }
        bench.pass(Duration::from_millis(500).min(until.since(bench.now)));
    }
}

#[test]
fn d20_a_pod_is_not_evicted_while_its_second_copy_is_made_and_leaves_without_an_eviction() {
    let other = PodFacts { workload: "StatefulSet/db".into(), ..pod("b") };
    let mut bench = Bench::by(vec![copy("a"), other], rules());
    assert_eq!((bench.evicted_names(), bench.surges.len()), (vec!["b"], 1), "no replica set, no copy");
    let order = bench.surges[0].1.clone();
    assert_eq!(
        (order.replica_set.as_str(), order.claims, order.over),
        ("web-5f7d", vec!["data".to_owned()], None)
    );
    answer(&mut bench, "a", under_way());
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::Surge);
    let words = "Deployment shop/web makes a second copy on another node first, for 120 s at most";
    assert!(blocker.reason.ends_with(words), "{}", blocker.reason);
    bench.leave("b");
    wait_for(&mut bench, secs(LIMIT - 1));
    assert!(bench.surges.len() > 4, "it is looked at again and again: {}", bench.surges.len());
    assert_eq!(bench.evicted_names(), ["b"]);
    // Its Deployment ends it.
    bench.hear(Event::Pod(PodFacts { terminating: true, ..copy("a") }));
    if bench.flying.contains(&pod("a").pod.uid) {
        answer(&mut bench, "a", under_way());
    }
    assert_eq!(bench.progress().counts.going, 1);
    bench.there.clear();
    bench.hear(Event::PodGone(pod("a").pod.uid));
    bench.hear(Event::Volumes(vec![]));
    bench.prove();
    let Some(Outcome::Drained { left, evicted, .. }) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!((left.as_slice(), *evicted), ([].as_slice(), 1));
}

#[test]
fn d20_without_a_second_copy_the_pod_is_evicted_like_others_and_that_is_named() {
    let forbidden = Failure {
        reply: Reply::Permanent { text: "403".into(), by: RefusedBy::Role },
        text: "read Deployment shop/web: 403".into(),
        next_step: String::new(),
    };
    let cases = [
        (Ok(SurgeAnswer::NotNeeded), ""),
        (
            Ok(SurgeAnswer::Without("it is paused".into())),
            "evicted without a second copy elsewhere: it is paused",
        ),
        (
            Err(forbidden),
            "evicted without a second copy elsewhere: read Deployment shop/web: 403; the role pillar-rs-surge",
        ),
    ];
    for (answer, why) in cases {
        let mut bench = Bench::by(vec![copy("a")], rules());
        assert_eq!(bench.evicted_names(), [""; 0]);
        bench.hear(Event::Surged { uid: pod("a").pod.uid, answer });
        assert_eq!(bench.evicted_names(), ["a"]);
        let left = bench.progress().left;
        assert_eq!(left.len(), usize::from(!why.is_empty()), "{left:?}");
        assert!(left.iter().all(|it| it.why.starts_with(why)), "{left:?}");
        bench.reply("a", budget_reply());
        bench.pass(secs(600));
        assert_eq!(bench.surges.len(), 1, "it is settled");
    }
}

#[test]
fn d20_after_its_limit_a_second_copy_is_given_up_and_the_pod_evicted() {
    let mut bench = Bench::by(vec![copy("a")], rules());
    wait_for(&mut bench, secs(LIMIT));
    assert_eq!(bench.surges.last().unwrap().1.over, Some(secs(LIMIT)));
    assert_eq!(bench.evicted_names(), [""; 0], "not before it is given up");
    answer(&mut bench, "a", SurgeAnswer::Without("no room".into()));
    assert_eq!(bench.evicted_names(), ["a"]);
    assert!(bench.progress().left[0].why.ends_with("no room"));
}

#[test]
fn d20_trouble_with_the_api_is_got_over_until_the_limit() {
    let mut bench = Bench::by(vec![copy("a")], rules());
    let failed = || Failure { reply: transient(), text: "no answer".into(), next_step: String::new() };
    let until = bench.now + secs(LIMIT);
    while bench.now < until {
        if bench.flying.contains(&pod("a").pod.uid) {
            bench.hear(Event::Surged { uid: pod("a").pod.uid, answer: Err(failed()) });
        }
        assert_eq!(bench.evicted_names(), [""; 0]);
        bench.pass(secs(1));
    }
    bench.pass(secs(20));
    if bench.flying.contains(&pod("a").pod.uid) && bench.evicted_names().is_empty() {
        bench.hear(Event::Surged { uid: pod("a").pod.uid, answer: Err(failed()) });
    }
    assert_eq!(bench.evicted_names(), ["a"]);
}

#[test]
fn d20_the_time_used_is_kept_over_a_restart_and_a_limit_that_deletes_does_not_wait() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    // The bench's clock starts at 1000 s.
    let marks = Marks { pods: [(pod("a").pod.uid, at(1000 - LIMIT))].into(), ..Marks::default() };
    let bench = Bench::on_from(vec![copy("a")], rules(), &marks);
    assert_eq!(bench.surges[0].1.over, Some(secs(LIMIT)), "nothing is asked for anew");

    let pod_limit = Limit { after: Some(secs(60)), then: PodAction::Delete };
    let mut bench = Bench::by(vec![copy("a")], Rules { pod: pod_limit, ..rules() });
    wait_for(&mut bench, secs(59));
    assert_eq!(bench.deletions.len(), 0);
    wait_for(&mut bench, secs(20));
    assert_eq!((bench.deletions.len(), bench.evicted_names()), (1, vec![]));
}

#[test]
fn d20_without_the_rule_nothing_is_asked() {
    let bench = Bench::by(vec![copy("a")], Rules::default());
    assert_eq!((bench.evicted_names(), bench.surges.len()), (vec!["a"], 0));
}
