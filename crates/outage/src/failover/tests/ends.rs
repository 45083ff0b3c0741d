//! Entries of the record, and how each comes to its end.

use std::collections::BTreeMap;

use serde_json::json;
use topics::HeldWork;

use super::super::act::seen;
use super::super::record::{edited, open, standing};
use super::super::{DeclaredNode, FailoverState};
use super::{dead, declared, entry, node, record};
use crate::turn::pulses::Pulse;
use crate::turn::record::{FAILOVER, TurnRecord};
use crate::turn::rule::TurnNode;

#[test]
fn f8_a_node_is_declared_once_with_a_reason_and_numbers_rise() {
    let word = |name: &str| entry(name, FailoverState::Stranger(String::new()));
    let (first, number) = declared(&TurnRecord::default(), &word("n1")).unwrap();
    assert_eq!((number, &open(&first)[0].state), (1, &FailoverState::Declared));
    let twice = declared(&first, &word("n1")).unwrap_err();
    assert!(twice.contains("node n1 (number 1, declared) is declared dead already"), "{twice}");
    // Also one of an earlier object of its name, until that is seen to be gone.
    assert!(declared(&first, &DeclaredNode { node_uid: "new".to_owned(), ..word("n1") }).is_err());
    let no_reason = DeclaredNode { why: " ".to_owned(), ..word("n2") };
    assert!(declared(&first, &no_reason).unwrap_err().contains("--reason"));
    let (second, number) = declared(&first, &word("n2")).unwrap();
    assert_eq!(number, 2);
    // The same node again, once the first entry has ended; a number that somebody made up is not counted on from.
    let ended = edited(&second, &open(&second)[0], |it| it.state = FailoverState::Returned);
    assert_eq!(declared(&ended, &word("n1")).unwrap().1, 3);
    let made_up = DeclaredNode { number: u32::MAX, ..entry("n7", FailoverState::Gone) };
    assert_eq!(declared(&record(&[made_up]), &word("n1")).unwrap().1, 1);
}

#[test]
fn f8_eight_that_have_ended_are_kept_and_each_that_is_open_and_the_work_of_the_last() {
    let work = vec![HeldWork { name: "till".to_owned(), ..HeldWork::default() }];
    let of = |number: u32, state| DeclaredNode {
        number,
        work: work.clone(),
        ..entry(&format!("n{number}"), state)
    };
    let mut entries = vec![of(1, FailoverState::Tainted)];
    entries.extend((2..=11).map(|number| of(number, FailoverState::Returned)));
    let (after, number) = declared(&record(&entries), &of(0, FailoverState::Declared)).unwrap();
    assert_eq!(number, 12);
    let kept: Vec<(u32, usize)> = after.failovers.iter().map(|it| (it.number, it.work.len())).collect();
    let ended = (4..=10).map(|number| (number, 0));
    assert_eq!(kept, [(1, 1)].into_iter().chain(ended).chain([(11, 1), (12, 1)]).collect::<Vec<_>>());
}

#[test]
fn f8_what_another_version_has_written_is_kept_and_what_is_unusable_is_an_error_with_its_command() {
    let written = json!([{
        "number": 4, "node": "n1", "nodeUID": "n1-uid", "bootID": "n1-boot", "state": "fenced", "who": "w", "why": "y", "times": 0,
        "when": "", "evidence": "", "passed": [], "work": [], "later": { "deep": [1] },
    }]);
    let read = |text: String| TurnRecord::parse(BTreeMap::from([(FAILOVER.to_owned(), text)]), None);
    let record = read(written.to_string()).unwrap();
    assert_eq!(open(&record)[0].state, FailoverState::Stranger("fenced".to_owned()), "not taken for ended");
    let (after, number) = declared(&record, &entry("n2", FailoverState::Declared)).unwrap();
    assert_eq!(number, 5);
    let kept: serde_json::Value = serde_json::from_str(&after.annotations().unwrap()[FAILOVER]).unwrap();
    assert_eq!(kept[0], written[0]);
    // No turn is given while it is not known which nodes are dead.
    for text in ["{", r#"[{ "node": "N 1" }]"#] {
        let why = read(text.to_owned()).unwrap_err().to_string();
        assert!(
            why.contains("pillar-rs/failover of Lease eve-kube-app/pillar-rs-outage is not usable"),
            "{why}"
        );
        assert!(why.ends_with("lease pillar-rs-outage pillar-rs/failover='[]'"), "{why}");
    }
}

#[test]
fn f7_the_third_failover_of_a_node_in_24_h_has_a_mark_of_its_own() {
    let at = |hour: &str, name: &str, state| DeclaredNode {
        when: format!("2026-03-{hour}:00:00Z"),
        ..entry(name, state)
    };
    let word = at("15T08", "n1", FailoverState::Declared);
    let back = |hour, name| at(hour, name, FailoverState::Returned);
    let gone = at("14T09", "n1", FailoverState::Withdrawn);
    let table = [
        ("none before", vec![], "pillar-rs-1"),
        ("two within the day", vec![back("14T09", "n1"), back("15T02", "n1")], "pillar-rs-2-stays"),
        ("one of them earlier", vec![back("14T07", "n1"), back("15T02", "n1")], "pillar-rs-2"),
        ("one of another node", vec![back("14T09", "n2"), back("15T02", "n1")], "pillar-rs-2"),
        ("one that was withdrawn", vec![gone, back("15T02", "n1")], "pillar-rs-2"),
    ];
    for (what, before, mark) in table {
        assert_eq!(open(&declared(&record(&before), &word).unwrap().0)[0].mark(), mark, "{what}");
    }
}

