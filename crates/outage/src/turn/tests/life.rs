//! The life of one turn, event by event.

use std::time::Duration;

use step::Core as _;

use super::super::event::{
    Ask, Effect, Event, ReadError, RecordWritten, TurnRequest, TurnState, Unconfirmed,
};
use super::super::pulses::Pulse;
use super::super::record::{BadRecord, Class, Holder, Op, Phase, TurnRecord};
use super::super::rule::{TurnNode, TurnRule, release};
use super::rules::{forced, holder, mode, node, waiter};
use super::stage::{Stage, at, want};

fn held_by_b(queue: &[&str]) -> TurnRecord {
    TurnRecord {
        holders: vec![holder("b", 7)],
        queue: queue.iter().map(|name| waiter(name, Class::Worker)).collect(),
        fence: 7,
        ..TurnRecord::default()
    }
}

#[test]
fn the_first_turn_of_a_cluster_creates_the_lease_and_then_enters() {
    let mut stage = Stage::new(None);
    stage.wants();
    assert_eq!(stage.calls, "RWCMW", "the creation grants nothing, and is made without a look at the nodes");
    assert_eq!(stage.fence(), Some(1));
    assert_eq!(stage.record().holder_identity(), "a");
    assert!(stage.record().queue.is_empty());
    assert_eq!(stage.pass(3_600), "", "a holder asks for nothing");
}

#[test]
fn the_only_node_enters_at_once_and_says_so_in_the_record() {
    let mut stage =
        Stage::new(Some(TurnRecord { holders: vec![holder("gone", 3)], fence: 3, ..TurnRecord::default() }));
    stage.nodes.truncate(1);
    stage.margin = Err("one voter".to_owned());
    stage.wants();
    assert_eq!((stage.fence(), stage.calls.as_str()), (Some(4), "RCW"));
}

#[test]
fn who_waits_says_for_whom_by_which_rule_at_which_place_and_what_to_type() {
    let stage = Stage::asking(held_by_b(&["c"]));
    let waiting = stage.waiting();
    assert_eq!((waiting.rule, waiting.place, waiting.since), (TurnRule::Holder, Some(2), at(1_000)));
    assert_eq!(waiting.nodes, ["b"]);
    assert!(waiting.why.contains("node b holds a turn (reboot, phase granted, fence 7)"), "{}", waiting.why);
    assert_eq!(waiting.next_step(), "wait; `zedbox lock status` shows who is before it");
}

#[test]
fn only_the_first_three_read_the_nodes_while_nothing_changes() {
    let mut third = Stage::new(Some(held_by_b(&["c", "d"])));
    assert_eq!(third.wants().pass(60), "RCRC");
    let mut fourth = Stage::asking(held_by_b(&["c", "d", "e"]));
    assert_eq!(fourth.calls, "RW", "a place in the queue, and nothing else");
    assert_eq!((fourth.waiting().rule, fourth.waiting().nodes), (TurnRule::Order, vec!["b".to_owned()]));
    assert!(fourth.waiting().why.contains("this one in the queue: 3;"), "{}", fourth.waiting().why);
    assert_eq!(fourth.pass(599), "");
    fourth.calls.clear();
    fourth.edit(|record| record.holders[0].node = "x".to_owned());
    assert_eq!(fourth.waiting().nodes, ["x"]);
    assert_eq!(
        (fourth.calls.as_str(), fourth.waiting().place),
        ("", Some(4)),
        "a change of the Lease costs nothing"
    );
    assert_eq!(fourth.pass(601), "RC", "those before it may all have stopped");
}

#[test]
fn a_turn_that_becomes_free_is_taken_with_the_change_itself() {
    let mut stage = Stage::asking(held_by_b(&[]));
    stage.pass(7);
    stage.calls.clear();
    stage.edit(|record| record.holders.clear());
    assert_eq!((stage.calls.as_str(), stage.fence()), ("RCMW", Some(8)));
}

#[test]
fn a_first_that_does_not_take_an_open_grant_for_a_minute_is_passed_over_and_keeps_its_place() {
    let mut stage = Stage::asking(TurnRecord { holders: vec![], ..held_by_b(&["c"]) });
    assert_eq!(stage.waiting().rule, TurnRule::Order);
    stage.pass(59);
    assert_eq!(stage.waiting().rule, TurnRule::Order);
    stage.pass(2);
    assert_eq!(stage.fence(), Some(8));
    assert_eq!(stage.record().queue[0].node, "c");
}

