//! A second copy elsewhere before the only Ready pods of a Deployment are evicted.

use super::*;
use crate::calls::surge::SurgeRule;

const LIMIT: u64 = 120;

fn rules() -> AttemptRules {
    AttemptRules { surge: SurgeRule::All, surge_limit: secs(LIMIT), ..AttemptRules::default() }
}

fn copy(name: &str) -> PodFacts {
    let mut facts =
        PodFacts { workload: "ReplicaSet/web-5f7d".into(), claims: vec!["data".into()], ..pod(name) };
    facts.labels.insert("pod-template-hash".into(), "5f7d".into());
    facts
}

fn answer(bench: &mut Bench, name: &str, answer: SurgeAnswer) {
    bench.hear(Event::Surged { uid: pod(name).pod.uid, answer: Ok(answer) });
}

pub(super) fn under_way() -> SurgeAnswer {
    SurgeAnswer::UnderWay("shop/web".into())
}

/// Passes time; every look finds the copy under way, until one gives it up.
fn wait_for(bench: &mut Bench, time: Duration) {
    bench.answer_for(time, |bench| {
        let asked = bench.surges.last().is_some_and(|it| it.1.is_none()) && bench.deletions.is_empty();
        if asked && bench.is_asked("a") {
            answer(bench, "a", under_way());
        }
    });
}

#[test]
fn d20_a_pod_is_not_evicted_while_its_second_copy_is_made_and_leaves_without_an_eviction() {
    let other = PodFacts { workload: "StatefulSet/db".into(), ..pod("b") };
    let mut bench = Bench::by(vec![copy("a"), other], rules());
    assert_eq!((bench.evicted_names(), bench.surges.len()), (vec!["b"], 1), "no replica set, no copy");
    assert_eq!(bench.surges[0], (copy("a"), None));
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
    if bench.is_asked("a") {
        answer(&mut bench, "a", under_way());
    }
    assert_eq!(bench.progress().counts.going, 1);
    bench.there.clear();
    bench.hear(Event::PodGone(pod("a").pod.uid));
    bench.hear(Event::Volumes(vec![]));
    bench.prove();
    let Some(Ok(DrainSuccess { left, evicted, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!((left.as_slice(), *evicted), ([].as_slice(), 1));
}

fn failure(reply: Reply) -> CallFailure {
    CallFailure { reply, text: "read Deployment shop/web: no".into(), next_step: "ask its owner".into() }
}

fn refused(by: RefusedBy) -> CallFailure {
    failure(Reply::Permanent { text: "no".into(), by })
}

fn denied() -> CallFailure {
    failure(Reply::Denied { text: "no".into(), by: DeniedBy::Webhook, retry_after: None })
}

#[test]
fn d20_without_a_second_copy_the_pod_is_evicted_like_others_and_named_once_it_has_left() {
    let cases = [
        (Ok(SurgeAnswer::NotNeeded), ""),
        (Ok(SurgeAnswer::Without("it is paused".into())), "it is paused"),
        (Err(refused(RefusedBy::Role)), "read Deployment shop/web: no; the role pillar-rs-surge allows it"),
        (Err(denied()), "read Deployment shop/web: no; ask its owner"),
    ];
    for (answer, why) in cases {
        let mut bench = Bench::by(vec![copy("a")], rules());
        assert_eq!(bench.evicted_names(), [""; 0]);
        bench.hear(Event::Surged { uid: pod("a").pod.uid, answer });
        assert_eq!(bench.evicted_names(), ["a"]);
        assert_eq!(bench.progress().left, [""; 0], "it is still here");
        bench.leave("a");
        let left = bench.progress().left;
        assert_eq!(left.len(), usize::from(!why.is_empty()), "{left:?}");
        let why = format!("it left without a second copy elsewhere: {why}");
        assert!(left.iter().all(|it| it.contains(&why)), "{left:?}");
    }
}

#[test]
fn d20_trouble_with_the_api_is_named_and_got_over_by_calls_that_grow_rarer() {
    let mut bench = Bench::by(vec![copy("a")], rules());
    let until = bench.now + secs(LIMIT - 1);
    while bench.now < until {
        if bench.is_asked("a") {
            bench.hear(Event::Surged { uid: pod("a").pod.uid, answer: Err(failure(transient())) });
            assert_eq!(bench.blockers()[0].code, BlockCode::ApiTrouble);
        }
        assert_eq!(bench.evicted_names(), [""; 0]);
        bench.pass(secs(1));
    }
    assert!((4..20).contains(&bench.surges.len()), "{}", bench.surges.len());
}

#[test]
fn d20_giving_up_is_tried_again_before_the_eviction_and_what_stays_is_named() {
    let mut bench = Bench::by(vec![copy("a")], rules());
    wait_for(&mut bench, secs(LIMIT));
    let before = bench.surges.len();
    for _ in 0..600 {
        if bench.evicted_names().is_empty() && bench.is_asked("a") {
            bench.hear(Event::Surged { uid: pod("a").pod.uid, answer: Err(failure(transient())) });
        }
        bench.pass(secs(1));
    }
    assert_eq!((bench.surges.len() - before, bench.evicted_names()), (4, vec!["a"]), "five in all");
    bench.leave("a");
    let left = bench.progress().left;
    assert!(left[0].ends_with("is withdrawn once the node is schedulable again"), "{left:?}");
}

#[test]
fn d20_the_time_used_is_kept_over_a_restart_and_a_limit_that_deletes_does_not_wait() {
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    // The bench's clock starts at 1000 s.
    let marks = DrainMarks {
        pods_ms: [("uid-a".to_owned(), at(1000 - LIMIT).as_ms())].into(),
        ..DrainMarks::default()
    };
    let bench = Bench::on_from(vec![copy("a")], rules(), &marks);
    assert_eq!(bench.surges[0].1, Some(secs(LIMIT)), "nothing is asked for anew");

    let pod_limit = Limit { after: Some(secs(60)), then: LimitAction::GetPast };
    let mut bench = Bench::by(vec![copy("a")], AttemptRules { pod: pod_limit, ..rules() });
    wait_for(&mut bench, secs(59));
    assert_eq!(bench.deletions.len(), 0);
    wait_for(&mut bench, secs(20));
    assert_eq!((bench.deletions.len(), bench.evicted_names()), (1, vec![]));
}