#[test]
fn f8_an_entry_that_another_one_has_brought_on_is_not_brought_back() {
    let now = record(&[entry("n1", FailoverState::Returned)]);
    for seen in [FailoverState::Declared, FailoverState::Tainted, FailoverState::Moved] {
        let after = edited(&now, &entry("n1", seen), |it| it.state = FailoverState::Tainted);
        assert_eq!(after, now);
    }
    let seen = entry("n1", FailoverState::Returned);
    assert_eq!(edited(&now, &DeclaredNode { number: 9, ..seen.clone() }, |it| it.number = 3), now);
    assert_eq!(edited(&now, &seen, |it| it.number = 3).failovers[0].number, 3);
}

#[test]
fn f7_a_node_that_fails_again_and_again_is_back_once_a_person_has_lifted_its_cordon() {
    let entry = DeclaredNode { times: 3, ..entry("n1", FailoverState::Moved) };
    let back = |unschedulable| TurnNode { boot_id: "another".to_owned(), unschedulable, ..node("n1") };
    assert_eq!(seen(&entry, &[back(true)], true), None);
    assert_eq!(seen(&entry, &[back(false)], true), Some(FailoverState::Returned));
    let twice = DeclaredNode { times: 2, ..entry };
    assert_eq!(seen(&twice, &[back(true)], true), Some(FailoverState::Returned));
}

/// What n1 is, whether it answers; then what becomes of one that is declared, and of one that has its taint.
type Row = (&'static str, Option<TurnNode>, bool, Option<FailoverState>, Option<FailoverState>);

#[test]
fn f7_f8_each_state_by_each_reading_goes_where_the_node_is() {
    use FailoverState::{Declared, Gone, Lifted, Moved, Returned, Tainted, Withdrawn};
    let taint = |it: TurnNode| TurnNode { out_of_service: Some("pillar-rs-1".to_owned()), ..it };
    let renews = || TurnNode { pulse: Pulse::Moving, ..dead("n1") };
    let ready = || TurnNode { ready: true, ..dead("n1") };
    let rebooted = |it: TurnNode| TurnNode { boot_id: "another".to_owned(), ..it };
    let unknown = |it: TurnNode| TurnNode { boot_id: String::new(), ..it };
    let other = || TurnNode { uid: "new".to_owned(), ..node("n1") };
    let table: Vec<Row> = vec![
        ("dead, the first write was the last", Some(dead("n1")), false, None, Some(Lifted)),
        ("dead, the taint was the last write", Some(taint(dead("n1"))), false, Some(Tainted), None),
        ("it answers", Some(dead("n1")), true, Some(Withdrawn), Some(Lifted)),
        ("it renews", Some(renews()), false, Some(Withdrawn), Some(Lifted)),
        ("it is Ready", Some(ready()), false, Some(Withdrawn), Some(Lifted)),
        ("back before the taint", Some(rebooted(dead("n1"))), false, Some(Withdrawn), Some(Returned)),
        ("the same, well", Some(rebooted(node("n1"))), true, Some(Withdrawn), Some(Returned)),
        ("back with the taint", Some(taint(rebooted(node("n1")))), true, Some(Tainted), None),
        ("alive in its boot with the taint", Some(taint(node("n1"))), true, Some(Tainted), None),
        ("boot not known", Some(unknown(dead("n1"))), false, None, Some(Lifted)),
        ("Node deleted", None, false, Some(Gone), Some(Gone)),
        ("joined again", Some(other()), true, Some(Gone), Some(Gone)),
    ];
    for (what, n1, is_heard, declared, tainted) in table {
        let nodes: Vec<TurnNode> = n1.into_iter().chain([node("n2")]).collect();
        let next = |state: FailoverState| seen(&entry("n1", state), &nodes, is_heard);
        assert_eq!(next(Declared), declared, "{what}: declared");
        assert_eq!((next(Tainted), next(Moved)), (tainted.clone(), tainted), "{what}: tainted");
        let gone = next(Declared) == Some(Gone);
        // Somebody who was slow has written the taint after another one has withdrawn.
        let late = nodes[0].out_of_service.is_some();
        assert_eq!(next(Withdrawn), late.then_some(Tainted).or(gone.then_some(Gone)), "{what}: withdrawn");
        assert_eq!(standing(&record(&[entry("n1", Withdrawn)]), &nodes).len(), usize::from(late), "{what}");
        let ended = [Returned, Lifted, Gone, FailoverState::Stranger("x".to_owned())];
        for state in ended.into_iter().filter(|_| !gone) {
            assert_eq!(next(state.clone()), None, "{what}: {state:?}");
        }
    }
}
