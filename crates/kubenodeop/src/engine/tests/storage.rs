//! The storage guard in an attempt. Pods whose volume has its last copy here: `copies`.

mod copies;

use super::*;
use crate::changes::watched::WatchedBlockers;
use crate::engine::storage::{LastCopyGuard, StorageNeeds};
use crate::storage::{
    Cause, ClosedBudget, NodeDrainPolicy, StorageView, VolumeFinding, VolumeState, finding,
};

fn look(state: VolumeState) -> StorageView {
    StorageView { findings: vec![finding(state, None)], ..StorageView::default() }
}

fn last() -> StorageView {
    look(VolumeState::LastCopy(Cause::Enough))
}

fn safe() -> StorageView {
    look(VolumeState::Safe)
}

fn empty(storage: StorageView, rules: AttemptRules) -> Bench {
    holding(vec![], storage, rules)
}

/// These pods are on the node, and the storage is so.
fn holding(there: Vec<PodFacts>, storage: StorageView, rules: AttemptRules) -> Bench {
    let mut bench = Bench::with(there, rules, &DrainMarks::default());
    becomes(&mut bench, storage);
    bench.look();
    bench
}

fn limited(then: LimitAction) -> AttemptRules {
    AttemptRules { last_copy: Limit { after: Some(secs(100)), then }, ..AttemptRules::default() }
}

fn becomes(bench: &mut Bench, storage: StorageView) {
    bench.storage = Some(storage.clone());
    bench.hear(Event::Storage(Ok(Some(storage))));
}

type Change = fn(&mut LastCopyGuard, Mono);

#[test]
fn what_pods_must_stay_for_changes_with_the_storage_or_a_time_and_not_at_each_event() {
    let limit = Limit { after: Some(secs(5000)), then: LimitAction::GetPast };
    let rules = AttemptRules { last_copy: limit, ..AttemptRules::default() };
    let mut guard = LastCopyGuard::new(&rules, &DrainMarks::default());
    let at = |secs| Mono::from_start(Duration::from_secs(secs));
    let mut before = StorageNeeds::default();
    let mut changes = |now, change: Change| {
        change(&mut guard, now);
        guard.wait(now, true, |_| true);
        guard.ask(now);
        let needs = guard.needs();
        std::mem::replace(&mut before, needs.clone()) != needs
    };
    let table: [(u64, Change, bool); 9] = [
        (0, |_, _| (), true),
        (1, |_, _| (), false),
        (2, |guard, _| guard.take_view(Ok(Some(last()))), true),
        (3, |_, _| (), false),
        (4, |guard, now| guard.asked(now, "pvc-1".to_owned(), Err(failed(transient()))), true),
        (33, |_, _| (), false),
        // It is asked for again.
        (34, |_, _| (), true),
        (4999, |_, _| (), false),
        (5000, |_, _| (), true),
    ];
    for (secs, change, expected) in table {
        assert_eq!(changes(at(secs), change), expected, "at {secs} s");
    }
}

fn instance_manager() -> PodFacts {
    let labels = [("longhorn.io/component".to_owned(), "instance-manager".to_owned())];
    let mut facts = PodFacts { labels: labels.into(), tier: Tier::Storage, ..pod("im-1") };
    facts.pod.namespace = "longhorn-system".to_owned();
    facts
}

#[test]
fn d14_a_node_with_a_last_copy_is_not_released_however_long_it_is_empty() {
    let mut bench = empty(last(), AttemptRules::default());
    for _ in 0..20 {
        bench.pass(secs(600));
        bench.look();
    }
    assert_eq!(bench.end, None);
    let progress = bench.progress();
    assert_eq!(progress.phase, DrainPhase::WaitingForStorage);
    let wait = &progress.storage[0];
    assert_eq!((wait.volume.as_str(), wait.node.as_str()), ("shop/data (pvc-1)", "n1"));
    becomes(&mut bench, safe());
    bench.prove();
    assert_eq!(bench.left(), [""; 0]);
}

