//! Turns while an operation of the whole site waits for the device configs of its nodes.

use super::super::event::{Event, TurnState};
use super::super::record::{Mode, TurnRecord};
use super::super::rule::TurnRule;
use super::rules::holder;
use super::stage::Stage;

fn armed(kind: &str, waits: &str) -> Mode {
    let rest = [("phase", "armed"), ("waits", waits)].map(|(key, it)| (key.to_owned(), it.into()));
    Mode { id: "m1".to_owned(), kind: kind.to_owned(), rest: rest.into_iter().collect() }
}

#[test]
fn u13_who_wants_what_the_site_is_armed_for_stands_back_names_the_others_and_asks_for_nothing() {
    let mut stage =
        Stage::new(Some(TurnRecord { mode: Some(armed("reboot", "nodes: b, c")), ..TurnRecord::default() }));
    stage.wants();
    assert_eq!(stage.calls, "R", "no look at the nodes, and no place in the queue");
    assert_eq!(stage.waiting().rule, TurnRule::Mode);
    assert!(stage.waiting().why.ends_with("which waits for nodes: b, c"), "{}", stage.waiting().why);
    assert_eq!(stage.pass(3_600), "");
    stage.calls.clear();
    stage.edit(|record| record.mode = Some(armed("reboot", "nodes: c")));
    stage.serve();
    assert!(stage.waiting().why.ends_with("which waits for nodes: c"), "{}", stage.waiting().why);
    assert_eq!(stage.calls, "R");
    // Withdrawn: it takes its turn.
    stage.edit(|record| record.mode = None);
    stage.serve();
    assert_eq!(stage.fence(), Some(1));
}

#[test]
fn u13_who_was_in_the_queue_leaves_it_when_the_site_is_armed() {
    let mut stage = Stage::new(Some(TurnRecord { holders: vec![holder("b", 7)], ..TurnRecord::default() }));
    stage.wants();
    assert_eq!(stage.record().queue.len(), 1);
    stage.edit(|record| record.mode = Some(armed("reboot", "nodes: c")));
    stage.serve();
    assert!(stage.record().queue.is_empty());
}

#[test]
fn u13_other_turns_go_on_while_the_site_is_armed() {
    let mut stage =
        Stage::new(Some(TurnRecord { mode: Some(armed("shutdown", "")), ..TurnRecord::default() }));
    stage.wants();
    assert_eq!(stage.confirm(), Ok(()));
    // Nodes that reboot one after another do so in turns.
    let restart = Mode {
        id: "m1".to_owned(),
        kind: "restart".to_owned(),
        rest: [("phase".to_owned(), "restarting".into())].into_iter().collect(),
    };
    stage.edit(|record| record.mode = Some(restart));
    assert_eq!(stage.confirm(), Ok(()));
    // The turn that it holds continues also under an operation of its own kind.
    stage.edit(|record| record.mode = Some(armed("reboot", "")));
    assert_eq!(stage.confirm(), Ok(()));
    stage.hear(Event::Look);
    stage.serve();
    assert!(matches!(stage.turn.state(), TurnState::Held { .. }));
}
