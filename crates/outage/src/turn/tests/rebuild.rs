//! A Lease that was deleted or restored: what the marks and what was seen bring back, and what they must not.

use super::super::event::{Ask, Effect, Event, TurnState, Unconfirmed};
use super::super::pulses::Pulse;
use super::super::rebuild::{LeaseMemory, rebuild};
use super::super::record::{
    Class, EarlierGrant, FENCE_MOST, ForcedRelease, Holder, RecordSnapshot, TurnRecord,
};
use super::super::rule::{CordonMark, TurnNode, TurnRule};
use super::rules::{forced, holder, mark, node, server};
use super::stage::Stage;
use kubeapi::nodes::CordonAnnotation;

fn held(uid: &str, record: TurnRecord) -> RecordSnapshot {
    RecordSnapshot { record, uid: uid.to_owned(), resource_version: "1".to_owned() }
}

fn at(fence: u32, holders: Vec<Holder>) -> TurnRecord {
    TurnRecord { holders, fence, ..TurnRecord::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "the member of an entry is optional")]
fn earlier(fence: u32, lease_uid: &str) -> Option<EarlierGrant> {
    Some(EarlierGrant { fence, lease_uid: lease_uid.to_owned() })
}

/// Number of the last grant, and of each holder its name and number.
type Brief = (u32, Vec<(String, u32)>);

fn brief(record: &TurnRecord) -> Brief {
    (record.fence, record.holders.iter().map(|it| (it.node.clone(), it.fence)).collect())
}

fn rebuilt(record: Option<TurnRecord>, nodes: &[TurnNode], memory: &LeaseMemory) -> Option<Brief> {
    rebuild(record.map(|it| held("L", it)).as_ref(), nodes, memory, None).as_ref().map(brief)
}

#[test]
fn a_lease_that_was_deleted_or_restored_is_rebuilt_from_the_marks_with_numbers_of_its_own() {
    let marked = |fence, lease| TurnNode { mark: mark(fence, lease), unschedulable: true, ..server("b") };
    let used = |boot: &str| TurnNode { unschedulable: false, boot_id: boot.to_owned(), ..marked(7, "old") };
    let b = |fence| vec![("b".to_owned(), fence)];
    let released = |fence, earlier| TurnRecord {
        forced: vec![ForcedRelease { earlier, ..forced("b", fence, "burnt") }],
        ..at(8, vec![])
    };
    let table: [(&str, Option<TurnRecord>, TurnNode, Option<Brief>); 15] = [
        ("a cluster without turns so far", None, node("b"), Some((0, vec![]))),
        ("deleted", None, marked(7, "old"), Some((1, b(1)))),
        ("as it should be", Some(at(7, vec![holder("b", 7)])), marked(7, "L"), None),
        ("released before its mark is gone", Some(at(7, vec![])), marked(7, "L"), None),
        ("restored", Some(at(5, vec![])), marked(7, "L"), Some((1_006, b(1_006)))),
        ("restored, old entry", Some(at(5, vec![holder("b", 3)])), marked(7, "L"), Some((1_005, b(3)))),
        ("created without looking", Some(at(0, vec![])), marked(7, "old"), Some((1, b(1)))),
        ("rebuilt already", Some(at(8, vec![holder("b", 7)])), marked(7, "old"), None),
        ("restored, nobody is in a turn", Some(at(5, vec![])), node("c"), None),
        ("an operator released it", Some(released(8, earlier(7, "old"))), marked(7, "old"), None),
        ("he released another one", Some(released(7, None)), marked(7, "old"), Some((9, b(9)))),
        ("no Lease counts so far", Some(at(5, vec![])), marked(FENCE_MOST, "L"), None),
        ("a node in service, of another boot", Some(at(5, vec![])), used("b-boot"), None),
        ("the same without a Lease", None, used("b-boot"), Some((0, vec![]))),
        ("uncordoned by a person in its boot", Some(at(5, vec![])), used("b"), Some((6, b(6)))),
    ];
    for (what, record, node, expected) in table {
        assert_eq!(rebuilt(record, &[node], &LeaseMemory::default()), expected, "{what}");
    }
    let back = rebuild(None, &[marked(7, "old")], &LeaseMemory::default(), None).unwrap();
    assert!(back.holders[0].server && back.holders[0].boot_id == "b");
    assert_eq!(back.holders[0].earlier, earlier(7, "old"));
}

