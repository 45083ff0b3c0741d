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
    assert_eq!(bench.left(), [""; 0]);
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
fn d15_volumes_over_their_limit_are_let_go_and_named_also_after_a_restart_and_if_never_heard_of() {
    let still = "shop/data (pv pv-data): still attached after 600 s, the limit for volumes";
    let unknown = "shop/data: not known within 600 s, the limit for volumes, to be detached";
    // The bench's clock starts at 1000 s.
    let table = [
        ("attached", None, Some(attached(&["data"])), 600, still),
        ("never heard of", None, None, 600, unknown),
        (
            "an attempt that was cut off has waited since 700 s",
            Some(secs(700)),
            Some(attached(&["data"])),
            300,
            still,
        ),
    ];
    for (row, since, heard, time, left) in table {
        let volumes_ms = since.map_or(0, |it| Mono::from_start(it).as_ms());
        let marks = DrainMarks { volumes_ms, ..DrainMarks::default() };
        let mut bench = Bench::on_from(vec![with("a", &["data"])], AttemptRules::default(), &marks);
        bench.leave("a");
        let since = since.map_or(bench.now, Mono::from_start);
        if let Some(event) = heard {
            bench.hear(event);
        }
        bench.pass(secs(time - 1));
        let seen = bench.progress();
        assert_eq!((seen.marks.volumes_ms, seen.left), (since.as_ms(), vec![]), "{row}");
        bench.pass(secs(1));
        bench.prove();
        assert_eq!(bench.left(), [left], "{row}");
    }
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
    let marks = bench.failure().marks.clone();
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