#[test]
fn d14_the_percent_of_a_rebuild_is_shown() {
    let mut bench = empty(last(), AttemptRules::default());
    let rebuilt = finding(VolumeState::LastCopy(Cause::Rebuilding), Some(42));
    becomes(&mut bench, StorageView { findings: vec![rebuilt], ..StorageView::default() });
    let wait = bench.progress().storage.remove(0);
    assert_eq!((wait.rebuilding, wait.percent), (true, 42));
    assert_eq!(wait.reason, "the last healthy copy is here; another is being rebuilt, 42 %");
}

#[test]
fn d14_the_list_that_proves_the_node_empty_reads_the_storage_again() {
    let mut bench = empty(safe(), AttemptRules::default());
    // The other copy is lost between the two lists, and no watch says so.
    bench.storage = Some(last());
    bench.prove();
    bench.pass(secs(60));
    assert_eq!((bench.end.clone(), bench.progress().phase), (None, DrainPhase::WaitingForStorage));
    becomes(&mut bench, safe());
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d14_a_storage_that_cannot_be_read_proves_nothing_and_the_attempt_ends_by_its_limit() {
    let mut bench = empty(safe(), AttemptRules { attempt: secs(300), ..AttemptRules::default() });
    bench.hear(Event::Storage(Err(failed(transient()))));
    bench.pass(secs(299));
    let progress = bench.progress();
    assert_eq!((bench.end.clone(), progress.phase), (None, DrainPhase::WaitingForStorage));
    assert_eq!(progress.trouble, "call: 503");
    bench.pass(secs(2));
    assert_eq!(bench.reason(), "not done within 300 s, the state of the storage is not known: call: 503");
}

#[test]
fn d14_nothing_is_proved_before_the_storage_has_been_heard_of() {
    let mut engine = Engine::new(
        DrainIdentity::default(),
        AttemptRules::default(),
        &DrainMarks::default(),
        Mono::from_start(secs(10)),
        1,
    );
    let mut now = Mono::from_start(secs(10));
    drop(engine.step(now, Event::Tick));
    for _ in 0..5 {
        now = now + secs(2);
        let seen = Ok((vec![], node(false), None));
        let effects = engine.step(now, Event::Looked { turn: 0, seen });
        assert_eq!(effects, [], "waits for the storage, and does not list in a circle");
    }
    let effects = engine.step(now, Event::Storage(Ok(Some(safe()))));
    assert!(matches!(effects[..], [Effect::Look { storage: true, .. }]), "{effects:?}");
}

#[test]
fn d14_a_volume_or_claim_that_the_policy_names_passes_and_is_named() {
    for word in ["pvc-1", "shop/data"] {
        let pass = AttemptRules { last_copy_pass: [word.to_owned()].into(), ..AttemptRules::default() };
        let mut bench = empty(last(), pass);
        bench.prove();
        let why = "volume shop/data (pvc-1): its last healthy copy is here, and last_copy_pass names it";
        assert_eq!(bench.left(), [why], "{word}");
    }
    let mut bench = empty(last(), AttemptRules::default());
    bench.prove();
    assert_eq!(bench.end, None);
    let passed = VolumeFinding { passed: "its disk is dead".to_owned(), ..last().findings.remove(0) };
    becomes(&mut bench, StorageView { findings: vec![passed], ..StorageView::default() });
    bench.prove();
    let left = bench.left();
    assert!(left[0].ends_with("pillar-rs/last-copy-pass allows it: its disk is dead"), "{left:?}");
    let other = AttemptRules { last_copy_pass: ["shop/other".to_owned()].into(), ..AttemptRules::default() };
    let mut bench = empty(last(), other);
    bench.prove();
    assert_eq!(bench.end, None);
}

#[test]
fn d14_the_limit_fails_the_attempt_or_lets_it_pass_by_name_as_the_policy_says() {
    let mut bench = empty(last(), limited(LimitAction::GiveUp));
    bench.pass(secs(99));
    assert_eq!(bench.end, None);
    bench.pass(secs(2));
    let reason =
        "100 s after everything else left, this node still has the last healthy copy of shop/data (pvc-1)";
    assert_eq!(bench.reason(), reason);

    let mut bench = empty(last(), limited(LimitAction::GetPast));
    bench.pass(secs(101));
    bench.prove();
    let why = "volume shop/data (pvc-1): its last healthy copy is here after 100 s, the limit for it";
    assert_eq!(bench.left(), [why]);

    let mut bench = empty(last(), limited(LimitAction::Wait));
    bench.pass(secs(101));
    bench.prove();
    assert_eq!(bench.end, None);
    let storage = bench.progress().storage;
    assert!(storage[0].reason.ends_with("; over its 100 s"), "{storage:?}");
}

#[test]
fn d14_a_faulted_volume_is_shown_and_holds_nothing() {
    let mut bench = empty(look(VolumeState::Faulted), AttemptRules::default());
    assert_eq!(bench.progress().storage[0].reason, "no copy is healthy on any node");
    bench.prove();
    assert!(matches!(bench.end, Some(Ok(_))));
}

#[test]
fn d14_a_deadlock_of_all_nodes_cordoned_is_in_the_reason_of_the_failure() {
    let rules = AttemptRules { attempt: secs(60), ..AttemptRules::default() };
    let mut bench = empty(look(VolumeState::LastCopy(Cause::AllCordoned)), rules);
    bench.pass(secs(61));
    assert!(bench.reason().contains("all other nodes are cordoned: uncordon one"), "{}", bench.reason());
}

#[test]
fn d14_an_instance_manager_stays_until_the_volumes_have_copies_elsewhere() {
    let mut bench = holding(vec![instance_manager()], last(), AttemptRules::default());
    bench.pass(secs(600));
    assert!(bench.evictions.is_empty());
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::StorageManager);
    let text = "pod longhorn-system/im-1 is not evicted yet: this node still has the last healthy copy of shop/data (pvc-1)";
    assert_eq!((blocker.reason.as_str(), bench.progress().phase), (text, DrainPhase::WaitingForStorage));
    becomes(&mut bench, safe());
    assert_eq!(bench.evicted_names(), ["im-1"]);
}

