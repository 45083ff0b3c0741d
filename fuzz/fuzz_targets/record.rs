//! Any bytes as the request of a subscriber: refused, or read as what is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pubsub::record::parse_request;

fuzz_target!(|message: &[u8]| {
    if let Ok(topic) = parse_request(message) {
        assert_eq!(format!("request {topic}").as_bytes(), message);
    }
});
