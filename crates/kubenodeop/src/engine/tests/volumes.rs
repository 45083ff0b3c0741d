//! Volumes of pods that have left.

use super::*;

fn with(name: &str, claims: &[&str]) -> PodFacts {
    PodFacts { claims: claims.iter().map(|it| (*it).to_owned()).collect(), ..pod(name) }
}

fn claim(name: &str) -> ClaimName {
    ("shop".to_owned(), name.to_owned())
}

fn attached(claims: &[&str]) -> Event {
    let facts = |name: &&str| AttachmentFacts {
        name: format!("va-{name}"),
        volume: format!("pv-{name}"),
        claim: claim(name),
        kept_by: vec![],
    };
    Event::Volumes(claims.iter().map(facts).collect())
}

#[test]
fn d13_the_proof_begins_when_the_volumes_of_evicted_pods_are_detached() {
    let mut bench = Bench::started(vec![with("a", &["data", "log"]), with("b", &[])]);
    bench.leave("a");
    assert_eq!(bench.volumes.len(), 0, "a pod is still there");
    bench.leave("b");
    assert_eq!(bench.volumes, [BTreeSet::from([claim("data"), claim("log")])]);
    bench.pass(secs(60));
    assert_eq!(bench.looks.len(), 1, "what was not heard of is not detached");
    assert_eq!(
        (bench.progress().phase, bench.progress().volumes),
        (DrainPhase::Detaching, vec!["shop/data".to_owned(), "shop/log".to_owned()])
    );
    bench.hear(attached(&["log", "data"]));
    assert_eq!(bench.progress().volumes, ["shop/data (pv pv-data)", "shop/log (pv pv-log)"]);
    assert_eq!(bench.progress().estimate, None);
    bench.hear(attached(&["data"]));
    bench.pass(secs(60));
    assert_eq!((bench.progress().volumes.len(), bench.looks.len()), (1, 1));
    bench.hear(attached(&[]));
    bench.prove();
    assert!(matches!(&bench.end, Some(Ok(DrainSuccess { left, .. })) if left.is_empty()), "{:?}", bench.end);
    assert_eq!(bench.volumes.len(), 1, "asked for once");
}

#[test]
fn d13_without_claims_nothing_is_followed() {
    let mut bench = Bench::started(vec![with("a", &[])]);
    bench.leave("a");
    bench.prove();
    assert!(bench.volumes.is_empty() && matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d13_volumes_that_a_pod_uses_which_stays_are_not_waited_for() {
    let agent = PodFacts { owner: PodOwner::DaemonSet, ..with("agent", &["shared"]) };
    let mut bench = Bench::started(vec![with("a", &["shared", "own"]), agent]);
    bench.leave("a");
    assert_eq!(bench.volumes, [BTreeSet::from([claim("own")])]);
    bench.hear(attached(&["shared"]));
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))), "{:?}", bench.end);
}

#[test]
fn d13_a_stream_that_fails_is_trouble_and_no_success() {
    let mut bench = Bench::started(vec![with("a", &["data"])]);
    bench.leave("a");
    for _ in 0..100 {
        bench.hear(Event::Trouble(failed(permanent())));
        bench.pass(secs(5));
    }
    assert_eq!((bench.looks.len(), bench.end.clone()), (1, None));
    assert_eq!(bench.progress().trouble, "call: 403 Forbidden");
    assert_eq!(bench.progress().volumes, ["shop/data"]);
}