#[test]
fn t5_a_mark_of_no_turn_of_ours_is_none_and_one_that_was_brought_in_is_not_brought_in_again() {
    for (fence, uid, counts) in
        [(0, "L", false), (1, "", false), (1, "L", true), (FENCE_MOST, "L", true), (u32::MAX, "L", false)]
    {
        let cordon = CordonAnnotation { fence, lease_uid: uid.to_owned(), ..CordonAnnotation::default() };
        assert_eq!(CordonMark::of(cordon).is_some(), counts, "{fence} {uid}");
    }
    let marked = [TurnNode { mark: mark(7, "nope"), unschedulable: true, ..node("b") }];
    let mut memory = LeaseMemory::default();
    let older = held("L", at(5, vec![]));
    memory.see(&held("L", rebuild(Some(&older), &marked, &memory, None).unwrap()));
    // Its own agent releases it, and the mark stays.
    let after = at(6, vec![]);
    memory.see(&held("L", after.clone()));
    assert_eq!(rebuilt(Some(after), &marked, &memory), None);
    assert!(rebuilt(None, &marked, &memory).is_some(), "the Lease was deleted since");
}

#[test]
fn t6_what_was_seen_of_the_lease_outlives_one_that_is_suddenly_older_another_or_gone() {
    let mut memory = LeaseMemory::default();
    memory.see(&held("L", TurnRecord { limit: 2, ..at(7, vec![holder("b", 7)]) }));
    let b = |fence| vec![("b".to_owned(), fence)];
    let nodes = || vec![node("b")];
    // A late value of the watch, or what was restored: it is remembered all the same.
    memory.see(&held("L", at(5, vec![])));
    assert_eq!(rebuilt(Some(at(5, vec![])), &nodes(), &memory), Some((1_008, b(1_008))), "older");
    assert_eq!(rebuilt(None, &nodes(), &memory), Some((1, b(1))), "deleted");
    let other = rebuild(Some(&held("L2", at(3, vec![]))), &nodes(), &memory, None).unwrap();
    assert_eq!(brief(&other), (4, b(4)), "another one");
    let kept = rebuild(None, &nodes(), &memory, None).unwrap();
    assert_eq!(kept.limit, 2, "what an operator has set outlives it");
    // It is back in service, in another boot.
    let back = TurnNode { boot_id: "next".to_owned(), ..node("b") };
    assert_eq!(rebuilt(Some(at(5, vec![])), &[back], &memory), Some((1_007, vec![])));
    // Released as usual.
    memory.see(&held("L", at(7, vec![])));
    assert_eq!(rebuilt(Some(at(7, vec![])), &nodes(), &memory), None);
}

#[test]
fn t6_who_asks_first_after_a_restore_waits_for_a_sign_of_life_of_each_other_node() {
    // n2 is down, and looks Ready; who asks has seen nothing.
    let mut stage = Stage::new(Some(TurnRecord::default()));
    stage.nodes[1].pulse = Pulse::Unknown;
    stage.wants();
    let waiting = stage.waiting();
    assert_eq!((waiting.rule, waiting.nodes), (TurnRule::Reading, vec!["b".to_owned()]));
    let calls = stage.pass(10);
    assert_eq!(calls, "CCRC", "after 1, 3 and 7 s; what was read within 5 s is not read again");
    stage.nodes[1].pulse = Pulse::Still;
    stage.pass(4);
    assert_eq!((stage.waiting().rule, stage.fence()), (TurnRule::Down, None));
    stage.nodes[1].pulse = Pulse::Moving;
    stage.pass(30);
    assert!(stage.fence().is_some());
    // Whoever is said to be away does not count.
    let mut ignoring = Stage::new(Some(TurnRecord::default()));
    (ignoring.nodes[1].pulse, ignoring.nodes[1].ignored) = (Pulse::Unknown, true);
    ignoring.wants();
    assert!(ignoring.fence().is_some());
}

