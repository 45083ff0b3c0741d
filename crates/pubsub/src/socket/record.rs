//! One record of the socket protocol: read out of a message and written as one, within its limits.
//!
//! A message is a record: ASCII words with one space between them, without an end mark. Keys and values travel
//! as standard base64. Not here: sockets, and what a value means.
//! Source: lf-edge/eve pkg/pillar/pubsub/socketdriver. Pure: no clock, no I/O, no task.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A request of this length or longer is refused, as the reference refuses it.
pub const REQUEST_LIMIT_BYTES: usize = 256;
/// The longest message that is sent; one byte more ends a publisher of the reference.
pub const MESSAGE_LIMIT_BYTES: usize = 65534;

/// A message between a subscriber and a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The one message of a subscriber: it wants this topic.
    Request {
        /// The topic, without its agent.
        topic: String,
    },
    /// The publisher's first word.
    Hello {
        /// The topic.
        topic: String,
        /// Whether it survives a reboot; older publishers do not say.
        persistent: Option<bool>,
    },
    /// A key has this value.
    Update {
        /// The topic.
        topic: String,
        /// The key.
        key: String,
        /// The value in its wire form.
        value: Vec<u8>,
    },
    /// A key is gone.
    Delete {
        /// The topic.
        topic: String,
        /// The key.
        key: String,
    },
    /// All keys that there were at the request have been sent.
    Complete {
        /// The topic.
        topic: String,
    },
    /// The publisher's counter of starts.
    Restarted {
        /// The topic.
        topic: String,
        /// The counter; a text that is no number counts as one start.
        count: u32,
    },
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is longer than any legal one.
    #[error("a message of {bytes} bytes or more, the limit is {limit}")]
    TooLong {
        /// What was received of it.
        bytes: usize,
        /// The longest legal one.
        limit: usize,
    },
    /// It is no text.
    #[error("a message that is no text")]
    NoText,
    /// Its first word is none of the protocol's.
    #[error("unknown verb {0:?}")]
    Verb(String),
    /// It has too few or too many words.
    #[error("{verb} with {words} words")]
    Words {
        /// The first word.
        verb: &'static str,
        /// How many words there are, the verb included.
        words: usize,
    },
    /// A word is no standard base64, or what it holds is no text where text is due.
    #[error("{verb} whose {part} is no base64 of {what}")]
    Base64 {
        /// The first word.
        verb: &'static str,
        /// Which word.
        part: &'static str,
        /// What it should hold.
        what: &'static str,
    },
}

impl Record {
    /// The topic that the record speaks of.
    #[must_use]
    pub fn topic(&self) -> &str {
        match self {
            Self::Request { topic }
            | Self::Hello { topic, .. }
            | Self::Update { topic, .. }
            | Self::Delete { topic, .. }
            | Self::Complete { topic }
            | Self::Restarted { topic, .. } => topic,
        }
    }

