//! The record in the annotations of a Lease.

use std::collections::BTreeMap;

use super::super::record::{BadRecord, Class, HOLDERS, LIMIT, MODE, Op, Phase, QUEUE, TurnRecord, VERSION};
use super::rules::{holder, waiter};

fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn an_empty_lease_is_a_record() {
    assert_eq!(TurnRecord::parse(BTreeMap::new(), None), Ok(TurnRecord::default()));
}

#[test]
fn what_another_version_has_written_is_kept() {
    let holders = r#"[{"node":"b","nodeUID":"u","bootID":"x","op":"dance","counter":3,"fence":7,"phase":"resting","server":true,"since":"2026-03-14T09:00:00Z","new":{"deep":[1]}}]"#;
    let queue = r#"[{"node":"c","nodeUID":"v","class":"arbiter","op":"reboot","counter":0,"later":true}]"#;
    let mode = r#"{"id":"m","kind":"shutdown","seen":["b"]}"#;
    let text = annotations(&[
        (HOLDERS, holders),
        (QUEUE, queue),
        (MODE, mode),
        (LIMIT, "2"),
        ("pillar-rs/outage-order", "by-moon"),
        (VERSION, "1"),
        ("pillar-rs/outage-hereafter", "x"),
        ("someone.else/note", "y"),
    ]);
    let record = TurnRecord::parse(text.clone(), Some(9)).unwrap();
    assert_eq!(record.annotations().unwrap(), text);
    assert_eq!((record.transitions(), record.limit), (9, 2));
    assert_eq!(record.holders[0].op, Op::Stranger("dance".to_owned()));
    assert_eq!(record.holders[0].phase, Phase::Stranger("resting".to_owned()));
    assert_eq!(record.queue[0].class, Class::Stranger("arbiter".to_owned()));
}

#[test]
fn what_is_written_is_read_again_as_the_same() {
    let queue = vec![waiter("a", Class::Worker), waiter("b", Class::Leader)];
    let mut record = TurnRecord { queue, ..TurnRecord::default() };
    assert_eq!(record.grant(holder("a", 0)), 1);
    assert_eq!((record.queue.len(), record.holder_identity()), (1, "a".to_owned()));
    record.stamp("2026-03-14T09:00:00Z");
    record.stamp("2027-01-01T00:00:00Z");
    assert_eq!(record.holders[0].since, "2026-03-14T09:00:00Z");
    let read = TurnRecord::parse(record.annotations().unwrap(), Some(record.transitions()));
    assert_eq!(read, Ok(record));
}

#[test]
fn an_unusable_record_names_its_annotation_and_what_to_type() {
    let fix = "kubectl -n eve-kube-app annotate --overwrite lease pillar-rs-outage";
    let table = [
        (HOLDERS, "[", "pillar-rs/outage-holders='[]'"),
        (HOLDERS, r#"[{"node":"b"}]"#, "pillar-rs/outage-holders='[]'"),
        (HOLDERS, r#"[{"node":"B;","nodeUID":"u","op":"x","fence":1,"phase":"x"}]"#, "node name"),
        (QUEUE, "{}", "pillar-rs/outage-queue='[]'"),
        (MODE, "true", "pillar-rs/outage-mode-"),
        (LIMIT, "0", "at least 1"),
        (LIMIT, "-1", "pillar-rs/outage-limit=1"),
        (VERSION, "x", "pillar-rs/outage-version=1"),
    ];
    for (key, text, part) in table {
        let found = TurnRecord::parse(annotations(&[(key, text)]), None).unwrap_err().to_string();
        assert!(found.contains(key) && found.contains(part) && found.contains(fix), "{text}: {found}");
    }
    let newer = TurnRecord::parse(annotations(&[(VERSION, "2"), (HOLDERS, "?")]), None);
    assert_eq!(newer, Err(BadRecord::Newer { found: 2 }), "a newer record is not guessed at");
    assert!(newer.unwrap_err().to_string().contains("until its software is updated"));
    let negative = TurnRecord::parse(BTreeMap::new(), Some(-1)).unwrap_err().to_string();
    assert!(negative.contains("patch lease pillar-rs-outage"), "{negative}");
}
