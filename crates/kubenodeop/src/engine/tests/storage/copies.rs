//! Pods whose volume has its last healthy copy on our node: they stay up until another one is healthy.

use super::*;

fn mounting() -> PodFacts {
    PodFacts { claims: vec!["data".to_owned()], ..pod("db") }
}

/// An attempt with a pod that uses the volume and one that does not.
fn with_pods(storage: StorageView) -> Bench {
    let there = vec![mounting(), pod("web")];
    let mut bench = Bench::with(there.clone(), AttemptRules::default(), &DrainMarks::default());
    bench.hear(Event::Pods(there));
    assert_eq!(bench.evicted_names(), ["web"], "a pod with a volume waits until the storage is known");
    becomes(&mut bench, storage);
    bench
}

fn state(state: VolumeState, percent: Option<u8>) -> StorageView {
    StorageView {
        findings: vec![VolumeFinding { wanted: 2, asked: true, ..finding(state, percent) }],
        ..StorageView::default()
    }
}

#[test]
fn d14_another_copy_is_asked_for_once_and_the_pod_stays_until_it_is_there() {
    let mut bench = with_pods(last());
    assert_eq!(bench.copies, [(bench.now, "pvc-1".to_owned(), 1)]);
    bench.hear(Event::CopyAsked { volume: "pvc-1".to_owned(), result: Ok(()) });
    assert!(bench.said.last().unwrap().starts_with("the last healthy copy of pvc-1 is here"));
    becomes(&mut bench, state(VolumeState::LastCopy(Cause::Degraded), None));
    bench.pass(secs(500));
    becomes(&mut bench, state(VolumeState::LastCopy(Cause::Rebuilding), Some(42)));
    bench.pass(secs(5000));
    assert_eq!(bench.evicted_names(), ["web"]);
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::Copying);
    let text = "pod shop/db is not evicted yet: volume shop/data (pvc-1): the last healthy copy is here; another is being rebuilt, 42 %";
    assert_eq!(blocker.reason, text);
    becomes(&mut bench, state(VolumeState::Safe, None));
    assert_eq!((bench.evicted_names(), bench.copies.len()), (vec!["web", "db"], 1));
}

#[test]
fn d14_a_pod_stays_up_until_another_copy_is_healthy_in_each_policy_and_for_each_cause() {
    let causes = [
        (Cause::Enough, BlockCode::Copying),
        (Cause::Degraded, BlockCode::Copying),
        (Cause::Rebuilding, BlockCode::Copying),
        (Cause::Migrating, BlockCode::Copying),
        (Cause::StrictLocal, BlockCode::StrictLocal),
        (Cause::AllCordoned, BlockCode::AllCordoned),
        (Cause::NoOtherNode, BlockCode::LastCopy),
        (Cause::Behind(vec!["node n2 is cordoned".to_owned()]), BlockCode::LastCopy),
        (Cause::NoPlace("no room".to_owned()), BlockCode::NoRoom),
        (Cause::Full(vec!["node n2".to_owned()]), BlockCode::VolumeFull),
    ];
    for policy in NodeDrainPolicy::WORDS {
        for (cause, code) in &causes {
            let of = |state, here| StorageView {
                policy: NodeDrainPolicy::parse(policy),
                findings: vec![VolumeFinding { here, ..finding(state, None) }],
                ..StorageView::default()
            };
            let last = || VolumeState::LastCopy(cause.clone());
            let mut bench = with_pods(of(last(), true));
            bench.pass(secs(5000));
            assert_eq!(bench.evicted_names(), ["web"], "{policy} {cause:?}");
            let codes: Vec<String> = bench.blockers().into_iter().map(|it| it.code).collect();
            assert!(codes.iter().any(|it| it == code), "{policy} {cause:?}: {codes:?}");
            becomes(&mut bench, of(VolumeState::Safe, true));
            assert_eq!(bench.evicted_names(), ["web", "db"], "{policy} {cause:?}");
            // Attached on another node the pod here does not serve it.
            assert_eq!(with_pods(of(last(), false)).evicted_names(), ["web", "db"], "{policy} {cause:?}");
        }
    }
}

#[test]
fn t3_a_pod_stays_while_longhorn_moves_the_copy_here_as_no_other_node_gets_the_volume_before() {
    let of = |moves, here| StorageView {
        findings: vec![VolumeFinding { here, moves, ..finding(VolumeState::Safe, None) }],
        ..StorageView::default()
    };
    let mut bench = with_pods(of(true, true));
    bench.pass(secs(5000));
    assert_eq!(bench.evicted_names(), ["web"]);
    let blocker = bench.blockers().into_iter().find(|it| it.code == BlockCode::Copying).unwrap();
    assert!(blocker.reason.contains("moves its copy away from this node"), "{blocker:?}");
    assert_eq!(bench.progress().phase, DrainPhase::Draining, "pod web is still leaving");
    becomes(&mut bench, of(false, true));
    assert_eq!(bench.evicted_names(), ["web", "db"]);
    // It is attached on another node.
    assert_eq!(with_pods(of(true, false)).evicted_names(), ["web", "db"]);
    // The limit of last copies ends this wait too.
    let words = "Longhorn moves its copy away from this node, and gives it to no other node before";
    for then in [LimitAction::Wait, LimitAction::GetPast, LimitAction::GiveUp] {
        let mut bench = Bench::with(vec![mounting()], limited(then), &DrainMarks::default());
        bench.hear(Event::Pods(vec![mounting()]));
        becomes(&mut bench, of(true, true));
        bench.pass(secs(99));
        let shown = bench.progress();
        assert_eq!((shown.phase, shown.storage[0].reason.as_str()), (DrainPhase::WaitingForStorage, words));
        assert!(bench.end.is_none() && bench.evictions.is_empty());
        bench.pass(secs(2));
        let evicted = bench.evicted_names();
        match (then, &bench.end) {
            (LimitAction::Wait, None) => {
                assert!(evicted.is_empty());
                assert_eq!(bench.progress().storage[0].reason, format!("{words}; over its 100 s"));
            }
            (LimitAction::GetPast, None) => {
                assert_eq!(evicted, ["db"]);
                let why = "volume shop/data (pvc-1): Longhorn still moved its copy away after 100 s, the limit for it";
                assert_eq!(bench.progress().left[0], why);
            }
            (LimitAction::GiveUp, Some(Err(failure))) => assert_eq!(
                failure.reason,
                "100 s after everything else left, Longhorn still moves the copy away from this node of shop/data (pvc-1)"
            ),
            (_, end) => panic!("{then:?}: {end:?}"),
        }
    }
}