#[test]
fn the_limit_for_last_copies_runs_while_only_the_instance_manager_is_left() {
    let mut bench = holding(vec![instance_manager()], last(), limited(LimitAction::GetPast));
    bench.pass(secs(99));
    assert!(bench.evictions.is_empty());
    bench.pass(secs(2));
    assert_eq!(bench.evicted_names(), ["im-1"]);
}

#[test]
fn d7_the_budget_of_an_instance_manager_is_explained_and_not_called_stuck() {
    let why = ClosedBudget {
        why: "volumes are attached through it: pvc-1".to_owned(),
        opens: "it opens once they are detached".to_owned(),
        by: Vec::new(),
    };
    let storage = StorageView { managers: [("im-1".to_owned(), why)].into_iter().collect(), ..safe() };
    let mut bench = holding(vec![instance_manager()], storage, AttemptRules::default());
    bench.reply("im-1", budget_reply());
    let closed = BudgetFacts {
        namespace: "longhorn-system".to_owned(),
        name: "im-1".to_owned(),
        ..budget("im-1", 0, 1, 1, 1)
    };
    bench.hear(Event::Budgets { namespace: "longhorn-system".to_owned(), budgets: vec![closed] });
    let blocker = bench.blockers().remove(0);
    assert_eq!(blocker.code, BlockCode::StorageManager);
    let text = "pod longhorn-system/im-1: Longhorn keeps its budget closed: volumes are attached through it: pvc-1; it opens once they are detached";
    assert_eq!(blocker.reason, text);
}