#[test]
fn a_margin_that_does_not_hold_is_named_and_asked_again() {
    let mut stage = Stage::new(Some(TurnRecord::default()));
    stage.margin = Err("voter n2 is not healthy".to_owned());
    stage.wants();
    assert_eq!(stage.waiting().rule, TurnRule::Margin);
    assert!(stage.waiting().why.contains("voter n2 is not healthy"));
    stage.margin = Ok(());
    assert_eq!(stage.pass(30), "RCMW");
    assert_eq!(stage.fence(), Some(1));
}

#[test]
fn a_failed_attempt_releases_and_comes_back_after_a_growing_pause() {
    let mut stage = Stage::asking(TurnRecord::default());
    let mut last = Duration::ZERO;
    for attempt in 1..=9_u32 {
        assert!(stage.fence().is_some());
        stage.settle(Ask::Retry("PodDisruptionBudget shop/web allows no disruption".to_owned()));
        assert!(stage.record().holders.is_empty() && stage.record().queue.is_empty());
        let waiting = stage.waiting();
        assert!(waiting.rule == TurnRule::Retry && waiting.why.contains("shop/web"), "{waiting:?}");
        let pause = stage.turn.next_wake().unwrap().since(stage.now);
        let floor = Duration::from_secs((30 << (attempt - 1)).min(1_800));
        assert!(pause >= floor && pause <= floor * 3 / 2, "{attempt}: {pause:?}");
        assert!(pause > last || floor.as_secs() == 1_800);
        last = pause;
        stage.pass(2_700);
    }
}

#[test]
fn who_withdraws_leaves_the_queue_or_releases_and_asks_for_nothing_any_more() {
    let mut waits = Stage::asking(held_by_b(&["c"]));
    waits.settle(Ask::Want(None));
    assert_eq!(waits.record().queue.len(), 1);
    assert_eq!(waits.turn.state(), TurnState::NotWanted { idle: false });
    let mut holds = Stage::asking(TurnRecord::default());
    holds.settle(Ask::Want(None));
    assert!(holds.record().holders.is_empty());
    assert_eq!(holds.turn.state(), TurnState::NotWanted { idle: false });
    assert_eq!(holds.pass(65), "R", "a write of before may still have come through");
    assert_eq!(holds.turn.state(), TurnState::NotWanted { idle: true });
    assert_eq!(holds.pass(36_000), "");
}

#[test]
fn who_asks_again_while_its_turn_is_being_released_has_it_again_at_once() {
    // Whether the write that releases it came through, and whether that is known.
    for (came_through, known) in [(true, true), (true, false), (false, false)] {
        let mut stage = Stage::asking(TurnRecord::default());
        stage.calls.clear();
        stage.hear(Ask::Want(None));
        stage.serve_to('W');
        stage.hear(Ask::Want(Some(TurnRequest { counter: 2, ..want() })));
        assert!(
            !matches!(stage.turn.state(), TurnState::Held { .. }),
            "what is being released is used no more"
        );
        let Some(Effect::Write(id, order)) = stage.pending.take() else { panic!("no write") };
        if came_through {
            stage.put(order.record);
        }
        let held = || Box::new(stage.lease.clone().unwrap());
        let lost = RecordWritten::Unknown("no answer".to_owned());
        let wrote = if known { RecordWritten::Done(held()) } else { lost };
        stage.settle(Event::Wrote(id, wrote));
        stage.pass(if known { 0 } else { 4 });
        let about = format!("{came_through} {known}");
        assert_eq!((stage.fence(), stage.record().holders.len()), (Some(2), 1), "{about}");
        assert_eq!(stage.confirm(), Ok(()), "{about}");
    }
}

#[test]
fn a_write_without_a_known_result_is_read_back_before_anything_else() {
    for came_through in [true, false] {
        let mut stage = Stage::new(Some(TurnRecord::default()));
        stage.hear(Ask::Want(Some(want())));
        stage.serve_to('W');
        let Some(Effect::Write(id, order)) = stage.pending.take() else { panic!("no write") };
        if came_through {
            stage.put(order.record);
        }
        stage.hear(Event::Wrote(id, RecordWritten::Unknown("no answer".to_owned())));
        assert_eq!(stage.waiting().rule, TurnRule::Api);
        let calls = stage.pass(4);
        assert_eq!(calls, if came_through { "R" } else { "RCMW" });
        assert_eq!((stage.fence(), stage.record().holders.len()), (Some(1), 1));
    }
}