#[test]
fn d13_new_pods_go_back_to_draining_and_their_volumes_are_waited_for_as_well() {
    let mut bench = Bench::started(vec![with("a", &["data"])]);
    bench.leave("a");
    bench.hear(attached(&["data"]));
    bench.bind(with("b", &["more"]));
    assert_eq!((bench.progress().phase, bench.evictions.len()), (DrainPhase::Draining, 2));
    bench.hear(attached(&[]));
    bench.leave("b");
    assert_eq!(bench.volumes.last(), Some(&BTreeSet::from([claim("data"), claim("more")])));
    assert_eq!(bench.progress().phase, DrainPhase::Detaching, "the answer to the wider question is awaited");
    bench.hear(attached(&[]));
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d13_a_volume_that_is_attached_in_the_proof_starts_it_over() {
    let mut bench = Bench::started(vec![with("a", &["data"])]);
    bench.leave("a");
    bench.hear(attached(&[]));
    bench.look();
    assert_eq!(bench.progress().phase, DrainPhase::Proving);
    bench.hear(attached(&["data"]));
    assert_eq!(bench.progress().phase, DrainPhase::Detaching);
    bench.pass(secs(1));
    bench.look();
    assert_eq!(bench.end, None);
}

#[test]
fn d15_volumes_over_their_limit_are_let_go_and_named() {
    let mut bench = Bench::started(vec![with("a", &["data", "log"])]);
    bench.leave("a");
    let since = bench.now;
    bench.hear(attached(&["data"]));
    bench.pass(secs(599));
    assert_eq!((bench.progress().marks.volumes_ms, bench.progress().left), (since.as_ms(), vec![]));
    bench.pass(secs(1));
    let why = "still attached after 600 s, the limit for volumes".to_owned();
    let expected = vec![format!("shop/data (pv pv-data): {why}")];
    bench.prove();
    let Some(Ok(DrainSuccess { left, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    assert_eq!(left, &expected);
}

#[test]
fn d15_volumes_never_heard_of_are_let_go_by_their_claims() {
    let mut bench = Bench::started(vec![with("a", &["data"])]);
    bench.leave("a");
    bench.pass(secs(600));
    bench.prove();
    let Some(Ok(DrainSuccess { left, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    let why = "not known within 600 s, the limit for volumes, to be detached".to_owned();
    assert_eq!(left, &[format!("shop/data: {why}")]);
}

#[test]
fn d15_the_limit_for_volumes_goes_on_after_a_restart() {
    let marks = DrainMarks { volumes_ms: Mono::from_start(secs(700)).as_ms(), ..DrainMarks::default() };
    let mut bench = Bench::on_from(vec![with("a", &["data"])], AttemptRules::default(), &marks);
    bench.leave("a");
    bench.hear(attached(&["data"]));
    bench.pass(secs(299));
    assert_eq!(bench.end, None);
    assert_eq!(bench.progress().left, [""; 0]);
    bench.pass(secs(1));
    bench.prove();
    let Some(Ok(DrainSuccess { left, .. })) = &bench.end else { panic!("{:?}", bench.end) };
    assert!(left[0].contains(": still attached"), "{left:?}");
}

#[test]
fn d13_volumes_are_owed_by_the_next_attempt_and_after_a_restart_whoever_finds_the_pods_gone() {
    let rules = AttemptRules { attempt: secs(60), ..AttemptRules::default() };
    let mut bench = Bench::by(vec![with("a", &["data"])], rules);
    let known = bench.progress().marks;
    assert_eq!(known.claims, BTreeSet::from(["shop/data".to_owned()]), "also before the pod has gone");
    bench.leave("a");
    bench.hear(attached(&["data"]));
    bench.pass(secs(60));
    let Some(Err(failure)) = bench.end else { panic!("{:?}", bench.end) };
    let AttemptFailure { marks, .. } = *failure;
    for marks in [known, marks] {
        let mut next = Bench::on_from(
            Vec::new(),
            AttemptRules::default(),
            &DrainMarks { claims: marks.claims, ..DrainMarks::default() },
        );
        assert_eq!(next.volumes, [BTreeSet::from([claim("data")])]);
        next.pass(secs(30));
        next.hear(attached(&["data"]));
        assert_eq!((next.progress().phase, next.looks.len()), (DrainPhase::Detaching, 1));
        next.hear(attached(&[]));
        next.prove();
        assert!(matches!(next.end, Some(Ok(_))), "{:?}", next.end);
    }
}