#[test]
fn t6_the_machine_does_not_go_down_before_it_is_known_whether_the_others_live() {
    let mut stage = Stage::asking(TurnRecord::default());
    stage.cordon(1);
    stage.nodes[1].pulse = Pulse::Unknown;
    stage.settle(Ask::LastLook(5));
    let looked = |stage: &Stage| stage.said.iter().any(|it| matches!(it, Effect::LookedLast(..)));
    stage.pass(20);
    assert!(!looked(&stage));
    stage.nodes[1].pulse = Pulse::Moving;
    stage.pass(4);
    assert!(stage.said.contains(&Effect::LookedLast(5, Ok(()))), "{:?}", stage.said);
}

type Change = Box<dyn FnOnce(&mut Stage)>;

/// A drained holder whose Lease is changed; the calls after that.
fn changed(change: impl FnOnce(&mut Stage)) -> Stage {
    let mut stage = Stage::asking(at(6, vec![]));
    stage.cordon(7);
    stage.pass(60);
    change(&mut stage);
    stage.calls.clear();
    stage.settle(Event::Changed(stage.lease.clone().map(Box::new)));
    stage
}

#[test]
fn t6_a_holder_that_lives_writes_itself_in_again_and_its_turn_goes_on() {
    let other = |stage: &mut Stage| {
        stage.lease = None;
        stage.put(TurnRecord::default());
        stage.lease.as_mut().unwrap().uid = "L2".to_owned();
    };
    let brought = |stage: &mut Stage| {
        let mut record = TurnRecord::default();
        record.grant(Holder { earlier: earlier(7, "L"), ..holder("a", 0) });
        stage.lease = Some(held("L2", record));
    };
    let ways: [(&str, Change, &str, u32); 4] = [
        ("deleted", Box::new(|it| it.lease = None), "RCW", 1),
        ("another one", Box::new(other), "RCW", 1),
        ("older", Box::new(|it| it.put(at(5, vec![]))), "RCW", 1_008),
        ("brought in by somebody else", Box::new(brought), "R", 1),
    ];
    for (what, change, calls, fence) in ways {
        let mut stage = changed(change);
        assert_eq!((stage.calls.as_str(), stage.fence()), (calls, Some(fence)), "{what}");
        assert_eq!(stage.record().holders.len(), 1, "{what}");
        assert_eq!(stage.record().holders[0].earlier, earlier(7, "L"), "{what}");
        assert_eq!(stage.confirm(), Ok(()), "{what}");
        // Its agent restarts: the mark on its node is of the grant before.
        stage.turn = super::super::Turn::new(super::rules::me("a", false), Class::Worker, 2);
        stage.wants();
        assert_eq!(stage.fence(), Some(fence), "{what}");
        stage.settle(Ask::Want(None));
        assert!(stage.record().holders.is_empty(), "{what}");
    }
}

#[test]
fn t6_until_it_is_written_in_again_nothing_goes_on_and_a_turn_of_others_ends_it() {
    let mut stage = Stage::asking(at(6, vec![]));
    stage.lease = None;
    stage.hear(Ask::Confirm);
    stage.read(Ok(None));
    let Err(Unconfirmed::Unknown(why)) = stage.answer() else { panic!("answered") };
    assert!(why.contains("writes its turn in again"), "{why}");
    // Somebody who knew nothing of it was faster.
    stage.put(at(1, vec![holder("b", 1)]));
    stage.lease.as_mut().unwrap().uid = "L2".to_owned();
    stage.serve();
    stage.pass(2);
    assert!(matches!(stage.turn.state(), TurnState::Lost { .. }), "{:?}", stage.turn.state());
    // An operator has released it in the Lease that came after: his word.
    let released = ForcedRelease { earlier: earlier(7, "L"), ..forced("a", 1, "burnt") };
    let record = TurnRecord { forced: vec![released], ..at(1, vec![]) };
    let stage = changed(|it| it.lease = Some(held("L2", record)));
    let TurnState::Lost { why } = stage.turn.state() else { panic!("{:?}", stage.turn.state()) };
    assert!(why.contains("burnt"), "{why}");
}

