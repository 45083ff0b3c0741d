//! Entries of the record, and how each comes to its end.

use serde_json::json;
use topics::HeldWork;

use super::super::act::seen;
use super::super::record::{DeclaredNode, FAILOVER, FailoverState, all, edited, open};
use super::{dead, declared, entry, node, record};
use crate::turn::pulses::Pulse;
use crate::turn::record::TurnRecord;
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
    let ended = edited(&second, &open(&second)[0], |it| it.state = FailoverState::Returned).unwrap();
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
    let kept: Vec<(u32, usize)> = all(&after).unwrap().iter().map(|it| (it.number, it.work.len())).collect();
    let ended = (4..=10).map(|number| (number, 0));
    assert_eq!(kept, [(1, 1)].into_iter().chain(ended).chain([(11, 1), (12, 1)]).collect::<Vec<_>>());
}

#[test]
fn f8_what_another_version_has_written_is_kept_and_what_is_unusable_is_an_error_with_its_command() {
    let written = json!([{
        "number": 4, "node": "n1", "nodeUID": "n1-uid", "bootID": "n1-boot", "state": "fenced", "who": "w", "why": "y",
        "when": "", "evidence": "", "passed": [], "work": [], "later": { "deep": [1] },
    }]);
    let mut record = TurnRecord::default();
    record.others.insert(FAILOVER.to_owned(), written.to_string());
    assert_eq!(open(&record)[0].state, FailoverState::Stranger("fenced".to_owned()), "not taken for ended");
    let (after, number) = declared(&record, &entry("n2", FailoverState::Declared)).unwrap();
    assert_eq!(number, 5);
    let kept: serde_json::Value = serde_json::from_str(&after.others[FAILOVER]).unwrap();
    assert_eq!(kept[0], written[0]);
    record.others.insert(FAILOVER.to_owned(), "{".to_owned());
    let why = declared(&record, &entry("n2", FailoverState::Declared)).unwrap_err();
    assert!(why.contains("is not usable"), "{why}");
    assert!(why.ends_with("annotate --overwrite lease pillar-rs-outage pillar-rs/failover='[]'"), "{why}");
    assert!(edited(&record, &entry("n2", FailoverState::Declared), |_| ()).is_err());
    assert_eq!(open(&record), []);
}

#[test]
fn f8_an_entry_that_another_one_has_brought_on_is_not_brought_back() {
    let now = record(&[entry("n1", FailoverState::Returned)]);
    for seen in [FailoverState::Declared, FailoverState::Tainted, FailoverState::Moved] {
        let after = edited(&now, &entry("n1", seen), |it| it.state = FailoverState::Tainted).unwrap();
        assert_eq!(after, now);
    }
    let seen = entry("n1", FailoverState::Returned);
    assert_eq!(edited(&now, &DeclaredNode { number: 9, ..seen.clone() }, |it| it.number = 3).unwrap(), now);
    assert_eq!(all(&edited(&now, &seen, |it| it.number = 3).unwrap()).unwrap()[0].number, 3);
}

/// What n1 is, whether it answers; then what becomes of one that is declared, and of one that has its taint.
type Row = (&'static str, Option<TurnNode>, bool, Option<FailoverState>, Option<FailoverState>);

#[test]
fn f7_f8_each_state_by_each_reading_goes_where_the_node_is() {
    use FailoverState::{Declared, Gone, Lifted, Moved, Returned, Tainted, Withdrawn};
    let taint = |it: TurnNode| TurnNode { out_of_service: true, ..it };
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
        let gone = declared == Some(Gone);
        let ended = [Returned, Lifted, Withdrawn, Gone, FailoverState::Stranger("x".to_owned())];
        for state in ended.into_iter().filter(|_| !gone) {
            assert_eq!(next(state.clone()), None, "{what}: {state:?}");
        }
    }
}
