//! The last look before the machine goes down.

use super::super::event::{Ask, Effect, Event, ReadError, RecordWritten, Unconfirmed};
use super::super::record::{Phase, TurnRecord};
use super::stage::Stage;

/// A holder, cordoned, whose calls so far are forgotten.
fn holder(server: bool) -> Stage {
    let mut stage = Stage::of(Some(TurnRecord::default()), server);
    stage.wants().cordon(1);
    stage.calls.clear();
    stage
}

/// What the looks have shown, by number.
fn shown(stage: &Stage) -> Vec<(u64, Result<(), Unconfirmed>)> {
    let of = |it: &Effect| match it {
        Effect::LookedLast(number, result) => Some((*number, result.clone())),
        _ => None,
    };
    stage.said.iter().filter_map(of).collect()
}

fn look(stage: &mut Stage) -> Result<(), Unconfirmed> {
    stage.settle(Ask::LastLook(5));
    let (number, result) = shown(stage).pop().expect("an answer");
    assert_eq!(number, 5);
    result
}

#[test]
fn a_worker_goes_after_its_lease_and_the_nodes_and_a_server_after_its_margin_and_both_say_that_they_go() {
    for (server, calls) in [(false, "RCW"), (true, "RCMW")] {
        let mut stage = holder(server);
        assert_eq!(look(&mut stage), Ok(()));
        assert_eq!(stage.calls, calls);
        assert_eq!(stage.record().holders[0].phase, Phase::GoingDown);
        // Whoever asks again is looked for again, and nothing is written twice.
        assert_eq!(look(&mut stage), Ok(()));
        assert_eq!(stage.calls, format!("{calls}{}", &calls[..calls.len() - 1]));
    }
}

#[test]
fn u3_a_server_whose_margin_went_after_the_grant_does_not_go_and_keeps_its_turn() {
    let mut stage = holder(true);
    stage.margin = Err("2 of 3 etcd voters are healthy".to_owned());
    assert_eq!(look(&mut stage), Err(Unconfirmed::NoMargin("2 of 3 etcd voters are healthy".to_owned())));
    assert!(stage.fence().is_some());
    assert_eq!(stage.record().holders[0].phase, Phase::Granted);
    stage.margin = Ok(());
    assert_eq!(look(&mut stage), Ok(()));
    // The only node of its cluster takes nothing from anybody.
    let mut alone = holder(true);
    alone.nodes.truncate(1);
    alone.margin = Err("one voter".to_owned());
    assert_eq!(look(&mut alone), Ok(()));
}

#[test]
fn u1_only_a_reading_that_began_after_the_question_answers_it() {
    let mut stage = holder(false);
    stage.hear(Ask::LastLook(5));
    let before = stage.lease.clone();
    // The same question again, while the first reading is under way; then the turn is released.
    stage.hear(Ask::LastLook(6));
    stage.put(TurnRecord { holders: vec![], ..stage.record().clone() });
    stage.read(Ok(before));
    stage.serve();
    let shown = shown(&stage);
    assert!(matches!(shown.last(), Some((6, Err(Unconfirmed::Lost(_))))), "{shown:?}");
    assert!(!shown.contains(&(6, Ok(()))) && !shown.contains(&(5, Ok(()))), "{shown:?}");
}

#[test]
fn a_look_that_meets_another_writer_looks_again() {
    let mut stage = holder(false);
    stage.hear(Ask::LastLook(5));
    stage.serve_to('W');
    // An operator releases the turn between the reading and the write.
    stage.put(TurnRecord { holders: vec![], ..stage.record().clone() });
    stage.serve();
    assert!(matches!(shown(&stage)[..], [(5, Err(Unconfirmed::Lost(_)))]), "{:?}", shown(&stage));
}

#[test]
fn a_node_whose_last_write_has_no_answer_goes_all_the_same() {
    let mut stage = holder(false);
    stage.hear(Ask::LastLook(5));
    stage.serve_with(|call| {
        let Effect::Write(id, _) = call else { return None };
        Some(Event::Wrote(*id, RecordWritten::Unknown("no answer within 2 s".to_owned())))
    });
    assert_eq!(shown(&stage), [(5, Ok(()))]);
}

#[test]
fn without_the_api_a_worker_says_so_and_a_server_asks_etcd_alone() {
    let silent = || ReadError::NoAnswer("connection refused".to_owned());
    for (server, margin) in [(false, Ok(())), (true, Ok(())), (true, Err("no word".to_owned()))] {
        let mut stage = holder(server);
        stage.hear(Ask::LastLook(5));
        stage.margin = margin.clone();
        stage.serve_with(|call| match call {
            Effect::Read(id) => Some(Event::Read(*id, Err(silent()))),
            Effect::ReadCluster(id) => Some(Event::Cluster(*id, Err(silent()))),
            _ => None,
        });
        assert_eq!(stage.calls, if server { "RCM" } else { "R" });
        let why = "connection refused".to_owned();
        assert_eq!(shown(&stage), [(5, Err(Unconfirmed::Unreachable { why, margin }))]);
        assert!(stage.fence().is_some(), "silence ends no turn");
    }
    // An API that throttles has answered: nobody goes because of that.
    let mut stage = holder(false);
    stage.hear(Ask::LastLook(5));
    stage.read(Err(ReadError::Refused("429".to_owned())));
    assert_eq!(shown(&stage), [(5, Err(Unconfirmed::Unknown("429".to_owned())))]);
}
