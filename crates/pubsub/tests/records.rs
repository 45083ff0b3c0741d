//! Any bytes as a record: refused, or read as what is written back the same. `fuzz/` looks deeper.

use proptest::prelude::*;
use pubsub::record::{Fault, MESSAGE_LIMIT_BYTES, Record};

fn same(read: Result<Record, Fault>, parse: fn(&[u8]) -> Result<Record, Fault>) {
    match read {
        Ok(record) => assert_eq!(parse(record.to_message().as_bytes()), Ok(record)),
        Err(fault) => assert!(fault.to_string().len() < 200, "{fault}"),
    }
}

#[test]
fn what_fuzzing_kept_is_refused_or_read_as_it_is_written() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/record");
    let kept: Vec<_> = std::fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(kept.len() > 100, "{} messages kept", kept.len());
    for message in kept {
        let message = std::fs::read(message).unwrap();
        same(Record::parse_request(&message), Record::parse_request);
        same(Record::parse_reply(&message), Record::parse_reply);
    }
}

/// Bytes that look like records more often than chance has it.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::sample::select(
            &["hello", "update", "delete", "complete", "restarted", "request", "T", "a2V5", "e30="][..]
        )
        .prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
        "[A-Za-z0-9+/]{0,12}={0,2}".prop_map(String::into_bytes),
    ];
    prop_oneof![
        prop::collection::vec(word, 0..6).prop_map(|words| words.join(&b' ')),
        prop::collection::vec(any::<u8>(), 0..300),
        (0..MESSAGE_LIMIT_BYTES + 100, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_message_is_refused_or_read_as_it_is_written(message in message()) {
        same(Record::parse_request(&message), Record::parse_request);
        same(Record::parse_reply(&message), Record::parse_reply);
    }
}