#[test]
fn t5_a_turn_that_is_lost_again_and_again_is_taken_after_a_growing_pause_whoever_asks_again() {
    let mut stage = Stage::new(Some(at(6, vec![])));
    let mut last = std::time::Duration::ZERO;
    for round in 1..=5 {
        stage.wants();
        stage.pass(3_600);
        assert!(stage.fence().is_some(), "{round}: {:?}", stage.turn.state());
        // Its entry is gone, and nobody says why.
        stage.edit(|record| (record.holders, record.fence) = (vec![], record.fence + 1));
        assert!(matches!(stage.turn.state(), TurnState::Lost { .. }));
        // The drain is given up and asked for again, as after a COMPLETE that is void.
        stage.settle(Ask::Want(None));
        stage.wants();
        let waiting = stage.waiting();
        assert_eq!(waiting.rule, TurnRule::Retry, "{round}");
        assert!(waiting.why.contains(&format!("lost {}", topics::number(round, "time"))), "{}", waiting.why);
        let pause = step::Core::next_wake(&stage.turn).unwrap().since(stage.now);
        assert!(pause > last, "{round}: {pause:?}");
        last = pause;
    }
}

#[test]
fn a_turn_that_another_zedkube_of_this_node_took_is_named_and_not_taken_back() {
    let mut stage = Stage::new(None);
    stage.wants();
    assert_eq!(stage.fence(), Some(1));
    stage.edit(|record| {
        record.release("a", "a-uid");
        record.grant(holder("a", 0));
    });
    let TurnState::Lost { why } = stage.turn.state() else { panic!("{:?}", stage.turn.state()) };
    assert!(why.contains("another zedkube acts for this node") && why.contains("fence 2"), "{why}");
    stage.settle(Ask::Retry("the turn was lost".to_owned()));
    assert!(!stage.pass(7_200).contains('W'), "what the other one took is not taken from it");
    assert!(stage.waiting().why.contains("another zedkube"), "{:?}", stage.waiting());
    assert!(stage.waiting().next_step().contains("`pgrep -a zedbox`"), "{:?}", stage.waiting());
    // A request that is withdrawn meanwhile leaves it there as well.
    stage.settle(Ask::Want(None));
    assert_eq!(stage.record().holders.len(), 1);
    stage.wants();
    stage.edit(|record| record.holders.clear());
    stage.pass(60);
    assert_eq!(stage.fence(), Some(3), "the other one is done");
}

#[test]
fn a_zedkube_that_wants_no_turn_leaves_the_turn_of_another_one_of_this_node_and_calls_itself_not_idle() {
    let mut stage = Stage::new(Some(at(4, vec![])));
    stage.settle(Ask::Want(None));
    stage.pass(600);
    assert_eq!(stage.turn.state(), TurnState::NotWanted { idle: true });
    stage.edit(|record| assert_eq!(record.grant(holder("a", 0)), 5));
    assert!(!stage.pass(7_200).contains('W'));
    // Otherwise other nodes would take the turn over.
    assert_eq!(stage.turn.state(), TurnState::NotWanted { idle: false });
    stage.wants();
    assert!(stage.waiting().why.contains("another zedkube"), "{:?}", stage.waiting());
    stage.hear(Ask::Want(None));
    stage.edit(|record| record.holders.clear());
    stage.pass(600);
    assert_eq!(stage.turn.state(), TurnState::NotWanted { idle: true }, "the other one is done");
    // A restored Lease brings an entry of ours back: that goes.
    stage.edit(|record| (record.holders, record.fence) = (vec![holder("a", 3)], 3));
    stage.pass(600);
    assert!(stage.record().holders.is_empty());
}