    /// The message; that it is not too long is for the caller to see.
    #[must_use]
    pub fn to_message(&self) -> String {
        match self {
            Self::Request { topic } => format!("request {topic}"),
            Self::Hello { topic, persistent: Some(persistent) } => format!("hello {topic} {persistent}"),
            Self::Hello { topic, persistent: None } => format!("hello {topic}"),
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

    /// Reads the one message of a subscriber, as the reference's publisher reads it.
    ///
    /// # Errors
    /// It is too long, no text, no request, or has another number of words than two.
    pub fn parse_request(message: &[u8]) -> Result<Self, Fault> {
        if message.len() >= REQUEST_LIMIT_BYTES {
            return Err(Fault::TooLong { bytes: message.len(), limit: REQUEST_LIMIT_BYTES - 1 });
        }
        match words(message)?.as_slice() {
            ["request", topic] => Ok(Self::Request { topic: (*topic).to_owned() }),
            ["request", rest @ ..] => Err(Fault::Words { verb: "request", words: rest.len() + 1 }),
            other => Err(unknown(other)),
        }
    }

    /// Reads a message of a publisher, as the reference's subscriber reads it.
    ///
    /// # Errors
    /// It is too long, no text, of an unknown verb, has too few words, or base64 that is none.
    pub fn parse_reply(message: &[u8]) -> Result<Self, Fault> {
        if message.len() > MESSAGE_LIMIT_BYTES {
            return Err(Fault::TooLong { bytes: message.len(), limit: MESSAGE_LIMIT_BYTES });
        }
        let words = words(message)?;
        let few = |verb| Err(Fault::Words { verb, words: words.len() });
        match words.as_slice() {
            ["hello", topic, rest @ ..] => {
                let persistent = rest.first().and_then(|word| word.parse().ok());
                Ok(Self::Hello { topic: (*topic).to_owned(), persistent })
            }
            ["hello"] => few("hello"),
            ["update", topic, key, value] => Ok(Self::Update {
                topic: (*topic).to_owned(),
                key: text("update", key)?,
                value: bytes("update", "value", "bytes", value)?,
            }),
            ["update", ..] => few("update"),
            ["delete", topic, key, ..] => {
                Ok(Self::Delete { topic: (*topic).to_owned(), key: text("delete", key)? })
            }
            ["delete", ..] => few("delete"),
            ["complete", topic, ..] => Ok(Self::Complete { topic: (*topic).to_owned() }),
            ["complete"] => few("complete"),
            // A text that is no number counts as one start, as the reference logs and does not do (D-P4).
            ["restarted", topic, count, ..] => {
                Ok(Self::Restarted { topic: (*topic).to_owned(), count: count.parse().unwrap_or(1) })
            }
            ["restarted", ..] => few("restarted"),
            other => Err(unknown(other)),
        }
    }
}

/// How long the message of an update is, without writing it.
#[must_use]
pub fn update_bytes(topic: &str, key: &str, value_bytes: usize) -> usize {
    let encoded = |bytes: usize| bytes.div_ceil(3).saturating_mul(4);
    "update   "
        .len()
        .saturating_add(topic.len())
        .saturating_add(encoded(key.len()))
        .saturating_add(encoded(value_bytes))
}

fn words(message: &[u8]) -> Result<Vec<&str>, Fault> {
    let Ok(text) = std::str::from_utf8(message) else { return Err(Fault::NoText) };
    Ok(text.split(' ').collect())
}

/// The first word, cut: it goes into a log.
fn unknown(words: &[&str]) -> Fault {
    Fault::Verb(words.first().unwrap_or(&"").chars().take(20).collect())
}

fn bytes(verb: &'static str, part: &'static str, what: &'static str, word: &str) -> Result<Vec<u8>, Fault> {
    let Ok(bytes) = STANDARD.decode(word) else { return Err(Fault::Base64 { verb, part, what }) };
    Ok(bytes)
}

fn text(verb: &'static str, word: &str) -> Result<String, Fault> {
    let (part, what) = ("key", "text");
    let Ok(text) = String::from_utf8(bytes(verb, part, what, word)?) else {
        return Err(Fault::Base64 { verb, part, what });
    };
    Ok(text)
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
            (Record::Request { topic: topic() }, "request NodeDrainStatus"),
            (Record::Hello { topic: topic(), persistent: Some(false) }, "hello NodeDrainStatus false"),
            (Record::Hello { topic: topic(), persistent: None }, "hello NodeDrainStatus"),
            (
                Record::Update {
                    topic: topic(),
                    key: key(),
                    value: br#"{"RequestedBy":1,"Status":1}"#.to_vec(),
                },
                "update NodeDrainStatus Z2xvYmFs eyJSZXF1ZXN0ZWRCeSI6MSwiU3RhdHVzIjoxfQ==",
            ),
            (Record::Delete { topic: topic(), key: key() }, "delete NodeDrainStatus Z2xvYmFs"),
            (Record::Complete { topic: topic() }, "complete NodeDrainStatus"),
            (Record::Restarted { topic: topic(), count: 2 }, "restarted NodeDrainStatus 2"),
        ] {
            assert_eq!(record.to_message(), message);
            let read = match &record {
                Record::Request { .. } => Record::parse_request(message.as_bytes()),
                Record::Hello { .. }
                | Record::Update { .. }
                | Record::Delete { .. }
                | Record::Complete { .. }
                | Record::Restarted { .. } => Record::parse_reply(message.as_bytes()),
            };
            assert_eq!(read, Ok(record));
        }
        for bytes in 0..9 {
            let (key, value) = ("k".repeat(bytes), vec![b'v'; 8 - bytes]);
            let length = update_bytes("T", &key, value.len());
            assert_eq!(Record::Update { topic: "T".into(), key, value }.to_message().len(), length);
        }
    }

    #[test]
    fn words_are_counted_as_the_reference_counts_them() {
        for message in ["request", "request T extra", "request  T", "hello T", "", " request T", "Request T"]
        {
            assert!(Record::parse_request(message.as_bytes()).is_err(), "{message:?}");
        }
        for message in
            ["hello", "complete", "restarted T", "delete T", "update T a2V5", "request T", "", "\0"]
        {
            assert!(Record::parse_reply(message.as_bytes()).is_err(), "{message:?}");
        }
        assert!(Record::parse_reply(b"update T a2V5 e30= more").is_err());
        for message in ["hello T false more", "complete T more", "restarted T 1 more", "delete T a2V5 more"] {
            assert!(Record::parse_reply(message.as_bytes()).is_ok(), "{message:?}");
        }
    }

    #[test]
    fn a_word_that_is_no_base64_is_told_with_its_place() {
        for (message, part) in [
            ("update T a2V e30=", "key"),
            ("update T a2V5 e30", "value"),
            ("update T /w== e30=", "key"),
            ("delete T !", "key"),
            ("delete T a2V5\n", "key"),
        ] {
            let told = Record::parse_reply(message.as_bytes()).unwrap_err().to_string();
            assert!(told.contains(part), "{message}: {told}");
        }
    }

    #[test]
    fn d_p4_a_counter_that_is_no_number_counts_as_one_start() {
        for text in ["x", "-1", "", "99999999999"] {
            let read = Record::parse_reply(format!("restarted T {text}").as_bytes());
            assert_eq!(read, Ok(Record::Restarted { topic: "T".into(), count: 1 }), "{text:?}");
        }
    }

    #[test]
    fn limits_are_those_of_the_reference() {
        let request = |bytes: usize| format!("request {}", "x".repeat(bytes - 8)).into_bytes();
        assert!(Record::parse_request(&request(255)).is_ok());
        assert_eq!(Record::parse_request(&request(256)), Err(Fault::TooLong { bytes: 256, limit: 255 }));
        let reply = |bytes: usize| format!("complete {}", "x".repeat(bytes - 9)).into_bytes();
        assert!(Record::parse_reply(&reply(65534)).is_ok());
        assert_eq!(Record::parse_reply(&reply(65535)), Err(Fault::TooLong { bytes: 65535, limit: 65534 }));
        assert_eq!(Record::parse_reply(b"\xff\xfe"), Err(Fault::NoText));
    }
}