#[test]
fn d14_an_instance_manager_that_only_passed_volumes_keep_stays_in_place_and_is_named() {
    let passes = |why: &str, by: &str| {
        let closed = ClosedBudget {
            why: "last healthy copies are on this node".to_owned(),
            by: vec![by.to_owned()],
            ..ClosedBudget::default()
        };
        let finding = VolumeFinding { passed: why.to_owned(), ..last().findings.remove(0) };
        StorageView {
            findings: vec![finding],
            managers: [("im-1".to_owned(), closed)].into_iter().collect(),
            ..StorageView::default()
        }
    };
    let storage = passes("its disk is dead", "pvc-1");
    let mut bench = holding(vec![instance_manager()], storage, AttemptRules::default());
    bench.reply("im-1", budget_reply());
    let named = |bench: &Bench| bench.progress().left.iter().any(|it| it.contains("/im-1: "));
    assert!(named(&bench), "{:?}", bench.progress().left);
    assert_eq!(bench.blockers().len(), 0);
    // A person changes their mind: it is one more that has to leave.
    bench.hear(Event::Storage(Ok(Some(passes("", "pvc-1")))));
    assert!(!named(&bench));
    // Another volume keeps it too, which nobody lets pass.
    bench.hear(Event::Storage(Ok(Some(passes("its disk is dead", "pvc-2")))));
    assert!(!named(&bench));
}

#[test]
fn d16_a_last_copy_that_failed_the_attempt_is_watched_and_only_a_help_wakes() {
    let rules = AttemptRules { attempt: secs(60), ..AttemptRules::default() };
    let failed_on = |state: VolumeState| {
        let mut bench = empty(look(state), rules.clone());
        bench.pass(secs(61));
        bench.failure().watched.clone()
    };
    let held = failed_on(VolumeState::LastCopy(Cause::Detached));
    let deadlock = failed_on(VolumeState::LastCopy(Cause::AllCordoned));
    let rebuilt = || VolumeState::LastCopy(Cause::Rebuilding);
    let under_way = failed_on(rebuilt());
    let no_room = |why: &str| failed_on(VolumeState::LastCopy(Cause::NoPlace(why.to_owned())));
    let passed = VolumeFinding { passed: "dead".to_owned(), ..last().findings.remove(0) };
    let passed = StorageView { findings: vec![passed], ..StorageView::default() };
    let table = [
        (held.storage_now(&look(VolumeState::LastCopy(Cause::Detached))), None),
        (
            held.storage_now(&look(rebuilt())),
            Some("volume pvc-1 is held up by something else, or by nothing"),
        ),
        (held.storage_now(&passed), Some("a person lets volume pvc-1 pass")),
        (no_room("a").storage_now(&look(VolumeState::LastCopy(Cause::NoPlace("b".to_owned())))), None),
        (no_room("a").storage_now(&last()), Some("volume pvc-1 is held up by something else, or by nothing")),
        // What comes and goes by itself.
        (under_way.storage_now(&look(VolumeState::LastCopy(Cause::Degraded))), None),
        (under_way.storage_now(&look(VolumeState::LastCopy(Cause::Detached))), None),
        (held.storage_now(&safe()), Some("the last healthy copy of volume pvc-1 is no longer here alone")),
        (
            held.storage_now(&StorageView::default()),
            Some("the last healthy copy of volume pvc-1 is no longer here alone"),
        ),
        (deadlock.storage_now(&look(VolumeState::LastCopy(Cause::AllCordoned))), None),
        (deadlock.storage_now(&look(rebuilt())), Some("another node can take a copy of volume pvc-1")),
    ];
    for (number, (said, expected)) in table.into_iter().enumerate() {
        assert_eq!(said.as_deref(), expected, "row {number}");
    }
    let unknown = WatchedBlockers { storage_unknown: true, ..WatchedBlockers::default() };
    assert!(unknown.storage_now(&safe()).is_some());
    let free = WatchedBlockers::default();
    assert_eq!(free.storage_now(&safe()), None, "it held nothing up");
}
