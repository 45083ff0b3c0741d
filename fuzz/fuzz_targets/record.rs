//! Any bytes as a record of the socket protocol: refused, or read as what is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pubsub::record::{Fault, Record};

fuzz_target!(|message: &[u8]| {
    same(Record::parse_request(message), Record::parse_request);
    same(Record::parse_reply(message), Record::parse_reply);
});

fn same(read: Result<Record, Fault>, parse: fn(&[u8]) -> Result<Record, Fault>) {
    if let Ok(record) = read {
        assert_eq!(parse(record.to_message().as_bytes()), Ok(record));
    }
}