#[test]
fn whoever_was_slower_reads_everything_again_after_a_short_pause() {
    let mut stage = Stage::new(Some(TurnRecord::default()));
    stage.hear(Ask::Want(Some(want())));
    stage.serve_to('M');
    let mut record = stage.record().clone();
    record.grant(holder("b", 0));
    stage.put(record);
    stage.serve();
    assert_eq!(stage.calls, "RCMW");
    let pause = stage.turn.next_wake().unwrap().since(stage.now);
    assert!(pause >= Duration::from_millis(200) && pause <= Duration::from_millis(300), "{pause:?}");
    assert!(stage.pass(1).starts_with("RCW"));
    assert_eq!((stage.waiting().rule, stage.fence()), (TurnRule::Holder, None));
}

type Change<'a> = &'a dyn Fn(&mut TurnRecord);

#[test]
fn the_second_look_sees_every_way_to_lose_a_turn() {
    let given = || crate::turn::record::ForcedRelease { node_uid: String::new(), ..forced("a", 1, "burnt") };
    let release = |record: &mut TurnRecord| *record = release(record, given()).unwrap();
    let mode = |record: &mut TurnRecord| record.mode = Some(mode("shutdown"));
    let older = |record: &mut TurnRecord| record.holders[0].fence = 0;
    let table: [(&str, Change<'_>, &str); 3] = [
        ("released", &release, "op released our turn with fence 1: burnt"),
        ("restored", &older, "does not have our turn any more"),
        ("whole-cluster", &mode, "whole-cluster"),
    ];
    for (what, change, part) in table {
        let mut stage = Stage::asking(TurnRecord::default());
        assert_eq!(stage.confirm(), Ok(()), "{what}");
        let mut record = stage.record().clone();
        change(&mut record);
        stage.put(record);
        let Err(Unconfirmed::Lost(why)) = stage.confirm() else { panic!("{what}: confirmed") };
        assert!(why.contains(part), "{what}: {why}");
        assert!(matches!(stage.turn.state(), TurnState::Lost { .. }), "{what}");
        stage.settle(Ask::Retry("turn lost".to_owned()));
        let entries = stage.lease.as_ref().map_or(0, |it| it.record.holders.len());
        assert_eq!(entries, 0, "{what}: a stale entry of our own goes");
    }
    let mut stage = Stage::asking(TurnRecord::default());
    stage.hear(Ask::Confirm);
    stage.read(Err(ReadError::NoAnswer("timeout".to_owned())));
    assert_eq!(stage.answer(), Err(Unconfirmed::Unknown("timeout".to_owned())));
    assert!(stage.fence().is_some(), "an API that does not answer ends no turn");
}

#[test]
fn a_look_that_began_before_the_question_does_not_answer_it() {
    let mut stage = Stage::asking(TurnRecord::default());
    stage.hear(Ask::Phase(Phase::Cordoned));
    let before = stage.lease.clone();
    stage.hear(Ask::Confirm);
    stage.put(TurnRecord { holders: vec![], ..stage.record().clone() });
    stage.read(Ok(before));
    stage.serve();
    assert!(matches!(stage.answer(), Err(Unconfirmed::Lost(_))));
}

#[test]
fn an_agent_that_restarts_in_the_same_boot_continues_its_turn() {
    let mut stage = Stage::new(Some(TurnRecord { holders: vec![holder("a", 7)], ..held_by_b(&["c"]) }));
    stage.cordon(7);
    stage.wants();
    assert_eq!((stage.fence(), stage.calls.as_str()), (Some(7), "RCR"));
    // Not cordoned yet: the rule is asked again, before all others in the queue.
    let early = Stage::asking(TurnRecord { holders: vec![holder("a", 7)], ..held_by_b(&["c"]) });
    assert_eq!(early.fence(), Some(8));
    let mut late = Stage::new(Some(TurnRecord { holders: vec![holder("a", 7)], ..held_by_b(&[]) }));
    late.nodes[2].ready = false;
    late.wants();
    assert_eq!((late.waiting().rule, late.record().holders.len()), (TurnRule::Down, 0));
}

#[test]
fn after_a_boot_the_turn_is_kept_until_the_gate_opens() {
    let old = Holder { boot_id: "before".to_owned(), phase: Phase::GoingDown, ..holder("a", 7) };
    let mut stage = Stage::new(Some(TurnRecord { holders: vec![old.clone()], ..held_by_b(&[]) }));
    stage.settle(Event::Tick);
    assert_eq!(stage.turn.state(), TurnState::Booted { fence: 7, listed: true });
    assert_eq!(stage.record().holders[0].phase, Phase::Booted);
    stage.settle(Ask::Gate(false));
    assert_eq!(stage.record().holders[0].phase, Phase::Gate);
    stage.settle(Ask::Want(None));
    stage.pass(36_000);
    assert_eq!(stage.record().holders.len(), 1, "no time ends it");
    stage.settle(Ask::Gate(true));
    assert!(stage.record().holders.is_empty());
    assert_eq!(stage.turn.state(), TurnState::NotWanted { idle: true });
    // Released by somebody else meanwhile: it takes no turn and says so.
    let mut forced = Stage::new(Some(TurnRecord { holders: vec![old], ..held_by_b(&[]) }));
    forced.settle(Event::Tick);
    forced.edit(|record| record.holders.clear());
    assert_eq!(forced.turn.state(), TurnState::Booted { fence: 7, listed: false });
    assert!(
        forced.said.iter().any(|it| matches!(it, Effect::Say(why) if why.contains("does not have our turn")))
    );
    forced.settle(Ask::Gate(true));
    forced.settle(Ask::Want(None));
    assert_eq!(forced.turn.state(), TurnState::NotWanted { idle: false });
    forced.pass(65);
    assert_eq!(forced.turn.state(), TurnState::NotWanted { idle: true });
}

#[test]
fn a_restart_that_may_not_wait_writes_itself_beside_the_holder_and_blocks_further_grants() {
    let mut stage = Stage::new(Some(held_by_b(&["c"])));
    stage.settle(Ask::Want(Some(TurnRequest { op: Op::Restart, emergency: true, ..want() })));
    assert_eq!((stage.calls.as_str(), stage.fence()), ("RW", Some(8)));
    assert_eq!(stage.record().holders[1].phase, Phase::Emergency);
    assert_eq!(stage.record().holder_identity(), "b,a");
}

#[test]
fn phases_are_written_into_our_own_entry() {
    let mut stage = Stage::asking(TurnRecord::default());
    for phase in [Phase::Cordoned, Phase::Drained, Phase::GoingDown] {
        stage.settle(Ask::Phase(phase.clone()));
        assert_eq!(stage.record().holders[0].phase, phase);
        assert!(matches!(stage.turn.state(), TurnState::Held { phase: shown, .. } if shown == phase));
    }
    assert_eq!(stage.record().fence, 1, "only a grant raises the fence");
}

#[test]
fn a_record_of_a_newer_version_is_left_alone() {
    let mut stage = Stage::new(None);
    stage.hear(Ask::Want(Some(want())));
    stage.read(Err(ReadError::BadRecord(BadRecord::Newer { found: 2 })));
    assert_eq!((stage.waiting().rule, stage.calls.as_str()), (TurnRule::Record, "R"));
    assert!(stage.waiting().why.contains("has format 2"));
}

#[test]
fn the_turn_of_a_deleted_node_is_taken_over_after_a_minute_that_of_a_server_with_margin_only() {
    for (server, margin) in [(false, false), (true, true), (true, false)] {
        let gone = Holder { server, ..holder("gone", 7) };
        let mut stage = Stage::new(Some(TurnRecord { holders: vec![gone], ..held_by_b(&[]) }));
        stage.margin = if margin { Ok(()) } else { Err("voter gone is missing".to_owned()) };
        stage.wants();
        stage.pass(59);
        assert_eq!(stage.record().holders[0].node, "gone");
        stage.pass(10);
        let taken = stage.record().holders.iter().all(|it| it.node != "gone");
        assert_eq!(taken, !server || margin);
        assert_eq!(stage.fence().is_some(), margin);
    }
}

#[test]
fn a_holder_that_is_away_is_waited_for_whatever_the_time() {
    let mut stage = Stage::asking(held_by_b(&[]));
    stage.nodes[1] = TurnNode { ready: false, pulse: Pulse::Still, ..node("b") };
    stage.pass(7 * 24 * 3_600);
    assert_eq!((stage.waiting().nodes, stage.record().holders.len()), (vec!["b".to_owned()], 1));
}

#[test]
fn a_holder_that_is_healthy_and_says_idle_is_taken_over_after_a_minute_without_a_break() {
    let mut stage = Stage::new(Some(held_by_b(&[])));
    stage.nodes[1].idle = true;
    stage.wants();
    stage.pass(31);
    stage.nodes[1].pulse = Pulse::Still;
    stage.pass(30);
    stage.nodes[1].pulse = Pulse::Moving;
    stage.pass(60);
    assert_eq!(stage.record().holders[0].node, "b", "the minute starts again after a break");
    stage.pass(60);
    assert_eq!((stage.fence(), stage.record().holder_identity()), (Some(8), "a".to_owned()));
}

#[test]
fn a_late_value_of_the_watch_ends_no_turn() {
    let mut stage = Stage::new(Some(TurnRecord::default()));
    let before = stage.lease.clone();
    stage.wants();
    stage.settle(Event::Changed(before.map(Box::new)));
    assert_eq!(stage.fence(), Some(1));
}

#[test]
fn a_waiter_whose_node_is_gone_for_a_minute_leaves_the_queue() {
    let mut stage = Stage::asking(held_by_b(&["gone", "c"]));
    stage.pass(90);
    let queue: Vec<&str> = stage.record().queue.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(queue, ["c", "a"]);
}

#[test]
fn whose_place_others_take_away_reads_the_nodes_and_does_not_queue_for_an_object_that_is_gone() {
    let mut stage = Stage::asking(held_by_b(&["c", "d", "e"]));
    assert_eq!(stage.record().queue.len(), 4);
    stage.nodes[0].uid = "joined again".to_owned();
    stage.calls.clear();
    stage.edit(|record| record.queue.retain(|it| it.node != "a"));
    assert_eq!((stage.calls.as_str(), stage.waiting().rule), ("RC", TurnRule::NotListed));
    assert_eq!(stage.record().queue.len(), 3);
    assert!(!stage.pass(3_600).contains('W'));
}

#[test]
fn who_wants_no_turn_hears_who_holds_one_without_a_call_and_clears_an_entry_of_its_own_that_comes_back() {
    let mut stage = Stage::new(Some(TurnRecord::default()));
    stage.settle(Ask::Want(None));
    stage.pass(65);
    assert_eq!(
        (stage.turn.state(), stage.turn.servers_out()),
        (TurnState::NotWanted { idle: true }, Some(vec![]))
    );
    stage.calls.clear();
    stage.edit(|record| record.holders = vec![holder("b", 1), Holder { server: true, ..holder("c", 2) }]);
    assert_eq!((stage.calls.as_str(), stage.turn.servers_out()), ("", Some(vec!["c".to_owned()])));
    // As after the Lease was restored from an old copy.
    stage.edit(|record| record.holders.push(holder("a", 3)));
    assert_eq!(stage.record().holder_identity(), "b,c");
    stage.edit(|record| record.queue = vec![waiter("a", Class::Worker), waiter("d", Class::Worker)]);
    assert_eq!(stage.record().queue, [waiter("d", Class::Worker)], "it would hold up those behind it");
    assert_eq!(stage.turn.state(), TurnState::NotWanted { idle: true });
}

#[test]
fn u7_a_turn_for_an_update_of_k3s_continues_without_a_cordon_for_that_request_and_in_that_boot_alone() {
    let wanted = TurnRequest { op: Op::K3sUpdate, ..want() };
    let own = Holder { op: Op::K3sUpdate, counter: wanted.counter, ..holder("a", 7) };
    let table = [
        ("the same", own.clone(), Some(7)),
        ("another request", Holder { counter: 2, ..own.clone() }, None),
        ("another operation", Holder { op: Op::Drain, ..own }, None),
    ];
    for (what, entry, fence) in table {
        let mut stage =
            Stage::new(Some(TurnRecord { holders: vec![entry], fence: 7, ..TurnRecord::default() }));
        stage.nodes[2].ready = false;
        stage.settle(Ask::Want(Some(wanted.clone())));
        assert_eq!(stage.fence(), fence, "{what}");
    }
}

#[test]
fn a_node_whose_drain_cannot_start_neither_waits_in_the_queue_nor_enters_and_costs_nothing() {
    let unfit = |fit| Ask::Want(Some(TurnRequest { fit, ..want() }));
    let mut stage = Stage::new(Some(TurnRecord { fence: 7, ..TurnRecord::default() }));
    stage.settle(unfit(false));
    assert_eq!((stage.calls.as_str(), stage.waiting().rule), ("R", TurnRule::Preflight));
    stage.edit(|record| record.holders.push(holder("b", 8)));
    assert_eq!(stage.pass(3_600), "", "nothing is asked until its drain can start");
    stage.edit(|record| record.holders.clear());
    stage.settle(unfit(true));
    assert_eq!(stage.fence(), Some(8));

    let queue = vec![waiter("c", Class::Worker)];
    let busy = TurnRecord { holders: vec![holder("b", 7)], queue, fence: 7, ..TurnRecord::default() };
    // One that waits already makes way; one that holds keeps what it has.
    let mut stage = Stage::asking(busy);
    assert!(stage.record().waits("a"));
    stage.settle(unfit(false));
    assert!(!stage.record().waits("a") && stage.record().waits("c"));
    let mut stage = Stage::new(None);
    stage.wants();
    stage.settle(unfit(false));
    assert_eq!(stage.fence(), Some(1));
    let held = stage.turn.state();
    assert!(matches!(held, TurnState::Held { fence: 1, .. }), "{held:?}");
}