#[test]
fn d14_a_pod_stays_whichever_comes_first_the_event_of_our_request_or_its_answer() {
    let seen = [
        last(),
        state(VolumeState::LastCopy(Cause::Enough), None),
        state(VolumeState::LastCopy(Cause::Degraded), None),
        state(VolumeState::LastCopy(Cause::Rebuilding), Some(1)),
        look(VolumeState::LastCopy(Cause::Degraded)),
    ];
    let answers = [None, Some(Ok(())), Some(Err(failed(transient())))];
    for first in &seen {
        for answer in &answers {
            for then in &seen {
                let mut bench = with_pods(last());
                becomes(&mut bench, first.clone());
                if let Some(result) = answer.clone() {
                    bench.hear(Event::CopyAsked { volume: "pvc-1".to_owned(), result });
                }
                becomes(&mut bench, then.clone());
                bench.pass(secs(5000));
                assert_eq!(bench.evicted_names(), ["web"], "{first:?}, {answer:?}, {then:?}");
            }
        }
    }
    // After a restart it is not asked for again.
    let mut bench = with_pods(state(VolumeState::LastCopy(Cause::Degraded), None));
    bench.pass(secs(5000));
    assert_eq!((bench.evicted_names(), bench.copies.len()), (vec!["web"], 0));
}

#[test]
fn d14_once_it_may_pass_the_pods_go_that_stayed_for_a_copy_and_the_instance_manager_after_them() {
    for cause in [Cause::Rebuilding, Cause::Full(vec!["node n2".to_owned()])] {
        let there = vec![mounting(), instance_manager()];
        let mut bench = Bench::with(there.clone(), limited(LimitAction::GetPast), &DrainMarks::default());
        bench.hear(Event::Pods(there));
        becomes(&mut bench, state(VolumeState::LastCopy(cause), Some(42)));
        bench.pass(secs(99));
        assert!(bench.evictions.is_empty());
        bench.pass(secs(2));
        assert_eq!(bench.evicted_names(), ["db"]);
        bench.leave("db");
        bench.pass(secs(2));
        assert_eq!(bench.evicted_names(), ["db", "im-1"], "its limit does not begin again");
    }
}

#[test]
fn d14_a_copy_that_cannot_be_asked_for_is_said_and_asked_for_again() {
    let mut bench = with_pods(last());
    bench.hear(Event::CopyAsked { volume: "pvc-1".to_owned(), result: Err(failed(permanent())) });
    assert_eq!(bench.evicted_names(), ["web"]);
    assert!(bench.blockers().iter().any(|it| it.code == BlockCode::LastCopy), "{:?}", bench.blockers());
    let words = &bench.progress().storage[0].reason;
    assert!(words.ends_with("; another could not be asked for: call: 403 Forbidden"), "{words}");
    bench.pass(secs(29));
    assert_eq!(bench.copies.len(), 1);
    bench.pass(secs(2));
    assert_eq!(bench.copies.len(), 2);
}

#[test]
fn d14_where_the_cordon_has_copies_made_none_is_asked_for() {
    for policy in ["block-for-eviction-if-contains-last-replica", "block-for-eviction"] {
        let bench = with_pods(StorageView { policy: NodeDrainPolicy::parse(policy), ..last() });
        assert_eq!(bench.copies.len(), 0, "{policy}");
    }
    for policy in ["", "allow-if-replica-is-stopped", "always-allow"] {
        assert_eq!(
            with_pods(StorageView { policy: NodeDrainPolicy::parse(policy), ..last() }).copies.len(),
            1,
            "{policy}"
        );
    }
    for other in [Cause::StrictLocal, Cause::Detached, Cause::AllCordoned, Cause::Degraded, Cause::Migrating]
    {
        assert_eq!(with_pods(look(VolumeState::LastCopy(other.clone()))).copies.len(), 0, "{other:?}");
    }
}

#[test]
fn j2_a_pod_that_is_to_stay_for_its_volume_is_taken_back_from_its_responders() {
    let rules = AttemptRules { eviction_requests: true, ..AttemptRules::default() };
    let mut bench = Bench::by(vec![PodFacts { responders: true, ..mounting() }], rules);
    becomes(&mut bench, safe());
    let responding = || Reply::Responding { text: "example.com/copier is active".to_owned() };
    for under_way in [false, true] {
        bench.reply("db", responding());
        if under_way {
            bench.pass(secs(15));
        }
        let before = (bench.requests.len(), bench.withdrawals.len());
        becomes(&mut bench, last());
        if under_way {
            bench.reply("db", responding());
        }
        bench.pass(secs(60));
        assert_eq!((bench.requests.len(), bench.withdrawals.len()), (before.0, before.1 + 1), "{under_way}");
        becomes(&mut bench, safe());
        bench.pass(secs(15));
        assert_eq!(bench.requests.len(), before.0 + 1, "and left to them again");
    }
}
