//! One record of the socket protocol: a subscriber's request read, a publisher's records written, within their limits.
//!
//! A message is a record: ASCII words with one space between them, without an end mark. Keys and values travel
//! as standard base64. Not here: sockets, and what a value means.
//! Source: lf-edge/eve pkg/pillar/pubsub/socketdriver. Pure: no clock, no I/O, no task.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A request of this length or longer is refused, as the reference refuses it.
pub const REQUEST_LIMIT_BYTES: usize = 256;
/// The longest message; one byte more ends a publisher of the reference.
pub const MESSAGE_LIMIT_BYTES: usize = 65534;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketRecord {
    Hello {
        topic: String,
        persistent: bool,
    },
    Update {
        topic: String,
        key: String,
        /// The value in its wire form.
        value: Vec<u8>,
    },
    Delete {
        topic: String,
        key: String,
    },
    /// All keys that existed at the request have been sent.
    Complete {
        topic: String,
    },
    /// The publisher's counter of starts.
    Restarted {
        topic: String,
        count: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    #[error("a message of {bytes} bytes or more, the limit is {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("a message that is no text")]
    NoText,
    #[error("unknown verb {0:?}")]
    Verb(String),
    #[error("request with {0} words")]
    Words(usize),
}

impl SocketRecord {
    /// The message; the caller checks its length.
    pub fn to_message(&self) -> String {
        match self {
            Self::Hello { topic, persistent } => format!("hello {topic} {persistent}"),
            Self::Update { topic, key, value } => {
                let mut message = format!("update {topic} {} ", STANDARD.encode(key));
                STANDARD.encode_string(value, &mut message);
                message
            }
            Self::Delete { topic, key } => format!("delete {topic} {}", STANDARD.encode(key)),
            Self::Complete { topic } => format!("complete {topic}"),
            Self::Restarted { topic, count } => format!("restarted {topic} {count}"),
        }
    }
}

/// Parses a subscriber's message, as the reference's publisher does. Returns the wanted topic.
pub fn parse_request(message: &[u8]) -> Result<&str, RecordFault> {
    if message.len() >= REQUEST_LIMIT_BYTES {
        return Err(RecordFault::TooLong { bytes: message.len(), limit: REQUEST_LIMIT_BYTES - 1 });
    }
    let Ok(text) = std::str::from_utf8(message) else { return Err(RecordFault::NoText) };
    let mut words = text.split(' ');
    match (words.next(), words.next(), words.count()) {
        (Some("request"), Some(topic), 0) => Ok(topic),
        (Some("request"), topic, rest) => Err(RecordFault::Words(1 + usize::from(topic.is_some()) + rest)),
        // Cut, because it goes into a log.
        (verb, ..) => Err(RecordFault::Verb(verb.unwrap_or_default().chars().take(20).collect())),
    }
}

/// Parses a publisher's message.
pub fn parse_record(message: &[u8]) -> Option<SocketRecord> {
    let words: Vec<&str> = std::str::from_utf8(message).ok()?.split(' ').collect();
    let key = |text: &str| String::from_utf8(STANDARD.decode(text).ok()?).ok();
    match *words.as_slice() {
        ["hello", topic, persistent] => {
            Some(SocketRecord::Hello { topic: topic.to_owned(), persistent: persistent == "true" })
        }
        ["update", topic, of, value] => Some(SocketRecord::Update {
            topic: topic.to_owned(),
            key: key(of)?,
            value: STANDARD.decode(value).ok()?,
        }),
        ["delete", topic, of] => Some(SocketRecord::Delete { topic: topic.to_owned(), key: key(of)? }),
        ["complete", topic] => Some(SocketRecord::Complete { topic: topic.to_owned() }),
        ["restarted", topic, count] => {
            Some(SocketRecord::Restarted { topic: topic.to_owned(), count: count.parse().ok()? })
        }
        _ => None,
    }
}

pub fn update_bytes(topic: &str, key: &str, value_bytes: usize) -> usize {
    let encoded = |bytes: usize| bytes.div_ceil(3).saturating_mul(4);
    "update   "
        .len()
        .saturating_add(topic.len())
        .saturating_add(encoded(key.len()))
        .saturating_add(encoded(value_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> String {
        "NodeDrainStatus".to_owned()
    }

    #[test]
    fn records_are_the_messages_of_the_transcript() {
        let key = || "global".to_owned();
        for (record, message) in [
            (SocketRecord::Hello { topic: topic(), persistent: false }, "hello NodeDrainStatus false"),
            (
                SocketRecord::Update {
                    topic: topic(),
                    key: key(),
                    value: br#"{"RequestedBy":1,"Status":1}"#.to_vec(),
                },
                "update NodeDrainStatus Z2xvYmFs eyJSZXF1ZXN0ZWRCeSI6MSwiU3RhdHVzIjoxfQ==",
            ),
            (SocketRecord::Delete { topic: topic(), key: key() }, "delete NodeDrainStatus Z2xvYmFs"),
            (SocketRecord::Complete { topic: topic() }, "complete NodeDrainStatus"),
            (SocketRecord::Restarted { topic: topic(), count: 2 }, "restarted NodeDrainStatus 2"),
        ] {
            assert_eq!(record.to_message(), message);
            assert_eq!(parse_record(message.as_bytes()), Some(record));
        }
        for bytes in 0..9 {
            let (key, value) = ("k".repeat(bytes), vec![b'v'; 8 - bytes]);
            let length = update_bytes("T", &key, value.len());
            assert_eq!(SocketRecord::Update { topic: "T".into(), key, value }.to_message().len(), length);
        }
    }

    #[test]
    fn words_are_counted_as_the_reference_counts_them() {
        for message in ["request", "request T extra", "request  T", "hello T", "", " request T", "Request T"]
        {
            assert!(parse_request(message.as_bytes()).is_err(), "{message:?}");
        }
        assert_eq!(parse_request(b"request NodeDrainStatus"), Ok("NodeDrainStatus"));
    }

    #[test]
    fn limits_are_those_of_the_reference() {
        let request = |bytes: usize| format!("request {}", "x".repeat(bytes - 8)).into_bytes();
        assert!(parse_request(&request(255)).is_ok());
        assert_eq!(parse_request(&request(256)), Err(RecordFault::TooLong { bytes: 256, limit: 255 }));
        assert_eq!(parse_request(b"\xff\xfe"), Err(RecordFault::NoText));
    }
}
