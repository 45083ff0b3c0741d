//! Any bytes as the request of a subscriber: refused, or read as what is written back the same. `fuzz/` looks deeper.

use proptest::prelude::*;
use pubsub::record::parse_request;

fn same(message: &[u8]) {
    match parse_request(message) {
        Ok(topic) => assert_eq!(format!("request {topic}").as_bytes(), message),
        Err(fault) => assert!(fault.to_string().len() < 200, "{fault}"),
    }
}

#[test]
fn what_fuzzing_kept_is_refused_or_read_as_it_is_written() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/record");
    let kept: Vec<_> = std::fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(kept.len() > 100, "{} messages kept", kept.len());
    for message in kept {
        same(&std::fs::read(message).unwrap());
    }
}

/// Bytes that look like requests more often than chance has it.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"request".to_vec()),
        Just(b"T".to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
        "[A-Za-z0-9+/]{0,12}={0,2}".prop_map(String::into_bytes),
    ];
    prop_oneof![
        prop::collection::vec(word, 0..6).prop_map(|words| words.join(&b' ')),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_message_is_refused_or_read_as_it_is_written(message in message()) {
        same(&message);
    }
}
