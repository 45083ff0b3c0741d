//! The last look before the machine goes down.

use super::super::event::{Effect, Event, ReadError, RecordWritten, Unconfirmed};
use super::super::record::{Phase, TurnRecord};
use super::stage::Stage;

/// A holder, cordoned, whose calls so far are forgotten.
fn holder(server: bool) -> Stage {
    let mut stage = Stage::of(Some(TurnRecord::default()), server);
    stage.wants();
    let fence = stage.fence().expect("a turn");
    stage.cordon(fence);
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
    stage.hear(Event::LastLook(5));
    stage.serve();
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
    stage.hear(Event::LastLook(5));
    let first = stage.pending.take();
    let before = stage.lease.clone();
    // The same question again, while the first reading is under way; then the turn is released.
    stage.hear(Event::LastLook(6));
    let mut record = stage.record().clone();
    record.holders.clear();
    stage.put(record);
    let Some(Effect::Read(id)) = first else { panic!("no look") };
    stage.hear(Event::Read(id, Ok(before.map(Box::new))));
    stage.serve();
    let shown = shown(&stage);
    assert!(matches!(shown.last(), Some((6, Err(Unconfirmed::Lost(_))))), "{shown:?}");
    assert!(!shown.contains(&(6, Ok(()))) && !shown.contains(&(5, Ok(()))), "{shown:?}");
}

#[test]
fn a_look_that_meets_another_writer_looks_again() {
    let mut stage = holder(false);
    stage.hear(Event::LastLook(5));
    while !stage.calls.ends_with('W') {
        let event = match stage.pending.take().expect("a call") {
            Effect::Read(id) => Event::Read(id, Ok(stage.lease.clone().map(Box::new))),
            Effect::ReadCluster(id) => Event::Cluster(id, Ok(stage.nodes.clone())),
            other => panic!("{other:?}"),
        };
        stage.hear(event);
    }
    // An operator releases the turn between the reading and the write.
    let mut record = stage.record().clone();
    record.holders.clear();
    stage.put(record);
    stage.serve();
    assert!(matches!(shown(&stage)[..], [(5, Err(Unconfirmed::Lost(_)))]), "{:?}", shown(&stage));
}

#[test]
fn a_node_whose_last_write_has_no_answer_goes_all_the_same() {
    let mut stage = holder(false);
    stage.hear(Event::LastLook(5));
    while let Some(call) = stage.pending.take() {
        let event = match call {
            Effect::Read(id) => Event::Read(id, Ok(stage.lease.clone().map(Box::new))),
            Effect::ReadCluster(id) => Event::Cluster(id, Ok(stage.nodes.clone())),
            Effect::Write(id, _) => {
                Event::Wrote(id, RecordWritten::Unknown("no answer within 2 s".to_owned()))
            }
            other => panic!("{other:?}"),
        };
        stage.hear(event);
    }
    assert_eq!(shown(&stage), [(5, Ok(()))]);
}

#[test]
fn without_the_api_a_worker_says_so_and_a_server_asks_etcd_alone() {
    let silent = || ReadError::NoAnswer("connection refused".to_owned());
    for (server, margin) in [(false, Ok(())), (true, Ok(())), (true, Err("no word".to_owned()))] {
        let mut stage = holder(server);
        stage.hear(Event::LastLook(5));
        while let Some(call) = stage.pending.take() {
            let event = match call {
                Effect::Read(id) => Event::Read(id, Err(silent())),
                Effect::ReadCluster(id) => Event::Cluster(id, Err(silent())),
                Effect::ReadMargin(id) => Event::Margin(id, margin.clone()),
                other => panic!("{other:?}"),
            };
            stage.hear(event);
        }
        assert_eq!(stage.calls, if server { "RCM" } else { "R" });
        let why = "connection refused".to_owned();
        assert_eq!(shown(&stage), [(5, Err(Unconfirmed::Unreachable { why, margin }))]);
        assert!(stage.fence().is_some(), "silence ends no turn");
    }
    // An API that throttles has answered: nobody goes because of that.
    let mut stage = holder(false);
    stage.hear(Event::LastLook(5));
    let Some(Effect::Read(id)) = stage.pending.take() else { panic!("no look") };
    stage.hear(Event::Read(id, Err(ReadError::Refused("429".to_owned()))));
    assert_eq!(shown(&stage), [(5, Err(Unconfirmed::Unknown("429".to_owned())))]);
}
